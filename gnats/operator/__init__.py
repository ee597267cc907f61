"""Operator mode: JWTs define the accounts and users."""
