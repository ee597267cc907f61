"""The codes of log records, which a connection posts for the control plane: events and, while tracing, every line."""

# Log records besides a parser's Violation; gnats.connection.log_lines has their texts.
cpdef enum LogCode:
    LOG_PUBLISH_VIOLATION = 32      # data: subject
    LOG_REPLY_VIOLATION = 33        # data: reply
    LOG_SUBSCRIPTION_VIOLATION = 34  # data: subject NUL queue NUL sid
    LOG_MAX_SUBSCRIPTIONS = 35
    LOG_AUTH_VIOLATION = 36
    LOG_AUTH_TIMEOUT = 37
    LOG_SLOW_PENDING = 38           # b: max_pending
    LOG_SLOW_DEADLINE = 39          # b: write_deadline in ns; data: "<chunks> <bytes>", and " still"
    LOG_FLUSH_ERROR = 40            # b: errno
    LOG_CLIENT_ERROR = 41           # data: what the client sent after -ERR
    LOG_PING_TIMER = 42
    LOG_PING_DELAYED = 43           # b: ns since the last activity
    LOG_STALE = 44
    LOG_AUTO_UNSUBSCRIBE = 45       # b: max; data: sid
    LOG_PRODUCER_STALLED = 46       # b: ns
    LOG_CLOSING_OUT_OF_MEMORY = 47
    LOG_SUBSCRIPTION_REMOVED = 48   # data: subject NUL queue NUL sid
    LOG_OUT_OF_MEMORY = 49          # of one of the server's own clients, which stays open
    LOG_NOT_WATCHED = 50            # b: errno
    LOG_SLOW_RECOVERED = 51         # b: ns since the write deadline was set; data: "<chunks> <bytes>" that it was for
    LOG_IMPORT_SUBSCRIPTION = 56    # data: subject NUL account
    LOG_TRACE_ORIGIN = 57           # data: the account that a header names
    LOG_TRACE_BAD_DESTINATION = 58  # data: subject
    LOG_LEFT_OUT = 59               # records were left out: see ConnectionBase.take_unlogged
    # of links to other servers
    LOG_UNKNOWN_ACCOUNT = 64        # data: account NUL subject, of interest
    LOG_UNKNOWN_ACCOUNT_MSG = 65    # data: account NUL subject, of a message
    LOG_UNKNOWN_ACCOUNT_UNSUB = 66  # data: account NUL subject, of interest that ends
    LOG_CANNOT_EXPORT = 67          # data: subject
    LOG_INVALID_REMOTE_SUB = 68
    LOG_SENT_INTEREST = 69
    LOG_WRONG_DIRECTION = 70        # b: 1 for the side that was dialled; data: the verb
    LOG_INTEREST_MODE = 71          # b: 1 once all interest is announced; data: gateway NUL account
    LOG_INTEREST_REPAIRED = 72      # b: subscriptions that were missing; data: the number of stale ones
    LOG_INTEREST_DIFFERS = 73       # although the peer has told all again
    LOG_KEPT_FULL = 74              # b: bytes
    LOG_TLS_STARTING = 80           # b: 1 for the side that dials
    LOG_TLS_COMPLETE = 81
    LOG_TLS_VERSION = 82            # b: 0x0303 or 0x0304; data: cipher suite
    LOG_TLS_TIMEOUT = 83
    LOG_TLS_ERROR = 84              # b: Tls.error_code; data: verify_error, text NUL host NUL chain: gnats.tls.errors
    LOG_TLS_PROBE = 85              # as LOG_TLS_ERROR, of a peer that does not speak TLS at all
    LOG_TLS_NOT_PINNED = 86         # data: digest of the peer's key, or nothing

cpdef enum TraceCode:
    TRACE_IN = 0            # data: verb SP argument
    TRACE_OUT = 1
    TRACE_IN_PAYLOAD = 2
    TRACE_OUT_PAYLOAD = 3
    TRACE_DELSUB = 4        # data: sid
