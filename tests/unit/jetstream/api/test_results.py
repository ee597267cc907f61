"""Results of assignments: what a server that could not make an asset says, and what the leader does then."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from gnats.accounts.internal_client import InternalClient, Message
from gnats.clock import time_ns
from gnats.go.json import Json
from gnats.go.text import SECOND, rfc3339
from gnats.jetstream import errors
from gnats.jetstream.api.results import CONSUMER_RESULT, STREAM_RESULT, Results
from gnats.jetstream.cluster.entries import (
    Asset,
    ClientInfo,
    ConsumerAssignment,
    Entry,
    Op,
    RaftGroup,
    StreamAssignment,
)
from gnats.jetstream.cluster.meta import MetaState
from gnats.jetstream.cluster.placement import Load, NodeInfo, NodeStats, Placement
from gnats.jetstream.control.metagroup import MetaGroup
from gnats.jetstream.errors import ApiError
from gnats.jetstream.settings.config import ConsumerConfig, StreamConfig
from gnats.jetstream.settings.config import Placement as Wanted
from gnats.log.logger import Logger

FAILED = errors.STREAM_CREATE(err="disk full")
FULL = errors.STORAGE_RESOURCES_EXCEEDED()
NODE = NodeInfo("n", "", max_memory=1 << 30, max_store=1 << 30, stats=NodeStats())


class Bus:
    """An internal client: what it subscribes to is called with what others publish."""

    def __init__(self) -> None:
        self.callbacks: dict[bytes, Callable[[Message], None]] = {}
        self.published: list[tuple[bytes, Json]] = []

    def subscribe(self, subject: bytes, callback: Callable[[Message], None]) -> bytes:
        self.callbacks[subject] = callback
        return subject

    def unsubscribe(self, sid: bytes) -> None:
        del self.callbacks[sid]

    def publish(self, subject: bytes, payload: bytes, *, reply: bytes) -> None:
        self.published.append((subject, json.loads(payload)))


class Cluster:
    """A meta group that commits at once."""

    def __init__(self, *, leads: bool) -> None:
        self.leads = leads
        self.state = MetaState("me")
        self.proposed: list[tuple[Op, StreamAssignment]] = []

    def propose_stream(self, op: Op, assignment: StreamAssignment) -> None:
        assert self.leads
        self.proposed.append((op, assignment))
        self.state.apply(Entry(op, assignment))

    def placement(self) -> Placement:
        nodes = {"east": replace(NODE, cluster="east"), "west": replace(NODE, cluster="west")}
        return Placement(peers=list(nodes), nodes=nodes, load=Load(), rng=random.Random(1))


class Log:
    def warn(self, text: str) -> None:
        """Ignore it."""


@dataclass
class Side:
    """A server: its results, and what it has answered to clients."""

    leads: bool

    def __post_init__(self) -> None:
        self.bus, self.cluster = Bus(), Cluster(leads=self.leads)
        self.answers: list[tuple[str, ApiError, str, Json]] = []

        def answer(asset: Asset, error: ApiError, response: str, more: Json) -> None:
            self.answers.append((asset.reply, error, response.rpartition(".")[2], more))

        self.results = Results(
            cast(MetaGroup, self.cluster),
            cast(InternalClient, self.bus),
            cast(Logger, Log()),
            answer,
        )

    def hear(self, subject: bytes, members: Json | bytes, *, from_server: bool = True) -> None:
        payload = members if isinstance(members, bytes) else json.dumps(members).encode()
        self.bus.callbacks[subject](Message(subject, b"", b"", payload, 7, from_server=from_server))


@pytest.fixture
def leader() -> Side:
    return Side(leads=True)


@pytest.fixture
def host() -> Side:
    return Side(leads=False)


def stream(age: int = 0, **more: Any) -> StreamAssignment:
    """Return a stream that was assigned some seconds ago."""
    config = more.pop("config", StreamConfig(name="S"))
    members: dict[str, Any] = {
        "client": ClientInfo(acc="A", cluster="east"),
        "created": rfc3339(time_ns() - age * SECOND),
        "group": RaftGroup(name="G", peers=("east",), store="file", cluster="east"),
        "sync": "x",
        "reply": "to",
    }
    return StreamAssignment.of(config, **members | more)


def consumer(of: StreamAssignment) -> ConsumerAssignment:
    return ConsumerAssignment.of(
        ConsumerConfig(name="C"),
        client=of.client,
        created=of.created,
        group=of.group,
        name="C",
        stream="S",
        reply="to",
    )


def test_a_server_tells_the_leader(host: Side) -> None:
    made = stream()
    host.results.refuse(made, FAILED, False)
    host.results.refuse(made, FAILED, True)
    host.results.refuse(consumer(made), FAILED, False)
    response = {"type": "io.nats.jetstream.api.v1.stream_create_response", "error": FAILED.json()}
    told = {"account": "A", "stream": "S", "create_response": response}
    of_consumer = {"type": "io.nats.jetstream.api.v1.consumer_create_response", "error": FAILED.json()}
    assert host.bus.published == [
        (STREAM_RESULT, told),
        (STREAM_RESULT, told | {"is_update": True}),
        (CONSUMER_RESULT, {"account": "A", "stream": "S", "consumer": "C", "response": of_consumer}),
    ]
    assert not host.answers


def pass_on(host: Side, leader: Side, asset: Asset, error: ApiError, *, update: bool = False) -> None:
    """Let the leader hear what a server says."""
    host.results.refuse(asset, error, update)
    for subject, members in host.bus.published:
        leader.hear(subject, members)


@pytest.mark.parametrize("age", [0, 4, 6])
@pytest.mark.parametrize("update", [False, True])
def test_the_leader_answers_and_undoes_a_new_stream(host: Side, leader: Side, age: int, update: bool) -> None:
    made = stream(age)
    leader.cluster.state.apply(Entry(Op.ASSIGN_STREAM, made))
    pass_on(host, leader, made, FAILED, update=update)
    [(reply, error, response, more)] = leader.answers
    assert (reply, str(error), response, more) == ("to", str(FAILED), "stream_create_response", {})
    undone = age < 5 and not update
    assert [op for op, _ in leader.cluster.proposed] == [Op.REMOVE_STREAM] * undone
    assert all(not removal.reply for _, removal in leader.cluster.proposed)
    assert (leader.cluster.state.stream("A", "S") is None) is undone


def test_the_leader_hears_itself(leader: Side) -> None:
    made = stream()
    leader.cluster.state.apply(Entry(Op.ASSIGN_STREAM, made))
    leader.results.refuse(made, FAILED, False)
    assert len(leader.answers) == len(leader.cluster.proposed) == 1 and not leader.bus.published


def test_a_stream_that_has_been_made_anew_stays(leader: Side) -> None:
    leader.cluster.state.apply(Entry(Op.ASSIGN_STREAM, stream()))
    leader.results.refuse(stream(1), FAILED, False)
    assert leader.answers and not leader.cluster.proposed


def test_a_consumer_stays_assigned(host: Side, leader: Side) -> None:
    made = stream()
    leader.cluster.state.apply(Entry(Op.ASSIGN_STREAM, made))
    leader.cluster.state.apply(Entry(Op.ASSIGN_CONSUMER, consumer(made)))
    pass_on(host, leader, consumer(made), FAILED)
    leader.results.refuse(consumer(made), FAILED, False)
    assert [response for _, _, response, _ in leader.answers] == ["consumer_create_response"] * 2
    assert leader.cluster.state.consumer("A", "S", "C")


def test_a_full_cluster_leaves_a_stream_to_another_one(host: Side, leader: Side) -> None:
    client = ClientInfo(acc="A", cluster="east", alts=("west",))
    made = stream(client=client)
    leader.cluster.state.apply(Entry(Op.ASSIGN_STREAM, made))
    pass_on(host, leader, made, FULL)
    assert [op for op, _ in leader.cluster.proposed] == [Op.REMOVE_STREAM, Op.ASSIGN_STREAM]
    again = leader.cluster.state.stream("A", "S")
    assert again and again.group.peers == ("west",) and again.reply == "to" and again.created == made.created
    assert not leader.answers
    leader.results.refuse(again, FULL, False)  # there is no third one
    assert leader.answers and leader.cluster.state.stream("A", "S") is None


@pytest.mark.parametrize(
    ("client", "config", "error"),
    [
        (ClientInfo(acc="A", cluster="east"), StreamConfig(name="S"), FULL),
        (ClientInfo(acc="A", alts=("west",)), StreamConfig(name="S", placement=Wanted(cluster="east")), FULL),
        (ClientInfo(acc="A", alts=("west",)), StreamConfig(name="S"), FAILED),
        (ClientInfo(acc="A", alts=("north",)), StreamConfig(name="S"), FULL),
    ],
    ids=["no other cluster", "this cluster is wanted", "another error", "none that is fit"],
)
def test_otherwise_it_is_refused(
    leader: Side, client: ClientInfo, config: StreamConfig, error: ApiError
) -> None:
    made = stream(client=client, config=config)
    leader.cluster.state.apply(Entry(Op.ASSIGN_STREAM, made))
    leader.results.refuse(made, error, False)
    assert len(leader.answers) == 1 and leader.cluster.state.stream("A", "S") is None


def test_a_restore_is_refused_as_such(leader: Side) -> None:
    leader.cluster.state.apply(Entry(Op.ASSIGN_STREAM, stream()))
    response = {"type": "t", "error": FAILED.json(), "deliver_subject": ""}
    leader.hear(STREAM_RESULT, {"account": "A", "stream": "S", "restore_response": response})
    [(_, _, kind, more)] = leader.answers
    assert (kind, more) == ("stream_restore_response", {"deliver_subject": ""})


def test_only_other_servers_are_believed(host: Side, leader: Side) -> None:
    made = stream()
    leader.cluster.state.apply(Entry(Op.ASSIGN_STREAM, made))
    host.results.refuse(made, FAILED, False)
    [(subject, members)] = host.bus.published
    leader.hear(subject, members, from_server=False)
    follower = Side(leads=False)
    follower.cluster.state.apply(Entry(Op.ASSIGN_STREAM, made))
    follower.hear(subject, members)
    for nonsense in (b"", b"[]", b"{", b'{"account":1}', b"{}", b'{"account":"A","stream":"S"}'):
        leader.hear(STREAM_RESULT, nonsense)
        leader.hear(CONSUMER_RESULT, nonsense)
    assert not leader.answers and not leader.cluster.proposed and not follower.answers
