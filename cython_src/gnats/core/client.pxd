"""A client (the protocol half of client.go): verbs, subscriptions, and what it publishes.

Subscriptions are changed by the owner under the connection's lock, so that others may read them under it.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t

from gnats.core.account cimport Account
from gnats.core.delivery cimport Deliverer
from gnats.core.mappings cimport Mappings
from gnats.core.message cimport Message, NativeSub
from gnats.core.slice cimport Slice
from gnats.core.sublist cimport Subscription


cdef class Client(Deliverer):
    cdef uint64_t native_sids      # given out so far

    # NULL and error[0] < 0 for an invalid subject, 0 without memory
    cdef Subscription *add_sub(self, char *subject, size_t sn, char *queue, size_t qn, char *sid, size_t n,
                               int *error) noexcept nogil
    # Subscribe `native` (copied) with a sid of its own, in the account; the control loop. NULL as add_sub.
    cdef Subscription *add_native_sub(self, const char *subject, size_t sn, const char *queue, size_t qn,
                                      const NativeSub *native, int *error) noexcept nogil
    cdef Subscription *insert_sub(self, Subscription *s, int *error) noexcept nogil
    # Publish in any account, from within a batch of this client's poller: to who is subscribed to `subject`, shown as
    # `shown` (NULL: as it is). Header and payload need not be adjacent, reply and header may be NULL. True when
    # somebody received it. Hooks and native subscribers may call it while it is running: what is in hand stays.
    cdef bint send(self, Account account, const char *subject, size_t sn, const char *shown, size_t shown_n,
                   const char *reply, size_t rn, const char *hdr, size_t hn, const char *msg, size_t n) noexcept nogil
    # They are out of the table: take them out of the sublist, and retire them.
    cdef void take_out(self, Subscription **subs, size_t n) noexcept nogil
    cdef int punt(self, uint32_t kind, const char *arg, size_t n) noexcept nogil
    # -- messages it publishes; see core.message --
    cdef int refuse_msg(self, const Message *m, int what) noexcept nogil
    cdef void map_subject(self, Message *m, Mappings *mappings) noexcept nogil
    cdef void trace_in_mapping(self, const Slice *subject, const char *to, size_t n) noexcept nogil
    # Handle a message whose header may ask for a trace.
    cdef int process_traced_msg(self, Message *m) noexcept nogil
    cdef void trace_over_max_payload(self) noexcept nogil
    cdef void no_responders(self, const Message *m) noexcept nogil
