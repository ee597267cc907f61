"""The log of a replicated stream; see streamreplica.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcmp, memcpy, memset, strlen

from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.slice cimport Slice
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport NUMBER_ROOM, put, put_number, put_text, starts_with_text
from gnats.jetstream.consumer.acked cimport acked_add, acked_free, acked_init
from gnats.jetstream.engine.barrier cimport JsPoller, js_poller_of, mark_dirty, stream_failed
from gnats.jetstream.engine.outbox cimport publish_later
from gnats.jetstream.engine.shortage cimport report_shortage
from gnats.jetstream.publish.entries cimport entry_of_logged
from gnats.jetstream.publish.inbound cimport Inbound, inbound_free, inbound_init, stored_size, transform_subject
from gnats.jetstream.publish.inflight cimport last_in_flight, stage_hashes
from gnats.jetstream.replica.raftnode cimport CARRIED_OUT, HANDED_ON, NOT_CARRIED, Carried, RaftMachine, RaftNode
from gnats.jetstream.replica.streamops cimport (
    BATCH_COMMIT_MSG_OP,
    BATCH_MSG_OP,
    COMPRESSED_STREAM_MSG_OP,
    DELETE_MSG_OP,
    DELETE_RANGE_OP,
    STREAM_MSG_OP,
    StreamMsgOp,
    decode_batch,
    decode_stream_msg,
    inbound_of,
    put_stream_msg,
    stream_msg_room,
)
from gnats.jetstream.state.entry cimport (
    ALONE,
    ENDS_ATOMIC,
    MSG_REFUSED,
    MSG_STORED,
    OF_ATOMIC,
    OF_FAST,
    Outcome,
    Part,
    StreamEntry,
)
from gnats.jetstream.state.headers cimport H_EXPECTED_LAST_MSG_ID, header_set, parse_headers
from gnats.jetstream.state.streamcore cimport StreamCore, StreamLog
from gnats.jetstream.stream.storing cimport answer, apply_change, store_entries
from gnats.jetstream.stream.streamlog cimport local_log
from gnats.raft.messages cimport ENTRY_NORMAL, Entry
from gnats.raft.raft cimport raft_step_down
from gnats.store.base cimport (
    STORE_CLOSED,
    STORE_DELETED,
    STORE_EOF,
    STORE_NO_MEMORY,
    STORE_NOT_FOUND,
    STORE_OK,
    StoreMsg,
)
from gnats.store.times.durations cimport parse_uint64
from gnats.store.writing cimport skip_msgs

from gnats.go.json import marshal

cdef const char *REMOVAL_END = b',"no_erase":true,"subject":"","reply":""}'

cdef const char *RANGE_FIRST = b'{"First":'
cdef const char *RANGE_NUM = b',"Num":'
cdef const char *CONTROL = b"NATS/1.0 100 FlowControl Request\r\n"

cdef uint64_t SOON = <uint64_t> 1 << 62    # bytes since the last snapshot, after which the next one is due

cdef enum:
    RANGE_ROOM = 32 + 2 * NUMBER_ROOM
    MOST_OF_BATCH = 64 << 20     # bytes of a batch whose end has not come; a longer one is dropped, as nats-server's is

cdef StreamLog LOG
cdef RaftMachine MACHINE


cdef class StreamReplica:
    """Put a Raft group behind a stream: messages are stored when the group has committed them.

    Make it before node.recover(). The stream may be subscribed while this server leads. For the control loop's thread.
    """

    def __init__(self, StreamCore stream not None, RaftNode node not None):
        self.stream = stream
        self.node = node
        acked_init(&self.unneeded)
        removal = marshal({"stream": stream.name, "seq": 0})
        self.removal = b"%c" % DELETE_MSG_OP + removal[:len(removal) - 2]
        self.removal_p = self.removal
        self.removal_n = len(self.removal)
        self.replaying = True
        node.set_machine(&MACHINE, <void *> self)
        pthread_mutex_lock(&stream.store.lock)
        stream.log = &LOG
        stream.log_owner = <void *> self
        stream.decides = False
        pthread_mutex_unlock(&stream.store.lock)

    def __dealloc__(self):
        drop_batch(self)
        drop_flights(self)
        acked_free(&self.unneeded)

    def close(self) -> None:
        """Take the log away from the stream again. Close the node before."""
        pthread_mutex_lock(&self.stream.store.lock)
        self.leads = self.stream.decides = False
        self.stream.log = &local_log
        self.stream.log_owner = NULL
        self.stream.in_flight = NULL
        drop_flights(self)
        pthread_mutex_unlock(&self.stream.store.lock)
        self.stream.engine.bury(self)   # drop_unneeded() may have it

    def set_refused(self, uint64_t refused) -> None:
        """Take over how many messages were refused up to a snapshot."""
        pthread_mutex_lock(&self.stream.store.lock)
        self.refused = max(self.refused, refused)
        pthread_mutex_unlock(&self.stream.store.lock)

    def decide(self) -> None:
        """While this server leads, decide which messages no consumer needs: all that are assigned are here."""
        pthread_mutex_lock(&self.stream.store.lock)
        self.knows = True
        self.stream.decides = self.leads
        pthread_mutex_unlock(&self.stream.store.lock)

    @property
    def waiting(self) -> int:
        """The number of sequences that are proposed, and not stored."""
        return self.in_flight.n + self.in_flight.skipped


# -- the leader proposes; the stream's lock is held --------------------------------------------------------------------

cdef Outcome propose(StreamCore s, JsPoller *jp, StreamEntry *first) noexcept nogil:
    return leave_entries(<StreamReplica> s.log_owner, jp, first)


cdef Outcome leave_entries(StreamReplica g, JsPoller *jp, StreamEntry *first) noexcept nogil:
    """Leave the entries of a message, or of a batch, for the end of the poller's batch."""
    cdef Flight *flights = NULL
    cdef Flight *last = NULL
    cdef Flight *flight
    cdef StreamEntry *e = first
    cdef uint64_t n = 0
    if not g.leads:
        return MSG_REFUSED   # it does not lead any more, and will be unsubscribed: no answer
    while e != NULL:
        n += 1
        flight = flight_new(g, e, first.next != NULL, n)
        if flight == NULL:
            break
        if last == NULL:
            flights = flight
        else:
            last.staged.next = &flight.staged
        last = flight
        e = e.next
    if e != NULL or not mark_dirty(jp, g.node):
        free_flights(flights)
        report_shortage(jp.ps)
        return MSG_REFUSED
    add_flights(g, flights, last)
    return MSG_STORED


cdef void add_flights(StreamReplica g, Flight *flights, Flight *last) noexcept nogil:
    """Have proposals made of flights, which are linked, up to `last`."""
    if g.last == NULL:
        g.in_flight.first = &flights.staged
    else:
        g.last.staged.next = &flights.staged
    if g.unproposed == NULL:
        g.unproposed = flights
    g.last = last
    while flights != NULL:
        if flights.staged.m.subject.n:
            g.in_flight.n += 1
        else:
            g.in_flight.skipped += flights.seqs
        g.in_flight.bytes += flights.bytes
        g.next_seq = flights.seq + flights.seqs
        g.last_ts = flights.staged.entry.ts
        flights = <Flight *> flights.staged.next


cdef Flight *flight_new(StreamReplica g, StreamEntry *e, bint in_batch, uint64_t number) noexcept nogil:
    """Encode an entry, and keep what later checks and the answer need. NULL: no memory."""
    cdef size_t texts = (
        e.subject.n + e.hdr_n + e.reply.n + e.value.n + e.batch.n + (e.fast.id.n if e.part == OF_FAST else 0))
    cdef Flight *flight = <Flight *> calloc(1, sizeof(Flight) + texts)
    cdef StreamMsgOp op
    cdef StreamEntry *kept
    cdef char *at
    if flight == NULL:
        return NULL
    memset(&op, 0, sizeof(op))
    at = <char *> (flight + 1)
    inbound_init(&flight.staged.m)
    at = keep(at, &e.subject, &flight.staged.m.subject)
    flight.staged.m.hdr = at
    flight.staged.m.hdr_n = e.hdr_n
    if e.hdr_n:
        at = put(at, e.hdr, e.hdr_n)
        parse_headers(flight.staged.m.hdr, e.hdr_n, &flight.staged.m.h)
    kept = &flight.staged.entry
    kept[0] = e[0]
    kept.next = NULL
    kept.trace = NULL   # it has been sent when the message is stored
    at = keep(at, &e.reply, &kept.reply)
    at = keep(at, &e.value, &kept.value)
    flight.staged.m.value = kept.value
    at = keep(at, &e.batch, &kept.batch)
    if e.part == OF_FAST:
        flight.fast = e.fast[0]
        keep(at, &e.fast.id, &flight.fast.id)
        kept.fast = &flight.fast
    stage_hashes(&flight.staged)
    flight.seqs = 1
    flight.bytes = stored_size(g.stream, e.subject.n, e.hdr_n, e.n)
    flight.seq = e.seq - 1 if e.seq else g.next_seq + number - 1
    if not g.stream.cfg.mirror:
        kept.ts = max(e.ts, g.last_ts + <int64_t> number)   # of its own: a replay finds the message by it
    op.subject, op.reply = e.published, e.reply
    op.hdr.p, op.hdr.n = <char *> e.hdr, e.hdr_n
    op.msg.p, op.msg.n = <char *> e.msg, e.n
    op.seq, op.ts, op.sourced = flight.seq, kept.ts, e.sourced
    if e.no_interest and not in_batch:
        memset(&op, 0, sizeof(op))   # a skip
        op.seq = flight.seq
    if in_batch:
        op.batch = batch_id_of(e)
        op.batch_seq = number
        op.commits = e.next == NULL
    flight.proposal = <char *> malloc(stream_msg_room(&op))
    if flight.proposal == NULL:
        free(flight)
        return NULL
    flight.n = put_stream_msg(flight.proposal, &op)
    return flight


cdef bint expire(StreamCore s, JsPoller *jp, uint64_t seq) noexcept nogil:
    return leave_removal(<StreamReplica> s.log_owner, jp, seq)


cdef bint leave_removal(StreamReplica g, JsPoller *jp, uint64_t seq) noexcept nogil:
    if g.leads:
        acked_add(&g.unneeded, seq)   # without memory it is proposed when it is looked at again
        mark_dirty(jp, g.node)
    return g.leads


cdef int skip(StreamCore s, JsPoller *jp, uint64_t last) noexcept nogil:
    return leave_range(<StreamReplica> s.log_owner, jp, last)


cdef int leave_range(StreamReplica g, JsPoller *jp, uint64_t last) noexcept nogil:
    cdef uint64_t first = last_in_flight(g.stream) + 1
    cdef Flight *flight = <Flight *> calloc(1, sizeof(Flight))
    cdef char *end
    if flight != NULL:
        flight.proposal = <char *> malloc(RANGE_ROOM)
    if flight == NULL or flight.proposal == NULL or not g.leads:
        if flight != NULL:
            free_flight(flight)
        return STORE_NO_MEMORY if g.leads else STORE_CLOSED
    flight.seq = g.next_seq
    flight.seqs = last - first + 1
    flight.staged.entry.ts = g.last_ts
    flight.proposal[0] = DELETE_RANGE_OP
    end = put_number(put_text(flight.proposal + 1, RANGE_FIRST), first)
    end = put_text(put_number(put_text(end, RANGE_NUM), flight.seqs), b"}\n")
    flight.n = end - flight.proposal
    add_flights(g, flight, flight)
    if jp == NULL or not mark_dirty(jp, g.node):
        g.node.poke()
    return STORE_OK


cdef void confirm(StreamCore s, JsPoller *jp, const Slice *reply, const char *hdr, size_t n) noexcept nogil:
    leave_confirmation(<StreamReplica> s.log_owner, jp, reply, hdr, n)


cdef void leave_confirmation(
    StreamReplica g, JsPoller *jp, const Slice *reply, const char *hdr, size_t n
) noexcept nogil:
    """Propose nats-server's entry: the flow control request, and in its header what is answered. Without memory the
    origin's consumer asks again."""
    cdef Flight *flight = NULL
    cdef StreamMsgOp op
    cdef char[256] request
    cdef const char *lines = hdr + strlen(b"NATS/1.0\r\n")
    if g.leads and n < sizeof(request) - strlen(CONTROL):
        flight = <Flight *> calloc(1, sizeof(Flight) + reply.n + n)
    if flight == NULL:
        return
    memset(&op, 0, sizeof(op))
    op.reply = reply[0]
    op.hdr.p = request
    op.hdr.n = put(put_text(request, CONTROL), lines, hdr + n - lines) - request
    flight.seq = g.next_seq
    flight.confirms = True
    flight.staged.entry.ts = g.last_ts
    flight.staged.m.hdr = keep(<char *> (flight + 1), reply, &flight.staged.entry.reply)
    flight.staged.m.hdr_n = n
    put(flight.staged.m.hdr, hdr, n)
    flight.proposal = <char *> malloc(stream_msg_room(&op))
    if flight.proposal == NULL or not mark_dirty(jp, g.node):
        free_flight(flight)
        return
    flight.n = put_stream_msg(flight.proposal, &op)
    add_flights(g, flight, flight)


cdef inline char *keep(char *at, const Slice *text, Slice *kept) noexcept nogil:
    kept.p = at
    kept.n = text.n
    return put(at, text.p, text.n) if text.n else at


cdef inline Slice batch_id_of(const StreamEntry *e) noexcept nogil:
    """Return the id of an atomic batch, from its last entry."""
    while e.next != NULL:
        e = e.next
    return e.batch


cdef void free_flight(Flight *flight) noexcept nogil:
    free(flight.proposal)
    free(flight)


cdef void free_flights(Flight *flight) noexcept nogil:
    cdef Flight *following
    while flight != NULL:
        following = <Flight *> flight.staged.next
        free_flight(flight)
        flight = following


cdef void drop_flights(StreamReplica g) noexcept nogil:
    free_flights(<Flight *> g.in_flight.first)
    memset(&g.in_flight, 0, sizeof(g.in_flight))
    g.last = g.unproposed = NULL


# -- the machine; the group's lock is held -----------------------------------------------------------------------------

cdef void collect(void *o, RaftNode node) noexcept nogil:
    propose_waiting(<StreamReplica> o, node)


cdef bint drop_unneeded(StreamCore s, uint64_t seq, PollState *ps) noexcept nogil:
    """Leave a message to be removed for the end of the poller's batch."""
    cdef void *owner
    pthread_mutex_lock(&s.store.lock)
    owner = s.log_owner   # NULL: it was closed meanwhile
    if owner != NULL and s.decides:
        acked_add(&(<StreamReplica> owner).unneeded, seq)   # without memory it stays, until all are looked at again
    pthread_mutex_unlock(&s.store.lock)
    if owner != NULL and (ps == NULL or not mark_dirty(js_poller_of(ps), (<StreamReplica> owner).node)):
        (<StreamReplica> owner).node.poke()
    return False


cdef void propose_waiting(StreamReplica g, RaftNode node) noexcept nogil:
    """Propose what publishers have left. What cannot be proposed would leave a gap: this server stops leading then."""
    cdef Flight *flight
    cdef char *proposal
    cdef size_t n
    cdef bint proposed = True
    while proposed:
        pthread_mutex_lock(&g.stream.store.lock)
        flight = g.unproposed
        if flight != NULL:
            # It may be committed, and gone, before propose_entry() returns.
            g.unproposed = <Flight *> flight.staged.next
            proposal, n = flight.proposal, flight.n
            flight.proposal = NULL
        pthread_mutex_unlock(&g.stream.store.lock)
        if flight == NULL:
            propose_removals(g, node)
            return
        proposed = node.propose_entry(proposal, n)
        free(proposal)
    raft_step_down(&node.raft, 0, node.ps.now)


cdef void propose_removals(StreamReplica g, RaftNode node) noexcept nogil:
    """Propose to remove what no consumer needs."""
    cdef char *entry = NULL
    cdef char *end
    cdef size_t n
    cdef uint64_t seq
    cdef bint proposed = True
    while proposed:
        pthread_mutex_lock(&g.stream.store.lock)
        n = g.unneeded.n
        if n:
            g.unneeded.n -= 1
            seq = g.unneeded.seqs[n - 1]
        pthread_mutex_unlock(&g.stream.store.lock)
        if n == 0:
            break
        if entry == NULL:
            entry = <char *> malloc(g.removal_n + NUMBER_ROOM + strlen(REMOVAL_END))
            if entry == NULL:
                return   # it stays, as above
            memcpy(entry, g.removal_p, g.removal_n)
        end = put_text(put_number(entry + g.removal_n, seq), REMOVAL_END)
        proposed = node.propose_entry(entry, end - entry)
    free(entry)


cdef bint is_removal(StreamReplica g, const Entry *entry, uint64_t *seq) noexcept nogil:
    """Return whether an entry removes a message that no consumer needs; nobody is to be answered."""
    cdef size_t tail = strlen(REMOVAL_END)
    cdef const char *end = entry.data.p + entry.data.n - tail
    if entry.data.n <= g.removal_n + tail or memcmp(entry.data.p, g.removal_p, g.removal_n) != 0:
        return False
    return memcmp(end, REMOVAL_END, tail) == 0 and (
        parse_uint64(entry.data.p + g.removal_n, end - entry.data.p - g.removal_n, seq))


cdef Carried remove_unneeded(StreamReplica g, JsPoller *jp, uint64_t seq) noexcept nogil:
    cdef int rc
    g.stream.enter()
    rc = g.stream.store.remove(seq, False)
    g.stream.leave(jp.ps)
    return CARRIED_OUT if rc in (STORE_OK, STORE_NOT_FOUND, STORE_DELETED, STORE_EOF) else NOT_CARRIED


cdef void lead_changed(void *o, bint leads, uint64_t term) noexcept nogil:
    change_lead(<StreamReplica> o, (<StreamReplica> o).stream, leads)


cdef void change_lead(StreamReplica g, StreamCore s, bint leads) noexcept nogil:
    pthread_mutex_lock(&s.store.lock)
    drop_flights(g)
    g.leads = leads
    s.decides = leads and g.knows
    g.unneeded.n = 0
    g.next_seq = s.store.last_seq + g.refused
    g.last_ts = s.store.last_ts
    s.in_flight = &g.in_flight if leads else NULL
    pthread_mutex_unlock(&s.store.lock)


cdef Carried apply(void *o, JsPoller *jp, const Entry *entry) noexcept nogil:
    return apply_entry(<StreamReplica> o, jp, entry)


cdef Carried apply_entry(StreamReplica g, JsPoller *jp, const Entry *entry) noexcept nogil:
    cdef uint64_t seq
    cdef char op
    if entry.type != ENTRY_NORMAL:
        drop_batch(g)
        return CARRIED_OUT
    if entry.data.n == 0:
        return NOT_CARRIED
    op = entry.data.p[0]
    if op == BATCH_MSG_OP or op == BATCH_COMMIT_MSG_OP:
        return apply_batched(g, jp, entry, op == BATCH_COMMIT_MSG_OP)
    drop_batch(g)
    if op == STREAM_MSG_OP or op == COMPRESSED_STREAM_MSG_OP:
        return apply_msgs(g, g.stream, jp, entry.data.p, entry.data.n)
    if op == DELETE_RANGE_OP:
        return apply_range(g, g.stream, jp, entry.data.p + 1, entry.data.n - 1)
    return remove_unneeded(g, jp, seq) if is_removal(g, entry, &seq) else HANDED_ON


cdef Carried apply_batched(StreamReplica g, JsPoller *jp, const Entry *entry, bint commits) noexcept nogil:
    """Keep a message of an atomic batch; store all of them when the last one comes. A batch whose messages do not
    follow each other is dropped: its leader has gone."""
    cdef StreamMsgOp m
    cdef bint follows
    if decode_stream_msg(entry.data.p, entry.data.n, &m) < 0:
        return NOT_CARRIED
    follows = same_batch(g, &m) and m.batch_seq == g.batch_n + 1
    if not follows:
        drop_batch(g)
        follows = m.batch_seq == 1
    free(m.owned)
    if not follows:
        refuse_logged(g, m.seq)
        return CARRIED_OUT
    if commits:
        return apply_msgs(g, g.stream, jp, entry.data.p, entry.data.n)
    return CARRIED_OUT if keep_part(g, entry) else NOT_CARRIED


cdef bint same_batch(StreamReplica g, const StreamMsgOp *m) noexcept nogil:
    """Return whether a message is of the batch that is open; True without one."""
    cdef StreamMsgOp first
    cdef const char *at
    if g.batch == NULL:
        return True
    at = g.batch.data
    return decode_batch(&at, at + g.batch.n, &first) and first.batch.n == m.batch.n and (
        memcmp(first.batch.p, m.batch.p, m.batch.n) == 0)


cdef bint keep_part(StreamReplica g, const Entry *entry) noexcept nogil:
    cdef BatchPart *part = <BatchPart *> malloc(sizeof(BatchPart) + entry.data.n)
    if part == NULL:
        return False
    part.next = NULL
    part.n = entry.data.n
    memcpy(part.data, entry.data.p, part.n)
    if g.batch == NULL:
        g.batch = part
    else:
        g.batch_last.next = part
    g.batch_last = part
    g.batch_n += 1
    g.batch_bytes += part.n
    return g.batch_bytes <= MOST_OF_BATCH


cdef void drop_batch(StreamReplica g) noexcept nogil:
    """Drop the messages of the open batch; each was given a number."""
    cdef BatchPart *part = g.batch
    cdef StreamMsgOp m
    while part != NULL:
        if decode_stream_msg(part.data, part.n, &m) == 0:
            free(m.owned)
            refuse_logged(g, m.seq)
        part = part.next
    free_batch(g)


cdef void refuse_logged(StreamReplica g, uint64_t seq) noexcept nogil:
    """Count a message of the log that is not stored, unless it was counted before this server's start."""
    pthread_mutex_lock(&g.stream.store.lock)
    if seq == g.stream.store.last_seq + g.refused:
        count_refused(g)
        pop_flight(g, seq)
    pthread_mutex_unlock(&g.stream.store.lock)


# -- storing; the group's lock is held ---------------------------------------------------------------------------------

cdef Carried apply_msgs(
    StreamReplica g, StreamCore s, JsPoller *jp, const char *last, size_t n
) noexcept nogil:
    """Store a message, and those of its batch before it: nobody sees a part of a batch."""
    cdef BatchPart *part = g.batch
    cdef Carried done = CARRIED_OUT
    s.enter()
    while part != NULL and done == CARRIED_OUT:
        done = apply_msg(g, s, jp, part.data, part.n, OF_ATOMIC)
        part = part.next
    if done == CARRIED_OUT:
        done = apply_msg(g, s, jp, last, n, ALONE if g.batch == NULL else ENDS_ATOMIC)
    s.leave(jp.ps)
    free_batch(g)
    return done


cdef void free_batch(StreamReplica g) noexcept nogil:
    cdef BatchPart *following
    while g.batch != NULL:
        following = g.batch.next
        free(g.batch)
        g.batch = following
    g.batch_last = NULL
    g.batch_n = g.batch_bytes = 0


cdef Carried apply_msg(
    StreamReplica g, StreamCore s, JsPoller *jp, const char *data, size_t n, Part part
) noexcept nogil:
    cdef StreamMsgOp op
    cdef Carried done
    if decode_stream_msg(data, n, &op) < 0:
        return NOT_CARRIED
    if op.subject.n == 0 and op.reply.n and starts_with_text(op.hdr.p, op.hdr.n, b"NATS/1.0 100 "):
        confirm_logged(g, s, jp)
        done = CARRIED_OUT
    elif is_stored(g, s, &op):
        pop_flight(g, op.seq)
        done = CARRIED_OUT
    elif op.seq != s.store.last_seq + g.refused and not begin_behind(g, s, &op):
        done = NOT_CARRIED
    else:
        done = store_logged(g, s, jp, &op, part)
    free(op.owned)
    return done


cdef bint is_stored(StreamReplica g, StreamCore s, const StreamMsgOp *op) noexcept nogil:
    """Return whether a message of the log is stored, or was refused, before."""
    cdef uint64_t last = s.store.last_seq
    cdef uint64_t seq
    cdef StoreMsg sm
    if op.seq < last + g.refused:
        return True
    if not g.replaying or last == 0 or op.subject.n == 0 or s.cfg.mirror:
        return False
    # Messages that were refused before this server's start are not counted yet: what is stored tells how many.
    seq = s.store.seq_from_time(op.ts)
    if seq == 0 or seq > last or s.store.load(seq, &sm) != STORE_OK or sm.ts != op.ts:
        return False
    g.refused = op.seq + 1 - seq
    return True


cdef bint begin_behind(StreamReplica g, StreamCore s, const StreamMsgOp *op) noexcept nogil:
    """A server without any message begins with one that is not the first: those before it are gone everywhere. So are
    those that a mirror has not."""
    if (s.store.last_seq or s.store.msgs) and not s.cfg.mirror or op.seq < s.store.last_seq + g.refused:
        return False
    return skip_msgs(s.store, 0, op.seq - g.refused - s.store.last_seq, op.ts) == STORE_OK


cdef Carried apply_range(StreamReplica g, StreamCore s, JsPoller *jp, const char *at, size_t n) noexcept nogil:
    """Leave sequences out. Those that this server has stay."""
    cdef uint64_t first, last, num
    cdef int rc = STORE_OK
    if not read_range(at, n, &first, &num) or first == 0 or num - 1 > ~<uint64_t> 0 - first:
        return NOT_CARRIED
    last = first + num - 1
    s.enter()
    if last > s.store.last_seq:
        first = max(first, s.store.last_seq + 1)
        rc = skip_msgs(s.store, first, last - first + 1, s.store.last_ts)
    pop_flight(g, last - num + g.refused)
    s.leave(jp.ps)
    return CARRIED_OUT if rc == STORE_OK else NOT_CARRIED


cdef bint read_range(const char *at, size_t n, uint64_t *first, uint64_t *num) noexcept nogil:
    """Read a DeleteRange of nats-server, as its JSON encoder writes it, with a line's end."""
    cdef size_t head = strlen(RANGE_FIRST), middle = strlen(RANGE_NUM)
    cdef const char *end = at + n
    cdef const char *comma
    while end > at and end[-1] == c'\n':
        end -= 1
    if end <= at + head or not starts_with_text(at, n, RANGE_FIRST) or end[-1] != c'}':
        return False
    end -= 1
    at += head
    comma = <const char *> memchr(at, c',', end - at)
    return comma != NULL and parse_uint64(at, comma - at, first) and (
        starts_with_text(comma, end - comma, RANGE_NUM)) and (
        parse_uint64(comma + middle, end - comma - middle, num)) and num[0] > 0


cdef void confirm_logged(StreamReplica g, StreamCore s, JsPoller *jp) noexcept nogil:
    """All is stored that was proposed before a confirmation: its leader publishes it."""
    cdef Flight *flight = <Flight *> g.in_flight.first
    if flight != NULL and flight.confirms and flight.proposal == NULL:
        publish_later(
            jp, s, flight.staged.entry.reply.p, flight.staged.entry.reply.n, flight.staged.m.hdr, flight.staged.m.hdr_n,
            NULL, 0, False)
        pop_flight(g, flight.seq)


cdef Carried store_logged(
    StreamReplica g, StreamCore s, JsPoller *jp, const StreamMsgOp *op, Part part
) noexcept nogil:
    cdef Flight *flight = <Flight *> g.in_flight.first
    cdef Outcome outcome
    cdef StreamEntry e
    cdef Inbound m
    if op.subject.n == 0 and op.ts == 0 and op.msg.n == 0 and op.hdr.n == 0:
        return skip_logged(g, s, jp, op)
    inbound_of(op, &m)
    if not transform_subject(s, jp, &m) or not entry_of_logged(s, &m, part, &e):
        inbound_free(&m)
        report_shortage(jp.ps)
        return NOT_CARRIED
    if header_set(&m.h, H_EXPECTED_LAST_MSG_ID):
        e.expected_id = m.h.values[H_EXPECTED_LAST_MSG_ID]
    if flight != NULL and flight.seq == op.seq and flight.proposal == NULL:
        e.reply, e.value, e.batch = flight.staged.entry.reply, flight.staged.entry.value, flight.staged.entry.batch
        e.batch_n, e.fast, e.part = flight.staged.entry.batch_n, flight.staged.entry.fast, flight.staged.entry.part
    elif part == ENDS_ATOMIC:
        e.part = OF_ATOMIC   # nobody here waits for an answer
    e.follows = not g.leads
    if s.cfg.mirror:
        e.seq = op.seq + 1
    outcome = store_entries(s, jp, &e)
    g.replaying = False
    if flight != NULL and flight.seq == op.seq and flight.staged.entry.no_interest and outcome == MSG_STORED:
        # Of a batch, messages that no consumer wants are stored, for the others' sake.
        acked_add(&g.unneeded, s.store.last_seq)
        g.node.dirty = True
    pop_flight(g, op.seq)
    inbound_free(&m)
    if outcome == MSG_STORED:
        return CARRIED_OUT
    if stream_failed(s):
        return NOT_CARRIED
    if not s.cfg.mirror:
        count_refused(g)
    return CARRIED_OUT


cdef void count_refused(StreamReplica g) noexcept nogil:
    """Count a message that the log has, and the store has not. A snapshot says so soon: a replay cannot tell it of
    sequences that were skipped."""
    g.refused += 1
    g.node.since = SOON


cdef Carried skip_logged(StreamReplica g, StreamCore s, JsPoller *jp, const StreamMsgOp *op) noexcept nogil:
    """Skip the sequence of a message that no consumer wants: the same at all, which know nothing else of it. The leader
    answers its publisher."""
    cdef Flight *flight = <Flight *> g.in_flight.first
    if skip_msgs(s.store, 0, 1, 0) != STORE_OK:
        return NOT_CARRIED
    if flight != NULL and flight.seq == op.seq and flight.proposal == NULL:
        answer(s, jp, &flight.staged.entry, s.store.last_seq)
        pop_flight(g, op.seq)
    return CARRIED_OUT


cdef void pop_flight(StreamReplica g, uint64_t seq) noexcept nogil:
    """Forget the first message in flight, if it is the one with this number. The stream's lock is held."""
    cdef Flight *flight = <Flight *> g.in_flight.first
    if flight == NULL or flight.seq != seq or flight.proposal != NULL:
        return
    g.in_flight.first = flight.staged.next
    if flight.staged.m.subject.n:
        g.in_flight.n -= 1
    else:
        g.in_flight.skipped -= flight.seqs
    g.in_flight.bytes -= flight.bytes
    if g.last == flight:
        g.last = NULL
    free_flight(flight)


LOG.propose = propose
LOG.change = apply_change
LOG.expire = expire
LOG.skip = skip
LOG.confirm = confirm
LOG.drop = drop_unneeded
MACHINE.collect = collect
MACHINE.apply = apply
MACHINE.lead_changed = lead_changed
