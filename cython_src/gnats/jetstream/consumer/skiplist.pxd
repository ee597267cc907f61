"""The first round of a consumer that delivers the last message of each subject: a list of their sequences.

The consumer's lock is held.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libc.stdlib cimport free


cdef struct SkipList:
    uint64_t *seqs           # the sequences of the first round, n of them
    size_t at, n             # at: the next one
    uint64_t resume          # after that round the consumer goes on behind this sequence


cdef inline void skip_free(SkipList *s) noexcept nogil:
    """Free and empty it; it can be used again."""
    free(s.seqs)
    s.seqs = NULL
    s.at = s.n = 0


cdef inline bint has_skips(const SkipList *s) noexcept nogil:
    """Return whether the first round goes on."""
    return s.at < s.n


cdef inline uint64_t next_skipped(SkipList *s) noexcept nogil:
    """Return the sequence that follows in the list, or the one after the first round, which this ends."""
    s.at += 1
    if s.at < s.n:
        return s.seqs[s.at]
    skip_free(s)
    return s.resume + 1
