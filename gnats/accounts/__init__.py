"""Accounts: subject spaces, what they share, and the server's own clients in them."""
