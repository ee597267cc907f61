"""Decoding files that nats-server wrote."""

from __future__ import annotations

import pytest
from support.written import Written

from gnats.store.format.highway import checksum
from gnats.store.format.record import decode

pytestmark = pytest.mark.timeout(120)


def records(block: bytes, data: bytes) -> list[tuple[str, int, int, bytes, bytes, bytes, int]]:
    found = []
    at = 0
    while at < len(data):
        found.append(decode(block, data, at))
        at += found[-1][-1]
    return found


def test_blocks(clear: Written) -> None:
    messages = {}
    gone = []
    for path in clear.blocks("PLAIN"):
        for kind, seq, ts, subject, hdr, msg, _ in records(b"PLAIN-" + path.stem.encode(), path.read_bytes()):
            if kind == "message":
                messages[seq] = (subject, hdr, msg)
                assert ts > 1_700_000_000_000_000_000
            else:
                gone.append(seq)
    deleted = clear.deleted["PLAIN"]
    assert set(gone) == set(deleted)
    left = {seq: message for seq, message in messages.items() if seq not in deleted}
    assert left == clear.messages["PLAIN"]


def test_metadata(clear: Written) -> None:
    for stream in clear.messages:
        path = clear.stream(stream)
        data = (path / "meta.inf").read_bytes()
        assert (path / "meta.sum").read_text() == checksum(stream.encode(), data).hex()
        path = path / "obs" / "BUSY"
        data = (path / "meta.inf").read_bytes()
        assert (path / "meta.sum").read_text() == checksum(f"{stream}/BUSY".encode(), data).hex()
