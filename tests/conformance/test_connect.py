"""CONNECT: its fields and their types, JSON good and bad, a second CONNECT, verbose, pedantic and echo."""

from __future__ import annotations

import pytest
from support.exchange import ask
from support.kernel import SocketDiag
from support.servers import Server

from .cases import CLOSED, HEADERS, INFO, OK, OPEN, PEDANTIC, QUIET, params

pytestmark = pytest.mark.timeout(60)

JSON = {
    "empty object": (b"CONNECT {}\r\n", OK + OPEN),
    "no blank before the object": (b'CONNECT{"verbose":false}\r\n', OPEN),
    "blanks around the object": (b'CONNECT \t {"verbose":false} \t \r\n', OPEN),
    "blanks inside the object": (b'CONNECT { "verbose" : false }\r\n', OPEN),
    "no argument": (b"CONNECT\r\n", CLOSED),
    "only blanks": (b"CONNECT  \r\n", CLOSED),
    "unfinished object": (b"CONNECT {\r\n", CLOSED),
    "no object": (b"CONNECT verbose\r\n", CLOSED),
    "list": (b"CONNECT []\r\n", CLOSED),
    "string": (b'CONNECT "verbose"\r\n', CLOSED),
    "number": (b"CONNECT 1\r\n", CLOSED),
    "null": (b"CONNECT null\r\n", OK + OPEN),
    "text behind the object": (b'CONNECT {"verbose":false} x\r\n', CLOSED),
    "two objects": (b'CONNECT {"verbose":false}{}\r\n', CLOSED),
    "single quotes": (b"CONNECT {'verbose':false}\r\n", CLOSED),
    "trailing comma": (b'CONNECT {"verbose":false,}\r\n', CLOSED),
    "comment": (b'CONNECT {"verbose":false/*x*/}\r\n', CLOSED),
    "NaN": (b'CONNECT {"verbose":false,"x":NaN}\r\n', CLOSED),
    "byte order mark": (b'CONNECT \xef\xbb\xbf{"verbose":false}\r\n', CLOSED),
    "CR inside": (b'CONNECT {"verbose":\rfalse}\r\n', OPEN),
    "control character in a string": (b'CONNECT {"verbose":false,"name":"a\tb"}\r\n', CLOSED),
    "escapes in a string": (b'CONNECT {"verbose":false,"name":"a\\tb\\u00e9\\/"}\r\n', OPEN),
    "lone surrogate in a string": (b'CONNECT {"verbose":false,"name":"\\ud800"}\r\n', OPEN),
    "bad escape in a string": (b'CONNECT {"verbose":false,"name":"\\x"}\r\n', CLOSED),
    "UTF-8 in a string": ('CONNECT {"verbose":false,"name":"é"}\r\n'.encode(), OPEN),
    "bytes that are no UTF-8 in a string": (b'CONNECT {"verbose":false,"name":"\xff"}\r\n', OPEN),
    "same field twice": (b'CONNECT {"verbose":true,"verbose":false}\r\n', OPEN),
    "field in capitals": (b'CONNECT {"VERBOSE":false}\r\n', OPEN),
    "unknown fields": (b'CONNECT {"verbose":false,"nosuch":[1,{"a":[]},null]}\r\n', OPEN),
    "deeply nested unknown field": (
        b'CONNECT {"verbose":false,"x":' + b"[" * 500 + b"]" * 500 + b"}\r\n",
        OPEN,
    ),
}

FIELDS = {
    "verbose true": (b'CONNECT {"verbose":true}\r\n', OK + OPEN),
    "verbose null": (b'CONNECT {"verbose":null}\r\n', OK + OPEN),
    "all that a client sends": (
        b'CONNECT {"verbose":false,"pedantic":false,"tls_required":false,"name":"me","lang":"python3",'
        b'"version":"2.9.0","protocol":1,"echo":true,"headers":true,"no_responders":true}\r\n',
        b"PONG\r\n" + INFO,
    ),
    "protocol 0": (b'CONNECT {"verbose":false,"protocol":0}\r\n', OPEN),
    "protocol 1": (b'CONNECT {"verbose":false,"protocol":1}\r\n', b"PONG\r\n" + INFO),
    "protocol 2": (b'CONNECT {"verbose":false,"protocol":2}\r\n', b"-ERR 'invalid client protocol'\r\n"),
    "protocol -1": (b'CONNECT {"verbose":false,"protocol":-1}\r\n', b"-ERR 'invalid client protocol'\r\n"),
    "protocol of more than 64 bits": (b'CONNECT {"protocol":99999999999999999999}\r\n', CLOSED),
    "protocol 1.0": (b'CONNECT {"protocol":1.0}\r\n', CLOSED),
    "protocol 1e0": (b'CONNECT {"protocol":1e0}\r\n', CLOSED),
    "account": (b'CONNECT {"verbose":false,"account":"A"}\r\n', b"-ERR 'Authorization Violation'\r\n"),
    "account that is empty": (b'CONNECT {"verbose":false,"account":""}\r\n', OPEN),
    "new account": (
        b'CONNECT {"verbose":false,"new_account":true}\r\n',
        b"-ERR 'Authorization Violation'\r\n",
    ),
    "new account false": (b'CONNECT {"verbose":false,"new_account":false}\r\n', OPEN),
    "user and password where none is needed": (b'CONNECT {"verbose":false,"user":"u","pass":"p"}\r\n', OPEN),
    "token where none is needed": (b'CONNECT {"verbose":false,"auth_token":"t"}\r\n', OPEN),
    "nkey and jwt where none is needed": (
        b'CONNECT {"verbose":false,"nkey":"U","jwt":"j","sig":"s"}\r\n',
        OPEN,
    ),
    "tls required of a server without": (b'CONNECT {"verbose":false,"tls_required":true}\r\n', OPEN),
    "no responders without headers": (
        b'CONNECT {"verbose":false,"no_responders":true}\r\n',
        b"-ERR 'no responders requires headers support'\r\n",
    ),
    "no responders and headers refused": (
        b'CONNECT {"verbose":false,"no_responders":true,"headers":false}\r\n',
        b"-ERR 'no responders requires headers support'\r\n",
    ),
    "no responders with headers": (
        b'CONNECT {"verbose":false,"no_responders":true,"headers":true}\r\n',
        OPEN,
    ),
    "import and export": (
        b'CONNECT {"verbose":false,"import":{"allow":["a"]},"export":{"deny":["b"]}}\r\n',
        OPEN,
    ),
}

WRONG_TYPES = {
    f"{field} is {value.decode()}": (b'CONNECT {"' + field.encode() + b'":' + value + b"}\r\n", answer)
    for field, value, answer in [
        *((field, b"1", CLOSED) for field in (
            "name", "lang", "version", "user", "pass", "auth_token", "jwt", "nkey", "sig", "account",
            "remote_account", "proxy_sig", "import", "export",
        )),
        *((field, b'"true"', CLOSED) for field in (
            "verbose", "pedantic", "echo", "headers", "no_responders", "tls_required", "new_account",
            "protocol", "import", "export",
        )),
        *((field, b"0", CLOSED) for field in ("verbose", "pedantic", "echo", "headers")),
        *((field, b"null", OK + OPEN) for field in (
            "name", "lang", "user", "pass", "protocol", "echo", "headers", "import", "account",
        )),
        ("name", b"{}", CLOSED),
        ("verbose", b"[]", CLOSED),
    ]
}  # fmt: skip

TWICE = {
    "settings that are not repeated stay": (QUIET + b"CONNECT {}\r\nSUB zzzz 1\r\n", OPEN),
    "verbose on": (QUIET + b'CONNECT {"verbose":true}\r\nSUB zzzz 1\r\n', OK * 2 + OPEN),
    "verbose off": (
        b'CONNECT {"verbose":true}\r\nSUB zzzz 1\r\nCONNECT {"verbose":false}\r\nSUB zzzz 1\r\n',
        OK * 2 + OPEN,
    ),
    "subscriptions are dropped": (QUIET + b"SUB zzzz 1\r\n" + QUIET + b"PUB zzzz 2\r\nhi\r\n", OPEN),
    "subscriptions of before the first one stay": (
        b"SUB zzzz 1\r\n" + QUIET + b"PUB zzzz 2\r\nhi\r\n",
        OK + b"MSG zzzz 1 2\r\nhi\r\n" + OPEN,
    ),
    "a dropped sid is free": (
        QUIET + b"SUB zzzz.a 1\r\n" + QUIET + b"SUB zzzz.b 1\r\nPUB zzzz.a 0\r\n\r\nPUB zzzz.b 0\r\n\r\n",
        b"MSG zzzz.b 1 0\r\n\r\n" + OPEN,
    ),
    "bad JSON": (QUIET + b"CONNECT {\r\n", CLOSED),
    "bad protocol": (QUIET + b'CONNECT {"protocol":7}\r\n', b"-ERR 'invalid client protocol'\r\n"),
    "protocol 1 after 0": (QUIET + b'CONNECT {"protocol":1}\r\n', b"PONG\r\n" + INFO),
    "protocol 1 after 0 and a ping": (
        QUIET + b'PING\r\nCONNECT {"protocol":1}\r\nPING\r\n',
        b"PONG\r\nPONG\r\n" + OPEN,
    ),
    "headers off": (
        HEADERS + b'SUB zzzz 1\r\nCONNECT {"headers":false}\r\nHPUB zzzz 12 12\r\nNATS/1.0\r\n\r\n\r\n',
        CLOSED,
    ),
}

CONNECT_INFO = {
    "protocol 1, first ping": (
        b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\nPING\r\n',
        b"PONG\r\n" + INFO + b"PONG\r\n" + OPEN,
    ),
    "protocol 0, first ping": (
        b'CONNECT {"verbose":false,"protocol":0}\r\nPING\r\nPING\r\n',
        b"PONG\r\nPONG\r\n" + OPEN,
    ),
    "ping before connect does not count": (
        b'PING\r\nCONNECT {"verbose":false,"protocol":1}\r\nPING\r\nPING\r\n',
        b"PONG\r\nPONG\r\n" + INFO + b"PONG\r\n" + OPEN,
    ),
}

VERBOSE = {
    "without connect": (
        b"SUB zzzz 1\r\nPUB zzzz 2\r\nhi\r\nUNSUB 1 5\r\nUNSUB 1\r\nUNSUB 1\r\nPONG\r\n+OK\r\nINFO {}\r\n",
        OK * 2 + b"MSG zzzz 1 2\r\nhi\r\n" + OK * 3 + OPEN,
    ),
    "every verb": (
        b'CONNECT {"verbose":true,"headers":true}\r\nSUB zzzz 1\r\nPUB zzzz 2\r\nhi\r\n'
        b"HPUB zzzz 12 12\r\nNATS/1.0\r\n\r\n\r\nUNSUB 1 9\r\nUNSUB 1\r\nUNSUB nosuch\r\n"
        b"PING\r\nPONG\r\n+OK\r\n",
        OK * 3
        + b"MSG zzzz 1 2\r\nhi\r\n"
        + OK
        + b"HMSG zzzz 1 12 12\r\nNATS/1.0\r\n\r\n\r\n"
        + OK * 3
        + b"PONG\r\n"
        + OPEN,
    ),
    "same sid again": (b"CONNECT {}\r\nSUB zzzz 1\r\nSUB zzzz 1\r\n", OK * 3 + OPEN),
    "refused subscription": (
        b"CONNECT {}\r\nSUB zzzz.. 1\r\nSUB zzzz _sys_ 2\r\n",
        OK
        + b"-ERR 'Invalid Subject'\r\n"
        + b'-ERR \'Permissions Violation for Subscription to "zzzz" using queue "_sys_"\'\r\n'
        + OPEN,
    ),
    "refused message": (
        b"CONNECT {}\r\nPUB $NRG.x 0\r\n\r\nPUB zzzz _R_.x 0\r\n\r\n",
        OK
        + b"-ERR 'Permissions Violation for Publish to \"$NRG.x\"'\r\n"
        + b"-ERR 'Permissions Violation for Publish with Reply of \"_R_.x\"'\r\n"
        + OPEN,
    ),
}

PEDANTRY = {
    "wildcard in a published subject": (
        PEDANTIC + b"PUB zzzz.* 2\r\nhi\r\n",
        b"-ERR 'Invalid Publish Subject'\r\n" + OPEN,
    ),
    "full wildcard in a published subject": (
        PEDANTIC + b"PUB zzzz.> 2\r\nhi\r\n",
        b"-ERR 'Invalid Publish Subject'\r\n" + OPEN,
    ),
    "star inside a token": (PEDANTIC + b"PUB zzzz.a*b 2\r\nhi\r\n", OPEN),
    "empty token": (PEDANTIC + b"PUB zzzz..a 2\r\nhi\r\n", b"-ERR 'Invalid Publish Subject'\r\n" + OPEN),
    "dot at the end": (PEDANTIC + b"PUB zzzz. 2\r\nhi\r\n", b"-ERR 'Invalid Publish Subject'\r\n" + OPEN),
    "dot at the beginning": (
        PEDANTIC + b"PUB .zzzz 2\r\nhi\r\n",
        b"-ERR 'Invalid Publish Subject'\r\n" + OPEN,
    ),
    "only a dot": (PEDANTIC + b"PUB . 2\r\nhi\r\n", b"-ERR 'Invalid Publish Subject'\r\n" + OPEN),
    "good subject": (PEDANTIC + b"PUB zzzz.a 2\r\nhi\r\n", OPEN),
    "bad reply is not looked at": (PEDANTIC + b"PUB zzzz a..b 2\r\nhi\r\n", OPEN),
    "delivered all the same": (
        PEDANTIC + b"SUB zzzz.> 1\r\nPUB zzzz.* 2\r\nhi\r\n",
        b"-ERR 'Invalid Publish Subject'\r\nMSG zzzz.* 1 2\r\nhi\r\n" + OPEN,
    ),
    "with headers": (
        b'CONNECT {"verbose":false,"pedantic":true,"headers":true}\r\n'
        b"HPUB zzzz.* 12 12\r\nNATS/1.0\r\n\r\n\r\n",
        b"-ERR 'Invalid Publish Subject'\r\n" + OPEN,
    ),
    "is the default before connect": (
        b"PUB zzzz.* 2\r\nhi\r\n",
        b"-ERR 'Invalid Publish Subject'\r\n" + OK + OPEN,
    ),
    "off": (b'CONNECT {"pedantic":false,"verbose":false}\r\nPUB zzzz.* 2\r\nhi\r\n', OPEN),
}

ECHO = {
    "on": (QUIET + b"SUB zzzz 1\r\nPUB zzzz 2\r\nhi\r\n", b"MSG zzzz 1 2\r\nhi\r\n" + OPEN),
    "off": (b'CONNECT {"verbose":false,"echo":false}\r\nSUB zzzz 1\r\nPUB zzzz 2\r\nhi\r\n', OPEN),
    "off for queue groups": (
        b'CONNECT {"verbose":false,"echo":false}\r\nSUB zzzz q 1\r\nPUB zzzz 2\r\nhi\r\n',
        OPEN,
    ),
    "off does not count for unsub": (
        b'CONNECT {"verbose":false,"echo":false}\r\nSUB zzzz 1\r\nUNSUB 1 1\r\nPUB zzzz 2\r\nhi\r\n'
        b'CONNECT {"echo":true}\r\nSUB zzzz 1\r\nPUB zzzz 2\r\nho\r\n',
        b"MSG zzzz 1 2\r\nho\r\n" + OPEN,
    ),
}


@pytest.mark.parametrize(
    ("sent", "answer"),
    params(JSON)
    + params(FIELDS)
    + params(WRONG_TYPES)
    + params(TWICE)
    + params(CONNECT_INFO)
    + params(VERBOSE)
    + params(PEDANTRY)
    + params(ECHO),
)
def test_answer(server: Server, diag: SocketDiag, sent: bytes, answer: bytes) -> None:
    assert ask(server, [[sent]], diag) == [answer]
