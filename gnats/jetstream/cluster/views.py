"""What is assigned, as the checks of requests need it: the leader's proposals count, too."""

from __future__ import annotations

from collections.abc import Iterator

from gnats.jetstream.cluster.meta import MetaState
from gnats.jetstream.settings.config import ConsumerConfig, StreamConfig


class AssignedStreams:
    """The streams of an account (KnownStreams in control/checks.py)."""

    subjects = None

    def __init__(self, state: MetaState, account: str) -> None:
        self._state = state
        self._account = account

    def configs(self) -> Iterator[StreamConfig]:
        return (assignment.config for assignment in self._state.streams_or_inflight(self._account))

    def config(self, name: str) -> StreamConfig | None:
        assignment = self._state.stream_or_inflight(self._account, name)
        return assignment.config if assignment else None

    def is_restoring(self, name: str) -> bool:
        """Return False: a stream that is restored is assigned before."""
        return False


class AssignedConsumers:
    """The consumers of a stream (KnownConsumers in control/checks.py)."""

    def __init__(self, state: MetaState, account: str, stream: str) -> None:
        self._state = state
        self._where = account, stream

    def configs(self) -> Iterator[tuple[str, ConsumerConfig]]:
        """Return names and configurations."""
        return ((each.name, each.config) for each in self._state.consumers_or_inflight(*self._where))

    def config(self, name: str) -> ConsumerConfig | None:
        assignment = self._state.consumer_or_inflight(*self._where, name)
        return assignment.config if assignment else None

    def limitable(self) -> int:
        return sum(
            not (each.unsupported or each.config.direct or each.config.sourcing)
            for each in self._state.consumers_or_inflight(*self._where)
        )

    def with_filters(self, subjects: tuple[str, ...]) -> Iterator[tuple[str, ConsumerConfig]]:
        """Return all consumers: the comparison itself is the checks'."""
        return self.configs()
