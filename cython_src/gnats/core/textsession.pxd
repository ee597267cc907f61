"""A session in NATS' text protocol: what those of clients, routes, gateways and leaf nodes share.

The owner calls all functions, unless they are Python's.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t

from gnats.core.accounts.subscriber cimport SUBSCRIBER_CTL, Subscriber
from gnats.core.net.connection cimport SESSION_TIMERS, Connection, SessionType
from gnats.core.pings cimport Pings
from gnats.core.protocol.parser cimport ParserHandlers
from gnats.core.runtime.timers cimport Timer
from gnats.core.sessioninput cimport SessionInput

cdef enum:
    T_AUTH = SESSION_TIMERS
    T_PING
    TEXT_CTL = SUBSCRIBER_CTL   # a session numbers its own requests to the owner from here on


cdef class TextSession(Subscriber):
    cdef SessionInput input
    cdef Timer auth_timer
    cdef int64_t auth_timeout     # ns
    cdef Pings pings

    # The CONNECT that the peer owes has come.
    cdef void connect_has_come(self) noexcept nogil
    # -- verbs: the parser calls them --
    cdef int process_ping(self) noexcept nogil
    cdef int process_err(self, char *arg, size_t n) noexcept nogil
    cdef int auth_violation(self) noexcept nogil
    cdef int violation(self, int code, int64_t b, const char *data, size_t n) noexcept nogil


# Fill in the functions that all such sessions share. `begin`, `on_control` and `closing` are left to the session.
cdef void share_session(SessionType *session) noexcept nogil
# The same for the parser's handlers: all but those of messages, subscriptions and CONNECT.
cdef void share_verbs(ParserHandlers *verbs) noexcept nogil
# SessionType.expired of all such sessions.
cdef void session_expired(Connection c, Timer *t) noexcept nogil
# Set the timer for the CONNECT, if the peer owes one.
cdef void start_auth_timer(TextSession c) noexcept nogil
# Stop the timers: the connection is closing.
cdef void stop_timers(TextSession c) noexcept nogil
