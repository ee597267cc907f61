"""A message on its way into a stream, alone or of a batch, and how its publisher is told that it is refused.

With a StreamCore, the stream's lock is held. Checks are False when the message is refused, which its reply has been
told then.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcmp, memcpy

from gnats.core.slice cimport Slice
from gnats.core.transform cimport transform_apply, transform_matches
from gnats.jetstream.engine cimport Local
from gnats.jetstream.headers cimport H_EXPECTED_LAST_MSG_ID, MsgHeaders, header_set
from gnats.jetstream.puback cimport ERR_WRONG_LAST_MSG_ID
from gnats.jetstream.streamcore cimport StreamCore

cdef enum:
    SUBJECT_ROOM = 256   # bytes of a subject that need no memory but the stack's


# A message in hand. `hdr` is in memory of ours when `owned` is, else in the poller's buffer.
cdef struct Inbound:
    Slice subject
    Slice reply          # n is 0 without one
    char *hdr
    size_t hdr_n
    const char *msg
    size_t n
    char *owned          # to be freed
    char *counted        # the payload that an increment made, to be freed; `val` is the number in it
    Slice val
    Slice batch          # the id of the batch that it ends, of batch_n messages; p is NULL otherwise
    uint64_t batch_n
    uint8_t unheard      # nobody was there to take it: the stream was just being closed
    uint8_t told_as      # a ToldAs: how its publisher is told why it is refused
    uint64_t flow_seq    # of TOLD_IN_FLOW
    uint64_t seq         # of a mirror's message: its sequence, which must be the next one, and ts; else 0
    int64_t ts
    MsgHeaders h


cdef enum ToldAs:
    TOLD = 0             # if the stream answers publishers
    TOLD_ALWAYS = 1
    TOLD_IN_FLOW = 2     # always, as of flow_seq of its batch


cdef enum Outcome:
    MSG_STORED = 0
    MSG_DUPLICATE = 1    # there is one with its id
    MSG_LIMITED = 2      # there is no room, with discard new
    MSG_REFUSED = 3      # for another reason, which the publisher has been told if there is one


cdef enum:
    MAX_RECORD = 32 * 1024 * 1024   # bytes
    MAX_HEADER = 65535

cdef enum Rollup:
    NO_ROLLUP = 0
    ROLLUP_SUBJECT = 1
    ROLLUP_ALL = 2


# What is found out about a message before it is stored.
cdef struct Checked:
    Rollup rollup
    int64_t ttl          # seconds
    Slice msg_id         # n is 0 without one
    Outcome outcome
    bint unscheduled     # it has ended a schedule
    bint part            # of an atomic batch


# What is kept between take() and after_take().
cdef struct Taken:
    Checked c
    char *subject        # that the stream's transform made of the message's; NULL: it is as it was
    bint purged


cdef bint refuse(StreamCore s, Local *local, const Inbound *m, int err_code) noexcept nogil
# With text behind what the error says.
cdef bint refuse_with(StreamCore s, Local *local, const Inbound *m, int err_code, const char *text,
                      size_t n) noexcept nogil
# `last` is the stream's last sequence, or that of a subject.
cdef bint refuse_sequence(StreamCore s, Local *local, const Inbound *m, uint64_t last,
                          bint of_subject) noexcept nogil
cdef bint refuse_store(StreamCore s, Local *local, const Inbound *m, const char *why, size_t n) noexcept nogil
cdef void refuse_rollup(StreamCore s, Local *local, const Inbound *m) noexcept nogil
# Have the header in memory where it may be changed, and grow by 128 bytes. False when out of memory.
cdef bint own_header(Inbound *m) noexcept nogil


cdef inline size_t record_size(const Inbound *m) noexcept nogil:
    """Bytes of it in a file."""
    return 30 + m.subject.n + m.n + (4 + m.hdr_n if m.hdr_n else 0)


cdef inline bint check_last_msg_id(StreamCore s, Local *local, const Inbound *m) noexcept nogil:
    cdef const Slice *id = &m.h.values[H_EXPECTED_LAST_MSG_ID]
    if header_set(&m.h, H_EXPECTED_LAST_MSG_ID) and (
            id.n != s.last_msg_id_n or memcmp(id.p, s.last_msg_id, s.last_msg_id_n) != 0):
        return refuse_with(s, local, m, ERR_WRONG_LAST_MSG_ID, s.last_msg_id, s.last_msg_id_n)
    return True


cdef inline Rollup rollup_of(const Slice *v) noexcept nogil:
    cdef char[3] low
    cdef int i
    if v.n != 3:
        return NO_ROLLUP
    for i in range(3):
        low[i] = v.p[i] + 32 if c'A' <= v.p[i] <= c'Z' else v.p[i]
    if memcmp(low, b"sub", 3) == 0:
        return ROLLUP_SUBJECT
    return ROLLUP_ALL if memcmp(low, b"all", 3) == 0 else NO_ROLLUP


cdef inline bint transform_subject(StreamCore s, Local *local, Inbound *m, char **memory) noexcept nogil:
    """Its subject becomes what the stream's transform makes of it, in memory[0] to be freed if not NULL."""
    cdef char[SUBJECT_ROOM] few
    cdef size_t n
    memory[0] = NULL
    if s.itr == NULL or not transform_matches(s.itr, m.subject.p, m.subject.n):
        return True
    n = transform_apply(s.itr, m.subject.p, m.subject.n, &local.ps.rng, True, few, SUBJECT_ROOM)
    memory[0] = <char *> malloc(n + 1)
    if memory[0] == NULL:
        return False
    if n <= SUBJECT_ROOM:
        memcpy(memory[0], few, n)
    else:
        n = transform_apply(s.itr, m.subject.p, m.subject.n, &local.ps.rng, True, memory[0], n)
    m.subject.p = memory[0]
    m.subject.n = n
    return True
