"""Subscriptions and the trie that matches them (ports sublist.go).

Locks: a Sublist has one readers/writer lock over its trie. `match` takes it to read, `insert` and `remove` to write. A
removed Subscription lives until the caller retires it (core.runtime.quiesce): a poller may still have it in a
MatchResult.
"""
cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.subjects.subject cimport hash_bytes, token_end
from gnats.core.subjects.trie cimport (
    SUB_ACCOUNT, SUB_FURTHER, SUB_NATIVE, SUB_RESPONSES, SUB_SERVICE, SUB_SHADOW, EdgeTable, Interest, Node,
    Subscription,
)
from gnats.includes.atomics cimport load64_acquire
from gnats.includes.pthread cimport pthread_rwlock_t

cdef enum:
    SL_OK = 0
    SL_INVALID_SUBJECT = -1
    SL_NOT_FOUND = -2
    SL_NO_MEMORY = -3
    # counters of changes: literal first tokens share these; wildcards have `wild_gen`
    SL_GENERATIONS = 256

cdef extern from * nogil:
    """
    #define GNATS_SINK_WALKED UINT64_MAX
    """
    const uint64_t SINK_WALKED "GNATS_SINK_WALKED"


cdef inline const char *sub_subject(const Subscription *s) noexcept nogil:
    return s.data


cdef inline const char *sub_queue(const Subscription *s) noexcept nogil:
    return s.data + s.subject_len


cdef inline const char *sub_sid(const Subscription *s) noexcept nogil:
    return s.data + s.subject_len + s.queue_len


# Return (subject, queue, sid, delivered, max): three bytes, two int.
cdef tuple sub_row(const Subscription *s)


cdef struct QueueGroup:
    # Members: first those that are no links', then those at other servers of the cluster, then those behind leaf nodes,
    # then those in other clusters. One of a link stands for sub_weight() members.
    Subscription **subs
    uint32_t n
    uint32_t local       # how many are no links'
    uint32_t near        # these, and those at other servers of the cluster
    uint32_t own         # these, and those behind leaf nodes


cdef struct MatchResult:
    # One malloc block: free() it once.
    uint32_t npsubs
    uint32_t nqgroups
    uint32_t visited     # nodes of the trie that the match looked at: what it cost
    size_t nbytes        # size of the block
    Subscription **psubs
    QueueGroup *qgroups


# Make a subscription, with `before` bytes in front of it in its block; `kind` is its connection's. NULL when out of
# memory.
cdef Subscription *sub_new(
    void *client, uint8_t kind,
    const char *subject, size_t subject_len,
    const char *queue, size_t queue_len,
    const char *sid, size_t sid_len,
    size_t before=*,
) noexcept nogil


# A sink: called for every change of interest in a sublist. Links to other servers and notifications have one. Its owner
# embeds it.
cdef struct InterestSink:
    InterestSink *next
    # How far walk_sink() has come, as a node's place in its order; SINK_WALKED at its end. A node that it has still to
    # come to changes without a call. Changed with the lock held, at least to read, by one thread at a time.
    uint64_t cursor
    # The interest in the subject and queue group of s has changed: s has come, has gone or has another weight. `node`
    # has the subscriptions that are there now. Called with the sublist's lock held to write: it may take only locks
    # below that in docs/locks.md.
    void (*changed)(
        InterestSink *sink, const Subscription *s, const Node *node, const Interest *before,
        const Interest *now) noexcept nogil


@cython.final
cdef class Sublist:
    """Subscriptions by subject. The cdef methods are thread-safe and need no GIL."""
    cdef pthread_rwlock_t lock
    cdef Node *root
    cdef EdgeTable edges         # all literal edges of the trie, by parent and token; edges to queue groups, too
    cdef uint64_t num_nodes      # without the root; like the next three atomic, written under the lock
    cdef uint64_t num_subs
    cdef uint64_t num_inserts
    cdef uint64_t num_removes
    cdef uint64_t num_matches    # atomic, like the next two
    cdef uint64_t num_results    # subscriptions and queue groups found by all matches together
    cdef uint64_t max_fanout     # the most that one match has found

    # Generations count the changes that can change a match result: `gens` those of subscriptions with a literal first
    # token, by its hash, so that churn of inboxes leaves the cached results of other subjects alone; `wild_gen` those
    # of subscriptions with a wildcard first. Both only grow, so their sum stays the same only if neither changes.
    # Order: a writer changes the trie, bumps a generation, then releases the lock. A poller that caches a result reads
    # sl_generation first, then calls match, and stores the result under the generation it read: a change in between
    # makes a fresh result look stale, never a stale one fresh.
    cdef uint64_t gens[SL_GENERATIONS]
    cdef uint64_t wild_gen
    cdef InterestSink *sinks     # under the lock

    # Insert s. SL_OK (also when s is in the trie already), SL_INVALID_SUBJECT (an empty token, or a token behind `>`)
    # or SL_NO_MEMORY; after an error the trie is as it was.
    cdef int insert(self, Subscription *s) noexcept nogil

    # Remove s, without freeing it. SL_OK, or SL_NOT_FOUND when s is not in this trie.
    cdef int remove(self, Subscription *s) noexcept nogil

    # Remove n subscriptions under one lock, skipping those that are not in this trie.
    cdef void remove_batch(self, Subscription **subs, size_t n) noexcept nogil

    # Set s.qw, the weight of a remote queue subscription in this trie.
    cdef void update_remote_qsub(self, Subscription *s, uint32_t qw) noexcept nogil

    # Return the subscribers of a message to `subject`; the caller frees the result. Tokens `*` and `>` in `subject` are
    # ordinary tokens, which only wildcards match; a subject with an empty token matches nothing. NULL when out of
    # memory.
    cdef MatchResult *match(self, const char *subject, size_t n) noexcept nogil

    # As match, for the subscriptions that match some literal subject that `subject`, which may have wildcards, matches,
    # too. Looks at every subject in the trie: meant for small ones (permissions).
    cdef MatchResult *reverse_match(self, const char *subject, size_t n) noexcept nogil

    # As match, for every subscription; all of them in psubs, once each, those of queue groups, too.
    cdef MatchResult *all(self) noexcept nogil

    # Call fn with the matching subscriptions that are in no queue group, one subscribed subject at a time. Takes no
    # lock: the caller must keep every thread from changing the trie.
    cdef void visit(self, const char *subject, size_t n,
                    void (*fn)(void *arg, Subscription **subs, uint32_t n) noexcept nogil, void *arg) noexcept nogil

    # Return whether a subscription matches.
    cdef bint has_interest(self, const char *subject, size_t n) noexcept nogil

    # Add a sink, and call it for all changes from now on. Before any of them, call it for every subject and queue group
    # that has subscriptions, each once, as if they had all come at this moment. Nothing is matched meanwhile.
    cdef void add_sink(self, InterestSink *sink) noexcept nogil
    # The same in slices, between which messages are matched and subscriptions come and go: add a sink, which is called
    # for nothing before walk_sink() is.
    cdef void join_sink(self, InterestSink *sink) noexcept nogil
    # Call a sink of join_sink() for subjects and queue groups that have subscriptions, as add_sink() does, until about
    # `most` nodes are visited. From then on it is called for changes of these, too. Return whether that was all. The
    # caller holds the lock, at least to read, so the sink must not take it; one thread at a time walks for a sink.
    cdef bint walk_sink(self, InterestSink *sink, uint32_t most) noexcept nogil
    # Remove a sink; it is not called any more when this returns. Skips a sink that is not there.
    cdef void remove_sink(self, InterestSink *sink) noexcept nogil
    # The same for a caller that holds the lock to write. The new sink is called for changes only.
    cdef void link_sink(self, InterestSink *sink) noexcept nogil
    cdef void unlink_sink(self, InterestSink *sink) noexcept nogil
    # Count the subscriptions with exactly this literal subject, in this queue group or in none. The caller holds the
    # lock.
    cdef uint32_t count_of(self, const char *subject, size_t n, const char *queue, size_t qn) noexcept nogil

    # Count the matching subscriptions: np in no queue group, nq in one (each once, whatever its weight).
    cdef void num_interest(self, const char *subject, size_t n, uint32_t *np, uint32_t *nq) noexcept nogil

cdef inline uint32_t sl_generation_slot(const char *subject, size_t n) noexcept nogil:
    """Return the index of the generation of a subject; keep it beside a result that is asked for again.

    The part of the subject up to its first dot is enough.
    """
    return hash_bytes(subject, token_end(subject, n, 0)) % SL_GENERATIONS


cdef inline uint64_t sl_generation_at(Sublist sl, uint32_t slot) noexcept nogil:
    return load64_acquire(&sl.wild_gen) + load64_acquire(&sl.gens[slot])


cdef inline uint64_t sl_generation(Sublist sl, const char *subject, size_t n) noexcept nogil:
    """Read this before match: the result is valid as long as this stays the same."""
    return sl_generation_at(sl, sl_generation_slot(subject, n))
