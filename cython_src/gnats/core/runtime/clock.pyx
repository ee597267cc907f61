"""The server's time; see clock.pxd. gnats.clock is Python's interface to it."""
from libc.stdint cimport int64_t
from libc.string cimport memset

from gnats.includes.atomics cimport storei64
from gnats.includes.linux cimport (
    CLOCK_REALTIME,
    EFD_CLOEXEC,
    EFD_NONBLOCK,
    TFD_TIMER_ABSTIME,
    close,
    errno,
    eventfd,
    eventfd_write,
    itimerspec,
    kernel_ns,
    stopwatch_ns,
    timerfd_settime,
)
from gnats.includes.units cimport SECOND

cdef int64_t PASSED = 1    # monotonic ns in the past: fire at once

process_clock.settled = -1


cdef int timerfd_arm(int fd, int64_t when, int64_t *armed) noexcept nogil:
    cdef itimerspec spec
    memset(&spec, 0, sizeof(spec))
    if clock_is_held():
        when = PASSED if held_due(when) else 0
    storei64(armed, when)
    spec.it_value.tv_sec = when // SECOND
    spec.it_value.tv_nsec = <long> (when % SECOND)
    if timerfd_settime(fd, TFD_TIMER_ABSTIME, &spec, NULL) < 0:
        storei64(armed, 0)
        return -1
    return 0


cdef void clock_join() noexcept:
    process_clock.pollers += 1


cdef void clock_leave() noexcept:
    process_clock.pollers -= 1


cdef void clock_settled() noexcept nogil:
    eventfd_write(process_clock.settled, 1)


def read_monotonic() -> int:
    """Return ns of the monotonic clock."""
    return monotonic_ns()


def read_realtime() -> int:
    """Return ns since 1970."""
    return realtime_ns()


def is_held() -> bool:
    """Whether a test holds the clock."""
    return clock_is_held()


def hold(int64_t realtime=0, int64_t monotonic=0) -> int:
    """Stop the clock where it is, or at `realtime` ns since 1970 and at `monotonic` ns since the machine's start.

    Return an eventfd that a poller writes when nothing due is left.

    Raises RuntimeError when it is held or a poller is open, OSError.
    """
    cdef int fd
    cdef int64_t now
    if clock_is_held() or process_clock.pollers:
        raise RuntimeError(f"the clock is held ({clock_is_held()}) or read by {process_clock.pollers} pollers")
    fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
    if fd < 0:
        raise OSError(errno, "cannot create an eventfd")
    process_clock.settled = fd
    now = monotonic or stopwatch_ns()
    storei64(&process_clock.offset, (realtime or kernel_ns(CLOCK_REALTIME)) - now)
    storei64(&process_clock.held, now)
    return fd


def move(int64_t ns) -> int:
    """Move a held clock on, and return its monotonic time. The caller must wake pollers and engines.

    Raises RuntimeError when it is not held, ValueError for a step back.
    """
    if not clock_is_held():
        raise RuntimeError("the clock is not held")
    if ns < 0:
        raise ValueError("time does not go back")
    return addi64(&process_clock.held, ns) + ns


def step_realtime(int64_t ns) -> None:
    """Move a held realtime clock on or back; the monotonic one stays. Raises RuntimeError when it is not held."""
    if not clock_is_held():
        raise RuntimeError("the clock is not held")
    addi64(&process_clock.offset, ns)


def release() -> None:
    """Let the clock run. Raises RuntimeError when it is not held, or while a poller is open: its time would go back."""
    if not clock_is_held() or process_clock.pollers:
        raise RuntimeError(f"the clock is not held, or read by {process_clock.pollers} pollers")
    storei64(&process_clock.held, 0)
    close(process_clock.settled)
    process_clock.settled = -1
