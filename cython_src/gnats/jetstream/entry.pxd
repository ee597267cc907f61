"""An entry of a stream's log: one message as the stream is to store it, whoever stores it.

The leader of a stream checks a message and makes an entry of it; storing the entry needs nothing else. So an entry has
no poller, no publisher and no clock: a server that reads it from a log, and has nobody to answer, stores the same.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t

from gnats.core.slice cimport Slice


# What became of a message.
cdef enum Outcome:
    MSG_STORED = 0       # stored; of a log that waits for others: it has the message, and will store it
    MSG_DUPLICATE = 1    # there is one with its id
    MSG_LIMITED = 2      # there is no room, with discard new
    MSG_REFUSED = 3      # for another reason
    MSG_UNHEARD = 4      # the stream was just being closed: as if it had not subscribed


cdef enum Rollup:
    NO_ROLLUP = 0
    ROLLUP_SUBJECT = 1
    ROLLUP_ALL = 2


# What an entry has to do with a batch.
cdef enum Part:
    ALONE = 0
    OF_ATOMIC = 1        # of an atomic batch, not its last message
    ENDS_ATOMIC = 2
    OF_FAST = 3


# What the reply subject of a message in a fast batch says.
cdef struct FastPattern:
    Slice id
    uint64_t seq         # 1..2^64 - 2
    uint16_t flow        # messages for each acknowledgement, at most
    uint8_t gap_ok, ping, commit, eob    # eob: a commit that is no message


# Slices are borrowed; n is 0 for what there is none of.
cdef struct Entry:
    const Entry *next    # of an atomic batch: the entry that is stored after this one; NULL for the last
    Slice subject        # what the stream's transform has made of it
    Slice published      # the subject before that: other servers transform it themselves
    Slice reply
    const char *hdr
    size_t hdr_n
    const char *msg
    size_t n
    uint64_t seq         # that it gets, which must be the next one; 0: whichever is next
    int64_t ts           # ns since 1970, with a `seq`
    Slice msg_id
    Slice expected_id    # the id that the last message must have, where that is known only when it is stored
    Slice ttl            # Nats-TTL
    Slice ended          # the subject whose schedule it ends
    Slice value          # of the counter that it is
    Slice batch          # the id of its atomic batch,
    uint64_t batch_n     # and how many messages that has, of ENDS_ATOMIC
    const FastPattern *fast    # of OF_FAST
    uint8_t rollup       # a Rollup
    uint8_t part         # a Part
    uint8_t names_batch  # its header names an atomic batch
