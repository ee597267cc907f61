"""Drives a Raft from Python, for tests: an object stands for its log, its files and its network."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t

from gnats.core.runtime.slice cimport Slice
from gnats.raft.files cimport RaftFiles
from gnats.raft.messages cimport AppendEntry, Entry, PeerState, Snapshot, decode_peer_state, get64, next_entry
from gnats.raft.raft cimport (
    raft_append_entry,
    raft_applied,
    raft_begin,
    raft_campaign,
    raft_deadline,
    raft_distrust,
    raft_flush,
    raft_free,
    raft_init,
    raft_propose,
    raft_propose_peer,
    raft_recover,
    raft_replay,
    raft_response,
    raft_saved,
    raft_set_observer,
    raft_step_down,
    raft_stored,
    raft_tick,
    raft_vote_request,
    raft_vote_response,
)
from gnats.raft.snapshots cimport raft_save_snapshot
from gnats.raft.state cimport VIA_CATCHUP, VIA_NEW, Raft, RaftEnv, RaftFailure, RaftSend

cdef RaftEnv ENV


cdef Slice slice_of(bytes data):
    cdef Slice s
    s.p = data
    s.n = len(data)
    return s


cdef bytes name_of(uint64_t peer):
    return (<const char *> &peer)[:8] if peer else b""


cdef class RaftProbe:
    """One member of a group. `world` has the functions of a RaftEnv, with bytes for slices and snapshots as tuples.

    An exception in one of them is kept in `error`, and raised by the call that it came from.
    """
    cdef Raft r
    cdef object world
    cdef object error
    cdef bytes loaded          # what the last load, or load_snapshot, points into
    cdef bytes loaded_peers

    def __cinit__(self, object world not None, bytes name not None, uint64_t seed):
        raft_init(&self.r, &ENV, <void *> self, get64(name), seed)
        self.r.managed = True
        self.world = world

    def __dealloc__(self):
        raft_free(&self.r)

    cdef object raised(self):
        error, self.error = self.error, None
        if error is not None:
            raise error

    def set_times(self, **times) -> None:
        """Set some of RaftTimes, in ns."""
        for name, value in times.items():
            if name == "election":
                self.r.times.election_least, self.r.times.election_most = value
            elif name == "heartbeat":
                self.r.times.heartbeat = value
            elif name == "lost_quorum":
                self.r.times.lost_quorum = value
            else:
                raise ValueError(name)

    def recover(self, uint64_t term, bytes vote, object snapshot, bytes peers) -> None:
        cdef Snapshot found
        cdef PeerState state
        if snapshot is not None:
            found.term, found.index, peer_state, data = snapshot
            found.peers, found.data = slice_of(peer_state), slice_of(data)
        if not decode_peer_state(peers, len(peers), &state):
            raise ValueError("peers")
        raft_recover(&self.r, term, get64(vote) if vote else 0, NULL if snapshot is None else &found, &state)

    def replay(self, uint64_t index, bytes data not None) -> bool:
        done = raft_replay(&self.r, index, data, len(data))
        self.raised()
        return bool(done)

    def distrust(self, uint64_t index, uint64_t term) -> None:
        raft_distrust(&self.r, index, term)

    def begin(self, bint recovering, int64_t now) -> None:
        raft_begin(&self.r, recovering, now)
        self.raised()

    def append_entry(self, bint catchup, bytes data not None, bytes subject not None, int64_t now) -> None:
        cdef Slice s = slice_of(subject)
        raft_append_entry(&self.r, VIA_CATCHUP if catchup else VIA_NEW, data, len(data), &s, now)
        self.raised()

    def response(self, bytes data not None, bytes subject not None, int64_t now) -> None:
        cdef Slice s = slice_of(subject)
        raft_response(&self.r, data, len(data), &s, now)
        self.raised()

    def vote_request(self, bytes data not None, bytes subject not None, int64_t now) -> None:
        cdef Slice s = slice_of(subject)
        raft_vote_request(&self.r, data, len(data), &s, now)
        self.raised()

    def vote_response(self, bytes data not None, int64_t now) -> None:
        raft_vote_response(&self.r, data, len(data), now)
        self.raised()

    def stored(self, uint64_t index) -> None:
        raft_stored(&self.r, index)
        self.raised()

    def saved(self, int64_t now) -> None:
        raft_saved(&self.r, now)
        self.raised()

    def applied(self, uint64_t index) -> None:
        raft_applied(&self.r, index)
        self.raised()

    def tick(self, int64_t now) -> None:
        raft_tick(&self.r, now)
        self.raised()

    def propose(self, bytes data not None, int64_t now) -> bool:
        done = raft_propose(&self.r, data, len(data), now)
        self.raised()
        return bool(done)

    def propose_peer(self, bytes peer not None, bint removes, int64_t now) -> bool:
        done = raft_propose_peer(&self.r, get64(peer), removes, now)
        self.raised()
        return bool(done)

    def flush(self, int64_t now) -> None:
        raft_flush(&self.r, now)
        self.raised()

    def step_down(self, bytes preferred not None, int64_t now) -> bool:
        done = raft_step_down(&self.r, get64(preferred) if preferred else 0, now)
        self.raised()
        return bool(done)

    def campaign(self, int64_t now) -> None:
        raft_campaign(&self.r, now)

    def set_observer(self, bint observer, int64_t now) -> None:
        raft_set_observer(&self.r, observer, now)

    def save_snapshot(self, uint64_t index, bytes data not None) -> bool:
        cdef Slice s = slice_of(data)
        done = raft_save_snapshot(&self.r, index, &s)
        self.raised()
        return bool(done)

    @property
    def deadline(self) -> int:
        return raft_deadline(&self.r)

    @property
    def state(self) -> str:
        return ("follower", "candidate", "leader")[self.r.state]

    @property
    def failure(self) -> int:
        return self.r.failure

    def now(self) -> dict:
        """Return the numbers of the state."""
        return {
            "term": self.r.term, "vote": name_of(self.r.vote), "leader": name_of(self.r.leader), "pterm": self.r.pterm,
            "pindex": self.r.pindex, "durable": self.r.durable, "commit": self.r.commit, "applied": self.r.applied,
            "snapshot": self.r.snapshot_index, "size": self.r.size, "announced": bool(self.r.announced),
            "catching_up": bool(self.r.catching_up), "doubted": self.r.doubted,
            "doubted_term": self.r.doubted_term, "change": self.r.change.index,
            "peers": [name_of(self.r.peers[i].id) for i in range(self.r.npeers)],
        }


cdef class FilesProbe:
    """The functions of a RaftFiles, for Python, as RaftProbe calls those of its world. Below 0: failed."""
    cdef RaftFiles files

    def __init__(self, RaftFiles files not None) -> None:
        self.files = files

    def recover(self, RaftProbe probe not None) -> None:
        self.files.recover(&probe.r)
        probe.raised()

    def store(self, uint64_t index, bytes data not None) -> int:
        return self.files.store(index, data, len(data))

    def flush(self) -> int:
        """Return the index of the last record."""
        cdef uint64_t last
        return -1 if self.files.flush(&last) < 0 else last

    def sync(self) -> int:
        return self.files.sync_log()

    def load(self, uint64_t index) -> bytes | None:
        cdef Slice found
        return found.p[:found.n] if self.files.load(index, &found) == 0 else None

    def truncate(self, uint64_t index) -> int:
        return self.files.truncate(index)

    def save_snapshot(self, tuple what not None, bint all) -> int:
        cdef Snapshot snapshot
        snapshot.term, snapshot.index, peers, data = what
        snapshot.peers, snapshot.data = slice_of(peers), slice_of(data)
        return self.files.save_snapshot(&snapshot, all)

    def load_snapshot(self) -> tuple | None:
        cdef Snapshot found
        return snapshot_of(&found) if self.files.load_snapshot(&found) > 0 else None

    def save_vote(self, uint64_t term, bytes vote not None) -> int:
        return self.files.save_vote(term, get64(vote) if vote else 0)

    def save_peers(self, bytes data not None) -> int:
        return self.files.save_peers(data, len(data))

    def trusted(self) -> int:
        return self.files.forget_distrust()


cdef int kept(RaftProbe probe, error):
    if probe.error is None:
        probe.error = error
    return -1


cdef int store(void *o, uint64_t index, const char *data, size_t n) noexcept with gil:
    try:
        return (<RaftProbe> o).world.store(index, data[:n])
    except Exception as error:
        return kept(<RaftProbe> o, error)


cdef int load(void *o, uint64_t index, Slice *data) noexcept with gil:
    try:
        (<RaftProbe> o).loaded = (<RaftProbe> o).world.load(index)
        if (<RaftProbe> o).loaded is None:
            return -1
        data[0] = slice_of((<RaftProbe> o).loaded)
        return 0
    except Exception as error:
        return kept(<RaftProbe> o, error)


cdef int truncate(void *o, uint64_t index) noexcept with gil:
    try:
        return (<RaftProbe> o).world.truncate(index)
    except Exception as error:
        return kept(<RaftProbe> o, error)


cdef tuple snapshot_of(const Snapshot *s):
    return s.term, s.index, s.peers.p[:s.peers.n], s.data.p[:s.data.n]


cdef int save_snapshot(void *o, const Snapshot *snapshot, bint all) noexcept with gil:
    try:
        return (<RaftProbe> o).world.save_snapshot(snapshot_of(snapshot), bool(all))
    except Exception as error:
        return kept(<RaftProbe> o, error)


cdef int load_snapshot(void *o, Snapshot *snapshot) noexcept with gil:
    try:
        found = (<RaftProbe> o).world.load_snapshot()
        if found is None:
            return 0
        snapshot.term, snapshot.index, (<RaftProbe> o).loaded_peers, (<RaftProbe> o).loaded = found
        snapshot.peers = slice_of((<RaftProbe> o).loaded_peers)
        snapshot.data = slice_of((<RaftProbe> o).loaded)
        return 1
    except Exception as error:
        return kept(<RaftProbe> o, error)


cdef int save_vote(void *o, uint64_t term, uint64_t vote) noexcept with gil:
    try:
        return (<RaftProbe> o).world.save_vote(term, name_of(vote))
    except Exception as error:
        return kept(<RaftProbe> o, error)


cdef int save_peers(void *o, const char *data, size_t n) noexcept with gil:
    try:
        return (<RaftProbe> o).world.save_peers(data[:n])
    except Exception as error:
        return kept(<RaftProbe> o, error)


cdef void send(void *o, RaftSend to, const Slice *subject, const char *data, size_t n) noexcept with gil:
    try:
        (<RaftProbe> o).world.send(<int> to, b"" if subject == NULL else subject.p[:subject.n], data[:n])
    except Exception as error:
        kept(<RaftProbe> o, error)


cdef void open_catchup(void *o) noexcept with gil:
    try:
        (<RaftProbe> o).world.open_catchup()
    except Exception as error:
        kept(<RaftProbe> o, error)


cdef void close_catchup(void *o) noexcept with gil:
    try:
        (<RaftProbe> o).world.close_catchup()
    except Exception as error:
        kept(<RaftProbe> o, error)


cdef void commit(void *o, uint64_t index, const AppendEntry *ae) noexcept with gil:
    cdef const char *at = ae.entries.p
    cdef Entry entry
    try:
        entries = []
        while next_entry(ae, &at, &entry):
            entries.append((entry.type, entry.data.p[:entry.data.n]))
        (<RaftProbe> o).world.commit(index, ae.term, entries)
    except Exception as error:
        kept(<RaftProbe> o, error)


cdef void restore(void *o, const Snapshot *snapshot) noexcept with gil:
    try:
        (<RaftProbe> o).world.restore(snapshot_of(snapshot))
    except Exception as error:
        kept(<RaftProbe> o, error)


cdef void lead_changed(void *o, bint leads, uint64_t term) noexcept with gil:
    try:
        (<RaftProbe> o).world.lead_changed(bool(leads), term)
    except Exception as error:
        kept(<RaftProbe> o, error)


cdef void trusted(void *o) noexcept with gil:
    try:
        (<RaftProbe> o).world.trusted()
    except Exception as error:
        kept(<RaftProbe> o, error)


cdef void failed(void *o, RaftFailure why) noexcept with gil:
    try:
        (<RaftProbe> o).world.failed(<int> why)
    except Exception as error:
        kept(<RaftProbe> o, error)


ENV.store, ENV.load, ENV.truncate = store, load, truncate
ENV.save_snapshot, ENV.load_snapshot = save_snapshot, load_snapshot
ENV.save_vote, ENV.save_peers, ENV.send = save_vote, save_peers, send
ENV.open_catchup, ENV.close_catchup = open_catchup, close_catchup
ENV.commit, ENV.restore, ENV.lead_changed, ENV.trusted, ENV.failed = commit, restore, lead_changed, trusted, failed
