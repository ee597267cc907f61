"""What the kernel knows about a TCP connection on this machine: has the other side read all that was sent?

Linux answers through netlink (sock_diag(7)). It is how a test makes sure that two pieces of input reach a
server in two reads, without sleeping.
"""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
import termios
import time
from collections.abc import Iterable
from typing import Self

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLMSG_ERROR = 2
_NLM_F_REQUEST = 1
_TCP_ESTABLISHED = 1
_HEADER = struct.Struct("=IHHII")
_ANY = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # any interface, any cookie

TIMEOUT = 30.0  # seconds a server may leave input unread


class SocketDiag:
    """A netlink socket for questions about single IPv4 connections."""

    def __init__(self) -> None:
        self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._netlink.close()

    def unread(self, local: tuple[str, int], peer: tuple[str, int]) -> int:
        """Bytes received by the socket `local` -> `peer` that its owner has not read; 0 when it is closed."""
        addresses = b"".join(socket.inet_aton(host).ljust(16, b"\0") for host in (local[0], peer[0]))
        question = (
            struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0xFFFFFFFF)
            + struct.pack("!HH", local[1], peer[1])
            + addresses
            + _ANY
        )
        size = _HEADER.size + len(question)
        self._netlink.send(_HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0) + question)
        answer = self._netlink.recv(8192)
        body = _HEADER.size
        if _HEADER.unpack_from(answer)[1] == _NLMSG_ERROR or answer[body + 1] != _TCP_ESTABLISHED:
            return 0
        unread: int = struct.unpack_from("=I", answer, body + 56)[0]  # idiag_rqueue
        return unread

    def wait_read(self, server: tuple[str, int], sockets: Iterable[socket.socket]) -> None:
        """Returns when the server has read all that was sent on `sockets`, or has closed them.

        The kernel has no event for this, so it is asked again and again, which takes microseconds.
        Raises TimeoutError.
        """
        limit = time.monotonic() + TIMEOUT
        for sock in sockets:
            local = sock.getsockname()
            while _unsent(sock) or self.unread(server, local):
                if time.monotonic() > limit:
                    raise TimeoutError(
                        f"the server at port {server[1]} does not read what was sent from {local}"
                    )
                os.sched_yield()


def _unsent(sock: socket.socket) -> int:
    """Bytes that have not arrived at the other side, as long as that one is interested."""
    if sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _TCP_ESTABLISHED:
        return 0
    count = array.array("i", [0])
    fcntl.ioctl(sock, termios.TIOCOUTQ, count)
    return count[0]
