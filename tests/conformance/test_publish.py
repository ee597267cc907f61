"""PUB and HPUB: arguments, sizes, payloads, headers, and subjects that no client may publish to."""

from __future__ import annotations

import pytest
from support.exchange import ask
from support.kernel import SocketDiag
from support.servers import Server

from .cases import CLOSED, HEADERS, OK, OPEN, QUIET, UNKNOWN, params

pytestmark = pytest.mark.timeout(60)

SUB = QUIET + b"SUB zzzz.> 1\r\n"
HSUB = HEADERS + b"SUB zzzz.> 1\r\n"
HEADER = b"NATS/1.0\r\nA: 1\r\n\r\n"  # 18 bytes

ARGUMENTS = {
    "subject and size": (SUB + b"PUB zzzz.a 2\r\nhi\r\n", b"MSG zzzz.a 1 2\r\nhi\r\n" + OPEN),
    "subject, reply and size": (
        SUB + b"PUB zzzz.a re.ply 2\r\nhi\r\n",
        b"MSG zzzz.a 1 re.ply 2\r\nhi\r\n" + OPEN,
    ),
    "only a subject": (SUB + b"PUB zzzz.a\r\n", CLOSED),
    "only a size": (SUB + b"PUB 2\r\nhi\r\n", CLOSED),
    "four arguments": (SUB + b"PUB zzzz.a b c 2\r\nhi\r\n", CLOSED),
    "five arguments": (SUB + b"PUB zzzz.a b c d 2\r\nhi\r\n", CLOSED),
    "six arguments": (SUB + b"PUB zzzz.a b c d e 2\r\nhi\r\n", CLOSED),
    "tabs": (SUB + b"PUB\tzzzz.a\tre.ply\t2\r\nhi\r\n", b"MSG zzzz.a 1 re.ply 2\r\nhi\r\n" + OPEN),
    "repeated blanks": (
        SUB + b"PUB  \t zzzz.a  \t re.ply \t\t 2\r\nhi\r\n",
        b"MSG zzzz.a 1 re.ply 2\r\nhi\r\n" + OPEN,
    ),
    "blanks at the end": (SUB + b"PUB zzzz.a 2 \t \r\nhi\r\n", b"MSG zzzz.a 1 2\r\nhi\r\n" + OPEN),
    "vertical tab is no blank": (SUB + b"PUB zzzz.a\v2\r\nhi\r\n", CLOSED),
    "NUL in the subject": (SUB + b"PUB zzzz.\0a 2\r\nhi\r\n", b"MSG zzzz.\x00a 1 2\r\nhi\r\n" + OPEN),
    "high bytes in the subject": (
        SUB + b"PUB zzzz.\xff\xfe 2\r\nhi\r\n",
        b"MSG zzzz.\xff\xfe 1 2\r\nhi\r\n" + OPEN,
    ),
    "high bytes in the reply": (
        SUB + b"PUB zzzz.a \xff 2\r\nhi\r\n",
        b"MSG zzzz.a 1 \xff 2\r\nhi\r\n" + OPEN,
    ),
    "dot at the end of the subject": (
        QUIET + b"SUB > 1\r\nPUB zzzz. 2\r\nhi\r\n",
        OPEN,
    ),
    "empty token in the subject": (
        SUB + b"PUB zzzz..a 2\r\nhi\r\n",
        OPEN,
    ),
    "wildcards in the subject": (
        SUB + b"PUB zzzz.*.> 2\r\nhi\r\n",
        b"MSG zzzz.*.> 1 2\r\nhi\r\n" + OPEN,
    ),
    "wildcard is taken literally": (
        QUIET + b"SUB zzzz.a 1\r\nPUB zzzz.* 2\r\nhi\r\n",
        OPEN,
    ),
    "reply with wildcards": (
        SUB + b"PUB zzzz.a zzzz.> 2\r\nhi\r\n",
        b"MSG zzzz.a 1 zzzz.> 2\r\nhi\r\n" + OPEN,
    ),
    "before connect": (
        b"SUB zzzz.> 1\r\nPUB zzzz.a 2\r\nhi\r\n",
        OK * 2 + b"MSG zzzz.a 1 2\r\nhi\r\n" + OPEN,
    ),
}

SIZES = {
    "0": (SUB + b"PUB zzzz.a 0\r\n\r\n", b"MSG zzzz.a 1 0\r\n\r\n" + OPEN),
    "0 and then a verb": (
        SUB + b"PUB zzzz.a 0\r\n\r\nPUB zzzz.b 0\r\n\r\n",
        b"MSG zzzz.a 1 0\r\n\r\nMSG zzzz.b 1 0\r\n\r\n" + OPEN,
    ),
    "0 without the second line end": (SUB + b"PUB zzzz.a 0\r\n", UNKNOWN),
    "1": (SUB + b"PUB zzzz.a 1\r\nx\r\n", b"MSG zzzz.a 1 1\r\nx\r\n" + OPEN),
    "leading zeros": (SUB + b"PUB zzzz.a 0002\r\nhi\r\n", b"MSG zzzz.a 1 0002\r\nhi\r\n" + OPEN),
    "nine digits with zeros": (
        SUB + b"PUB zzzz.a 000000002\r\nhi\r\n",
        b"MSG zzzz.a 1 000000002\r\nhi\r\n" + OPEN,
    ),
    "ten digits with zeros": (SUB + b"PUB zzzz.a 0000000002\r\nhi\r\n", CLOSED),
    "nine nines": (SUB + b"PUB zzzz.a 999999999\r\nhi\r\n", b"-ERR 'Maximum Payload Violation'\r\n"),
    "ten digits": (SUB + b"PUB zzzz.a 9999999999\r\nhi\r\n", CLOSED),
    "twenty digits": (SUB + b"PUB zzzz.a 99999999999999999999\r\nhi\r\n", CLOSED),
    "negative": (SUB + b"PUB zzzz.a -1\r\nhi\r\n", CLOSED),
    "plus sign": (SUB + b"PUB zzzz.a +2\r\nhi\r\n", CLOSED),
    "hexadecimal": (SUB + b"PUB zzzz.a 0x2\r\nhi\r\n", CLOSED),
    "fraction": (SUB + b"PUB zzzz.a 2.0\r\nhi\r\n", CLOSED),
    "letters": (SUB + b"PUB zzzz.a two\r\nhi\r\n", CLOSED),
    "digits and letters": (SUB + b"PUB zzzz.a 2b\r\nhi\r\n", CLOSED),
    "digits of another script": (SUB + "PUB zzzz.a ٢\r\nhi\r\n".encode(), CLOSED),
    "maximum payload plus one": (SUB + b"PUB zzzz.a 1048577\r\n", b"-ERR 'Maximum Payload Violation'\r\n"),
    "payload longer than announced": (SUB + b"PUB zzzz.a 2\r\nhigh\r\n", UNKNOWN),
    "payload shorter than announced": (SUB + b"PUB zzzz.a 6\r\nhi\r\n", UNKNOWN),
    "payload shorter, a verb follows": (SUB + b"PUB zzzz.a 3\r\nhi\r\nPING\r\n", UNKNOWN),
    "payload with verbs": (
        SUB + b"PUB zzzz.a 13\r\nPING\r\nSUB x 1\r\n",
        b"MSG zzzz.a 1 13\r\nPING\r\nSUB x 1\r\n" + OPEN,
    ),
    "payload with every byte": (
        SUB + b"PUB zzzz.a 256\r\n" + bytes(range(256)) + b"\r\n",
        b"MSG zzzz.a 1 256\r\n" + bytes(range(256)) + b"\r\n" + OPEN,
    ),
    "payload of line ends": (SUB + b"PUB zzzz.a 4\r\n\r\n\r\n\r\n", b"MSG zzzz.a 1 4\r\n\r\n\r\n\r\n" + OPEN),
    "three in one read": (
        SUB + b"PUB zzzz.a 1\r\na\r\n" * 3,
        b"MSG zzzz.a 1 1\r\na\r\n" * 3 + OPEN,
    ),
}

HEADER_ARGUMENTS = {
    "subject and sizes": (
        HSUB + b"HPUB zzzz.a 18 20\r\n" + HEADER + b"hi\r\n",
        b"HMSG zzzz.a 1 18 20\r\nNATS/1.0\r\nA: 1\r\n\r\nhi\r\n" + OPEN,
    ),
    "subject, reply and sizes": (
        HSUB + b"HPUB zzzz.a re.ply 18 20\r\n" + HEADER + b"hi\r\n",
        b"HMSG zzzz.a 1 re.ply 18 20\r\nNATS/1.0\r\nA: 1\r\n\r\nhi\r\n" + OPEN,
    ),
    "only a subject": (HSUB + b"HPUB zzzz.a\r\n", CLOSED),
    "one size": (HSUB + b"HPUB zzzz.a 18\r\n" + HEADER + b"\r\n", CLOSED),
    "five arguments": (HSUB + b"HPUB zzzz.a b c 18 20\r\n" + HEADER + b"hi\r\n", CLOSED),
    "six arguments": (HSUB + b"HPUB zzzz.a b c d 18 20\r\n" + HEADER + b"hi\r\n", CLOSED),
    "tabs and repeated blanks": (
        HSUB + b"HPUB\t zzzz.a \t 18\t\t20 \r\n" + HEADER + b"hi\r\n",
        b"HMSG zzzz.a 1 18 20\r\nNATS/1.0\r\nA: 1\r\n\r\nhi\r\n" + OPEN,
    ),
    "no arguments": (HSUB + b"HPUB\r\n", UNKNOWN),
    "only blanks": (HSUB + b"HPUB  \r\n", CLOSED),
    "no payload": (
        HSUB + b"HPUB zzzz.a 18 18\r\n" + HEADER + b"\r\n",
        b"HMSG zzzz.a 1 18 18\r\nNATS/1.0\r\nA: 1\r\n\r\n\r\n" + OPEN,
    ),
    "no header": (HSUB + b"HPUB zzzz.a 0 2\r\nhi\r\n", b"MSG zzzz.a 1 2\r\nhi\r\n" + OPEN),
    "nothing at all": (HSUB + b"HPUB zzzz.a 0 0\r\n\r\n", b"MSG zzzz.a 1 0\r\n\r\n" + OPEN),
    "header larger than total": (HSUB + b"HPUB zzzz.a 20 18\r\n" + HEADER + b"\r\n", CLOSED),
    "negative header size": (HSUB + b"HPUB zzzz.a -1 2\r\nhi\r\n", CLOSED),
    "negative total size": (HSUB + b"HPUB zzzz.a 0 -2\r\nhi\r\n", CLOSED),
    "header size in letters": (HSUB + b"HPUB zzzz.a x 20\r\n" + HEADER + b"hi\r\n", CLOSED),
    "ten digits": (HSUB + b"HPUB zzzz.a 0000000018 20\r\n" + HEADER + b"hi\r\n", CLOSED),
    "leading zeros": (
        HSUB + b"HPUB zzzz.a 018 0020\r\n" + HEADER + b"hi\r\n",
        b"HMSG zzzz.a 1 018 0020\r\nNATS/1.0\r\nA: 1\r\n\r\nhi\r\n" + OPEN,
    ),
    "above the maximum payload": (
        HSUB + b"HPUB zzzz.a 18 1048577\r\n",
        b"-ERR 'Maximum Payload Violation'\r\n",
    ),
    "header not agreed on": (SUB + b"HPUB zzzz.a 18 20\r\n" + HEADER + b"hi\r\n", CLOSED),
    "before connect": (b"HPUB zzzz.a 18 20\r\n" + HEADER + b"hi\r\n", CLOSED),
    "bytes that are no header": (
        HSUB + b"HPUB zzzz.a 4 6\r\nxxxxhi\r\n",
        b"HMSG zzzz.a 1 4 6\r\nxxxxhi\r\n" + OPEN,
    ),
    "header without its end": (
        HSUB + b"HPUB zzzz.a 10 12\r\nNATS/1.0\r\nhi\r\n",
        b"HMSG zzzz.a 1 10 12\r\nNATS/1.0\r\nhi\r\n" + OPEN,
    ),
    "header with status": (
        HSUB + b"HPUB zzzz.a 16 16\r\nNATS/1.0 100\r\n\r\n\r\n",
        b"HMSG zzzz.a 1 16 16\r\nNATS/1.0 100\r\n\r\n\r\n" + OPEN,
    ),
    "payload longer than announced": (HSUB + b"HPUB zzzz.a 18 20\r\n" + HEADER + b"high\r\n", UNKNOWN),
    "pub after hpub": (
        HSUB + b"HPUB zzzz.a 18 18\r\n" + HEADER + b"\r\nPUB zzzz.b 2\r\nhi\r\n",
        b"HMSG zzzz.a 1 18 18\r\nNATS/1.0\r\nA: 1\r\n\r\n\r\nMSG zzzz.b 1 2\r\nhi\r\n" + OPEN,
    ),
    "pub on a connection with headers": (
        HSUB + b"PUB zzzz.a 2\r\nhi\r\n",
        b"MSG zzzz.a 1 2\r\nhi\r\n" + OPEN,
    ),
}

RESERVED = {
    "raft groups": (
        SUB + b"PUB $NRG.zzzz 2\r\nhi\r\n",
        b"-ERR 'Permissions Violation for Publish to \"$NRG.zzzz\"'\r\n" + OPEN,
    ),
    "raft groups, only the prefix": (
        SUB + b"PUB $NRG. 2\r\nhi\r\n",
        b"-ERR 'Permissions Violation for Publish to \"$NRG.\"'\r\n" + OPEN,
    ),
    "raft groups, without the dot": (SUB + b"PUB $NRG 2\r\nhi\r\n", OPEN),
    "raft groups as reply": (
        SUB + b"PUB zzzz.a $NRG.x 2\r\nhi\r\n",
        b"MSG zzzz.a 1 $NRG.x 2\r\nhi\r\n" + OPEN,
    ),
    "gateway replies": (
        SUB + b"PUB _GR_.zzzz.a.b 2\r\nhi\r\n",
        b"-ERR 'Permissions Violation for Publish to \"_GR_.zzzz.a.b\"'\r\n" + OPEN,
    ),
    "gateway replies, only the prefix": (
        SUB + b"PUB _GR_. 2\r\nhi\r\n",
        OPEN,
    ),
    "gateway replies as reply": (
        SUB + b"PUB zzzz.a _GR_.x 2\r\nhi\r\n",
        b"-ERR 'Permissions Violation for Publish with Reply of \"_GR_.x\"'\r\n" + OPEN,
    ),
    "gateway replies as reply, only the prefix": (
        SUB + b"PUB zzzz.a _GR_. 2\r\nhi\r\n",
        b"MSG zzzz.a 1 _GR_. 2\r\nhi\r\n" + OPEN,
    ),
    "old gateway replies": (
        SUB + b"PUB $GR.zzzz.a 2\r\nhi\r\n",
        b"-ERR 'Permissions Violation for Publish to \"$GR.zzzz.a\"'\r\n" + OPEN,
    ),
    "service replies as reply": (
        SUB + b"PUB zzzz.a _R_.x 2\r\nhi\r\n",
        b"-ERR 'Permissions Violation for Publish with Reply of \"_R_.x\"'\r\n" + OPEN,
    ),
    "service replies as reply, only the prefix": (
        SUB + b"PUB zzzz.a _R_ 2\r\nhi\r\n",
        b"MSG zzzz.a 1 _R_ 2\r\nhi\r\n" + OPEN,
    ),
    "service replies as reply, short of the prefix": (
        SUB + b"PUB zzzz.a _R 2\r\nhi\r\n",
        b"MSG zzzz.a 1 _R 2\r\nhi\r\n" + OPEN,
    ),
    "service replies as subject": (SUB + b"PUB _R_.zzzz 2\r\nhi\r\n", OPEN),
    "acks as reply": (
        SUB + b"PUB zzzz.a $JS.ACK.x 2\r\nhi\r\n",
        b"-ERR 'Permissions Violation for Publish with Reply of \"$JS.ACK.x\"'\r\n" + OPEN,
    ),
    "acks as reply, only the prefix": (
        SUB + b"PUB zzzz.a $JS.ACK. 2\r\nhi\r\n",
        b"MSG zzzz.a 1 $JS.ACK. 2\r\nhi\r\n" + OPEN,
    ),
    "acks as subject": (
        QUIET + b"SUB $JS.ACK.zzzz 1\r\nPUB $JS.ACK.zzzz 2\r\nhi\r\n",
        b"MSG $JS.ACK.zzzz 1 2\r\nhi\r\n" + OPEN,
    ),
    "system subjects": (
        QUIET + b"SUB $SYS.zzzz 1\r\nPUB $SYS.zzzz 2\r\nhi\r\n",
        b"MSG $SYS.zzzz 1 2\r\nhi\r\n" + OPEN,
    ),
    "jetstream that is off": (QUIET + b"PUB $JS.API.INFO zzzz.in 0\r\n\r\n", OPEN),
    "with a header": (
        HSUB + b"HPUB $NRG.zzzz 18 20\r\n" + HEADER + b"hi\r\n",
        b"-ERR 'Permissions Violation for Publish to \"$NRG.zzzz\"'\r\n" + OPEN,
    ),
    "subscribing is allowed": (QUIET + b"SUB $NRG.zzzz 1\r\nSUB _GR_.zzzz 2\r\nSUB _R_.zzzz 3\r\n", OPEN),
}


@pytest.mark.parametrize(
    ("sent", "answer"), params(ARGUMENTS) + params(SIZES) + params(HEADER_ARGUMENTS) + params(RESERVED)
)
def test_answer(server: Server, diag: SocketDiag, sent: bytes, answer: bytes) -> None:
    assert ask(server, [[sent]], diag) == [answer]
