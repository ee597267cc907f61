"""Clients, as the control plane knows them."""
