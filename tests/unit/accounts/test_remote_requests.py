"""Requesters that the header of a request from another server names."""

from __future__ import annotations

import json

import pytest

from gnats.accounts.remote_requests import with_requester

INFO = b'Nats-Request-Info: {"acc":"A","user":"u"}\r\n'


def requester(*lines: bytes) -> tuple[bytes, object] | None:
    """Return the requester and the account, None if the message stays as it is."""
    header = b"NATS/1.0\r\n" + b"".join(lines) + b"\r\n" if lines else b""
    message = (b"subject", b"reply", header, b"payload", b"", b'"SYS"', b"1")
    found = with_requester(message)
    if found is message:
        return None
    assert found[:4] + found[6:] == message[:4] + message[6:]
    return found[4], json.loads(found[5])


def test_the_header_names_the_requester() -> None:
    assert requester(b"X: y\r\n", INFO) == (b'{"acc":"A","user":"u"}', "A")


def test_the_account_is_the_one_that_imports_the_service() -> None:
    info = b'{"acc":"A","svc":"B"}'
    assert requester(b"Nats-Request-Info: " + info + b"\r\n", b"Nats-Trace-Hop: 1\r\n") == (info, "B")


def test_the_last_line_counts() -> None:
    """The other server appends its line; those before are its client's."""
    forged = b'Nats-Request-Info: {"acc":"SYS"}\r\n'
    assert requester(forged, INFO) == requester(INFO)
    assert requester(b"X: y\nNats-Request-Info: {}\r\n", forged, INFO) == requester(INFO)


@pytest.mark.parametrize(
    "lines",
    [
        (),
        (b"X: y\r\n",),
        (b"nats-request-info: {}\r\n",),
        (b"Nats-Request-Info: \r\n",),
        (b"Nats-Request-Info: {\r\n",),
        (b"Nats-Request-Info: \xff\r\n",),
        (b"Nats-Request-Info: []\r\n",),
        (b'Nats-Request-Info: {"acc":1}\r\n',),
        (b"Nats-Request-Info: " + b"[" * 100_000 + b"\r\n",),
    ],
)
def test_no_requester(lines: tuple[bytes, ...]) -> None:
    assert requester(*lines) is None


def test_an_account_that_is_not_named() -> None:
    assert requester(b"Nats-Request-Info: {}\r\n") == (b"{}", "")
