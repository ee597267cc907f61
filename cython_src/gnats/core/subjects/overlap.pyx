"""The part of an imported stream that a subscription overlaps; see overlap.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from gnats.core.subjects.subject cimport is_token, num_tokens, subject_has_wildcard, subject_is_subset_match, token_end


cdef size_t narrowed(
    const char *subject, size_t n, const char *to, size_t tn, char *out
) noexcept nogil:
    """Write `subject` to out, with its wildcards narrowed to the tokens of `to`. Return the length, at most
    n + tn + 1."""
    cdef size_t s0 = 0, s1, t0 = 0, t1, size = 0
    cdef bint longer = num_tokens(to, tn) >= num_tokens(subject, n)
    while s0 <= n:
        s1 = token_end(subject, n, s0)
        t1 = token_end(to, tn, t0) if t0 <= tn else t0
        if size:
            out[size] = c'.'
            size += 1
        if s1 == n and longer and is_token(subject, s0, s1, c'>'):
            # `>` stands for all the rest.
            memcpy(out + size, to + t0, tn - t0)
            return size + tn - t0
        if is_token(subject, s0, s1, c'*') and t0 <= tn and not is_token(to, t0, t1, c'>'):
            memcpy(out + size, to + t0, t1 - t0)
            size += t1 - t0
        else:
            memcpy(out + size, subject + s0, s1 - s0)
            size += s1 - s0
        s0 = s1 + 1
        t0 = t1 + 1 if t0 <= tn else t0
    return size


cdef int import_overlap(
    const char *subject, size_t n, const char *to, size_t tn, char **common, size_t *common_n
) noexcept nogil:
    cdef char *out
    common[0] = NULL
    common_n[0] = 0
    if n == tn and memcmp(subject, to, n) == 0:
        return ALL_OF_IT
    if subject_is_subset_match(subject, n, to, tn):
        return PART_OF_IT
    if not subject_has_wildcard(subject, n):
        return NO_OVERLAP
    if subject_is_subset_match(to, tn, subject, n):
        return ALL_OF_IT
    out = <char *> malloc(n + tn + 2)
    if out == NULL:
        return NO_OVERLAP
    common_n[0] = narrowed(subject, n, to, tn, out)
    if not subject_is_subset_match(out, common_n[0], to, tn):
        free(out)
        return NO_OVERLAP
    common[0] = out
    return CROSSING


def overlap(bytes subject not None, bytes to not None) -> bytes | None:
    """Return the part of an import's `to` that a subscription to `subject` overlaps, None for none (for tests)."""
    cdef char *common
    cdef size_t n
    cdef int how = import_overlap(
        PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), PyBytes_AS_STRING(to), PyBytes_GET_SIZE(to),
        &common, &n)
    if how == NO_OVERLAP:
        return None
    if how != CROSSING:
        return to if how == ALL_OF_IT else subject
    found = PyBytes_FromStringAndSize(common, n)
    free(common)
    return found
