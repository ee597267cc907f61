"""The subscriptions of one connection by sid; see subtable.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from gnats.core.subject cimport hash_bytes
from gnats.core.sublist cimport Subscription, sub_queue, sub_sid, sub_subject
from gnats.includes.atomics cimport loadi64

cdef enum:
    FIRST_SLOTS = 8
    NUMBERS = 48        # room for a line's two numbers, its blanks and its end


cdef Subscription *subtable_find(SubTable *t, const char *sid, size_t n) noexcept nogil:
    cdef uint32_t hash
    cdef Subscription *s
    if t.n == 0:
        return NULL
    hash = hash_bytes(sid, n)
    s = t.slots[hash & t.mask]
    while s != NULL:
        if s.sid_hash == hash and s.sid_len == n and memcmp(sub_sid(s), sid, n) == 0:
            return s
        s = s.next
    return NULL


cdef bint resize(SubTable *t, uint32_t slots) noexcept nogil:
    cdef Subscription **fresh = <Subscription **> calloc(slots, sizeof(Subscription *))
    cdef Subscription *s
    cdef Subscription *following
    cdef uint32_t i
    if fresh == NULL:
        return False
    if t.slots != NULL:
        for i in range(t.mask + 1):
            s = t.slots[i]
            while s != NULL:
                following = s.next
                s.next = fresh[s.sid_hash & (slots - 1)]
                fresh[s.sid_hash & (slots - 1)] = s
                s = following
        free(t.slots)
    t.slots = fresh
    t.mask = slots - 1
    return True


cdef bint subtable_add(SubTable *t, Subscription *s) noexcept nogil:
    if t.slots == NULL:
        if not resize(t, FIRST_SLOTS):
            return False
    elif t.n > t.mask:
        resize(t, (t.mask + 1) * 2)   # without memory the chains only get longer
    s.next = t.slots[s.sid_hash & t.mask]
    t.slots[s.sid_hash & t.mask] = s
    t.n += 1
    return True


cdef bint subtable_remove(SubTable *t, Subscription *s) noexcept nogil:
    cdef Subscription **link
    if t.n == 0:
        return False
    link = &t.slots[s.sid_hash & t.mask]
    while link[0] != NULL:
        if link[0] == s:
            link[0] = s.next
            t.n -= 1
            if t.n == 0:
                free(t.slots)
                t.slots = NULL
                t.mask = 0
            elif t.mask >= 64 and t.n < t.mask // 8:
                resize(t, (t.mask + 1) // 4)
            return True
        link = &link[0].next
    return False


cdef char *put(char *at, const char *word, size_t n) noexcept nogil:
    memcpy(at, word, n)
    at[n] = c' '
    return at + n + 1


cdef char *subtable_text(SubTable *t, size_t most, size_t *n) noexcept nogil:
    cdef size_t need = 0
    cdef Subscription *s
    cdef char *text
    cdef char *at
    cdef char *end
    cdef uint32_t i
    n[0] = 0
    if t.n == 0:
        return NULL
    for i in range(t.mask + 1):
        s = t.slots[i]
        while s != NULL and need < most:
            need += s.subject_len + s.queue_len + s.sid_len + NUMBERS
            s = s.next
        if need >= most:
            need = most
            break
    text = <char *> malloc(need)
    if text == NULL:
        return NULL
    at = text
    end = text + need
    for i in range(t.mask + 1):
        s = t.slots[i]
        while s != NULL:
            if at + s.subject_len + s.queue_len + s.sid_len + NUMBERS > end:
                n[0] = at - text
                return text
            at = put(at, sub_subject(s), s.subject_len)
            at = put(at, sub_queue(s), s.queue_len)
            at = put(at, sub_sid(s), s.sid_len)
            at += snprintf(at, NUMBERS - 3, b"%lld %lld\n", <long long> loadi64(&s.nm), <long long> loadi64(&s.max))
            s = s.next
    n[0] = at - text
    return text


cdef Subscription *subtable_take(SubTable *t) noexcept nogil:
    cdef Subscription *chain = NULL
    cdef Subscription *s
    cdef uint32_t i
    if t.slots == NULL:
        return NULL
    for i in range(t.mask + 1):
        while t.slots[i] != NULL:
            s = t.slots[i]
            t.slots[i] = s.next
            s.next = chain
            chain = s
    free(t.slots)
    t.slots = NULL
    t.mask = t.n = 0
    return chain
