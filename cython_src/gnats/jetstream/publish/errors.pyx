"""The errors that pollers reply with; see errors.pxd."""

cdef PublishError[45] _errors = [
    PublishError(ERR_ACCOUNT_RESOURCES, 400, b"resource limits exceeded for account"),
    PublishError(ERR_INSUFFICIENT_RESOURCES, 503, b"insufficient resources"),
    PublishError(ERR_MESSAGE_EXCEEDS_MAXIMUM, 400, b"message size exceeds maximum allowed"),
    PublishError(ERR_STREAM_NOT_MATCH, 400, b"expected stream does not match"),
    PublishError(ERR_WRONG_LAST_MSG_ID, 400, b"wrong last msg ID: "),
    PublishError(ERR_WRONG_LAST_SEQUENCE, 400, b"wrong last sequence: "),
    PublishError(ERR_STORE_FAILED, 503, b""),
    PublishError(ERR_HEADER_EXCEEDS_MAXIMUM, 400, b"header size exceeds maximum allowed of 64k"),
    PublishError(ERR_SEALED, 400, b"invalid operation on sealed stream"),
    PublishError(ERR_ROLLUP_FAILED, 500, b""),
    PublishError(ERR_DUPLICATE_CONFLICT, 409, b"duplicate message id is in process"),
    PublishError(ERR_WRONG_LAST_SEQUENCE_CONSTANT, 400, b"wrong last sequence"),
    PublishError(ERR_TTL_INVALID, 400, b"invalid per-message TTL"),
    PublishError(ERR_TTL_DISABLED, 400, b"per-message TTL is disabled"),
    PublishError(ERR_INCR_DISABLED, 400, b"message counters is disabled"),
    PublishError(ERR_INCR_MISSING, 400, b"message counter increment is missing"),
    PublishError(ERR_INCR_PAYLOAD, 400, b"message counter has payload"),
    PublishError(ERR_INCR_INVALID, 400, b"message counter increment is invalid"),
    PublishError(ERR_COUNTER_BROKEN, 400, b"message counter is broken"),
    PublishError(ERR_ATOMIC_DISABLED, 400, b"atomic publish is disabled"),
    PublishError(ERR_ATOMIC_MISSING_SEQ, 400, b"atomic publish sequence is missing"),
    PublishError(ERR_ATOMIC_INCOMPLETE, 400, b"atomic publish batch is incomplete"),
    PublishError(ERR_ATOMIC_UNSUPPORTED_HEADER, 400, b"atomic publish unsupported header used: "),
    PublishError(ERR_ATOMIC_INVALID_ID, 400, b"atomic publish batch ID is invalid"),
    PublishError(ERR_REQUIRED_API_LEVEL, 412, b"JetStream minimum api level required"),
    PublishError(ERR_SCHEDULES_DISABLED, 400, b"message schedules is disabled"),
    PublishError(ERR_SCHEDULE_PATTERN_INVALID, 400, b"message schedules pattern is invalid"),
    PublishError(ERR_SCHEDULE_TARGET_INVALID, 400, b"message schedules target is invalid"),
    PublishError(ERR_SCHEDULE_TTL_INVALID, 400, b"message schedules invalid per-message TTL"),
    PublishError(ERR_SCHEDULE_ROLLUP_INVALID, 400, b"message schedules invalid rollup"),
    PublishError(ERR_EXPECTED_PER_SUBJECT_INVALID, 400, b"missing sequence for expected last sequence per subject"),
    PublishError(ERR_ATOMIC_TOO_LARGE, 400, b"atomic publish batch is too large: "),
    PublishError(ERR_ATOMIC_INVALID_COMMIT, 400, b"atomic publish batch commit is invalid"),
    PublishError(ERR_ATOMIC_DUPLICATE, 400, b"atomic publish batch contains duplicate message id"),
    PublishError(ERR_SCHEDULE_SOURCE_INVALID, 400, b"message schedules source is invalid"),
    PublishError(ERR_BATCH_DISABLED, 400, b"batch publish is disabled"),
    PublishError(ERR_BATCH_INVALID_PATTERN, 400, b"batch publish pattern is invalid"),
    PublishError(ERR_BATCH_INVALID_ID, 400, b"batch publish ID is invalid"),
    PublishError(ERR_BATCH_UNKNOWN_ID, 400, b"batch publish ID unknown"),
    PublishError(ERR_ATOMIC_IN_FLIGHT, 429, b"atomic publish too many inflight"),
    PublishError(ERR_BATCH_IN_FLIGHT, 429, b"batch publish too many inflight"),
    PublishError(ERR_SCHEDULER_INVALID, 400, b"message schedules invalid scheduler"),
    PublishError(ERR_SCHEDULE_TIME_ZONE_INVALID, 400, b"message schedules time zone is invalid"),
    PublishError(ERR_SOURCE_HEADER, 400, b"message stream source header is not allowed"),
    PublishError(0, 500, b"unknown error"),
]


cdef const PublishError *find_error(int err_code) noexcept nogil:
    cdef const PublishError *e = _errors
    while e.err_code != err_code and e.err_code:
        e += 1
    return e


def publish_error(int err_code):
    """Return (code, text) of the error with that `err_code`."""
    cdef const PublishError *e = find_error(err_code)
    return e.code, e.text.decode()
