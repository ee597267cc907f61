"""Limits, keys, counters and threads that all streams and consumers of a server share (jetstream.go)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gnats.jetstream.cluster.account_usage import UsageElsewhere
from gnats.jetstream.disk.encryption import Keys
from gnats.jetstream.disk.state_writer import StateWriter
from gnats.jetstream.engine.usage import Usage
from gnats.jetstream.settings.overlaps import Overlaps
from gnats.jetstream.state.batchtable import BatchLimits
from gnats.jetstream.threads import in_thread
from gnats.options.values.limits import JetStreamAccountLimits, JSLimitOpts
from gnats.runtime.paced import Paced

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.accounts.internal_clients import InternalClients
    from gnats.go.json import Json
    from gnats.jetstream.cluster.entries import RaftGroup
    from gnats.jetstream.consumer.consumer import Consumer as NativeConsumer
    from gnats.jetstream.control.advisories import Advisories
    from gnats.jetstream.control.proposals import MessageDeleteProposal, Proposal, PurgeProposal, Result
    from gnats.jetstream.engine.engine import Engine
    from gnats.jetstream.replica.consumerreplica import ConsumerReplica
    from gnats.jetstream.replica.raftnode import RaftNode
    from gnats.log.logger import Logger
    from gnats.options.options import Options
    from gnats.options.values.jetstream import JetStreamConfig


class Owner(Protocol):
    """A stream, a consumer or an origin: the control plane's half of a native object."""

    def on_event(self, what: int, number: int, data: bytes) -> None:
        """Handle an event of the native half: its kind, and a number and bytes that depend on the kind."""


class Group(Protocol):
    """A Raft group that this server takes part in: a RaftGroup."""

    node: RaftNode
    led: asyncio.Event
    """Whether some server leads it."""
    had_leader: bool
    leader_since: int | None

    def retire(self) -> bool:
        """Let another member lead, and never lead again. False: this server did not lead."""


class Shared:
    """Limits, keys, counters and threads of all streams of a server. Used from the loop's thread only.

    `options` returns the server's current options, which a reload replaces. `config` is JetStream's own.
    """

    def __init__(
        self,
        config: JetStreamConfig,
        engine: Engine,
        clients: InternalClients,
        advisories: Advisories,
        log: Logger,
        options: Callable[[], Options],
    ) -> None:
        self.config = config
        self.engine = engine
        self.clients = clients
        self.advisories = advisories
        self.log = log
        self.options = options
        self.domain = config.options.domain
        self.keys = Keys(config.options)
        self.overlaps = Overlaps()
        self.states = StateWriter()
        self.paced = Paced()
        """Requests to origins, of which one stream may have thousands at once."""
        self.usage = Usage(max_memory=config.max_memory, max_storage=config.max_store)
        self.elsewhere = UsageElsewhere()
        """What accounts use at other servers; nothing outside a cluster."""
        self.batch_limits = BatchLimits()
        self._limit_batches(config.options.limits)
        self.forget_consumer: Callable[[str, str, str, int], None] | None = None
        """In a cluster, has a consumer of this server, which nobody used, removed at all servers: by account,
        stream, name, and when it was made."""
        self.cluster_info: dict[str, object] | None = None
        """In a cluster, the member `cluster` of the description of a consumer."""
        self.loop = asyncio.get_running_loop()
        self.groups: set[Group] = set()
        """The Raft groups that this server takes part in."""
        self.retires = False
        """Whether this server is about to go: it leads no group any more."""
        self._owners: dict[int, Owner] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def set_stream_limits(self, limits: JSLimitOpts) -> None:
        """Set the limits of each stream and consumer, after a reload."""
        self.config.options = replace(self.config.options, limits=limits)
        self._limit_batches(limits)

    def _limit_batches(self, limits: JSLimitOpts) -> None:
        self.batch_limits.set(
            per_stream=limits.max_batch_inflight_per_stream,
            total=limits.max_batch_inflight_total,
            size=limits.max_batch_size,
            timeout=limits.max_batch_timeout,
        )

    async def close(self) -> None:
        """Wait for the threads that work for streams. All streams must have been closed."""
        if self._tasks:  # they end soon, because their streams have been closed
            await asyncio.wait(self._tasks)
        await self.states.close()

    def forget_unneeded(self, consumer: NativeConsumer | ConsumerReplica) -> asyncio.Task[None]:
        """Remove, in a thread, messages that no consumer wants any more.

        `consumer` has been deleted, or its filters have changed, and it may have been the last one that
        wanted them.
        """
        return self.spawn(in_thread(consumer.forget_unneeded))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work for a stream that no request waits for as a task, which close() waits for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (exc := task.exception()):  # a bug, or out of memory
            self.log.error(f"JetStream cannot change a stream or consumer: {exc!r:.500}")

    # -- events of the data plane ----------------------------------------------------------------------------

    def register(self, native: object, owner: Owner) -> None:
        """Pass the events of a native stream, consumer or origin to `owner`."""
        self._owners[id(native)] = owner

    def unregister(self, native: object) -> None:
        """Undo register()."""
        self._owners.pop(id(native), None)

    def on_event(self, native: object, what: int, number: int, data: object) -> None:
        """Pass an event to the owner of its native object. Events of unregistered ones are dropped."""
        if owner := self._owners.get(id(native)):
            owner.on_event(what, number, data if isinstance(data, bytes) else b"")


class GroupPlace(Protocol):
    """An asset's place in its Raft group: a GroupMember."""

    group: RaftGroup

    @property
    def leads(self) -> bool:
        """Whether this server leads the asset."""

    @property
    def leaderless(self) -> bool:
        """Whether no server leads it, as far as this one knows."""

    @property
    def lost_leader(self) -> bool:
        """Whether no server leads it as far as this one knows, and one did."""

    def problem(self) -> str:
        """Return why this server's part is not up to date, "": it is."""

    def step_down(self, preferred: str = "") -> bool:
        """Let another server lead. False: this one did not."""

    def cluster_info(self) -> Json:
        """Describe the group (ClusterInfo)."""

    async def close(self) -> None:
        """Leave the group for now."""

    async def remove(self) -> None:
        """Remove the files of the group. Raises OSError."""


class Member(GroupPlace, Protocol):
    """A stream's place in its Raft group: a Membership."""

    async def propose(self, proposal: PurgeProposal | MessageDeleteProposal) -> Any:
        """Have all servers carry out a change; return its result here. Raises ApiError."""


class ConsumerMember(GroupPlace, Protocol):
    """A consumer's place in its Raft group: a ConsumerMembership."""

    async def reset(self, seq: int) -> int:
        """Have all servers reset the consumer; return the sequence that it goes on from. Raises ApiError."""


class StreamAccount(Protocol):
    """The account's JetStream as its streams and consumers see it: a JSAccount."""

    shared: Shared
    account: Account

    @property
    def name(self) -> str: ...
    @property
    def streams_dir(self) -> Path: ...

    def usage(self, tier: str) -> Usage:
        """Return the counters of memory and storage used in a tier."""

    def select_limits(self, replicas: int) -> tuple[JetStreamAccountLimits, str]:
        """Return (limits, tier) for a stream with that number of replicas. Raises ApiError."""

    async def propose(self, proposal: Proposal[Result]) -> Result:
        """Have a checked change applied, and advise of it. Raises ApiError."""
