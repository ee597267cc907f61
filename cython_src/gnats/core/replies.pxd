"""The reply subjects that a client was sent and may therefore publish to (allow_responses, `replies` in client.go).

nats-server looks for what has expired or is used up from time to time; here entries are in the order of their age, so
that both go at once, which nobody can tell apart. No lock of its own: core.guard keeps it under the connection's.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t


cdef struct Reply:
    Reply *next          # in its bucket
    uint32_t hash
    Reply *older
    Reply *newer
    int64_t when         # ns
    int64_t used         # messages published to it
    uint32_t len
    char subject[1]


cdef struct ReplyTable:
    Reply **slots
    uint32_t mask        # slots less one; 0 before the first entry
    uint32_t n
    Reply *oldest
    Reply *newest
    int64_t most         # messages to each subject; negative: any number
    int64_t expires      # ns; negative: never


cdef ReplyTable *replies_new(int64_t most, int64_t expires) noexcept nogil    # NULL without memory
cdef void replies_free(ReplyTable *t) noexcept nogil
# A message with this reply subject is delivered. As in nats-server this uses up one response when the subject is
# known already. False without memory.
cdef bint replies_note(ReplyTable *t, const char *subject, size_t n, int64_t now) noexcept nogil
# May it be published to (responseAllowed)? True uses up one response.
cdef bint replies_use(ReplyTable *t, const char *subject, size_t n, int64_t now) noexcept nogil
