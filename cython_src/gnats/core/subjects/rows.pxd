"""Copies of subscriptions for Python, made under the lock of a Sublist: they may be freed after it."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t

from gnats.core.subjects.trie cimport Node, Subscription


cdef struct Row:
    int64_t group        # index of its queue group in the result, -1 for none
    uint32_t subject_len
    uint32_t queue_len
    uint32_t sid_len


# The copies: each a Row, then subject, queue and sid. All zero at first; free `data`.
cdef struct Rows:
    char *data
    size_t n
    size_t cap
    bint no_memory


cdef void rows_add(Rows *rows, const Subscription *s, int64_t group) noexcept nogil
# Add a node's subscriptions; `arg` is the Rows. False when out of memory.
cdef bint copy_node(Node *node, void *arg) noexcept nogil
# Return (index of the queue group, subject, queue, sid) of each row. Raises MemoryError, also for `no_memory`.
cdef list rows_list(Rows *rows)
