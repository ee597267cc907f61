"""The log of a member of a Raft group; see log.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from gnats.core.runtime.slice cimport Slice
from gnats.raft.messages cimport (
    ENTRY_ADD_PEER,
    ENTRY_PEER_STATE,
    ENTRY_REMOVE_PEER,
    PEER_SIZE,
    AppendEntry,
    Entry,
    PeerState,
    decode_append_entry,
    decode_peer_state,
    get64,
    next_entry,
)
from gnats.raft.state cimport (
    RAFT_LEADER,
    RAFT_STORE,
    RAFT_TRUNCATES,
    Raft,
    commit_change,
    fail,
    note_removed,
    save_peers,
    take_peers,
    undo_change,
)


cdef void own_append_entry(Raft *r, AppendEntry *ae, uint32_t n) noexcept nogil:
    memset(ae, 0, sizeof(AppendEntry))
    ae.leader, ae.term, ae.commit, ae.pterm, ae.pindex, ae.n = r.id, r.term, r.commit, r.pterm, r.pindex, n


cdef bint term_at(Raft *r, uint64_t index, uint64_t *term) noexcept nogil:
    cdef AppendEntry ae
    cdef Slice data
    if index == r.pindex:
        term[0] = r.pterm
        return True
    if index == r.snapshot_index:
        term[0] = r.snapshot_term
        return True
    if index < r.snapshot_index or index > r.pindex:
        return False
    if r.env.load(r.owner, index, &data) < 0 or not decode_append_entry(data.p, data.n, &ae):
        fail(r, RAFT_STORE)
        return False
    term[0] = ae.term
    return True


cdef void commit_to(Raft *r, uint64_t index) noexcept nogil:
    cdef AppendEntry ae
    cdef Slice data
    while r.commit < index and not r.failure:
        if r.env.load(r.owner, r.commit + 1, &data) < 0 or not decode_append_entry(data.p, data.n, &ae):
            fail(r, RAFT_STORE)
            return
        r.commit += 1
        r.commit_term = ae.term
        commit_peers(r, &ae)
        if not r.failure:
            r.env.commit(r.owner, r.commit, &ae)


cdef void commit_peers(Raft *r, const AppendEntry *ae) noexcept nogil:
    """Take over what the committed record at r.commit says of the peers."""
    cdef const char *at = ae.entries.p
    cdef PeerState state
    cdef Entry entry
    while next_entry(ae, &at, &entry):
        if entry.type == ENTRY_PEER_STATE and r.state != RAFT_LEADER:
            if decode_peer_state(entry.data.p, entry.data.n, &state):
                take_peers(r, &state, r.commit)
                save_peers(r)
        elif entry.type in (ENTRY_ADD_PEER, ENTRY_REMOVE_PEER) and entry.data.n == PEER_SIZE:
            commit_change(r, get64(entry.data.p), entry.type == ENTRY_REMOVE_PEER)
            if entry.type == ENTRY_REMOVE_PEER:
                note_removed(r, get64(entry.data.p))
            save_peers(r)


cdef bint cut_to(Raft *r, uint64_t index) noexcept nogil:
    cdef uint64_t term
    cdef size_t i, kept = 0
    if index < r.commit:
        fail(r, RAFT_TRUNCATES)
        return False
    if not term_at(r, index, &term):
        fail(r, RAFT_STORE)
        return False
    if r.env.truncate(r.owner, index) < 0:
        fail(r, RAFT_STORE)
        return False
    r.pindex = index
    r.pterm = term
    r.durable = min(r.durable, index)
    for i in range(r.nanswers):
        if r.answers[i].index <= index:
            r.answers[kept] = r.answers[i]
            kept += 1
    r.nanswers = kept
    if r.change.index > index:
        undo_change(r)
    return not r.failure


cdef void regain_trust(Raft *r) noexcept nogil:
    """See whether this server has again what it may have acknowledged before it lost records.

    What is committed up to the lost records' end, or in a later term, includes all that could have been committed by
    the help of this server.
    """
    if r.doubted and r.durable >= r.commit and (r.commit >= r.doubted or r.commit_term > r.doubted_term):
        r.doubted = 0
        r.env.trusted(r.owner)
