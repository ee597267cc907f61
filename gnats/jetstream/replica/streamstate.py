"""The state of a replicated stream, as snapshots of its group have it (EncodedStreamState in nats-server).

u8 magic, u8 version, uvarints: messages, bytes, first sequence, last sequence, refused
with version 2: uvarint n, and n sources: uvarint size, name, uvarint sequence, uvarint size, identity
uvarint number of deleted sequences, and unless that is 0, up to the end: ranges and sets of them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gnats.go.uvarint import UvarintReader, encode_uvarint
from gnats.store.index.seqset import SequenceSet

MAGIC = 42
PLAIN, WITH_SOURCES = 1, 2
RANGE = 33
SET = 22


@dataclass(frozen=True, slots=True)
class ReplicatedState:
    msgs: int
    bytes: int
    first_seq: int
    last_seq: int
    refused: int
    """Messages that the group has committed, and that were not stored (clfs)."""
    deleted: list[tuple[int, int]] = field(default_factory=list)
    """First and last sequence of each range without messages."""
    sources: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """The last sequence, and the identity, of each source."""


def is_encoded(data: bytes) -> bool:
    return data[:1] == bytes([MAGIC]) and data[1:2] in (bytes([PLAIN]), bytes([WITH_SOURCES]))


def encode(state: ReplicatedState) -> bytes:
    """Encode a state, without its sources: servers before 2.15 refuse a snapshot with these."""
    out = bytearray([MAGIC, PLAIN])
    deleted = sum(last - first + 1 for first, last in state.deleted)
    for number in (state.msgs, state.bytes, state.first_seq, state.last_seq, state.refused, deleted):
        out += encode_uvarint(number)
    for first, last in state.deleted:
        out.append(RANGE)
        out += encode_uvarint(first) + encode_uvarint(last - first + 1)
    return bytes(out)


def decode(data: bytes) -> ReplicatedState:
    """Decode a state. Raises ValueError, MemoryError."""
    if not is_encoded(data):
        raise ValueError("not the state of a stream")
    reader = Reader(data, 2)
    msgs, size, first, last, refused = (reader.number() for _ in range(5))
    sources = {}
    if data[1] == WITH_SOURCES:
        for _ in range(reader.number()):
            name = reader.text()
            seq = reader.number()
            sources[name] = (seq, reader.text())
    deleted = SequenceSet()
    if reader.number():
        while reader.at < len(data):
            reader.add_deleted(deleted)
    return ReplicatedState(msgs, size, first, last, refused, deleted.ranges(), sources)


class Reader(UvarintReader):
    ended = "the state of the stream is cut"

    def text(self) -> str:
        return self.counted().decode(errors="replace")

    def add_deleted(self, deleted: SequenceSet) -> None:
        """Add a range or a set of sequences."""
        kind = self.data[self.at]
        if kind == RANGE:
            self.at += 1
            first, n = self.number(), self.number()
            if n == 0 or first + n > 1 << 64:
                raise ValueError("a range of sequences is impossible")
            deleted.insert_range(first, first + n - 1)
        elif kind == SET:
            found, size = SequenceSet.decode(self.data[self.at :])
            self.at += size
            for first, last in found.ranges():
                deleted.insert_range(first, last)
        else:
            raise ValueError("neither a range nor a set of sequences")
