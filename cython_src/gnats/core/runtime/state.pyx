"""Switches and counters that the pollers of one server share; see state.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.core.runtime.quiesce cimport qs_retire
from gnats.includes.atomics cimport exchange64, load8, load64, store8, store64


cdef class ServerState:
    """Shared by a server's pollers. Any thread may set a switch at any time; counters only grow."""

    def __dealloc__(self):
        free(self.details)

    def set_details(self, bytes server not None, bytes others not None=b"") -> None:
        """Set what requests to services say of the server: members of a JSON object, each behind a comma.

        `server` names it, `others` are the rest. Raises MemoryError.
        """
        cdef bytes members = server + others
        cdef size_t n = PyBytes_GET_SIZE(members)
        cdef ServerDetails *fresh = <ServerDetails *> malloc(sizeof(ServerDetails) + n)
        cdef void *old
        if fresh == NULL:
            raise MemoryError
        fresh.n = <uint32_t> n
        fresh.server_n = <uint32_t> PyBytes_GET_SIZE(server)
        memcpy(fresh.data, PyBytes_AS_STRING(members), n)
        old = <void *> exchange64(<uint64_t *> &self.details, <uint64_t> fresh)
        if old != NULL:
            qs_retire(old)   # a poller may be writing it into a request

    @property
    def debug(self) -> bool:
        """Whether to post records that nats-server logs at debug level."""
        return load8(&self._debug) != 0

    @debug.setter
    def debug(self, bint on):
        store8(&self._debug, on)

    @property
    def trace(self) -> bool:
        """Whether to post an EV_TRACE for each protocol operation."""
        return load8(&self._trace) != 0

    @trace.setter
    def trace(self, bint on):
        store8(&self._trace, on)

    @property
    def trace_verbose(self) -> bool:
        """Whether to trace the system account's own clients, too."""
        return load8(&self._trace_verbose) != 0

    @trace_verbose.setter
    def trace_verbose(self, bint on):
        store8(&self._trace_verbose, on)

    @property
    def trace_headers(self) -> bool:
        """Whether to trace only the header of a message."""
        return load8(&self._trace_headers) != 0

    @trace_headers.setter
    def trace_headers(self, bint on):
        store8(&self._trace_headers, on)

    @property
    def max_traced_msg_len(self) -> int:
        """Bytes of a payload that a trace shows; 0: all of it."""
        return load64(&self._max_traced)

    @max_traced_msg_len.setter
    def max_traced_msg_len(self, uint64_t size):
        store64(&self._max_traced, size)

    @property
    def no_fast_producer_stall(self) -> bool:
        """Whether to drop a message for a consumer over its gate, instead of stalling the producer."""
        return load8(&self._no_stall) != 0

    @no_fast_producer_stall.setter
    def no_fast_producer_stall(self, bint on):
        store8(&self._no_stall, on)

    @property
    def slow_consumers(self) -> int:
        """Connections closed for being slow consumers."""
        return load64(&self._slow_consumers)

    @property
    def stale_connections(self) -> int:
        """Connections closed because they answered no PING."""
        return load64(&self._stale_connections)

    @property
    def stalls(self) -> int:
        """Times a producer was stalled for a slow consumer."""
        return load64(&self._stalls)
