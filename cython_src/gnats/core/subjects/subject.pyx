"""Subjects: validity, wildcards, coverage and collision; see subject.pxd.

The functions for Python take a subject as bytes, or as a str, which is encoded as UTF-8.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcmp

import os

hash_seed_a, hash_seed_b = (int.from_bytes(os.urandom(8), "little") for _ in range(2))


cdef inline bint same_token(
    const char *a, size_t a0, size_t a1, const char *b, size_t b0, size_t b1,
) noexcept nogil:
    return a1 - a0 == b1 - b0 and memcmp(a + a0, b + b0, a1 - a0) == 0


cdef bint subject_is_subset_match(
    const char *subject, size_t n, const char *test, size_t test_n,
) noexcept nogil:
    cdef size_t start = 0, end, test_start = 0, test_end
    while start <= n and test_start <= test_n:
        end = token_end(subject, n, start)
        test_end = token_end(test, test_n, test_start)
        if is_token(test, test_start, test_end, c'>'):
            return end > start
        if end == start or test_end == test_start or is_token(subject, start, end, c'>'):
            return False
        if (not is_token(test, test_start, test_end, c'*')
                and not same_token(subject, start, end, test, test_start, test_end)):
            return False
        start = end + 1
        test_start = test_end + 1
    return start > n and test_start > test_n


cdef bint subjects_collide(const char *a, size_t an, const char *b, size_t bn) noexcept nogil:
    cdef size_t a0 = 0, a1, b0 = 0, b1
    while a0 <= an and b0 <= bn:
        a1 = token_end(a, an, a0)
        b1 = token_end(b, bn, b0)
        if a1 == a0 or b1 == b0:
            return False
        if is_token(a, a0, a1, c'>') or is_token(b, b0, b1, c'>'):
            return True
        if (not is_token(a, a0, a1, c'*') and not is_token(b, b0, b1, c'*')
                and not same_token(a, a0, a1, b, b0, b1)):
            return False
        a0 = a1 + 1
        b0 = b1 + 1
    return a0 > an and b0 > bn


cdef bint match_literal(
    const char *literal, size_t n, const char *subject, size_t subject_n,
) noexcept nogil:
    cdef size_t l0 = 0, l1, s0 = 0, s1
    while l0 <= n and s0 <= subject_n:
        l1 = token_end(literal, n, l0)
        s1 = token_end(subject, subject_n, s0)
        if l1 == l0 or s1 == s0:
            return False
        if is_token(subject, s0, s1, c'>'):
            return True
        if not is_token(subject, s0, s1, c'*') and not same_token(literal, l0, l1, subject, s0, s1):
            return False
        l0 = l1 + 1
        s0 = s1 + 1
    return l0 > n and s0 > subject_n


cdef inline bytes as_bytes(subject):
    if isinstance(subject, bytes):
        return <bytes>subject
    if isinstance(subject, str):
        return (<str>subject).encode("utf-8", "surrogateescape")
    raise TypeError(f"a subject is bytes or str, not {type(subject).__name__}")


def valid_subject(subject) -> bool:
    """Return whether it has no empty token, no white space, and no token behind `>` (IsValidSubject)."""
    cdef bytes s = as_bytes(subject)
    return is_valid_subject(PyBytes_AS_STRING(s), PyBytes_GET_SIZE(s))


def valid_literal_subject(subject) -> bool:
    """Return whether it has no empty token and no wildcard; white space is ignored (IsValidLiteralSubject)."""
    cdef bytes s = as_bytes(subject)
    return is_valid_literal_subject(PyBytes_AS_STRING(s), PyBytes_GET_SIZE(s))


def valid_publish_subject(subject) -> bool:
    """Return whether it is valid and has no wildcard (IsValidPublishSubject)."""
    cdef bytes s = as_bytes(subject)
    return is_valid_publish_subject(PyBytes_AS_STRING(s), PyBytes_GET_SIZE(s))


def has_wildcard(subject) -> bool:
    """Return whether a token is `*` or `>` (subjectHasWildcard)."""
    cdef bytes s = as_bytes(subject)
    return subject_has_wildcard(PyBytes_AS_STRING(s), PyBytes_GET_SIZE(s))


def token_count(subject) -> int:
    """Return the number of tokens, empty ones included; 0 for the empty subject (numTokens)."""
    cdef bytes s = as_bytes(subject)
    return num_tokens(PyBytes_AS_STRING(s), PyBytes_GET_SIZE(s))


def subset_match(subject, test) -> bool:
    """Return whether `test` matches all that `subject` matches; either may have wildcards (subjectIsSubsetMatch)."""
    cdef bytes s = as_bytes(subject), t = as_bytes(test)
    return subject_is_subset_match(
        PyBytes_AS_STRING(s), PyBytes_GET_SIZE(s), PyBytes_AS_STRING(t), PyBytes_GET_SIZE(t))


def collide(a, b) -> bool:
    """Return whether both match some literal subject (SubjectsCollide)."""
    cdef bytes x = as_bytes(a), y = as_bytes(b)
    return subjects_collide(
        PyBytes_AS_STRING(x), PyBytes_GET_SIZE(x), PyBytes_AS_STRING(y), PyBytes_GET_SIZE(y))


def literal_match(literal, subject) -> bool:
    """Return whether `subject` matches `literal`, in which `*` and `>` are ordinary characters (matchLiteral)."""
    cdef bytes x = as_bytes(literal), y = as_bytes(subject)
    return match_literal(
        PyBytes_AS_STRING(x), PyBytes_GET_SIZE(x), PyBytes_AS_STRING(y), PyBytes_GET_SIZE(y))
