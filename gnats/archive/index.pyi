"""What an index.db says of the messages of a stream."""

from gnats.store.index.seqset import SequenceSet

IndexBlock = tuple[int, int, int, int, int, int, SequenceSet]
"""index, bytes, first and last sequence, their times, deleted"""

def read_index(data: bytes) -> tuple[int, list[IndexBlock], tuple[int, int], int]:
    """(last sequence, blocks, the last block and the checksum of its last record, messages of the subject
    with most).

    Raises ValueError: it is no index, or not consistent.
    """
