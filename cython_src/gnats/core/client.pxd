"""A client (the protocol half of client.go): the session of a NATS client."""
cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint32_t, uint8_t

from gnats.core.textsession cimport TextSession


# Options of an accepted CONNECT, staged by the control plane for the owner.
cdef struct ConnectOptions:
    uint8_t echo, verbose, pedantic, headers, no_responders, protocol


# Limits that a reload may change on a live connection; -1: no limit.
cdef struct Limits:
    int32_t max_control_line, max_payload, max_subs, ping_max
    int64_t ping_interval    # ns


@cython.final
cdef class Client(TextSession):
    cdef uint8_t connect_received  # a CONNECT has been accepted
    cdef uint8_t first_pong_sent  # atomic, the owner writes
    cdef int32_t max_subs         # -1 for no limit
    # under lock: left by the control plane for the owner
    cdef ConnectOptions staged
    cdef Limits staged_limits
    cdef void *staged_account
    cdef char *connect_info       # INFO line to send behind the first PONG, or NULL
    cdef size_t connect_info_len

    # -- the session: parts of the functions of core.net.connection.SessionType --
    cdef void take_requests(self, uint32_t ctl) noexcept nogil
    cdef void take_options(self) noexcept nogil     # of an accepted CONNECT
    cdef void apply_limits(self, const Limits *limits) noexcept nogil
    # -- verbs: the parser calls them --
    cdef int process_inbound_msg(self) noexcept nogil
    cdef int process_sub(self, char *arg, size_t n) noexcept nogil
    cdef int process_unsub(self, char *arg, size_t n) noexcept nogil
    cdef int process_connect(self, char *arg, size_t n) noexcept nogil
    cdef int process_invalid_publish_subject(self) noexcept nogil
    cdef void trace_over_max_payload(self) noexcept nogil
