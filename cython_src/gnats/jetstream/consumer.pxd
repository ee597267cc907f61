"""A consumer (consumer.go), as the control plane uses it."""
from libc.stdint cimport int64_t, uint8_t, uint64_t

from gnats.core.watches cimport Watch
from gnats.jetstream.consumerdelivery cimport ConsumerDelivery
from gnats.jetstream.consumerstate cimport ConsumerSettings


cdef class Consumer(ConsumerDelivery):
    cdef readonly object config        # what it was given last
    cdef list subs                     # addresses of its Subscriptions
    cdef Watch *watch                  # who listens to the deliver subject; NULL: none
    cdef uint8_t listeners             # the watch's word; atomic
    cdef tuple names                   # of stream and consumer in subjects, of version 1 and 2
    cdef bint reconciled               # it does not begin where the state says that it was given
    cdef int64_t burst

    cdef int subscribe_native(self, bytes subject, int which) except -1
    cdef int read_settings(self, config, ConsumerSettings *cfg) except -1
    cdef int set_filter(self, config) except -1
    cdef int set_deliver_subject(self, config) except -1
    cdef void remove_unneeded(self, bint filtered, uint64_t seq, uint64_t end)
    cdef void wake_now(self)
