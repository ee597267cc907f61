"""The block store, compiled from cython_src/gnats/store."""
