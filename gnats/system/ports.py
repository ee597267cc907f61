"""Ports that are kept free for servers of this machine."""

import socket

LOOPBACK = "127.0.0.1"


def reserve_port(port: int = 0) -> socket.socket:
    """Take a TCP port of loopback, by default a free one, until the returned socket is closed.

    The system gives it to no socket that asks for any free port. A server may listen on it: a socket that
    does not listen does not hinder one that does, where both have SO_REUSEADDR. Raises OSError.
    """
    reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((LOOPBACK, port))
    except BaseException:
        reserved.close()
        raise
    return reserved


def port_of(reserved: socket.socket) -> int:
    """Return the port of a socket."""
    port: int = reserved.getsockname()[1]
    return port
