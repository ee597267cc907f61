"""Copies of subscriptions for Python; see rows.pxd."""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy

from gnats.core.subjects.trie cimport Node, Subscription, node_subs


cdef void rows_add(Rows *rows, const Subscription *s, int64_t group) noexcept nogil:
    cdef size_t text = s.subject_len + s.queue_len + s.sid_len
    cdef size_t cap = rows.cap
    cdef char *more
    cdef Row row
    if rows.n + sizeof(Row) + text > cap:
        cap = 2 * cap + sizeof(Row) + text
        more = <char *>realloc(rows.data, cap)
        if more == NULL:
            rows.no_memory = True
            return
        rows.data = more
        rows.cap = cap
    row.group = group
    row.subject_len = s.subject_len
    row.queue_len = s.queue_len
    row.sid_len = s.sid_len
    memcpy(rows.data + rows.n, &row, sizeof(Row))
    memcpy(rows.data + rows.n + sizeof(Row), s.data, text)
    rows.n += sizeof(Row) + text


cdef bint copy_node(Node *node, void *arg) noexcept nogil:
    cdef uint32_t i
    for i in range(node.nsubs):
        rows_add(<Rows *>arg, node_subs(node)[i], -1)
    return not (<Rows *>arg).no_memory


cdef list rows_list(Rows *rows):
    cdef list out = []
    cdef size_t at = 0
    cdef Row row
    cdef const char *p
    if rows.no_memory:
        raise MemoryError
    while at < rows.n:
        memcpy(&row, rows.data + at, sizeof(Row))
        p = rows.data + at + sizeof(Row)
        out.append((
            row.group,
            PyBytes_FromStringAndSize(p, row.subject_len),
            PyBytes_FromStringAndSize(p + row.subject_len, row.queue_len),
            PyBytes_FromStringAndSize(p + row.subject_len + row.queue_len, row.sid_len),
        ))
        at += sizeof(Row) + row.subject_len + row.queue_len + row.sid_len
    return out
