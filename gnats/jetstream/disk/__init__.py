"""The files of streams and consumers besides their messages."""
