"""The message store of a stream."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

Message = tuple[int, int, bytes, bytes, bytes]

class StoreFailure(OSError):
    """Raised when a store refuses an operation or fails; `code` is a StoreError of gnats.store.base."""

    code: int
    def __init__(self, code: int, message: str) -> None: ...

class StreamState(NamedTuple):
    """The counts of a store. Times are in ns since 1970, 0 without a message.

    lost_msgs and lost_bytes count what damage has cost, damaged the records found unreadable since the start.
    """

    msgs: int
    bytes: int
    first_seq: int
    first_ts: int
    last_seq: int
    last_ts: int
    num_subjects: int
    num_deleted: int
    lost_msgs: int
    lost_bytes: int
    damaged: int

class MsgStore:
    """A store. Filters are subjects, wildcards allowed; without one, every subject matches. Any thread.

    Times are in ns since 1970, sizes in bytes. A StoreFailure's code says why an operation is not done. A
    failed write or sync freezes the store: it stores and removes nothing more, and reading goes on. Any
    method may raise MemoryError.
    """

    def failure(self) -> str:
        """Return why the store is frozen; empty when it is not."""
    def store_msg(
        self,
        subject: bytes,
        msg: bytes = b"",
        hdr: bytes = b"",
        *,
        seq: int | None = None,
        ts: int | None = None,
        ttl: int = 0,
        flush: bool = True,
    ) -> int:
        """Store a message and return its sequence. Without `flush` it waits in memory for flush_pending().

        ts is in ns since 1970 (None: now). ttl is in seconds; 0: none, negative: it never expires. With
        `seq`, which must be the next sequence, discard new is ignored. Raises StoreFailure: over a limit,
        too large, frozen.
        """
    def skip(self, seq: int = 0, n: int = 1) -> None:
        """Leave n sequences without a message; `seq` must be the next sequence, or 0. Raises StoreFailure."""
    def flush_pending(self) -> None:
        """Write the messages that wait in memory. Raises StoreFailure; the store is frozen then."""
    def sync_flushed(self) -> None:
        """Sync all files that were written. Raises StoreFailure; the store is frozen then."""
    def get(self, seq: int) -> Message:
        """Return (sequence, time in ns since 1970, subject, headers, payload).

        Raises StoreFailure: not found, deleted, damaged, cannot be read now.
        """
    def get_next(self, filters: Iterable[bytes | str] = (), start: int = 0) -> Message | None:
        """Return the first message at or after `start` that one of the filters matches, or None.

        Raises StoreFailure when a block cannot be read now.
        """
    def get_prev(self, filters: Iterable[bytes | str] = (), start: int = ...) -> Message | None:
        """Return the last message at or before `start` that one of the filters matches, or None.

        Raises StoreFailure when a block cannot be read now.
        """
    def get_last(self, subject: bytes) -> Message | None:
        """Return the last message of a subject, which may have wildcards, or None.

        Raises StoreFailure when a block cannot be read now.
        """
    def remove_msg(self, seq: int, erase: bool = False) -> bool:
        """Remove a message; with `erase` overwrite its record. False: there was none. Raises StoreFailure."""
    def purge_msgs(self, subject: bytes = b"", seq: int = 0, keep: int = 0) -> int:
        """Remove the messages of a subject (wildcards allowed; empty: all) and return their number.

        With `seq` only those before it, with `keep` all but the last `keep`. Raises StoreFailure.
        """
    def compact_to(self, seq: int) -> int:
        """Remove all messages before a sequence and return their number. Raises StoreFailure."""
    def truncate_to(self, seq: int) -> int:
        """Make seq the last sequence: remove all messages after it and return their number.

        Raises StoreFailure.
        """
    def expire_msgs(self, now: int | None = None) -> int:
        """Remove the messages that have expired at `now` (None: the clock's time) and return their number.

        `now` is in ns since 1970. Raises StoreFailure when the removal cannot be written.
        """
    def schedules_due(self, now: int) -> list[int]:
        """Return the sequences of the schedules that are due at `now` (ns since 1970). They stay due."""
    def pending(
        self, seq: int = 0, filters: Iterable[bytes | str] = (), last_per_subject: bool = False
    ) -> int:
        """Count the messages at or after `seq` that the filters match.

        With last_per_subject count only the last message of each subject.
        """
    def last_seqs(self, filters: Iterable[bytes | str] = (), up_to: int = 0, most: int = 0) -> list[int]:
        """Return the last sequence of each subject that the filters match, up to `up_to` (0: all), sorted.

        Raises StoreFailure when there are more than `most` (0: no limit), MemoryError also when a block
        cannot be read now.
        """
    def seq_at(self, ts: int) -> int:
        """Return the first sequence stored at or after a time in ns since 1970, or the last sequence + 1."""
    def subjects_state(self, filters: Iterable[bytes | str] = ()) -> dict[bytes, tuple[int, int, int]]:
        """Return {subject: (messages, first sequence, last sequence)} of subjects that the filters match."""
    def subjects_totals(self, filters: Iterable[bytes | str] = ()) -> dict[bytes, int]:
        """Return {subject: messages} of the subjects that the filters match."""
    def subjects_page(
        self, filters: Iterable[bytes | str] = (), offset: int = 0, most: int = 0
    ) -> tuple[int, list[tuple[bytes, int]]]:
        """Return the number of subjects that the filters match, and [(subject, messages)] of one page.

        Subjects are sorted; the page begins at `offset` and has at most `most`. Raises MemoryError.
        """
    def state(self) -> StreamState:
        """Return the counts as they are now."""
    def deleted(self) -> list[tuple[int, int]]:
        """Return the ranges (first, last) of sequences without a message between first_seq and last_seq."""
    def lost_ranges(self) -> list[tuple[int, int]]:
        """Return the ranges (first, last) of sequences lost to damage, as far as they are known."""
    def newly_lost(self) -> list[tuple[int, int, int, int]]:
        """Return the losses found since the last call: [(block, first sequence, last sequence, messages)]."""
    def update_config(
        self,
        *,
        max_msgs: int = -1,
        max_bytes: int = -1,
        max_msgs_per_subject: int = -1,
        max_age: int = 0,
        discard_new: bool = False,
        discard_new_per_subject: bool = False,
        allow_msg_ttl: bool = False,
        delete_markers: bool = False,
        allow_msg_schedules: bool = False,
    ) -> None:
        """Replace all limits, and remove the messages over the new ones. Raises StoreFailure.

        max_age is in ns; -1 and 0 mean no limit. allow_msg_ttl: messages expire by their Nats-TTL.
        delete_markers: the stream, not the store, removes expired messages. allow_msg_schedules: messages
        may be schedules, which the stream carries out.
        """
    def write_state(self, force: bool = False) -> None:
        """Write index.db if anything changed; with it the store opens without reading its records.

        Without `force`, a store with more than a million subjects or deletions leaves it to close().
        Raises OSError; the store is not frozen then.
        """
    def rests(self) -> bool:
        """Return whether sync_flushed(), write_state() and maintain() would find nothing to do."""
    def maintain(self, rewrites: int = 4, idle: int = 2) -> int:
        """Rewrite at most `rewrites` sparse blocks and return their number; unload idle blocks.

        A block is idle when it was not used during the last `idle` calls. For a thread that may wait for the
        disk.
        """
    def close(self) -> None:
        """Write the messages that wait, and the state files, and close.

        With sync_always, sync the files that were written. Raises StoreFailure when a write or a sync failed.
        Closing again does nothing.
        """

class MemStore(MsgStore):
    """A store in memory. block_size is in bytes; the other keywords are those of update_config."""

    def __init__(
        self, name: str = "", *, block_size: int = ..., first_seq: int = 0, **limits: int | bool
    ) -> None: ...

class FileStore(MsgStore):
    """A store in the directory of a stream, with its blocks in `msgs`.

    name is the stream's. block_size is in bytes (dyn_block_size). sync_always: before a file goes that newer
    records replace, those are synced. compression "s2": maintain() compresses full blocks. cipher ("chacha"
    or "aes") encrypts the files under `key`, the server's, and the name of `account`. warn is called with
    each message of recovery. A block in which more than `most_gaps` sequences have no record counts as
    damaged from there on. The other keywords are those of update_config. Raises OSError when the directory
    cannot be opened.
    """

    def __init__(
        self,
        directory: str,
        name: str,
        *,
        block_size: int = ...,
        sync_always: bool = False,
        first_seq: int = 0,
        compression: str = "none",
        cipher: str | None = None,
        key: bytes = b"",
        account: str = "",
        warn: Callable[[str], object] | None = None,
        most_gaps: int = ...,
        **limits: int | bool,
    ) -> None: ...
    def compress(self, compression: str) -> None:
        """Compress ("s2") or not ("none") the blocks that fill up from now on, older ones when rewritten."""
    def delete(self) -> None:
        """Close, and remove `msgs` and the directories that a purge left. Raises OSError."""
