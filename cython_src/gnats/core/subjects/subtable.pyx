"""A connection's subscriptions by sid; see subtable.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t
from libc.stdlib cimport malloc
from libc.string cimport memcmp, memcpy

from gnats.core.runtime.hash_table cimport as_chained, as_chains, chains_add, chains_clear, chains_remove
from gnats.core.subjects.subject cimport hash_bytes
from gnats.core.subjects.sublist cimport Subscription, sub_queue, sub_sid, sub_subject
from gnats.includes.atomics cimport loadi64, store32
from gnats.includes.text cimport NUMBER_ROOM, put_number, put_text

cdef enum:
    FIRST_SLOTS = 8
    NUMBERS = 2 * NUMBER_ROOM + 5    # bytes of a line's two numbers, four blanks and its end


cdef Subscription *subtable_find(SubTable *t, const char *sid, size_t n) noexcept nogil:
    cdef uint32_t hash
    cdef Subscription *s
    if t.n == 0:
        return NULL
    hash = hash_bytes(sid, n)
    s = t.slots[hash & t.mask]
    while s != NULL:
        if s.hash == hash and s.sid_len == n and memcmp(sub_sid(s), sid, n) == 0:
            return s
        s = s.next
    return NULL


cdef bint subtable_add(SubTable *t, Subscription *s) noexcept nogil:
    return chains_add(as_chains(t), as_chained(s), FIRST_SLOTS)


cdef bint subtable_remove(SubTable *t, Subscription *s) noexcept nogil:
    if not chains_remove(as_chains(t), as_chained(s)):
        return False
    if t.n == 0:
        chains_clear(as_chains(t))
    return True


cdef char *put_word(char *at, const char *word, size_t n) noexcept nogil:
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
            at = put_word(at, sub_subject(s), s.subject_len)
            at = put_word(at, sub_queue(s), s.queue_len)
            at = put_word(at, sub_sid(s), s.sid_len)
            at = put_text(put_number(put_text(put_number(at, loadi64(&s.nm)), b" "), loadi64(&s.max)), b"\n")
            s = s.next
    n[0] = at - text
    return text


cdef size_t subtable_take_some(SubTable *t, uint32_t *at, Subscription **some) noexcept nogil:
    cdef Subscription **slot
    cdef size_t n = 0
    while n < SOME and t.n:
        slot = &t.slots[at[0] & t.mask]
        if slot[0] == NULL:
            at[0] += 1
            continue
        some[n] = slot[0]
        slot[0] = slot[0].next
        n += 1
        store32(&t.n, t.n - 1)
        if t.n == 0:
            chains_clear(as_chains(t))
    return n


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
    chains_clear(as_chains(t))
    return chain
