"""Consumers behind Raft groups, in servers: all replicas decide the same; what is acknowledged stays so."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.caller import Address, Caller, Message
from support.servers import until

from gnats.jetstream.control.consumermember import ConsumerMembership
from gnats.options.values.jetstream import JetStreamOptions
from gnats.store.format.codec import decode_consumer
from gnats.testing import ClusterThread

pytestmark = pytest.mark.timeout(240)

MESSAGES = 60
SECOND = 10**9


class World:
    """A cluster with a stream and a consumer, both with three replicas."""

    def __init__(self, cluster: ClusterThread) -> None:
        self.cluster = cluster
        self.inboxes = 0

    def create(self, **config: Any) -> None:
        self.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "num_replicas": 3})
        for number in range(MESSAGES):
            until(lambda number=number: self.ask(f"s.{number}", b"%d" % number))  # type: ignore[misc]
        body = {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"} | config}
        self.api("CONSUMER.DURABLE.CREATE.S.C", body)

    def caller(self, number: int | None = None) -> Caller:
        if number is None:
            number = self.cluster.running[0]
        self.inboxes += 1
        port = self.cluster.servers[number].server.port
        caller = Caller(Address(("127.0.0.1", port)), inbox=f"_INBOX.{self.inboxes}")
        caller.connection.sock.settimeout(2)
        return caller

    def ask(self, subject: str, body: bytes) -> Message | None:
        """Ask once; None: nobody answers, or nobody leads."""
        with self.caller() as caller:
            try:
                answer = caller.request(subject, body)
            except TimeoutError:
                return None
        return None if answer.status.startswith("503") else answer

    def api(self, what: str, body: object = None) -> Any:
        payload = json.dumps(body).encode() if body is not None else b""

        def asked() -> Any:
            answer = self.ask(f"$JS.API.{what}", payload)
            found = answer.json if answer else {"error": {"code": 503}}
            return None if found.get("error", {}).get("code") == 503 else found

        found = until(asked, 60)
        assert "error" not in found, found
        return found

    def pull(self, batch: int) -> list[Message]:
        """Return what is delivered within a second."""
        got = []
        with self.caller() as caller:
            request = {"batch": batch, "expires": SECOND}
            caller.ask("$JS.API.CONSUMER.MSG.NEXT.S.C", json.dumps(request).encode())
            try:
                while len(got) < batch and not (message := caller.next()).status:
                    got.append(message)
            except TimeoutError:
                pass
        return got

    def ack(self, message: Message) -> bool:
        """Acknowledge; False: that was not answered."""
        return self.ask(message.reply, b"+ACK") is not None

    def member(self, number: int) -> ConsumerMembership | None:
        """Return a server's place in the group; None: it has not joined."""
        js = self.cluster.servers[number].server.jetstream
        jsa = js.accounts.get("$G") if js else None
        stream = jsa.streams.get("S") if jsa else None
        consumer = stream.consumers.get("C") if stream else None
        member = consumer.member if consumer else None
        assert member is None or isinstance(member, ConsumerMembership)
        return member

    def leader(self) -> int:
        def leads(number: int) -> bool:
            member = self.member(number)
            return member is not None and member.leads

        return until(lambda: next((each for each in self.cluster.running if leads(each)), -1) + 1, 60) - 1

    def step_down(self) -> None:
        number = self.leader()
        server = self.cluster.servers[number]
        member = self.member(number)
        assert member
        server.call(lambda _: member.step_down())

    def snapshot(self, number: int) -> None:
        if member := self.member(number):
            self.cluster.servers[number].run(member.snapshot())

    def restart(self, number: int) -> None:
        self.cluster.stop(number)
        self.cluster.start(number)

    def decided(self, number: int) -> Any:
        """Return what the group has decided, as a server knows it, without times."""
        member = self.member(number)
        if member is None:
            return None
        state = self.cluster.servers[number].call(lambda _: member.log.state())
        if not state:
            return None
        delivered, floor, pending, redelivered = decode_consumer(state)
        return delivered, floor, sorted(each[:2] for each in pending), sorted(redelivered)

    def agree(self) -> Any:
        """Return what all have decided, when they agree."""

        def agreed() -> Any:
            first, *others = (self.decided(number) for number in self.cluster.running)
            return first if first and all(each == first for each in others) else None

        return until(agreed, 60)


@pytest.fixture(params=[False, True], ids=["", "synced"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    options = JetStreamOptions(enabled=True, store_dir=str(tmp_path), sync_always=request.param)
    with ClusterThread(3, jetstream=options) as cluster:
        yield World(cluster)


@pytest.mark.parametrize("seed", range(2))
def test_what_was_acknowledged_stays_so(world: World, seed: int) -> None:
    """Leaders change, servers end, snapshots are taken, in any order."""
    rng = random.Random(seed)
    world.create(ack_wait=2 * SECOND, max_ack_pending=20)
    answered: set[int] = set()
    maybe: set[int] = set()
    seen: set[int] = set()
    for _ in range(40):
        for message in world.pull(rng.choice([1, 3, 10])):
            seq = message.ack[1]
            assert seq not in answered, f"{seq} was acknowledged, and comes again"
            seen.add(seq)
            if rng.random() < 0.8:
                (answered if world.ack(message) else maybe).add(seq)
        what = rng.random()
        if what < 0.2:
            world.step_down()
        elif what < 0.3:
            world.restart(rng.randrange(3))
        elif what < 0.5:
            world.snapshot(rng.randrange(3))
    while len(answered | maybe) < MESSAGES:
        for message in world.pull(20):
            assert message.ack[1] not in answered
            seen.add(message.ack[1])
            (answered if world.ack(message) else maybe).add(message.ack[1])
    assert seen == set(range(1, MESSAGES + 1))
    (_, delivered), (_, floor), *_ = world.agree()
    assert delivered == MESSAGES
    assert floor == MESSAGES or maybe
    before = world.agree()
    for number in range(3):
        world.snapshot(number)
        world.restart(number)
    assert world.agree() == before


def test_a_replica_that_was_away_gets_a_snapshot(world: World) -> None:
    """The records that it lacks are gone at the others."""
    world.create(ack_wait=60 * SECOND)
    until(lambda: world.pull(5))
    away = next(number for number in range(3) if number != world.leader())
    world.cluster.stop(away)
    for message in world.pull(20)[::2]:
        assert world.ack(message)
    for number in world.cluster.running:
        world.snapshot(number)
    until(lambda: len(world.pull(5)) == 5)
    world.cluster.start(away)
    delivered, floor, pending, _ = world.agree()
    assert delivered[1] - floor[1] >= len(pending) > 0
    led = world.leader()
    while world.leader() == led:
        world.step_down()
    assert world.agree()[:3] == (delivered, floor, pending)


def test_a_purge_while_messages_are_pending(world: World) -> None:
    """What is gone is not waited for, by whoever leads."""
    world.create(ack_wait=60 * SECOND)
    until(lambda: len(world.pull(10)) == 10)
    assert world.api("STREAM.PURGE.S", {"seq": 31})["purged"] == 30
    for _ in range(2):
        info = until(lambda: world.api("CONSUMER.INFO.S.C"))
        assert info["num_pending"] == 30
        world.step_down()
        world.leader()
    got = []
    while len(got) < 30:
        got += world.pull(30 - len(got))
    assert [each.ack[1] for each in got] == list(range(31, 61))
    for number in range(3):
        world.snapshot(number)
    assert all(seq > 30 for seq, _ in world.agree()[2])
