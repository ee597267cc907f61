"""How a group moves, scales, or changes its stream's retention: its desired state (jetstream_cluster.go).

The meta leader says where a group is to go (DesiredGroup). The group's leader takes it there, a member at a
time, and reports each step in a request, which the meta leader turns into an entry. A cancelled change goes
back to the origin.

All functions make new groups. Ids and times of new desired states come from the caller.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gnats.go.json import JSONError
from gnats.go.structs import Document, always, omitempty, strings
from gnats.jetstream.cluster.entries import (
    DesiredGroup,
    DesiredOrigin,
    MetaError,
    RaftGroup,
    StreamAssignment,
)
from gnats.jetstream.settings.config import LIMITS, StreamConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconcile(Document):
    """A step that a group's leader has made, or asks for (streamAssignmentReconcile)."""

    account: str = always("string", "")
    stream: str = always("string", "")
    consumer: str = omitempty("string", "")
    id: str = omitempty("string", "")
    """Of the desired state that it is about; "": the group has none yet."""
    term: int = always("uint64", 0)
    """Of the group's leader."""
    scale_down_peers: tuple[str, ...] = strings()
    """The peers that stay."""
    meta_peers: tuple[str, ...] = strings()
    """The peers that the assignment shall have."""
    members: tuple[str, ...] = strings()
    """The members of the Raft group (since 2.15.1)."""
    match: bool = omitempty("bool", False)
    """The members are those in `meta_peers`."""


def read_reconcile(data: bytes) -> Reconcile:
    """Read a request; one with unknown members is refused. Raises MetaError."""
    try:
        return Reconcile.from_json(data, strict=True)
    except JSONError as exc:
        raise MetaError(f"reconcile request: {exc}") from None


def legacy_move_origin(stream: StreamAssignment) -> DesiredOrigin | None:
    """Return the origin of a move that a server before 2.15 began (legacyMoveOrigin).

    Such a move has no desired state, but more peers than replicas: first the old ones, then the new.
    """
    group, replicas = stream.group, stream.config.num_replicas
    if group.desired or replicas < 1 or len(group.peers) <= replicas:
        return None
    return DesiredOrigin(
        peers=group.peers[:replicas],
        cluster=group.cluster,
        replicas=replicas,
        placement=stream.config.placement,
    )


def desired_origin(stream: StreamAssignment) -> DesiredOrigin | None:
    """Return the origin that a change under way can go back to (desiredOrigin)."""
    return stream.group.desired.origin if stream.group.desired else legacy_move_origin(stream)


def is_move_in_flight(stream: StreamAssignment) -> bool:
    """Whether a stream is moving: no other move, nor a scale, may begin (moveInFlight)."""
    desired = stream.group.desired
    return (desired is not None and desired.move) or legacy_move_origin(stream) is not None


def target_peers(stream: StreamAssignment) -> tuple[str, ...]:
    """Return the peers on which a stream and its consumers must end up (targetPeers)."""
    group = stream.group
    if group.desired:
        return group.peers if group.desired.scale_down else group.desired.peers
    return group.peers[-max(1, stream.config.num_replicas) :]


def is_missing_peers(stream: StreamAssignment) -> bool:
    """Whether a stream has fewer peers than replicas (missingPeers)."""
    return len(target_peers(stream)) < stream.config.num_replicas


def stale_peers(group: RaftGroup, meta_peers: Collection[str]) -> list[str]:
    """Return the group's peers that the meta group has no more (stalePeers)."""
    peers = dict.fromkeys([*group.peers, *(group.desired.peers if group.desired else ())])
    return [peer for peer in peers if peer not in meta_peers]


def config_at_origin(config: StreamConfig, group: RaftGroup) -> StreamConfig:
    """Return the configuration by which a stream runs while it changes (atDesiredOrigin)."""
    origin = group.desired.origin if group.desired else None
    if not origin:
        return config
    return dataclasses.replace(
        config, placement=origin.placement or config.placement, retention=origin.retention or config.retention
    )


def with_desired(group: RaftGroup, target: RaftGroup, *, id: str, created: str) -> RaftGroup:
    """Return a group that shall become `target` (withDesired)."""
    before = group.desired or DesiredGroup(created=created, members=group.peers)
    if len(group.peers) == 1:
        preferred = group.peers[0]  # it has the data
    else:
        preferred = target.preferred if target.preferred in target.peers else ""
    desired = DesiredGroup(
        created=before.created or created,
        id=id,
        term=target.desired.term if target.desired else 0,
        peers=target.peers,
        cluster=target.cluster,
        preferred=preferred,
        move=before.move,
        removed=tuple(peer for peer in before.removed if peer not in target.peers),
        members=before.members,
        origin=before.origin,
    )
    return dataclasses.replace(group, name=target.name, desired=desired)


def populate_origin(group: RaftGroup, stream: StreamAssignment) -> RaftGroup:
    """Note the origin, `stream` before its change, unless an earlier one is noted (populateOrigin)."""
    if not group.desired or group.desired.origin:
        return group
    peers, cluster = stream.group.peers, stream.group.cluster
    if stream.group.desired:
        peers, cluster = stream.group.desired.peers, stream.group.desired.cluster
    elif legacy := legacy_move_origin(stream):
        peers, cluster = legacy.peers, legacy.cluster
    origin = DesiredOrigin(
        peers=peers,
        cluster=cluster,
        replicas=stream.config.num_replicas,
        placement=stream.config.placement,
    )
    return dataclasses.replace(group, desired=dataclasses.replace(group.desired, origin=origin))


def with_retention_change(
    group: RaftGroup, stream: StreamAssignment, retention: str, *, id: str, created: str
) -> RaftGroup:
    """Return the group by which a stream changes its retention (withRetentionChange).

    Consumers must have the stream's peers before interest or work queues begin: until then, the retention of
    the origin counts. One of a single peer without a desired state changes at once.
    """
    if retention == stream.config.retention:
        return group
    if not group.desired:
        if len(group.peers) == 1:
            return group
        group = with_desired(stream.group, group, id=id, created=created)
        if legacy_move_origin(stream):
            group = _replace_desired(group, move=True)
    group = populate_origin(group, stream)
    assert group.desired
    assert group.desired.origin
    before = stream.group.desired.origin if stream.group.desired else None
    if retention == LIMITS:
        kept = ""
    elif before and before.retention:
        return group
    else:
        kept = stream.config.retention
    return _replace_desired(group, origin=dataclasses.replace(group.desired.origin, retention=kept))


def _replace_desired(group: RaftGroup, **members: object) -> RaftGroup:
    assert group.desired
    return dataclasses.replace(group, desired=dataclasses.replace(group.desired, **members))  # type: ignore[arg-type]


def reconcile(
    group: RaftGroup, request: Reconcile, replicas: int, *, converged: bool, id: str, created: str
) -> RaftGroup | None:
    """Return the group after a step, None: the request changes nothing (reconcileDesiredState).

    `converged`: the stream's consumers are where they must be. A group of one peer that has got there gets a
    new name from the caller.
    """
    if request.scale_down_peers and request.meta_peers:
        return None
    desired = group.desired
    if not desired:
        return None if request.id else _begin(group, request, replicas, id, created)
    if request.term < desired.term or not desired.id or request.id != desired.id:
        return None
    if desired.term == 0 or request.term > desired.term:
        # The group's leader waits for its own term before it goes on.
        return _replace_desired(group, id=id, term=request.term)
    if desired.scale_down:
        kept = request.scale_down_peers
        if not kept or not set(kept) <= set(desired.peers):
            return None
        return _replace_desired(group, id=id, scale_down=False, peers=kept)
    if not request.meta_peers:
        return None  # it asks for its consumers to be moved
    return _step(group, desired, request, converged, replicas, id)


def _begin(group: RaftGroup, request: Reconcile, replicas: int, id: str, created: str) -> RaftGroup:
    """Give a desired state to a group without one: its own peers, or where an old server has it moving."""
    moves = len(group.peers) > replicas
    target = dataclasses.replace(group, peers=group.peers[-replicas:] if moves else group.peers)
    return _replace_desired(
        with_desired(group, target, id=id, created=created), term=request.term, move=moves
    )


def _step(
    group: RaftGroup, desired: DesiredGroup, request: Reconcile, converged: bool, replicas: int, id: str
) -> RaftGroup | None:
    peers = request.meta_peers
    if converged and request.match and set(peers) == set(desired.peers) and len(peers) == len(desired.peers):
        return dataclasses.replace(
            group,
            peers=desired.peers,
            cluster=desired.cluster,
            preferred="",
            scale_up=False,
            excluded=() if len(desired.peers) >= replicas else group.excluded,
            desired=None,
        )
    members = _merged(desired.members, request.members)
    if sorted(peers) == sorted(group.peers) and members == desired.members:
        return None
    return dataclasses.replace(
        group,
        peers=peers,
        scale_up=group.scale_up or not set(peers) <= set(group.peers),
        desired=dataclasses.replace(desired, id=id, members=members),
    )


def _merged(known: tuple[str, ...], reported: Iterable[str]) -> tuple[str, ...]:
    """Return the reported members, those that were known first; nothing reported: those that were known."""
    reported = tuple(reported)
    if not reported:
        return known
    return (*(each for each in known if each in reported), *(each for each in reported if each not in known))
