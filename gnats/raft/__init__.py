"""Raft groups, compiled from cython_src/gnats/raft."""
