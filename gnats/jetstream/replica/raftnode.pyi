"""A member of a Raft group in a server (raft.go): messages, timer, files, and what it has committed."""

from typing import Any

from gnats.core.accounts.account import Account
from gnats.jetstream.engine.engine import Engine, StreamBase
from gnats.raft.files import RaftFiles

Entries = list[tuple[int, bytes]]
"""The entries of a record: EntryType (gnats.raft.messages) and data of each."""

RAFT_NEWS: int
"""The number of an EV_JETSTREAM: take() has something to return, or the group has stopped."""
APPLIED_ENTRIES: int
"""A record is committed."""
APPLIED_SNAPSHOT: int
"""The state is to be replaced by that of a snapshot."""
APPLIED_LEAD: int
"""This server leads from now on; the number is the term."""
APPLIED_FOLLOW: int
"""It does not any more."""
APPLIED_TRUST: int
"""Records that were lost to damage are there again."""
APPLIED_LEADER: int
"""Another peer leads as far as this server knows, or none; the value is its name or b""."""
APPLIED_SOME: int
"""A machine's state is not that of the last snapshot any more."""
APPLIED_MUCH: int
"""Much was applied since the last snapshot: it is time for the next one."""
APPLIED_CHANGE: int
"""An entry that the machine has handed on; carry it out, then call resume()."""

class RaftNode(StreamBase):
    """A member of the Raft group `group`. For the control loop's thread, unless a method says otherwise.

    `account` is the system account, `files` the member's directory, `peer` its 8 bytes. Call recover(), then
    begin(); the owner handles RAFT_NEWS by take(). `cid` is the connection id of its subscriptions. With
    `managed` its peers change only when they are proposed; otherwise a leader adds those that it hears. With
    `sync_always` a record counts when it is synced. Raises MemoryError.
    """

    files: RaftFiles
    group: str

    def __init__(
        self,
        engine: Engine,
        account: Account,
        files: RaftFiles,
        group: str,
        peer: bytes,
        *,
        cid: int,
        managed: bool = True,
        sync_always: bool = False,
    ) -> None: ...
    def recover(self) -> None:
        """Read the files; take() then returns the last snapshot and what is known to be committed.

        Any thread, once, before anything else. Raises OSError, FilesError, MemoryError.
        """
    def begin(self, recovering: bool, observer: bool = False) -> None:
        """Take part in the group. Raises MemoryError.

        `recovering`: it may have been a member before; an empty log says that it has lost its records then.
        """
    def close(self) -> None:
        """Leave the group for now, and close the files. Idempotent. Raises StoreFailure."""
    def propose(self, data: bytes) -> bool:
        """Propose an entry; it is committed when take() says so.

        False: this server does not lead, or too much waits.
        """
    def forward_proposal(self, data: bytes) -> None:
        """Propose an entry, at the leader. It may be lost."""
    def propose_peer(self, peer: bytes, removes: bool = False) -> bool:
        """Propose to add or remove a peer. False: this server does not lead, or a change is under way."""
    def step_down(self, preferred: bytes = b"") -> bool:
        """Let another peer lead, `preferred` if it is there. False: this server does not lead."""
    def campaign(self) -> None:
        """Become a candidate soon."""
    def expect(self, size: int) -> None:
        """Count so many servers as members, unless there has been a leader."""
    def set_observer(self, observer: bool) -> None:
        """Never become a candidate, or again."""
    def applied(self, index: int) -> None:
        """Say that what take() has returned up to an index is carried out."""
    def take(self) -> list[tuple[int, int, Any]]:
        """Return what has happened, in order: (kind, index or term, value).

        The value is a list of (EntryType, data), the data of a snapshot, the name of a leader, or None.
        """
    def resume(self, index: int) -> None:
        """Have the machine go on: the snapshot or change that take() has returned last is carried out."""
    def install_snapshot(self, index: int, data: bytes) -> bool:
        """Replace the records up to `index`, which is applied, by a snapshot.

        False: there is a later one, or the group has failed. Any thread, one at a time; waits for the disk.
        """
    @property
    def failure(self) -> str:
        """Why the group has stopped; empty when it has not."""
    @property
    def leads(self) -> bool:
        """Whether this server leads, and has applied what the leaders before it have committed."""
    @property
    def leader(self) -> bytes:
        """The leader as far as this server knows; b"": none."""
    @property
    def peer(self) -> bytes:
        """The name of this member."""
    def state(self) -> dict[str, Any]:
        """Return the numbers of the state, and the peers: {name: (index, ns since heard of or -1)}.

        "changing" is the peer that a record adds or removes that is not committed yet.
        """
