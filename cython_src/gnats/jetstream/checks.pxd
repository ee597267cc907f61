"""May a message be stored? Every check of what comes into a stream, each once (processJetStreamMsg in stream.go,
checkMsgHeadersPreClusteredProposal in jetstream_batching.go).

A check looks at the stream, the message and what is in flight, sends nothing and stores nothing; the stream's lock is
held. What it changes is the message: a schedule gets its rollup, an increment becomes the value of its counter. The
order says which error a publisher gets for a message that has several; nats-server has two:

* f NULL: the message is stored as soon as it has been checked, with nothing in flight;
* of a batch, and wherever messages are proposed before they are stored: f says what comes before it.
"""
from gnats.core.slice cimport Slice
from gnats.jetstream.entry cimport Entry, Outcome
from gnats.jetstream.inbound cimport Inbound
from gnats.jetstream.inflight cimport InFlight
from gnats.jetstream.refusal cimport Refusal
from gnats.jetstream.streamcore cimport StreamCore


# MSG_STORED: it may. MSG_DUPLICATE: its id has been stored, as r.last, or is in flight (0). MSG_REFUSED: r says why.
cdef Outcome check_message(StreamCore s, Inbound *m, const InFlight *f, Refusal *r) noexcept nogil
# May messages of batches be taken at all? Before it is known which batch they are of.
cdef Outcome check_admission(StreamCore s, const Inbound *m, Refusal *r) noexcept nogil
# Is `id` that of the stream's last message?
cdef bint check_last_id(StreamCore s, const Slice *id, Refusal *r) noexcept nogil
# What is to be stored of a message that has been checked, or of one that another server has.
cdef void make_entry(const Inbound *m, Entry *e) noexcept nogil
