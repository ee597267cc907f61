"""The message store of a stream."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

Message = tuple[int, int, bytes, bytes, bytes]

class StoreFailure(OSError):
    """A store refused: `code` is a StoreError of gnats.store.base."""

    code: int
    def __init__(self, code: int, message: str) -> None: ...

class StreamState(NamedTuple):
    """The counts of a store. Times are in ns since 1970, 0 without a message."""

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

def dyn_block_size(max_bytes: int = 0, limits_retention: bool = True, encrypted: bool = False) -> int:
    """The size of blocks, in bytes, for a stream's limits (dynBlkSize of filestore.go)."""

class MsgStore:
    """A store. Filters are subjects, wildcards allowed; none: every subject."""

    def failure(self) -> str:
        """Why the store is frozen; empty when it is not."""
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
        """Append a message; its sequence. Whether it is to be flushed at once is the caller's choice.

        ts is in ns since 1970, ttl in seconds. With a sequence, which must be the next one, discard new does
        not count. Raises StoreFailure: over a limit, too large, frozen.
        """
    def skip(self, seq: int = 0, n: int = 1) -> None:
        """n sequences from seq on (0: the next one) get no message."""
    def flush_pending(self) -> None:
        """Write what is appended. Raises StoreFailure, and the store is frozen."""
    def sync_flushed(self) -> None:
        """Make durable what is written. Raises StoreFailure, and the store is frozen."""
    def get(self, seq: int) -> Message:
        """(sequence, time in ns, subject, headers, payload). Raises StoreFailure when it is not there."""
    def get_next(self, filters: Iterable[bytes | str] = (), start: int = 0) -> Message | None:
        """The first message at or after a sequence that the filters take."""
    def get_prev(self, filters: Iterable[bytes | str] = (), start: int = ...) -> Message | None:
        """The last message at or before a sequence that the filters take."""
    def get_last(self, subject: bytes) -> Message | None:
        """The last message of a subject without wildcards; None when it has none."""
    def remove_msg(self, seq: int, erase: bool = False) -> bool:
        """Remove a message, and overwrite its bytes if `erase`. False: there was none."""
    def purge_msgs(self, subject: bytes = b"", seq: int = 0, keep: int = 0) -> int:
        """Remove those of a subject: all, those before a sequence, or all but `keep`. How many."""
    def compact_to(self, seq: int) -> int:
        """Remove all messages before a sequence. How many went."""
    def truncate_to(self, seq: int) -> int:
        """Make seq the last sequence: what is behind it goes. How many messages went."""
    def expire_msgs(self, now: int | None = None) -> int:
        """Remove what has expired. How many messages went."""
    def pending(
        self, seq: int = 0, filters: Iterable[bytes | str] = (), last_per_subject: bool = False
    ) -> int:
        """How many messages at or after a sequence, or of how many subjects the last one."""
    def last_seqs(self, filters: Iterable[bytes | str] = (), up_to: int = 0, most: int = 0) -> list[int]:
        """The sequence of the last message (up to a sequence) of each subject, sorted.

        Raises StoreFailure when there are more than `most` of them.
        """
    def seq_at(self, ts: int) -> int:
        """The first sequence stored at or after a time, in ns since 1970; last + 1 when there is none."""
    def subjects_state(self, filters: Iterable[bytes | str] = ()) -> dict[bytes, tuple[int, int, int]]:
        """Of each subject that the filters take: messages, first and last sequence."""
    def subjects_totals(self, filters: Iterable[bytes | str] = ()) -> dict[bytes, int]:
        """Of each subject that the filters take, how many messages there are."""
    def subjects_page(
        self, filters: Iterable[bytes | str] = (), offset: int = 0, most: int = 0
    ) -> tuple[int, list[tuple[bytes, int]]]:
        """How many subjects there are that the filters take, and of those from `offset` on, in order and
        `most` at most, how many messages there are. Any thread. Raises MemoryError."""
    def state(self) -> StreamState:
        """The counts as they are now."""
    def deleted(self) -> list[tuple[int, int]]:
        """The ranges (first, last) of sequences between the first and the last message that have none."""
    def lost_ranges(self) -> list[tuple[int, int]]:
        """The ranges (first, last) of sequences that damage has cost, as far as they are known."""
    def newly_lost(self) -> list[tuple[int, int, int, int]]:
        """What was found to be lost since the last call: block, first and last sequence, how many."""
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
        """Other limits; what is over them goes. max_age is in ns; -1 and 0 mean no limit."""
    def write_state(self, force: bool = False) -> None:
        """Write index.db, from which the store opens at once. Raises OSError; the store goes on."""
    def rests(self) -> bool:
        """Whether sync_flushed(), write_state() and maintain() would find nothing to do."""
    def maintain(self, rewrites: int = 4, idle: int = 2) -> int:
        """Rewrite sparse blocks, let go of idle ones; may wait for the disk. How many were rewritten."""
    def close(self) -> None:
        """Write what waits and end. Raises StoreFailure when something was not written."""

class MemStore(MsgStore):
    """A store in memory. The keywords are those of update_config, and the size of a block in bytes."""

    def __init__(
        self, name: str = "", *, block_size: int = ..., first_seq: int = 0, **limits: int | bool
    ) -> None: ...

class FileStore(MsgStore):
    """A store in the directory of a stream: its blocks are in `msgs` there."""

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
        """Compress ("s2") or not ("none") the blocks that are full from now on; others when rewritten."""
    def delete(self) -> None:
        """Close and remove `msgs`."""
