"""Subscriptions and the trie that matches them (ports sublist.go).

Locks: a Sublist has one reader/writer lock over its trie. `match` takes it to read, `insert` and `remove` to
write. A Subscription outlives its removal from the trie until the caller retires it (core.quiesce): a reader
may still hold it in a MatchResult.
"""
cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.subject cimport hash_bytes, token_end
from gnats.core.trie cimport EdgeTable, Node, Subscription
from gnats.core.watches cimport Watch, WatchTable
from gnats.includes.atomics cimport load64_acquire
from gnats.includes.pthread cimport pthread_rwlock_t

cdef enum:
    SL_OK = 0
    SL_INVALID_SUBJECT = -1
    SL_NOT_FOUND = -2
    SL_NO_MEMORY = -3
    # generation counters: literal first tokens share these, the others have `wild_gen`
    SL_GENERATIONS = 256


cdef enum:
    # Of a client, in an account it imports a stream from: core.account.ImportSub stands before it.
    SUB_SHADOW = 1
    # A function takes its messages: core.message.NativeSub stands before it.
    SUB_SERVICE = 2      # takes requests of an account to where they are served
    SUB_RESPONSES = 4    # takes responses back
    SUB_NATIVE = 8       # of JetStream
    # Of a subscriber that is in the same sublist already: where each is to be found once, those with it do not count.
    SUB_FURTHER = 16


cdef inline const char *sub_subject(const Subscription *s) noexcept nogil:
    return s.data


cdef inline const char *sub_queue(const Subscription *s) noexcept nogil:
    return s.data + s.subject_len


cdef inline const char *sub_sid(const Subscription *s) noexcept nogil:
    return s.data + s.subject_len + s.queue_len


# (subject, queue, sid, delivered, max)
cdef tuple sub_row(const Subscription *s)


cdef struct QueueGroup:
    Subscription **subs  # members, a remote one `qw` times
    uint32_t n


cdef struct MatchResult:
    # One malloc block: free() it once, after which nothing of it is left. Never NULL unless memory ran out.
    uint32_t npsubs
    uint32_t nqgroups
    size_t nbytes        # size of the block
    Subscription **psubs
    QueueGroup *qgroups


# NULL when memory ran out. `kind` is the subscriber's connection kind. `before` bytes of the block come before it.
cdef Subscription *sub_new(
    void *client, uint8_t kind,
    const char *subject, size_t subject_len,
    const char *queue, size_t queue_len,
    const char *sid, size_t sid_len,
    size_t before=*,
) noexcept nogil


@cython.final
cdef class Sublist:
    """Subscriptions by subject. All cdef methods are thread-safe and need no GIL."""
    cdef pthread_rwlock_t lock
    cdef Node *root
    cdef EdgeTable edges         # all literal edges of the trie, by parent and token; queue groups as well
    cdef uint64_t num_nodes      # without the root; like the next three written under the lock, atomic
    cdef uint64_t num_subs
    cdef uint64_t num_inserts    # so far
    cdef uint64_t num_removes    # so far
    cdef uint64_t num_matches    # so far; atomic, like the next two
    cdef uint64_t num_results    # subscriptions and queue groups that those matches found, all together
    cdef uint64_t max_fanout     # and the most that one of them found

    # What may change the result of a match, counted: `gens` for subscriptions whose first token is literal,
    # by its hash, so that churn below one first token (inboxes) leaves the cached results of others alone;
    # `wild_gen` for those whose first token is a wildcard. Both only grow: their sum is the same only if
    # neither has changed.
    # The order: a writer changes the trie, then bumps, then releases the write lock. Whoever caches a result
    # reads sl_generation before calling match and stores the result under what it read: a change in between
    # makes a fresh result look stale, never a stale one fresh.
    cdef uint64_t gens[SL_GENERATIONS]
    cdef uint64_t wild_gen
    cdef WatchTable watches      # under the lock

    # SL_OK (also when s is in the trie already), SL_INVALID_SUBJECT (an empty token, or something after `>`)
    # or SL_NO_MEMORY; after an error the trie is as it was.
    cdef int insert(self, Subscription *s) noexcept nogil

    # SL_OK, or SL_NOT_FOUND when s is not in this trie. Frees nothing of s.
    cdef int remove(self, Subscription *s) noexcept nogil

    # Removes n of them under one lock; those that are not in this trie are skipped.
    cdef void remove_batch(self, Subscription **subs, size_t n) noexcept nogil

    # Sets s.qw, the weight of a remote queue subscription in this trie.
    cdef void update_remote_qsub(self, Subscription *s, uint32_t qw) noexcept nogil

    # Who gets a message published to `subject`. Its own `*` and `>` are ordinary tokens, which only wildcards
    # match; a subject with an empty token matches nothing. NULL when memory ran out, else to be freed with
    # free().
    cdef MatchResult *match(self, const char *subject, size_t n) noexcept nogil

    # As match, for the subscriptions that have a literal subject in common with `subject`, which may hold
    # wildcards. Looks at every subject in the trie: meant for small ones (permissions).
    cdef MatchResult *reverse_match(self, const char *subject, size_t n) noexcept nogil

    # As match, for every subscription, all in psubs and once, whether of a queue group or not.
    cdef MatchResult *all(self) noexcept nogil

    # As match, of those in no queue group, for who keeps everybody from changing the trie: fn gets them a subject at a
    # time. Takes no lock.
    cdef void visit(self, const char *subject, size_t n,
                    void (*fn)(void *arg, Subscription **subs, uint32_t n) noexcept nogil, void *arg) noexcept nogil

    # Does anyone match?
    cdef bint has_interest(self, const char *subject, size_t n) noexcept nogil

    # Call fn when the first subscribes to exactly this literal subject, in this queue group or in none, and when the
    # last unsubscribes; `interest` of the watch says how it is now. NULL when memory ran out. fn is called with the
    # lock held.
    cdef Watch *watch(self, const char *subject, size_t n, const char *queue, size_t qn,
                      void (*fn)(void *ctx, bint interest) noexcept nogil, void *ctx) noexcept nogil
    # Undo watch: fn is not called any more.
    cdef void unwatch(self, Watch *w) noexcept nogil

    # How many match: np in no queue group, nq in one (each once, whatever its weight).
    cdef void num_interest(self, const char *subject, size_t n, uint32_t *np, uint32_t *nq) noexcept nogil


cdef inline uint32_t sl_generation_slot(const char *subject, size_t n) noexcept nogil:
    """Which of the generations belongs to a subject: worth keeping beside a result that is asked for again.

    The part of the subject up to its first dot is enough.
    """
    return hash_bytes(subject, token_end(subject, n, 0)) % SL_GENERATIONS


cdef inline uint64_t sl_generation_at(Sublist sl, uint32_t slot) noexcept nogil:
    return load64_acquire(&sl.wild_gen) + load64_acquire(&sl.gens[slot])


cdef inline uint64_t sl_generation(Sublist sl, const char *subject, size_t n) noexcept nogil:
    """To be read before match; the result holds for as long as this stays the same."""
    return sl_generation_at(sl, sl_generation_slot(subject, n))
