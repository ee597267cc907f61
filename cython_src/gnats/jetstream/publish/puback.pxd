"""Replies to publishers of a stream: JSPubAckResponse of stream.go as JSON, written without Python."""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t

from gnats.core.runtime.slice cimport Slice
from gnats.jetstream.engine.barrier cimport JsPoller
from gnats.jetstream.state.streamcore cimport StreamCore

# These reply unless the stream has no_ack, or the message has no reply subject.

# Reply with an error. text[:n] ends the description of an error "with text".
cdef void respond_error(StreamCore s, JsPoller *jp, const Slice *reply, int err_code, const char *text,
                        size_t n) noexcept nogil
# Reply that the message is stored with sequence `seq`.
cdef void respond_ack(StreamCore s, JsPoller *jp, const Slice *reply, uint64_t seq) noexcept nogil
# Reply the same, with a counter's new value.
cdef void respond_counted(StreamCore s, JsPoller *jp, const Slice *reply, uint64_t seq,
                          const Slice *value) noexcept nogil
# Reply that the message is a duplicate of the one with sequence `seq`.
cdef void respond_duplicate(StreamCore s, JsPoller *jp, const Slice *reply, uint64_t seq) noexcept nogil

# -- these reply even when the stream has no_ack --

# Reply with an error. flow_seq: the message's sequence in its fast batch, for the form of a fast batch; 0: the usual.
cdef void send_error(StreamCore s, JsPoller *jp, const Slice *reply, uint64_t flow_seq, int err_code, const char *text,
                     size_t n) noexcept nogil
# Acknowledge an atomic or fast batch of `count` messages, the last of which has sequence `seq`. duplicate: its only
# message was not stored, since the one with sequence `seq` has its id.
cdef void send_batch_ack(StreamCore s, JsPoller *jp, const Slice *reply, uint64_t seq, const char *id, size_t id_n,
                         uint64_t count, bint duplicate) noexcept nogil
