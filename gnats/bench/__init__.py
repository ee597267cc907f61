"""The load generator and `gnats bench`."""
