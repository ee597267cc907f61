"""Subjects in the data plane: a pointer and a length (the subject half of sublist.go).

A subject is tokens separated by dots. The token `*` stands for any one token, `>` as the last one for one or more;
inside a longer token they are ordinary characters.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

cdef extern from * nogil:
    """
    #include <stdint.h>
    #include <string.h>
    static inline uint64_t gnats_mul_mix(uint64_t a, uint64_t b)
    {
        unsigned __int128 product = (unsigned __int128)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    static inline uint64_t gnats_read64(const char *p) { uint64_t v; memcpy(&v, p, sizeof v); return v; }
    static inline uint32_t gnats_read32(const char *p) { uint32_t v; memcpy(&v, p, sizeof v); return v; }
    """
    # Folds the two halves of the 128-bit product: one multiplication spreads every input bit.
    uint64_t mul_mix "gnats_mul_mix"(uint64_t a, uint64_t b)
    uint64_t read64 "gnats_read64"(const char *p)
    uint32_t read32 "gnats_read32"(const char *p)


# Random in each process, the same in all modules: no client can choose subjects that collide.
cdef uint64_t hash_seed_a
cdef uint64_t hash_seed_b


cdef inline uint32_t hash_bytes(const char *p, size_t n) noexcept nogil:
    """Hash n bytes with a key (wyhash's construction), for tables of this process only."""
    cdef uint64_t h = hash_seed_a ^ n
    cdef uint64_t a = 0, b = 0
    while n > 16:
        h = mul_mix(read64(p) ^ hash_seed_b, read64(p + 8) ^ h)
        p += 16
        n -= 16
    if n >= 8:
        a = read64(p)
        b = read64(p + n - 8)
    elif n >= 4:
        a = read32(p)
        b = read32(p + n - 4)
    elif n > 0:
        a = <uint8_t>p[0] | <uint32_t><uint8_t>p[n >> 1] << 8 | <uint32_t><uint8_t>p[n - 1] << 16
    h = mul_mix(a ^ hash_seed_b, b ^ h)
    return <uint32_t>(h ^ h >> 32)


cdef inline bint same_bytes(const char *a, const char *b, size_t n) noexcept nogil:
    """Return memcmp(a, b, n) == 0, without the call for strings as short as subjects."""
    if n > 16:
        return memcmp(a, b, n) == 0
    if n >= 8:
        return read64(a) == read64(b) and read64(a + n - 8) == read64(b + n - 8)
    if n >= 4:
        return read32(a) == read32(b) and read32(a + n - 4) == read32(b + n - 4)
    return n == 0 or (a[0] == b[0] and a[n >> 1] == b[n >> 1] and a[n - 1] == b[n - 1])


cdef inline size_t token_end(const char *p, size_t n, size_t start) noexcept nogil:
    """Return the end of the token that begins at `start`: the next dot, or n."""
    while start < n and p[start] != c'.':
        start += 1
    return start


cdef inline bint is_token(const char *p, size_t start, size_t end, char c) noexcept nogil:
    """Return whether the token p[start:end] is the one character c."""
    return end - start == 1 and p[start] == c


cdef inline bint is_valid_subject(const char *p, size_t n) noexcept nogil:
    """Return whether it has no empty token, no white space, and no token behind `>`."""
    cdef size_t i, start = 0
    for i in range(n):
        if p[i] == c'.':
            if i == start or is_token(p, start, i, c'>'):
                return False
            start = i + 1
        elif p[i] == c' ' or p[i] == c'\t' or p[i] == c'\n' or p[i] == c'\r' or p[i] == c'\f':
            return False
    return start < n


cdef inline bint subject_has_wildcard(const char *p, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(n):
        if p[i] == c'*' or p[i] == c'>':
            if (i == 0 or p[i - 1] == c'.') and (i + 1 == n or p[i + 1] == c'.'):
                return True
    return False


cdef inline bint is_valid_literal_subject(const char *p, size_t n) noexcept nogil:
    """Return whether it has no empty token and no wildcard. White space is ignored: the parser has split on it."""
    cdef size_t i, start = 0
    for i in range(n):
        if p[i] == c'.':
            if i == start:
                return False
            start = i + 1
    return start < n and not subject_has_wildcard(p, n)


cdef inline bint is_valid_publish_subject(const char *p, size_t n) noexcept nogil:
    return is_valid_subject(p, n) and not subject_has_wildcard(p, n)


cdef inline size_t num_tokens(const char *p, size_t n) noexcept nogil:
    cdef size_t i, tokens = n > 0
    for i in range(n):
        tokens += p[i] == c'.'
    return tokens


# Return whether `test` matches all that `subject` matches. Either may have wildcards (subjectIsSubsetMatch).
cdef bint subject_is_subset_match(
    const char *subject, size_t n, const char *test, size_t test_n,
) noexcept nogil

# Return whether both match some literal subject (SubjectsCollide).
cdef bint subjects_collide(const char *a, size_t an, const char *b, size_t bn) noexcept nogil

# Return whether `subject` matches `literal`, in which `*` and `>` are ordinary characters (matchLiteral).
cdef bint match_literal(
    const char *literal, size_t n, const char *subject, size_t subject_n,
) noexcept nogil
