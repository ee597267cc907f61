"""`gnats cluster`: start a cluster of servers on this machine, to try and to test."""
