"""Connections to other clusters: a super-cluster."""
