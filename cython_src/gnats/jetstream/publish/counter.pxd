"""Message counters (ADR-49): increments added to the last value of a subject, numbers of any size."""
from libc.stddef cimport size_t

from gnats.jetstream.publish.inbound cimport Inbound
from gnats.jetstream.publish.inflight cimport InFlight
from gnats.jetstream.publish.refusal cimport Refusal
from gnats.jetstream.state.streamcore cimport StreamCore


# A number in decimal: its digits without leading zeros, none for 0.
cdef struct Decimal:
    const char *p
    size_t n
    bint negative


# Parse an optional sign and digits, as big.Int does; `out` borrows them. False for anything else.
cdef bint read_decimal(const char *p, size_t n, Decimal *out) noexcept nogil
# Write the sum in decimal to out, which has room for max(a.n, b.n) + 2 characters. Return their number.
cdef size_t add_decimals(const Decimal *a, const Decimal *b, char *out) noexcept nogil

cdef enum CounterError:
    COUNTER_OK = 0
    COUNTER_BROKEN = 1       # the last message of the subject is not a counter
    COUNTER_NO_MEMORY = 2    # or the last message cannot be read now

# Make the payload of `m` the new value of its subject: {"val":"..."}, in memory that m owns; m.value is the number.
# Add to the subject's last message in flight, if there is one, else to the last stored. The lock is held.
cdef CounterError add_increment(StreamCore s, Inbound *m, const InFlight *f) noexcept nogil
# Check the increment of a publisher's message.
cdef bint check_increment(StreamCore s, const Inbound *m, Refusal *r) noexcept nogil
