"""A poller's cache of what permissions say about subjects, beside its match_cache.

A Permissions never changes and its id is never used again, so an entry is always right; when there are too many, all
are dropped. A subject is cached when it comes for the second time. Only the owning poller touches the cache.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from gnats.core.auth.permissions cimport Permissions
from gnats.core.runtime.doorkeeper cimport Door
from gnats.core.runtime.kinds cimport CLIENT
from gnats.core.subjects.subject cimport same_bytes

cdef enum:
    # questions
    PUBLISH
    PUBLISH_OTHER        # by a connection that is no client
    DELIVER
    QUESTIONS


cdef struct Verdict:
    Verdict *next        # in its bucket
    uint32_t hash
    uint32_t len
    uint64_t id          # the Permissions' id
    uint32_t queue_len
    uint8_t question
    uint8_t allowed
    char key[1]          # subject and queue, adjacent


cdef struct VerdictCache:
    Verdict **slots
    uint32_t mask        # number of buckets - 1; 0 before the first entry
    uint32_t n
    size_t bytes
    Verdict *last[QUESTIONS]   # the last entry found
    Door door


# Look a question up in the whole table; ask `p` when it is not there.
cdef bint verdict_find(
    VerdictCache *c, Permissions p, int question, int kind, const char *subject, size_t n,
    const char *queue, size_t qn) noexcept nogil
cdef void verdicts_free(VerdictCache *c) noexcept nogil


cdef inline bint verdict_publish(
    VerdictCache *c, Permissions p, int kind, const char *subject, size_t n
) noexcept nogil:
    """Return Permissions.pub_allowed, from the cache if it is there."""
    cdef int question = PUBLISH if kind == CLIENT else PUBLISH_OTHER
    cdef Verdict *v = c.last[question]
    if v != NULL and v.id == p.id and v.len == n and same_bytes(v.key, subject, n):
        return v.allowed
    return verdict_find(c, p, question, kind, subject, n, NULL, 0)


cdef inline bint verdict_deliver(
    VerdictCache *c, Permissions p, const char *subject, size_t n, const char *queue, size_t qn
) noexcept nogil:
    """Return not Permissions.delivery_denied, from the cache if it is there."""
    cdef Verdict *v = c.last[DELIVER]
    if (
        v != NULL and v.id == p.id and v.len == n and v.queue_len == qn
        and same_bytes(v.key, subject, n) and (qn == 0 or memcmp(v.key + n, queue, qn) == 0)
    ):
        return v.allowed
    return verdict_find(c, p, DELIVER, CLIENT, subject, n, queue, qn)
