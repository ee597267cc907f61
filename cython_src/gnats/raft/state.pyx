"""What a member of a Raft group knows, and who its peers are; see state.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memmove, memset

from gnats.includes.arrays cimport array_grow
from gnats.includes.units cimport SECOND
from gnats.raft.messages cimport PEER_SIZE, PeerState, get64, peer_state_size, put16, put64, put_peer_state

cdef enum:
    FIRST = 4                  # places of an array that grows
    REMOVED_FOR = 300 * SECOND


cdef void fail(Raft *r, RaftFailure why) noexcept nogil:
    if r.failure:
        return
    r.failure = why
    if r.state == RAFT_LEADER and r.announced:
        r.env.lead_changed(r.owner, False, r.term)
    r.state = RAFT_FOLLOWER
    r.leader = 0
    r.announced = False
    r.env.failed(r.owner, why)


# ---- peers ----

cdef RaftPeer *find_peer(Raft *r, uint64_t id) noexcept nogil:
    cdef size_t i
    for i in range(r.npeers):
        if r.peers[i].id == id:
            return &r.peers[i]
    return NULL


cdef bint add_peer(Raft *r, uint64_t id) noexcept nogil:
    if find_peer(r, id) != NULL:
        return True
    if r.npeers == r.peers_room and not array_grow(&r.peers, &r.peers_room, FIRST, sizeof(RaftPeer)):
        fail(r, RAFT_NO_MEMORY)
        return False
    memset(&r.peers[r.npeers], 0, sizeof(RaftPeer))
    r.peers[r.npeers].id = id
    r.npeers += 1
    return True


cdef void remove_peer(Raft *r, uint64_t id) noexcept nogil:
    cdef RaftPeer *peer = find_peer(r, id)
    if peer != NULL:
        r.npeers -= 1
        memmove(peer, peer + 1, (r.peers + r.npeers - peer) * sizeof(RaftPeer))


cdef void note_removed(Raft *r, uint64_t id) noexcept nogil:
    cdef Removed *it = &r.removed[r.nremoved % MOST_REMOVED]
    it.id = id
    it.seen = 0
    r.nremoved += 1


cdef bint was_removed(Raft *r, uint64_t id, int64_t now) noexcept nogil:
    cdef uint32_t i
    for i in range(min(r.nremoved, <uint32_t> MOST_REMOVED)):
        if r.removed[i].id == id:
            if r.removed[i].seen == 0:
                r.removed[i].seen = now
            return now - r.removed[i].seen < REMOVED_FOR
    return False


cdef bint begin_change(Raft *r, uint64_t index, uint64_t id, bint removes) noexcept nogil:
    cdef RaftPeer *known = find_peer(r, id)
    r.change.index, r.change.peer, r.change.removes, r.change.size = index, id, removes, r.size
    memset(&r.change.before, 0, sizeof(RaftPeer))
    if known != NULL:
        r.change.before = known[0]
    if removes:
        remove_peer(r, id)
        r.size = max(r.size - 1, <uint32_t> r.npeers)
    elif not add_peer(r, id):
        return False
    else:
        r.size = max(r.size, <uint32_t> r.npeers)   # one that was expected does not change the quorum
    return True


cdef void undo_change(Raft *r) noexcept nogil:
    cdef RaftPeer before = r.change.before
    r.change.index = 0
    if not r.change.removes and before.id == 0:
        remove_peer(r, r.change.peer)
    elif r.change.removes and before.id and add_peer(r, before.id):
        find_peer(r, before.id)[0] = before
    r.size = r.change.size


cdef void commit_change(Raft *r, uint64_t id, bint removes) noexcept nogil:
    cdef Change later = r.change
    if r.change.index <= r.commit:
        r.change.index = 0
    if (find_peer(r, id) == NULL) == removes:
        return
    # The peers of a record before it were taken over since this one was stored.
    if r.change.index:
        undo_change(r)
    if begin_change(r, r.commit, id, removes):
        r.change.index = 0
        if later.index > r.commit:
            begin_change(r, later.index, later.peer, later.removes)


cdef char *peers_of(Raft *r, size_t *n, bint committed) noexcept nogil:
    cdef bint less = committed and r.change.index and not r.change.removes and r.change.before.id == 0
    cdef bint more = committed and r.change.index and r.change.removes and r.change.before.id
    cdef uint32_t count = <uint32_t> (r.npeers + more - less), size = r.size
    cdef char *out
    cdef char *to
    cdef size_t i
    if more or less:
        size = r.change.size
    n[0] = peer_state_size(count)
    out = <char *> malloc(n[0])
    if out == NULL:
        fail(r, RAFT_NO_MEMORY)
        return NULL
    to = put_peer_state(out, size, count)
    for i in range(r.npeers):
        if not less or r.peers[i].id != r.change.peer:
            to = put64(to, r.peers[i].id)
    if more:
        to = put64(to, r.change.peer)
    put16(to, r.extension)
    return out


cdef void save_peers(Raft *r) noexcept nogil:
    cdef size_t n
    cdef char *data = peers_of(r, &n, True)
    if data != NULL and r.env.save_peers(r.owner, data, n) < 0:
        fail(r, RAFT_STORE)
    free(data)


cdef void take_peers(Raft *r, const PeerState *state, uint64_t index) noexcept nogil:
    cdef Change later = r.change
    cdef size_t i, kept = 0
    cdef uint32_t j
    cdef bint named
    for i in range(r.npeers):
        named = False
        for j in range(state.n):
            named = named or get64(state.peers + j * PEER_SIZE) == r.peers[i].id
        if named:
            r.peers[kept] = r.peers[i]
            kept += 1
    r.npeers = kept
    for j in range(state.n):
        if get64(state.peers + j * PEER_SIZE) and not add_peer(r, get64(state.peers + j * PEER_SIZE)):
            return
    r.size = max(state.size, <uint32_t> r.npeers)
    r.extension = state.extension
    r.change.index = 0
    if later.index > index:
        begin_change(r, later.index, later.peer, later.removes)
