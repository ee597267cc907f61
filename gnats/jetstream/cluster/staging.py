"""Changes of the meta group that are collected until this server has caught up
(recoveryUpdates in jetstream_cluster.go).

A server that starts, or is behind, must not create streams that a later entry deletes, nor answer for them.
It applies the entries to the state, adds the changes here, and carries out the result of take().
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TypeVar

from gnats.jetstream.cluster.meta import Change, ConsumerChange, Kind, StreamChange

_Place = tuple[str, str]
"""An account and a stream."""
_Some = TypeVar("_Some", StreamChange, ConsumerChange)


class _Staged:
    """The changes of one stream and its consumers."""

    def __init__(self) -> None:
        self.removed: StreamChange | None = None
        self.assigned: StreamChange | None = None
        self.updated: StreamChange | None = None
        self.removed_consumers: dict[str, ConsumerChange] = {}
        self.assigned_consumers: dict[str, ConsumerChange] = {}


class Staging:
    """Changes in the order in which they came, without those that later ones undo."""

    def __init__(self) -> None:
        self._streams: dict[_Place, _Staged] = {}

    def add(self, changes: Iterable[Change]) -> None:
        """Add the result of MetaState.apply() or restore()."""
        for change in changes:
            if isinstance(change, ConsumerChange):
                self._add_consumer(change)
            else:
                self._add_stream(change)

    def _add_stream(self, change: StreamChange) -> None:
        staged = self._streams.setdefault((change.assignment.account, change.assignment.name), _Staged())
        if change.kind is Kind.REMOVED:
            before = staged.removed
            change = _carried_out(change, before, staged.assigned, staged.updated)
            if before:
                change = dataclasses.replace(change, consumers=before.consumers)
            self._streams[change.assignment.account, change.assignment.name] = staged = _Staged()
            staged.removed = change
        elif change.kind is Kind.ASSIGNED:
            staged.assigned = _carried_out(change, staged.assigned, staged.updated)
            staged.updated = None
        elif staged.assigned:
            # An old configuration might remove messages that the new one keeps.
            staged.assigned = dataclasses.replace(
                staged.assigned, assignment=change.assignment, member=change.member
            )
        else:
            staged.updated = _carried_out(change, staged.updated)

    def _add_consumer(self, change: ConsumerChange) -> None:
        assignment = change.assignment
        staged = self._streams.setdefault((assignment.account, assignment.stream), _Staged())
        before = staged.assigned_consumers.get(assignment.name)
        if change.kind is Kind.REMOVED:
            removed = staged.removed_consumers.get(assignment.name)
            if change.previous:
                staged.assigned_consumers.pop(assignment.name, None)
                first = removed if removed and removed.previous else before
                staged.removed_consumers[assignment.name] = _carried_out(change, first)
            elif not removed:
                staged.removed_consumers[assignment.name] = change  # not of a consumer that is staged
            return
        change = _carried_out(change, before)
        if before and before.state and not change.state:
            change = dataclasses.replace(change, state=before.state)
        staged.assigned_consumers[assignment.name] = change

    def take(self) -> list[Change]:
        """Return the changes to carry out, and forget them: removals first, then streams, then consumers."""
        staged, self._streams = list(self._streams.values()), {}
        changes: list[Change] = []
        for each in staged:
            changes += each.removed_consumers.values()
        changes += [each.removed for each in staged if each.removed]
        changes += [each.assigned for each in staged if each.assigned]
        changes += [each.updated for each in staged if each.updated]
        for each in staged:
            changes += each.assigned_consumers.values()
        return changes


def _carried_out(change: _Some, *staged: _Some | None) -> _Some:
    """Return a change whose `previous` is the one that this server has carried out: of the first staged."""
    first = next((each for each in staged if each), None)
    if first is None:
        return change
    return dataclasses.replace(change, previous=first.previous, was_member=first.was_member)
