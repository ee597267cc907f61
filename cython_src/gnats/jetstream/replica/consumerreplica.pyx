"""The log of a consumer with replicas; see consumerreplica.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.clock cimport realtime_ns
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.jetstream.consumer.acked cimport Acked, acked_add, acked_free, acked_init
from gnats.jetstream.consumer.consumerentry cimport (
    ACKED_ALL,
    ACKED_ONE,
    ENTRY_REFUSED,
    OP_ACKED,
    OP_DELIVERED,
    OP_RESET,
    OP_WAITS,
    ConsumerEntry,
    ConsumerOutcome,
)
from gnats.jetstream.consumer.consumerstate cimport ConsumerLog, ConsumerState, begin_at, kick
from gnats.jetstream.consumer.pending cimport DeliveredMsg, pending_find, pending_free, pending_needs
from gnats.jetstream.consumer.proposals cimport (
    LENGTH,
    MOST_UNDER_WAY,
    proposal_size,
    proposals_add,
    proposals_free,
    proposals_room,
)
from gnats.jetstream.consumer.requests cimport WaitingRequest
from gnats.jetstream.consumer.send_queue cimport outq_status
from gnats.jetstream.consumer.settings cimport POLICY_EXPLICIT, POLICY_NONE
from gnats.jetstream.consumer.stored cimport stored_apply, stored_forget_below, stored_restore, stored_snapshot
from gnats.jetstream.engine.barrier cimport JsPoller, run_later
from gnats.jetstream.engine.consumerbase cimport ConsumerBase, ConsumerType
from gnats.jetstream.replica.consumerops cimport (
    ADD_REQUEST_OP,
    CONSUMER_OP_ROOM,
    REMOVE_REQUEST_OP,
    RESET_ROOM,
    decode_consumer_op,
    put_acks,
    put_delivered,
    put_reset,
    put_skip,
)
from gnats.jetstream.replica.raftnode cimport CARRIED_OUT, HANDED_ON, NOT_CARRIED, Carried, RaftMachine, RaftNode
from gnats.jetstream.state.streamcore cimport INTEREST_POLICY, LIMITS_POLICY, StreamCore, remove_unneeded
from gnats.raft.messages cimport ENTRY_NORMAL, Entry
from gnats.raft.raft cimport raft_step_down
from gnats.store.format.codec cimport (
    ConsumerSnapshot,
    consumer_bound,
    consumer_decode,
    consumer_encode,
    consumer_free,
)
from gnats.store.index.filter cimport Filter, filter_free, filter_make, filter_match

from gnats.jetstream.consumer.consumer import ACK_POLICIES

cdef enum:
    MOST_REQUESTS = 4096       # that wait at another server, and are known here

cdef ConsumerLog LOG
cdef RaftMachine MACHINE
cdef ConsumerType STAND_IN


cdef class ConsumerReplica:
    """Keep what a Raft group has decided about a consumer, and put the group behind the Consumer that delivers.

    `config`: the ConsumerConfig. Call join() before node.recover(). For the control loop's thread. Raises MemoryError.
    """

    def __cinit__(self, *args, **kwargs):
        self.type = &STAND_IN
        acked_init(&self.acked)

    def __init__(self, StreamCore stream not None, str name not None, config not None):
        self.stream = stream
        self.name = name
        self.retains = stream.cfg.retention != LIMITS_POLICY
        self.cfg.ack_policy = ACK_POLICIES[config.ack_policy]
        self.cfg.max_deliver = max(config.max_deliver, 0)
        if self.retains:
            # From now on: without it, the stream might remove messages that the group still needs.
            self.filters = list(config.filters)
            self.filter = filter_make(self.filters)
            stream.consumer_list.add(self)
            self.listed = True

    def __dealloc__(self):
        pending_free(&self.committed.pending)
        proposals_free(&self.taken)
        acked_free(&self.acked)
        filter_free(self.filter)
        forget_requests(self)

    def join(self, RaftNode node not None) -> None:
        """Carry out what a group decides. Call it once."""
        self.node = node
        node.set_machine(&MACHINE, <void *> self)

    def close(self) -> None:
        """Leave the stream's list. Close the node before. Idempotent."""
        if self.listed:
            self.listed = False
            self.stream.consumer_list.remove(self)
        self.stream.engine.bury(self)

    def configure(self, config not None) -> None:
        """Apply a changed ConsumerConfig."""
        cdef uint8_t policy = ACK_POLICIES[config.ack_policy]
        cdef uint64_t most = max(config.max_deliver, 0)
        if self.node is None:
            self.refilter(config)
            self.cfg.ack_policy, self.cfg.max_deliver = policy, most
            return
        with nogil:
            pthread_mutex_lock(&self.node.lock)
        try:
            self.refilter(config)
            self.cfg.ack_policy = policy
            self.cfg.max_deliver = most
        finally:
            pthread_mutex_unlock(&self.node.lock)

    cdef int refilter(self, config) except -1:
        """Set the filter; the group's lock, if there is one, is held."""
        cdef Filter *old = self.filter
        cdef Filter *made
        self.filters = list(config.filters)
        if self.listed:
            made = filter_make(self.filters)
            try:
                self.stream.consumer_list.refilter(self, made)
            except MemoryError:
                old = made
                raise
            finally:
                filter_free(old)
        return 0

    def lead(self, ConsumerState consumer not None, uint64_t term) -> bool:
        """Have a Consumer deliver in a term, which was made with state(), and is not started. False: this server does
        not lead in that term any more.

        Raises MemoryError.
        """
        cdef char *room
        cdef bint leads
        consumer.raft = self.node
        consumer.log = &LOG
        with nogil:
            pthread_mutex_lock(&self.node.lock)
            leads = self.leads and self.term == term
            if leads:
                self.consumer = <void *> consumer
            pthread_mutex_lock(&consumer.lock)
            room = proposals_room(&consumer.proposals, CONSUMER_OP_ROOM)
            if room != NULL and not self.has_state:
                proposals_add(&consumer.proposals, put_skip(room, consumer.sseq))   # the others begin there, too
            if leads:
                end_requests(self, consumer)
            pthread_mutex_unlock(&consumer.lock)
            pthread_mutex_unlock(&self.node.lock)
        self.kept = consumer
        if room == NULL:
            raise MemoryError
        return leads

    def follow(self) -> None:
        """Forget the Consumer. Call it before that is closed. Idempotent."""
        with nogil:
            pthread_mutex_lock(&self.node.lock)
            self.consumer = NULL
            pthread_mutex_unlock(&self.node.lock)
        self.kept = None

    def propose_reset(self, uint64_t seq, bytes reply not None) -> bool:
        """Have the Consumer begin anew at a stream sequence, and propose that. False: none delivers here.

        Between its other proposals: what it delivers from now on is behind the reset at all. Raises MemoryError.
        """
        cdef ConsumerState o = self.kept
        cdef size_t n = PyBytes_GET_SIZE(reply)
        cdef const char *to = PyBytes_AS_STRING(reply)
        cdef char *room
        if o is None:
            return False
        with nogil:
            pthread_mutex_lock(&o.lock)
            room = proposals_room(&o.proposals, RESET_ROOM + n)
            if room != NULL:
                memcpy(put_reset(room, seq), to, n)
                proposals_add(&o.proposals, RESET_ROOM + n)
                begin_at(o, seq)
            pthread_mutex_unlock(&o.lock)
        if room == NULL:
            raise MemoryError
        kick(o)
        return True

    def reset(self, uint64_t seq) -> None:
        """Apply a reset that the group has decided: begin anew at a stream sequence."""
        cdef ConsumerEntry e
        memset(&e, 0, sizeof(e))
        e.op = OP_RESET
        e.sseq = e.floor.stream = max(seq, <uint64_t> 1) - 1
        with nogil:
            pthread_mutex_lock(&self.node.lock)
            stored_apply(&self.committed, &self.cfg, &e, NULL)
            self.has_state = True
            pthread_mutex_unlock(&self.node.lock)

    def forget_unneeded(self) -> None:
        """Have the stream remove messages that no consumer is interested in any more, after this one was deleted or its
        filter has changed, if this server decides about that. Any thread."""
        cdef uint64_t floor
        if self.node is None:
            return
        with nogil:
            pthread_mutex_lock(&self.node.lock)
            floor = self.committed.floor.stream
            pthread_mutex_unlock(&self.node.lock)
        if self.stream.cfg.retention == INTEREST_POLICY:
            remove_unneeded(self.stream, NULL, floor + 1, UINT64_MAX)

    def check_state_for_interest_stream(self) -> None:
        """Have the stream remove what was acknowledged and is still there, if this server decides about that. Any
        thread."""
        cdef uint64_t last
        cdef Filter *mine
        if self.node is None:
            return
        with nogil:
            pthread_mutex_lock(&self.node.lock)
            last = self.committed.delivered.stream
            pthread_mutex_unlock(&self.node.lock)
        if self.retains:
            mine = filter_make(self.filters)   # the other one may be replaced
            try:
                remove_unneeded(self.stream, mine, 0, last + 1)
            finally:
                filter_free(mine)

    def state(self) -> bytes | None:
        """Return what the group has decided, as an o.dat, unsealed; None: nothing yet. Raises MemoryError."""
        cdef bint has_state
        if self.node is None:
            return None
        with nogil:
            pthread_mutex_lock(&self.node.lock)
            has_state = self.has_state
            pthread_mutex_unlock(&self.node.lock)
        return self.snapshot(0)[1] if has_state else None

    def snapshot(self, uint64_t first) -> tuple[int, bytes]:
        """Return the last index that is applied, and the state, without messages below the stream's first sequence.

        Any thread. Raises MemoryError.
        """
        cdef ConsumerSnapshot snap
        cdef uint8_t *out = NULL
        cdef size_t n = 0
        cdef uint64_t index
        memset(&snap, 0, sizeof(snap))
        with nogil:
            pthread_mutex_lock(&self.node.lock)
            stored_forget_below(&self.committed, first)
            index = self.node.raft.applied
            if stored_snapshot(&self.committed, &snap):
                out = <uint8_t *> malloc(consumer_bound(&snap))
            pthread_mutex_unlock(&self.node.lock)
            if out != NULL:
                n = consumer_encode(&snap, realtime_ns(), out)
            consumer_free(&snap)
        try:
            if out == NULL:
                raise MemoryError
            return index, PyBytes_FromStringAndSize(<char *> out, n)
        finally:
            free(out)

    def restore(self, bytes data not None) -> None:
        """Become what a snapshot says. Raises ValueError for one that cannot be decoded, MemoryError."""
        cdef ConsumerSnapshot snap
        cdef bint done
        memset(&snap, 0, sizeof(snap))
        if consumer_decode(&snap, <const uint8_t *> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)) != 0:
            raise ValueError("a snapshot of a consumer cannot be read")
        with nogil:
            pthread_mutex_lock(&self.node.lock)
            done = stored_restore(&self.committed, &self.cfg, &snap, 0)
            self.has_state = True
            pthread_mutex_unlock(&self.node.lock)
            consumer_free(&snap)
        if not done:
            raise MemoryError


# -- the Consumer proposes; its lock is held ---------------------------------------------------------------------------

cdef ConsumerOutcome propose(ConsumerState o, const ConsumerEntry *e, Acked *acked) noexcept nogil:
    cdef char *room = proposals_room(&o.proposals, CONSUMER_OP_ROOM)
    cdef ConsumerOutcome outcome
    cdef size_t n
    if room == NULL:
        return ENTRY_REFUSED
    outcome = stored_apply(&o.stored, &o.cfg, e, acked)
    if outcome == ENTRY_REFUSED:
        return outcome
    n = encode(o, e, room)
    if n:
        proposals_add(&o.proposals, n)
    return outcome


cdef size_t encode(ConsumerState o, const ConsumerEntry *e, char *room) noexcept nogil:
    """Encode what the others are told of an entry; 0: nothing. They find out themselves what the stream has removed,
    and what is due for redelivery, if they lead one day."""
    cdef const DeliveredMsg *d
    if e.op == OP_DELIVERED:
        return put_delivered(room, e.dseq, e.sseq, e.dc, e.ts)
    if e.op == OP_ACKED:
        return put_acks(room, e.dseq, e.sseq)
    if e.op == OP_WAITS and e.kind:
        d = pending_find(&o.stored.pending, e.sseq)
        if d != NULL:
            return put_delivered(room, d.dseq, e.sseq, <uint64_t> max(d.rdc, <int64_t> 0) + 1, e.ts)
    return 0


cdef void tell(ConsumerState o, WaitingRequest *wr, bint waits) noexcept nogil:
    cdef char *room = proposals_room(&o.proposals, 1 + wr.reply_n)
    if room == NULL:
        return   # its client learns of another leader by itself
    room[0] = ADD_REQUEST_OP if waits else REMOVE_REQUEST_OP
    memcpy(room + 1, wr.reply, wr.reply_n)
    proposals_add(&o.proposals, 1 + wr.reply_n)
    if waits:
        wr.announced = True


# -- the machine; the group's lock is held -----------------------------------------------------------------------------

cdef void collect(void *o, RaftNode node) noexcept nogil:
    propose_left(<ConsumerReplica> o, node)


cdef void propose_left(ConsumerReplica g, RaftNode node) noexcept nogil:
    """Propose what the Consumer has left. What cannot be proposed would never be committed, and what follows from it
    never sent: this server stops leading then."""
    cdef size_t at = 0, n
    if g.consumer == NULL:
        return
    take_left(g, <ConsumerState> g.consumer)
    while at < g.taken.used:
        n = proposal_size(g.taken.p + at)
        if not node.propose_entry(g.taken.p + at + LENGTH, n):
            raft_step_down(&node.raft, 0, node.ps.now)
            return
        at += LENGTH + n


cdef void take_left(ConsumerReplica g, ConsumerState o) noexcept nogil:
    cdef char *empty = g.taken.p
    cdef size_t cap = g.taken.cap
    pthread_mutex_lock(&o.lock)
    g.taken = o.proposals
    o.proposals.p = empty
    o.proposals.cap = cap
    o.proposals.used = 0
    pthread_mutex_unlock(&o.lock)


cdef void lead_changed(void *o, bint leads, uint64_t term) noexcept nogil:
    (<ConsumerReplica> o).leads = leads
    (<ConsumerReplica> o).term = term
    (<ConsumerReplica> o).consumer = NULL   # that of an earlier term


cdef Carried apply(void *o, JsPoller *jp, const Entry *entry) noexcept nogil:
    return apply_entry(<ConsumerReplica> o, jp, entry)


cdef Carried apply_entry(ConsumerReplica g, JsPoller *jp, const Entry *entry) noexcept nogil:
    cdef ConsumerEntry e
    if entry.type != ENTRY_NORMAL:
        return CARRIED_OUT
    if entry.data.n and (entry.data.p[0] == ADD_REQUEST_OP or entry.data.p[0] == REMOVE_REQUEST_OP):
        if not g.leads:
            note_request(g, entry.data.p + 1, entry.data.n - 1, entry.data.p[0] == ADD_REQUEST_OP)
        note_committed(g, jp)
        return CARRIED_OUT
    if not decode_consumer_op(entry.data.p, entry.data.n, &e):
        return NOT_CARRIED
    if e.op == OP_RESET:
        note_committed(g, jp)
        return HANDED_ON
    if not apply_op(g, &e):
        return NOT_CARRIED
    if g.acked.n:
        g.node.dirty = True   # settle() comes at the end of the batch
    g.has_state = True
    note_committed(g, jp)
    return CARRIED_OUT


cdef bint apply_op(ConsumerReplica g, ConsumerEntry *e) noexcept nogil:
    """Apply an entry to the committed state, unless that has it: a restart reads the log again. False: no memory."""
    cdef StoredState *s = &g.committed
    if e.op == OP_ACKED:
        if g.cfg.ack_policy == POLICY_NONE:
            return not g.retains or acked_add(&g.acked, e.sseq)   # it was delivered
        e.kind = ACKED_ONE if g.cfg.ack_policy == POLICY_EXPLICIT else ACKED_ALL
        return stored_apply(s, &g.cfg, e, &g.acked if g.retains else NULL) != ENTRY_REFUSED
    if e.op == OP_DELIVERED:
        if e.dseq <= s.floor.consumer:
            return True
        if g.cfg.ack_policy == POLICY_NONE or e.sseq > s.delivered.stream or (
                pending_find(&s.pending, e.sseq) != NULL):
            return stored_apply(s, &g.cfg, e, NULL) != ENTRY_REFUSED
        s.delivered.consumer = max(s.delivered.consumer, e.dseq)   # it is acknowledged already
        return True
    if e.sseq and e.sseq - 1 > s.delivered.stream:
        s.delivered.stream = e.sseq - 1
        if g.cfg.ack_policy != POLICY_EXPLICIT:
            s.floor.stream = s.delivered.stream   # what is before it is needed by nobody
    return True


# -- requests that wait at the server that leads; the group's lock is held ---------------------------------------------

cdef void note_request(ConsumerReplica g, const char *reply, size_t n, bint waits) noexcept nogil:
    cdef KnownRequest **at = &g.requests
    cdef KnownRequest *r
    while at[0] != NULL and (at[0].n != n or memcmp(at[0].reply, reply, n) != 0):
        at = &at[0].next
    r = at[0]
    if r != NULL and not waits:
        at[0] = r.next
        g.nrequests -= 1
        free(r)
    elif r == NULL and waits and g.nrequests < MOST_REQUESTS:
        r = <KnownRequest *> malloc(sizeof(KnownRequest) + n)
        if r == NULL:
            return   # its client learns of another leader by itself
        r.next = NULL
        r.n = <uint32_t> n
        memcpy(r.reply, reply, n)
        at[0] = r
        g.nrequests += 1


cdef void end_requests(ConsumerReplica g, ConsumerState o) noexcept nogil:
    """Have the clients of another leader's requests ask again. The consumer's lock is held."""
    cdef KnownRequest *r = g.requests
    while r != NULL:
        outq_status(&o.out, r.reply, r.n, NULL, 0, b"409 Leadership Change", b"")
        r = r.next
    forget_requests(g)


cdef void forget_requests(ConsumerReplica g) noexcept nogil:
    cdef KnownRequest *following
    while g.requests != NULL:
        following = g.requests.next
        free(g.requests)
        g.requests = following
    g.nrequests = 0


cdef void settle(void *o, JsPoller *jp) noexcept nogil:
    release(<ConsumerReplica> o, jp)


cdef void release(ConsumerReplica g, JsPoller *jp) noexcept nogil:
    """Let the stream remove what was acknowledged. No lock is held."""
    cdef uint64_t seq = 0
    cdef size_t n = 1
    while n:
        pthread_mutex_lock(&g.node.lock)
        n = g.acked.n
        if n:
            seq = g.acked.seqs[n - 1]
            g.acked.n -= 1
        pthread_mutex_unlock(&g.node.lock)
        if n:
            g.stream.ack_msg(seq, jp.ps)


# -- in the stream's list: what the group needs; for the others, the Consumer that delivers is there -----------------

cdef bint on_need_ack(ConsumerBase base, uint64_t sseq, const char *subject, uint32_t n) noexcept nogil:
    return need_ack(<ConsumerReplica> base, sseq, subject, n)


cdef bint need_ack(ConsumerReplica g, uint64_t sseq, const char *subject, uint32_t n) noexcept nogil:
    cdef bint need
    if g.node is None:
        return True
    pthread_mutex_lock(&g.node.lock)
    need = filter_match(g.filter, subject, n) and pending_needs(
        &g.committed.pending, sseq, g.committed.floor.stream, g.committed.delivered.stream + 1,
        g.cfg.ack_policy == POLICY_EXPLICIT)
    pthread_mutex_unlock(&g.node.lock)
    return need


cdef bint on_stored(ConsumerBase base, uint64_t seq) noexcept nogil:
    return False


cdef bint on_count_off(ConsumerBase base, uint64_t seq, const char *subject, uint32_t n) noexcept nogil:
    return False


cdef void on_run(ConsumerBase base, PollState *ps) noexcept nogil:
    pass


cdef void on_kick(ConsumerBase base) noexcept nogil:
    pass


cdef void on_removed(ConsumerBase base, uint64_t seq) noexcept nogil:
    pass


cdef void on_purged(
    ConsumerBase base, uint64_t first, uint64_t last, const char *subject, uint32_t n, uint64_t subject_first
) noexcept nogil:
    pass


cdef void note_committed(ConsumerReplica g, JsPoller *jp) noexcept nogil:
    """Let go what has waited for this entry at the Consumer that has proposed it, if it is here."""
    if g.consumer != NULL:
        let_go(<ConsumerState> g.consumer, jp)


cdef void let_go(ConsumerState o, JsPoller *jp) noexcept nogil:
    pthread_mutex_lock(&o.lock)
    o.proposals.committed += 1
    # Behind MOST_UNDER_WAY, it may wait for this alone.
    if (o.out.n != o.out.at or o.proposals.n - o.proposals.committed == MOST_UNDER_WAY - 1) and (
            not o.closed and not run_later(jp, o)):
        kick(o)
    pthread_mutex_unlock(&o.lock)


LOG.propose = propose
LOG.tell = tell
MACHINE.collect = collect
MACHINE.apply = apply
MACHINE.lead_changed = lead_changed
MACHINE.settle = settle
STAND_IN.stored, STAND_IN.run, STAND_IN.kick = on_stored, on_run, on_kick
STAND_IN.count_off, STAND_IN.removed, STAND_IN.purged = on_count_off, on_removed, on_purged
STAND_IN.need_ack = on_need_ack
