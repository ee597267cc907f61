"""Delivery from one connection to others: headers, requests, no responders, echo, auto-unsubscribe."""

from __future__ import annotations

import pytest
from support.exchange import talk
from support.servers import Server

from .cases import CLOSED, HEADERS, NO_RESPONDERS, OK, OPEN, PEDANTIC, QUIET, UNKNOWN, params

pytestmark = pytest.mark.timeout(60)

PUB = b"PUB zzzz 2\r\nhi\r\n"
MSG = b"MSG zzzz 1 2\r\nhi\r\n"
HPUB = b"HPUB zzzz 18 20\r\nNATS/1.0\r\nA: 1\r\n\r\nhi\r\n"
HMSG = b"HMSG zzzz 1 18 20\r\nNATS/1.0\r\nA: 1\r\n\r\nhi\r\n"
NO_ECHO = b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"echo":false}\r\n'
NO_HEADERS = b'CONNECT {"verbose":false,"headers":false}\r\n'
REQUEST = b"PUB zzzz zzzz.in 2\r\nhi\r\n"
NOBODY = b"HMSG zzzz.in 1 36 36\r\nNATS/1.0 503\r\nNats-Subject: zzzz\r\n\r\n\r\n"

DELIVERY = {
    "one to one": ([("s", QUIET + b"SUB zzzz 1\r\n"), ("p", QUIET + PUB)], {"s": MSG + OPEN, "p": OPEN}),
    "one to three": (
        [
            ("a", QUIET + b"SUB zzzz 1\r\n"),
            ("b", QUIET + b"SUB zzzz 22\r\n"),
            ("c", QUIET + b"SUB zzzz.> 3\r\nSUB *zzzz 4\r\n"),
            ("p", QUIET + PUB),
        ],
        {"a": MSG + OPEN, "b": b"MSG zzzz 22 2\r\nhi\r\n" + OPEN, "c": OPEN, "p": OPEN},
    ),
    "order is kept": (
        [
            ("s", QUIET + b"SUB zzzz.* 1\r\n"),
            ("p", QUIET + b"".join(b"PUB zzzz.%d 1\r\nx\r\n" % (i % 3) for i in range(6))),
        ],
        {
            "s": b"MSG zzzz.0 1 1\r\nx\r\nMSG zzzz.1 1 1\r\nx\r\nMSG zzzz.2 1 1\r\nx\r\n" * 2 + OPEN,
            "p": OPEN,
        },
    ),
    "to a verbose subscriber": (
        [("s", b"SUB zzzz 1\r\n"), ("p", QUIET + PUB)],
        {"s": OK + MSG + OPEN, "p": OPEN},
    ),
    "from a verbose publisher": (
        [("s", QUIET + b"SUB zzzz 1\r\n"), ("p", PUB)],
        {"s": MSG + OPEN, "p": OK + OPEN},
    ),
    "subscriber that left with unsub": (
        [("s", QUIET + b"SUB zzzz 1\r\n"), ("p", QUIET + PUB), ("s", b"UNSUB 1\r\n"), ("p", PUB)],
        {"s": MSG + OPEN, "p": OPEN},
    ),
    "subscriber with an error": (
        [("s", QUIET + b"SUB zzzz 1\r\n"), ("p", QUIET + PUB), ("s", b"X\r\n"), ("p", PUB)],
        {"s": MSG + UNKNOWN, "p": OPEN},
    ),
    "what a client published before its error arrives": (
        [("s", QUIET + b"SUB zzzz 1\r\n"), ("p", QUIET + PUB * 2 + b"X\r\n")],
        {"s": MSG * 2 + OPEN, "p": UNKNOWN},
    ),
    "what a client published before its bad payload arrives": (
        [("s", QUIET + b"SUB zzzz 1\r\n"), ("p", QUIET + PUB + b"PUB zzzz 2\r\nhigh\r\n" + PUB)],
        {"s": MSG + OPEN, "p": UNKNOWN},
    ),
    "subject with wildcards is delivered as it is": (
        [("s", QUIET + b"SUB zzzz.> 1\r\n"), ("p", PEDANTIC + b"PUB zzzz.* 2\r\nhi\r\n")],
        {"s": b"MSG zzzz.* 1 2\r\nhi\r\n" + OPEN, "p": b"-ERR 'Invalid Publish Subject'\r\n" + OPEN},
    ),
    "two connections with the same sid": (
        [
            ("a", QUIET + b"SUB zzzz 1\r\n"),
            ("b", QUIET + b"SUB zzzz 1\r\n"),
            ("a", b"UNSUB 1\r\n"),
            ("p", QUIET + PUB),
        ],
        {"a": OPEN, "b": MSG + OPEN, "p": OPEN},
    ),
    "auto-unsubscribe counts over publishers": (
        [
            ("s", QUIET + b"SUB zzzz 1\r\nUNSUB 1 3\r\n"),
            ("p", QUIET + PUB),
            ("q", QUIET + PUB),
            ("p", PUB * 2),
        ],
        {"s": MSG * 3 + OPEN, "p": OPEN, "q": OPEN},
    ),
    "auto-unsubscribe of one of two connections": (
        [
            ("a", QUIET + b"SUB zzzz 1\r\nUNSUB 1 1\r\n"),
            ("b", QUIET + b"SUB zzzz 1\r\n"),
            ("p", QUIET + PUB * 2),
        ],
        {"a": MSG + OPEN, "b": MSG * 2 + OPEN, "p": OPEN},
    ),
    "auto-unsubscribe after delivery": (
        [("s", QUIET + b"SUB zzzz 1\r\n"), ("p", QUIET + PUB * 2), ("s", b"UNSUB 1 3\r\n"), ("p", PUB * 2)],
        {"s": MSG * 3 + OPEN, "p": OPEN},
    ),
    "auto-unsubscribe that is reached already": (
        [("s", QUIET + b"SUB zzzz 1\r\n"), ("p", QUIET + PUB * 2), ("s", b"UNSUB 1 2\r\n"), ("p", PUB * 2)],
        {"s": MSG * 2 + OPEN, "p": OPEN},
    ),
}

HEADER = {
    "to a client with headers": (
        [("s", HEADERS + b"SUB zzzz 1\r\n"), ("p", HEADERS + HPUB)],
        {"s": HMSG + OPEN, "p": OPEN},
    ),
    "to a client without headers": (
        [("s", NO_HEADERS + b"SUB zzzz 1\r\n"), ("p", HEADERS + HPUB)],
        {"s": MSG + OPEN, "p": OPEN},
    ),
    "to a client that did not connect": (
        [("s", b"SUB zzzz 1\r\n"), ("p", HEADERS + HPUB)],
        {"s": OK + MSG + OPEN, "p": OPEN},
    ),
    "to both": (
        [
            ("s", HEADERS + b"SUB zzzz 1\r\n"),
            ("t", NO_HEADERS + b"SUB zzzz 1\r\n"),
            ("p", HEADERS + HPUB + PUB),
        ],
        {
            "s": HMSG + MSG + OPEN,
            "t": MSG * 2 + OPEN,
            "p": OPEN,
        },
    ),
    "only a header, to a client without": (
        [
            ("s", QUIET + b"SUB zzzz 1\r\n"),
            ("p", HEADERS + b"HPUB zzzz 18 18\r\nNATS/1.0\r\nA: 1\r\n\r\n\r\n"),
        ],
        {"s": b"MSG zzzz 1 0\r\n\r\n" + OPEN, "p": OPEN},
    ),
    "with a reply, to both": (
        [
            ("s", HEADERS + b"SUB zzzz 1\r\n"),
            ("t", NO_HEADERS + b"SUB zzzz 1\r\n"),
            ("p", HEADERS + b"HPUB zzzz re.ply 018 020\r\nNATS/1.0\r\nA: 1\r\n\r\nhi\r\n"),
        ],
        {
            "s": b"HMSG zzzz 1 re.ply 018 020\r\nNATS/1.0\r\nA: 1\r\n\r\nhi\r\n" + OPEN,
            "t": b"MSG zzzz 1 re.ply 2\r\nhi\r\n" + OPEN,
            "p": OPEN,
        },
    ),
    "without a header, to both": (
        [("s", HEADERS + b"SUB zzzz 1\r\n"), ("t", NO_HEADERS + b"SUB zzzz 1\r\n"), ("p", HEADERS + PUB)],
        {"s": MSG + OPEN, "t": MSG + OPEN, "p": OPEN},
    ),
    "empty header, to both": (
        [
            ("s", HEADERS + b"SUB zzzz 1\r\n"),
            ("t", NO_HEADERS + b"SUB zzzz 1\r\n"),
            ("p", HEADERS + b"HPUB zzzz 0 2\r\nhi\r\n"),
        ],
        {"s": MSG + OPEN, "t": MSG + OPEN, "p": OPEN},
    ),
    "of a client that did not agree": (
        [("s", HEADERS + b"SUB zzzz 1\r\n"), ("p", NO_HEADERS + HPUB)],
        {"s": OPEN, "p": CLOSED},
    ),
}

REQUESTS = {
    "request and reply": (
        [
            ("r", QUIET + b"SUB zzzz 1\r\n"),
            ("c", NO_RESPONDERS + b"SUB zzzz.in.* 2\r\nPUB zzzz zzzz.in.7 2\r\nhi\r\n"),
            ("r", b"PUB zzzz.in.7 2\r\nho\r\n"),
        ],
        {"r": b"MSG zzzz 1 zzzz.in.7 2\r\nhi\r\n" + OPEN, "c": b"MSG zzzz.in.7 2 2\r\nho\r\n" + OPEN},
    ),
    "no responders": (
        [("c", NO_RESPONDERS + b"SUB zzzz.in 1\r\n" + REQUEST)],
        {"c": NOBODY + OPEN},
    ),
    "no responders, wildcard inbox": (
        [("c", NO_RESPONDERS + b"SUB zzzz.* abc\r\n" + REQUEST)],
        {"c": b"HMSG zzzz.in abc 36 36\r\nNATS/1.0 503\r\nNats-Subject: zzzz\r\n\r\n\r\n" + OPEN},
    ),
    "no responders, with a header": (
        [
            (
                "c",
                NO_RESPONDERS + b"SUB zzzz.in 1\r\nHPUB zzzz zzzz.in 18 20\r\nNATS/1.0\r\nA: 1\r\n\r\nhi\r\n",
            )
        ],
        {"c": NOBODY + OPEN},
    ),
    "no responders, subject of high bytes": (
        [("c", NO_RESPONDERS + b"SUB zzzz.in 1\r\nPUB \xff\xfe zzzz.in 0\r\n\r\n")],
        {"c": b"HMSG zzzz.in 1 34 34\r\nNATS/1.0 503\r\nNats-Subject: \xff\xfe\r\n\r\n\r\n" + OPEN},
    ),
    "no responders, bad subject": (
        [
            (
                "c",
                NO_RESPONDERS + b"SUB zzzz.in 1\r\nPUB zzzz..a zzzz.in 0\r\n\r\nPUB zzzz.* zzzz.in 0\r\n\r\n",
            )
        ],
        {
            "c": b"HMSG zzzz.in 1 39 39\r\nNATS/1.0 503\r\nNats-Subject: zzzz..a\r\n\r\n\r\n"
            b"HMSG zzzz.in 1 38 38\r\nNATS/1.0 503\r\nNats-Subject: zzzz.*\r\n\r\n\r\n" + OPEN
        },
    ),
    "no responders, twice": (
        [("c", NO_RESPONDERS + b"SUB zzzz.in 1\r\n" + REQUEST * 2)],
        {"c": NOBODY * 2 + OPEN},
    ),
    "no responders does not count for unsub": (
        [("c", NO_RESPONDERS + b"SUB zzzz.in 1\r\nUNSUB 1 1\r\n" + REQUEST * 2)],
        {"c": NOBODY * 2 + OPEN},
    ),
    "no responders, verbose": (
        [("c", b'CONNECT {"headers":true,"no_responders":true}\r\nSUB zzzz.in 1\r\n' + REQUEST)],
        {"c": OK * 3 + NOBODY + OPEN},
    ),
    "no responders without an inbox": ([("c", NO_RESPONDERS + REQUEST)], {"c": OPEN}),
    "no responders with an inbox in a queue": (
        [("c", NO_RESPONDERS + b"SUB zzzz.in q 1\r\n" + REQUEST)],
        {"c": OPEN},
    ),
    "no responders with another's inbox": (
        [("o", NO_RESPONDERS + b"SUB zzzz.in 1\r\n"), ("c", NO_RESPONDERS + REQUEST)],
        {"o": OPEN, "c": OPEN},
    ),
    "no responders without a reply": ([("c", NO_RESPONDERS + b"SUB zzzz.in 1\r\n" + PUB)], {"c": OPEN}),
    "no responders not asked for": ([("c", HEADERS + b"SUB zzzz.in 1\r\n" + REQUEST)], {"c": OPEN}),
    "no responders before connect": ([("c", b"SUB zzzz.in 1\r\n" + REQUEST)], {"c": OK * 2 + OPEN}),
    "responder that left": (
        [
            ("r", QUIET + b"SUB zzzz 1\r\n"),
            ("c", NO_RESPONDERS + b"SUB zzzz.in 1\r\n" + REQUEST),
            ("r", b"UNSUB 1\r\n"),
            ("c", REQUEST),
        ],
        {
            "r": b"MSG zzzz 1 zzzz.in 2\r\nhi\r\n" + OPEN,
            "c": NOBODY + OPEN,
        },
    ),
    "responder that had enough": (
        [
            ("r", QUIET + b"SUB zzzz 1\r\nUNSUB 1 1\r\n"),
            ("c", NO_RESPONDERS + b"SUB zzzz.in 1\r\n" + REQUEST * 2),
        ],
        {
            "r": b"MSG zzzz 1 zzzz.in 2\r\nhi\r\n" + OPEN,
            "c": NOBODY + OPEN,
        },
    ),
    "responder of a queue": (
        [("r", QUIET + b"SUB zzzz q 1\r\n"), ("c", NO_RESPONDERS + b"SUB zzzz.in 1\r\n" + REQUEST)],
        {"r": b"MSG zzzz 1 zzzz.in 2\r\nhi\r\n" + OPEN, "c": OPEN},
    ),
    "only responder is the client itself, without echo": (
        [("c", NO_ECHO + b"SUB zzzz.in 1\r\nSUB zzzz 2\r\n" + REQUEST)],
        {"c": NOBODY + OPEN},
    ),
    "only responder is the client's queue, without echo": (
        [("c", NO_ECHO + b"SUB zzzz.in 1\r\nSUB zzzz q 2\r\n" + REQUEST)],
        {"c": NOBODY + OPEN},
    ),
    "no responders comes in spite of no echo": (
        [("c", NO_ECHO + b"SUB zzzz.in 1\r\n" + REQUEST)],
        {"c": NOBODY + OPEN},
    ),
}

QUEUES = {
    "alone": ([("a", QUIET + b"SUB zzzz q 1\r\n"), ("p", QUIET + PUB * 2)], {"a": MSG * 2 + OPEN, "p": OPEN}),
    "two queues and a plain one": (
        [
            ("a", QUIET + b"SUB zzzz q 1\r\n"),
            ("b", QUIET + b"SUB zzzz r 2\r\n"),
            ("c", QUIET + b"SUB zzzz 3\r\n"),
            ("p", QUIET + PUB),
        ],
        {
            "a": MSG + OPEN,
            "b": b"MSG zzzz 2 2\r\nhi\r\n" + OPEN,
            "c": b"MSG zzzz 3 2\r\nhi\r\n" + OPEN,
            "p": OPEN,
        },
    ),
    "plain and queue of one connection": (
        [("a", QUIET + b"SUB zzzz q 1\r\nSUB zzzz 2\r\n"), ("p", QUIET + PUB)],
        {"a": b"MSG zzzz 2 2\r\nhi\r\nMSG zzzz 1 2\r\nhi\r\n" + OPEN, "p": OPEN},
    ),
    "same name, another subject": (
        [
            ("a", QUIET + b"SUB zzzz.a q 1\r\n"),
            ("b", QUIET + b"SUB zzzz.b q 1\r\n"),
            ("p", QUIET + b"PUB zzzz.a 0\r\n\r\nPUB zzzz.b 0\r\n\r\n"),
        ],
        {"a": b"MSG zzzz.a 1 0\r\n\r\n" + OPEN, "b": b"MSG zzzz.b 1 0\r\n\r\n" + OPEN, "p": OPEN},
    ),
    "publisher in the queue": ([("a", QUIET + b"SUB zzzz q 1\r\n" + PUB * 2)], {"a": MSG * 2 + OPEN}),
    "publisher in the queue without echo lets others have it": (
        [("a", NO_ECHO + b"SUB zzzz q 1\r\n"), ("b", QUIET + b"SUB zzzz q 1\r\n"), ("a", PUB * 5)],
        {"a": OPEN, "b": MSG * 5 + OPEN},
    ),
    "member that had enough": (
        [("a", QUIET + b"SUB zzzz q 1\r\nUNSUB 1 1\r\n"), ("p", QUIET + PUB * 3)],
        {"a": MSG + OPEN, "p": OPEN},
    ),
    "member that left with unsub": (
        [
            ("a", QUIET + b"SUB zzzz q 1\r\n"),
            ("b", QUIET + b"SUB zzzz q 1\r\n"),
            ("a", b"UNSUB 1\r\n"),
            ("p", QUIET + PUB * 5),
        ],
        {"a": OPEN, "b": MSG * 5 + OPEN, "p": OPEN},
    ),
    "member that connects again": (
        [
            ("a", QUIET + b"SUB zzzz q 1\r\n"),
            ("b", QUIET + b"SUB zzzz q 1\r\n"),
            ("a", QUIET),
            ("p", QUIET + PUB * 5),
        ],
        {"a": OPEN, "b": MSG * 5 + OPEN, "p": OPEN},
    ),
    "with headers to a member without": (
        [("a", NO_HEADERS + b"SUB zzzz q 1\r\n"), ("p", HEADERS + HPUB)],
        {"a": MSG + OPEN, "p": OPEN},
    ),
}


@pytest.mark.parametrize(
    ("steps", "answers"), params(DELIVERY) + params(HEADER) + params(REQUESTS) + params(QUEUES)
)
def test_conversation(server: Server, steps: list[tuple[str, bytes]], answers: dict[str, bytes]) -> None:
    assert talk(server, steps) == answers
