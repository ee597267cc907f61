"""What replicated streams and consumers have in common at a server: a place in a group, and snapshots."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gnats.clock import Timer, call_later, monotonic
from gnats.go.json import Json
from gnats.go.text import rfc3339
from gnats.jetstream import errors
from gnats.jetstream.cluster.cluster_info import known_peers, replicas
from gnats.jetstream.errors import ApiError
from gnats.nkeys.identity import random_name
from gnats.store.store import StoreFailure

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from gnats.accounts.account import Account
    from gnats.jetstream.cluster.entries import RaftGroup as AssignedGroup
    from gnats.jetstream.cluster.nodes import Nodes
    from gnats.jetstream.control.raftgroup import RaftGroup
    from gnats.jetstream.control.shared import Shared

SNAPSHOT_INTERVAL = 120.0
"""Seconds from a change to the snapshot that includes it,"""
MIN_SNAPSHOT_INTERVAL = 10.0
"""or from the last snapshot to the next one, when much has changed."""
_NAME_LEN = 8


class SnapshotTimer:
    """Takes snapshots of a group's state: two minutes after a change, and earlier after many.

    `take` returns False when it has to be called later.
    """

    def __init__(
        self, take: Callable[[], Coroutine[Any, Any, bool]], spawn: Callable[[Awaitable[object]], None]
    ) -> None:
        self._take = take
        self._spawn = spawn
        self._timer: Timer | None = None
        self._last = -MIN_SNAPSHOT_INTERVAL
        self._closed = False

    def changed(self, *, much: bool = False) -> None:
        """The state is not that of the last snapshot any more; with `much`, the log is long."""
        if much:
            if self._timer:
                self._timer.cancel()
            self._arm(max(self._last + MIN_SNAPSHOT_INTERVAL - monotonic(), 0))
        elif self._timer is None:
            self._arm(SNAPSHOT_INTERVAL)

    def _arm(self, seconds: float) -> None:
        self._timer = None if self._closed else call_later(seconds, self._due)

    def _due(self) -> None:
        self._timer = None
        self._last = monotonic()
        self._spawn(self._work())

    async def _work(self) -> None:
        done = False
        try:
            done = await self._take()
        finally:
            if not done:
                self.changed()

    def close(self) -> None:
        """Take no more."""
        self._closed = True
        if self._timer:
            self._timer.cancel()
            self._timer = None


class GroupMember:
    """A place in a group. Used from the loop's thread only.

    `assigned` is the group as the meta group has assigned it. `what` names the asset in the log, as
    "stream 'A > S'".
    """

    def __init__(
        self, shared: Shared, assigned: AssignedGroup, nodes: Nodes, system: Account, what: str
    ) -> None:
        self.shared = shared
        self.group = assigned
        self.nodes = nodes
        self.system = system
        self.what = what
        self.failure = ""
        self.on_lead: Callable[[], None] | None = None
        """Called once, when this server leads: the requester of the asset is answered."""
        self._asked: dict[str, asyncio.Future[Any]] = {}
        """Who waits here for a change that the group decides, by its key."""
        self.directory = Path(shared.config.store_dir, system.name, "_js_", assigned.name)

    @property
    def raft(self) -> RaftGroup:
        """The group itself."""
        raise NotImplementedError

    @property
    def leads(self) -> bool:
        """Whether this server leads the group, and has carried out what was decided before."""
        raise NotImplementedError

    @property
    def leaderless(self) -> bool:
        """Whether no server leads, as far as this one knows."""
        return not self.raft.led.is_set()

    @property
    def lost_leader(self) -> bool:
        """Whether no server leads as far as this one knows, and one did."""
        return self.joined and self.leaderless and self.raft.had_leader

    def peers(self) -> list[bytes]:
        """Return the names of the servers that the group was assigned to."""
        return [peer.encode() for peer in self.group.peers]

    def is_new(self) -> bool:
        """Whether this server has not been a member before; to be asked before the group is opened."""
        return not (self.directory / "peers.idx").exists()

    def begin(self, *, is_new: bool) -> None:
        """Take part in the group, which is open. The preferred leader of a new one becomes a candidate."""
        self.raft.begin(recovering=not is_new)
        if is_new and self.group.preferred in ("", self.nodes.peer):
            self.raft.node.campaign()

    def led(self) -> list[dict[str, Any]]:
        """Say that this server leads, and answer who has asked for the asset; return the group's members."""
        kind, _, where = self.what.partition(" ")
        self.shared.log.notice(f"JetStream cluster new {kind} leader for {where}")
        if on_lead := self.on_lead:
            self.on_lead = None
            on_lead()
        return known_peers(self.nodes, self.raft.node.state())

    async def ask(self, propose: Callable[[str], bool]) -> Any:
        """Have a change proposed, with a key that tell() is given; return its result. Raises ApiError."""
        key = f"$JSC.R.{random_name(_NAME_LEN)}"
        done = self._asked[key] = asyncio.get_running_loop().create_future()
        try:
            if not propose(key):
                raise errors.CLUSTER_NOT_LEADER()
            return await done
        finally:
            self._asked.pop(key, None)

    def tell(self, key: str, result: object) -> None:
        """Give whoever waits here for a change its result, or its ApiError."""
        if (asked := self._asked.get(key)) and not asked.done():
            if isinstance(result, ApiError):
                asked.set_exception(result)
            else:
                asked.set_result(result)

    def fail_asked(self) -> None:
        """Fail whoever waits for a change: this server does not lead."""
        for key in list(self._asked):
            self.tell(key, errors.CLUSTER_NOT_LEADER())
        self._asked.clear()

    def step_down(self, preferred: str = "") -> bool:
        """Let another server lead. False: this one did not."""
        return self.raft.node.step_down(preferred.encode())

    def note_stopped(self, why: str) -> None:
        """Say that this server's part has stopped, and does not go on before a restart."""
        self.failure = why
        self.shared.log.error(f"JetStream cluster stopped the replica of {self.what}: {why}")

    @property
    def joined(self) -> bool:
        """Whether the group is open."""
        raise NotImplementedError

    def problem(self) -> str:
        """Return why this server's part is not up to date, "": it is (isStreamHealthy)."""
        if self.failure:
            return f"node write error: {self.failure}"
        if not self.joined:
            return "group node missing"
        return "" if self.raft.is_current else "group node unhealthy"

    def cluster_info(self) -> Json:
        """Describe the group (ClusterInfo)."""
        raft = self.raft
        state = raft.node.state()
        info: Json = {"name": self.nodes.cluster_of(self.nodes.peer), "raft_group": self.group.name}
        if leader := self.nodes.name_of(raft.node.leader.decode(errors="replace")):
            info["leader"] = leader
        if raft.leader_since is not None:
            info["leader_since"] = rfc3339(raft.leader_since)
        info |= {"system_account": True, "traffic_account": self.system.name}
        if others := replicas(self.nodes, state):
            info["replicas"] = others
        return info

    async def close(self) -> None:
        """Leave the group for now. Idempotent; logs errors."""
        try:
            await self._close()
        except (StoreFailure, OSError) as exc:
            self.shared.log.error(f"Error closing the group of {self.what}: {exc}")

    async def _close(self) -> None:
        """Raises StoreFailure, OSError."""
        raise NotImplementedError

    async def remove(self) -> None:
        """Remove the files of the group, after close(). Raises OSError."""
        if self.directory.exists():
            await asyncio.to_thread(shutil.rmtree, self.directory)
