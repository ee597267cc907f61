"""Snapshots of a Raft group: those that this server makes, and those of its leader."""
from libc.stdint cimport int64_t, uint64_t

from gnats.core.runtime.slice cimport Slice
from gnats.raft.messages cimport AppendEntry, Entry, Snapshot
from gnats.raft.state cimport Raft

# Replace the records up to `index`, which is applied, by a snapshot. False: it failed.
cdef bint raft_save_snapshot(Raft *r, uint64_t index, const Slice *data) noexcept nogil
# The same in two parts, so that no lock need be held while it is written: fill in all but the data (the caller frees
# snapshot.peers.p), then say that it is there and that records up to its index may have been removed.
cdef bint raft_begin_snapshot(Raft *r, uint64_t index, Snapshot *snapshot) noexcept nogil
cdef void raft_end_snapshot(Raft *r, const Snapshot *snapshot) noexcept nogil
# Replace the whole log by the leader's snapshot, the first entry of a record; the peers follow it, at `at`.
cdef void take_snapshot(
    Raft *r, const AppendEntry *ae, const Entry *data, const char *at, int64_t now) noexcept nogil
