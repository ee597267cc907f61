"""The files of a member of a Raft group; see files.pxd."""
from libc.errno cimport EIO, ENOMEM
from libc.stddef cimport size_t
from libc.stdint cimport UINT64_MAX, uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from posix.fcntl cimport O_CLOEXEC, O_DIRECTORY, O_RDONLY
from posix.unistd cimport close

import os
import re
from pathlib import Path

from gnats.core.runtime.clock cimport realtime_ns
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.raft.log cimport commit_to
from gnats.raft.messages cimport (
    SNAPSHOT_LEAST,
    TERM_VOTE_SIZE,
    AppendEntry,
    PeerState,
    Snapshot,
    decode_append_entry,
    decode_peer_state,
    decode_snapshot,
    decode_term_vote,
    get64,
    put64,
    put_snapshot,
    put_term_vote,
)
from gnats.raft.raft cimport raft_distrust, raft_recover, raft_replay
from gnats.raft.state cimport Raft, take_peers
from gnats.store.base cimport (
    STORE_DAMAGED,
    STORE_DELETED,
    STORE_FAILED,
    STORE_NOT_FOUND,
    STORE_OK,
    StoreMsg,
    blk_select,
)
from gnats.store.block cimport MsgBlock, block_sync
from gnats.store.format.highway cimport highway, highway_key_of
from gnats.store.putfile cimport LONGEST_NAME, put_file, read_whole, remove_file, rename_file, write_file
from gnats.store.statefile cimport invalidate
from gnats.store.writing cimport store_msg

from gnats.raft.messages import write_peer_state
from gnats.store.block_size import MEDIUM
from gnats.store.store import FileStore, MemStore

SNAPSHOT_FILE = re.compile(r"snap\.(0|[1-9][0-9]{0,19})\.([1-9][0-9]{0,19})")
DIR_FLAGS = O_RDONLY | O_DIRECTORY | O_CLOEXEC

cdef const char *VOTE_FILE = b"tav.idx"
cdef const char *PEERS_FILE = b"peers.idx"
cdef const char *DISTRUST_FILE = b"distrust.idx"
cdef const char *COMMIT_FILE = b"commit.idx"

cdef enum:
    CHECKSUM = 8
    DISTRUST_SIZE = 16 + CHECKSUM   # index, term
    COMMIT_SIZE = 8 + CHECKSUM      # index


class FilesError(Exception):
    """The files of a member of a Raft group cannot be used; the text says which, and what to do."""


def bootstrap(directory, int size, list peers not None) -> None:
    """Make the directory of a member of a new group: a path, the number of peers, those that are known (8 bytes each).

    Raises OSError.
    """
    cdef bytes data = write_peer_state(size, peers)
    cdef int fd, err
    made = [Path(directory)]
    made += [above for above in made[0].parents if not above.exists()]
    os.makedirs(directory, mode=0o700, exist_ok=True)
    fd = os.open(directory, DIR_FLAGS)
    err = put_file(fd, PEERS_FILE, data, len(data), True)
    os.close(fd)
    if err:
        raise OSError(err, os.strerror(err), str(directory))
    for each in made:   # a member that came back as a new one could vote again
        fd = os.open(each.parent, DIR_FLAGS)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


cdef void name_snapshot(char *name, uint64_t term, uint64_t index) noexcept nogil:
    snprintf(name, LONGEST_NAME, b"snap.%llu.%llu", <unsigned long long> term, <unsigned long long> index)


cdef class RaftFiles:
    """The files of one member, in its directory, which bootstrap() or an earlier member has made.

    `group` is the group's name. With `sync_always`, flush() does not make a record durable, sync_log() does. The log is
    encrypted with `cipher` under `key` as a FileStore is. With `in_memory`, records and snapshots are in memory alone.
    warn is called with each message (str) of recovery. Raises OSError, FilesError.
    """

    def __cinit__(self):
        self.dirfd = self.snapshots_fd = -1

    def __init__(
        self, directory, str group not None, *, bint sync_always=False, bint in_memory=False, int block_size=MEDIUM,
        str cipher=None, bytes key=b"", str account="", warn=None,
    ) -> None:
        cdef bytes name = group.encode()
        self.directory = os.fspath(directory)
        self.warn = warn or (lambda text: None)
        highway_key_of(&self.key, name, len(name))
        snapshots = os.path.join(self.directory, "snapshots")
        os.makedirs(snapshots, mode=0o700, exist_ok=True)
        self.dirfd = os.open(self.directory, DIR_FLAGS)
        self.snapshots_fd = os.open(snapshots, DIR_FLAGS)
        # What an interrupted function has left is found, and acted on: it must not go back to what was before.
        os.fsync(self.dirfd)
        os.fsync(self.snapshots_fd)
        if in_memory:
            for left in os.listdir(snapshots):
                os.unlink(os.path.join(snapshots, left))
            self.log = MemStore(group, block_size=block_size)
        else:
            self.log = FileStore(
                self.directory, group, block_size=block_size, sync_always=sync_always, cipher=cipher, key=key,
                account=account, warn=self.warn)

    def __dealloc__(self):
        free(self.loaded)
        self.close_directories()

    cdef void close_directories(self) noexcept:
        if self.dirfd >= 0:
            close(self.dirfd)
        if self.snapshots_fd >= 0:
            close(self.snapshots_fd)
        self.dirfd = self.snapshots_fd = -1

    @property
    def failure(self) -> str:
        """Why a function has failed; empty when none has."""
        return self.log.failure() or (f"{self.what.decode()}: {os.strerror(self.error)}" if self.error else "")

    def close(self) -> None:
        """Write what waits, and close the files; nobody may use them any more. Raises StoreFailure. Closing again does
        nothing."""
        try:
            self.log.close()
        finally:
            self.close_directories()

    cdef int failed(self, const char *what, int error) noexcept nogil:
        if self.error == 0:
            self.what = what
            self.error = error
        return -1

    # -- the log --

    cdef int store(self, uint64_t index, const char *data, size_t n) noexcept nogil:
        cdef MsgBlock *before
        cdef int code
        pthread_mutex_lock(&self.log.lock)
        before = self.log.last
        code = store_msg(self.log, b"", 0, b"", 0, data, <unsigned int> n, index, realtime_ns(), 0, False, False)
        if code == STORE_OK and before != self.log.last and self.log.env.sync_always:
            # Else a loss of power could leave records of the new block behind a gap, which is damage.
            code = STORE_OK if block_sync(&self.log.env, before) == 0 else STORE_FAILED
        pthread_mutex_unlock(&self.log.lock)
        return 0 if code == STORE_OK else self.failed(b"msgs", EIO)

    cdef int flush(self, uint64_t *last) noexcept nogil:
        cdef int rc
        pthread_mutex_lock(&self.log.lock)
        rc = self.log.flush()
        last[0] = self.log.last_seq
        pthread_mutex_unlock(&self.log.lock)
        return self.failed(b"msgs", -rc) if rc else 0

    cdef int sync_log(self) noexcept nogil:
        return self.log.sync()

    cdef int find(self, uint64_t index, Slice *data) noexcept nogil:
        """Read a record. Return a StoreError."""
        cdef StoreMsg msg
        cdef int code
        pthread_mutex_lock(&self.log.lock)
        code = self.log.load(index, &msg)
        pthread_mutex_unlock(&self.log.lock)
        if code != STORE_OK:
            return code
        data.p = <char *> msg.hdr + msg.hdr_n
        data.n = msg.msg_n
        # No record has a subject or headers; their lengths are not in the checksum.
        return STORE_DAMAGED if msg.subject_n or msg.hdr_n else STORE_OK

    cdef int load(self, uint64_t index, Slice *data) noexcept nogil:
        return 0 if self.find(index, data) == STORE_OK else self.failed(b"msgs", EIO)

    cdef int truncate(self, uint64_t index) noexcept nogil:
        cdef uint64_t purged
        cdef int code
        pthread_mutex_lock(&self.log.lock)
        code = self.log.truncate(index, &purged)
        pthread_mutex_unlock(&self.log.lock)
        return 0 if code == STORE_OK else self.failed(b"msgs", EIO)

    cdef int drop_up_to(self, uint64_t index, bint all) noexcept nogil:
        """Remove whole blocks of records up to an index; with `all`, every record. The next one is behind the index."""
        cdef uint64_t purged, first = index + 1
        cdef MsgBlock *b
        cdef int code = STORE_OK
        pthread_mutex_lock(&self.log.lock)
        if all and self.log.last_seq > index:
            code = self.log.truncate(index, &purged)
        if code == STORE_OK and not all and self.log.last_seq >= index:
            b = blk_select(self.log, first)
            if b != NULL and b.first_seq < first:
                first = b.first_seq   # to remove single records takes a tombstone each
        if code == STORE_OK and first > self.log.first_seq:
            invalidate(self.log)   # the index knows the blocks that go: after a crash it would miss them
            code = self.log.compact(first, &purged)
        pthread_mutex_unlock(&self.log.lock)
        return 0 if code == STORE_OK else self.failed(b"msgs", EIO)

    # -- the other files --

    cdef void put_checksum(self, char *data, size_t n) noexcept nogil:
        put64(data + n - CHECKSUM, highway(&self.key, data, n - CHECKSUM))

    cdef bint is_whole(self, const char *data, size_t n) noexcept nogil:
        return get64(data + n - CHECKSUM) == highway(&self.key, data, n - CHECKSUM)

    cdef int put(self, const char *name, const char *data, size_t n) noexcept nogil:
        cdef int err = put_file(self.dirfd, name, <const uint8_t *> data, n, True)
        return self.failed(name, err) if err else 0

    cdef int save_vote(self, uint64_t term, uint64_t vote) noexcept nogil:
        cdef char[TERM_VOTE_SIZE] data
        return self.put(VOTE_FILE, data, put_term_vote(data, term, vote))

    cdef int save_peers(self, const char *data, size_t n) noexcept nogil:
        return self.put(PEERS_FILE, data, n)

    cdef int save_distrust(self, uint64_t index, uint64_t term) noexcept nogil:
        cdef char[DISTRUST_SIZE] data
        put64(put64(data, index), term)
        self.put_checksum(data, DISTRUST_SIZE)
        return self.put(DISTRUST_FILE, data, DISTRUST_SIZE)

    cdef int forget_distrust(self) noexcept nogil:
        cdef int err = remove_file(self.dirfd, DISTRUST_FILE)
        return self.failed(DISTRUST_FILE, err) if err else 0

    cdef int save_commit(self, uint64_t index, bint durably) noexcept nogil:
        cdef char[COMMIT_SIZE] data
        cdef int err
        if index <= self.committed:
            return 0
        put64(data, index)
        self.put_checksum(data, COMMIT_SIZE)
        err = put_file(self.dirfd, COMMIT_FILE, <const uint8_t *> data, COMMIT_SIZE, durably)
        if err:
            return self.failed(COMMIT_FILE, err)
        self.committed = index
        return 0

    # -- snapshots --

    cdef int write_snapshot(self, const Snapshot *snapshot, const char *name) noexcept nogil:
        cdef size_t n = SNAPSHOT_LEAST + snapshot.peers.n + snapshot.data.n
        cdef char *data = <char *> malloc(n)
        cdef int err
        if data == NULL:
            return self.failed(b"snapshots", ENOMEM)
        put_snapshot(data, snapshot)
        self.put_checksum(data, n)
        err = write_file(self.snapshots_fd, name, <const uint8_t *> data, n, True)
        free(data)
        return self.failed(b"snapshots", err) if err else 0

    cdef int adopt_snapshot(self, const char *temporary, uint64_t term, uint64_t index) noexcept nogil:
        cdef char[LONGEST_NAME] name, old
        cdef int err
        name_snapshot(name, term, index)
        name_snapshot(old, self.snapshot_term, self.snapshot_index)
        err = rename_file(self.snapshots_fd, temporary, name)
        if err == 0 and self.snapshot_index and (term != self.snapshot_term or index != self.snapshot_index):
            err = remove_file(self.snapshots_fd, old)
        if err:
            return self.failed(b"snapshots", err)
        self.snapshot_term, self.snapshot_index = term, index
        return 0

    cdef int save_snapshot(self, const Snapshot *snapshot, bint all) noexcept nogil:
        cdef const char *temporary = b"taken.tmp"
        if self.write_snapshot(snapshot, temporary) < 0:
            return -1
        if self.adopt_snapshot(temporary, snapshot.term, snapshot.index) < 0:
            return -1
        return self.drop_up_to(snapshot.index, all)

    cdef int load_snapshot(self, Snapshot *snapshot) noexcept nogil:
        cdef char[LONGEST_NAME] name
        if self.snapshot_index == 0:
            return 0
        name_snapshot(name, self.snapshot_term, self.snapshot_index)
        return 1 if self.read_snapshot(name, snapshot) else self.failed(b"snapshots", self.error or EIO)

    cdef bint read_snapshot(self, const char *name, Snapshot *snapshot) noexcept nogil:
        """Read a snapshot into `loaded`. False: `error` says why not, or it is damaged."""
        cdef int err
        free(self.loaded)
        err = read_whole(self.snapshots_fd, name, &self.loaded, &self.loaded_n)
        if err:
            self.failed(b"snapshots", err)
            return False
        return self.loaded_n >= SNAPSHOT_LEAST and decode_snapshot(
            self.loaded, self.loaded_n, highway(&self.key, self.loaded, self.loaded_n - CHECKSUM), snapshot)

    # -- the start --

    cdef bytes read(self, str name):
        """Read a file of the member's directory; None: there is none."""
        try:
            return Path(self.directory, name).read_bytes()
        except FileNotFoundError:
            return None

    cdef int read_distrust(self) except -1:
        """Read what an earlier start has lost, unless this server has it again."""
        cdef bytes data = self.read("distrust.idx")
        cdef const char *at
        if data is None:
            return 0
        self.lost = UINT64_MAX   # damaged: anything may be lost
        at = data
        if len(data) == DISTRUST_SIZE and self.is_whole(at, DISTRUST_SIZE):
            self.lost, self.lost_term = get64(at), get64(at + 8)
        return 0

    cdef int recover_commit(self, Raft *r) except -1:
        """Commit what commit.idx says was committed. When it is damaged or missing, the records alone say so."""
        cdef bytes data = self.read("commit.idx")
        cdef const char *at
        cdef uint64_t index
        if data is None:
            return 0
        at = data
        if len(data) != COMMIT_SIZE or not self.is_whole(at, COMMIT_SIZE):
            return 0
        index = get64(at)
        if index > r.pindex:   # the records are lost: others may come in their place, which are not yet committed
            os.unlink("commit.idx", dir_fd=self.dirfd)
            os.fsync(self.dirfd)
            index = r.pindex
        else:
            self.committed = index
        with nogil:
            commit_to(r, index)
        return 0

    cdef bint find_snapshot(self, Snapshot *snapshot, list damaged) except -1:
        """Find and read the newest snapshot that is whole, and remove all other files beside it. False: there is none.

        What a damaged one had may be missing, which replay() sees at the log.
        """
        cdef uint64_t term, index
        cdef list found = []
        cdef bint there = False
        for name in os.listdir(self.snapshots_fd):
            match = SNAPSHOT_FILE.fullmatch(name)
            if match and max(int(match[1]), int(match[2])) <= UINT64_MAX:
                found.append((int(match[1]), int(match[2]), name))
            elif not name.endswith(".damaged"):
                os.unlink(name, dir_fd=self.snapshots_fd)
        for term, index, name in sorted(found, reverse=True):
            if there:
                os.unlink(name, dir_fd=self.snapshots_fd)
                continue
            there = self.read_snapshot(name.encode(), snapshot) and (snapshot.term, snapshot.index) == (term, index)
            if self.error:
                raise OSError(self.error, os.strerror(self.error), name)
            if there:
                self.snapshot_term, self.snapshot_index = term, index
            else:
                self.warn(f"{self.directory}: the snapshot {name} is damaged")
                damaged.append(name)
                self.unread = max(self.unread, index)
        return there

    cdef int recover(self, Raft *r) except -1:
        cdef Snapshot snapshot
        cdef PeerState state
        cdef bytes peers = self.read("peers.idx"), vote = self.read("tav.idx")
        cdef uint64_t term = 0, voted = 0
        cdef bint has_snapshot, ok, has_peers = peers is not None and decode_peer_state(peers, len(peers), &state)
        cdef list damaged = []
        self.read_distrust()
        has_snapshot = self.find_snapshot(&snapshot, damaged)
        if vote is not None and not decode_term_vote(vote, len(vote), &term, &voted):
            raise FilesError(f"{self.directory}/tav.idx is damaged: remove the directory, to join the group anew")
        self.bootstrapped = term != 0 or has_snapshot or self.log.last_seq != 0
        if self.bootstrapped and vote is None:
            raise FilesError(f"{self.directory}/tav.idx is missing: remove the directory, to join the group anew")
        if not has_peers and not has_snapshot:
            raise FilesError(f"{self.directory}/peers.idx is damaged or missing: remove the directory, to join anew")
        ok = raft_recover(r, term, voted, &snapshot if has_snapshot else NULL, &state if has_peers else NULL)
        if ok:
            with nogil:
                ok = self.replay(r)
        if ok:
            self.recover_commit(r)
            ok = not r.failure
        if self.error:
            raise OSError(self.error, os.strerror(self.error), self.directory)
        if not ok:
            raise MemoryError
        if self.sync_found() != 0:
            raise OSError(self.log.env.error, os.strerror(self.log.env.error), self.directory)
        for name in damaged:   # only now: what it had is counted as lost
            os.rename(name, name + ".damaged", src_dir_fd=self.snapshots_fd, dst_dir_fd=self.snapshots_fd)
        if self.lost:
            if has_peers:   # records that have changed the peers may be lost, too
                take_peers(r, &state, r.commit)
            self.warn(
                f"{self.directory}: records up to {self.lost} were lost to damage; this member's vote"
                " counts only where all vote, until it has them again")
            raft_distrust(r, self.lost, self.lost_term)
        return 0

    cdef int sync_found(self) noexcept nogil:
        """Sync the records that are there: raft_replay() takes them for durable, and they may only be written."""
        cdef MsgBlock *b
        cdef size_t i
        if not self.log.env.sync_always:
            return 0
        pthread_mutex_lock(&self.log.lock)
        for i in range(self.log.n_blks):
            b = self.log.blks[i]
            b.need_sync = True
            b.need_key_sync = b.seal_key != NULL
        self.log.env.dir_dirty = True
        pthread_mutex_unlock(&self.log.lock)
        return self.log.sync()

    cdef bint replay(self, Raft *r) noexcept nogil:
        """Replay the records behind the snapshot, and cut off those that do not continue it. False: it failed."""
        cdef AppendEntry ae
        cdef Slice data
        cdef int code = STORE_OK
        cdef uint64_t last, known = self.lost
        cdef bint continues = True
        if self.drop_up_to(r.pindex, False) < 0:
            return False
        last = self.log.last_seq
        while r.pindex < last and continues:
            code = self.find(r.pindex + 1, &data)
            if code != STORE_OK:
                break
            continues = raft_replay(r, r.pindex + 1, data.p, data.n)
            if r.failure:
                return False
        if code in (STORE_NOT_FOUND, STORE_DELETED) or (code == STORE_DAMAGED and not self.cannot_open(r.pindex + 1)):
            self.lost = max(self.lost, last)
        elif code == STORE_DAMAGED:
            self.failed(b"msgs", EIO)
            return False
        elif code != STORE_OK:
            self.failed(b"msgs", ENOMEM)
            return False
        if r.pindex < self.unread:   # else the log still has what the snapshot had
            self.lost = max(self.lost, self.unread)
        # Before the records behind the damage go: this server must never forget that it had them.
        if self.lost > known or self.lost_term == 0:
            # It has acknowledged nothing of a later term than that of the last record, if that can be read.
            self.lost_term = r.term
            if self.lost == last and self.find(last, &data) == STORE_OK and decode_append_entry(data.p, data.n, &ae):
                self.lost_term = ae.term
            if self.lost and self.save_distrust(self.lost, self.lost_term) < 0:
                return False
        return r.pindex == last or self.drop_behind(r.pindex)

    cdef bint cannot_open(self, uint64_t index) noexcept nogil:
        """Return whether a record is in a block whose file is there and cannot be opened, which may be over soon."""
        cdef MsgBlock *b
        cdef bint cannot
        pthread_mutex_lock(&self.log.lock)
        b = blk_select(self.log, index)
        cannot = b != NULL and not b.indexed and not b.damaged
        pthread_mutex_unlock(&self.log.lock)
        return cannot

    cdef bint drop_behind(self, uint64_t index) noexcept nogil:
        """Remove the records behind an index; the next one gets the index + 1. False: it failed."""
        if index and self.log.first_seq <= index:
            return self.truncate(index) == 0
        return self.truncate(0) == 0 and self.drop_up_to(index, False) == 0
