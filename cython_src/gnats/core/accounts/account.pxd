"""The data plane's half of an account (accounts.go): all that routing a message in it needs.

Connections borrow it. The control plane keeps it alive while a connection is bound to it, and an account keeps alive
those that it has exchanged imports with. Fields that change while messages flow are atomic pointers to immutable
memory; the memory that they pointed to before is retired (core.runtime.quiesce).
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.accounts.link_traffic cimport LinkCounts, LinkTraffic, link_place
from gnats.core.accounts.mappings cimport Mappings
from gnats.core.messages.message cimport MessageHandler
from gnats.core.messages.responses cimport Expected, Queue, ReplyMap, ServiceExport
from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.notifications cimport Notification, Notifications
from gnats.core.subjects.subject cimport hash_bytes
from gnats.core.subjects.sublist cimport InterestSink, Sublist, Subscription
from gnats.core.subjects.transform cimport Transform
from gnats.includes.atomics cimport bump64, load64, load64_acquire, load_ptr_acquire, unlikely
from gnats.includes.pthread cimport pthread_mutex_t

cdef enum:
    REPLY_ROOM = 32    # bytes of the longest reply subject that is made here


# An imported stream. A subscription that overlaps `to` gets a shadow in the exporting account.
cdef struct StreamImport:
    int64_t refs           # references: shadows, and the table it is in; under the importing account's lock
    void *owner            # borrowed Account that imports
    void *exporter         # borrowed Account
    Transform *tr          # from the published subject to the imported one; NULL: none
    Transform *back        # the other way; NULL: none
    uint8_t use_published  # subscribers see the published subject
    uint8_t allow_trace    # traces go on into the importing account
    uint32_t source_n
    uint32_t to_n
    uint32_t dest_n
    char data[1]           # source subject, `to`, and the destination of `tr`; adjacent


cdef inline const char *import_source(const StreamImport *im) noexcept nogil:
    return im.data


cdef inline const char *import_to(const StreamImport *im) noexcept nogil:
    return im.data + im.source_n


cdef struct StreamImports:
    uint32_t n
    StreamImport *imports[1]


# An imported service: how its subscription in the importing account handles a request.
cdef struct ServiceImport:
    void *account          # borrowed Account that imports
    void *exporter         # borrowed Account
    ServiceExport *se      # a reference
    Transform *tr          # from the published subject to the service's; NULL: none
    uint8_t use_published  # requests keep their subject
    uint8_t share          # share the requester's details; atomic
    uint8_t to_system      # the exporter is the system account
    uint8_t invalid        # the import must not be used any more; atomic
    uint32_t to_n
    char to[1]             # subject of the service


# Stands before a shadow in its memory block.
cdef struct ImportSub:
    StreamImport *what
    void *unused           # keeps the subscription aligned as malloc does


cdef inline ImportSub *import_sub(const Subscription *s) noexcept nogil:
    return <ImportSub *> (<char *> s - sizeof(ImportSub))


# Destination for traces of messages that carry a sampled traceparent; `sampling` is the percentage to trace.
cdef struct TraceDest:
    uint32_t sampling
    uint32_t n
    char data[1]


cdef class Account:
    cdef readonly Sublist sublist      # the subscriptions made in it; set once. insert() and the others change it
    cdef Notifications notifications   # of interest in its subjects; under the sublist's lock
    cdef Mappings *mappings            # NULL: none; atomic
    cdef StreamImports *streams        # NULL: none; changed under lock, atomic for a look without it
    cdef TraceDest *trace_dest         # NULL: none; atomic
    cdef readonly object internals     # the server's own subscribers in it: a WeakSet; None before the first
    cdef list peers                    # accounts that this one imports from or exports to
    cdef uint32_t newest               # the moment that a subscription of this server's own came last; atomic
    cdef uint8_t _is_system            # the system account, whose clients may publish to Raft groups; atomic
    # Messages over links, by poller; NULL: there were none. Atomic: set once, under lock.
    cdef LinkTraffic *link_traffic
    cdef size_t ncounting              # pollers that have a place there; set before it
    # parts of the header of requests to other accounts; memory of `identity`
    cdef bytes identity
    cdef Slice name                    # as other servers' messages name the account
    cdef Slice info_name               # the same, a JSON string
    cdef Slice tracked                 # suffix of the reply subject of a measured request
    # under lock
    cdef pthread_mutex_t lock
    cdef ReplyMap responses            # expected from this account's services, by the subject they go to
    cdef ReplyMap reverse              # responses that requesters of this account wait for, by their reply subjects
    cdef Queue strays                  # responses that this account owes for an export of another account, oldest first
    cdef Subscription *responder       # subscription to `_R_.xxxxxx.>`, NULL until the first request; atomic to look at
    cdef char[16] prefix               # `_R_.xxxxxx.>`; set before `responder`
    cdef uint64_t nresponses, nreverse  # entries of the two; atomic, for a look without the lock

    cdef tuple sum_traffic(self, int kind)
    # Make `link_traffic`, unless another poller has. NULL: no memory.
    cdef LinkTraffic *make_link_traffic(self, const PollState *ps) noexcept nogil
    # Note one of the server's own subscribers, an InternalSubscriber.
    cdef int add_internal(self, subscriber) except -1
    # Insert and remove subscriptions, as Sublist does; the sublist's sinks hear of it.
    cdef int insert(self, Subscription *s) noexcept nogil
    cdef int remove(self, Subscription *s) noexcept nogil
    cdef void remove_batch(self, Subscription **subs, size_t n) noexcept nogil
    # Set the weight of a remote queue subscription, as Sublist does.
    cdef void update_remote_qsub(self, Subscription *s, uint32_t qw) noexcept nogil
    # Add and remove a sink of interest, as Sublist does: it first hears of all present interest.
    cdef void add_sink(self, InterestSink *sink) noexcept nogil
    cdef void remove_sink(self, InterestSink *sink) noexcept nogil
    # Have `fn` called when interest in a subject begins and ends; see core.subjects.notifications.
    cdef Notification *register_notification(
        self, const char *subject, size_t n, const char *queue, size_t qn,
        void (*fn)(void *ctx, bint interest) noexcept nogil, void *ctx) noexcept nogil
    cdef void clear_notification(self, Notification *note) noexcept nogil

    # Make a reply subject in this account for a request from `requester`, whose own reply subject is `to`. Write it to
    # out[:REPLY_ROOM] and return its length; 0 when out of memory or when the export is closed. arm[0]: the caller must
    # post EV_RESPONSES, for the control plane to watch the expiry of this export's responses. `take` handles each
    # response, with this account as its context.
    cdef size_t expect_response(
        self, MessageHandler take, Account requester, ServiceExport *se, const char *to, size_t n, bint share,
        uint64_t cid, bint tracked, const char *header, size_t hn, uint64_t random, int64_t now, char *out,
        bint *arm) noexcept nogil
    # Find the request that a response sent to `subject` answers; the caller releases the result, NULL when there is
    # none. A singleton is removed; of others this is a copy.
    cdef Expected *find_response(self, const char *subject, size_t n) noexcept nogil
    # Remove the entry for responses to `subject`; the caller releases it. NULL when it has gone.
    cdef Expected *take_response(self, const char *subject, size_t n) noexcept nogil
    # Count the expiry of the responses to `subject` from `now`: one has come, and more may.
    cdef void renew_response(self, const char *subject, size_t n, int64_t now) noexcept nogil
    # Remove the entries that wait on reply subjects matching `reply` without a subscriber left. Return the entries of
    # the serving accounts, chained through `newer`, for the caller to release.
    cdef Expected *check_for_reverse_entries(self, const char *reply, size_t n) noexcept nogil
    # Remove `back`, the requester's entry for a response that the serving account has just removed, and free it.
    cdef void forget(self, Expected *back) noexcept nogil
    cdef void unlink_waiting(self, Expected *back) noexcept nogil
    cdef Expected *abandon(self, const char *subject, size_t n) noexcept nogil
    # Add an entry of another account to `reverse`; False when out of memory, and it is freed.
    cdef bint await_response(self, Expected *back) noexcept nogil
    cdef bint has_responder(self, MessageHandler take, uint64_t random) noexcept nogil
    cdef bint make_responder(self, MessageHandler take, uint64_t random) noexcept nogil


cdef inline Mappings *account_mappings(Account a) noexcept nogil:
    """Return the mappings, good until the end of the batch; NULL: none."""
    return <Mappings *> load_ptr_acquire(<void **> &a.mappings)


cdef inline uint32_t account_charge(Account a) noexcept nogil:
    """Return a hash of the name, for Inbox.post_caused."""
    return hash_bytes(a.info_name.p, a.info_name.n) | 1


cdef inline bint account_imports_streams(Account a) noexcept nogil:
    return load_ptr_acquire(<void **> &a.streams) != NULL


cdef inline LinkCounts *link_counts(Account a, const PollState *ps, int kind) noexcept nogil:
    """Return where a poller counts the account's messages over a kind of link; NULL: no memory, do not count."""
    cdef LinkTraffic *traffic = <LinkTraffic *> load_ptr_acquire(<void **> &a.link_traffic)
    if unlikely(traffic == NULL):
        traffic = a.make_link_traffic(ps)
        if traffic == NULL:
            return NULL
    return &traffic[ps.index].of[link_place(kind)]


cdef inline void count_received(Account a, const PollState *ps, int kind, size_t n) noexcept nogil:
    """Count a message of n bytes that has come over a kind of link."""
    cdef LinkCounts *counts = link_counts(a, ps, kind)
    if counts != NULL:
        bump64(&counts.in_msgs, 1)
        bump64(&counts.in_bytes, n)


cdef inline void count_sent(Account a, const PollState *ps, int kind, uint64_t msgs, uint64_t n) noexcept nogil:
    """Count messages that were queued to links of a kind, n bytes in all."""
    cdef LinkCounts *counts = link_counts(a, ps, kind)
    if counts != NULL:
        bump64(&counts.out_msgs, msgs)
        bump64(&counts.out_bytes, n)


# Return whether the account still has this import. The caller holds a reference to it, and not the lock.
cdef bint stream_import_stays(Account importer, const StreamImport *im) noexcept nogil


cdef inline const TraceDest *account_trace_dest(Account a) noexcept nogil:
    """Return the destination of traces, good until the end of the batch; NULL: none."""
    return <const TraceDest *> load_ptr_acquire(<void **> &a.trace_dest)


# Drop a reference. The importing account's lock is not held.
cdef void stream_import_release(StreamImport *im) noexcept nogil
