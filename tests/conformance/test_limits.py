"""Limits at their exact edge: control lines, payloads, subscriptions of a connection, connections."""

from __future__ import annotations

import pytest
from support.exchange import ask
from support.kernel import SocketDiag
from support.launch import Launch
from support.servers import Server
from support.wire import Closed, Connection

from .cases import CLOSED, HEADERS, OK, OPEN, QUIET, UNKNOWN, params

pytestmark = pytest.mark.timeout(60)

TOO_LONG = b"-ERR 'maximum control line exceeded'\r\n"
TOO_LARGE = b"-ERR 'Maximum Payload Violation'\r\n"
TOO_MANY = b"-ERR 'maximum subscriptions exceeded'\r\n"
HEADER = b"NATS/1.0\r\nA: 1\r\n\r\n"

CONFIG = """
max_control_line: 64
max_payload: 100
max_subscriptions: 3
"""

# With a limit of 64 bytes for the arguments.
CONTROL_LINE = {
    "sub of 64": (QUIET + b"SUB zzzz." + b"a" * 57 + b" 1\r\n", OPEN),
    "sub of 65": (QUIET + b"SUB zzzz." + b"a" * 58 + b" 1\r\n", TOO_LONG),
    "sub of 64 and blanks before": (QUIET + b"SUB  \t  zzzz." + b"a" * 57 + b" 1\r\n", OPEN),
    "sub of 64 with LF": (QUIET + b"SUB zzzz." + b"a" * 57 + b" 1\n", OPEN),
    "sub of 65 with LF": (QUIET + b"SUB zzzz." + b"a" * 58 + b" 1\n", TOO_LONG),
    "sub of 63 and a blank at the end": (QUIET + b"SUB zzzz." + b"a" * 56 + b" 1 \r\n", OPEN),
    "sub of 64 and a blank at the end": (QUIET + b"SUB zzzz." + b"a" * 57 + b" 1 \r\n", TOO_LONG),
    "unsub of 64": (QUIET + b"UNSUB " + b"1" * 64 + b"\r\n", OPEN),
    "unsub of 65": (QUIET + b"UNSUB " + b"1" * 65 + b"\r\n", TOO_LONG),
    "pub of 64": (QUIET + b"PUB zzzz." + b"a" * 57 + b" 0\r\n\r\n", OPEN),
    "pub of 65": (QUIET + b"PUB zzzz." + b"a" * 58 + b" 0\r\n\r\n", TOO_LONG),
    "hpub of 64": (HEADERS + b"HPUB zzzz." + b"a" * 55 + b" 0 0\r\n\r\n", OPEN),
    "hpub of 65": (HEADERS + b"HPUB zzzz." + b"a" * 56 + b" 0 0\r\n\r\n", TOO_LONG),
    "hpub of 65 without headers": (QUIET + b"HPUB zzzz." + b"a" * 56 + b" 0 0\r\n\r\n", TOO_LONG),
    "connect of 64": (b'CONNECT {"verbose":false,"name":"' + b"n" * 37 + b'"}\r\n', OPEN),
    "connect of 65": (b'CONNECT {"verbose":false,"name":"' + b"n" * 38 + b'"}\r\n', TOO_LONG),
    "info of 64": (b'INFO {"version":"' + b"v" * 50 + b'"}\r\n', OPEN),
    "info of 65": (b'INFO {"version":"' + b"v" * 51 + b'"}\r\n', TOO_LONG),
    "err of 64": (b"-ERR " + b"x" * 64 + b"\r\n", CLOSED),
    "err of 65": (b"-ERR " + b"x" * 65 + b"\r\n", TOO_LONG),
    "bad sub of 65": (QUIET + b"SUB " + b"a" * 65 + b"\r\n", TOO_LONG),
    "ping has no limit": (QUIET + b"PING " + b"x" * 200 + b"\r\n", b"PONG\r\n" + OPEN),
    "pong has no limit": (QUIET + b"PONG " + b"x" * 200 + b"\r\n", OPEN),
    "ok has no limit": (QUIET + b"+OK " + b"x" * 200 + b"\r\n", OPEN),
    "blanks have no limit": (QUIET + b"SUB" + b" " * 200 + b"zzzz 1\r\n", OPEN),
    "payload has no line": (
        QUIET + b"SUB zzzz 1\r\nPUB zzzz 100\r\n" + b"x" * 100 + b"\r\n",
        b"MSG zzzz 1 100\r\n" + b"x" * 100 + b"\r\n" + OPEN,
    ),
    "unfinished sub of 65": (QUIET + b"SUB " + b"a" * 65, TOO_LONG),
    "unfinished pub of 65": (QUIET + b"PUB " + b"a" * 65, TOO_LONG),
    "unfinished connect of 65": (b"CONNECT " + b"{" * 65, TOO_LONG),
    "unknown verb": (b"X" * 65 + b"\r\n", UNKNOWN),
}

PAYLOAD = {
    "pub of 100": (
        QUIET + b"SUB zzzz 1\r\nPUB zzzz 100\r\n" + b"x" * 100 + b"\r\n",
        b"MSG zzzz 1 100\r\n" + b"x" * 100 + b"\r\n" + OPEN,
    ),
    "pub of 101": (QUIET + b"SUB zzzz 1\r\nPUB zzzz 101\r\n" + b"x" * 101 + b"\r\n", TOO_LARGE),
    "pub of 101 that is only announced": (QUIET + b"PUB zzzz 101\r\n", TOO_LARGE),
    "hpub of 100": (
        HEADERS + b"SUB zzzz 1\r\nHPUB zzzz 18 100\r\n" + HEADER + b"x" * 82 + b"\r\n",
        b"HMSG zzzz 1 18 100\r\n" + HEADER + b"x" * 82 + b"\r\n" + OPEN,
    ),
    "hpub of 101": (
        HEADERS + b"SUB zzzz 1\r\nHPUB zzzz 18 101\r\n" + HEADER + b"x" * 83 + b"\r\n",
        TOO_LARGE,
    ),
    "before connect": (b"PUB zzzz 101\r\n" + b"x" * 101 + b"\r\n", TOO_LARGE),
    "nobody listens": (QUIET + b"PUB zzzz 101\r\n" + b"x" * 101 + b"\r\nPING\r\n", TOO_LARGE),
    "what was published before is delivered": (
        QUIET + b"SUB zzzz 1\r\nPUB zzzz 2\r\nhi\r\nPUB zzzz 101\r\n" + b"x" * 101 + b"\r\n",
        b"MSG zzzz 1 2\r\nhi\r\n" + TOO_LARGE,
    ),
}

SUBSCRIPTIONS = {
    "three": (QUIET + b"SUB zzzz 1\r\nSUB zzzz 2\r\nSUB zzzz 3\r\n", OPEN),
    "four": (QUIET + b"SUB zzzz 1\r\nSUB zzzz 2\r\nSUB zzzz 3\r\nSUB zzzz 4\r\n", TOO_MANY + OPEN),
    "two too many": (
        QUIET + b"".join(b"SUB zzzz %d\r\n" % sid for sid in range(5)),
        TOO_MANY * 2 + OPEN,
    ),
    "a known sid is refused too": (
        QUIET + b"SUB zzzz 1\r\nSUB zzzz 2\r\nSUB zzzz 3\r\nSUB zzzz 1\r\n",
        TOO_MANY + OPEN,
    ),
    "unsub makes room": (
        QUIET + b"SUB zzzz 1\r\nSUB zzzz 2\r\nSUB zzzz 3\r\nUNSUB 2\r\nSUB zzzz.x 4\r\nPUB zzzz.x 0\r\n\r\n",
        b"MSG zzzz.x 4 0\r\n\r\n" + OPEN,
    ),
    "unsub with a maximum makes room when it is reached": (
        QUIET + b"SUB zzzz.x 1\r\nUNSUB 1 1\r\nSUB zzzz 2\r\nSUB zzzz 3\r\nSUB zzzz 4\r\n"
        b"PUB zzzz.x 0\r\n\r\nSUB zzzz.y 4\r\nPUB zzzz.y 0\r\n\r\n",
        TOO_MANY + b"MSG zzzz.x 1 0\r\n\r\nMSG zzzz.y 4 0\r\n\r\n" + OPEN,
    ),
    "a refused subscription receives nothing": (
        QUIET + b"SUB zzzz 1\r\nSUB zzzz 2\r\nSUB zzzz 3\r\nSUB zzzz.x 4\r\nPUB zzzz.x 0\r\n\r\n",
        TOO_MANY + OPEN,
    ),
    "the limit comes before the subject": (
        QUIET + b"SUB zzzz 1\r\nSUB zzzz 2\r\nSUB zzzz 3\r\nSUB zzzz..x 4\r\n",
        TOO_MANY + OPEN,
    ),
    "the system queue comes before the limit": (
        QUIET + b"SUB zzzz 1\r\nSUB zzzz 2\r\nSUB zzzz 3\r\nSUB zzzz _sys_ 4\r\n",
        b'-ERR \'Permissions Violation for Subscription to "zzzz" using queue "_sys_"\'\r\n' + OPEN,
    ),
    "verbose": (b"SUB zzzz 1\r\nSUB zzzz 2\r\nSUB zzzz 3\r\nSUB zzzz 4\r\n", OK * 3 + TOO_MANY + OPEN),
    "duplicates do not count": (QUIET + b"SUB zzzz 1\r\n" * 3 + b"SUB zzzz 2\r\nSUB zzzz 3\r\n", OPEN),
}

# With default settings.
DEFAULT_CONTROL_LINE = {
    "sub of 4096": (QUIET + b"SUB zzzz." + b"a" * 4089 + b" 1\r\n", OPEN),
    "sub of 4097": (QUIET + b"SUB zzzz." + b"a" * 4090 + b" 1\r\n", TOO_LONG),
    "unfinished line of 10000": (QUIET + b"SUB zzzz." + b"a" * 10000, TOO_LONG),
}


@pytest.fixture(scope="module")
def strict(launch_shared: Launch) -> Server:
    """A server with narrow limits."""
    return launch_shared(config=CONFIG)


@pytest.mark.parametrize(("sent", "answer"), params(CONTROL_LINE) + params(PAYLOAD) + params(SUBSCRIPTIONS))
def test_answer(strict: Server, diag: SocketDiag, sent: bytes, answer: bytes) -> None:
    assert ask(strict, [[sent]], diag) == [answer]


@pytest.mark.parametrize(("sent", "answer"), params(DEFAULT_CONTROL_LINE))
def test_default_control_line(server: Server, diag: SocketDiag, sent: bytes, answer: bytes) -> None:
    assert ask(server, [[sent]], diag) == [answer]


def test_default_maximum_payload(server: Server) -> None:
    with Connection(server.address) as connection:
        assert connection.info["max_payload"] == 1048576
        payload = b"x" * 1048576 + b"\r\n"
        connection.send(QUIET + b"SUB payload 1\r\nPUB payload 1048576\r\n" + payload)
        assert connection.fence() == [b"MSG payload 1 1048576\r\n" + payload]
        connection.send(b"PUB payload 1048577\r\n")
        with pytest.raises(Closed) as closed:
            connection.fence()
        assert closed.value.args == (TOO_LARGE,)


def test_connections(launch: Launch) -> None:
    server = launch(config="max_connections: 2")
    refused = b"-ERR 'maximum connections exceeded'\r\n"
    with Connection(server.address) as first, Connection(server.address) as second:
        assert first.fence() == second.fence() == []  # INFO comes before the server counts a connection
        with Connection(server.address) as third:
            assert third.info["client_id"]
            assert third.rest() == refused
        assert first.fence() == second.fence() == []
        second.end()
        assert second.rest() == b""
        # The server frees the place a moment after the connection ends.
        while True:
            with Connection(server.address) as third:
                third.send(b"PING\r\n")
                if (op := third.read_op()) != refused:
                    break
        assert op == b"PONG\r\n"
        assert first.fence() == []


def test_subscriptions_are_counted_for_each_connection(launch: Launch) -> None:
    server = launch(config="max_subscriptions: 2")
    with Connection(server.address) as first, Connection(server.address) as second:
        for connection in (first, second):
            connection.send(QUIET + b"SUB a 1\r\nSUB b 2\r\n")
            assert connection.fence() == []
            connection.send(b"SUB c 3\r\n")
            assert connection.fence() == [TOO_MANY]
