"""The content of a stream's log: entries, which are messages, checked and ready to be stored; and other changes.

The leader of a stream checks a message, makes an entry of it (gnats.jetstream.publish.entries) and proposes the entry
to the stream's log. To apply the entry needs nothing but the entry and the stream: no poller, no publisher, no clock,
no consumers, no other stream. So each server that has the log has the same messages. The last fields of an entry are
of the server that proposed it: it answers the publisher when it has applied the entry.

A StreamChange is in the same order: a deletion or a purge that a client asks for, or sequences that a mirror skips.
Some changes are not in the log, since each server makes them itself: it removes messages by limits, messages that
expire, and messages that consumers need no more (StreamCore.ack_msg).
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t

from gnats.core.messages.msgtrace cimport MsgTrace
from gnats.core.runtime.slice cimport Slice


# The outcome of a message that was published to a stream.
cdef enum Outcome:
    MSG_STORED = 0       # stored; a log that waits for other servers has the message, and will store it
    MSG_DUPLICATE = 1    # not stored: its message id is known already
    MSG_LIMITED = 2      # not stored: a limit of the stream is reached, with discard new
    MSG_REFUSED = 3      # not stored, for another reason
    MSG_UNHEARD = 4      # not stored: the stream is closed or not subscribed, and counts as no subscriber


cdef enum Rollup:
    NO_ROLLUP = 0
    ROLLUP_SUBJECT = 1
    ROLLUP_ALL = 2


# An entry's place in an atomic batch or a fast batch (ADR-50).
cdef enum Part:
    ALONE = 0            # in neither
    OF_ATOMIC = 1        # in an atomic batch, but not its last message
    ENDS_ATOMIC = 2      # the last message of an atomic batch
    OF_FAST = 3


# The parsed reply subject of a message in a fast batch.
cdef struct FastPattern:
    Slice id             # of the fast batch
    uint64_t seq         # of the message in the fast batch: 1..2^64 - 2
    uint16_t flow        # the most messages for each acknowledgement
    uint8_t gap_ok, ping, commit, eob    # eob: a commit without a message to store


# Slices are borrowed; an absent one has n == 0.
cdef struct StreamEntry:
    StreamEntry *next    # the next entry of the same atomic batch; NULL for the last
    Slice subject        # after the stream's transform
    const char *hdr      # as it is stored
    size_t hdr_n
    const char *msg      # the payload, n bytes
    size_t n
    uint64_t seq         # the sequence that it must get, a mirror's; 0: the next one
    int64_t ts           # when it was stored, ns since 1970
    int64_t ttl          # seconds; 0: none, negative: it never expires
    Slice msg_id
    Slice expected_id    # the id that the stream's last message must have: checked when this one is stored
    Slice ended          # the subject of the schedule that this message ends
    uint8_t rollup       # a Rollup
    uint8_t part         # a Part
    uint8_t names_batch  # the header names an atomic batch
    uint8_t no_interest  # no consumer wants it, with the interest policy: leave out its sequence
    # -- for a log that several servers have: each makes its own entry of these --
    Slice published      # the subject before the stream's transform
    uint8_t sourced      # as in Inbound
    uint8_t follows      # this server does not lead: it publishes no copy
    # -- of the server that proposed it alone: to answer the publisher --
    Slice reply          # OF_ATOMIC, ENDS_ATOMIC: the commit's
    MsgTrace *trace      # NULL: not traced
    Slice value          # the counter's new value, in decimal
    Slice batch          # ENDS_ATOMIC only: the id of the atomic batch
    uint64_t batch_n     # ENDS_ATOMIC only: the number of its messages
    const FastPattern *fast    # OF_FAST only
    uint64_t before      # republish: the sequence of the subject's previous message, 0 for none; set when it is stored
    uint8_t republish    # publish a copy; set when it is stored


cdef enum ChangeOp:
    DELETE_MSG = 0
    PURGE_MSGS = 1


# Set all to 0 before the fields of the operation.
cdef struct StreamChange:
    uint8_t op           # a ChangeOp
    uint8_t erase        # DELETE_MSG: overwrite the message
    uint64_t seq         # DELETE_MSG: the message; PURGE_MSGS: only those below, 0: any
    Slice subject        # PURGE_MSGS: borrowed; n == 0: of all subjects
    uint64_t keep        # PURGE_MSGS: all but the last `keep` messages
