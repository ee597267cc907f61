"""Ask the kernel whether the other side of a TCP connection has read everything sent to it.

Linux answers through netlink (sock_diag(7)). Tests use it to make sure, without sleeping, that two pieces of
input reach a server in two reads.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterable
from typing import NamedTuple, Self

from .wire import Connection

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLMSG_ERROR = 2
_NLM_F_REQUEST = 1
_TCP_ESTABLISHED = 1
_INET_DIAG_INFO = 2

_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_REQUEST = struct.Struct("=BBBxI")  # inet_diag_req_v2, up to its inet_diag_sockid
_ANY = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # any interface, any cookie
_RQUEUE = _HEADER.size + 56  # inet_diag_msg.idiag_rqueue
_ATTRIBUTES = _HEADER.size + 72  # behind inet_diag_msg
_BYTES_RECEIVED = 4 + 128  # rtattr, then tcp_info.tcpi_bytes_received

TIMEOUT = 30.0  # seconds a server may leave input unread


class Received(NamedTuple):
    """Bytes that have arrived at a socket, and how many of them the process has not read."""

    total: int
    unread: int


class SocketDiag:
    """A netlink socket for questions about single IPv4 connections."""

    def __init__(self) -> None:
        self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._netlink.close()

    def received(self, local: tuple[str, int], peer: tuple[str, int]) -> Received | None:
        """Return the counts of the socket `local` -> `peer`, or None when it is not established."""
        request = _REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), 0xFFFFFFFF)
        ports = struct.pack("!HH", local[1], peer[1])
        addresses = b"".join(socket.inet_aton(host).ljust(16, b"\0") for host in (local[0], peer[0]))
        question = request + ports + addresses + _ANY
        header = _HEADER.pack(_HEADER.size + len(question), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0)
        self._netlink.send(header + question)
        answer = self._netlink.recv(8192)
        if _HEADER.unpack_from(answer)[1] == _NLMSG_ERROR or answer[_HEADER.size + 1] != _TCP_ESTABLISHED:
            return None
        start = _ATTRIBUTES
        while struct.unpack_from("=HH", answer, start)[1] != _INET_DIAG_INFO:
            start += (struct.unpack_from("=H", answer, start)[0] + 3) & ~3
        (total,) = struct.unpack_from("=Q", answer, start + _BYTES_RECEIVED)
        (unread,) = struct.unpack_from("=I", answer, _RQUEUE)
        return Received(total, unread)

    def wait_read(self, server: tuple[str, int], connections: Iterable[Connection]) -> None:
        """Return when the server has read everything sent on `connections`, or has closed them.

        The kernel has no event for this, so poll it; a question takes microseconds. Raises TimeoutError.
        """
        limit = time.monotonic() + TIMEOUT
        for connection in connections:
            arrived = False
            while received := self.received(server, connection.local):
                if arrived and not received.unread:
                    break
                arrived = received.total >= connection.sent  # the next answer's `unread` counts then
                if time.monotonic() > limit:
                    raise TimeoutError(
                        f"the server at port {server[1]} leaves {received.unread} bytes unread"
                    )
                os.sched_yield()
