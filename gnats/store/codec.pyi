"""The state files of a store, without what encrypts and checks them.

Times are in ns since 1970. What cannot be read raises ValueError; MemoryError is raised where there is none.
"""

from gnats.store.seqset import SequenceSet

_State = tuple[int, int, int, int, int, int]
"""messages, bytes, first sequence and its time, last sequence and its time"""
_Subject = tuple[bytes, int, int, int]
"""subject, messages, first and last block they are in"""
_Block = tuple[int, int, int, int, int, int, SequenceSet, int, int]
"""index, bytes, first sequence, time, last sequence, time, deleted, messages with a TTL, with a schedule"""
_Last = tuple[int, bytes]
"""the last block and the checksum of its last record"""
_Pair = tuple[int, int]
"""sequences of the consumer and of the stream"""

def encode_index(state: _State, subjects: list[_Subject], blocks: list[_Block], last: _Last) -> bytes:
    """index.db, version 4."""

def decode_index(data: bytes) -> tuple[_State, list[_Subject], list[_Block], _Last]:
    """index.db of versions 1 to 4; subjects in their order."""

def encode_consumer(
    delivered: _Pair,
    ack_floor: _Pair,
    pending: list[tuple[int, int, int]],
    redelivered: list[tuple[int, int]],
    now: int,
) -> bytes:
    """o.dat, version 2: pending is (stream sequence, consumer sequence, time), redelivered (stream sequence,
    count)."""

def decode_consumer(
    data: bytes,
) -> tuple[_Pair, _Pair, list[tuple[int, int, int]], list[tuple[int, int]]]:
    """o.dat of versions 1 and 2: what encode_consumer() takes; times are whole seconds."""
