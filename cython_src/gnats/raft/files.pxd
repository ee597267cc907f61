"""The files of a member of a Raft group, in nats-server's layouts (raft.go): what a RaftEnv stores.

    msgs/               the log: a message store, whose messages have no subject; the payload is a record, the sequence
                        its index
    snapshots/snap.T.I  the last snapshot, of term T and index I
    tav.idx             term and vote
    peers.idx           the peers
    distrust.idx        gnats's own: this member has lost records that it may have acknowledged; see raft_distrust()

Every file but those of the log is replaced in one step, durably. The functions may be called with the lock of the
member held, by one thread at a time; flush() and sync_log() by any thread. All but sync_log() take the store's lock.
Results below 0: failed, and `failure` says why.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t

from gnats.core.runtime.slice cimport Slice
from gnats.raft.messages cimport Snapshot
from gnats.raft.state cimport Raft
from gnats.store.format.highway cimport HighwayKey
from gnats.store.store cimport MsgStore


cdef class RaftFiles:
    cdef readonly MsgStore log
    cdef readonly str directory
    cdef readonly bint bootstrapped  # this member has been there before
    cdef object warn
    cdef int dirfd
    cdef int snapshots_fd
    cdef HighwayKey key              # of the checksums of snapshots
    cdef uint64_t snapshot_term      # of the file that is there
    cdef uint64_t snapshot_index     # 0: none
    cdef char *loaded                # the snapshot that was read last
    cdef size_t loaded_n
    cdef const char *what            # the file that failed, and the errno
    cdef int error
    cdef uint64_t lost               # at the start: records up to here were lost to damage; 0: none
    cdef uint64_t lost_term          # the term of the last of them, or a later one
    cdef uint64_t committed          # as commit.idx says
    cdef uint64_t unread             # at the start: index of the last snapshot that is damaged

    cdef void close_directories(self) noexcept
    cdef int failed(self, const char *what, int error) noexcept nogil
    # Append a record; it is in memory until flush().
    cdef int store(self, uint64_t index, const char *data, size_t n) noexcept nogil
    # Write the records that wait in memory. *last becomes the index of the last record.
    cdef int flush(self, uint64_t *last) noexcept nogil
    # Sync what flush() has written. No lock is held.
    cdef int sync_log(self) noexcept nogil
    # For the other functions see RaftEnv.
    cdef int load(self, uint64_t index, Slice *data) noexcept nogil
    cdef int truncate(self, uint64_t index) noexcept nogil
    cdef int save_snapshot(self, const Snapshot *snapshot, bint all) noexcept nogil
    cdef int load_snapshot(self, Snapshot *snapshot) noexcept nogil
    cdef int save_vote(self, uint64_t term, uint64_t vote) noexcept nogil
    cdef int save_peers(self, const char *data, size_t n) noexcept nogil
    cdef int save_distrust(self, uint64_t index, uint64_t term) noexcept nogil
    cdef int forget_distrust(self) noexcept nogil
    # Note that the records up to an index are committed, unless that is known: what they say is about to be carried
    # out, and a member that forgot it would carry out again what they have replaced. With `durably`, sync the file.
    cdef int save_commit(self, uint64_t index, bint durably) noexcept nogil

    # Write a snapshot beside the one that is there; adopt_snapshot() then replaces that. Any thread, without a lock,
    # one at a time.
    cdef int write_snapshot(self, const Snapshot *snapshot, const char *name) noexcept nogil
    cdef int adopt_snapshot(self, const char *temporary, uint64_t term, uint64_t index) noexcept nogil

    cdef int find(self, uint64_t index, Slice *data) noexcept nogil
    cdef void put_checksum(self, char *data, size_t n) noexcept nogil
    cdef bint is_whole(self, const char *data, size_t n) noexcept nogil
    cdef int put(self, const char *name, const char *data, size_t n) noexcept nogil
    cdef int drop_up_to(self, uint64_t index, bint all) noexcept nogil
    cdef bint read_snapshot(self, const char *name, Snapshot *snapshot) noexcept nogil
    cdef bytes read(self, str name)
    cdef int read_distrust(self) except -1
    cdef int recover_commit(self, Raft *r) except -1
    cdef bint find_snapshot(self, Snapshot *snapshot, list damaged) except -1
    cdef int sync_found(self) noexcept nogil
    cdef bint replay(self, Raft *r) noexcept nogil
    cdef bint cannot_open(self, uint64_t index) noexcept nogil
    cdef bint drop_behind(self, uint64_t index) noexcept nogil
    # Give a Raft what the files say: raft_recover(), raft_replay() of each record, raft_distrust().
    cdef int recover(self, Raft *r) except -1
