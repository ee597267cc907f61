"""What is at the other end of a connection; see kinds.pxd."""
