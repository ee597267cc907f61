"""The state of the meta group: which streams and consumers there are, and which peers have them.

Every server applies the same entries in the same order (applyMetaEntries in jetstream_cluster.go), so the
assignments are the same everywhere. MetaState changes nothing else: it returns the changes, and its caller
carries them out in the order given.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from gnats.go.text import quote
from gnats.jetstream.cluster.entries import (
    ConsumerAssignment,
    ConsumerState,
    Entry,
    Op,
    SnapshotStream,
    StreamAssignment,
    decode_snapshot,
    encode_snapshot,
)
from gnats.jetstream.cluster.inflight import Inflight


class Kind(enum.Enum):
    """The kind of a change of an assignment."""

    ASSIGNED = enum.auto()
    """Made, or, with a `previous` one, proposed again: as it was, or with other peers."""
    UPDATED = enum.auto()
    REMOVED = enum.auto()


@dataclass(frozen=True, slots=True)
class StreamChange:
    """A stream has been assigned, updated or removed.

    `assignment` is the entry's, which names the client to answer; of a removal, too. If it is `unsupported`,
    the stream must stop here, and its information be given as offline.
    """

    kind: Kind
    assignment: StreamAssignment
    previous: StreamAssignment | None
    """The assignment until now.

    None in a removal: the group knows no such stream. This server may have it on its disk, and then deletes
    it unless it was created after the assignment.
    """
    member: bool
    """This server is in the group. In a removal: it was, as the removal says."""
    was_member: bool
    """This server was in the group of `previous`."""
    recovering: bool = False
    """The change is not new: nobody waits for an answer to it."""
    consumers: tuple[ConsumerAssignment, ...] = ()
    """The consumers that a removal has removed with the stream."""


@dataclass(frozen=True, slots=True)
class ConsumerChange:
    """A consumer has been assigned, or removed; see StreamChange. An update is an assignment."""

    kind: Kind
    assignment: ConsumerAssignment
    previous: ConsumerAssignment | None
    """None in a removal: the group knows no such consumer, or another one by its name."""
    member: bool
    was_member: bool
    recovering: bool = False
    state: ConsumerState | None = None
    """Where the consumer of a restored stream goes on."""


Change = StreamChange | ConsumerChange
Assignment = TypeVar("Assignment", StreamAssignment, ConsumerAssignment)


class _Stream:
    """A stream's assignment, and those of its consumers by name."""

    __slots__ = "assignment", "consumers"

    def __init__(self, assignment: StreamAssignment) -> None:
        self.assignment = assignment
        self.consumers: dict[str, ConsumerAssignment] = {}


class MetaState:
    """The assignments, of which those of `peer` are this server's. One thread uses it."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.inflight = Inflight()
        self._accounts: dict[str, dict[str, _Stream]] = {}

    # ---- reading ----

    def stream(self, account: str, name: str) -> StreamAssignment | None:
        """Return a stream's assignment (streamAssignment)."""
        found = self._accounts.get(account, {}).get(name)
        return found.assignment if found else None

    def consumer(self, account: str, stream: str, name: str) -> ConsumerAssignment | None:
        """Return a consumer's assignment (consumerAssignment)."""
        found = self._accounts.get(account, {}).get(stream)
        return found.consumers.get(name) if found else None

    def streams(self) -> Iterator[StreamAssignment]:
        """Return the assignments of all streams."""
        for streams in self._accounts.values():
            for stream in streams.values():
                yield stream.assignment

    def streams_of(self, account: str) -> Iterator[StreamAssignment]:
        """Return the assignments of an account's streams."""
        return (stream.assignment for stream in self._accounts.get(account, {}).values())

    def consumers_of(self, account: str, stream: str) -> Iterator[ConsumerAssignment]:
        """Return the assignments of a stream's consumers."""
        found = self._accounts.get(account, {}).get(stream)
        return iter(found.consumers.values() if found else ())

    # ---- reading, with the leader's proposals ----

    def stream_or_inflight(self, account: str, name: str) -> StreamAssignment | None:
        """Return a stream's assignment as proposals will make it (streamAssignmentOrInflight)."""
        if proposal := self.inflight.stream(account, name):
            return None if proposal.deleted else proposal.assignment
        return self.stream(account, name)

    def consumer_or_inflight(self, account: str, stream: str, name: str) -> ConsumerAssignment | None:
        """Return a consumer's assignment as it will be (consumerAssignmentOrInflight)."""
        if proposal := self.inflight.consumer(account, stream, name):
            return None if proposal.deleted else proposal.assignment
        return self.consumer(account, stream, name)

    def streams_or_inflight(self, account: str) -> Iterator[StreamAssignment]:
        """Return an account's streams as they will be (streamAssignmentsOrInflightSeq)."""
        proposals = self.inflight.streams(account)
        yield from (each.assignment for each in proposals.values() if not each.deleted)
        yield from (each for each in self.streams_of(account) if each.name not in proposals)

    def all_streams_or_inflight(self) -> Iterator[StreamAssignment]:
        """Return all streams as they will be (streamAssignmentsOrInflightSeqAllAccounts)."""
        for account in dict.fromkeys([*self.inflight.accounts(), *self._accounts]):
            yield from self.streams_or_inflight(account)

    def consumers_or_inflight(self, account: str, stream: str) -> Iterator[ConsumerAssignment]:
        """Return a stream's consumers as they will be (consumerAssignmentsOrInflightSeq)."""
        proposals = self.inflight.consumers(account, stream)
        yield from (each.assignment for each in proposals.values() if not each.deleted)
        yield from (each for each in self.consumers_of(account, stream) if each.name not in proposals)

    # ---- applying ----

    def apply(self, entry: Entry, *, recovering: bool = False) -> list[Change]:
        """Apply an entry (applyMetaEntries); with `recovering`, one that is not new."""
        op, assignment = entry
        if recovering:
            assignment = assignment.recovered()
        if isinstance(assignment, ConsumerAssignment):
            if op is Op.REMOVE_CONSUMER:
                return self._remove_consumer(assignment, recovering)
            return self._assign_consumer(assignment, recovering)
        if op is Op.REMOVE_STREAM:
            return self._remove_stream(assignment, recovering)
        if op is Op.UPDATE_STREAM:
            return self._update_stream(assignment, recovering)
        return self._assign_stream(assignment, recovering)

    def _assign_stream(self, assignment: StreamAssignment, recovering: bool) -> list[Change]:
        """(processStreamAssignment)."""
        account, name = assignment.account, assignment.name
        self.inflight.remove_stream(account, name)
        streams = self._accounts.setdefault(account, {})
        if known := streams.get(name):
            return [self._replace(Kind.ASSIGNED, known, assignment, recovering)]
        streams[name] = _Stream(assignment)
        return [self._stream_change(Kind.ASSIGNED, assignment, None, recovering)]

    def _update_stream(self, assignment: StreamAssignment, recovering: bool) -> list[Change]:
        """(processUpdateStreamAssignment)."""
        account, name = assignment.account, assignment.name
        self.inflight.remove_stream(account, name)
        known = self._accounts.get(account, {}).get(name)
        return [self._replace(Kind.UPDATED, known, assignment, recovering)] if known else []

    def _replace(
        self, kind: Kind, known: _Stream, assignment: StreamAssignment, recovering: bool
    ) -> StreamChange:
        """Set another assignment of a stream that keeps its consumers."""
        previous = known.assignment
        known.assignment = _still_unsupported(assignment, previous)
        return self._stream_change(kind, known.assignment, previous, recovering)

    def _remove_stream(self, assignment: StreamAssignment, recovering: bool) -> list[Change]:
        """(processStreamRemoval)."""
        account, name = assignment.account, assignment.name
        self.inflight.remove_stream(account, name)
        streams = self._accounts.get(account, {})
        known = streams.pop(name, None)
        if not streams:
            self._accounts.pop(account, None)
        if not known:
            return [self._stream_change(Kind.REMOVED, assignment, None, recovering)]
        assignment = _still_unsupported(assignment, known.assignment)
        consumers = tuple(known.consumers.values())
        return [self._stream_change(Kind.REMOVED, assignment, known.assignment, recovering, consumers)]

    def _assign_consumer(self, assignment: ConsumerAssignment, recovering: bool) -> list[Change]:
        """(processConsumerAssignment)."""
        account, name = assignment.account, assignment.name
        self.inflight.remove_consumer(account, assignment.stream, name)
        stream = self._accounts.get(account, {}).get(assignment.stream)
        if not stream:
            return []
        previous = stream.consumers.get(name)
        state = assignment.state
        assignment = _still_unsupported(assignment, previous)
        if state:
            assignment = dataclasses.replace(assignment, state=None)
        stream.consumers[name] = assignment
        changes: list[Change] = [
            self._consumer_change(Kind.ASSIGNED, assignment, previous, recovering, state)
        ]
        if assignment.unsupported and not stream.assignment.unsupported:
            # Without the consumer, a stream might remove messages that it has not had.
            reason = f"stopped - unsupported consumer {quote(name)}"
            stopped = dataclasses.replace(stream.assignment, unsupported=reason)
            changes.append(self._replace(Kind.UPDATED, stream, stopped, recovering))
        return changes

    def _remove_consumer(self, assignment: ConsumerAssignment, recovering: bool) -> list[Change]:
        """(processConsumerRemoval)."""
        account, name = assignment.account, assignment.name
        self.inflight.remove_consumer(account, assignment.stream, name)
        stream = self._accounts.get(account, {}).get(assignment.stream)
        previous = stream.consumers.get(name) if stream else None
        if stream and previous and previous.group.name == assignment.group.name:
            del stream.consumers[name]
            assignment = _still_unsupported(assignment, previous)
        else:
            previous = None  # another consumer has the name by now
        return [self._consumer_change(Kind.REMOVED, assignment, previous, recovering)]

    def _stream_change(
        self,
        kind: Kind,
        assignment: StreamAssignment,
        previous: StreamAssignment | None,
        recovering: bool,
        consumers: tuple[ConsumerAssignment, ...] = (),
    ) -> StreamChange:
        return StreamChange(
            kind,
            assignment,
            previous,
            assignment.group.is_member(self.peer),
            previous is not None and previous.group.is_member(self.peer),
            recovering,
            consumers,
        )

    def _consumer_change(
        self,
        kind: Kind,
        assignment: ConsumerAssignment,
        previous: ConsumerAssignment | None,
        recovering: bool,
        state: ConsumerState | None = None,
    ) -> ConsumerChange:
        return ConsumerChange(
            kind,
            assignment,
            previous,
            assignment.group.is_member(self.peer),
            previous is not None and previous.group.is_member(self.peer),
            recovering,
            state,
        )

    def assigned_again(self, account: str) -> list[Change]:
        """Return an account's assignments as changes that are not new."""
        changes: list[Change] = []
        for stream in self.streams_of(account):
            changes.append(self._stream_change(Kind.ASSIGNED, stream.recovered(), None, True))
            for consumer in self.consumers_of(account, stream.name):
                changes.append(self._consumer_change(Kind.ASSIGNED, consumer.recovered(), None, True))
        return changes

    # ---- snapshots ----

    def snapshot(self) -> bytes:
        """Return all assignments as a snapshot (metaSnapshot); equal assignments give equal bytes.

        Raises MetaError when they are too many for one.
        """
        return encode_snapshot(self.assigned())

    def assigned(self) -> list[SnapshotStream]:
        """Return all assignments, sorted. They are values, which another thread may read."""
        return [
            SnapshotStream(
                stream.assignment, tuple(consumer for _, consumer in sorted(stream.consumers.items()))
            )
            for _, streams in sorted(self._accounts.items())
            for _, stream in sorted(streams.items())
        ]

    def restore(self, data: bytes) -> list[Change]:
        """Replace all assignments by a snapshot's; return the differences (applyMetaSnapshot).

        Assignments that are as they were are not returned. Raises MetaError, and changes nothing then.
        """
        found: dict[tuple[str, str], SnapshotStream] = {
            (stream.assignment.account, stream.assignment.name): stream for stream in decode_snapshot(data)
        }
        remade = [
            known
            for known in self.streams()
            if (stream := found.get((known.account, known.name))) is None
            or known.is_remade(stream.assignment)
        ]
        changes: list[Change] = []
        for known in remade:
            changes += self._remove_stream(known.recovered(), True)
        made, updated, consumers = [], [], []
        for (account, name), (assignment, wanted) in found.items():
            present = self._accounts.get(account, {}).get(name)
            assignment = assignment.recovered()
            if not present:
                made += self._assign_stream(assignment, True)
                made += self._assign_consumers(wanted)
                continue
            if _is_same(assignment, present.assignment):
                self._replace(Kind.UPDATED, present, assignment, True)
            else:
                updated += self._update_stream(assignment, True)
            consumers += self._restore_consumers(present, wanted)
        return [*changes, *made, *updated, *consumers]

    def _restore_consumers(self, present: _Stream, wanted: Iterable[ConsumerAssignment]) -> list[Change]:
        """Replace the consumers of a stream that stays."""
        by_name = {each.name: each for each in wanted}
        changes: list[Change] = []
        for known in list(present.consumers.values()):
            consumer = by_name.get(known.name)
            if consumer is None or known.is_remade(consumer):
                changes += self._remove_consumer(known.recovered(), True)
            elif _is_same(consumer.recovered(), known):
                present.consumers[known.name] = _still_unsupported(consumer.recovered(), known)
                del by_name[known.name]
        return changes + self._assign_consumers(by_name.values())

    def _assign_consumers(self, consumers: Iterable[ConsumerAssignment]) -> list[Change]:
        changes: list[Change] = []
        for consumer in consumers:
            changes += self._assign_consumer(consumer.recovered(), True)
        return changes


def _still_unsupported(assignment: Assignment, previous: Assignment | None) -> Assignment:
    """Keep an asset unsupported that was so before: it may have missed changes meanwhile."""
    if previous and previous.unsupported and not assignment.unsupported:
        return dataclasses.replace(assignment, unsupported=previous.unsupported)
    return assignment


def _is_same(new: Assignment, known: Assignment) -> bool:
    """Whether a snapshot's assignment is one that has been carried out."""
    known = known.recovered()
    return (
        new.is_as_old(known)
        and new.config_json == known.config_json
        and new.group == known.group
        and (not isinstance(new, StreamAssignment) or new.sync == known.sync)
    )
