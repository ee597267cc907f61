"""Check requests for streams and consumers against the streams and consumers that there are (stream.go).

A server alone compares with its own; the leader of a cluster's meta group with those that are assigned, on
whatever server. Nothing changes here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from gnats.go.times import utc
from gnats.jetstream import errors
from gnats.jetstream.control.shared import StreamAccount
from gnats.jetstream.settings.config import FILE, WORKQUEUE, ConsumerConfig, StreamConfig
from gnats.jetstream.settings.consumer_rules import (
    check_consumer_cfg,
    check_consumer_update,
    check_workqueue,
    completed,
    with_defaults,
)
from gnats.jetstream.settings.overlaps import MANY, subject_count
from gnats.jetstream.settings.reservations import Resources, account_reservation, check_limits
from gnats.jetstream.settings.stream_rules import (
    check_filters,
    check_stream_cfg,
    check_stream_create,
    check_stream_update,
)
from gnats.jetstream.threads import in_thread
from gnats.options.values.limits import DEFAULT_TIER, select_limits

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.core.subjects.subjecttrie import SubjectTrie
    from gnats.options.values.limits import Tiers

CREATE, UPDATE, CREATE_OR_UPDATE = "create", "update", ""
"""The actions of a request for a consumer."""


class LimitedAccount(StreamAccount, Protocol):
    """The account whose limits count: a JSAccount."""

    limits: Tiers


class KnownStreams(Protocol):
    """The streams of an account, by their configurations."""

    def configs(self) -> Iterable[StreamConfig]: ...

    def config(self, name: str) -> StreamConfig | None: ...

    def is_restoring(self, name: str) -> bool:
        """Whether the name is taken by a stream that is being restored."""

    @property
    def subjects(self) -> SubjectTrie | None:
        """The subjects of all streams, if they are kept: they decide most comparisons."""


class StreamChecks:
    """The checks of an account's streams. `resources` are the server's, None: its limits do not count."""

    def __init__(self, jsa: LimitedAccount, there: KnownStreams, resources: Resources | None) -> None:
        self._jsa = jsa
        self._there = there
        self._resources = resources

    async def check_cfg(self, config: StreamConfig, *, pedantic: bool = False) -> StreamConfig:
        """Return a checked configuration with its defaults filled in. Raises ApiError."""
        shared = self._jsa.shared
        found = select_limits(self._jsa.limits, config.num_replicas or 1)
        check = partial(
            check_stream_cfg,
            config,
            shared.config.options.limits,
            found[0] if found else None,
            self._there.config,
            pedantic=pedantic,
            overlaps=shared.overlaps,
        )
        return await in_thread(check) if subject_count(config) >= MANY else check()

    async def check_create(self, config: StreamConfig, *, pedantic: bool = False) -> StreamConfig:
        """Check a request for a new stream, or for one with the same configuration. Raises ApiError.

        Returns the new stream's configuration, or that of the stream that there is.
        """
        check_stream_create(config)
        self.check_limits(config)
        if config.num_replicas > 1:
            await self.check_cfg(config, pedantic=pedantic)
            raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
        return await self.check_stream(config, pedantic=pedantic)

    async def check_assign(self, config: StreamConfig, *, pedantic: bool = False) -> StreamConfig:
        """Check as check_create(), in the order of a cluster's leader (jsClusteredStreamRequest).

        A stream may have several replicas.
        """
        check_stream_create(config)
        checked = await self.check_stream(config, pedantic=pedantic, recovering=True)
        self.check_limits(checked)
        return checked

    async def check_stream(
        self, config: StreamConfig, *, pedantic: bool = False, recovering: bool = False
    ) -> StreamConfig:
        """Check a stream, as check_create(); one that is `recovering` has been stored before."""
        cfg = await self.check_cfg(config, pedantic=pedantic)
        if there := self._there.config(cfg.name):
            if cfg.with_metadata_of(there.metadata) == there:
                return there
            raise errors.STREAM_NAME_EXIST()
        if self._there.is_restoring(cfg.name) and not recovering:
            raise errors.STREAM_NAME_EXIST()
        limits, tier = self._jsa.select_limits(cfg.num_replicas)
        if not recovering:
            check_limits(limits, tier, cfg, self._reserved_by_others(tier, cfg), self._resources)
        check_filters(cfg)
        await self.check_overlap(cfg.subjects)
        return cfg

    def check_limits(self, config: StreamConfig) -> None:
        """Raise ApiError if limits forbid a new stream (jsNonClusteredStreamLimitsCheck in jetstream_api.go,
        jsClusteredStreamLimitsCheck in jetstream_cluster.go)."""
        limits, tier = self._jsa.select_limits(config.num_replicas)
        others = sum(
            each.name != config.name and _same_tier(tier, each, config) for each in self._there.configs()
        )
        if 0 < limits.max_streams <= others:
            raise errors.MAXIMUM_STREAMS_LIMIT()
        if config.storage:
            check_limits(limits, tier, config, self._reserved_by_others(tier, config), self._resources)

    def _reserved_by_others(self, tier: str, config: StreamConfig) -> int:
        """(tieredReservation, tieredStreamAndReservationCount)."""
        return sum(
            account_reservation(tier, each.num_replicas, each.max_bytes)
            for each in self._there.configs()
            if each.name != config.name and each.storage == config.storage and _same_tier(tier, each, config)
        )

    async def check_overlap(self, subjects: Sequence[str], of: StreamConfig | None = None) -> None:
        """Raise ApiError when a stream's subjects overlap with these (subjectsOverlap).

        A stream whose subjects change to these, `of`, may keep its own.
        """
        overlaps = self._jsa.shared.overlaps
        new = set(subjects).difference(of.subjects) if of else set(subjects)

        def collide_with(all_subjects: SubjectTrie) -> bool:
            return all_subjects.collides_with(overlaps.trie(new))

        if (known := self._there.subjects) is not None:
            if not await _compare(lambda: collide_with(known), len(new)):
                return
            if of is None:
                raise errors.STREAM_SUBJECT_OVERLAP()
        # A new subject may overlap with the stream's own ones only.
        others = [each.subjects for each in self._there.configs() if of is None or each.name != of.name]

        def collide_with_others() -> bool:
            return collide_with(overlaps.trie(chain.from_iterable(others)))

        if await _compare(collide_with_others, len(new) + sum(map(len, others))):
            raise errors.STREAM_SUBJECT_OVERLAP()

    async def check_update(
        self,
        old: StreamConfig,
        config: StreamConfig,
        consumers: Iterable[tuple[str, ConsumerConfig]],
        *,
        pedantic: bool = False,
    ) -> StreamConfig:
        """Check a change of a stream with these consumers; return its configuration. Raises ApiError."""
        new = check_stream_update(old, await self.check_cfg(config, pedantic=pedantic))
        self._check_update_limits(old, new)
        check_consumer_limits(old, new, consumers)
        await self.check_overlap(new.subjects, old)
        return new

    def _check_update_limits(self, old: StreamConfig, new: StreamConfig) -> None:
        limits, tier = self._jsa.select_limits(new.num_replicas)
        more = max(max(new.max_bytes, 0) - max(old.max_bytes, 0), 0)
        reserved = self._reserved_by_others(tier, new)
        reserved += account_reservation(tier, new.num_replicas, new.max_bytes - more)
        check_limits(limits, tier, replace(new, max_bytes=more), reserved, self._resources)


async def _compare(compare: Callable[[], bool], subjects: int) -> bool:
    """Call `compare` and return its result: in a thread when it compares MANY subjects or more."""
    return await in_thread(compare) if subjects >= MANY else compare()


def _same_tier(tier: str, a: StreamConfig, b: StreamConfig) -> bool:
    return tier == DEFAULT_TIER or max(1, a.num_replicas) == max(1, b.num_replicas)


def check_consumer_limits(
    was: StreamConfig, config: StreamConfig, consumers: Iterable[tuple[str, ConsumerConfig]]
) -> None:
    """Raise ApiError when consumers exceed the consumer limits of a stream's new configuration."""
    old, new = was.consumer_limits, config.consumer_limits
    threshold = new.inactive_threshold if new.inactive_threshold != old.inactive_threshold else 0
    pending = new.max_ack_pending if new.max_ack_pending != old.max_ack_pending else 0
    if threshold <= 0 and pending <= 0:
        return
    beyond = [
        name
        for name, consumer in consumers
        if 0 < new.inactive_threshold < consumer.inactive_threshold
        or 0 < new.max_ack_pending < consumer.max_ack_pending
    ]
    if beyond:
        raise errors.STREAM_UPDATE(err=f"change to limits violates consumers: {', '.join(beyond)}")


# ---- consumers ----


class KnownConsumers(Protocol):
    """The consumers of a stream, by their configurations."""

    def config(self, name: str) -> ConsumerConfig | None: ...

    def limitable(self) -> int:
        """Return the number of consumers that count against limits: those for sourcing do not."""

    def with_filters(self, subjects: tuple[str, ...]) -> Iterable[tuple[str, ConsumerConfig]]:
        """Return the names and configurations of the consumers whose filters may overlap with subjects."""


async def check_consumer(
    jsa: StreamAccount,
    stream: StreamConfig,
    there: KnownConsumers,
    config: ConsumerConfig,
    *,
    action: str = CREATE_OR_UPDATE,
    pedantic: bool = False,
) -> ConsumerConfig:
    """Check a request to make a consumer or to change it; return its configuration. Raises ApiError.

    What the consumer's server adds is missing: a name, and the threshold of an ephemeral one. Many filters
    are checked in a thread.
    """
    shared = jsa.shared
    name = config.durable_name or config.name
    was = there.config(name)
    if was:
        config = _with_fixed(config, was)
    stored = stream.storage == FILE and not config.mem_storage and not config.direct
    if stored and "\0" in name:
        raise errors.CONSUMER_CREATE(err="error creating store for consumer")
    limits, _ = jsa.select_limits(config.replicas(stream))
    server = shared.config.options.limits
    config = with_defaults(config, stream, server, limits, pedantic=pedantic)
    check = partial(check_consumer_cfg, config, server, stream, limits, overlaps=shared.overlaps)
    await in_thread(check) if len(config.filter_subjects) >= MANY else check()
    unique = _Unique(jsa, there)
    if was := there.config(name):
        if action == CREATE and config.with_metadata_of(was.metadata) != was:
            raise errors.CONSUMER_ALREADY_EXISTS()
        if stream.retention == WORKQUEUE and not unique.is_unique(name, config.filters):
            raise errors.CONSUMER_WQ_CONSUMER_NOT_UNIQUE()
        return checked_update(jsa.account, was, config)
    if action == UPDATE:
        raise errors.CONSUMER_DOES_NOT_EXIST()
    most = stream.max_consumers
    if most <= 0 or 0 < limits.max_consumers < most:
        most = limits.max_consumers
    if most <= 0:
        most = server.default_max_consumers
    if 0 < most <= there.limitable():
        raise errors.MAXIMUM_CONSUMERS_LIMIT()
    check_workqueue(config, stream)
    if stream.retention == WORKQUEUE:
        unique.check(name, config)
    completed(config)  # raises for a name that is too long
    return config


def checked_update(account: Account, was: ConsumerConfig, config: ConsumerConfig) -> ConsumerConfig:
    """Return the configuration to which a consumer changes. Raises ApiError when it may not."""
    config = replace(config, pause_until=utc(config.pause_until))

    def has_interest(subject: str) -> bool:
        return account.sublist.interested(subject.encode())

    check_consumer_update(was, config, has_interest)
    return config


def _with_fixed(config: ConsumerConfig, was: ConsumerConfig) -> ConsumerConfig:
    """Return the configuration of a request, with the parts of an existing consumer's that stay."""
    config = replace(config, pause_until=was.pause_until)
    if not (config.sourcing and config.durable_name):
        return config
    return replace(
        config,
        deliver_policy=was.deliver_policy,
        opt_start_seq=was.opt_start_seq,
        opt_start_time=was.opt_start_time,
    )


class _Unique:
    """Each message of a work queue is for one consumer."""

    def __init__(self, jsa: StreamAccount, there: KnownConsumers) -> None:
        self._overlaps = jsa.shared.overlaps
        self._there = there

    def check(self, name: str, config: ConsumerConfig) -> None:
        """Raise ApiError when others want what a new consumer wants."""
        if config.direct or config.sourcing or not self._there.limitable():
            return
        if not config.filters:
            raise errors.CONSUMER_WQ_MULTIPLE_UNFILTERED()
        if not self.is_unique(name, config.filters):
            raise errors.CONSUMER_WQ_CONSUMER_NOT_UNIQUE()

    def is_unique(self, name: str, subjects: tuple[str, ...]) -> bool:
        """Whether no other consumer's filters overlap with these subjects (partitionUnique)."""
        mine = self._overlaps.trie(subjects)
        for other, config in self._there.with_filters(subjects):
            if other == name or config.direct or config.sourcing:
                continue
            if not config.filters or mine.collides_with(self._overlaps.trie(config.filters)):
                return False
        return True
