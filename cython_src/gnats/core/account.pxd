"""The data plane's half of an account (accounts.go): what a message published in it needs to be routed.

Connections borrow it; the control plane keeps it alive for as long as one of them is bound to it, and an account keeps
those it has exchanged imports with. Fields that change while messages flow are atomic pointers to what is immutable,
and the old one is retired (core.quiesce).
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.mappings cimport Mappings
from gnats.core.message cimport MessageHandler
from gnats.core.responses cimport Expected, Queue, ReplyMap, ServiceExport
from gnats.core.slice cimport Slice
from gnats.core.sublist cimport Sublist, Subscription
from gnats.core.transform cimport Transform
from gnats.includes.atomics cimport load64, load64_acquire, load_ptr_acquire
from gnats.includes.pthread cimport pthread_mutex_t

cdef enum:
    REPLY_ROOM = 32    # bytes of the longest reply subject that is made here


# An imported stream: subscriptions to what is seen as `to` get shadows in the account that exports it.
cdef struct StreamImport:
    int64_t refs           # its shadows, and the table it is in; under the importing account's lock
    void *owner            # borrowed Account: who imports
    void *exporter         # borrowed Account
    Transform *tr          # from the subject that was published; NULL for none
    Transform *back
    uint8_t use_published  # the subject stays what it was
    uint8_t allow_trace    # traces of what is published tell of those who import it
    uint32_t source_n
    uint32_t to_n
    uint32_t dest_n
    char data[1]           # what is imported, what it is seen as, and the destination that `tr` was made of


cdef inline const char *import_source(const StreamImport *im) noexcept nogil:
    return im.data


cdef inline const char *import_to(const StreamImport *im) noexcept nogil:
    return im.data + im.source_n


cdef struct StreamImports:
    uint32_t n
    StreamImport *imports[1]


# An imported service: what its subscription in the importing account does with a request.
cdef struct ServiceImport:
    void *account          # borrowed Account: who imports
    void *exporter         # borrowed Account
    ServiceExport *se      # a reference
    Transform *tr          # from the subject that was published; NULL for none
    uint8_t use_published
    uint8_t share          # details of the requester; atomic
    uint8_t to_system      # the exporter is the system account
    uint8_t invalid        # it may not be used any more; atomic
    uint32_t to_n
    char to[1]


# Stands before a shadow in its block.
cdef struct ImportSub:
    StreamImport *what
    void *unused           # keeps the subscription aligned as malloc does


cdef inline ImportSub *import_sub(const Subscription *s) noexcept nogil:
    return <ImportSub *> (<char *> s - sizeof(ImportSub))


# Where traces of messages go that only carry a sampled traceparent, and of how many percent.
cdef struct TraceDest:
    uint32_t sampling
    uint32_t n
    char data[1]


cdef class Account:
    cdef readonly Sublist sublist      # the subscriptions made in it; set once
    cdef Mappings *mappings            # NULL for none; atomic
    cdef StreamImports *streams        # NULL for none; atomic to look at, the rest under lock
    cdef TraceDest *trace_dest         # NULL for none; atomic
    cdef list peers                    # accounts that this one's imports, or imports of this one's, lead to
    cdef uint8_t _is_system            # clients may publish to Raft groups; atomic
    # what requests to other accounts say, in memory of `identity`
    cdef bytes identity
    cdef Slice info_name               # the account's name as JSON
    cdef Slice info_server             # the server's
    cdef Slice tracked                 # the end of the subject that a measured response is sent to
    # under lock
    cdef pthread_mutex_t lock
    cdef ReplyMap responses            # expected, by the subject they are sent to
    cdef ReplyMap reverse              # what requesters here wait for, by their reply subjects
    cdef Queue strays                  # responses that an export of another account is the reason for, by time
    cdef Subscription *responder       # to `_R_.xxxxxx.>`, once there was a request; atomic to look at
    cdef char[16] prefix               # _R_.xxxxxx.; set before it
    cdef uint64_t nresponses, nreverse  # entries of the two; atomic, for a look without the lock

    # A new reply subject here for a request of `requester`'s account that waits on `to`: written to out[:REPLY_ROOM].
    # Its length, 0 when out of memory or when the export is closed. `arm`: the control plane is to be told that
    # responses are expected. `take` is called with this account as its context for each response.
    cdef size_t expect_response(
        self, MessageHandler take, Account requester, ServiceExport *se, const char *to, size_t n, bint share,
        uint64_t cid, bint tracked, const char *header, size_t hn, uint64_t random, int64_t now, char *out,
        bint *arm) noexcept nogil
    # What a response that was sent to `subject` is for, the caller's to free; NULL when none is expected. A singleton
    # is not expected any more after that, of others it is a copy.
    cdef Expected *find_response(self, const char *subject, size_t n) noexcept nogil
    # No more responses to `subject`: what was expected, the caller's to release and to free; NULL when it has gone.
    cdef Expected *take_response(self, const char *subject, size_t n) noexcept nogil
    # More responses to `subject` may come, `now` is counted from.
    cdef void renew_response(self, const char *subject, size_t n, int64_t now) noexcept nogil
    # What waits on a reply subject, a wildcard too, that nobody listens to any more: a chain through `newer` of entries
    # that were in the tables of those who serve, to be freed.
    cdef Expected *check_for_reverse_entries(self, const char *reply, size_t n) noexcept nogil
    # Take out the entry the other way, `back`, of a response that is not expected any more; the caller has taken that
    # out of its table.
    cdef void forget(self, Expected *back) noexcept nogil
    cdef void unlink_waiting(self, Expected *back) noexcept nogil
    cdef Expected *abandon(self, const char *subject, size_t n) noexcept nogil
    # Of another account; it is the table's now. False when out of memory.
    cdef bint await_response(self, Expected *back) noexcept nogil
    cdef bint has_responder(self, MessageHandler take, uint64_t random) noexcept nogil
    cdef bint make_responder(self, MessageHandler take, uint64_t random) noexcept nogil


cdef inline Mappings *account_mappings(Account a) noexcept nogil:
    """Good until the end of the batch."""
    return <Mappings *> load_ptr_acquire(<void **> &a.mappings)


cdef inline bint account_imports_streams(Account a) noexcept nogil:
    return load_ptr_acquire(<void **> &a.streams) != NULL


# Does the account still import it? The caller holds a reference, not the lock.
cdef bint stream_import_stays(Account importer, const StreamImport *im) noexcept nogil


cdef inline const TraceDest *account_trace_dest(Account a) noexcept nogil:
    """Good until the end of the batch."""
    return <const TraceDest *> load_ptr_acquire(<void **> &a.trace_dest)


# A reference less; the importing account's lock is not held.
cdef void stream_import_release(StreamImport *im) noexcept nogil
