"""Responses that are expected: the subjects made for the replies of requests that went to another account
(accounts.go).

A request that crosses a service import gets a reply subject of its own, `_R_.xxxxxx.yyyyyy`, in the account that serves
it; an Expected entry there says where a response goes. The account of the requester has an entry the other way, by the
requester's own reply subject, so that nothing is kept for a requester that has gone.

The functions here are called with the account's lock held, which guards both tables.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    SINGLETON = 0
    STREAMED = 1
    CHUNKED = 2
    # entries of one export, and their bytes, beyond which the oldest are dropped
    MAX_EXPECTED = 262144
    MAX_STRAYS = 65536     # of those that no export waits for
    MAX_BYTES = 64 * 1024 * 1024


# A response is expected when it is in both tables, which are never locked together. The requester's comes first; should
# the requester leave before the other, whoever makes that one takes both out again.
cdef enum:
    BEGUN = 0
    EXPECTED = 1
    LEFT = 2
    DONE = 3       # one of two who hold the requester's entry needs it no more: the other frees it


cdef struct Queue:
    Expected *oldest
    Expected *newest
    uint32_t n
    size_t bytes


# An exported service, as the data plane knows it. Its imports and expected responses count as references.
cdef struct ServiceExport:
    int64_t refs           # atomic
    uint64_t id            # its own in the process
    void *account          # borrowed core.account.Account
    int64_t threshold      # ns that a response may take; atomic
    uint8_t response_type
    uint8_t sampling       # percent of requests that are measured; 0: none; atomic
    uint8_t allow_trace    # traces of requests tell of those who serve them; atomic
    uint8_t by_header      # the request's headers may ask for a measurement; atomic
    uint8_t armed          # the control plane was told to look for expired responses; under the account's lock
    uint8_t closed         # no more responses are to be expected; under the account's lock
    Queue queue            # expected responses, by time; under the account's lock


cdef struct Expected:
    Expected *next         # in its bucket
    uint32_t hash
    Expected *older        # in its queue; in the requester's table: among those with the same reply subject
    Expected *newer
    Queue *queue
    Expected *back         # the one in the requester's table; there: the next of those that are lost
    ServiceExport *se      # a reference; NULL in the requester's table
    void *account          # where the response goes; in the requester's table: who serves
    int64_t ts             # monotonic ns
    uint64_t requester     # connection id
    uint8_t rt             # the export's response type when it was made
    uint8_t share
    uint8_t tracked        # the time it takes is measured
    uint8_t stage          # in the requester's table: BEGUN, EXPECTED, LEFT or DONE; atomic
    uint8_t linked         # it is in the requester's table
    uint32_t key_n
    uint32_t other_n
    uint32_t header_n
    # the subject it is found by; the subject it stands for; the header that asked for a measurement
    char data[1]


# What the control plane is told about a request that was measured; its header follows.
cdef struct Measured:
    uint64_t requester      # connection ids
    uint64_t responder
    int64_t elapsed         # ns since the request
    int64_t when            # ns since 1970
    uint64_t share


cdef struct ReplyMap:
    Expected **slots
    uint32_t mask          # slots less one
    uint32_t n


cdef inline const char *expected_key(const Expected *e) noexcept nogil:
    return e.data


cdef inline const char *expected_other(const Expected *e) noexcept nogil:
    return e.data + e.key_n


cdef inline const char *expected_header(const Expected *e) noexcept nogil:
    return e.data + e.key_n + e.other_n


# NULL when out of memory.
cdef Expected *expected_new(
    const char *key, size_t kn, const char *other, size_t on, const char *header, size_t hn) noexcept nogil
cdef Expected *replymap_find(ReplyMap *t, const char *key, size_t n) noexcept nogil
cdef bint replymap_add(ReplyMap *t, Expected *e) noexcept nogil        # False when out of memory
cdef void replymap_remove(ReplyMap *t, Expected *e) noexcept nogil
cdef void replymap_free(ReplyMap *t) noexcept nogil

# The requester's table has one entry of each reply subject; the others with it hang on that one, so that each is taken
# out at once however many there are.
cdef bint waiting_add(ReplyMap *t, Expected *e) noexcept nogil         # False when out of memory
cdef void waiting_remove(ReplyMap *t, Expected *e) noexcept nogil
cdef void waiting_free(ReplyMap *t) noexcept nogil

cdef void queue_push(Queue *q, Expected *e) noexcept nogil
cdef void queue_drop(Expected *e) noexcept nogil                       # out of its queue

# Another reference to an export, and one less: the last one retires it.
cdef ServiceExport *export_hold(ServiceExport *se) noexcept nogil
cdef void export_release(ServiceExport *se) noexcept nogil
# Free an entry that is in no table, if there is one, with its reference.
cdef void expected_release(Expected *e) noexcept nogil
