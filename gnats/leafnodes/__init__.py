"""Leaf nodes: connections between accounts of servers that are in no cluster together."""
