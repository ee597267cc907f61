"""SUB and UNSUB: arguments, subjects, wildcards, sids, and unsubscribing after a number of messages."""

from __future__ import annotations

import pytest
from support.exchange import ask
from support.kernel import SocketDiag
from support.servers import Server

from .cases import CLOSED, OK, OPEN, QUIET, params

pytestmark = pytest.mark.timeout(60)

PUB = b"PUB zzzz.a 2\r\nhi\r\n"
MSG = b"MSG zzzz.a 1 2\r\nhi\r\n"

ARGUMENTS = {
    "subject and sid": (QUIET + b"SUB zzzz.a 1\r\n" + PUB, MSG + OPEN),
    "subject, queue and sid": (QUIET + b"SUB zzzz.a q 1\r\n" + PUB, MSG + OPEN),
    "only a subject": (QUIET + b"SUB zzzz.a\r\n" + PUB, CLOSED),
    "four arguments": (QUIET + b"SUB zzzz.a q 1 2\r\n" + PUB, CLOSED),
    "five arguments": (QUIET + b"SUB zzzz.a q 1 2 3\r\n" + PUB, CLOSED),
    "tabs": (QUIET + b"SUB\tzzzz.a\tq\t1\r\n" + PUB, MSG + OPEN),
    "repeated blanks": (QUIET + b"SUB \t zzzz.a \t q  1 \r\n" + PUB, MSG + OPEN),
    "sid of letters": (QUIET + b"SUB zzzz.a abc\r\n" + PUB, b"MSG zzzz.a abc 2\r\nhi\r\n" + OPEN),
    "long sid": (
        QUIET + b"SUB zzzz.a " + b"s" * 100 + b"\r\n" + PUB,
        b"MSG zzzz.a " + b"s" * 100 + b" 2\r\nhi\r\n" + OPEN,
    ),
    "sid with dots and stars": (
        QUIET + b"SUB zzzz.a a.*.>\r\n" + PUB,
        b"MSG zzzz.a a.*.> 2\r\nhi\r\n" + OPEN,
    ),
    "sid of high bytes": (QUIET + b"SUB zzzz.a \xff\r\n" + PUB, b"MSG zzzz.a \xff 2\r\nhi\r\n" + OPEN),
    "queue with dots": (QUIET + b"SUB zzzz.a q.r 1\r\n" + PUB, MSG + OPEN),
    "queue named like a wildcard": (
        QUIET + b"SUB zzzz.a * 1\r\nSUB zzzz.b > 2\r\n" + PUB + b"PUB zzzz.b 0\r\n\r\n",
        MSG + b"MSG zzzz.b 2 0\r\n\r\n" + OPEN,
    ),
    "system queue": (
        QUIET + b"SUB zzzz.a _sys_ 1\r\n" + PUB,
        b'-ERR \'Permissions Violation for Subscription to "zzzz.a" using queue "_sys_"\'\r\n' + OPEN,
    ),
    "system queue in capitals": (QUIET + b"SUB zzzz.a _SYS_ 1\r\n" + PUB, MSG + OPEN),
    "before connect": (b"SUB zzzz.a 1\r\n" + PUB, OK * 2 + MSG + OPEN),
    "same sid again": (
        QUIET + b"SUB zzzz.a 1\r\nSUB zzzz.b 1\r\n" + PUB + b"PUB zzzz.b 2\r\nhi\r\n",
        MSG + OPEN,
    ),
    "same sid again with a bad subject": (
        QUIET + b"SUB zzzz.a 1\r\nSUB zzzz..a 1\r\n" + PUB,
        MSG + OPEN,
    ),
    "same subject again": (
        QUIET + b"SUB zzzz.a 1\r\nSUB zzzz.a 2\r\nUNSUB 1\r\n" + PUB,
        b"MSG zzzz.a 2 2\r\nhi\r\n" + OPEN,
    ),
    "a refused sid is free": (
        QUIET + b"SUB zzzz..a 1\r\nSUB zzzz.a 1\r\n" + PUB,
        b"-ERR 'Invalid Subject'\r\n" + MSG + OPEN,
    ),
    "unsub frees the sid": (
        QUIET + b"SUB zzzz.b 1\r\nUNSUB 1\r\nSUB zzzz.a 1\r\n" + PUB,
        MSG + OPEN,
    ),
}

SUBJECTS = {
    "one character": (QUIET + b"SUB x 1\r\n", OPEN),
    "empty token": (QUIET + b"SUB zzzz..a 1\r\n", b"-ERR 'Invalid Subject'\r\n" + OPEN),
    "dot at the end": (QUIET + b"SUB zzzz. 1\r\n", b"-ERR 'Invalid Subject'\r\n" + OPEN),
    "dot at the beginning": (QUIET + b"SUB .zzzz 1\r\n", b"-ERR 'Invalid Subject'\r\n" + OPEN),
    "only a dot": (QUIET + b"SUB . 1\r\n", b"-ERR 'Invalid Subject'\r\n" + OPEN),
    "two dots": (QUIET + b"SUB .. 1\r\n", b"-ERR 'Invalid Subject'\r\n" + OPEN),
    "full wildcard": (QUIET + b"SUB > 1\r\n", OPEN),
    "full wildcard in the middle": (QUIET + b"SUB zzzz.>.a 1\r\n", b"-ERR 'Invalid Subject'\r\n" + OPEN),
    "full wildcard and a dot": (QUIET + b"SUB zzzz.>. 1\r\n", b"-ERR 'Invalid Subject'\r\n" + OPEN),
    "two full wildcards": (QUIET + b"SUB zzzz.>.> 1\r\n", b"-ERR 'Invalid Subject'\r\n" + OPEN),
    "full wildcard inside a token": (
        QUIET + b"SUB zzzz.a> 1\r\nPUB zzzz.a> 0\r\n\r\nPUB zzzz.ab 0\r\n\r\n",
        b"MSG zzzz.a> 1 0\r\n\r\n" + OPEN,
    ),
    "full wildcard that begins a token": (
        QUIET + b"SUB zzzz.>a 1\r\nPUB zzzz.>a 0\r\n\r\nPUB zzzz.b 0\r\n\r\n",
        b"MSG zzzz.>a 1 0\r\n\r\n" + OPEN,
    ),
    "star inside a token": (
        QUIET + b"SUB zzzz.a* 1\r\nPUB zzzz.a* 0\r\n\r\nPUB zzzz.ab 0\r\n\r\n",
        b"MSG zzzz.a* 1 0\r\n\r\n" + OPEN,
    ),
    "two stars in a token": (
        QUIET + b"SUB zzzz.** 1\r\nPUB zzzz.** 0\r\n\r\nPUB zzzz.ab 0\r\n\r\n",
        b"MSG zzzz.** 1 0\r\n\r\n" + OPEN,
    ),
    "stars": (QUIET + b"SUB *.*.* 1\r\n", OPEN),
    "NUL": (QUIET + b"SUB zzzz.\0 1\r\nPUB zzzz.\0 0\r\n\r\n", b"MSG zzzz.\x00 1 0\r\n\r\n" + OPEN),
    "high bytes": (
        QUIET + b"SUB zzzz.\xff\xfe 1\r\nPUB zzzz.\xff\xfe 0\r\n\r\n",
        b"MSG zzzz.\xff\xfe 1 0\r\n\r\n" + OPEN,
    ),
    "control characters": (
        QUIET + b"SUB zzzz.\v\f 1\r\nPUB zzzz.\v\f 0\r\n\r\n",
        b"MSG zzzz.\x0b\x0c 1 0\r\n\r\n" + OPEN,
    ),
    "hundred tokens": (
        QUIET + b"SUB zzzz" + b".a" * 99 + b" 1\r\nPUB zzzz" + b".a" * 99 + b" 0\r\n\r\n",
        b"MSG zzzz" + b".a" * 99 + b" 1 0\r\n\r\n" + OPEN,
    ),
    "long token": (
        QUIET + b"SUB zzzz." + b"a" * 200 + b" 1\r\nPUB zzzz." + b"a" * 200 + b" 0\r\n\r\n",
        b"MSG zzzz." + b"a" * 200 + b" 1 0\r\n\r\n" + OPEN,
    ),
    "case matters": (QUIET + b"SUB zzzz.A 1\r\n" + PUB, OPEN),
    "bad subject with a queue": (QUIET + b"SUB zzzz..a q 1\r\n", b"-ERR 'Invalid Subject'\r\n" + OPEN),
}

UNSUBSCRIBE = {
    "sid": (QUIET + b"SUB zzzz.a 1\r\nUNSUB 1\r\n" + PUB, OPEN),
    "unknown sid": (QUIET + b"UNSUB 1\r\n", OPEN),
    "unknown sid and a maximum": (
        QUIET + b"UNSUB 1 5\r\nSUB zzzz.a 1\r\n" + PUB * 6,
        MSG * 6 + OPEN,
    ),
    "twice": (QUIET + b"SUB zzzz.a 1\r\nUNSUB 1\r\nUNSUB 1\r\n" + PUB, OPEN),
    "three arguments": (QUIET + b"UNSUB 1 2 3\r\n", CLOSED),
    "tabs and repeated blanks": (
        QUIET + b"SUB zzzz.a 1\r\nUNSUB\t 1 \t 1 \r\n" + PUB * 2,
        MSG + OPEN,
    ),
    "maximum 1": (QUIET + b"SUB zzzz.a 1\r\nUNSUB 1 1\r\n" + PUB * 3, MSG + OPEN),
    "maximum 2": (
        QUIET + b"SUB zzzz.a 1\r\nUNSUB 1 2\r\n" + PUB * 3,
        MSG * 2 + OPEN,
    ),
    "maximum counts what was delivered before": (
        QUIET + b"SUB zzzz.a 1\r\n" + PUB * 2 + b"UNSUB 1 3\r\n" + PUB * 3,
        MSG * 3 + OPEN,
    ),
    "maximum equal to what was delivered": (
        QUIET + b"SUB zzzz.a 1\r\n" + PUB * 2 + b"UNSUB 1 2\r\n" + PUB,
        MSG * 2 + OPEN,
    ),
    "maximum below what was delivered": (
        QUIET + b"SUB zzzz.a 1\r\n" + PUB * 3 + b"UNSUB 1 2\r\n" + PUB,
        MSG * 3 + OPEN,
    ),
    "maximum 0": (QUIET + b"SUB zzzz.a 1\r\nUNSUB 1 0\r\n" + PUB, OPEN),
    "negative maximum": (QUIET + b"SUB zzzz.a 1\r\nUNSUB 1 -1\r\n" + PUB, OPEN),
    "maximum in letters": (QUIET + b"SUB zzzz.a 1\r\nUNSUB 1 x\r\n" + PUB, OPEN),
    "maximum of nine digits": (
        QUIET + b"SUB zzzz.a 1\r\nUNSUB 1 999999999\r\n" + PUB,
        MSG + OPEN,
    ),
    "maximum of ten digits": (QUIET + b"SUB zzzz.a 1\r\nUNSUB 1 1000000000\r\n" + PUB, OPEN),
    "maximum with leading zeros": (
        QUIET + b"SUB zzzz.a 1\r\nUNSUB 1 0001\r\n" + PUB * 2,
        MSG + OPEN,
    ),
    "maximum raised": (
        QUIET + b"SUB zzzz.a 1\r\nUNSUB 1 1\r\nUNSUB 1 2\r\n" + PUB * 3,
        MSG * 2 + OPEN,
    ),
    "maximum lowered": (
        QUIET + b"SUB zzzz.a 1\r\nUNSUB 1 5\r\n" + PUB + b"UNSUB 1 2\r\n" + PUB * 3,
        MSG * 2 + OPEN,
    ),
    "maximum and then none": (
        QUIET + b"SUB zzzz.a 1\r\nUNSUB 1 5\r\n" + PUB + b"UNSUB 1\r\n" + PUB,
        MSG + OPEN,
    ),
    "the sid is free after the maximum": (
        QUIET + b"SUB zzzz.a 1\r\nUNSUB 1 1\r\n" + PUB + b"SUB zzzz.a 1\r\n" + PUB * 2,
        MSG * 3 + OPEN,
    ),
    "the sid is taken until the maximum": (
        QUIET
        + b"SUB zzzz.a 1\r\nUNSUB 1 2\r\n"
        + PUB
        + b"SUB zzzz.b 1\r\n"
        + PUB * 2
        + b"PUB zzzz.b 0\r\n\r\n",
        MSG * 2 + OPEN,
    ),
    "maximum of one of two": (
        QUIET + b"SUB zzzz.a 1\r\nSUB zzzz.* 2\r\nUNSUB 1 1\r\n" + PUB * 2,
        b"MSG zzzz.a 1 2\r\nhi\r\nMSG zzzz.a 2 2\r\nhi\r\nMSG zzzz.a 2 2\r\nhi\r\n" + OPEN,
    ),
    "maximum of a queue member": (
        QUIET + b"SUB zzzz.a q 1\r\nUNSUB 1 1\r\n" + PUB * 2,
        MSG + OPEN,
    ),
    "a queue goes on with the other member": (
        QUIET + b"SUB zzzz.a q 1\r\nSUB zzzz.a q 2\r\nUNSUB 1\r\n" + PUB * 2,
        b"MSG zzzz.a 2 2\r\nhi\r\nMSG zzzz.a 2 2\r\nhi\r\n" + OPEN,
    ),
}


@pytest.mark.parametrize(("sent", "answer"), params(ARGUMENTS) + params(SUBJECTS) + params(UNSUBSCRIBE))
def test_answer(server: Server, diag: SocketDiag, sent: bytes, answer: bytes) -> None:
    assert ask(server, [[sent]], diag) == [answer]


# The subscriptions, and for each subject the indices of those that it matches.
PATTERNS = (
    b"a", b"a.b", b"a.b.c", b"*", b">", b"a.*", b"a.>", b"*.b", b"*.*", b"*.>", b"a.*.c", b"*.b.*", b"a.*.>",
    b"*.*.*", b"a.b.>", b"a.b.*", b"*.*.>", b"A", b"a.*.*", b"a.*b", b"a.b>",
)  # fmt: skip
MATCHES = {
    b"a": "0 3 4",
    b"b": "3 4",
    b"A": "3 4 17",
    b"a.b": "1 4 5 6 7 8 9",
    b"a.x": "4 5 6 8 9",
    b"x.b": "4 7 8 9",
    b"a.b.c": "2 4 6 9 10 11 12 13 14 15 16 18",
    b"a.x.c": "4 6 9 10 12 13 16 18",
    b"x.b.y": "4 9 11 13 16",
    b"a.b.c.d": "4 6 9 12 14 16",
    b"x.y.z.u.v": "4 9 16",
    b"a.*b": "4 5 6 8 9 19",
    b"a.xb": "4 5 6 8 9",
    b"a.b>": "4 5 6 8 9 20",
    b"a.*": "4 5 6 8 9",
    b"a.>": "4 5 6 8 9",
    b"*": "3 4",
    b">": "3 4",
    b"a.b.": "",
    b"a..b": "",
    b".a": "",
}


@pytest.mark.parametrize("subject", [pytest.param(s, id=s.decode()) for s in MATCHES])
def test_wildcards(server: Server, diag: SocketDiag, subject: bytes) -> None:
    subs = b"".join(b"SUB zzzz.%b %d\r\n" % (pattern, sid) for sid, pattern in enumerate(PATTERNS))
    answer = ask(server, [[QUIET + subs + b"PUB zzzz.%b 0\r\n\r\n" % subject]], diag)[0]
    sids = [int(line.split()[2]) for line in answer.split(b"\r\n") if line.startswith(b"MSG")]
    assert sorted(sids) == [int(sid) for sid in MATCHES[subject].split()]
    assert answer.endswith(OPEN)
