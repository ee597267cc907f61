"""Encoding of a store's state files, without their encryption and checksums.

Times are in ns since 1970. Invalid data raises ValueError. Any function may raise MemoryError.
"""

from gnats.store.index.seqset import SequenceSet

_State = tuple[int, int, int, int, int, int]
"""messages, bytes, first sequence and its time, last sequence and its time"""
_Subject = tuple[bytes, int, int, int]
"""subject, messages, indices of the first and the last block with messages of the subject"""
_Block = tuple[int, int, int, int, int, int, SequenceSet, int, int]
"""index, bytes, first sequence, time, last sequence, time, deleted, messages with a TTL, with a schedule"""
_Last = tuple[int, bytes]
"""index of the last block, and the checksum (8 bytes) of its last record"""
_Pair = tuple[int, int]
"""sequences of the consumer and of the stream"""

def encode_index(state: _State, subjects: list[_Subject], blocks: list[_Block], last: _Last) -> bytes:
    """Encode index.db, version 4."""

def decode_index(data: bytes) -> tuple[_State, list[_Subject], list[_Block], _Last]:
    """Decode index.db of versions 1 to 4; the subjects are sorted."""

def encode_consumer(
    delivered: _Pair,
    ack_floor: _Pair,
    pending: list[tuple[int, int, int]],
    redelivered: list[tuple[int, int]],
    now: int,
) -> bytes:
    """Encode o.dat, version 2.

    pending is (stream sequence, consumer sequence, time), redelivered (stream sequence, count).
    """

def decode_consumer(
    data: bytes,
) -> tuple[_Pair, _Pair, list[tuple[int, int, int]], list[tuple[int, int]]]:
    """Decode o.dat of versions 1 and 2: delivered, ack_floor, pending, redelivered of encode_consumer().

    Times are whole seconds, in ns.
    """
