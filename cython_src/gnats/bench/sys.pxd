"""The system's interface for the load generator: sockets, epoll, clocks."""
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from posix.time cimport timespec

from gnats.includes.linux cimport CLOCK_THREAD_CPUTIME_ID, kernel_ns, stopwatch_ns

cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    cdef struct sockaddr:
        pass
    int socket(int domain, int type, int protocol)
    int connect(int fd, const sockaddr *address, socklen_t length)
    ssize_t recv(int fd, void *buf, size_t length, int flags)
    ssize_t send(int fd, const void *buf, size_t length, int flags)
    int getsockopt(int fd, int level, int name, void *value, socklen_t *length)
    int setsockopt(int fd, int level, int name, const void *value, socklen_t length)
    enum: AF_INET, SOCK_STREAM, SOCK_NONBLOCK, SOCK_CLOEXEC, MSG_DONTWAIT, MSG_NOSIGNAL, SOL_SOCKET, SO_ERROR

cdef extern from "<netinet/in.h>" nogil:
    cdef struct in_addr:
        uint32_t s_addr
    cdef struct sockaddr_in:
        uint16_t sin_family
        uint16_t sin_port
        in_addr sin_addr
    uint16_t htons(uint16_t value)
    enum: IPPROTO_TCP

cdef extern from "<netinet/tcp.h>" nogil:
    enum: TCP_NODELAY

cdef extern from "<arpa/inet.h>" nogil:
    int inet_pton(int family, const char *text, void *address)

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        uint32_t u32
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int op, int fd, epoll_event *event)
    int epoll_wait(int epoll, epoll_event *events, int max_events, int timeout_ms)
    enum: EPOLL_CTL_ADD, EPOLLIN, EPOLLOUT, EPOLLET, EPOLLERR, EPOLLHUP, EPOLL_CLOEXEC

cdef extern from "<poll.h>" nogil:
    cdef struct pollfd:
        int fd
        short events
        short revents
    int ppoll(pollfd *fds, unsigned long count, const timespec *timeout, const void *signals)
    enum: POLLIN

cdef extern from * nogil:
    """
    #define gnats_log2(v) (63 - __builtin_clzll(v))
    """
    int log2_floor "gnats_log2"(uint64_t v)


cdef inline int64_t now_ns() noexcept nogil:
    return stopwatch_ns()


cdef inline int64_t thread_cpu_ns() noexcept nogil:
    return kernel_ns(CLOCK_THREAD_CPUTIME_ID)
