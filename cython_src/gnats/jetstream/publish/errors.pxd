"""The errors of the JetStream API that pollers reply with (jetstream_errors_generated.go).

gnats/jetstream/errors.py has those that only the control plane replies with.
"""

# "with text": the reply's description is the error's text and what the refusal adds to it.
cpdef enum:
    ERR_ACCOUNT_RESOURCES = 10002
    ERR_INSUFFICIENT_RESOURCES = 10023
    ERR_MESSAGE_EXCEEDS_MAXIMUM = 10054
    ERR_STREAM_NOT_MATCH = 10060
    ERR_WRONG_LAST_MSG_ID = 10070            # with text
    ERR_WRONG_LAST_SEQUENCE = 10071          # with text
    ERR_STORE_FAILED = 10077                 # with text
    ERR_HEADER_EXCEEDS_MAXIMUM = 10097
    ERR_SEALED = 10109
    ERR_ROLLUP_FAILED = 10111                # with text
    ERR_DUPLICATE_CONFLICT = 10158
    ERR_WRONG_LAST_SEQUENCE_CONSTANT = 10164
    ERR_TTL_INVALID = 10165
    ERR_TTL_DISABLED = 10166
    ERR_INCR_DISABLED = 10168
    ERR_INCR_MISSING = 10169
    ERR_INCR_PAYLOAD = 10170
    ERR_INCR_INVALID = 10171
    ERR_COUNTER_BROKEN = 10172
    ERR_ATOMIC_DISABLED = 10174
    ERR_ATOMIC_MISSING_SEQ = 10175
    ERR_ATOMIC_INCOMPLETE = 10176
    ERR_ATOMIC_UNSUPPORTED_HEADER = 10177    # with text
    ERR_ATOMIC_INVALID_ID = 10179
    ERR_REQUIRED_API_LEVEL = 10185
    ERR_SCHEDULES_DISABLED = 10188
    ERR_SCHEDULE_PATTERN_INVALID = 10189
    ERR_SCHEDULE_TARGET_INVALID = 10190
    ERR_SCHEDULE_TTL_INVALID = 10191
    ERR_SCHEDULE_ROLLUP_INVALID = 10192
    ERR_EXPECTED_PER_SUBJECT_INVALID = 10193
    ERR_ATOMIC_TOO_LARGE = 10199             # with text
    ERR_ATOMIC_INVALID_COMMIT = 10200
    ERR_ATOMIC_DUPLICATE = 10201
    ERR_SCHEDULE_SOURCE_INVALID = 10203
    ERR_BATCH_DISABLED = 10205
    ERR_BATCH_INVALID_PATTERN = 10206
    ERR_BATCH_INVALID_ID = 10207
    ERR_BATCH_UNKNOWN_ID = 10208
    ERR_ATOMIC_IN_FLIGHT = 10210
    ERR_BATCH_IN_FLIGHT = 10211
    ERR_SCHEDULER_INVALID = 10212
    ERR_SCHEDULE_TIME_ZONE_INVALID = 10223
    ERR_SOURCE_HEADER = 10227

cdef struct PublishError:
    int err_code
    int code             # like an HTTP status
    const char *text

# The error with that err_code; one of code 500, "unknown error", for a number that is not above.
cdef const PublishError *find_error(int err_code) noexcept nogil
