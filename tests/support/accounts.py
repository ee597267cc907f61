"""Clients of several accounts of one server; `plain` makes their output comparable between servers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

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
    """A client of an account, logged in as `user` with the password "p". Raises Closed when it is refused.

    `connect` is JSON text to append to the members of CONNECT, such as ',"echo":false'.
    """

    def __init__(self, server: Server, user: str, connect: str = "") -> None:
        self.connection = Connection(server.address)
        options = '"verbose":false,"pedantic":false,"headers":true,"no_responders":true'
        try:
            self.connection.send(f'CONNECT {{{options},"user":"{user}","pass":"p"{connect}}}\r\n'.encode())
            self.hear()
        except BaseException:
            self.connection.close()
            raise

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def say(self, *lines: bytes) -> bytes:
        """Send lines, each without its line end; return what the client received, as `hear` does."""
        self.connection.send(b"".join(line + b"\r\n" for line in lines))
        return self.hear()

    def subscribe(self, *subjects: bytes) -> None:
        """Subscribe to each subject, with sids from 1; an entry may be b"subject queue"."""
        said = self.say(*(b"SUB %b %d" % (subject, sid) for sid, subject in enumerate(subjects, 1)))
        assert said == b"", said

    def publish(self, subject: bytes, payload: bytes = b"", reply: bytes = b"") -> bytes:
        return self.say(b"PUB %b %b %d" % (subject, reply, len(payload)), payload)

    def hear(self) -> bytes:
        """Return the bytes received since the last call, without the server's INFO."""
        ops = self.connection.fence()
        return b"".join(op for op in ops if not op.startswith(b"INFO "))


def plain(heard: bytes) -> bytes:
    """Replace what differs from run to run: reply subjects, times, ids, round trips, HMSG sizes."""
    for pattern, text in _VARYING:
        heard = pattern.sub(text, heard)
    return heard


def replies(heard: bytes) -> list[bytes]:
    """Return the reply subjects that the server made for requests over service imports."""
    return _REPLY.findall(heard)


@contextmanager
def members(server: Server, users: str) -> Iterator[list[Member]]:
    """Connect a client for each letter of `users`: each letter is the name of a user."""
    with ExitStack() as stack:
        yield [stack.enter_context(Member(server, user)) for user in users]
