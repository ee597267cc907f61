"""Snapshots of a Raft group; see snapshots.pxd."""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free

from gnats.core.runtime.slice cimport Slice
from gnats.raft.log cimport term_at
from gnats.raft.messages cimport (
    ENTRY_PEER_STATE,
    AppendEntry,
    Entry,
    PeerState,
    Snapshot,
    decode_peer_state,
    next_entry,
)
from gnats.raft.state cimport RAFT_STORE, Raft, fail, peers_of, save_peers, take_peers


cdef bint raft_save_snapshot(Raft *r, uint64_t index, const Slice *data) noexcept nogil:
    cdef Snapshot snapshot
    if not raft_begin_snapshot(r, index, &snapshot):
        return False
    snapshot.data = data[0]
    if r.env.save_snapshot(r.owner, &snapshot, False) < 0:
        fail(r, RAFT_STORE)
    else:
        raft_end_snapshot(r, &snapshot)
    free(snapshot.peers.p)
    return not r.failure


cdef bint raft_begin_snapshot(Raft *r, uint64_t index, Snapshot *snapshot) noexcept nogil:
    if r.failure or index > r.applied or index <= r.snapshot_index or not term_at(r, index, &snapshot.term):
        return False
    snapshot.index = index
    snapshot.peers.p = peers_of(r, &snapshot.peers.n, True)
    return snapshot.peers.p != NULL


cdef void raft_end_snapshot(Raft *r, const Snapshot *snapshot) noexcept nogil:
    r.snapshot_term, r.snapshot_index = snapshot.term, snapshot.index


cdef void take_snapshot(
    Raft *r, const AppendEntry *ae, const Entry *data, const char *at, int64_t now
) noexcept nogil:
    cdef Entry peers
    cdef PeerState state
    cdef Snapshot snapshot
    if not next_entry(ae, &at, &peers) or peers.type != ENTRY_PEER_STATE or ae.pindex <= r.commit:
        return
    if not decode_peer_state(peers.data.p, peers.data.n, &state):
        return
    snapshot.term, snapshot.index = ae.pterm, ae.pindex
    snapshot.peers, snapshot.data = peers.data, data.data
    if r.env.save_snapshot(r.owner, &snapshot, True) < 0:
        fail(r, RAFT_STORE)
        return
    r.snapshot_term = r.pterm = ae.pterm
    r.snapshot_index = r.pindex = r.durable = r.commit = ae.pindex
    r.commit_term = ae.pterm
    r.nanswers = 0
    r.change.index = 0
    r.initializing = False
    r.catchup_active = now
    take_peers(r, &state, ae.pindex)
    save_peers(r)
    if not r.failure:
        r.env.restore(r.owner, &snapshot)
