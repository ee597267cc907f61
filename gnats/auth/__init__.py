"""Authenticate clients: users, passwords, nkeys, certificates, JWTs and auth callouts."""
