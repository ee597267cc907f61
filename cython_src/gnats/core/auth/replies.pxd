"""Reply subjects that a client was sent and may therefore publish to (allow_responses; `replies` in client.go).

nats-server prunes expired and used up entries from time to time. Here entries are ordered by age, so that both go at
once; clients see no difference. core.accounts.guard guards a table with the connection's lock.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t


cdef struct Reply:
    Reply *next          # in its bucket
    uint32_t hash
    Reply *older
    Reply *newer
    int64_t when         # monotonic ns of its delivery
    int64_t used         # messages published to it
    uint32_t len
    char subject[1]


cdef struct ReplyTable:
    Reply **slots
    uint32_t mask        # number of buckets - 1; 0 before the first entry
    uint32_t n
    Reply *oldest
    Reply *newest
    int64_t most         # messages to each reply subject; negative: any number
    int64_t expires      # ns; negative: never


cdef ReplyTable *replies_new(int64_t most, int64_t expires) noexcept nogil    # NULL without memory
cdef void replies_free(ReplyTable *t) noexcept nogil
# Add the reply subject of a delivered message. When it is there already, use up one response, as nats-server does.
# False without memory.
cdef bint replies_note(ReplyTable *t, const char *subject, size_t n, int64_t now) noexcept nogil
# Return whether this subject may be published to (responseAllowed). If so, use up one response.
cdef bint replies_use(ReplyTable *t, const char *subject, size_t n, int64_t now) noexcept nogil
