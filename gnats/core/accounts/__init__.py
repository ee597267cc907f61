"""The data plane's half of accounts, and the subscriptions that connections have in them."""
