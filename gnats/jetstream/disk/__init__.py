"""The files of streams and consumers, except the messages."""
