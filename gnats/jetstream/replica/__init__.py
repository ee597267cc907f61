"""Replicated JetStream: members of Raft groups in a server."""
