"""A member of a Raft group in a server; see raftnode.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

import os

from gnats.core.accounts.account cimport Account
from gnats.core.accounts.subscriptions cimport remove_all_subs
from gnats.core.batch cimport end_batch_between_rounds
from gnats.core.internal cimport InternalSubscriber
from gnats.core.messages.message cimport Message, MessageHandler
from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.clock cimport monotonic_ns
from gnats.core.runtime.inbox cimport EV_JETSTREAM
from gnats.core.runtime.kinds cimport JETSTREAM
from gnats.core.runtime.quiesce cimport qs_offline, qs_online
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport Subscription
from gnats.includes.atomics cimport exchange8
from gnats.includes.pthread cimport (
    pthread_cond_broadcast,
    pthread_cond_destroy,
    pthread_cond_init,
    pthread_cond_wait,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from gnats.includes.text cimport NUMBER_ROOM, put_number
from gnats.jetstream.engine.barrier cimport JsPoller, js_poller_of, mark_dirty
from gnats.jetstream.engine.engine cimport Engine
from gnats.jetstream.engine.nativesubs cimport subscribe_native
from gnats.jetstream.engine.outbox cimport publish_flushed
from gnats.raft.files cimport RaftFiles
from gnats.raft.messages cimport PEER_SIZE, AppendEntry, Entry, Snapshot, get64, next_entry
from gnats.raft.raft cimport (
    raft_append_entry,
    raft_applied,
    raft_begin,
    raft_campaign,
    raft_deadline,
    raft_expect,
    raft_flush,
    raft_free,
    raft_init,
    raft_propose,
    raft_propose_peer,
    raft_response,
    raft_saved,
    raft_set_observer,
    raft_step_down,
    raft_stored,
    raft_tick,
    raft_vote_request,
    raft_vote_response,
)
from gnats.raft.snapshots cimport raft_begin_snapshot, raft_end_snapshot
from gnats.raft.state cimport (
    RAFT_LEADER,
    RAFT_NO_MEMORY,
    RAFT_STORE,
    SEND_APPEND,
    SEND_BEHIND,
    SEND_CATCHUP,
    SEND_VOTE,
    SUBJECT_ROOM,
    VIA_CATCHUP,
    VIA_NEW,
    Raft,
    RaftEnv,
    RaftFailure,
    RaftSend,
    fail,
    find_peer,
)

from gnats.nkeys.identity import DIGITS

STATES = ("Follower", "Candidate", "Leader")
FAILURES = (
    "", "out of memory", "the log or a file could not be written or read",
    "a leader asked to remove what is committed", "two servers led in one term",
)

cdef enum:
    MOST_APPLIED = 64 << 20   # bytes of committed records that may wait for Python
    MUCH_RECORDS = 16384      # records, or bytes of entries, after which a snapshot does not wait for its time
    MUCH_BYTES = 64 << 20

# What ask() does.
cdef enum:
    PROPOSE, FORWARD, ADD_PEER, REMOVE_PEER, STEP_DOWN, CAMPAIGN, EXPECT, OBSERVE, APPLIED_TO, RESUME

cdef RaftEnv ENV


cdef class RaftNode(StreamBase):
    """A member of the Raft group `group`. For the control loop's thread, unless a method says otherwise.

    `account` is the system account, `files` the member's directory, `peer` its 8 bytes. Call recover(), then begin();
    the owner handles RAFT_NEWS by take(). `cid`: the connection id of its subscriptions. `managed`: its peers change
    only when they are proposed; otherwise a leader adds those that it hears. Raises MemoryError.
    """

    def __init__(
        self, Engine engine not None, Account account not None, RaftFiles files not None, str group not None,
        bytes peer not None, *, uint64_t cid, bint managed=True, bint sync_always=False,
    ):
        if len(peer) != PEER_SIZE:
            raise ValueError(f"{peer!r} is not the name of a peer: it has not {PEER_SIZE} bytes")
        pthread_mutex_init(&self.lock, NULL)
        pthread_cond_init(&self.left, NULL)
        self.engine = engine
        self.account = account
        self.files = files
        self.group = group
        self.sync_always = sync_always
        self.client = InternalSubscriber(JETSTREAM, -1, cid, engine.pollers[0], engine.state)
        self.client.register(account)
        self.barrier.syncs = True
        self.last_applied = &self.first_applied
        raft_init(&self.raft, &ENV, <void *> self, get64(peer), random_seed())
        self.raft.managed = managed
        name = group.encode()
        set_inbox(&self.proposal_subject, b"$NRG.P." + name)
        set_inbox(&self.append_subject, b"$NRG.AE." + name)
        set_inbox(&self.vote_subject, b"$NRG.V." + name)
        set_inbox(&self.append_reply, b"$NRG.R." + random_token())
        set_inbox(&self.vote_reply, b"$NRG.R." + random_token())
        set_inbox(&self.catchup, b"$NRG.CR." + random_token())
        self.catchup_root = self.catchup.n
        self.catchup.n = 0
        self.timer.timer.owner = <void *> self
        self.timer.fn = on_timer
        self.reserved = engine.reserve(1)
        if not self.reserved:
            raise MemoryError
        engine.start_sync()

    cdef void set_machine(self, const RaftMachine *machine, void *owner) noexcept:
        self.machine = machine
        self.machine_owner = owner
        self.held = True   # before begin() there is no poller

    def __dealloc__(self):
        self.release()
        raft_free(&self.raft)
        drop_applied(self.first_applied)
        pthread_mutex_destroy(&self.lock)
        pthread_cond_destroy(&self.left)

    def __repr__(self) -> str:
        return f"<RaftNode {self.group!r}>"

    cdef void release(self) noexcept:
        if self.reserved and self.engine is not None:
            self.engine.reserve(-1)
        self.reserved = False

    # -- its life ----------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Read the files; take() then returns the last snapshot and what is known to be committed.

        Any thread, once, before anything else. Raises OSError, FilesError, MemoryError.
        """
        cdef Applied *rest
        cdef Snapshot snapshot
        self.files.recover(&self.raft)
        self.flushed = self.synced_to = self.raft.pindex
        if self.files.load_snapshot(&snapshot) > 0:
            rest, self.first_applied, self.last_applied = self.first_applied, NULL, &self.first_applied
            restore(<void *> self, &snapshot)
            if self.raft.failure:
                drop_applied(rest)
                raise MemoryError
            self.last_applied[0] = rest
            while self.last_applied[0] != NULL:
                self.last_applied = &self.last_applied[0].next

    def begin(self, bint recovering, bint observer=False) -> None:
        """Take part in the group. `recovering`: it may have been a member before; an empty log tells that it has lost
        its records then. Raises MemoryError."""
        self.subscribe(self.append_subject.p[:self.append_subject.n], on_append_entry)
        self.subscribe(self.vote_subject.p[:self.vote_subject.n], on_vote_request)
        self.subscribe(self.proposal_subject.p[:self.proposal_subject.n], on_proposal)
        self.subscribe(b"$NRG.RP." + self.group.encode(), on_removal)
        self.subscribe(self.append_reply.p[:self.append_reply.n], on_response)
        self.subscribe(self.vote_reply.p[:self.vote_reply.n], on_vote_response)
        self.subscribe(self.catchup.p[:self.catchup_root] + b".*", on_catchup)
        with nogil:
            qs_online(&self.engine.control.qs)
            self.engine.control.now = monotonic_ns()
            self.enter(self.engine.control)
            self.begun = True
            raft_set_observer(&self.raft, observer, self.ps.now)
            raft_begin(&self.raft, recovering, self.ps.now)
            self.go_on()
            self.leave()
            qs_offline(&self.engine.control.qs)

    cdef int subscribe(self, bytes subject, MessageHandler fn) except -1:
        subscribe_native(self.client, subject, b"", <void *> self, fn)
        return 0

    def close(self) -> None:
        """Leave the group for now, and close the files. Idempotent. Raises StoreFailure."""
        if self.closed:
            return
        remove_all_subs(self.client)
        with nogil:
            pthread_mutex_lock(&self.lock)
            self.closed = True
            self.begun = False
            while self.outside:
                pthread_cond_wait(&self.left, &self.lock)
            pthread_mutex_unlock(&self.lock)
        self.engine.arm(&self.timer, 0)
        self.release()
        self.engine.bury(self)
        self.files.close()

    cdef bint go_outside(self) noexcept nogil:
        if self.closed:
            return False
        self.outside += 1
        return True

    cdef void come_back(self) noexcept nogil:
        self.outside -= 1
        if self.outside == 0:
            pthread_cond_broadcast(&self.left)

    # -- for its owner -----------------------------------------------------------------------------------------------

    cdef bint ask(self, int what, uint64_t number, const char *data, size_t n) noexcept:
        """Have the state machine do something, in a batch of the control loop's poller."""
        cdef PollState *ps = self.engine.control
        cdef bint done = True
        with nogil:
            qs_online(&ps.qs)
            ps.now = monotonic_ns()
            self.enter(ps)
            if what == APPLIED_TO:
                raft_applied(&self.raft, number)
            elif what == RESUME:
                self.busy = False
                if self.first_applied == NULL or self.first_applied.index != number or (
                        self.first_applied.kind != APPLIED_ENTRIES):
                    raft_applied(&self.raft, number)   # else the rest of the record is carried out first
                if self.begun:
                    self.go_on()
            elif not self.begun:
                done = False
            elif what == FORWARD and not self.raft.announced:
                publish_flushed(
                    js_poller_of(ps), self, self.proposal_subject.p, self.proposal_subject.n, NULL, 0, data, n)
            elif what == PROPOSE or what == FORWARD:
                done = raft_propose(&self.raft, data, n, ps.now)
                self.dirty = True
            elif what == ADD_PEER or what == REMOVE_PEER:
                done = raft_propose_peer(&self.raft, number, what == REMOVE_PEER, ps.now)
            elif what == STEP_DOWN:
                done = raft_step_down(&self.raft, number, ps.now)
            elif what == CAMPAIGN:
                raft_campaign(&self.raft, ps.now)
            elif what == EXPECT:
                raft_expect(&self.raft, <uint32_t> number)
            elif what == OBSERVE:
                raft_set_observer(&self.raft, number != 0, ps.now)
            self.leave()
            end_batch_between_rounds(ps)
            qs_offline(&ps.qs)
        return done

    def propose(self, bytes data not None) -> bool:
        """Propose an entry. False: this server does not lead, or too much waits. It is committed when take() says so.
        """
        return self.ask(PROPOSE, 0, data, len(data))

    def forward_proposal(self, bytes data not None) -> None:
        """Propose an entry, at the leader. It may be lost."""
        self.ask(FORWARD, 0, data, len(data))

    def propose_peer(self, bytes peer not None, bint removes=False) -> bool:
        """Propose to add or remove a peer. False: this server does not lead, or a change is under way."""
        return self.ask(REMOVE_PEER if removes else ADD_PEER, peer_of(peer), NULL, 0)

    def step_down(self, bytes preferred=b"") -> bool:
        """Let another peer lead, `preferred` if it is there. False: this server does not lead."""
        return self.ask(STEP_DOWN, peer_of(preferred) if preferred else 0, NULL, 0)

    def campaign(self) -> None:
        """Become a candidate soon."""
        self.ask(CAMPAIGN, 0, NULL, 0)

    def expect(self, uint32_t size) -> None:
        """Count so many servers as members, unless there has been a leader."""
        self.ask(EXPECT, size, NULL, 0)

    def set_observer(self, bint observer) -> None:
        """Never become a candidate, or again."""
        self.ask(OBSERVE, observer, NULL, 0)

    def applied(self, uint64_t index) -> None:
        """Say that what take() has returned up to an index is carried out."""
        self.ask(APPLIED_TO, index, NULL, 0)

    def take(self) -> list:
        """Return what has happened, in order: tuples (kind, index or term, value).

        The value is a list of (EntryType, data), the data of a snapshot or of an entry, the name of a leader, or None.
        After a restart it is returned again, even if nobody else can be reached. Nothing is returned when the group has
        failed. A machine hands on some entries alone; when the last one is APPLIED_CHANGE or APPLIED_SNAPSHOT, carry it
        out and call resume().
        """
        cdef Applied *first
        cdef Applied *at
        cdef uint64_t index = 0
        cdef list found = []
        with nogil:
            pthread_mutex_lock(&self.lock)
            first = self.cut_queue()
            self.told = self.raft.failure != 0
            pthread_mutex_unlock(&self.lock)
            at = first if self.machine == NULL else NULL   # a machine's store says what it has carried out
            while at != NULL:
                if at.kind == APPLIED_ENTRIES or at.kind == APPLIED_SNAPSHOT:
                    index = at.index
                at = at.next
            if self.machine == NULL and self.files.save_commit(index, self.sync_always) < 0:
                pthread_mutex_lock(&self.lock)
                fail(&self.raft, RAFT_STORE)
                pthread_mutex_unlock(&self.lock)
                drop_applied(first)
                first = NULL
        at = first
        try:
            while at != NULL:
                if at.kind == APPLIED_ENTRIES:
                    found.append((APPLIED_ENTRIES, at.index, entries_of(at)))
                elif at.kind == APPLIED_LEADER:
                    found.append((APPLIED_LEADER, 0, name_of(at.index)))
                else:
                    has_data = at.kind in (APPLIED_SNAPSHOT, APPLIED_CHANGE)
                    found.append((at.kind, at.index, at.data[:at.n] if has_data else None))
                at = at.next
        finally:
            drop_applied(first)
        return found

    def resume(self, uint64_t index) -> None:
        """Have the machine go on: the snapshot or the change that take() has returned last is carried out."""
        self.ask(RESUME, index, NULL, 0)

    def install_snapshot(self, uint64_t index, bytes data not None) -> bool:
        """Replace the records up to `index`, which is applied, by a snapshot. False: there is a later one, or the group
        has failed. Any thread, one at a time; it waits for the disk."""
        cdef Snapshot snapshot
        cdef const char *temporary = b"made.tmp"
        cdef bint done
        snapshot.data.p = data
        snapshot.data.n = len(data)
        with nogil:
            pthread_mutex_lock(&self.lock)
            done = not self.closed and raft_begin_snapshot(&self.raft, index, &snapshot) and self.go_outside()
            pthread_mutex_unlock(&self.lock)
            if done:
                done = self.files.write_snapshot(&snapshot, temporary) == 0
                pthread_mutex_lock(&self.lock)
                self.come_back()
                if not done:
                    fail(&self.raft, RAFT_STORE)
                elif self.closed or self.raft.failure or index <= self.raft.snapshot_index:
                    done = False
                elif self.files.adopt_snapshot(temporary, snapshot.term, index) < 0 or (
                        self.files.drop_up_to(index, False) < 0):
                    fail(&self.raft, RAFT_STORE)
                    done = False
                else:
                    raft_end_snapshot(&self.raft, &snapshot)
                    self.since = self.said = 0
                pthread_mutex_unlock(&self.lock)
                free(snapshot.peers.p)
        return done

    @property
    def failure(self) -> str:
        """Why the group has stopped; empty when it has not."""
        cdef RaftFailure why
        with nogil:
            pthread_mutex_lock(&self.lock)
            why = self.raft.failure
            pthread_mutex_unlock(&self.lock)
        return f"{FAILURES[why]}: {self.files.failure}" if why == RAFT_STORE else FAILURES[why]

    @property
    def leads(self) -> bool:
        """Whether this server leads, and has applied what the leaders before it have committed."""
        cdef bint leads
        with nogil:
            pthread_mutex_lock(&self.lock)
            leads = self.raft.state == RAFT_LEADER and self.raft.announced
            pthread_mutex_unlock(&self.lock)
        return leads

    @property
    def leader(self) -> bytes:
        """The leader as far as this server knows; b"": none."""
        cdef uint64_t leader
        with nogil:
            pthread_mutex_lock(&self.lock)
            leader = self.raft.leader
            pthread_mutex_unlock(&self.lock)
        return name_of(leader)

    @property
    def peer(self) -> bytes:
        """The name of this member."""
        return name_of(self.raft.id)

    def state(self) -> dict:
        """Return the numbers of the state, and the peers: {name: (index, ns since heard of or -1)}."""
        cdef size_t i
        cdef int64_t now = monotonic_ns()
        with nogil:
            pthread_mutex_lock(&self.lock)
        try:
            r = &self.raft
            return {
                "state": STATES[r.state], "term": r.term, "vote": name_of(r.vote), "leader": name_of(r.leader),
                "pterm": r.pterm, "pindex": r.pindex, "durable": r.durable, "commit": r.commit, "applied": r.applied,
                "snapshot": r.snapshot_index, "size": r.size, "quorum": r.size // 2 + 1, "observer": bool(r.observer),
                "catching_up": bool(r.catching_up), "doubted": r.doubted,
                "changing": name_of(r.change.peer) if r.change.index else b"",
                "peers": {
                    name_of(r.peers[i].id): (
                        r.pindex if r.peers[i].id == r.id else r.peers[i].match,
                        now - r.peers[i].heard if r.peers[i].heard else -1)
                    for i in range(r.npeers)
                },
            }
        finally:
            pthread_mutex_unlock(&self.lock)

    # -- around each use of the state machine ------------------------------------------------------------------------

    cdef void enter(self, PollState *ps) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        self.ps = ps

    cdef void leave(self) noexcept nogil:
        """Have done what is left to do, and release the lock."""
        cdef PollState *ps = self.ps
        cdef bint dirty = self.dirty
        cdef int64_t when
        self.ps = NULL
        self.dirty = False
        if self.begun and not self.raft.failure:
            when = raft_deadline(&self.raft)
            if self.armed == 0 or when < self.armed:
                self.armed = when
                self.engine.arm(&self.timer, when)
        if self.begun and self.raft.leader != self.shown_leader and not self.raft.failure:
            self.shown_leader = self.raft.leader
            self.note(APPLIED_LEADER, self.shown_leader, 0, NULL, 0)
        if self.machine != NULL and self.begun and self.said < APPLIED_MUCH:
            self.note_applied()
        if self.has_news() and not self.told:
            self.told = self.client.inbox.post_data(
                EV_JETSTREAM, <void *> self, &self.client.inbox.own, RAFT_NEWS, 0, NULL, 0)
        pthread_mutex_unlock(&self.lock)
        if dirty and not mark_dirty(js_poller_of(ps), self):
            self.flush(js_poller_of(ps))   # out of memory: the end of the batch would not do it

    cdef void note_applied(self) noexcept nogil:
        cdef uint64_t since = self.raft.applied - self.raft.snapshot_index
        cdef uint8_t what = 0
        if since >= MUCH_RECORDS or self.since >= MUCH_BYTES:
            what = APPLIED_MUCH
        elif since:
            what = APPLIED_SOME
        if what > self.said:
            self.said = what
            self.note(what, 0, 0, NULL, 0)

    cdef bint has_news(self) noexcept nogil:
        """Return whether take() has something to return, or the group has failed."""
        if self.raft.failure:
            return True
        if self.first_applied == NULL or self.busy:
            return False
        return self.machine == NULL or self.first_applied.kind != APPLIED_ENTRIES

    cdef Applied *cut_queue(self) noexcept nogil:
        """Take what take() returns out of the queue."""
        cdef Applied *first = self.first_applied
        cdef Applied **at = &self.first_applied
        if not self.has_news():
            return NULL
        while at[0] != NULL and not self.busy and (self.machine == NULL or at[0].kind != APPLIED_ENTRIES):
            self.applied_bytes -= sizeof(Applied) + at[0].n
            self.busy = self.machine != NULL and at[0].kind in (APPLIED_CHANGE, APPLIED_SNAPSHOT)
            at = &at[0].next
        self.first_applied = at[0]
        at[0] = NULL
        if self.first_applied == NULL:
            self.last_applied = &self.first_applied
        self.raft.full = self.applied_bytes > MOST_APPLIED
        return first

    cdef void append(self, Applied *a) noexcept nogil:
        while a != NULL:
            self.last_applied[0] = a
            self.last_applied = &a.next
            self.applied_bytes += sizeof(Applied) + a.n
            a = a.next
        self.raft.full = self.applied_bytes > MOST_APPLIED

    cdef void note(self, uint32_t kind, uint64_t index, uint32_t entries, const char *data, size_t n) noexcept nogil:
        cdef Applied *a = applied_new(kind, index, entries, data, n)
        if a == NULL:
            fail(&self.raft, RAFT_NO_MEMORY)
        self.append(a)

    # -- a machine's entries -----------------------------------------------------------------------------------------

    cdef bint propose_entry(self, const char *data, size_t n) noexcept nogil:
        return raft_propose(&self.raft, data, n, self.ps.now)

    cdef void poke(self) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        if self.begun and not self.poked:
            self.poked = True
            self.armed = 1
            self.engine.arm(&self.timer, 1)
        pthread_mutex_unlock(&self.lock)

    cdef Applied *carry_out(self, uint64_t index, const char *entries, size_t n) noexcept nogil:
        cdef JsPoller *jp = js_poller_of(self.ps)
        cdef const char *at = entries
        cdef AppendEntry ae
        cdef Applied *handed
        cdef Entry entry
        cdef Carried done
        ae.entries.p = <char *> entries
        ae.entries.n = n
        while next_entry(&ae, &at, &entry):
            done = self.machine.apply(self.machine_owner, jp, &entry)
            if done == CARRIED_OUT:
                continue
            if done == NOT_CARRIED:
                fail(&self.raft, RAFT_STORE)
                return NULL
            self.held = True
            handed = applied_new(APPLIED_CHANGE, index, 1, entry.data.p, entry.data.n)
            if handed != NULL and at != entries + n:
                handed.next = applied_new(APPLIED_ENTRIES, index, 0, at, entries + n - at)
            if handed == NULL or (at != entries + n and handed.next == NULL):
                fail(&self.raft, RAFT_NO_MEMORY)
            return handed
        raft_applied(&self.raft, index)
        self.since += n
        return NULL

    cdef void go_on(self) noexcept nogil:
        cdef Applied **at = &self.first_applied
        cdef Applied *done
        cdef Applied *handed
        if self.machine == NULL or self.busy:
            return
        self.held = False
        while at[0] != NULL and not self.held and not self.raft.failure:
            done = at[0]
            if done.kind in (APPLIED_CHANGE, APPLIED_SNAPSHOT):
                self.held = True
            if done.kind != APPLIED_ENTRIES:
                at = &done.next
                continue
            handed = self.carry_out(done.index, done.data, done.n)
            self.applied_bytes -= sizeof(Applied) + done.n
            at[0] = handed
            while at[0] != NULL:
                self.applied_bytes += sizeof(Applied) + at[0].n
                at = &at[0].next
            at[0] = done.next
            if self.last_applied == &done.next:
                self.last_applied = at
            free(done)
        self.raft.full = self.applied_bytes > MOST_APPLIED

    # -- the engine's ------------------------------------------------------------------------------------------------

    cdef int flush(self, JsPoller *jp) noexcept nogil:
        cdef uint64_t last
        cdef bint begun
        self.enter(jp.ps)
        begun = self.begun   # what the machine belongs to may go once it is closed
        if begun and not self.raft.failure:
            if self.machine != NULL:
                self.machine.collect(self.machine_owner, self)
            raft_flush(&self.raft, jp.ps.now)
            if self.files.flush(&last) < 0:
                fail(&self.raft, RAFT_STORE)
            else:
                self.flushed = last
                if not self.sync_always:
                    raft_stored(&self.raft, last)
                    raft_flush(&self.raft, jp.ps.now)
                if self.vote_waits or (self.sync_always and self.flushed > self.synced_to):
                    exchange8(&self.barrier.unsynced, 1)
        self.dirty = False
        self.leave()
        if begun and self.machine != NULL and self.machine.settle != NULL:
            self.machine.settle(self.machine_owner, jp)
        return 0

    cdef int sync(self) noexcept nogil:
        cdef uint64_t term, vote, flushed, cuts
        cdef bint votes, logs
        cdef int rc = 0
        pthread_mutex_lock(&self.lock)
        if not self.go_outside():
            pthread_mutex_unlock(&self.lock)
            return 0
        term, vote, flushed, cuts = self.raft.term, self.raft.vote, self.flushed, self.cuts
        votes = self.vote_waits
        logs = self.sync_always and flushed > self.synced_to
        pthread_mutex_unlock(&self.lock)
        if logs:
            rc = self.files.sync_log()
        if votes and rc == 0:
            rc = self.files.save_vote(term, vote)
        pthread_mutex_lock(&self.lock)
        self.come_back()
        if rc:
            self.sync_failed = True
        else:
            if logs and cuts == self.cuts:
                self.synced_to = max(self.synced_to, flushed)
            if votes and self.raft.term == term and self.raft.vote == vote:
                self.vote_waits = False
                self.vote_written = True
        pthread_mutex_unlock(&self.lock)
        return rc

    cdef void synced(self, JsPoller *jp) noexcept nogil:
        self.enter(jp.ps)
        if self.begun and not self.raft.failure:
            if self.sync_failed:
                fail(&self.raft, RAFT_STORE)
            if self.sync_always:
                raft_stored(&self.raft, self.synced_to)
            if self.vote_written:
                self.vote_written = False
                raft_saved(&self.raft, jp.ps.now)
            # A vote that came meanwhile, records behind a cut, and what was committed by this.
            self.dirty = True
        self.leave()


cdef uint64_t peer_of(bytes peer) except? 0:
    if len(peer) != PEER_SIZE:
        raise ValueError(f"{peer!r} is not the name of a peer: it has not {PEER_SIZE} bytes")
    return get64(peer)


cdef bytes name_of(uint64_t peer):
    return (<const char *> &peer)[:PEER_SIZE] if peer else b""


cdef list entries_of(Applied *a):
    cdef AppendEntry ae
    cdef Entry entry
    cdef list found = []
    cdef const char *at = a.data
    ae.entries.p = a.data
    ae.entries.n = a.n
    while next_entry(&ae, &at, &entry):
        found.append((entry.type, entry.data.p[:entry.data.n]))
    return found


cdef Applied *applied_new(uint32_t kind, uint64_t index, uint32_t entries, const char *data, size_t n) noexcept nogil:
    cdef Applied *a = <Applied *> malloc(sizeof(Applied) + n)
    if a != NULL:
        a.next = NULL
        a.kind, a.index, a.entries, a.n = kind, index, entries, n
        if n:
            memcpy(a.data, data, n)
    return a


cdef void drop_applied(Applied *first) noexcept nogil:
    cdef Applied *following
    while first != NULL:
        following = first.next
        free(first)
        first = following


cdef bytes random_token():
    # os.urandom: the module secrets loads OpenSSL
    return "".join(DIGITS[byte % len(DIGITS)] for byte in os.urandom(8)).encode()


cdef uint64_t random_seed():
    return int.from_bytes(os.urandom(7), "little")


cdef int set_inbox(Inbox *inbox, bytes subject) except -1:
    if len(subject) > SUBJECT_ROOM - NUMBER_ROOM:
        raise ValueError(f"{subject!r} is too long")
    memcpy(inbox.p, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
    inbox.n = PyBytes_GET_SIZE(subject)
    return 0


# -- messages and the timer; each is called in a poller's thread -------------------------------------------------------

cdef void on_timer(void *owner, PollState *ps) noexcept nogil:
    (<RaftNode> owner).enter(ps)
    (<RaftNode> owner).armed = 0
    if (<RaftNode> owner).poked:
        (<RaftNode> owner).poked = False
        (<RaftNode> owner).dirty = True
    if (<RaftNode> owner).begun:
        raft_tick(&(<RaftNode> owner).raft, ps.now)
    (<RaftNode> owner).leave()


cdef bint on_append_entry(void *ctx, const Message *m, const Subscription *sub) noexcept nogil:
    (<RaftNode> ctx).enter(m.ps)
    if (<RaftNode> ctx).begun:
        raft_append_entry(&(<RaftNode> ctx).raft, VIA_NEW, m.data + m.hdr, m.n - m.hdr, &m.reply, m.ps.now)
    (<RaftNode> ctx).leave()
    return True


cdef bint on_catchup(void *ctx, const Message *m, const Subscription *sub) noexcept nogil:
    cdef Inbox *inbox = &(<RaftNode> ctx).catchup
    (<RaftNode> ctx).enter(m.ps)
    if (<RaftNode> ctx).begun and m.subject.n == inbox.n and memcmp(m.subject.p, inbox.p, inbox.n) == 0:
        raft_append_entry(&(<RaftNode> ctx).raft, VIA_CATCHUP, m.data + m.hdr, m.n - m.hdr, &m.reply, m.ps.now)
    (<RaftNode> ctx).leave()
    return True


cdef bint on_response(void *ctx, const Message *m, const Subscription *sub) noexcept nogil:
    (<RaftNode> ctx).enter(m.ps)
    if (<RaftNode> ctx).begun:
        raft_response(&(<RaftNode> ctx).raft, m.data + m.hdr, m.n - m.hdr, &m.reply, m.ps.now)
        (<RaftNode> ctx).dirty = True   # raft_flush() tells the followers what is committed
    (<RaftNode> ctx).leave()
    return True


cdef bint on_vote_request(void *ctx, const Message *m, const Subscription *sub) noexcept nogil:
    (<RaftNode> ctx).enter(m.ps)
    if (<RaftNode> ctx).begun:
        raft_vote_request(&(<RaftNode> ctx).raft, m.data + m.hdr, m.n - m.hdr, &m.reply, m.ps.now)
    (<RaftNode> ctx).leave()
    return True


cdef bint on_vote_response(void *ctx, const Message *m, const Subscription *sub) noexcept nogil:
    (<RaftNode> ctx).enter(m.ps)
    if (<RaftNode> ctx).begun:
        raft_vote_response(&(<RaftNode> ctx).raft, m.data + m.hdr, m.n - m.hdr, m.ps.now)
    (<RaftNode> ctx).leave()
    return True


cdef bint on_proposal(void *ctx, const Message *m, const Subscription *sub) noexcept nogil:
    (<RaftNode> ctx).enter(m.ps)
    if (<RaftNode> ctx).begun and (<RaftNode> ctx).raft.announced:
        raft_propose(&(<RaftNode> ctx).raft, m.data + m.hdr, m.n - m.hdr, m.ps.now)
        (<RaftNode> ctx).dirty = True
    (<RaftNode> ctx).leave()
    return True


cdef bint on_removal(void *ctx, const Message *m, const Subscription *sub) noexcept nogil:
    cdef Raft *r = &(<RaftNode> ctx).raft
    (<RaftNode> ctx).enter(m.ps)
    if (<RaftNode> ctx).begun and r.announced and r.npeers > 1 and m.n - m.hdr == PEER_SIZE:
        if find_peer(r, get64(m.data + m.hdr)) != NULL:
            raft_propose_peer(r, get64(m.data + m.hdr), True, m.ps.now)
    (<RaftNode> ctx).leave()
    return True


# -- what the state machine wants done; the lock is held ---------------------------------------------------------------

cdef int store(void *o, uint64_t index, const char *data, size_t n) noexcept nogil:
    (<RaftNode> o).dirty = True
    return (<RaftNode> o).files.store(index, data, n)


cdef int load(void *o, uint64_t index, Slice *data) noexcept nogil:
    return (<RaftNode> o).files.load(index, data)


cdef void forget_flushed(RaftNode node, uint64_t index) noexcept nogil:
    """The log has been cut behind an index: the same numbers will be other records."""
    node.cuts += 1
    node.flushed = min(node.flushed, index)
    node.synced_to = min(node.synced_to, index)


cdef int truncate(void *o, uint64_t index) noexcept nogil:
    forget_flushed(<RaftNode> o, index)
    return (<RaftNode> o).files.truncate(index)


cdef int save_snapshot(void *o, const Snapshot *snapshot, bint all) noexcept nogil:
    if all:
        forget_flushed(<RaftNode> o, snapshot.index)
    return (<RaftNode> o).files.save_snapshot(snapshot, all)


cdef int load_snapshot(void *o, Snapshot *snapshot) noexcept nogil:
    return (<RaftNode> o).files.load_snapshot(snapshot)


cdef int save_vote(void *o, uint64_t term, uint64_t vote) noexcept nogil:
    (<RaftNode> o).vote_waits = True
    (<RaftNode> o).vote_written = False
    (<RaftNode> o).dirty = True
    return 0


cdef int save_peers(void *o, const char *data, size_t n) noexcept nogil:
    return (<RaftNode> o).files.save_peers(data, n)


cdef void send(void *o, RaftSend to, const Slice *subject, const char *data, size_t n) noexcept nogil:
    send_rpc(<RaftNode> o, to, subject, data, n)


cdef void send_rpc(RaftNode node, RaftSend to, const Slice *subject, const char *data, size_t n) noexcept nogil:
    cdef Slice at, reply
    reply.p = NULL
    reply.n = 0
    if to == SEND_APPEND:
        at.p, at.n = node.append_subject.p, node.append_subject.n
        reply.p, reply.n = node.append_reply.p, node.append_reply.n
    elif to == SEND_VOTE:
        at.p, at.n = node.vote_subject.p, node.vote_subject.n
        reply.p, reply.n = node.vote_reply.p, node.vote_reply.n
    else:
        at = subject[0]
        if to == SEND_BEHIND:
            reply.p, reply.n = node.catchup.p, node.catchup.n
        elif to == SEND_CATCHUP:
            reply.p, reply.n = node.append_reply.p, node.append_reply.n
    if at.n:
        # Without memory the message is lost, as it may be on its way.
        publish_flushed(js_poller_of(node.ps), node, at.p, at.n, reply.p, reply.n, data, n)


cdef void open_catchup(void *o) noexcept nogil:
    new_catchup(<RaftNode> o)


cdef void new_catchup(RaftNode node) noexcept nogil:
    node.catchups += 1
    node.catchup.p[node.catchup_root] = c'.'
    node.catchup.n = put_number(node.catchup.p + node.catchup_root + 1, node.catchups) - node.catchup.p


cdef void close_catchup(void *o) noexcept nogil:
    (<RaftNode> o).catchup.n = 0


cdef void commit(void *o, uint64_t index, const AppendEntry *ae) noexcept nogil:
    if (<RaftNode> o).machine == NULL or (<RaftNode> o).held:
        (<RaftNode> o).note(APPLIED_ENTRIES, index, ae.n, ae.entries.p, ae.entries.n)
    else:
        (<RaftNode> o).append((<RaftNode> o).carry_out(index, ae.entries.p, ae.entries.n))


cdef void restore(void *o, const Snapshot *snapshot) noexcept nogil:
    (<RaftNode> o).note(APPLIED_SNAPSHOT, snapshot.index, 0, snapshot.data.p, snapshot.data.n)
    (<RaftNode> o).held = (<RaftNode> o).machine != NULL


cdef void lead_changed(void *o, bint leads, uint64_t term) noexcept nogil:
    if (<RaftNode> o).machine != NULL:
        (<RaftNode> o).machine.lead_changed((<RaftNode> o).machine_owner, leads, term)
    (<RaftNode> o).note(APPLIED_LEAD if leads else APPLIED_FOLLOW, term, 0, NULL, 0)


cdef void trusted(void *o) noexcept nogil:
    if (<RaftNode> o).files.forget_distrust() < 0:
        fail(&(<RaftNode> o).raft, RAFT_STORE)
    (<RaftNode> o).note(APPLIED_TRUST, 0, 0, NULL, 0)


cdef void failed(void *o, RaftFailure why) noexcept nogil:
    pass   # leave() tells the owner


ENV.store, ENV.load, ENV.truncate = store, load, truncate
ENV.save_snapshot, ENV.load_snapshot = save_snapshot, load_snapshot
ENV.save_vote, ENV.save_peers, ENV.send = save_vote, save_peers, send
ENV.open_catchup, ENV.close_catchup = open_catchup, close_catchup
ENV.commit, ENV.restore, ENV.lead_changed, ENV.trusted, ENV.failed = commit, restore, lead_changed, trusted, failed
