"""A client (the protocol half of client.go): the session of a NATS client."""
cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.pings cimport Pings
from gnats.core.runtime.timers cimport Timer
from gnats.core.sessioninput cimport SessionInput


# Options of an accepted CONNECT, staged by the control plane for the owner.
cdef struct ConnectOptions:
    uint8_t echo, verbose, pedantic, headers, no_responders, protocol


# Limits that a reload may change on a live connection; -1: no limit.
cdef struct Limits:
    int32_t max_control_line, max_payload, max_subs, ping_max
    int64_t ping_interval    # ns


@cython.final
cdef class Client(Subscriber):
    cdef SessionInput input
    cdef uint8_t connect_received  # a CONNECT has been accepted
    cdef uint8_t first_pong_sent  # atomic, the owner writes
    cdef int32_t max_subs         # -1 for no limit
    cdef Timer auth_timer
    cdef int64_t auth_timeout     # ns
    cdef Pings pings
    # under lock: left by the control plane for the owner
    cdef ConnectOptions staged
    cdef Limits staged_limits
    cdef void *staged_account
    cdef char *connect_info       # INFO line to send behind the first PONG, or NULL
    cdef size_t connect_info_len

    # -- the session: the functions of core.net.connection.SessionType, and their parts --
    cdef void begin_pings(self) noexcept nogil
    cdef void take_requests(self, uint32_t ctl) noexcept nogil
    cdef void take_options(self) noexcept nogil     # of an accepted CONNECT
    cdef void apply_limits(self, const Limits *limits) noexcept nogil
    cdef void timer_expired(self, Timer *t) noexcept nogil
    cdef bint end_session(self) noexcept nogil
    # -- verbs: the parser calls them --
    cdef int process_inbound_msg(self) noexcept nogil
    cdef int process_sub(self, char *arg, size_t n) noexcept nogil
    cdef int process_unsub(self, char *arg, size_t n) noexcept nogil
    cdef int process_ping(self) noexcept nogil
    cdef int process_pong(self) noexcept nogil
    cdef int process_connect(self, char *arg, size_t n) noexcept nogil
    cdef int process_err(self, char *arg, size_t n) noexcept nogil
    cdef int process_invalid_publish_subject(self) noexcept nogil
    cdef int auth_violation(self) noexcept nogil
    cdef int violation(self, int code, int64_t b, const char *data, size_t n) noexcept nogil
    cdef void trace_over_max_payload(self) noexcept nogil
