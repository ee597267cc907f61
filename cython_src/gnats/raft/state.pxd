"""What a member of a Raft group knows, and who its peers are; see raft.pxd for what it does."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from gnats.core.runtime.slice cimport Slice
from gnats.raft.messages cimport AppendEntry, PeerState, Snapshot

cdef enum:
    SUBJECT_ROOM = 64          # bytes of the longest subject of an answer
    MOST_REMOVED = 16          # removed peers that are remembered


cdef enum RaftState:
    RAFT_FOLLOWER
    RAFT_CANDIDATE
    RAFT_LEADER


cdef enum RaftVia:
    VIA_LOG                    # from this server's own log, at its start
    VIA_NEW                    # from the leader, to all
    VIA_CATCHUP                # from the leader, to the inbox that open_catchup() has made


cdef enum RaftSend:
    SEND_APPEND                # to all peers; answers come to raft_response()
    SEND_VOTE                  # to all peers; answers come to raft_vote_response()
    SEND_ANSWER                # to the given subject
    SEND_BEHIND                # the same, with this server's inbox for catching up as reply
    SEND_CATCHUP               # to the given inbox of a follower; answers come to raft_response()


cdef enum RaftFailure:
    RAFT_NO_FAILURE
    RAFT_NO_MEMORY
    RAFT_STORE                 # the log or a file could not be written or read
    RAFT_TRUNCATES             # a leader asked to remove what is committed
    RAFT_TWO_LEADERS           # of one term


# `o` is the owner's. Results: below 0, failed.
cdef struct RaftEnv:
    # Append a record to the log. 1: it is durable; 0: raft_stored() follows.
    int (*store)(void *o, uint64_t index, const char *data, size_t n) noexcept nogil
    # Read a record; it stays valid until the next call.
    int (*load)(void *o, uint64_t index, Slice *data) noexcept nogil
    # Remove the records behind an index. None of them is to be announced as stored any more.
    int (*truncate)(void *o, uint64_t index) noexcept nogil
    # Write a snapshot, durably, and remove the records up to its index; with `all`, all records.
    int (*save_snapshot)(void *o, const Snapshot *snapshot, bint all) noexcept nogil
    # Read the last snapshot; it stays valid until the next call. 0: there is none.
    int (*load_snapshot)(void *o, Snapshot *snapshot) noexcept nogil
    # Write term and vote. 1: they are durable; 0: raft_saved() follows.
    int (*save_vote)(void *o, uint64_t term, uint64_t vote) noexcept nogil
    int (*save_peers)(void *o, const char *data, size_t n) noexcept nogil
    void (*send)(void *o, RaftSend to, const Slice *subject, const char *data, size_t n) noexcept nogil
    # Listen on a new inbox, whose messages are given to raft_append_entry() with VIA_CATCHUP, and on no earlier one.
    void (*open_catchup)(void *o) noexcept nogil
    void (*close_catchup)(void *o) noexcept nogil
    # A record is committed: apply its normal entries, in the order of these calls, and call raft_applied().
    void (*commit)(void *o, uint64_t index, const AppendEntry *ae) noexcept nogil
    # Take over the state of a snapshot, then call raft_applied() with its index.
    void (*restore)(void *o, const Snapshot *snapshot) noexcept nogil
    # This server leads, and has applied what the leaders before it have committed; or it does not lead (any more).
    void (*lead_changed)(void *o, bint leads, uint64_t term) noexcept nogil
    # What raft_distrust() was told of is over.
    void (*trusted)(void *o) noexcept nogil
    # The group has stopped: it neither stores nor answers anything from now on.
    void (*failed)(void *o, RaftFailure why) noexcept nogil


cdef struct RaftTimes:         # ns
    int64_t election_least     # a follower hears nothing for as long, and at most for
    int64_t election_most      # this
    int64_t campaign_least     # the same before an early election
    int64_t campaign_most
    int64_t heartbeat
    int64_t lost_quorum        # a leader that hears too few peers for as long steps down
    int64_t stalled            # a catch-up without progress begins again
    int64_t pace               # between two portions of a catch-up


cdef struct RaftPeer:
    uint64_t id
    int64_t heard              # when; 0: not yet
    uint64_t match             # this peer of ours has everything up to here, as far as we lead
    bint votes                 # for us, with records in its log or none to expect, and
    bint votes_empty           # with an empty log


cdef struct CatchUp:           # of a follower, by this leader
    uint64_t peer
    uint64_t next              # index
    uint64_t last
    size_t inbox_n
    char[SUBJECT_ROOM] inbox


cdef struct Answer:            # that waits until a record is durable
    uint64_t index
    uint64_t term
    size_t subject_n
    char[SUBJECT_ROOM] subject


cdef struct Change:            # of the peers, by a record that is not committed yet
    uint64_t index             # 0: none
    uint64_t peer
    bint removes
    uint32_t size              # before
    RaftPeer before            # of one that removes


cdef struct Removed:           # a peer that is none any more
    uint64_t id
    int64_t seen               # when it was first heard since then; 0: not yet


cdef struct Raft:
    const RaftEnv *env
    void *owner
    RaftTimes times
    uint64_t rng
    uint64_t id
    RaftState state
    RaftFailure failure
    uint64_t term
    uint64_t vote
    uint64_t leader            # 0: not known
    uint64_t pterm             # of the last record
    uint64_t pindex
    uint64_t durable           # records up to here are, and the term of that one
    uint64_t durable_term
    uint64_t commit
    uint64_t commit_term       # of the last record that is committed
    uint64_t applied
    uint64_t snapshot_term     # of the last record that is in the snapshot
    uint64_t snapshot_index
    uint64_t own_first         # index of the first record that this leader has made
    bint announced             # that it leads
    bint saving                # term and vote are not durable yet
    bint initializing          # a new member of a new group: its log may be empty
    uint64_t doubted           # see raft_distrust(); 0: nothing was lost
    uint64_t doubted_term      # no lost record was of a later term
    bint managed               # peers change by proposals alone; else a leader adds those that it hears
    bint full                  # set by the owner: it takes nothing more for now
    bint observer              # it does not become a leader
    bint transfers             # the leader has asked this server to be the next one
    bint tells                 # the followers do not know yet what is committed
    uint16_t extension         # of the domain, as peers.idx has it
    RaftPeer *peers
    size_t npeers, peers_room
    uint32_t size              # peers that there are to be: at first, not all may be known
    Change change
    Removed[MOST_REMOVED] removed    # the newest, at any place
    uint32_t nremoved          # in all
    CatchUp *catchups
    size_t ncatchups, catchups_room
    Answer *answers
    size_t nanswers, answers_room
    char *batch                # a record that is being made, from its head on
    size_t batch_n, batch_room
    uint32_t batch_entries
    bint catching_up
    uint64_t catchup_term      # the leader's last record, when that began
    uint64_t catchup_index
    uint64_t catchup_at        # pindex when it made progress, and the time
    int64_t catchup_active
    size_t grant_n             # the subject of a granted vote, which waits until it is durable
    char[SUBJECT_ROOM] grant
    int64_t elects             # when it becomes a candidate
    int64_t sent               # when it sent records or a heartbeat, as a leader
    int64_t checks             # when it looks whether a quorum is there
    int64_t feeds              # when followers get the next portion to catch up


# Stop the group: nothing is stored or answered any more.
cdef void fail(Raft *r, RaftFailure why) noexcept nogil

cdef RaftPeer *find_peer(Raft *r, uint64_t id) noexcept nogil
cdef bint add_peer(Raft *r, uint64_t id) noexcept nogil     # unless it is there. False: no memory
# Remember that a peer was removed, and whether it was lately: it must not come back because it is heard.
cdef void note_removed(Raft *r, uint64_t id) noexcept nogil
cdef bint was_removed(Raft *r, uint64_t id, int64_t now) noexcept nogil
# Change the peers from the record at `index` on, which is not committed yet. False: no memory.
cdef bint begin_change(Raft *r, uint64_t index, uint64_t id, bint removes) noexcept nogil
cdef void undo_change(Raft *r) noexcept nogil
# Have the change that the record at r.commit decided; a change behind that stays.
cdef void commit_change(Raft *r, uint64_t id, bint removes) noexcept nogil
# Take the peers over that the record at `index` names; a change behind that stays.
cdef void take_peers(Raft *r, const PeerState *state, uint64_t index) noexcept nogil
# Encode the peers, without a change that is not committed if asked so. The caller frees. NULL: no memory.
cdef char *peers_of(Raft *r, size_t *n, bint committed) noexcept nogil
cdef void save_peers(Raft *r) noexcept nogil
