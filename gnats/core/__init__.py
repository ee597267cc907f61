"""The data plane, compiled from cython_src/gnats/core."""
