"""The messages and files of a Raft group; see messages.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from gnats.includes.varint cimport get_uvarint, put_uvarint
from gnats.store.format.highway cimport HighwayKey, highway, highway_key_of

cdef enum:
    GRANTED = 1
    EMPTY = 2
    PEERS_HEAD = 8          # bytes of a peer state before the peers
    SNAPSHOT_HEAD = 20      # bytes of a snapshot before the peer state
    CHECKSUM = 8


cdef bint decode_append_entry(const char *data, size_t n, AppendEntry *ae) noexcept nogil:
    cdef const char *at
    cdef const char *end = data + n
    cdef const uint8_t *rest
    cdef size_t size
    cdef uint32_t _
    if n < APPEND_ENTRY_HEAD:
        return False
    ae.leader = get64(data)
    ae.term = get64(data + 8)
    ae.commit = get64(data + 16)
    ae.pterm = get64(data + 24)
    ae.pindex = get64(data + 32)
    ae.n = get16(data + 40)
    ae.lterm = 0
    at = data + APPEND_ENTRY_HEAD
    for _ in range(ae.n):
        if end - at < 4:
            return False
        size = get32(at)
        at += 4
        if size == 0 or size > <size_t> (end - at):
            return False
        at += size
    ae.entries.p = <char *> data + APPEND_ENTRY_HEAD
    ae.entries.n = at - ae.entries.p
    ae.whole.p = <char *> data
    ae.whole.n = n
    rest = <const uint8_t *> at
    get_uvarint(&rest, <const uint8_t *> end, &ae.lterm)   # older servers write none
    return True


cdef bint decode_response(const char *data, size_t n, Response *r) noexcept nogil:
    if n != RESPONSE_SIZE:
        return False
    r.term = get64(data)
    r.index = get64(data + 8)
    r.peer = get64(data + 16)
    r.success = data[24] == 1
    return True


cdef bint decode_vote_request(const char *data, size_t n, VoteRequest *r) noexcept nogil:
    if n != VOTE_REQUEST_SIZE:
        return False
    r.term = get64(data)
    r.last_term = get64(data + 8)
    r.last_index = get64(data + 16)
    r.candidate = get64(data + 24)
    return True


cdef bint decode_vote_response(const char *data, size_t n, VoteResponse *r) noexcept nogil:
    if n != VOTE_RESPONSE_SIZE:
        return False
    r.term = get64(data)
    r.peer = get64(data + 8)
    r.granted = data[16] & GRANTED != 0
    r.empty = data[16] & EMPTY != 0
    return True


cdef bint decode_peer_state(const char *data, size_t n, PeerState *state) noexcept nogil:
    cdef size_t rest
    if n < PEERS_HEAD:
        return False
    state.size = get32(data)
    state.n = get32(data + 4)
    state.peers = data + PEERS_HEAD
    rest = n - PEERS_HEAD
    if state.size > <uint32_t> 0x7fffffff or rest // PEER_SIZE < state.n:
        return False
    rest -= <size_t> state.n * PEER_SIZE
    state.extension = get16(data + n - rest) if rest >= 2 else 0   # older servers write none
    return True


cdef bint decode_snapshot(const char *data, size_t n, uint64_t checksum, Snapshot *snapshot) noexcept nogil:
    cdef size_t rest
    if n < SNAPSHOT_LEAST or get64(data + n - CHECKSUM) != checksum:
        return False
    snapshot.term = get64(data)
    snapshot.index = get64(data + 8)
    snapshot.peers.p = <char *> data + SNAPSHOT_HEAD
    snapshot.peers.n = get32(data + 16)
    rest = n - SNAPSHOT_LEAST
    if snapshot.peers.n > rest:
        return False
    snapshot.data.p = snapshot.peers.p + snapshot.peers.n
    snapshot.data.n = rest - snapshot.peers.n
    return True


cdef bint decode_term_vote(const char *data, size_t n, uint64_t *term, uint64_t *vote) noexcept nogil:
    if n < TERM_SIZE:
        return False
    term[0] = get64(data)
    vote[0] = get64(data + TERM_SIZE) if n >= TERM_VOTE_SIZE else 0
    return True


cdef bint next_entry(const AppendEntry *ae, const char **at, Entry *entry) noexcept nogil:
    cdef size_t size
    if at[0] == ae.entries.p + ae.entries.n:
        return False
    size = get32(at[0])
    entry.type = <uint8_t> at[0][4]
    entry.data.p = <char *> at[0] + ENTRY_HEAD
    entry.data.n = size - 1
    at[0] += 4 + size
    return True


cdef char *put_append_entry(char *to, const AppendEntry *ae) noexcept nogil:
    to = put64(to, ae.leader)
    to = put64(to, ae.term)
    to = put64(to, ae.commit)
    to = put64(to, ae.pterm)
    to = put64(to, ae.pindex)
    return put16(to, <uint16_t> ae.n)


cdef char *put_entry(char *to, uint8_t type, const char *data, size_t n) noexcept nogil:
    to = put32(to, <uint32_t> n + 1)
    to[0] = <char> type
    memcpy(to + 1, data, n)
    return to + 1 + n


cdef char *put_lterm(char *to, uint64_t lterm) noexcept nogil:
    return <char *> put_uvarint(<uint8_t *> to, lterm)


cdef void put_response(char *to, const Response *r) noexcept nogil:
    to = put64(to, r.term)
    to = put64(to, r.index)
    to = put64(to, r.peer)
    to[0] = r.success


cdef void put_vote_request(char *to, const VoteRequest *r) noexcept nogil:
    to = put64(to, r.term)
    to = put64(to, r.last_term)
    to = put64(to, r.last_index)
    put64(to, r.candidate)


cdef void put_vote_response(char *to, const VoteResponse *r) noexcept nogil:
    to = put64(to, r.term)
    to = put64(to, r.peer)
    to[0] = (GRANTED if r.granted else 0) | (EMPTY if r.empty else 0)


cdef size_t peer_state_size(uint32_t n) noexcept nogil:
    return PEERS_HEAD + <size_t> n * PEER_SIZE + 2


cdef char *put_peer_state(char *to, uint32_t size, uint32_t n) noexcept nogil:
    return put32(put32(to, size), n)


cdef void put_snapshot(char *to, const Snapshot *snapshot) noexcept nogil:
    to = put64(to, snapshot.term)
    to = put64(to, snapshot.index)
    to = put32(to, <uint32_t> snapshot.peers.n)
    memcpy(to, snapshot.peers.p, snapshot.peers.n)
    memcpy(to + snapshot.peers.n, snapshot.data.p, snapshot.data.n)


cdef size_t put_term_vote(char *to, uint64_t term, uint64_t vote) noexcept nogil:
    put64(to, term)
    if vote == 0:
        return TERM_SIZE
    put64(to + TERM_SIZE, vote)
    return TERM_VOTE_SIZE


# ---- from Python: a peer is eight bytes, b"" is none ----

cdef inline bytes name_of(uint64_t peer):
    return (<const char *> &peer)[:PEER_SIZE] if peer else b""


cdef inline uint64_t peer_of(bytes name) except? 0:
    if name and len(name) != PEER_SIZE:
        raise ValueError(f"{name!r} is not the name of a peer: it has not {PEER_SIZE} bytes")
    return get64(name) if name else 0


def read_append_entry(bytes data not None) -> tuple:
    """Return (leader, term, commit, pterm, pindex, lterm, entries as (type, data)). Raises ValueError."""
    cdef AppendEntry ae
    cdef Entry entry
    cdef list entries = []
    cdef const char *at
    if not decode_append_entry(data, len(data), &ae):
        raise ValueError("not an append entry")
    at = ae.entries.p
    while next_entry(&ae, &at, &entry):
        entries.append((entry.type, entry.data.p[:entry.data.n]))
    return name_of(ae.leader), ae.term, ae.commit, ae.pterm, ae.pindex, ae.lterm, entries


def write_append_entry(
    bytes leader not None, uint64_t term, uint64_t commit, uint64_t pterm, uint64_t pindex, uint64_t lterm,
    list entries not None,
) -> bytes:
    """Encode an append entry; see read_append_entry(). Raises ValueError for too many entries."""
    cdef AppendEntry ae
    cdef bytes out, data
    cdef char *to
    if len(entries) > MOST_ENTRIES:
        raise ValueError(f"more than {MOST_ENTRIES} entries")
    memset(&ae, 0, sizeof(ae))
    ae.leader, ae.term, ae.commit, ae.pterm, ae.pindex = peer_of(leader), term, commit, pterm, pindex
    ae.n = len(entries)
    out = bytes(APPEND_ENTRY_HEAD + sum(ENTRY_HEAD + len(data) for _, data in entries) + LTERM_ROOM)
    to = put_append_entry(out, &ae)
    for type, data in entries:
        to = put_entry(to, type, data, len(data))
    return out[:put_lterm(to, lterm) - <char *> out]


def read_peer_state(bytes data not None) -> tuple:
    """Return (size of the cluster, peers, extension). Raises ValueError."""
    cdef PeerState state
    if not decode_peer_state(data, len(data), &state):
        raise ValueError("not a peer state")
    return state.size, [state.peers[i * PEER_SIZE:(i + 1) * PEER_SIZE] for i in range(state.n)], state.extension


def write_peer_state(uint32_t size, list peers not None, uint16_t extension=0) -> bytes:
    """Encode the state of a group's peers; see read_peer_state(). Raises ValueError."""
    cdef bytes out = bytes(peer_state_size(len(peers))), peer
    cdef char *to = put_peer_state(out, size, len(peers))
    for peer in peers:
        to = put64(to, peer_of(peer))
    put16(to, extension)
    return out


def read_snapshot(bytes data not None, bytes group not None) -> tuple:
    """Return (term, index, peer state, data) of the file of a group's snapshot. Raises ValueError."""
    cdef Snapshot found
    cdef HighwayKey key
    highway_key_of(&key, group, len(group))
    if not decode_snapshot(data, len(data), highway(&key, <char *> data, max(len(data) - CHECKSUM, 0)), &found):
        raise ValueError("not a snapshot of this group")
    return found.term, found.index, found.peers.p[:found.peers.n], found.data.p[:found.data.n]


def write_snapshot(uint64_t term, uint64_t index, bytes peers not None, bytes data not None, bytes group not None):
    """Encode the file of a group's snapshot; see read_snapshot()."""
    cdef Snapshot snapshot
    cdef HighwayKey key
    cdef bytes out = bytes(SNAPSHOT_LEAST + len(peers) + len(data))
    cdef size_t n = len(out) - CHECKSUM
    snapshot.term, snapshot.index = term, index
    snapshot.peers.p, snapshot.peers.n = peers, len(peers)
    snapshot.data.p, snapshot.data.n = data, len(data)
    put_snapshot(out, &snapshot)
    highway_key_of(&key, group, len(group))
    put64(<char *> out + n, highway(&key, <char *> out, n))
    return out


def read_term_vote(bytes data not None) -> tuple:
    """Return (term, peer voted for) of a tav.idx. Raises ValueError."""
    cdef uint64_t term, vote
    if not decode_term_vote(data, len(data), &term, &vote):
        raise ValueError("not a term and a vote")
    return term, name_of(vote)


def write_term_vote(uint64_t term, bytes vote not None) -> bytes:
    """Encode a tav.idx; see read_term_vote(). Raises ValueError."""
    cdef char[TERM_VOTE_SIZE] out
    return out[:put_term_vote(out, term, peer_of(vote))]
