"""A digest of messages: equal for equal messages in equal order, however they are cut into batches.

It is HighwayHash-64 over each column's values and lengths, and over these digests. Account, stream and
block are not in it: a message keeps its digest when its block is rewritten."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from gnats.store.format.highway import HighwayHash, key_of

_KEY = key_of(b"gnats.archive")
_COLUMNS = ("sequence", "time_ns", "subject", "payload", "headers")


class Digest:
    """The digest of the batches given to update()."""

    def __init__(self) -> None:
        self._hashes = {name: (HighwayHash(_KEY), HighwayHash(_KEY)) for name in _COLUMNS}
        self._header_values = tuple(HighwayHash(_KEY) for _ in range(5))
        self.rows = 0

    def update(self, batch: pa.RecordBatch) -> None:
        """Add a batch of `gnats.archive.SCHEMA`, or of its columns from sequence to payload."""
        self.rows += batch.num_rows
        for name in ("sequence", "time_ns"):
            self._hashes[name][0].update(_fixed(batch.column(name), 8))
        for name in ("subject", "payload"):
            self._text(batch.column(name), *self._hashes[name])
        self._headers(batch.column("headers"))

    @staticmethod
    def _text(column: pa.Array, values: HighwayHash, lengths: HighwayHash) -> None:
        offsets = _offsets(column)
        lengths.update(_bytes(np.diff(offsets)))
        if data := column.buffers()[-1]:
            values.update(memoryview(data).cast("B")[offsets[0] : offsets[-1]])

    def _headers(self, column: pa.MapArray) -> None:
        counts, nothing = self._hashes["headers"]
        nothing.update(_bytes(column.is_valid().to_numpy(zero_copy_only=False)))
        offsets = _offsets(column)
        counts.update(_bytes(np.diff(offsets)))
        if offsets[0] == offsets[-1]:
            return
        begin, count = int(offsets[0]), int(offsets[-1] - offsets[0])
        keys, values = column.keys.slice(begin, count), column.items.slice(begin, count)
        self._text(keys, *self._header_values[:2])
        inner = _offsets(values)
        self._header_values[4].update(_bytes(np.diff(inner)))
        self._text(values.values.slice(int(inner[0]), int(inner[-1] - inner[0])), *self._header_values[2:4])

    def hex(self) -> str:
        """Return the digest as 16 hex digits."""
        whole = HighwayHash(_KEY)
        whole.update(self.rows.to_bytes(8, "little"))
        for pair in self._hashes.values():
            for each in pair:
                whole.update(each.digest())
        for each in self._header_values:
            whole.update(each.digest())
        return whole.digest().hex()


def _bytes(values: np.ndarray) -> bytes:
    return values.tobytes()


def _fixed(column: pa.Array, width: int) -> memoryview:
    data = memoryview(column.buffers()[1]).cast("B")
    return data[column.offset * width : (column.offset + len(column)) * width]


def _offsets(column: pa.Array) -> np.ndarray:
    """Return the offsets of a string, binary, list or map column: one more than its values, if it has any."""
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.zeros(1, np.int32)
    return np.frombuffer(data, np.int32)[column.offset : column.offset + len(column) + 1]
