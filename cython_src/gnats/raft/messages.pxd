"""The messages and files of a Raft group, in nats-server's layouts (raft.go). Numbers are little endian.

    append entry     leader, u64 term, u64 commit, u64 pterm, u64 pindex, u16 n, n entries, uvarint lterm
    entry            u32 size of what follows, u8 type, data
    response         u64 term, u64 index, peer, u8 success
    vote request     u64 term, u64 last term, u64 last index, candidate
    vote response    u64 term, peer, u8 flags
    peer state       u32 size of the cluster, u32 n, n peers, u16 extension of the domain
    snapshot         u64 term, u64 index, u32 n, peer state of n bytes, data, HighwayHash-64 of all before it
    tav.idx          u64 term, and the peer voted for, if any

A peer is known by eight bytes, which this package keeps as a number in the memory's order; 0 is none. Decoding treats
its input as untrusted, and keeps pointers into it.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from gnats.core.runtime.slice cimport Slice

cdef enum:
    PEER_SIZE = 8
    APPEND_ENTRY_HEAD = 42     # bytes before the first entry
    ENTRY_HEAD = 5
    MOST_ENTRIES = 0xffff      # of an append entry
    LTERM_ROOM = 10
    RESPONSE_SIZE = 25
    VOTE_REQUEST_SIZE = 32
    VOTE_RESPONSE_SIZE = 17
    SNAPSHOT_LEAST = 28        # bytes of the shortest snapshot
    TERM_SIZE = 8
    TERM_VOTE_SIZE = 16


cdef enum EntryType:
    ENTRY_NORMAL           # the group's own: a message, an assignment, ...
    ENTRY_OLD_SNAPSHOT
    ENTRY_PEER_STATE
    ENTRY_ADD_PEER
    ENTRY_REMOVE_PEER
    ENTRY_LEADER_TRANSFER
    ENTRY_SNAPSHOT


cdef struct Entry:
    uint8_t type
    Slice data


cdef struct AppendEntry:
    uint64_t leader
    uint64_t term
    uint64_t commit
    uint64_t pterm             # term and index of the entry before
    uint64_t pindex
    uint64_t lterm             # term of the leader that sends it again, to catch a follower up; 0: not known
    uint32_t n                 # entries
    Slice entries              # all of them, encoded
    Slice whole                # with all before and behind


cdef struct Response:
    uint64_t term
    uint64_t index
    uint64_t peer
    bint success


cdef struct VoteRequest:
    uint64_t term
    uint64_t last_term
    uint64_t last_index
    uint64_t candidate


cdef struct VoteResponse:
    uint64_t term
    uint64_t peer
    bint granted
    bint empty                 # the voter has an empty log


cdef struct PeerState:
    uint32_t size              # of the cluster
    uint32_t n                 # peers
    const char *peers
    uint16_t extension


cdef struct Snapshot:
    uint64_t term
    uint64_t index
    Slice peers
    Slice data


# Each decodes n bytes, and returns False if they are not what they should be.
cdef bint decode_append_entry(const char *data, size_t n, AppendEntry *ae) noexcept nogil
cdef bint decode_response(const char *data, size_t n, Response *r) noexcept nogil
cdef bint decode_vote_request(const char *data, size_t n, VoteRequest *r) noexcept nogil
cdef bint decode_vote_response(const char *data, size_t n, VoteResponse *r) noexcept nogil
cdef bint decode_peer_state(const char *data, size_t n, PeerState *state) noexcept nogil
# `checksum` is that of the first n - 8 bytes, by the key of the group.
cdef bint decode_snapshot(const char *data, size_t n, uint64_t checksum, Snapshot *snapshot) noexcept nogil
cdef bint decode_term_vote(const char *data, size_t n, uint64_t *term, uint64_t *vote) noexcept nogil

# Move `at`, a position in ae.entries, behind the next entry, and fill that in. False at the end.
cdef bint next_entry(const AppendEntry *ae, const char **at, Entry *entry) noexcept nogil

# Write what comes before the entries of an append entry; return the position behind it.
cdef char *put_append_entry(char *to, const AppendEntry *ae) noexcept nogil
cdef char *put_entry(char *to, uint8_t type, const char *data, size_t n) noexcept nogil
cdef char *put_lterm(char *to, uint64_t lterm) noexcept nogil
# Each fills its buffer of RESPONSE_SIZE, VOTE_REQUEST_SIZE, VOTE_RESPONSE_SIZE bytes.
cdef void put_response(char *to, const Response *r) noexcept nogil
cdef void put_vote_request(char *to, const VoteRequest *r) noexcept nogil
cdef void put_vote_response(char *to, const VoteResponse *r) noexcept nogil
cdef size_t peer_state_size(uint32_t n) noexcept nogil
# Write the part before the peers; return the position behind it. Each peer follows, then the extension.
cdef char *put_peer_state(char *to, uint32_t size, uint32_t n) noexcept nogil
# Write all but the checksum of a snapshot: SNAPSHOT_LEAST + peers + data - 8 bytes.
cdef void put_snapshot(char *to, const Snapshot *snapshot) noexcept nogil
# Return the number of bytes written, TERM_SIZE or TERM_VOTE_SIZE.
cdef size_t put_term_vote(char *to, uint64_t term, uint64_t vote) noexcept nogil


# ---- numbers at any address ----

cdef inline uint64_t get64(const char *p) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p, 8)
    return v


cdef inline uint32_t get32(const char *p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return v


cdef inline uint16_t get16(const char *p) noexcept nogil:
    cdef uint16_t v
    memcpy(&v, p, 2)
    return v


cdef inline char *put64(char *p, uint64_t v) noexcept nogil:
    memcpy(p, &v, 8)
    return p + 8


cdef inline char *put32(char *p, uint32_t v) noexcept nogil:
    memcpy(p, &v, 4)
    return p + 4


cdef inline char *put16(char *p, uint16_t v) noexcept nogil:
    memcpy(p, &v, 2)
    return p + 2
