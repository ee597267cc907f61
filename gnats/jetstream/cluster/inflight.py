"""Proposals that the leader of the meta group has made, and that are not yet applied
(jetstream_cluster.go).

Requests that come meanwhile must see them: for limits, for names that are taken, and so that a stream that is
asked for twice gets one group. A change of the lead forgets them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from gnats.jetstream.cluster.entries import ConsumerAssignment, StreamAssignment

Assignment = TypeVar("Assignment", StreamAssignment, ConsumerAssignment)


class Proposal(NamedTuple, Generic[Assignment]):
    """The newest of the proposals about an asset (inflightStreamInfo, inflightConsumerInfo)."""

    assignment: Assignment
    deleted: bool
    """The asset is to be removed."""
    ops: int
    """Proposals about the asset that are not applied."""


class _Table(Generic[Assignment]):
    """Proposals by where their assets belong, and by name."""

    def __init__(self) -> None:
        self._proposals: dict[tuple[str, ...], dict[str, Proposal[Assignment]]] = {}

    def track(self, where: tuple[str, ...], name: str, assignment: Assignment, deleted: bool) -> None:
        proposals = self._proposals.setdefault(where, {})
        before = proposals.get(name)
        proposals[name] = Proposal(assignment, deleted, before.ops + 1 if before else 1)

    def remove(self, where: tuple[str, ...], name: str) -> None:
        proposals = self._proposals.get(where)
        if not proposals or name not in proposals:
            return
        proposal = proposals[name]
        if proposal.ops > 1:
            proposals[name] = proposal._replace(ops=proposal.ops - 1)
            return
        del proposals[name]
        if not proposals:
            del self._proposals[where]

    def get(self, where: tuple[str, ...], name: str) -> Proposal[Assignment] | None:
        return self._proposals.get(where, {}).get(name)

    def of(self, where: tuple[str, ...]) -> dict[str, Proposal[Assignment]]:
        return self._proposals.get(where, {})

    def places(self) -> Iterator[tuple[str, ...]]:
        return iter(self._proposals)


class Inflight:
    """The proposals of a leader's term."""

    def __init__(self) -> None:
        self._streams: _Table[StreamAssignment] = _Table()
        self._consumers: _Table[ConsumerAssignment] = _Table()

    def track_stream(self, assignment: StreamAssignment, *, deleted: bool = False) -> None:
        """Note a proposal about a stream, once it is made (trackInflightStreamProposal)."""
        self._streams.track((assignment.account,), assignment.name, assignment, deleted)

    def track_consumer(self, assignment: ConsumerAssignment, *, deleted: bool = False) -> None:
        """Note a proposal about a consumer, once it is made (trackInflightConsumerProposal)."""
        where = assignment.account, assignment.stream
        self._consumers.track(where, assignment.name, assignment, deleted)

    def remove_stream(self, account: str, name: str) -> None:
        """Forget one proposal, which has been applied (removeInflightStreamProposal)."""
        self._streams.remove((account,), name)

    def remove_consumer(self, account: str, stream: str, name: str) -> None:
        """Forget one proposal, which has been applied (removeInflightConsumerProposal)."""
        self._consumers.remove((account, stream), name)

    def clear(self) -> None:
        """Forget all: the server leads no more, or in another term."""
        self._streams = _Table()
        self._consumers = _Table()

    def stream(self, account: str, name: str) -> Proposal[StreamAssignment] | None:
        return self._streams.get((account,), name)

    def consumer(self, account: str, stream: str, name: str) -> Proposal[ConsumerAssignment] | None:
        return self._consumers.get((account, stream), name)

    def streams(self, account: str) -> dict[str, Proposal[StreamAssignment]]:
        """Return the proposals about an account's streams, by name."""
        return self._streams.of((account,))

    def consumers(self, account: str, stream: str) -> dict[str, Proposal[ConsumerAssignment]]:
        """Return the proposals about a stream's consumers, by name."""
        return self._consumers.of((account, stream))

    def accounts(self) -> list[str]:
        """Return the accounts with proposals about streams."""
        return [account for (account,) in self._streams.places()]
