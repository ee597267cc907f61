"""An entry of a consumer's log: one change of the consumer's stored state, checked and ready to be applied.

A consumer goes on from its stored state after a restart: `delivered` and `floor`, and for each message in `pending` its
sequences, its redeliveries, and the time at which its ack wait began. A consumer checks a change, makes an entry of it,
and lets its log apply the entry. Applying the entry needs nothing else: no poller, no client, no clock.
"""
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum ConsumerOp:
    OP_DELIVERED     # a message was delivered; above max_deliver: it is not pending any more (updateDelivered)
    OP_WAITS         # the ack wait of a pending message begins anew (updateDelivered)
    OP_RETURNED      # the last delivery of a message found no subscriber, and does not count (decDeliveryCount)
    OP_ACKED         # a message was acknowledged (updateAcks)
    OP_FORGOTTEN     # a delivered message is gone; the ack floor stays
    OP_MOVED         # the last delivery and the ack floor are others
    OP_RESET         # the same, and no message is pending or was delivered before (resetSeqOp)

cdef enum AckKind:
    ACKED_ONE        # the message alone
    ACKED_ALL        # the message and all before it

cdef enum ConsumerOutcome:
    ENTRY_APPLIED = 0
    ENTRY_UNKNOWN = 1    # applied, to a message that was not pending
    ENTRY_REFUSED = 2    # not applied: out of memory


# A consumer sequence and the stream sequence that belongs to it.
cdef struct SeqPair:
    uint64_t consumer, stream


cdef struct ConsumerEntry:
    uint8_t op           # a ConsumerOp
    uint8_t kind         # OP_ACKED: an AckKind; OP_WAITS: whether the client has asked for it
    uint64_t dseq, sseq  # the message's consumer sequence and stream sequence; OP_MOVED, OP_RESET: the last delivery
    uint64_t dc          # OP_DELIVERED: the number of deliveries, this one included
    int64_t ts           # OP_DELIVERED, OP_WAITS: when the ack wait begins, ns since 1970
    SeqPair floor        # OP_MOVED, OP_RESET
