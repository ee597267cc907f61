"""Kinds of connection, by what is at the other end (the kinds of client.go, with its numbers)."""

cpdef enum:
    CLIENT = 0
    ROUTER = 1
    GATEWAY = 2
    SYSTEM = 3
    LEAF = 4
    JETSTREAM = 5
    ACCOUNT = 6
