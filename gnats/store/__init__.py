"""The message store of a stream, compiled from cython_src/gnats/store."""
