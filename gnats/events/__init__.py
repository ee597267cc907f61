"""Events that the server publishes about clients, accounts, services and messages."""
