"""JetStream: streams and consumers, and the API that administers them."""
