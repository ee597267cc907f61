"""JetStream's part of the pollers: work at the end of a batch, answers that wait for the disk."""
