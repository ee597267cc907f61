"""The files of a member of a Raft group, in nats-server's layouts (raft.go)."""

from collections.abc import Callable
from os import PathLike

from gnats.store.store import MsgStore

class FilesError(Exception):
    """The files of a member of a Raft group cannot be used; the text says which, and what to do."""

def bootstrap(directory: str | PathLike[str], size: int, peers: list[bytes]) -> None:
    """Make the directory of a member of a new group: a path, the number of peers, those that are known.

    A peer is known by 8 bytes. Raises OSError.
    """

class RaftFiles:
    """The files of one member, in its directory, which bootstrap() or an earlier member has made.

    `group` is the group's name. With `sync_always`, a record is durable once it is synced, else once it is
    written. The log is encrypted with `cipher` ("chacha" or "aes") under `key` as a FileStore is. With
    `in_memory`, records and snapshots are in memory alone. `warn` is called with each message of recovery.
    block_size is in bytes. Raises OSError, FilesError.
    """

    log: MsgStore
    directory: str
    bootstrapped: bool
    """Whether this member has been there before: it has a term, a vote or records. After recovery."""

    def __init__(
        self,
        directory: str | PathLike[str],
        group: str,
        *,
        sync_always: bool = False,
        in_memory: bool = False,
        block_size: int = ...,
        cipher: str | None = None,
        key: bytes = b"",
        account: str = "",
        warn: Callable[[str], None] | None = None,
    ) -> None: ...
    @property
    def failure(self) -> str:
        """Why a function has failed; empty when none has."""

    def close(self) -> None:
        """Write what waits, and close the log. Raises StoreFailure. Closing again does nothing."""
