"""The meta layer of a JetStream cluster: which servers have which streams and consumers."""
