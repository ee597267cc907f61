"""Which server of a cluster answers a request: each sees the same assignments, one leads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import pytest

from gnats.go.json import Json
from gnats.jetstream.api import consumer_requests, stream_requests
from gnats.jetstream.api.answering import ANSWER_DELAY, Answering
from gnats.jetstream.api.request import LeftToOthers, Request, Route
from gnats.jetstream.cluster.entries import (
    ClientInfo,
    ConsumerAssignment,
    Entry,
    Op,
    RaftGroup,
    StreamAssignment,
)
from gnats.jetstream.cluster.meta import MetaState
from gnats.jetstream.control.metagroup import MetaGroup
from gnats.jetstream.errors import ApiError
from gnats.jetstream.settings.config import ConsumerConfig, StreamConfig

LEADER, HOST, OTHER = "leader", "host", "other"
VIEWS = (LEADER, HOST, OTHER)
CREATED = "2026-01-01T00:00:00Z"
NOT_AVAIL, STREAM_NOT_FOUND, CONSUMER_NOT_FOUND = 10008, 10059, 10014
STREAM_OFFLINE, CONSUMER_OFFLINE = 10118, 10119
STREAM_OFFLINE_REASON, CONSUMER_OFFLINE_REASON = 10194, 10195
ROUTES = {route.verb: route for route in (*stream_requests.ROUTES, *consumer_requests.ROUTES)}
OF_LEADER = {
    "INFO",
    "STREAM.CREATE.S",
    "STREAM.UPDATE.S",
    "STREAM.DELETE.S",
    "STREAM.NAMES",
    "STREAM.LIST",
    "STREAM.CANCEL_MOVE.S",
    "STREAM.PEER.REMOVE.S",
    "STREAM.PEER.EVACUATE.S",
    "CONSUMER.CREATE.S",
    "CONSUMER.CREATE.S.C",
    "CONSUMER.CREATE.S.C.filter.>",
    "CONSUMER.DURABLE.CREATE.S.C",
    "CONSUMER.DELETE.S.C",
    "CONSUMER.NAMES.S",
    "CONSUMER.LIST.S",
    "CONSUMER.PAUSE.S.C",
}
OF_STREAM = {
    "STREAM.INFO.S",
    "STREAM.PURGE.S",
    "STREAM.MSG.GET.S",
    "STREAM.MSG.DELETE.S",
    "STREAM.LEADER.STEPDOWN.S",
}
OF_CONSUMER = {"CONSUMER.INFO.S.C", "CONSUMER.UNPIN.S.C", "CONSUMER.LEADER.STEPDOWN.S.C"}
ALL = [*OF_LEADER, *OF_STREAM, *OF_CONSUMER, "STREAM.SNAPSHOT.S", "STREAM.RESTORE.S"]


class Nodes:
    def __init__(self) -> None:
        self.offline: set[str] = set()

    def is_online(self, peer: str) -> bool:
        return peer not in self.offline


class View:
    """A server's view of the meta group."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.leads = peer == LEADER
        self.is_leaderless = False
        self.state = MetaState(peer)
        self.nodes = Nodes()
        self.answering = Answering(cast(MetaGroup, self), {})


@dataclass
class Asked:
    """The parts of a request that decide."""

    tokens: list[str]
    payload: bytes = b""
    jsa: object = None
    delay: float = 0.0
    account: Any = field(default_factory=lambda: Account("A"))
    js: Any = field(default_factory=lambda: NoStreams())


@dataclass
class Account:
    name: str


class NoStreams:
    """JetStream of a server that takes part in no group of a stream."""

    accounts: ClassVar[dict[str, object]] = {}


class World:
    """Servers that have applied the same entries."""

    def __init__(self) -> None:
        self.views = {peer: View(peer) for peer in VIEWS}

    def apply(self, op: Op, assignment: StreamAssignment | ConsumerAssignment) -> None:
        for view in self.views.values():
            view.state.apply(Entry(op, assignment))

    def ask(self, verb: str, payload: bytes = b"") -> dict[str, Any]:
        """Return by server: True if it answers, the number of its refusal, or the number and the delay."""
        answers = {}
        for peer, view in self.views.items():
            request = Asked(verb.split("."), payload)
            try:
                chosen = view.answering.choose(cast(Request, request), route(request.tokens))
            except ApiError as exc:
                answers[peer] = (exc.err_code, request.delay) if request.delay else exc.err_code
            except LeftToOthers:
                continue
            else:
                if chosen:
                    answers[peer] = True
        return answers


def route(tokens: list[str]) -> Route:
    return next(found for length in (3, 2, 1) if (found := ROUTES.get(".".join(tokens[:length]))))


def group(*peers: str) -> RaftGroup:
    return RaftGroup(name="G", peers=peers, store="file")


STREAM = StreamAssignment.of(
    StreamConfig(name="S"), client=ClientInfo(acc="A"), created=CREATED, group=group(HOST), sync="x"
)
CONSUMER = ConsumerAssignment.of(
    ConsumerConfig(name="C"),
    client=ClientInfo(acc="A"),
    created=CREATED,
    group=group(HOST),
    name="C",
    stream="S",
)


@pytest.fixture
def empty() -> World:
    return World()


@pytest.fixture
def world(empty: World) -> World:
    empty.apply(Op.ASSIGN_STREAM, STREAM)
    empty.apply(Op.ASSIGN_CONSUMER, CONSUMER)
    return empty


def test_every_request_is_thought_of() -> None:
    assert {route(verb.split(".")).verb for verb in ALL} == set(ROUTES)


@pytest.mark.parametrize("verb", sorted(OF_LEADER))
def test_the_leader_answers_what_is_about_assignments(world: World, verb: str) -> None:
    assert world.ask(verb) == {LEADER: True}


@pytest.mark.parametrize("verb", sorted({*OF_STREAM, *OF_CONSUMER, "STREAM.SNAPSHOT.S"}))
def test_the_server_that_has_it_answers_what_is_about_it(world: World, verb: str) -> None:
    assert world.ask(verb) == {HOST: True}


@pytest.mark.parametrize("verb", sorted(OF_STREAM))
def test_the_leader_refuses_an_unknown_stream(empty: World, verb: str) -> None:
    assert empty.ask(verb) == {LEADER: STREAM_NOT_FOUND}


@pytest.mark.parametrize("verb", sorted(OF_CONSUMER))
def test_the_leader_refuses_an_unknown_consumer(empty: World, verb: str) -> None:
    assert empty.ask(verb) == {LEADER: STREAM_NOT_FOUND}
    empty.apply(Op.ASSIGN_STREAM, STREAM)
    assert empty.ask(verb) == {LEADER: CONSUMER_NOT_FOUND}


def test_nobody_answers_about_the_backup_of_an_unknown_stream(empty: World) -> None:
    assert empty.ask("STREAM.SNAPSHOT.S") == {}
    assert empty.ask("STREAM.RESTORE.S") == {LEADER: True}


def test_the_leader_counts_what_it_has_proposed(empty: World) -> None:
    empty.views[LEADER].state.inflight.track_stream(STREAM)
    assert empty.ask("STREAM.INFO.S") == {}
    empty.apply(Op.ASSIGN_STREAM, STREAM)
    empty.views[LEADER].state.inflight.track_stream(STREAM, deleted=True)
    assert empty.ask("STREAM.INFO.S") == {LEADER: STREAM_NOT_FOUND, HOST: True}


@pytest.mark.parametrize("verb", sorted(ALL))
def test_without_a_leader_all_say_so(world: World, verb: str) -> None:
    for view in world.views.values():
        view.leads, view.is_leaderless = False, True
    later = (NOT_AVAIL, ANSWER_DELAY)
    expected: dict[str, Any] = dict.fromkeys(VIEWS, NOT_AVAIL)
    if verb in ("STREAM.INFO.S", "CONSUMER.INFO.S.C"):
        expected = {LEADER: later, HOST: True, OTHER: later}
    elif verb == "STREAM.PURGE.S":
        expected[HOST] = True
    elif verb in ("STREAM.SNAPSHOT.S", "CONSUMER.UNPIN.S.C"):
        expected = {HOST: True}
    elif verb == "STREAM.RESTORE.S":
        expected = {}
    assert world.ask(verb) == expected


def test_while_a_leader_is_elected_nobody_answers_for_it(world: World) -> None:
    world.views[LEADER].leads = False
    assert all(world.ask(verb) == {} for verb in OF_LEADER)
    assert world.ask("STREAM.INFO.S") == {HOST: True}
    assert world.ask("STREAM.INFO.NONE") == {}


def test_the_leader_says_that_the_server_is_offline(world: World) -> None:
    world.views[LEADER].nodes.offline = {HOST}
    del world.views[HOST]
    assert world.ask("STREAM.INFO.S") == {LEADER: (STREAM_OFFLINE, ANSWER_DELAY)}
    assert world.ask("CONSUMER.INFO.S.C") == {LEADER: (CONSUMER_OFFLINE, ANSWER_DELAY)}


def test_what_is_not_supported_is_offline(empty: World) -> None:
    empty.apply(Op.ASSIGN_STREAM, replace(STREAM, unsupported="why"))
    empty.apply(Op.ASSIGN_CONSUMER, replace(CONSUMER, unsupported="why"))
    assert empty.ask("STREAM.INFO.S") == {HOST: (STREAM_OFFLINE_REASON, ANSWER_DELAY)}
    assert empty.ask("CONSUMER.INFO.S.C") == {HOST: (CONSUMER_OFFLINE_REASON, ANSWER_DELAY)}
    assert empty.ask("CONSUMER.UNPIN.S.C") == {}


def test_nobody_answers_for_streams_that_have_several_servers(empty: World) -> None:
    empty.apply(Op.ASSIGN_STREAM, replace(STREAM, group=group(HOST, OTHER)))
    assert empty.ask("STREAM.INFO.S") == {}


@pytest.mark.parametrize("name", [b"direct", b"DIRECT"])
def test_those_that_may_make_a_direct_consumer_look_at_the_request(world: World, name: bytes) -> None:
    body = b'{"stream_name":"S","config":{"%s":true}}' % name
    assert world.ask("CONSUMER.CREATE.S.C", body) == {LEADER: True, HOST: True}
    assert world.ask("CONSUMER.CREATE.NONE.C", body) == {LEADER: True}


def test_an_account_without_jetstream_is_refused_for_that(empty: World) -> None:
    class Without(Asked):
        @property
        def jsa(self) -> Json:
            raise LeftToOthers

        @jsa.setter
        def jsa(self, value: object) -> None: ...

    request = cast(Request, Without(["STREAM", "INFO", "S"]))
    with pytest.raises(LeftToOthers):
        empty.views[LEADER].answering.choose(request, ROUTES["STREAM.INFO"])
