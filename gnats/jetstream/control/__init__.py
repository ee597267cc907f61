"""Streams, consumers and the accounts that have them, as the control plane knows them."""
