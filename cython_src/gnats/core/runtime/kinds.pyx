"""Kinds of connection; see kinds.pxd."""
