"""Desired states: how groups move and scale, step by step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gnats.jetstream.cluster import desired
from gnats.jetstream.cluster.desired import Reconcile
from gnats.jetstream.cluster.entries import (
    DesiredGroup,
    DesiredOrigin,
    MetaError,
    RaftGroup,
    StreamAssignment,
)
from gnats.jetstream.settings.config import Placement, StreamConfig

pytestmark = pytest.mark.timeout(60)

NEW = {"id": "new", "created": "2026-02-02T00:00:00Z"}
ONE = RaftGroup(name="S-R1F-a", peers=("a",), store="file", cluster="C1")
THREE = RaftGroup(name="S-R3F-a", peers=("a", "b", "c"), store="file", cluster="C1")


def stream(group: RaftGroup, replicas: int | None = None, **config: Any) -> StreamAssignment:
    replicas = len(group.peers) if replicas is None else replicas
    settings = StreamConfig(name="S", storage="file", num_replicas=replicas, **config)
    return StreamAssignment.of(settings, client=None, created="2026-01-01T00:00:00Z", group=group, sync="s")


def step(
    group: RaftGroup | None, *, replicas: int = 3, converged: bool = True, **members: Any
) -> RaftGroup | None:
    assert group
    request = Reconcile(account="A", stream="S", **{"term": 1} | members)
    return desired.reconcile(group, request, replicas, converged=converged, **NEW)


def desired_of(group: RaftGroup | None) -> DesiredGroup:
    assert group
    assert group.desired
    return group.desired


def test_a_stream_of_one_peer_grows_from_that_peer() -> None:
    begun = desired.with_desired(ONE, replace(THREE, name="S-R3F-n"), **NEW)
    assert (begun.name, begun.peers) == ("S-R3F-n", ("a",))
    assert desired_of(begun) == DesiredGroup(
        created="2026-02-02T00:00:00Z",
        id="new",
        peers=("a", "b", "c"),
        cluster="C1",
        preferred="a",
        members=("a",),
    )
    begun = desired.populate_origin(begun, stream(ONE))
    assert desired_of(begun).origin == DesiredOrigin(peers=("a",), cluster="C1", replicas=1)
    assert desired.populate_origin(begun, stream(THREE)) == begun
    known = step(begun, id="new", term=2)
    assert desired_of(known).term == 2
    assert known == step(replace(begun, desired=replace(desired_of(begun), term=1)), id="new", term=2)
    grown = step(known, id="new", term=2, meta_peers=("a", "b", "c"), members=("a",))
    assert grown
    assert (grown.peers, grown.scale_up) == (("a", "b", "c"), True)
    there = step(grown, id="new", term=2, meta_peers=("c", "b", "a"), members=("b", "c", "a"))
    assert desired_of(there).members == ("a", "b", "c")
    assert step(there, id="new", term=2, meta_peers=("a", "b", "c"), members=("a", "b", "c")) is None
    waits: dict[str, Any] = {"id": "new", "term": 2, "meta_peers": ("c", "b", "a"), "match": True}
    assert step(there, converged=False, **waits) is None
    assert step(there, **waits) == replace(THREE, name="S-R3F-n")


def test_a_scale_down_begins_with_a_choice() -> None:
    begun = desired.with_desired(THREE, THREE, **NEW)
    begun = replace(begun, desired=replace(desired_of(begun), scale_down=True, term=1))
    assert step(begun, id="new", scale_down_peers=("a", "x")) is None
    assert step(begun, id="new") is None
    assert step(begun, id="new", scale_down_peers=("b",), meta_peers=("b",)) is None
    chosen = step(begun, id="new", scale_down_peers=("b",))
    assert (desired_of(chosen).peers, desired_of(chosen).scale_down) == (("b",), False)
    fewer = step(chosen, id="new", meta_peers=("b", "c"), members=("b", "c"))
    assert fewer
    assert (fewer.peers, fewer.scale_up, desired_of(fewer).members) == (("b", "c"), False, ("b", "c"))


def test_stale_requests_change_nothing() -> None:
    begun = desired.with_desired(THREE, ONE, **NEW)
    begun = replace(begun, desired=replace(desired_of(begun), term=3))
    assert step(begun, id="new", term=2, meta_peers=("a",)) is None
    assert step(begun, id="old", term=3, meta_peers=("a",)) is None
    assert step(begun, term=3) is None
    assert step(begun, id="new", term=3) is None
    assert step(THREE, id="new") is None


def test_a_group_without_a_desired_state_gets_its_own_peers() -> None:
    begun = step(replace(THREE, excluded=("d",)), term=7)
    assert begun
    assert desired_of(begun).peers == ("a", "b", "c")
    assert (desired_of(begun).term, desired_of(begun).move) == (7, False)
    assert step(begun, id="new", term=7, meta_peers=("a", "b", "c"), match=True) == THREE
    smaller = replace(begun, desired=replace(desired_of(begun), peers=("a",)))
    arrived = step(smaller, id="new", term=7, meta_peers=("a",), match=True)
    assert arrived
    assert arrived.excluded == ("d",)


def test_a_move_of_an_old_server_goes_on() -> None:
    moving = replace(THREE, peers=("a", "b", "c", "d", "e", "f"))
    old = stream(moving, 3, placement=Placement(tags=("x",)))
    origin = DesiredOrigin(peers=("a", "b", "c"), cluster="C1", replicas=3, placement=Placement(tags=("x",)))
    assert desired.legacy_move_origin(old) == desired.desired_origin(old) == origin
    assert desired.is_move_in_flight(old)
    assert desired.target_peers(old) == ("d", "e", "f")
    begun = step(moving, term=1)
    assert (desired_of(begun).peers, desired_of(begun).move) == (("d", "e", "f"), True)
    assert desired.populate_origin(desired.with_desired(moving, THREE, **NEW), old).desired == replace(
        desired_of(desired.with_desired(moving, THREE, **NEW)), origin=origin
    )
    assert desired.legacy_move_origin(stream(THREE)) is None
    assert not desired.is_move_in_flight(stream(THREE))


def test_a_new_target_keeps_what_was_before() -> None:
    first = desired.with_desired(THREE, replace(THREE, peers=("d", "e", "f"), preferred="d"), **NEW)
    first = desired.populate_origin(first, stream(THREE))
    first = replace(first, desired=replace(desired_of(first), move=True, removed=("c", "g")))
    assert desired_of(first).preferred == "d"
    again = desired.with_desired(
        first, replace(THREE, peers=("a", "g"), preferred="z"), id="2", created="later"
    )
    found = desired_of(again)
    assert (found.id, found.peers, found.preferred, found.removed) == ("2", ("a", "g"), "", ("c",))
    assert (found.move, found.origin) == (True, desired_of(first).origin)
    assert again.peers == ("a", "b", "c")
    rolled = desired.populate_origin(replace(again, desired=replace(found, origin=None)), stream(first))
    assert desired_of(rolled).origin == DesiredOrigin(peers=("d", "e", "f"), cluster="C1", replicas=3)


def test_the_retention_of_the_origin_counts_until_consumers_have_moved() -> None:
    limits = stream(THREE, placement=Placement(tags=("x",)))
    same = desired.with_retention_change(THREE, limits, "limits", **NEW)
    assert same is THREE
    changed = desired.with_retention_change(THREE, limits, "interest", **NEW)
    origin = desired_of(changed).origin
    assert origin == DesiredOrigin(
        peers=("a", "b", "c"), cluster="C1", replicas=3, placement=Placement(tags=("x",)), retention="limits"
    )
    config = StreamConfig(name="S", retention="interest", placement=Placement(tags=("y",)))
    runs = desired.config_at_origin(config, changed)
    assert (runs.retention, runs.placement) == ("limits", Placement(tags=("x",)))
    assert desired.config_at_origin(config, THREE) is config
    # Back to limits, at once; and on to another one, from where it was at first.
    interest = stream(changed, retention="interest")
    back = desired.with_retention_change(changed, interest, "limits", **NEW)
    assert desired_of(back).origin == replace(origin, retention="")
    on = desired.with_retention_change(changed, interest, "workqueue", **NEW)
    assert on == changed
    single = desired.with_retention_change(ONE, stream(ONE), "interest", **NEW)
    assert single is ONE


def test_peers_that_must_be_replaced() -> None:
    moving = desired.with_desired(THREE, replace(THREE, peers=("c", "d")), **NEW)
    assert desired.stale_peers(moving, {"a", "c"}) == ["b", "d"]
    assert desired.stale_peers(THREE, {"a", "b", "c"}) == []
    assert desired.target_peers(stream(moving)) == ("c", "d")
    assert desired.is_missing_peers(stream(moving, 3))
    assert not desired.is_missing_peers(stream(THREE))
    chosen = replace(moving, desired=replace(desired_of(moving), scale_down=True))
    assert desired.target_peers(stream(chosen)) == ("a", "b", "c")


def test_requests_are_read_strictly() -> None:
    data = b'{"account":"A","stream":"S","id":"x","term":3,"meta_peers":["a"],"match":true}'
    assert desired.read_reconcile(data) == Reconcile(
        account="A", stream="S", id="x", term=3, meta_peers=("a",), match=True
    )
    for wrong in (b"", b"[]", b'{"later":1}', b'{"term":-1}', b'{"meta_peers":"a"}'):
        with pytest.raises(MetaError, match="reconcile request: "):
            desired.read_reconcile(wrong)
