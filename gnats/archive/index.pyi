"""Read an index.db for the archive."""

from gnats.store.index.seqset import SequenceSet

IndexBlock = tuple[int, int, int, int, int, int, SequenceSet]
"""(index, bytes, first sequence, last sequence, first time, last time, deleted); times are ns since 1970"""

def read_index(data: bytes) -> tuple[int, list[IndexBlock], tuple[int, int], int]:
    """Decode an index.db, decrypted and without its checksum.

    Return (last sequence, blocks, (last block, checksum of its last record), most messages of one subject).
    Raises ValueError when the data is not an index or contradicts itself, MemoryError.
    """
