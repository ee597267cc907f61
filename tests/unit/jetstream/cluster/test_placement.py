"""Which peers streams and consumers get, by the rules in selectPeerGroup."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.jetstream.cluster import placement
from gnats.jetstream.cluster.entries import ClientInfo, RaftGroup, StreamAssignment
from gnats.jetstream.cluster.placement import (
    Load,
    NodeInfo,
    NodeStats,
    Placement,
    PlacementError,
    group_name_for_consumer,
    group_name_for_stream,
)
from gnats.jetstream.settings.config import ConsumerConfig, StreamConfig
from gnats.jetstream.settings.config import Placement as Wanted

pytestmark = pytest.mark.timeout(60)

GIB = 1 << 30
PEERS = ["p1", "p2", "p3", "p4", "p5"]


def node(name: str, *tags: str, cluster: str = "C1", **members: Any) -> NodeInfo:
    known: dict[str, Any] = {"max_memory": GIB, "max_store": GIB, "stats": NodeStats()}
    return NodeInfo(name, cluster, tags, **known | members)


def known(**nodes: NodeInfo) -> dict[str, NodeInfo]:
    """Five peers of one cluster, but for those given."""
    return {peer: node(peer) for peer in PEERS} | nodes


def place(nodes: dict[str, NodeInfo] | None = None, *streams: StreamAssignment, **members: Any) -> Placement:
    nodes = known() if nodes is None else nodes
    return Placement(sorted(nodes), nodes, Load(streams), random.Random(1), **members)


def config(replicas: int = 3, *tags: str, **members: Any) -> StreamConfig:
    wanted = Wanted(tags=tags) if tags else None
    members = {"name": "S", "storage": "file", "placement": wanted} | members
    return StreamConfig(num_replicas=replicas, **members)


def stream(*peers: str, name: str = "S", **members: Any) -> StreamAssignment:
    group = RaftGroup(name="g", peers=peers, store="file")
    settings = members.pop("config", config(len(peers), name=name))
    return StreamAssignment.of(
        settings, client=None, created="2026-01-01T00:00:00Z", group=group, sync="s", **members
    )


def refusal(places: Placement, *args: Any, **keywords: Any) -> str:
    with pytest.raises(PlacementError) as raised:
        places.select_peer_group(*args, **keywords)
    return str(raised.value).removeprefix("no suitable peers for placement").removeprefix(", ")


def test_all_peers_get_chosen() -> None:
    places, chosen = place(), Counter[str]()
    for _ in range(200):
        peers = places.select_peer_group(3, "C1", config())
        assert len(set(peers)) == 3
        chosen.update(peers)
    assert all(chosen[peer] > 60 for peer in PEERS)


def test_equal_random_numbers_choose_equal_peers() -> None:
    assert place().select_peer_group(3, "C1", config()) == place().select_peer_group(3, "C1", config())


def test_only_peers_of_the_cluster_are_chosen() -> None:
    places = place(known(p1=node("p1", cluster="C2"), p2=node("p2", cluster="C2")))
    assert set(places.select_peer_group(3, "C1", config())) == {"p3", "p4", "p5"}
    assert set(places.select_peer_group(2, "C2", config(2))) == {"p1", "p2"}
    assert refusal(places, 3, "C2", config()) == ""
    assert refusal(places, 1, "", config()) == "miscellaneous issue"


def test_peers_that_have_not_been_heard_of_are_not_chosen() -> None:
    silent = node("p1", stats=None)
    places = place(known(p1=silent, p2=replace(silent, max_store=None, stats=NodeStats())))
    assert set(places.select_peer_group(3, "C1", config())) == {"p3", "p4", "p5"}
    assert refusal(places, 4, "C1", config(4)) == "peer offline"
    unknown = Placement(["p9"], {}, Load(), random.Random(1))
    assert refusal(unknown, 1, "C1", config(1)) == "miscellaneous issue"
    assert refusal(place({}), 1, "C1", config(1)) == "jetstream not enabled in cluster"


def test_offline_peers_are_the_last_choice_and_no_quorum_is_made_of_them() -> None:
    away = {peer: node(peer, offline=True) for peer in ("p1", "p2", "p3")}
    places = place(known(**away))
    for _ in range(20):
        peers = places.select_peer_group(3, "C1", config())
        assert set(peers[:2]) == {"p4", "p5"}
    assert refusal(places, 5, "C1", config(5)) == "peer offline"
    assert set(places.select_peer_group(5, "C1", config(5), existing=["p1"])) == set(PEERS)


def test_tags_must_be_there_or_must_not() -> None:
    places = place(known(p1=node("p1", "ssd", "eu"), p2=node("p2", "ssd"), p3=node("p3", "eu")))
    assert places.select_peer_group(1, "C1", config(1, "ssd", "eu")) == ("p1",)
    assert places.select_peer_group(1, "C1", config(1, "SSD", "!eu")) == ("p2",)
    assert set(places.select_peer_group(3, "C1", config(3, "!ssd"))) == {"p3", "p4", "p5"}
    assert refusal(places, 2, "C1", config(2, "ssd", "!eu")) == (
        "tags not matched ['ssd'], tags excluded ['eu']"
    )
    two = refusal(places, 2, "C1", config(2, "ssd", "eu"))
    assert two in ("tags not matched ['ssd', 'eu']", "tags not matched ['eu', 'ssd']")


def test_a_server_may_exclude_itself() -> None:
    places = place(known(p1=node("p1", "!jetstream"), p2=node("p2", "!jetstream")))
    assert set(places.select_peer_group(3, "C1", config())) == {"p3", "p4", "p5"}
    assert refusal(places, 4, "C1", config(4)) == "exclude tag set"


def test_unique_tags_differ_within_a_group() -> None:
    zones = {"p1": "az:1", "p2": "az:1", "p3": "az:2", "p4": "az:2", "p5": "az:3"}
    places = place({peer: node(peer, zone) for peer, zone in zones.items()}, unique_tag="az:")
    for _ in range(20):
        peers = places.select_peer_group(3, "C1", config())
        assert {zones[peer] for peer in peers} == {"az:1", "az:2", "az:3"}
    assert refusal(places, 4, "C1", config(4)) == "server tag not unique"
    # Peers that stay keep their tags, but for those that are to be replaced.
    for _ in range(20):
        grown = places.select_peer_group(3, "C1", config(), existing=["p1", "p3"])
        assert grown == ("p1", "p3", "p5")
        again = places.select_peer_group(3, "C1", config(), ["p1", "p3"], 1, ["p5"])
        assert again == ("p1", "p3", "p2")
    # A stream that asks for such a tag gets it as often as it needs.
    assert set(places.select_peer_group(2, "C1", config(2, "az:1"))) == {"p1", "p2"}
    assert set(places.select_peer_group(3, "C1", config(3, "!az:1"))) == {"p3", "p4", "p5"}


def test_a_server_without_the_unique_tag_is_not_chosen() -> None:
    places = place(known(p1=node("p1", "az:1")), unique_tag="az:")
    assert places.select_peer_group(1, "C1", config(1)) == ("p1",)
    assert refusal(places, 2, "C1", config(2)) == "server tag not unique"


def test_max_bytes_must_be_available() -> None:
    full = node("p1", stats=NodeStats(store=GIB // 2, reserved_store=10))
    reserved = node("p2", stats=NodeStats(store=10, reserved_store=GIB // 2))
    over = node("p3", stats=NodeStats(store=2 * GIB, reserved_store=2 * GIB))
    places = place(known(p1=full, p2=reserved, p3=over))
    assert set(places.select_peer_group(4, "C1", config(4, max_bytes=GIB // 2))) == {"p1", "p2", "p4", "p5"}
    assert set(places.select_peer_group(2, "C1", config(2, max_bytes=GIB // 2 + 1))) == {"p4", "p5"}
    assert refusal(places, 3, "C1", config(3, max_bytes=GIB)) == "insufficient storage"
    in_memory = config(5, storage="memory", max_bytes=GIB)
    assert set(places.select_peer_group(5, "C1", in_memory)) == set(PEERS)
    assert set(places.select_peer_group(5, "C1", config(5, max_bytes=-1))) == set(PEERS)


def test_the_emptiest_peers_come_first() -> None:
    nodes = {peer: node(peer, stats=NodeStats(store=number)) for number, peer in enumerate(PEERS)}
    assert place(nodes).select_peer_group(1, "C1", config(1)) == ("p1",)
    assert place(nodes).select_peer_group(5, "C1", config(5)) == tuple(PEERS)


def test_with_equal_room_the_peers_with_fewest_streams_come_first() -> None:
    places = place(None, stream("p1"), stream("p1"), stream("p2"), stream("p3", "p4", "p5"))
    # Of one replica, the number of streams counts; of several, that of replicated ones.
    assert set(places.select_peer_group(1, "C1", config(1))) <= {"p2", "p3", "p4", "p5"}
    assert places.select_peer_group(2, "C1", config(2)) == ("p2", "p1")
    assert Load([stream("p1", unsupported="why")]).streams == Counter()


def test_replicated_streams_are_balanced_before_room() -> None:
    nodes = {peer: node(peer, stats=NodeStats(store=number)) for number, peer in enumerate(PEERS)}
    places = place(nodes, stream("p1", "p2", "p3"))
    assert places.select_peer_group(3, "C1", config(3)) == ("p4", "p5", "p1")
    assert places.select_peer_group(1, "C1", config(1)) == ("p1",)


def test_peers_with_too_many_ha_assets_are_not_chosen() -> None:
    places = place(known(p1=node("p1", stats=NodeStats(ha_assets=3))), max_ha_assets=2)
    for _ in range(20):
        assert "p1" not in places.select_peer_group(4, "C1", config(4))
    assert refusal(places, 5, "C1", config(5)) == "miscellaneous issue"
    assert "p1" in place(places.nodes, max_ha_assets=3).select_peer_group(5, "C1", config(5))  # type: ignore[arg-type]
    group = RaftGroup(name="g", peers=("p1", "p2"), store="file")
    assert places.has_too_many_ha_assets(group)
    assert not places.has_too_many_ha_assets(replace(group, peers=("p1",)))
    assert not places.has_too_many_ha_assets(replace(group, peers=("p2", "p3")))
    assert not place(dict(places.nodes)).has_too_many_ha_assets(group)


def test_existing_peers_stay_in_front() -> None:
    places = place()
    assert places.select_peer_group(2, "C1", config(2), existing=["p5", "p4", "p3"]) == ("p5", "p4")
    assert places.select_peer_group(5, "C1", config(5), existing=["p5", "p4"])[:2] == ("p5", "p4")
    peers = places.select_peer_group(3, "C1", config(), existing=["p5"], ignore=["p1", "p2"])
    assert (peers[0], set(peers)) == ("p5", {"p3", "p4", "p5"})
    assert refusal(places, 4, "C1", config(4), existing=["p5"], ignore=["p1", "p2"]) == ""


@given(
    st.lists(st.sampled_from(["", "az:1", "az:2", "ssd"]), min_size=5, max_size=5),
    st.integers(0, 31),
    st.integers(1, 5),
    st.booleans(),
    st.lists(st.sampled_from(PEERS), max_size=4, unique=True),
)
def test_whatever_is_chosen_keeps_the_rules(
    tags: list[str], offline: int, replicas: int, unique: bool, existing: list[str]
) -> None:
    nodes = {
        peer: node(peer, *filter(None, [tag]), offline=bool(offline >> number & 1))
        for number, (peer, tag) in enumerate(zip(PEERS, tags, strict=True))
    }
    places = place(nodes, unique_tag="az:" if unique else "")
    try:
        peers = places.select_peer_group(replicas, "C1", config(replicas), existing)
    except PlacementError:
        return
    assert len(peers) == len(set(peers)) == replicas
    assert peers[: len(existing)] == tuple(existing[:replicas])
    added = peers[len(existing) :]
    assert [nodes[peer].offline for peer in added] == sorted(nodes[peer].offline for peer in added)
    if added:
        online = sum(not each.offline for peer, each in nodes.items() if peer not in existing)
        assert online + len(existing) >= replicas // 2 + 1
    if unique:
        added_tags = [tag for peer in added for tag in nodes[peer].tags]
        assert len(added_tags) == len(set(added_tags)) == len(added)


# ---- groups ----


def test_a_stream_s_group_is_in_the_client_s_cluster() -> None:
    group = place().create_group_for_stream(ClientInfo(cluster="C1"), config())
    assert (group.cluster, group.store, len(group.peers)) == ("C1", "file", 3)
    assert group.name.startswith("S-R3F-")
    assert len(group.name) == len("S-R3F-") + 8
    assert place().create_group_for_stream(ClientInfo(cluster="C1"), config(0)).name.startswith("S-R1F-")


def test_another_cluster_is_tried_unless_one_is_asked_for() -> None:
    nodes = known(p1=node("p1", "ssd", cluster="C2"), p2=node("p2", "!jetstream", cluster="C3"))
    client = ClientInfo(cluster="C3", alts=("C2", "C1"))
    assert place(nodes).create_group_for_stream(client, config(1)).cluster == "C2"
    assert place(nodes).create_group_for_stream(client, config(3)).cluster == "C1"
    with pytest.raises(PlacementError) as raised:
        place(nodes).create_group_for_stream(client, config(1, "tape"))
    assert str(raised.value) == (
        "no suitable peers for placement, exclude tag set, tags not matched ['tape']"
    )
    asked = config(1, placement=Wanted(cluster="C3"))
    with pytest.raises(PlacementError) as raised:
        place(nodes).create_group_for_stream(client, asked)
    error = raised.value.api_error()
    assert (error.code, error.err_code) == (400, 10005)
    assert error.description == "no suitable peers for placement, exclude tag set"


def test_all_reasons_have_their_texts() -> None:
    error = PlacementError(offline=True, exclude_tag=True, no_storage=True)
    error.accumulate(PlacementError(unique_tag=True, misc=True, no_js_cluster=True))
    error.accumulate(PlacementError(missing_tags={"a": None, "b": None}, excluded_tags={"c": None}))
    assert str(error) == (
        "no suitable peers for placement, peer offline, exclude tag set, insufficient storage, "
        "server tag not unique, miscellaneous issue, jetstream not enabled in cluster, "
        "tags not matched ['a', 'b'], tags excluded ['c']"
    )


def test_a_consumer_s_group_is_part_of_its_stream_s() -> None:
    places, of = place(), stream("p1", "p2", "p3")
    durable = ConsumerConfig(durable_name="c")
    group = places.create_group_for_consumer(durable, of)
    assert (group.peers, group.cluster, group.name[:6]) == (of.group.peers, "", "C-R3F-")
    ephemeral = {places.create_group_for_consumer(ConsumerConfig(), of).peers for _ in range(50)}
    assert ephemeral == {("p1",), ("p2",), ("p3",)}
    in_memory = places.create_group_for_consumer(ConsumerConfig(mem_storage=True), of)
    assert (in_memory.store, in_memory.name[:6]) == ("memory", "C-R1M-")
    with pytest.raises(PlacementError) as raised:
        places.create_group_for_consumer(ConsumerConfig(num_replicas=5), of)
    assert raised.value.misc


def test_a_consumer_needs_online_peers() -> None:
    away = known(p1=node("p1", offline=True), p2=node("p2", offline=True))
    of = stream("p1", "p2", "p3")
    assert place(away).create_group_for_consumer(ConsumerConfig(), of).peers == ("p3",)
    for number in (2, 3):
        with pytest.raises(PlacementError) as raised:
            place(away).create_group_for_consumer(ConsumerConfig(durable_name="c", num_replicas=number), of)
        assert raised.value.offline
    assert not place(away).are_all_offline(of.group.peers)
    assert place(away).are_all_offline(["p1", "p9"])


def test_an_online_peer_is_preferred() -> None:
    places = place(known(p1=node("p1", offline=True), p2=node("p2", offline=True)))
    group = RaftGroup(name="g", peers=("p1", "p2", "p3"), store="file")
    assert places.preferred(group) == "p3"
    assert places.preferred(replace(group, peers=("p1",))) == "p1"
    assert {places.preferred(replace(group, peers=("p1", "p2"))) for _ in range(20)} == {"p1", "p2"}
    assert {places.preferred(replace(group, peers=("p3", "p4"))) for _ in range(20)} == {"p3", "p4"}


def test_names_of_groups() -> None:
    rng = random.Random(1)
    assert group_name_for_stream(3, "file", rng)[:6] == "S-R3F-"
    assert group_name_for_consumer(1, "memory", rng)[:6] == "C-R1M-"
    assert len({group_name_for_stream(3, "file", rng) for _ in range(100)}) == 100
    assert placement.EXCLUDE_PLACEMENT == "!jetstream"
