"""What a leader sends to followers that catch up; see feeding.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.core.runtime.slice cimport Slice
from gnats.includes.arrays cimport array_grow
from gnats.raft.log cimport own_append_entry, term_at
from gnats.raft.messages cimport (
    APPEND_ENTRY_HEAD,
    ENTRY_HEAD,
    ENTRY_PEER_STATE,
    ENTRY_SNAPSHOT,
    LTERM_ROOM,
    AppendEntry,
    Response,
    Snapshot,
    decode_append_entry,
    put_append_entry,
    put_entry,
    put_lterm,
)
from gnats.raft.state cimport RAFT_STORE, SEND_CATCHUP, SUBJECT_ROOM, CatchUp, Raft, fail

cdef enum:
    FIRST = 4                  # places of an array that grows
    PORTION = 2 << 20          # bytes of records that a follower gets at a time
    MOST_STEPS = 4096          # records to look at for one that leader and follower have in common


cdef bint begin_feeding(Raft *r, const Response *behind, const Slice *inbox, int64_t now) noexcept nogil:
    cdef uint64_t at = min(behind.index, r.pindex), term
    cdef CatchUp *c = NULL
    cdef size_t i
    cdef uint32_t _
    if inbox.n > SUBJECT_ROOM:
        return True
    for _ in range(MOST_STEPS):
        # Records of later terms than its last one differ from what it has.
        if at <= r.snapshot_index or not term_at(r, at, &term) or term <= behind.term:
            break
        at -= 1
    if r.failure:
        return True
    for i in range(r.ncatchups):
        if r.catchups[i].peer == behind.peer:
            c = &r.catchups[i]
    if c == NULL:
        if r.ncatchups == r.catchups_room and not array_grow(
                &r.catchups, &r.catchups_room, FIRST, sizeof(CatchUp)):
            return True   # it asks again
        c = &r.catchups[r.ncatchups]
        r.ncatchups += 1
    c.peer = behind.peer
    c.next = at + 1
    c.last = r.pindex
    c.inbox_n = inbox.n
    memcpy(c.inbox, inbox.p, inbox.n)
    if at < r.snapshot_index and not send_snapshot(r, c):
        return False
    feed_all(r, now)
    return True


cdef bint send_snapshot(Raft *r, CatchUp *c) noexcept nogil:
    """Send the snapshot, with which the rest of the log goes on. False: it could not be read."""
    cdef Snapshot snapshot
    cdef AppendEntry ae
    cdef Slice inbox
    cdef char *data
    cdef char *to
    if r.env.load_snapshot(r.owner, &snapshot) <= 0:
        return False
    own_append_entry(r, &ae, 2)
    ae.pterm, ae.pindex = snapshot.term, snapshot.index
    data = <char *> malloc(
        APPEND_ENTRY_HEAD + 2 * ENTRY_HEAD + snapshot.data.n + snapshot.peers.n + LTERM_ROOM)
    if data == NULL:
        return False
    to = put_append_entry(data, &ae)
    to = put_entry(to, ENTRY_SNAPSHOT, snapshot.data.p, snapshot.data.n)
    to = put_entry(to, ENTRY_PEER_STATE, snapshot.peers.p, snapshot.peers.n)
    to = put_lterm(to, r.term)
    inbox.p, inbox.n = c.inbox, c.inbox_n
    r.env.send(r.owner, SEND_CATCHUP, &inbox, data, to - data)
    free(data)
    c.next = snapshot.index + 1
    return True


cdef void feed_all(Raft *r, int64_t now) noexcept nogil:
    cdef size_t i, kept = 0
    for i in range(r.ncatchups):
        if feed(r, &r.catchups[i]):
            r.catchups[kept] = r.catchups[i]
            kept += 1
    r.ncatchups = kept
    r.feeds = now + r.times.pace


cdef bint feed(Raft *r, CatchUp *c) noexcept nogil:
    """Send a portion. False: there is no more, or it failed."""
    cdef AppendEntry ae
    cdef Slice data, inbox
    cdef size_t sent = 0, n
    cdef char *out
    inbox.p, inbox.n = c.inbox, c.inbox_n
    while c.next <= c.last and sent < PORTION:
        if c.next <= r.snapshot_index:
            return False   # compacted meanwhile: it asks again
        if r.env.load(r.owner, c.next, &data) < 0 or not decode_append_entry(data.p, data.n, &ae):
            fail(r, RAFT_STORE)
            return False
        n = ae.entries.p + ae.entries.n - data.p
        out = <char *> malloc(n + LTERM_ROOM)
        if out == NULL:
            return False
        memcpy(out, data.p, n)
        r.env.send(r.owner, SEND_CATCHUP, &inbox, out, put_lterm(out + n, r.term) - out)
        free(out)
        sent += n
        c.next += 1
    return c.next <= c.last
