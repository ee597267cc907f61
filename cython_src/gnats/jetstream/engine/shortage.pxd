"""Log that memory ran out for a message."""
from gnats.core.net.connection cimport WRITE_ERROR, Connection
from gnats.core.net.pollstate cimport PollState


cdef inline void report_shortage(PollState *ps) noexcept nogil:
    """Log that a message is lost, or not answered, for want of memory. The thread of `ps`."""
    (<Connection> ps.js).out_of_memory(WRITE_ERROR)
