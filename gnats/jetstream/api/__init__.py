"""The JetStream API: requests, their turns and their answers."""
