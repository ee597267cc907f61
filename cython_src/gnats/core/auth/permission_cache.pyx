"""A poller's cache of what permissions say about subjects; see permission_cache.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from gnats.core.auth.permissions cimport Permissions
from gnats.core.runtime.doorkeeper cimport door_known
from gnats.core.runtime.hash_table cimport as_chained, as_chains, chains_add, chains_clear
from gnats.core.runtime.kinds cimport CLIENT
from gnats.core.subjects.subject cimport hash_bytes, hash_seed_b, mul_mix, same_bytes
from gnats.includes.linux cimport stopwatch_ns

cdef enum:
    FIRST_SLOTS = 64
    MAX_ENTRIES = 16384
    MAX_BYTES = 4 * 1024 * 1024


cdef bint verdict_find(
    VerdictCache *c, Permissions p, int question, int kind, const char *subject, size_t n,
    const char *queue, size_t qn,
) noexcept nogil:
    cdef uint32_t hash = <uint32_t> mul_mix(
        p.id << 2 | <uint64_t> question, hash_bytes(subject, n) ^ hash_seed_b)
    cdef Verdict *v
    cdef bint allowed
    if qn:
        hash ^= hash_bytes(queue, qn)
    if c.slots != NULL:
        v = c.slots[hash & c.mask]
        while v != NULL:
            if (
                v.hash == hash and v.id == p.id and v.question == question and v.len == n and v.queue_len == qn
                and same_bytes(v.key, subject, n) and (qn == 0 or memcmp(v.key + n, queue, qn) == 0)
            ):
                c.last[question] = v
                return v.allowed
            v = v.next
    if question == DELIVER:
        allowed = not p.delivery_denied(subject, n, queue, qn)
    else:
        allowed = p.pub_allowed(kind, subject, n)
    # From here on memory may run out: then the answer is not cached.
    if not door_known(&c.door, hash):
        return allowed
    if c.n >= MAX_ENTRIES or c.bytes > MAX_BYTES:
        clear(c)
    v = <Verdict *> malloc(sizeof(Verdict) + n + qn)
    if v == NULL:
        return allowed
    v.hash = hash
    if not chains_add(as_chains(c), as_chained(v), FIRST_SLOTS):
        free(v)
        return allowed
    v.id = p.id
    v.len = <uint32_t> n
    v.queue_len = <uint32_t> qn
    v.question = <uint8_t> question
    v.allowed = allowed
    memcpy(v.key, subject, n)
    if qn:
        memcpy(v.key + n, queue, qn)
    c.bytes += sizeof(Verdict) + n + qn
    c.last[question] = v
    return allowed


cdef void clear(VerdictCache *c) noexcept nogil:
    cdef uint32_t i
    cdef Verdict *v
    if c.slots != NULL:
        for i in range(c.mask + 1):
            while c.slots[i] != NULL:
                v = c.slots[i]
                c.slots[i] = v.next
                free(v)
    chains_clear(as_chains(c))
    c.bytes = 0
    memset(c.last, 0, sizeof(c.last))


cdef void verdicts_free(VerdictCache *c) noexcept nogil:
    clear(c)
    free(c.door.tags)
    c.door.tags = NULL


cdef class Verdicts:
    """A cache of its own; for tests and measurements."""
    cdef VerdictCache cache

    def __dealloc__(self):
        verdicts_free(&self.cache)

    def __len__(self):
        return self.cache.n

    def publish(self, Permissions permissions not None, bytes subject not None, int kind=CLIENT) -> bool:
        return verdict_publish(
            &self.cache, permissions, kind, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))

    def deliver(self, Permissions permissions not None, bytes subject not None, bytes queue not None=b"") -> bool:
        return verdict_deliver(
            &self.cache, permissions, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject),
            PyBytes_AS_STRING(queue), PyBytes_GET_SIZE(queue))

    def measure(self, Permissions permissions not None, list subjects not None, size_t rounds) -> float:
        """Ask `rounds` times whether each subject may be published to. Return the ns that one question takes."""
        cdef bytes subject
        cdef const char **at = <const char **> malloc((len(subjects) + 1) * sizeof(char *))
        cdef size_t *size = <size_t *> malloc((len(subjects) + 1) * sizeof(size_t))
        cdef size_t i, n = 0, _round, allowed = 0
        cdef int64_t start, end
        if at == NULL or size == NULL:
            free(at)
            free(size)
            raise MemoryError
        for subject in subjects:
            at[n] = PyBytes_AS_STRING(subject)
            size[n] = PyBytes_GET_SIZE(subject)
            n += 1
        with nogil:
            start = stopwatch_ns()
            for _round in range(rounds):
                for i in range(n):
                    allowed += verdict_publish(&self.cache, permissions, CLIENT, at[i], size[i])
            end = stopwatch_ns()
        free(at)
        free(size)
        return (end - start) / <double> (rounds * n)
