"""Clients of several accounts of one server, and what they hear, in a form that can be compared between
servers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from .servers import Server
from .wire import Connection

_REPLY = re.compile(rb"_R_\.\w{6}\.\w{6}(?:\.\w{8}\.T)?")
_VARYING = (
    (_REPLY, b"_R_"),
    (re.compile(rb'"start":"[^"]+"'), b'"start":""'),
    (re.compile(rb'"id":\d+'), b'"id":0'),
    (re.compile(rb'"rtt":\d+'), b'"rtt":0'),
    (re.compile(rb'"server":"N[A-Z0-9]+"'), b'"server":""'),
    (re.compile(rb"(HMSG [^\r\n]*?) \d+ \d+\r\n"), rb"\1\r\n"),
)


class Member:
    """A client of an account."""

    def __init__(self, server: Server, user: str, connect: str = "") -> None:
        self.connection = Connection(server.address)
        options = '"verbose":false,"pedantic":false,"headers":true,"no_responders":true'
        self.connection.send(f'CONNECT {{{options},"user":"{user}","pass":"p"{connect}}}\r\n'.encode())
        self.hear()

    def say(self, *lines: bytes) -> bytes:
        """Sends lines, and answers with what came."""
        self.connection.send(b"".join(line + b"\r\n" for line in lines))
        return self.hear()

    def subscribe(self, *subjects: bytes) -> None:
        """Subscribes to each subject (with a queue behind a blank), sids from 1 on."""
        said = self.say(*(b"SUB %b %d" % (subject, sid) for sid, subject in enumerate(subjects, 1)))
        assert said == b"", said

    def publish(self, subject: bytes, payload: bytes = b"", reply: bytes = b"") -> bytes:
        return self.say(b"PUB %b %b %d" % (subject, reply, len(payload)), payload)

    def hear(self) -> bytes:
        """What has come since the last time, without the server's own INFO, and as it was sent."""
        ops = self.connection.fence()
        return b"".join(op for op in ops if not op.startswith(b"INFO "))


def plain(heard: bytes) -> bytes:
    """What was heard without what changes from run to run: reply subjects, times, numbers and sizes."""
    for pattern, text in _VARYING:
        heard = pattern.sub(text, heard)
    return heard


def replies(heard: bytes) -> list[bytes]:
    """The reply subjects that were made for requests."""
    return _REPLY.findall(heard)


@contextmanager
def members(server: Server, users: str) -> Iterator[list[Member]]:
    """A client for each letter, the name of its user."""
    found: list[Member] = []
    try:
        found += (Member(server, user) for user in users)
        yield found
    finally:
        for member in found:
            member.connection.close()
