"""Read an index.db for the archive."""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libc.string cimport memset

from gnats.store.format.codec cimport IndexBlock, IndexState, index_free, index_load
from gnats.store.index.seqset cimport SequenceSet
from gnats.store.index.stree cimport STree, STreeIter, SimpleState, stree_clear, stree_end, stree_iter, stree_next


def read_index(bytes data not None):
    """Decode an index.db, decrypted and without its checksum.

    Return (last sequence, blocks, (last block, checksum of its last record), most messages of one subject). A block is
    (index, bytes, first sequence, last sequence, first time, last time, deleted). Raises ValueError when the data is
    not an index or contradicts itself, or MemoryError.
    """
    cdef IndexState s
    cdef STree tree
    cdef STreeIter it
    cdef IndexBlock *b
    cdef SequenceSet deleted
    cdef size_t i
    cdef uint64_t most = 0, msgs = 0, subjects = 0, size = 0, low = 1, here
    cdef bint good = True
    index_load(&s, &tree, data)
    try:
        with nogil:
            stree_iter(&it, &tree, NULL, 0)
            while stree_next(&it):
                most = max(most, (<SimpleState *> it.value).msgs)
                subjects += (<SimpleState *> it.value).msgs
            good = not it.failed
            stree_end(&it)
        blocks = []
        for i in range(s.n_blocks):
            b = &s.blocks[i]
            if b.first_seq == 0 or b.first_seq > b.last_seq + 1 or b.last_seq + 1 < low:
                raise ValueError("an index of blocks that overlap")
            here = b.last_seq + 1 - b.first_seq
            if here < b.deleted.size:
                raise ValueError("an index with more deleted than there are")
            msgs += here - b.deleted.size
            size += b.bytes
            low = b.last_seq + 1
            deleted = SequenceSet.__new__(SequenceSet)
            deleted.set = b.deleted
            memset(&b.deleted, 0, sizeof(b.deleted))
            blocks.append((b.index, b.bytes, b.first_seq, b.last_seq, b.first_ts, b.last_ts, deleted))
        if not good or msgs != s.msgs or size != s.bytes or subjects > msgs:
            raise ValueError("an index whose sums are wrong")
        return s.last_seq, blocks, (s.last_block, s.last_checksum), most
    finally:
        index_free(&s)
        stree_clear(&tree)
