"""Message counters (ADR-49): increments added to the last value of a subject, numbers of any size."""
from libc.stddef cimport size_t

from gnats.jetstream.inbound cimport Inbound
from gnats.jetstream.inflight cimport InFlight
from gnats.jetstream.refusal cimport Refusal
from gnats.jetstream.streamcore cimport StreamCore


# A number in decimal: its digits without leading zeros, none for 0.
cdef struct Decimal:
    const char *p
    size_t n
    bint negative


# An optional sign and digits, as big.Int reads it. False for anything else.
cdef bint read_decimal(const char *p, size_t n, Decimal *out) noexcept nogil
# The sum in decimal at out, which has room for max(a.n, b.n) + 2 characters; how many there are.
cdef size_t add_decimals(const Decimal *a, const Decimal *b, char *out) noexcept nogil

cdef enum CounterError:
    COUNTER_OK = 0
    COUNTER_BROKEN = 1       # the last message of the subject is no counter
    COUNTER_NO_MEMORY = 2

# Make the payload of `m` the new value of its subject: {"val":"..."}, in memory of m's own; the lock is held. The
# number is in m.value. What is in flight has been added to before.
cdef CounterError add_increment(StreamCore s, Inbound *m, const InFlight *f) noexcept nogil
# May what its publisher says be added?
cdef bint check_increment(StreamCore s, const Inbound *m, Refusal *r) noexcept nogil
