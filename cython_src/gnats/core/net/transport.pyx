"""The layers between a connection and its peer; see transport.pxd. The socket's is here."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from gnats.core.net.outbound cimport OutQueue, outq_chunks, outq_send
from gnats.core.net.pollstate cimport PollState
from gnats.includes.linux cimport MSG_DONTWAIT, errno, iovec, msghdr, recv, recvmsg, ssize_t

cdef TransportType SOCKET


cdef void transport_init_socket(Transport *t, void *connection, PollState *ps, int fd) noexcept nogil:
    t.type = &SOCKET
    t.below = t.owned = NULL
    t.connection = connection
    t.ps = ps
    t.fd = fd
    t.ended = 0


cdef void transport_push(Transport **first, Transport *t, const TransportType *type) noexcept nogil:
    t.type = type
    t.below = first[0]
    t.connection = first[0].connection
    t.ps = first[0].ps
    t.fd = first[0].fd
    t.ended = 0
    first[0] = t


cdef void transport_remove(Transport **first, Transport *t) noexcept nogil:
    while first[0] != t:
        first = &first[0].below
    first[0] = t.below


cdef long socket_receive(Transport *t, char *to, size_t want, size_t room) noexcept nogil:
    cdef iovec[2] iov
    cdef msghdr msg
    cdef ssize_t n
    if want == 0:
        n = recv(t.fd, t.ps.rbuf, room, MSG_DONTWAIT)
    elif room == 0:
        n = recv(t.fd, to, want, MSG_DONTWAIT)
    else:
        iov[0].iov_base = to
        iov[0].iov_len = want
        iov[1].iov_base = t.ps.rbuf
        iov[1].iov_len = room
        msg.msg_name = NULL
        msg.msg_namelen = 0
        msg.msg_control = NULL
        msg.msg_controllen = 0
        msg.msg_flags = 0
        msg.msg_iov = iov
        msg.msg_iovlen = 2
        n = recvmsg(t.fd, &msg, MSG_DONTWAIT)
    return n if n >= 0 else -errno


cdef long socket_flush(Transport *t, OutQueue *out) noexcept nogil:
    return outq_send(out, &t.ps.pool, t.fd)


cdef size_t socket_unsent(const Transport *t, const OutQueue *out) noexcept nogil:
    return out.bytes


cdef uint32_t socket_chunks(const Transport *t, const OutQueue *out) noexcept nogil:
    return outq_chunks(out)


SOCKET.begin = NULL
SOCKET.receive = socket_receive
SOCKET.more = NULL
SOCKET.flush = socket_flush
SOCKET.unsent = socket_unsent
SOCKET.chunks = socket_chunks
SOCKET.timer = NULL
SOCKET.expired = NULL
SOCKET.end = NULL
SOCKET.free = NULL
