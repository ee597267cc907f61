"""Operator mode: accounts and users are what JWTs say."""
