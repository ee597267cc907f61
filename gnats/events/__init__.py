"""What the server publishes about clients, accounts and messages."""
