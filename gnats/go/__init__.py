"""Go's numbers, texts, times and JSON, as people and programs know them from nats-server."""
