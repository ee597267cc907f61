"""The answer is the same wherever the input is cut into reads."""

from __future__ import annotations

import pytest
from support.exchange import ask
from support.kernel import SocketDiag
from support.servers import Server

from .corpus import CORPUS

pytestmark = pytest.mark.timeout(120)

NAMES = [pytest.param(data, id=name) for name, data in CORPUS.items()]


@pytest.mark.parametrize("data", NAMES)
def test_cut_at_every_byte(server: Server, reference: Server, diag: SocketDiag, data: bytes) -> None:
    """In one piece, in two pieces with any cut, and byte by byte, the answer is the reference's."""
    (expected,) = ask(reference, [[data]], diag)
    whole = [data]
    halves = [[data[:cut], data[cut:]] for cut in range(1, len(data))]
    single = [data[i : i + 1] for i in range(len(data))]
    answers = ask(server, [whole, *halves, single], diag)
    different = {
        name: answer
        for name, answer in zip(["whole", *range(1, len(data)), "byte by byte"], answers, strict=True)
        if answer != expected
    }
    assert different == {}, f"expected for all cuts: {expected!r}"


def test_large_payload_in_pieces(server: Server, diag: SocketDiag) -> None:
    """A payload of 100,000 bytes that arrives in pieces of every size from 1 byte to 32 KiB."""
    payload = bytes(range(256)) * 391
    head = b'CONNECT {"verbose":false}\r\nSUB zzzz 1\r\n'
    publish = b"PUB zzzz %d\r\n%b\r\n" % (len(payload), payload)
    pieces, start, size = [head], 0, 1
    while start < len(publish):
        pieces.append(publish[start : start + size])
        start, size = start + size, min(size * 2, 32768)
    (answer,) = ask(server, [pieces], diag)
    assert answer == b"MSG zzzz 1 %d\r\n%b\r\nPONG\r\n" % (len(payload), payload)
