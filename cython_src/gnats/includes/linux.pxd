"""The system calls of the data plane that libc.* and posix.* of Cython do not declare."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.includes.units cimport SECOND

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        void *ptr
        int fd
        uint64_t u64
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    enum:
        EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLL_CLOEXEC
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event *event)
    int epoll_wait(int epfd, epoll_event *events, int maxevents, int timeout)

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<sys/eventfd.h>" nogil:
    enum:
        EFD_CLOEXEC, EFD_NONBLOCK
    int eventfd(unsigned int initval, int flags)
    # Fails only when the counter is at its maximum, and then the waiting thread is woken, too: ignore the result.
    int eventfd_write(int fd, uint64_t value)
    int eventfd_read(int fd, uint64_t *value)

cdef extern from "<sys/timerfd.h>" nogil:
    cdef struct timespec:
        int64_t tv_sec
        long tv_nsec
    cdef struct itimerspec:
        timespec it_interval
        timespec it_value
    enum:
        TFD_CLOEXEC, TFD_NONBLOCK, TFD_TIMER_ABSTIME
    int timerfd_create(int clockid, int flags)
    int timerfd_settime(int fd, int flags, const itimerspec *new, itimerspec *old)

cdef extern from "<time.h>" nogil:
    enum:
        CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_THREAD_CPUTIME_ID
    int clock_gettime(int clockid, timespec *ts)

cdef extern from "<sys/uio.h>" nogil:
    cdef struct iovec:
        void *iov_base
        size_t iov_len

cdef extern from "<sys/socket.h>" nogil:
    cdef struct msghdr:
        void *msg_name
        uint32_t msg_namelen
        iovec *msg_iov
        size_t msg_iovlen
        void *msg_control
        size_t msg_controllen
        int msg_flags
    enum:
        MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, MSG_TRUNC, SHUT_WR
    ssize_t recv(int fd, void *buf, size_t n, int flags)
    ssize_t recvmsg(int fd, msghdr *msg, int flags)
    ssize_t sendmsg(int fd, const msghdr *msg, int flags)
    int shutdown(int fd, int how)
    enum:
        AF_INET, AF_INET6

cdef extern from "<arpa/inet.h>" nogil:
    int inet_pton(int family, const char *text, void *address)

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef extern from "<errno.h>" nogil:
    int errno
    enum:
        EAGAIN, EINTR, EIO

cdef extern from "<sys/types.h>" nogil:
    ctypedef long ssize_t


cdef inline int64_t kernel_ns(int clock) noexcept nogil:
    cdef timespec ts
    clock_gettime(clock, &ts)
    return ts.tv_sec * SECOND + ts.tv_nsec


cdef inline int64_t stopwatch_ns() noexcept nogil:
    """Return monotonic ns of the kernel, to measure the cost of work only: core.runtime.clock has the server's time."""
    return kernel_ns(CLOCK_MONOTONIC)
