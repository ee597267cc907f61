"""Make the entry that stores a checked message: the last step before the message is proposed to the stream's log.

All that depends on this server and on this moment is decided here, and written into the entry: the time, whether a
consumer wants the message, its TTL, and whether the account has room for it.
"""
from gnats.jetstream.engine.barrier cimport JsPoller
from gnats.jetstream.publish.inbound cimport Inbound
from gnats.jetstream.publish.refusal cimport Refusal
from gnats.jetstream.state.entry cimport Part, StreamEntry
from gnats.jetstream.state.streamcore cimport StreamCore


# Fill in the entry of a message that check_message() lets pass. The entry borrows the message's memory. False when the
# message is not to be stored after all, with the reason in r. The account's usage is checked here for a message ALONE;
# the caller has checked that of a batch. The stream's lock is held.
cdef bint make_entry(StreamCore s, JsPoller *jp, Inbound *m, Part part, StreamEntry *e, Refusal *r) noexcept nogil
# Fill in the entry of a message that a log has: it was checked when it was proposed. False: no memory.
cdef bint entry_of_logged(StreamCore s, Inbound *m, Part part, StreamEntry *e) noexcept nogil
