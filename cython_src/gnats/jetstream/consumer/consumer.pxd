"""A consumer (consumer.go): the methods that the control plane calls."""
from libc.stdint cimport int64_t, uint8_t, uint64_t

from gnats.core.subjects.notifications cimport Notification
from gnats.jetstream.consumer.consumerdelivery cimport ConsumerDelivery
from gnats.jetstream.consumer.consumerstate cimport ConsumerSettings


cdef class Consumer(ConsumerDelivery):
    cdef readonly object config        # the ConsumerConfig that applies
    cdef list subs                     # addresses of its Subscriptions
    cdef Notification *notification    # of interest in the deliver subject; NULL: none
    cdef tuple names                   # <stream>.<consumer> as reply subjects have it: version 1, version 2
    cdef bint reconciled               # restore() has changed the state that it was given
    cdef int64_t burst                 # bytes of the rate limit's burst where the stream has no max_msg_size

    cdef int subscribe_native(self, bytes subject, int which) except -1
    cdef int read_settings(self, config, ConsumerSettings *cfg) except -1
    cdef int set_filter(self, config) except -1
    cdef int set_deliver_subject(self, config) except -1
    cdef void remove_unneeded(self, bint filtered, uint64_t seq, uint64_t end)
    cdef void wake_now(self)
