"""The JetStream API: requests, their order, and their answers."""
