"""JetStream of one account: its streams and their limits (jsAccount in jetstream.go)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gnats.clock import time_ns
from gnats.go.json import Json
from gnats.go.text import friendly_bytes
from gnats.go.times import unix_ns
from gnats.jetstream import errors
from gnats.jetstream.cluster.account_usage import AccountUsage
from gnats.jetstream.control.account_info import NO_LIMITS, CountedStream, account_info
from gnats.jetstream.control.checks import StreamChecks
from gnats.jetstream.control.proposals import (
    ConsumerDeleteProposal,
    ConsumerProposal,
    ConsumerResetProposal,
    ConsumerUnpinProposal,
    MessageDeleteProposal,
    Proposal,
    PurgeProposal,
    Result,
    StreamDeleteProposal,
    StreamProposal,
    StreamRestoreProposal,
    StreamUpdateProposal,
)
from gnats.jetstream.control.streams import Stream
from gnats.jetstream.disk.metafiles import STREAMS, remove_directory
from gnats.jetstream.engine.usage import Usage
from gnats.jetstream.settings.config import FILE, StreamConfig
from gnats.jetstream.settings.reservations import Resources
from gnats.options.values.limits import DEFAULT_TIER, JetStreamAccountLimits, Tiers, select_limits
from gnats.system.files import remove_empty

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.core.subjects.subjecttrie import SubjectTrie
    from gnats.jetstream.control.shared import Shared
    from gnats.store.store import MsgStore

_LOOKS_AT_ONCE = 2


class Staged(Protocol):
    """The messages of a stream that is being restored: a Restore."""

    async def hand_over(self) -> MsgStore | None:
        """Move the files to the stream's directory, or return the open store of a stream in memory.

        Raises OSError.
        """


class JSAccount:
    """An account with JetStream. `limits` are by tier. Used from the loop's thread only."""

    def __init__(self, shared: Shared, resources: Resources, account: Account, limits: Tiers) -> None:
        self.shared = shared
        self._resources = resources
        self.account = account
        self.limits = limits
        self.streams: dict[str, Stream] = {}
        self.api_total = self.api_errors = 0
        self.checks = StreamChecks(self, _Streams(self), resources)
        self.looking = asyncio.Semaphore(_LOOKS_AT_ONCE)
        """Limits the threads that read the account's streams for answers."""
        self.store_dir = Path(shared.config.store_dir) / account.name
        self._usage: dict[str, Usage] = {}
        self.restoring: dict[str, Staged] = {}
        self.subjects = shared.overlaps.trie()
        """The subjects of all streams. Only the holder of the streams' lane uses it, perhaps in a thread."""

    @property
    def name(self) -> str:
        return self.account.name

    @property
    def streams_dir(self) -> Path:
        return self.store_dir / STREAMS

    def stream_directory(self, name: str) -> Path:
        """Return the directory of a stream."""
        return self.streams_dir / name

    # -- limits ----------------------------------------------------------------------------------------------

    def set_limits(self, limits: Tiers) -> None:
        """Set the limits for messages stored from now on (UpdateJetStreamLimits)."""
        self.limits = limits
        for tier, usage in self._usage.items():
            _limit(usage, limits.get(tier))

    def usage(self, tier: str) -> Usage:
        """Return the counters of memory and storage used in a tier."""
        usage = self._usage.get(tier)
        if usage is None:
            usage = self._usage[tier] = Usage()
            _limit(usage, self.limits.get(tier))
        return usage

    def usage_here(self) -> AccountUsage:
        """Return what the account uses at this server."""
        tiers = {tier: (max(used.memory, 0), max(used.storage, 0)) for tier, used in self._usage.items()}
        return AccountUsage(tiers, self.api_total, self.api_errors)

    def usage_elsewhere(self, tier: str) -> tuple[int, int]:
        """Return the bytes of memory and of storage used in a tier at the other servers of a cluster."""
        return self.shared.elsewhere.used(self.name, tier)

    def select_limits(self, replicas: int) -> tuple[JetStreamAccountLimits, str]:
        """Return (limits, tier) for a stream with that number of replicas. Raises ApiError."""
        found = select_limits(self.limits, replicas)
        if found is None:
            raise errors.NO_LIMITS()
        return found

    # -- streams ---------------------------------------------------------------------------------------------

    def stream(self, name: str) -> Stream:
        """Return the stream of that name. Raises ApiError."""
        stream = self.streams.get(name)
        if stream is None:
            raise errors.STREAM_NOT_FOUND()
        return stream

    def begin_restore(self, name: str, staged: Staged) -> None:
        """Reserve a name for a stream that is being restored. Raises ApiError."""
        if name in self.streams or name in self.restoring:
            raise errors.STREAM_NAME_EXIST_RESTORE_FAILED()
        self.restoring[name] = staged

    def forget_restore(self, name: str) -> None:
        """Undo begin_restore()."""
        self.restoring.pop(name, None)

    async def check_add_stream(self, config: StreamConfig, *, pedantic: bool = False) -> StreamProposal:
        """Check a request for a new stream, or for one with the same configuration. Raises ApiError."""
        return self._proposal(await self.checks.check_create(config, pedantic=pedantic), time_ns())

    def _proposal(self, config: StreamConfig, created: int) -> StreamProposal:
        """Return the proposal of a stream that has been checked. Raises ApiError."""
        if there := self.streams.get(config.name):
            return StreamProposal(there.config, there.created)
        self.check_storable(config)
        return StreamProposal(config, created)

    async def apply_add_stream(self, proposal: StreamProposal) -> bool:
        """Make a stream unless it exists; return whether to advise of it. Raises ApiError."""
        if proposal.config.name in self.streams:
            return False
        await self._create_stream(proposal.config, proposal.created, replicated=proposal.replicated)
        return not proposal.replicated  # its leader advises of it

    async def recover_stream(self, config: StreamConfig, created: int, *, replicated: bool = False) -> Stream:
        """Make a stream that was found on the disk; the caller completes it (Stream.create).

        The account's limits do not refuse it. Raises ApiError.
        """
        if config.num_replicas > 1 and not replicated:
            raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
        proposal = self._proposal(await self.checks.check_stream(config, recovering=True), created)
        if there := self.streams.get(proposal.config.name):
            return there
        stream = await self._create_stream(
            proposal.config, proposal.created, recovering=True, replicated=replicated
        )
        self.shared.advisories.stream_action(self.account, stream.name, "create")
        return stream

    async def check_restore(self, config: StreamConfig, created: int) -> StreamRestoreProposal:
        """Check whether a restored stream, whose messages are staged, can come into being. Raises ApiError.

        `created`: when it was made (ns since 1970), 0: now.
        """
        self.checks.check_limits(config)
        await self.checks.check_overlap(config.subjects)
        if config.storage == FILE and self.stream_directory(config.name).exists():
            raise errors.STREAM_NAME_EXIST_RESTORE_FAILED()  # of a stream that could not be recovered
        checked = self._proposal(
            await self.checks.check_stream(config, recovering=True), created or time_ns()
        )
        return StreamRestoreProposal(checked.config, checked.created)

    async def apply_restore(self, proposal: StreamRestoreProposal) -> None:
        """Make a stream of the messages that are staged for it. Raises ApiError, OSError."""
        config = proposal.config
        store = await self.restoring[config.name].hand_over()
        try:
            await self._create_stream(config, proposal.created, recovering=True, store=store)
        except Exception:
            if config.storage == FILE:
                await asyncio.to_thread(remove_directory, self.stream_directory(config.name))
            raise

    async def _create_stream(
        self,
        cfg: StreamConfig,
        created: int,
        *,
        recovering: bool = False,
        replicated: bool = False,
        store: MsgStore | None = None,
    ) -> Stream:
        """Make a stream from a checked configuration. Raises ApiError.

        `recovering`: its messages are there already. `replicated`: see StreamProposal. `store`, if any,
        is its open store.
        """
        _, tier = self.select_limits(cfg.num_replicas)
        reserved = max(cfg.max_bytes, 0)
        self._resources.reserve(cfg.storage, reserved)  # now: other accounts may reserve during the await
        try:
            stream = await Stream.create(
                self, cfg, tier, created, recovering=recovering, replicated=replicated, store=store
            )
        except BaseException:
            self._resources.reserve(cfg.storage, -reserved)
            raise
        self._enter(stream)
        return stream

    @staticmethod
    def check_storable(config: StreamConfig) -> None:
        """Raise ApiError for a name that cannot be a directory's."""
        if config.storage == FILE and "\0" in config.name:
            raise errors.STREAM_CREATE(err="error creating store for stream")

    def add_offline(self, stream: Stream) -> None:
        """Add a stream that cannot be used. Lists and names show it."""
        self._enter(stream)

    def _enter(self, stream: Stream) -> None:
        self.streams[stream.name] = stream
        self.subjects.add(stream.config.subjects)

    async def check_update_stream(
        self, stream: Stream, config: StreamConfig, *, pedantic: bool = False
    ) -> StreamUpdateProposal:
        """Check a request to change a stream. Raises ApiError."""
        consumers = [(name, consumer.config) for name, consumer in stream.consumers.items()]
        new = await self.checks.check_update(stream.config, config, consumers, pedantic=pedantic)
        return StreamUpdateProposal(new)

    async def apply_update_stream(self, proposal: StreamUpdateProposal) -> None:
        """Change a stream's configuration. Raises ApiError, as Stream.update()."""
        new = proposal.config
        stream = self.stream(new.name)
        old = stream.config
        more = max(new.max_bytes, 0) - max(old.max_bytes, 0)
        self._resources.reserve(new.storage, max(more, 0))  # now: other accounts may reserve during the await
        self.subjects.discard(old.subjects)
        try:
            await stream.update(new)
        finally:
            self.subjects.add(stream.config.subjects)
            grown = max(stream.config.max_bytes, 0) - max(old.max_bytes, 0)
            self._resources.reserve(new.storage, grown - max(more, 0))

    def check_delete_stream(self, name: str) -> StreamDeleteProposal:
        """Check a request to delete a stream. Raises ApiError."""
        return StreamDeleteProposal(name, self.stream(name).created)

    async def apply_delete_stream(self, proposal: StreamDeleteProposal) -> bool:
        """Delete a stream unless it is gone; return whether it was there. Raises ApiError."""
        stream = self.streams.get(proposal.stream)
        if stream is None or stream.created != proposal.created:
            return False
        await stream.origins.wind_down()  # now: cancelled later, it would leave the stream half deleted
        if self.streams.get(stream.name) is not stream:
            return False
        del self.streams[stream.name]
        self.subjects.discard(stream.config.subjects)
        try:
            await stream.delete()
        finally:
            self._resources.reserve(stream.config.storage, -max(stream.config.max_bytes, 0))
        remove_empty(self.streams_dir, self.store_dir)
        return True

    async def close(self) -> None:
        """Stop all streams. Stored data stays."""
        for stream in list(self.streams.values()):
            await stream.stop()
            self.subjects.discard(stream.config.subjects)
        self.streams.clear()

    # -- proposals -------------------------------------------------------------------------------------------

    async def propose(self, proposal: Proposal[Result]) -> Result:
        """Have a checked change applied, and advise of it. Raises ApiError, also OSError at a restore's end.

        It is applied at once, unless the servers of a cluster have to agree.
        """
        if (forget := self.shared.forget_consumer) and isinstance(proposal, ConsumerDeleteProposal):
            forget(self.name, proposal.stream, proposal.name, proposal.created)
        if isinstance(proposal, PurgeProposal | MessageDeleteProposal):
            member = self.stream(proposal.stream).member
            agreed: Result = await (member.propose(proposal) if member else self.apply(proposal))
            return agreed
        result: Result = await self.apply(proposal)
        return result

    async def apply(self, proposal: Proposal[Any]) -> Any:
        """Apply a proposal, and advise of it; return its Result. Raises as propose()."""
        advisories, account = self.shared.advisories, self.account
        match proposal:
            case StreamProposal(config):
                if await self.apply_add_stream(proposal):
                    advisories.stream_action(account, config.name, "create")
            case StreamRestoreProposal(config):
                await self.apply_restore(proposal)
                advisories.stream_action(account, config.name, "create")
            case StreamUpdateProposal(config):
                await self.apply_update_stream(proposal)
                if self.stream(config.name).leads:
                    advisories.stream_action(account, config.name, "modify")
            case StreamDeleteProposal(name):
                consumers = list(self.streams[name].consumers) if name in self.streams else []
                leads = name in self.streams and self.streams[name].leads
                if await self.apply_delete_stream(proposal) and leads:
                    for consumer in consumers:
                        advisories.consumer_action(account, name, consumer, "delete")
                    advisories.stream_action(account, name, "delete")
            case PurgeProposal(name):
                return await self.stream(name).apply_purge(proposal)
            case MessageDeleteProposal(name):
                return self.stream(name).apply_delete_message(proposal)
            case ConsumerProposal(name):
                self._apply_consumer(self.stream(name), proposal)
            case ConsumerDeleteProposal(name, consumer):
                there = self.streams.get(name)
                known = there.consumers.get(consumer) if there else None
                leads = known is not None and known.leads
                deleted = await there.apply_delete_consumer(proposal) if there else None
                if deleted and leads and not deleted.config.direct:
                    advisories.consumer_action(account, name, consumer, "delete")
            case ConsumerResetProposal(name, consumer):
                return await self.stream(name).consumer(consumer).apply_reset(proposal)
            case ConsumerUnpinProposal(name, consumer, group):
                self.stream(name).consumer(consumer).apply_unpin(proposal)
                kind = "consumer_group_unpinned"
                advisories.group(account, "UNPINNED", kind, name, consumer, group, reason="admin")
            case _:
                raise TypeError(f"no proposal: {proposal!r}")
        return None

    def _apply_consumer(self, stream: Stream, proposal: ConsumerProposal) -> None:
        advisories, names = self.shared.advisories, (stream.name, proposal.name)
        before = stream.consumers.get(proposal.name)
        paused = before.config.pause_until if before else ""
        consumer = stream.apply_consumer(proposal)
        until = consumer.config.pause_until
        if before is None:
            if not proposal.config.direct and not proposal.replicated:  # its leader advises of it
                advisories.consumer_action(self.account, *names, "create")
        elif unix_ns(paused) != unix_ns(until) and consumer.leads:
            # Later, so that the audit of the request is published first.
            self.shared.loop.call_soon(advisories.consumer_pause, self.account, *names, until)

    # -- information -----------------------------------------------------------------------------------------

    def used(self, tier: str | None = None) -> tuple[int, int]:
        """Return the bytes of memory and storage in use at all servers: in a tier, or (None) in all."""
        tiers = {*self._usage, *self.shared.elsewhere.tiers(self.name)} if tier is None else {tier}
        memory = storage = 0
        for each in tiers:
            found = [self.usage_elsewhere(each)]
            if usage := self._usage.get(each):
                found.append((max(usage.memory, 0), max(usage.storage, 0)))
            memory += sum(used[0] for used in found)
            storage += sum(used[1] for used in found)
        return memory, storage

    def usage_info(self) -> Json:
        """Return the fields of an account_info_response about the account (JetStreamUsage)."""
        streams = self.streams.values()
        return account_info(self, [CountedStream(each.config, {1: len(each.consumers)}) for each in streams])

    def log_limits(self) -> None:
        """Log the account's limits."""
        log = self.shared.log
        log.debug(f'Enabled JetStream for account "{self.name}"')
        for tier, limits in self.limits.items():
            indent = "  "
            if tier != DEFAULT_TIER:
                log.debug(f"  Tier: {tier}")
                indent = "    "
            log.debug(f"{indent}Max Memory:      {friendly_bytes(limits.max_memory)}")
            log.debug(f"{indent}Max Storage:     {friendly_bytes(limits.max_storage)}")


class _Streams:
    """The streams of an account at a server that decides alone, for its checks."""

    def __init__(self, jsa: JSAccount) -> None:
        self._jsa = jsa

    def configs(self) -> Iterable[StreamConfig]:
        return (stream.config for stream in self._jsa.streams.values())

    def config(self, name: str) -> StreamConfig | None:
        stream = self._jsa.streams.get(name)
        return stream.config if stream else None

    def is_restoring(self, name: str) -> bool:
        return name in self._jsa.restoring

    @property
    def subjects(self) -> SubjectTrie:
        return self._jsa.subjects


def _limit(usage: Usage, limits: JetStreamAccountLimits | None) -> None:
    usage.max_memory = limits.max_memory if limits else 0
    usage.max_storage = limits.max_storage if limits else 0


def difference(old: Tiers, new: Tiers) -> Tiers:
    """Return by tier how much memory and storage `new` limits allow beyond `old` ones."""
    none = NO_LIMITS
    return {
        tier: JetStreamAccountLimits(
            max_memory=new.get(tier, none).max_memory - old.get(tier, none).max_memory,
            max_storage=new.get(tier, none).max_storage - old.get(tier, none).max_storage,
        )
        for tier in {*old, *new}
    }
