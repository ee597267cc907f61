"""An account's subject mappings; see mappings.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcmp, memcpy

from gnats.core.subjects.subject cimport subject_has_wildcard, subject_is_subset_match
from gnats.core.subjects.transform cimport SubjectTransform, Step, Transform, transform_apply


cdef inline size_t aligned(size_t n) noexcept nogil:
    return (n + 7) & ~<size_t> 7


cdef Mappings *mappings_compile(list rows) except NULL:
    cdef SubjectTransform transform
    cdef size_t size = sizeof(Mappings)
    cdef Mappings *m
    cdef MapRow *row
    cdef Transform *t
    cdef char *at
    cdef uint32_t i, k
    cdef bytes src
    for src, dests in rows:
        size += sizeof(MapRow) + aligned(len(src)) + len(dests) * sizeof(Destination)
        for transform, _ in dests:
            size += aligned(transform.compiled.nbytes)
    m = <Mappings *> malloc(size)
    if m == NULL:
        raise MemoryError
    m.nrows = len(rows)
    m.rows = <MapRow *> (m + 1)
    at = <char *> (m.rows + m.nrows)
    for i, (src, dests) in enumerate(rows):
        row = &m.rows[i]
        row.ndests = len(dests)
        row.dests = <Destination *> at
        at += row.ndests * sizeof(Destination)
        row.src = at
        row.src_n = len(src)
        row.wildcard = subject_has_wildcard(PyBytes_AS_STRING(src), len(src))
        memcpy(at, PyBytes_AS_STRING(src), len(src))
        at += aligned(len(src))
        for k, (transform, upto) in enumerate(dests):
            t = <Transform *> at
            memcpy(t, transform.compiled, transform.compiled.nbytes)
            t.steps = <Step *> (t + 1)
            t.indexes = <uint32_t *> (t.steps + t.nsteps)
            row.dests[k].transform = t
            row.dests[k].upto = upto
            at += aligned(t.nbytes)
    return m


cdef bint select_mapped_subject(
    const Mappings *m, const char *subject, size_t n, uint64_t *rng, char *out, size_t room, size_t *length,
) noexcept nogil:
    cdef const MapRow *row
    cdef uint32_t i, k, pick = 0
    # nats-server splits the subject only when it has compared an entry that is not equal to it. When an equal entry is
    # found before that, a partition over the whole subject hashes nothing.
    cdef bint split = False
    for i in range(m.nrows):
        row = &m.rows[i]
        if not row.wildcard and row.src_n == n and memcmp(row.src, subject, n) == 0:
            break
        split = True
        if row.wildcard and subject_is_subset_match(subject, n, row.src, row.src_n):
            break
    else:
        return False
    length[0] = 0
    if row.ndests > 1 or (row.ndests == 1 and row.dests[0].upto < 100):
        rng[0] ^= rng[0] << 13
        rng[0] ^= rng[0] >> 7
        rng[0] ^= rng[0] << 17
        pick = <uint32_t> (rng[0] >> 33) % 100
    for k in range(row.ndests):
        if pick < row.dests[k].upto:
            length[0] = transform_apply(row.dests[k].transform, subject, n, rng, split, out, room)
            break
    return True
