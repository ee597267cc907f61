"""The Raft state machine of one group; see raft.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from gnats.core.runtime.slice cimport Slice
from gnats.includes.units cimport MILLISECOND, SECOND
from gnats.raft.answering cimport answer, answer_when_durable, send_answers
from gnats.raft.feeding cimport begin_feeding, feed_all
from gnats.raft.log cimport commit_to, cut_to, own_append_entry, regain_trust, term_at
from gnats.raft.messages cimport (
    APPEND_ENTRY_HEAD,
    ENTRY_ADD_PEER,
    ENTRY_HEAD,
    ENTRY_LEADER_TRANSFER,
    ENTRY_NORMAL,
    ENTRY_PEER_STATE,
    ENTRY_REMOVE_PEER,
    ENTRY_SNAPSHOT,
    LTERM_ROOM,
    PEER_SIZE,
    VOTE_REQUEST_SIZE,
    VOTE_RESPONSE_SIZE,
    AppendEntry,
    Entry,
    PeerState,
    Response,
    Snapshot,
    VoteRequest,
    VoteResponse,
    decode_append_entry,
    decode_peer_state,
    decode_response,
    decode_vote_request,
    decode_vote_response,
    get64,
    next_entry,
    put_append_entry,
    put_entry,
    put_lterm,
    put_vote_request,
    put_vote_response,
)
from gnats.raft.snapshots cimport take_snapshot
from gnats.raft.state cimport (
    RAFT_CANDIDATE,
    RAFT_FOLLOWER,
    RAFT_LEADER,
    RAFT_STORE,
    RAFT_TWO_LEADERS,
    SEND_ANSWER,
    SEND_APPEND,
    SEND_BEHIND,
    SEND_VOTE,
    SUBJECT_ROOM,
    VIA_CATCHUP,
    VIA_LOG,
    VIA_NEW,
    Raft,
    RaftEnv,
    RaftPeer,
    RaftVia,
    add_peer,
    begin_change,
    fail,
    find_peer,
    peers_of,
    take_peers,
    was_removed,
)

cdef enum:
    FIRST = 4                  # places of an array that grows
    MOST_BEHIND = 100000       # records that may wait to be committed, or applied


cdef void raft_init(Raft *r, const RaftEnv *env, void *owner, uint64_t id, uint64_t seed) noexcept nogil:
    memset(r, 0, sizeof(Raft))
    r.env = env
    r.owner = owner
    r.id = id
    r.rng = seed * 2 + 1
    r.times.election_least = 4 * SECOND
    r.times.election_most = 9 * SECOND
    r.times.campaign_least = 100 * MILLISECOND
    r.times.campaign_most = 800 * MILLISECOND
    r.times.heartbeat = SECOND
    r.times.lost_quorum = 10 * SECOND
    r.times.stalled = 2 * SECOND
    r.times.pace = 50 * MILLISECOND


cdef void raft_free(Raft *r) noexcept nogil:
    free(r.peers)
    free(r.catchups)
    free(r.answers)
    free(r.batch)
    r.peers = NULL
    r.catchups = NULL
    r.answers = NULL
    r.batch = NULL


# ---- small things ----

cdef int64_t between(Raft *r, int64_t least, int64_t most) noexcept nogil:
    r.rng ^= r.rng << 13
    r.rng ^= r.rng >> 7
    r.rng ^= r.rng << 17
    return least + <int64_t> (r.rng % <uint64_t> (most - least + 1))


cdef void wait_for_leader(Raft *r, int64_t now) noexcept nogil:
    r.elects = now + between(r, r.times.election_least, r.times.election_most)


cdef inline uint32_t quorum(const Raft *r) noexcept nogil:
    return r.size // 2 + 1


cdef bint set_term(Raft *r, uint64_t term, uint64_t vote) noexcept nogil:
    """Write term and vote. False: it failed."""
    cdef int done
    r.term = term
    r.vote = vote
    r.grant_n = 0
    done = r.env.save_vote(r.owner, term, vote)
    if done < 0:
        fail(r, RAFT_STORE)
        return False
    r.saving = done == 0
    return True


# ---- the start ----

cdef bint raft_recover(
    Raft *r, uint64_t term, uint64_t vote, const Snapshot *snapshot, const PeerState *peers
) noexcept nogil:
    cdef PeerState found
    r.term = term
    r.vote = vote
    if snapshot != NULL:
        r.snapshot_term = r.pterm = r.durable_term = r.commit_term = snapshot.term
        r.snapshot_index = r.pindex = r.durable = r.commit = r.applied = snapshot.index
        if decode_peer_state(snapshot.peers.p, snapshot.peers.n, &found):
            take_peers(r, &found, snapshot.index)
    if r.npeers == 0 and peers != NULL:
        take_peers(r, peers, 0)
    return not r.failure


cdef bint raft_replay(Raft *r, uint64_t index, const char *data, size_t n) noexcept nogil:
    cdef AppendEntry ae
    if not decode_append_entry(data, n, &ae) or ae.n == 0 or ae.pindex != r.pindex or index != r.pindex + 1:
        return False
    if ae.pterm != r.pterm or ae.term < ae.pterm:
        return False
    stored_record(r, &ae)
    r.durable = r.pindex
    r.term = max(r.term, ae.term)
    note_changes(r, &ae, VIA_LOG, 0)
    commit_to(r, min(ae.commit, r.pindex))
    return not r.failure


cdef void raft_distrust(Raft *r, uint64_t index, uint64_t term) noexcept nogil:
    r.doubted = index
    r.doubted_term = term


cdef void raft_begin(Raft *r, bint recovering, int64_t now) noexcept nogil:
    r.initializing = not recovering and r.pindex == 0
    wait_for_leader(r, now)


# ---- elections ----

cdef void become_follower(Raft *r, uint64_t leader, int64_t now) noexcept nogil:
    cdef bint announced = r.announced
    r.state = RAFT_FOLLOWER
    r.leader = leader
    r.announced = r.transfers = r.tells = False
    r.batch_n = r.batch_entries = 0
    r.ncatchups = 0
    wait_for_leader(r, now)
    if announced:
        r.env.lead_changed(r.owner, False, r.term)


cdef void become_candidate(Raft *r, int64_t now) noexcept nogil:
    cdef size_t i
    if r.observer or r.applied < r.commit or r.catching_up:
        if r.catching_up and now - r.catchup_active > r.times.stalled:
            end_catchup(r)
        r.transfers = False
        wait_for_leader(r, now)
        return
    if find_peer(r, r.id) == NULL or (r.change.index and r.change.peer == r.id):
        r.leader = 0   # not a member, or not for certain
        wait_for_leader(r, now)
        return
    r.state = RAFT_CANDIDATE
    r.leader = 0
    for i in range(r.npeers):
        r.peers[i].votes = r.peers[i].votes_empty = False
    wait_for_leader(r, now)
    if set_term(r, r.term + 1, r.id) and not r.saving:
        request_votes(r, now)


cdef void request_votes(Raft *r, int64_t now) noexcept nogil:
    cdef char[VOTE_REQUEST_SIZE] data
    cdef VoteRequest request
    request.term, request.candidate = r.term, r.id
    request.last_term, request.last_index = r.pterm, r.pindex
    put_vote_request(data, &request)
    r.env.send(r.owner, SEND_VOTE, NULL, data, VOTE_REQUEST_SIZE)
    find_peer(r, r.id).votes = r.doubted == 0
    find_peer(r, r.id).votes_empty = r.doubted != 0
    count_votes(r, now)


cdef void count_votes(Raft *r, int64_t now) noexcept nogil:
    cdef uint32_t votes = 0, empty = 0
    cdef size_t i
    for i in range(r.npeers):
        votes += r.peers[i].votes
        empty += r.peers[i].votes_empty
    # A peer that has lost its log, or a part of it, must not help to elect one that lacks records; but if all vote,
    # none has more.
    if votes >= quorum(r) or votes + empty == r.size:
        become_leader(r, now)


cdef void become_leader(Raft *r, int64_t now) noexcept nogil:
    cdef size_t i, n
    cdef char *data
    r.state = RAFT_LEADER
    r.leader = r.id
    r.transfers = r.announced = r.tells = False
    r.own_first = r.pindex + 1
    r.checks = now + r.times.lost_quorum
    for i in range(r.npeers):
        r.peers[i].match = 0
    # The first record of a term: once it is committed, all before it is.
    data = peers_of(r, &n, False)
    if data != NULL and add_entry(r, ENTRY_PEER_STATE, data, n):
        send_record(r, now)
    free(data)


cdef void raft_vote_request(Raft *r, const char *data, size_t n, const Slice *subject, int64_t now) noexcept nogil:
    cdef VoteRequest request
    cdef bint newer, grants, behind
    if r.failure or not decode_vote_request(data, n, &request) or subject.n > SUBJECT_ROOM:
        return
    if request.candidate == r.id:
        return
    newer = request.term > r.term
    behind = request.last_term < r.pterm or (request.last_term == r.pterm and request.last_index < r.pindex)
    grants = not behind and (newer or (request.term == r.term and r.vote in (0, request.candidate)))
    if newer:
        if r.state != RAFT_FOLLOWER:
            become_follower(r, 0, now)
        end_catchup(r)
        r.leader = 0
    if newer or (grants and r.vote != request.candidate):
        if not set_term(r, request.term, request.candidate if grants else 0):
            return
    if not grants:
        send_vote(r, subject, False)
        if behind and r.vote == 0 and r.state == RAFT_FOLLOWER:
            raft_campaign(r, now)   # nobody else may have this server's records
        return
    wait_for_leader(r, now)
    if not r.saving:
        send_vote(r, subject, True)
    else:
        r.grant_n = subject.n
        memcpy(r.grant, subject.p, subject.n)


cdef void send_vote(Raft *r, const Slice *subject, bint granted) noexcept nogil:
    cdef char[VOTE_RESPONSE_SIZE] data
    cdef VoteResponse response
    response.term, response.peer, response.granted = r.term, r.id, granted
    response.empty = r.doubted != 0 or (r.pindex == 0 and not r.initializing)
    put_vote_response(data, &response)
    r.env.send(r.owner, SEND_ANSWER, subject, data, VOTE_RESPONSE_SIZE)


cdef void raft_vote_response(Raft *r, const char *data, size_t n, int64_t now) noexcept nogil:
    cdef VoteResponse response
    cdef RaftPeer *peer
    if r.failure or not decode_vote_response(data, n, &response):
        return
    if response.term > r.term:
        if r.state != RAFT_FOLLOWER:
            become_follower(r, 0, now)
        set_term(r, response.term, 0)
        return
    if r.state != RAFT_CANDIDATE or response.term < r.term or not response.granted or r.saving:
        return
    if not r.managed and r.npeers < r.size and not was_removed(r, response.peer, now) and (
            not add_peer(r, response.peer)):
        return
    peer = find_peer(r, response.peer)
    if peer == NULL:
        return
    peer.heard = now
    peer.votes = not response.empty
    peer.votes_empty = response.empty
    count_votes(r, now)


cdef void raft_saved(Raft *r, int64_t now) noexcept nogil:
    cdef Slice subject
    r.saving = False
    if r.failure:
        return
    if r.grant_n:
        subject.p, subject.n = r.grant, r.grant_n
        send_vote(r, &subject, True)
        r.grant_n = 0
    if r.state == RAFT_CANDIDATE and r.vote == r.id:
        request_votes(r, now)
    send_answers(r)


cdef void raft_campaign(Raft *r, int64_t now) noexcept nogil:
    if r.state != RAFT_LEADER:
        r.elects = now + between(r, r.times.campaign_least, r.times.campaign_most)


cdef void raft_expect(Raft *r, uint32_t size) noexcept nogil:
    if r.pindex == 0 and r.snapshot_index == 0 and r.leader == 0:
        r.size = max(r.size, size)


cdef void raft_set_observer(Raft *r, bint observer, int64_t now) noexcept nogil:
    r.observer = observer
    if r.state != RAFT_LEADER:
        wait_for_leader(r, now)


cdef bint raft_step_down(Raft *r, uint64_t preferred, int64_t now) noexcept nogil:
    cdef RaftPeer *best = NULL
    cdef RaftPeer *peer
    cdef size_t i
    if r.state != RAFT_LEADER:
        return False
    for i in range(r.npeers):
        peer = &r.peers[i]
        if peer.id == r.id or now - peer.heard >= 3 * r.times.heartbeat or peer.heard == 0:
            continue
        if best == NULL or peer.id == preferred or (best.id != preferred and peer.match > best.match):
            best = peer
    if best != NULL:
        if r.batch_entries:
            send_record(r, now)
        if r.state == RAFT_LEADER and add_entry(r, ENTRY_LEADER_TRANSFER, <const char *> &best.id, PEER_SIZE):
            send_record(r, now)
    if not r.failure:
        become_follower(r, 0, now)
    return True


# ---- time ----

cdef int64_t raft_deadline(const Raft *r) noexcept nogil:
    cdef int64_t when
    if r.failure:
        return (<int64_t> 1 << 62)
    if r.state != RAFT_LEADER:
        return r.elects
    when = min(r.sent + r.times.heartbeat, r.checks)
    return min(when, r.feeds) if r.ncatchups else when


cdef void raft_tick(Raft *r, int64_t now) noexcept nogil:
    if r.failure or now < raft_deadline(r):
        return
    if r.state != RAFT_LEADER:
        become_candidate(r, now)
        return
    if now >= r.checks:
        r.checks = now + r.times.heartbeat
        if not has_quorum(r, now):
            become_follower(r, 0, now)
            return
    if r.ncatchups and now >= r.feeds:
        feed_all(r, now)
    if r.state == RAFT_LEADER and now >= r.sent + r.times.heartbeat:
        send_heartbeat(r, now)


cdef bint has_quorum(const Raft *r, int64_t now) noexcept nogil:
    cdef uint32_t heard = 0
    cdef size_t i
    for i in range(r.npeers):
        heard += r.peers[i].id == r.id or now - r.peers[i].heard < r.times.lost_quorum
    return heard >= quorum(r)


# ---- a leader's records ----

cdef bint raft_propose(Raft *r, const char *data, size_t n, int64_t now) noexcept nogil:
    if r.state != RAFT_LEADER:
        return False
    if r.full or r.pindex - r.commit > MOST_BEHIND or r.commit - r.applied > MOST_BEHIND:
        become_follower(r, 0, now)   # others are behind as well; meanwhile all recover
        return False
    if not add_entry(r, ENTRY_NORMAL, data, n):
        return False
    if r.batch_n >= BATCH_BYTES or r.batch_entries >= BATCH_ENTRIES:
        send_record(r, now)
    return True


cdef bint raft_propose_peer(Raft *r, uint64_t peer, bint removes, int64_t now) noexcept nogil:
    if r.state != RAFT_LEADER or r.change.index or (find_peer(r, peer) != NULL) != removes:
        return False
    if r.batch_entries:
        send_record(r, now)
    # Only with a record of its own term committed does a leader know the peers for certain.
    if r.state != RAFT_LEADER or r.commit < r.own_first:
        return False
    if not add_entry(r, ENTRY_REMOVE_PEER if removes else ENTRY_ADD_PEER, <const char *> &peer, PEER_SIZE):
        return False
    return begin_change(r, r.pindex + 1, peer, removes) and send_record(r, now)


cdef void raft_flush(Raft *r, int64_t now) noexcept nogil:
    if r.state != RAFT_LEADER:
        return
    if r.batch_entries:
        send_record(r, now)
    elif r.tells:
        send_heartbeat(r, now)


cdef bint add_entry(Raft *r, uint8_t type, const char *data, size_t n) noexcept nogil:
    """Add an entry to the record that is being made. False: no memory."""
    cdef size_t start = r.batch_n if r.batch_entries else <size_t> APPEND_ENTRY_HEAD
    cdef size_t need = start + ENTRY_HEAD + n + LTERM_ROOM
    cdef char *more
    if need > r.batch_room:
        more = <char *> realloc(r.batch, max(need, 2 * r.batch_room))
        if more == NULL:
            return False
        r.batch = more
        r.batch_room = max(need, 2 * r.batch_room)
    r.batch_n = put_entry(r.batch + start, type, data, n) - r.batch
    r.batch_entries += 1
    return True


cdef bint send_record(Raft *r, int64_t now) noexcept nogil:
    """Store and send the record that has been made. False: it could not be stored."""
    cdef AppendEntry ae
    cdef size_t n
    cdef int done
    own_append_entry(r, &ae, r.batch_entries)
    put_append_entry(r.batch, &ae)
    n = put_lterm(r.batch + r.batch_n, 0) - r.batch
    r.batch_n = r.batch_entries = 0
    done = r.env.store(r.owner, r.pindex + 1, r.batch, n)
    if done < 0:
        fail(r, RAFT_STORE)
        return False
    r.pindex += 1
    r.pterm = r.term
    if done:
        r.durable = r.pindex
    r.env.send(r.owner, SEND_APPEND, NULL, r.batch, n)
    r.sent = now
    r.tells = False
    if done:
        try_commit(r)
    return not r.failure


cdef void send_heartbeat(Raft *r, int64_t now) noexcept nogil:
    cdef char[APPEND_ENTRY_HEAD + LTERM_ROOM] data
    cdef AppendEntry ae
    own_append_entry(r, &ae, 0)
    r.env.send(r.owner, SEND_APPEND, NULL, data, put_lterm(put_append_entry(data, &ae), 0) - data)
    r.sent = now
    r.tells = False


cdef void raft_response(Raft *r, const char *data, size_t n, const Slice *subject, int64_t now) noexcept nogil:
    cdef Response response
    cdef RaftPeer *peer
    if r.failure or not decode_response(data, n, &response):
        return
    if not response.success and subject.n == 0:
        if response.term > r.term:
            if r.state != RAFT_FOLLOWER:
                become_follower(r, 0, now)
            set_term(r, response.term, 0)
        return
    if r.state != RAFT_LEADER:
        return
    peer = find_peer(r, response.peer)
    if peer != NULL:
        peer.heard = now
    elif not r.managed and not was_removed(r, response.peer, now):
        raft_propose_peer(r, response.peer, False, now)
    if not response.success:
        if not begin_feeding(r, &response, subject, now):
            become_follower(r, 0, now)   # another server may be able to lead
    elif peer != NULL and response.term == r.term and peer.match < response.index <= r.pindex:
        peer.match = response.index
        try_commit(r)


cdef void try_commit(Raft *r) noexcept nogil:
    """Commit what a quorum has, if it reaches into this leader's own records: only those are safe to count."""
    cdef uint64_t best = 0, at
    cdef uint32_t n
    cdef size_t i, j
    if r.state != RAFT_LEADER:
        return
    for i in range(r.npeers):
        at = has_up_to(r, &r.peers[i])
        if at <= best or at < r.own_first:
            continue
        n = 0
        for j in range(r.npeers):
            n += has_up_to(r, &r.peers[j]) >= at
        if n >= quorum(r):
            best = at
    if best > r.commit:
        commit_to(r, best)
        r.tells = True
        regain_trust(r)


cdef inline uint64_t has_up_to(const Raft *r, const RaftPeer *peer) noexcept nogil:
    return r.durable if peer.id == r.id else peer.match


cdef void raft_stored(Raft *r, uint64_t index) noexcept nogil:
    if r.failure or index <= r.durable or index > r.pindex:
        return
    r.durable = index
    if r.state == RAFT_LEADER:
        try_commit(r)
    else:
        send_answers(r)
    regain_trust(r)


cdef void raft_applied(Raft *r, uint64_t index) noexcept nogil:
    r.applied = max(r.applied, min(index, r.commit))
    if r.state == RAFT_LEADER and not r.announced and r.applied >= r.own_first:
        r.announced = True
        r.env.lead_changed(r.owner, True, r.term)


# ---- a follower's records ----

cdef void raft_append_entry(
    Raft *r, RaftVia via, const char *data, size_t n, const Slice *subject, int64_t now
) noexcept nogil:
    cdef AppendEntry ae
    cdef RaftPeer *leader
    cdef uint64_t term
    if r.failure or not decode_append_entry(data, n, &ae):
        return
    if not r.catching_up if via == VIA_CATCHUP else ae.leader == r.id:
        return
    term = ae.lterm if ae.lterm else ae.term
    if term < r.term:
        if via == VIA_NEW:
            answer(r, SEND_ANSWER, subject, r.term, r.pindex, False)
        return
    if term == r.term and r.state == RAFT_LEADER:
        if ae.leader != r.id:
            fail(r, RAFT_TWO_LEADERS)
        return
    if term > r.term and not set_term(r, term, 0):
        return
    if r.state != RAFT_FOLLOWER or (via == VIA_NEW and r.leader != ae.leader):
        become_follower(r, ae.leader if via == VIA_NEW else 0, now)
    leader = find_peer(r, r.leader)
    if leader != NULL:
        leader.heard = now
    if not r.transfers:
        wait_for_leader(r, now)
    if r.catching_up and not still_behind(r, via, &ae, subject, now):
        return
    if r.full or r.commit - r.applied > MOST_BEHIND:
        return   # nothing more until the state machine has caught up
    take_record(r, via, &ae, subject, now)
    leader = find_peer(r, r.leader)   # its first record says that it is a member
    if leader != NULL:
        leader.heard = now
    regain_trust(r)


cdef bint still_behind(
    Raft *r, RaftVia via, const AppendEntry *ae, const Slice *subject, int64_t now
) noexcept nogil:
    """Decide whether a message to a follower that catches up is for it. New ones are not, until it has caught up."""
    if r.catchup_at != r.pindex:
        r.catchup_at = r.pindex
        r.catchup_active = now
    if r.pterm >= r.catchup_term and r.pindex >= r.catchup_index:
        end_catchup(r)
        return via == VIA_NEW
    if via == VIA_CATCHUP:
        return True
    if now - r.catchup_active > r.times.stalled:
        begin_catchup(r, ae, subject, now)
    return False


cdef void take_record(
    Raft *r, RaftVia via, const AppendEntry *ae, const Slice *subject, int64_t now
) noexcept nogil:
    cdef const char *at = ae.entries.p
    cdef Entry entry
    cdef uint64_t term
    if via == VIA_CATCHUP and ae.n and next_entry(ae, &at, &entry) and entry.type == ENTRY_SNAPSHOT:
        take_snapshot(r, ae, &entry, at, now)
        return
    if ae.pindex > r.pindex:
        if via == VIA_NEW:   # else what lies between is on its way, or the catch-up stalls and begins again
            begin_catchup(r, ae, subject, now)
        return
    if ae.pindex < r.commit:
        if ae.n and via == VIA_NEW:
            answer(r, SEND_ANSWER, subject, ae.term, ae.pindex + 1, True)   # it is committed, and so the same
        return
    if not term_at(r, ae.pindex, &term):
        return
    if term != ae.pterm:
        # What comes before differs. Of several terms of such records one goes at a time.
        if cut_to(r, ae.pindex - 1) and via == VIA_NEW:
            begin_catchup(r, ae, subject, now)
        return
    if ae.n == 0:
        commit_to(r, min(ae.commit, ae.pindex))
        if via == VIA_NEW and not r.saving:
            answer_heartbeat(r, ae, subject)
        return
    if ae.pindex < r.pindex:
        if not term_at(r, ae.pindex + 1, &term):
            return
        if term == ae.term:   # it is here already, perhaps with others behind it
            commit_to(r, min(ae.commit, ae.pindex + 1))
            if via == VIA_NEW and r.durable > ae.pindex and not r.saving:
                answer(r, SEND_ANSWER, subject, ae.term, ae.pindex + 1, True)
            return
        if not cut_to(r, ae.pindex):
            return
    store_record(r, via, ae, subject, now)


cdef void answer_heartbeat(Raft *r, const AppendEntry *ae, const Slice *subject) noexcept nogil:
    """Say up to where the records are durable that this server and the leader have in common."""
    cdef uint64_t index = min(r.durable, ae.pindex), term
    if term_at(r, index, &term):
        answer(r, SEND_ANSWER, subject, term, index, True)


cdef void store_record(
    Raft *r, RaftVia via, const AppendEntry *ae, const Slice *subject, int64_t now
) noexcept nogil:
    cdef int done = r.env.store(r.owner, ae.pindex + 1, ae.whole.p, ae.whole.n)
    if done < 0:
        fail(r, RAFT_STORE)
        return
    stored_record(r, ae)
    if done:
        r.durable = r.pindex
    note_changes(r, ae, via, now)
    commit_to(r, min(ae.commit, r.pindex))
    if via == VIA_NEW and not r.failure:
        answer_when_durable(r, subject)


cdef void stored_record(Raft *r, const AppendEntry *ae) noexcept nogil:
    r.pindex = ae.pindex + 1
    r.pterm = ae.term
    r.initializing = False


cdef void note_changes(Raft *r, const AppendEntry *ae, RaftVia via, int64_t now) noexcept nogil:
    """Look at the entries of the last record that concern a follower before they are committed."""
    cdef const char *at = ae.entries.p
    cdef Entry entry
    while next_entry(ae, &at, &entry):
        if entry.data.n != PEER_SIZE:
            continue
        if entry.type == ENTRY_ADD_PEER or entry.type == ENTRY_REMOVE_PEER:
            begin_change(r, r.pindex, get64(entry.data.p), entry.type == ENTRY_REMOVE_PEER)
        elif entry.type == ENTRY_LEADER_TRANSFER and via == VIA_NEW and get64(entry.data.p) == r.id:
            if not r.observer:
                r.transfers = True
                r.elects = now + 10 * MILLISECOND


# ---- catching up: the follower ----

cdef void begin_catchup(Raft *r, const AppendEntry *ae, const Slice *subject, int64_t now) noexcept nogil:
    r.catching_up = True
    r.catchup_term = ae.pterm
    r.catchup_index = ae.pindex
    r.catchup_at = r.pindex
    r.catchup_active = now
    r.env.open_catchup(r.owner)
    answer(r, SEND_BEHIND, subject, r.pterm, r.pindex, False)


cdef void end_catchup(Raft *r) noexcept nogil:
    if r.catching_up:
        r.catching_up = False
        r.env.close_catchup(r.owner)
