"""Lists of what other servers have: their descriptions, and what is missing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gnats.accounts.internal_client import InternalClient, Message
from gnats.jetstream.api import infos
from gnats.jetstream.api.infos import Infos
from gnats.jetstream.cluster.entries import (
    ClientInfo,
    ConsumerAssignment,
    Entry,
    Op,
    RaftGroup,
    StreamAssignment,
)
from gnats.jetstream.cluster.meta import MetaState
from gnats.jetstream.control.jetstream import JetStream
from gnats.jetstream.control.metagroup import MetaGroup
from gnats.jetstream.settings.config import ConsumerConfig, StreamConfig

SERVER, CLIENT = True, False
CREATED = "2026-01-01T00:00:00Z"


class Bus:
    """An internal client; `answer` is called with what it asks for, and returns what comes back."""

    def __init__(self) -> None:
        self.callbacks: dict[bytes, Callable[[Message], None]] = {}
        self.asked: list[str] = []
        self.said: list[dict[str, Any]] = []
        self.answer: Callable[[str], list[tuple[bytes, int]]] = lambda subject: []

    def subscribe(self, subject: bytes, callback: Callable[[Message], None]) -> bytes:
        self.callbacks[subject] = callback
        return subject

    def unsubscribe(self, sid: bytes) -> None:
        del self.callbacks[sid]

    def publish(self, subject: bytes, payload: bytes, *, reply: bytes) -> None:
        if not reply:
            self.said.append(json.loads(payload))
            return
        self.asked.append(subject.decode())
        inbox = next(each for each in self.callbacks if b"_INBOX_" in each)
        for answer, from_server in self.answer(subject.decode()):
            message = Message(reply, b"", b"", answer, 7, from_server=from_server)
            asyncio.get_running_loop().call_soon(self.callbacks[inbox], message)


class Server:
    """A server with a meta group of "me", "other" and "gone"."""

    def __init__(self) -> None:
        self.bus = Bus()
        self.warnings: list[str] = []
        online = {"me", "other"}
        nodes = SimpleNamespace(
            is_online=lambda peer: peer in online, get=lambda peer: SimpleNamespace(name=f"server {peer}")
        )
        self.cluster = SimpleNamespace(peer="me", state=MetaState("me"), nodes=nodes)
        options = SimpleNamespace(cluster=SimpleNamespace(name="C"))
        js = SimpleNamespace(
            accounts={},
            shared=SimpleNamespace(options=lambda: options),
            log=SimpleNamespace(warn=self.warnings.append),
            cluster_info={},
        )
        self.infos = Infos(cast(JetStream, js), cast(MetaGroup, self.cluster), cast(InternalClient, self.bus))


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    yield server
    server.infos.close()
    assert not server.bus.callbacks


def stream(name: str, peer: str = "other", **more: Any) -> StreamAssignment:
    return StreamAssignment.of(
        StreamConfig(name=name),
        client=ClientInfo(acc="A.B"),
        created=CREATED,
        group=RaftGroup(name="G", peers=(peer,), store="file"),
        sync="x",
        **more,
    )


def consumer(name: str, peer: str = "other", **more: Any) -> ConsumerAssignment:
    return ConsumerAssignment.of(
        ConsumerConfig(name=name),
        client=ClientInfo(acc="A.B"),
        created=CREATED,
        group=RaftGroup(name="G", peers=(peer,), store="file"),
        name=name,
        stream="S",
        **more,
    )


def about(subject: str) -> list[tuple[bytes, int]]:
    """Answer as the server that has it."""
    name = subject.rpartition(".")[2]
    info: dict[str, Any] = {"config": {"name": name}}
    if subject.startswith("$JSC.CI."):
        info["name"] = name
    return [(json.dumps(info).encode(), SERVER)]


async def test_descriptions_are_gathered_by_name(server: Server) -> None:
    server.bus.answer = about
    listed = await server.infos.streams([stream("T"), stream("S")])
    assert server.bus.asked == ["$JSC.SI.A.B.T", "$JSC.SI.A.B.S"]
    assert listed.answer("streams") == {"streams": [{"config": {"name": "S"}}, {"config": {"name": "T"}}]}
    server.bus.asked.clear()
    listed = await server.infos.consumers([consumer("C")])
    assert server.bus.asked == ["$JSC.CI.A.B.S.C"]
    assert [info["name"] for info in listed.answer("consumers")["consumers"]] == ["C"]
    assert (await server.infos.streams([])).answer("streams") == {"streams": []}


async def test_what_does_not_come_is_missing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infos, "PATIENCE", 0.05)
    server.bus.answer = lambda subject: about(subject) if subject.endswith("S") else []
    listed = await server.infos.streams([stream("T"), stream("S"), stream("R")])
    assert listed.answer("streams") == {"streams": [{"config": {"name": "S"}}], "missing": ["R", "T"]}
    assert len(server.warnings) == 1


async def test_a_server_says_that_something_is_offline(server: Server) -> None:
    answer = {"config": {"name": "S"}, "offline_reason": "why"}
    server.bus.answer = lambda subject: [(json.dumps(answer).encode(), SERVER)]
    listed = await server.infos.streams([stream("S")])
    assert listed.answer("streams") == {"streams": [], "missing": ["S"], "offline": {"S": "why"}}


async def test_what_is_on_servers_that_are_away_is_described_as_it_is_assigned(server: Server) -> None:
    listed = await server.infos.streams([stream("S", "gone")])
    [info] = listed.answer("streams")["streams"]
    replica = {"name": "server gone", "current": False, "offline": True, "active": 0, "peer": "gone"}
    assert info["cluster"] == {"name": "C", "raft_group": "G", "replicas": [replica]}
    assert list(info) == ["config", "created", "state", "cluster", "ts"] and listed.missing == ["S"]
    listed = await server.infos.consumers([consumer("C", "gone")])
    [info] = listed.answer("consumers")["consumers"]
    assert (info["stream_name"], info["name"], info["num_pending"]) == ("S", "C", 0)
    assert not server.bus.asked


async def test_only_other_servers_are_believed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infos, "PATIENCE", 0.05)
    [(good, _)] = about("$JSC.SI.A.B.S")
    nonsense = [b"", b"{", b"[]", b"1", b"{}", b'{"config":1}', b'{"config":{"name":"T"}}', b"[" * 10**5]
    server.bus.answer = lambda subject: [(good, CLIENT), *((each, SERVER) for each in nonsense)]
    listed = await server.infos.streams([stream("S")])
    assert listed.answer("streams") == {"streams": [], "missing": ["S"]}


async def test_a_server_answers_for_what_it_has(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infos, "ANSWER_DELAY", 0.0)
    state = server.cluster.state
    state.apply(Entry(Op.ASSIGN_STREAM, stream("S", "me", unsupported="why")))
    state.apply(Entry(Op.ASSIGN_STREAM, stream("OTHER", unsupported="why")))
    state.apply(Entry(Op.ASSIGN_CONSUMER, consumer("C", "me", unsupported="why so")))

    def ask(subject: str, reply: bytes = b"to") -> None:
        wanted = subject[: len("$JSC.SI.")].encode() + b">"
        server.bus.callbacks[wanted](Message(subject.encode(), reply, b"", b"", 7, from_server=True))

    for subject in ("$JSC.SI.A.B.S", "$JSC.CI.A.B.S.C", "$JSC.SI.A.B.OTHER", "$JSC.SI.NONE", "$JSC.CI.S"):
        ask(subject)
    ask("$JSC.SI.A.B.S", reply=b"")
    await asyncio.sleep(0.01)
    assert [said["offline_reason"] for said in server.bus.said] == ["why", "why so"]
