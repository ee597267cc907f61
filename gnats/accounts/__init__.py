"""Accounts: subject spaces, their exports and imports, and the server's own clients in them."""
