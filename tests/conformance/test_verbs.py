"""Verbs and lines: spelling, line ends, verbs that only servers send, and input that is not NATS."""

from __future__ import annotations

import pytest
from support.exchange import ask
from support.kernel import SocketDiag
from support.servers import Server

from .cases import CLOSED, HEADERS, OK, OPEN, QUIET, UNKNOWN, params

pytestmark = pytest.mark.timeout(60)

SPELLING = {
    "nothing": (b"", OPEN),
    "ping": (b"PING\r\n", b"PONG\r\n" + OPEN),
    "lower case": (b"ping\r\n", b"PONG\r\n" + OPEN),
    "mixed case": (b"PiNg\r\n", b"PONG\r\n" + OPEN),
    "every verb in lower case": (
        b'connect {"verbose":false}\r\nsub zzzz 1\r\npub zzzz 2\r\nhi\r\nunsub 1\r\npong\r\n+ok\r\n',
        b"MSG zzzz 1 2\r\nhi\r\n" + OPEN,
    ),
    "hpub in mixed case": (
        HEADERS + b"sUb zzzz 1\r\nhPuB zzzz 12 12\r\nNATS/1.0\r\n\r\n\r\n",
        b"HMSG zzzz 1 12 12\r\nNATS/1.0\r\n\r\n\r\n" + OPEN,
    ),
    "ping with text": (b"PING \t any text\r\n", b"PONG\r\n" + OPEN),
    "ping with text and no blank": (b"PINGS\r\n", b"PONG\r\n" + OPEN),
    "pong": (b"PONG\r\n", OPEN),
    "pong with text": (b"PONG any text\r\n", OPEN),
    "ok": (b"+OK\r\n", OPEN),
    "ok with text": (b"+ok any text\r\n", OPEN),
    "half a verb": (b"PIN\r\n", UNKNOWN),
    "half an ok": (b"+O\r\n", UNKNOWN),
    "only plus": (b"+\r\n", UNKNOWN),
    "only minus": (b"-\r\n", UNKNOWN),
    "unknown verb": (b"FOO\r\n", UNKNOWN),
    "unknown verb that begins like one": (b"PUT zzzz 1\r\n", UNKNOWN),
    "verb glued to its argument": (b"SUBzzzz 1\r\n", UNKNOWN),
    "pub without arguments": (b"PUB\r\n", UNKNOWN),
    "sub without arguments": (b"SUB\r\n", UNKNOWN),
    "unsub without arguments": (b"UNSUB\r\n", UNKNOWN),
    "pub and blanks": (b"PUB  \r\n", CLOSED),
    "sub and blanks": (b"SUB  \r\n", CLOSED),
    "unsub and blanks": (b"UNSUB  \r\n", CLOSED),
    "blank before the verb": (b" PING\r\n", UNKNOWN),
    "empty line": (b"\r\n", UNKNOWN),
    "empty line of LF": (b"\n", UNKNOWN),
    "empty line between verbs": (b"PING\r\n\r\nPING\r\n", b"PONG\r\n" + UNKNOWN),
    "what follows an error is not answered": (b"FOO\r\nPING\r\nPING\r\n", UNKNOWN),
    "what precedes an error is answered": (b"PING\r\nPING\r\nFOO\r\n", b"PONG\r\nPONG\r\n" + UNKNOWN),
}

LINE_ENDS = {
    "LF only": (b"PING\nPING\n", b"PONG\r\nPONG\r\n" + OPEN),
    "CR CR LF": (b"PING\r\r\n", b"PONG\r\n" + OPEN),
    "CR only": (b"PING\rPING\r\n", b"PONG\r\n" + OPEN),
    "connect with LF": (b'CONNECT {"verbose":false}\n', OPEN),
    "connect with CR CR LF": (b'CONNECT {"verbose":false}\r\r\n', OPEN),
    "sub and unsub with LF": (
        QUIET + b"SUB zzzz 1\nPUB zzzz 2\r\nhi\r\nUNSUB 1\nPUB zzzz 2\r\nhi\r\n",
        b"MSG zzzz 1 2\r\nhi\r\n" + OPEN,
    ),
    "pub line with LF": (QUIET + b"SUB zzzz 1\r\nPUB zzzz 2\nhi\r\n", b"MSG zzzz 1 2\r\nhi\r\n" + OPEN),
    "payload with LF": (QUIET + b"SUB zzzz 1\r\nPUB zzzz 2\r\nhi\n", UNKNOWN),
    "payload without line end": (QUIET + b"PUB zzzz 2\r\nhiPING\r\n", UNKNOWN),
    "payload with CR and no LF": (QUIET + b"PUB zzzz 2\r\nhi\rPING\r\n", UNKNOWN),
    "payload with CR CR LF": (QUIET + b"PUB zzzz 2\r\nhi\r\r\n", UNKNOWN),
    "payload with LF CR": (QUIET + b"PUB zzzz 2\r\nhi\n\r", UNKNOWN),
    "err with LF": (b"-ERR 'x'\n", CLOSED),
    "info with LF": (b"INFO {}\n", OPEN),
}

SERVER_VERBS = {
    "err closes": (b"-ERR 'any text'\r\n", CLOSED),
    "err in lower case": (b"-err any text\r\n", CLOSED),
    "err without text": (b"-ERR\r\n", UNKNOWN),
    "err with blanks only": (b"-ERR  \r\n", CLOSED),
    "info": (b"INFO {}\r\n", OPEN),
    "info in lower case": (b"info {}\r\n", OPEN),
    "info without blank": (b"INFO{}\r\n", OPEN),
    "info with fields": (
        b'INFO {"server_id":"x","version":"1","proto":1,"port":4222,"max_payload":9}\r\n',
        OPEN,
    ),
    "info with an unknown field": (b'INFO {"nosuch":1}\r\n', OPEN),
    "info with a field of a wrong type": (b'INFO {"port":"x"}\r\n', CLOSED),
    "info that is a list": (b"INFO []\r\n", CLOSED),
    "info that is null": (b"INFO null\r\n", OPEN),
    "info that is no JSON": (b"INFO {\r\n", CLOSED),
    "info without argument": (b"INFO\r\n", CLOSED),
    "msg": (b"MSG zzzz 1 2\r\nhi\r\n", UNKNOWN),
    "hmsg is taken for an empty message to nobody": (
        QUIET + b"SUB zzzz 1\r\nHMSG zzzz 1 12 12\r\n\r\n",
        OPEN,
    ),
    "hmsg, and then messages": (
        QUIET + b"SUB zzzz 1\r\nHMSG zzzz 1 12 12\r\n\r\nPUB zzzz 2\r\nhi\r\n" + b"PUB zzzz  2\r\nho\r\n",
        b"MSG zzzz 1 2\r\nhi\r\nMSG zzzz 1 2\r\nho\r\n" + OPEN,
    ),
    "hmsg of a verbose client": (b"HMSG zzzz 1 12 12\r\n\r\n", OK + OPEN),
    "hmsg with a payload": (QUIET + b"HMSG zzzz 1 12 12\r\nNATS/1.0\r\n\r\n\r\n", UNKNOWN),
    "hmsg without arguments": (QUIET + b"HMSG\r\n", UNKNOWN),
    "route's sub": (b"RS+ $G zzzz\r\n", UNKNOWN),
    "route's unsub": (b"RS- $G zzzz\r\n", UNKNOWN),
    "route's message": (b"RMSG $G zzzz 2\r\nhi\r\n", UNKNOWN),
    "leaf's sub": (b"LS+ zzzz\r\n", UNKNOWN),
    "leaf's unsub": (b"LS- zzzz\r\n", UNKNOWN),
    "leaf's message": (b"LMSG zzzz 2\r\nhi\r\n", UNKNOWN),
    "account's sub": (b"A+ $G\r\n", UNKNOWN),
    "account's unsub": (b"A- $G\r\n", UNKNOWN),
    "one byte of a route's verb": (b"R", UNKNOWN),
    "one byte of a leaf's verb": (b"l", UNKNOWN),
    "one byte of an account's verb": (b"a", UNKNOWN),
}

NOT_NATS = {
    "HTTP": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", UNKNOWN),
    "HTTP POST": (b"POST /varz HTTP/1.1\r\nHost: localhost\r\n\r\n", UNKNOWN),
    "HTTP PUT": (b"PUT /varz HTTP/1.1\r\nHost: localhost\r\n\r\n", UNKNOWN),
    "TLS client hello": (b"\x16\x03\x01\x00\x2f\x01\x00\x00\x2b\x03\x03" + bytes(32), UNKNOWN),
    "MQTT connect": (b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02id", UNKNOWN),
    "SSH": (b"SSH-2.0-OpenSSH_9.2\r\n", UNKNOWN),
    "redis": (b"*1\r\n$4\r\nPING\r\n", UNKNOWN),
    "PROXY protocol": (b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n", UNKNOWN),
    "NUL": (b"\0", UNKNOWN),
    "high bytes": (b"\xff\xfe\xfd", UNKNOWN),
    "verb that is not ASCII": ("PÜB zzzz 1\r\n".encode(), UNKNOWN),
    "JSON": (b'{"verbose":false}\r\n', UNKNOWN),
    "line of the maximum length": (b"X" * 4096 + b"\r\n", UNKNOWN),
}


@pytest.mark.parametrize(
    ("sent", "answer"), params(SPELLING) + params(LINE_ENDS) + params(SERVER_VERBS) + params(NOT_NATS)
)
def test_answer(server: Server, diag: SocketDiag, sent: bytes, answer: bytes) -> None:
    assert ask(server, [[sent]], diag) == [answer]
