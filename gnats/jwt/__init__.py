"""Reads, checks and writes JWTs of operators, accounts, users, activations and authorizations."""
