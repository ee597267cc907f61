"""Responses that are expected: reply subjects made for requests to a service of another account (accounts.go).

A request that crosses a service import gets a reply subject of its own, `_R_.xxxxxx.yyyyyy`, in the serving account; an
Expected entry there says where its response goes. The requester's account has an entry the other way, by the
requester's own reply subject, so that the response is forgotten when the requester leaves.

The account's lock guards both tables; hold it to call these functions.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    SINGLETON = 0
    STREAMED = 1
    CHUNKED = 2
    # limits of one export's entries and their bytes; beyond them the oldest are dropped
    MAX_EXPECTED = 262144
    MAX_STRAYS = 65536     # entries whose export is another account's
    MAX_BYTES = 64 * 1024 * 1024


# A response is expected once it is in both tables, which are never locked together. The requester's entry is made
# first. If the requester leaves before the other is made, the thread that makes that one removes both again.
cdef enum:
    BEGUN = 0
    EXPECTED = 1
    LEFT = 2
    DONE = 3       # one of the two threads that hold the requester's entry needs it no more: the other frees it


cdef struct Queue:
    Expected *oldest
    Expected *newest
    uint32_t n
    size_t bytes


# An exported service. Its imports and expected responses count as references.
cdef struct ServiceExport:
    int64_t refs           # atomic
    uint64_t id            # unique in the process
    void *account          # borrowed core.accounts.account.Account
    int64_t threshold      # ns to wait for a response; atomic
    uint8_t response_type
    uint8_t sampling       # percent of requests to measure; 0: none; atomic
    uint8_t allow_trace    # traces go on into the serving account; atomic
    uint8_t by_header      # also measure a request whose header asks for it; atomic
    uint8_t armed          # the control plane is watching for expired responses; under the account's lock
    uint8_t closed         # expect no more responses; atomic, changed under the account's lock
    Queue queue            # its expected responses, oldest first; under the account's lock


cdef struct Expected:
    Expected *next         # in its bucket
    uint32_t hash
    Expected *older        # in its queue; in the requester's table: among entries with the same reply subject
    Expected *newer
    Queue *queue
    Expected *back         # the requester's entry; there: the next of those to be given up
    ServiceExport *se      # a reference; NULL in the requester's table
    void *account          # Account that gets the response; in the requester's table: the serving one
    int64_t ts             # monotonic ns of the request, or of the last response
    uint64_t requester     # connection id of the requester
    uint8_t rt             # the export's response type when it was made
    uint8_t share          # the import shares the requester's details
    uint8_t tracked        # measure the time until the response
    uint8_t stage          # in the requester's table: BEGUN, EXPECTED, LEFT or DONE; atomic
    uint8_t linked         # it is in the requester's table
    uint32_t key_n
    uint32_t other_n
    uint32_t header_n
    # key (the subject it is found by), other (the subject it stands for), header that asked for a measurement; adjacent
    char data[1]


# Data of an EV_LATENCY: a measured request; its header follows, and then its reply subject, if another server measures
# it, too.
cdef struct Measured:
    uint64_t requester      # connection ids
    uint64_t responder
    int64_t elapsed         # ns since the request
    int64_t when            # ns since 1970
    uint64_t share          # the import shares the requester's details
    uint64_t reply_n        # bytes of the reply subject


cdef struct ReplyMap:
    Expected **slots
    uint32_t mask          # number of buckets - 1
    uint32_t n


cdef inline const char *expected_key(const Expected *e) noexcept nogil:
    return e.data


cdef inline const char *expected_other(const Expected *e) noexcept nogil:
    return e.data + e.key_n


cdef inline const char *expected_header(const Expected *e) noexcept nogil:
    return e.data + e.key_n + e.other_n


# Make an entry; NULL when out of memory.
cdef Expected *expected_new(
    const char *key, size_t kn, const char *other, size_t on, const char *header, size_t hn) noexcept nogil
cdef Expected *replymap_find(ReplyMap *t, const char *key, size_t n) noexcept nogil
cdef bint replymap_add(ReplyMap *t, Expected *e) noexcept nogil        # False when out of memory
cdef void replymap_remove(ReplyMap *t, Expected *e) noexcept nogil
cdef void replymap_free(ReplyMap *t) noexcept nogil

# The requester's table has one entry in a bucket for each reply subject; others with the same subject hang on it. So
# each can be removed at once, however many there are.
cdef bint waiting_add(ReplyMap *t, Expected *e) noexcept nogil         # False when out of memory
cdef void waiting_remove(ReplyMap *t, Expected *e) noexcept nogil
cdef void waiting_free(ReplyMap *t) noexcept nogil

cdef void queue_push(Queue *q, Expected *e) noexcept nogil             # as the newest
cdef void queue_drop(Expected *e) noexcept nogil                       # remove it from its queue, if it is in one

# Take or drop a reference to an export; the last one retires it.
cdef ServiceExport *export_hold(ServiceExport *se) noexcept nogil
cdef void export_release(ServiceExport *se) noexcept nogil
# Free an entry that is in no table, and its reference; NULL: nothing.
cdef void expected_release(Expected *e) noexcept nogil
