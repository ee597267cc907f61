"""Rollups; see rollups.pxd."""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.slice cimport Slice
from gnats.jetstream.engine.barrier cimport stream_failed
from gnats.jetstream.state.entry cimport NO_ROLLUP, ROLLUP_SUBJECT, Rollup, StreamEntry
from gnats.jetstream.state.headers cimport H_ROLLUP, MsgHeaders, header_set, parse_headers, rollup_of, schedule_ended
from gnats.jetstream.state.streamcore cimport StreamCore, note_purged
from gnats.store.base cimport STORE_NO_MEMORY, STORE_OK, STORE_UNREADABLE, StoreMsg

cdef enum:
    SOME = 256           # messages looked at under one hold of the lock


cdef int purge_below(StreamCore s, const Slice *subject, uint64_t seq) noexcept nogil:
    """Purge the messages of a subject (n == 0: all messages) below `seq`."""
    cdef uint64_t gone = 0
    cdef int rc = s.store.purge_ex(subject.p, <uint32_t> subject.n, seq, 0, &gone)
    if gone:
        note_purged(s, subject.p, subject.n)
    return rc


cdef inline bint may_wait(int rc) noexcept nogil:
    """Return whether to try again later. A damaged block stays so, and a store that has failed ends its stream."""
    return rc == STORE_NO_MEMORY or rc == STORE_UNREADABLE


cdef bint replace(StreamCore s, Rollup rollup, const Slice *subject, const Slice *ended, uint64_t seq) noexcept nogil:
    """Do the rollup of the message `seq`. False when it has to wait."""
    cdef Slice replaced = subject[0]
    if not s.cfg.allow_rollup or s.cfg.deny_purge:
        return True
    if rollup != NO_ROLLUP:
        if rollup != ROLLUP_SUBJECT:
            replaced.n = 0
        if may_wait(purge_below(s, &replaced, seq)):
            return False
    # purge the ended schedule's messages up to this one, which is included
    return not ended.n or not may_wait(purge_below(s, ended, seq + 1))


cdef void roll_up(StreamCore s, const StreamEntry *e, uint64_t seq) noexcept nogil:
    """Do the rollup of a message that is stored now, or later (processJetStreamMsgWithRollup)."""
    if not replace(s, <Rollup> e.rollup, &e.subject, &e.ended, seq) and s.rollups_from == 0:
        s.rollups_from = seq


cdef bint replace_before(StreamCore s, const StoreMsg *sm) noexcept nogil:
    """Do the rollup of a stored message, if it is one. False when it has to wait."""
    cdef MsgHeaders h
    cdef Rollup rollup = NO_ROLLUP
    cdef Slice subject, ended
    cdef char *kept
    cdef bint done
    if not sm.hdr_n:
        return True
    parse_headers(<char *> sm.hdr, sm.hdr_n, &h)
    if header_set(&h, H_ROLLUP):
        rollup = rollup_of(&h.values[H_ROLLUP])
    ended = schedule_ended(&h)
    if rollup == NO_ROLLUP and not ended.n:
        return True
    # A purge moves what is in the store's buffer.
    kept = <char *> malloc(sm.subject_n + ended.n + 1)
    if kept == NULL:
        return False
    memcpy(kept, sm.subject, sm.subject_n)
    subject.p = kept
    subject.n = sm.subject_n
    if ended.n:
        memcpy(kept + subject.n, ended.p, ended.n)
        ended.p = kept + subject.n
    done = replace(s, rollup, &subject, &ended, sm.seq)
    free(kept)
    return done


cdef bint finish_some(StreamCore s) noexcept nogil:
    """Look at the next messages. True when there may be more."""
    cdef StoreMsg sm
    cdef uint32_t _
    cdef int rc
    for _ in range(SOME):
        rc = s.store.load_next(NULL, s.rollups_from, &sm, NULL)
        if may_wait(rc):
            return False
        if rc != STORE_OK:
            s.rollups_from = 0
            return False
        s.rollups_from = sm.seq
        if not replace_before(s, &sm):
            return False
        s.rollups_from += 1
    return True


cdef void finish_rollups(StreamCore s, PollState *ps) noexcept nogil:
    cdef bint more = True
    while more:
        s.enter()
        more = s.rollups_from != 0 and not s.closed and not stream_failed(s) and finish_some(s)
        s.leave(ps)
