"""What a consumer's configuration says, for the data plane."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum AckPolicy:
    POLICY_NONE = 0
    POLICY_ALL = 1
    POLICY_EXPLICIT = 2
    POLICY_FLOW_CONTROL = 3    # acknowledged by the answers to flow control

cdef enum DeliverPolicy:
    DELIVER_ALL, DELIVER_LAST, DELIVER_LAST_PER_SUBJECT, DELIVER_NEW, DELIVER_BY_START_SEQUENCE, DELIVER_BY_START_TIME

cdef enum PriorityPolicy:
    PRIORITY_NONE = 0
    PRIORITY_OVERFLOW = 1
    PRIORITY_PINNED = 2
    PRIORITY_PRIORITIZED = 3

# The configuration, for the data plane. Durations are ns; a setting that does not apply is 0.
cdef struct ConsumerSettings:
    uint8_t ack_policy, priority_policy
    uint8_t push               # it has a deliver subject
    uint8_t replay_original, flow_control, headers_only, direct, last_per_subject, memory
    uint8_t retention          # the stream's (Retention)
    int64_t ack_wait
    int64_t *backoff           # nbackoff durations, owned
    uint32_t nbackoff
    uint32_t sample            # percent of acks that are reported
    uint64_t max_deliver
    uint64_t max_ack_pending
    uint32_t max_waiting
    int64_t max_batch, max_expires, max_bytes
    int64_t heartbeat
    int64_t inactive           # inactive threshold, jitter included
    int64_t pinned_ttl
    int64_t pause_until        # ns since 1970
    double rate                # bytes a second
    double burst               # bytes


cdef inline bint has_ack_wait(const ConsumerSettings *cfg) noexcept nogil:
    """Return whether messages are delivered again when no acknowledgement comes."""
    return cfg.ack_wait != 0 or cfg.nbackoff != 0


cdef inline int64_t wait_of(const ConsumerSettings *cfg, int64_t rdc) noexcept nogil:
    """Return the ack wait, ns, of a message with `rdc` redeliveries."""
    if cfg.nbackoff == 0:
        return cfg.ack_wait
    if rdc < 0:
        rdc = 0
    return cfg.backoff[min(rdc, <int64_t> cfg.nbackoff - 1)]
