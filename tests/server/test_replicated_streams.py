"""Streams behind Raft groups, in servers: what is acknowledged is the same at each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.caller import Address, Caller
from support.servers import until

from gnats.jetstream.control.replica import Replica
from gnats.jetstream.settings.config import StreamConfig
from gnats.jetstream.stream.stream import Stream
from gnats.nkeys.identity import server_hash
from gnats.options.values.jetstream import JetStreamOptions
from gnats.store.store import FileStore
from gnats.testing import ClusterThread, ServerThread

pytestmark = pytest.mark.timeout(120)

GROUP = "S-R3F-abcdefgh"
NAME = "S"
SYNC = "$JSC.SYNC.abcdefgh"


class Member:
    """A server's replica of the stream, and what its group tells it."""

    replica: Replica
    stream: Stream

    def __init__(self, server: ServerThread, names: list[str], directory: Path, config: StreamConfig) -> None:
        self.server = server
        self.names = names
        self.directory = directory
        self.config = config
        self.leads = False
        self.failure = ""
        server.run(self.open())

    async def open(self) -> None:
        server = self.server.server
        if server.jetstream is None:
            jetstream = replace(server.opts.jetstream, store_dir=str(self.directory))
            server.opts = replace(server.opts, jetstream=jetstream)
            await server.enable_jetstream()
        assert server.jetstream
        assert server.system_account
        shared = server.jetstream.shared
        stream_dir = self.directory / "stream"
        stream_dir.mkdir(exist_ok=True)
        self.store = FileStore(str(stream_dir), NAME)
        account = server.global_account
        self.stream = Stream(shared.engine, account, NAME, self.store, cid=shared.clients.next_cid())
        self.stream.configure(self.config)
        self.replica = Replica(shared, server.system_account, self.stream, self.store, self, SYNC)
        await self.replica.open(
            GROUP,
            server_hash(server.name).encode(),
            lambda: (len(self.names), [server_hash(name).encode() for name in self.names]),
        )
        self.replica.begin(recovering=False)
        self.replica.group.node.campaign()

    async def carry_out(self, index: int, change: bytes) -> None:
        """Delete a message, the number of which is the change."""
        self.stream.delete_msg(int(change))

    def lead(self, term: int) -> None:
        self.stream.subscribe()
        self.leads = True

    def follow(self) -> None:
        self.leads = False
        self.stream.unsubscribe()

    def leader_changed(self, leader: str) -> None:
        """The tests look at who leads."""

    def stopped(self, why: str) -> None:
        self.failure = why

    def messages(self) -> list[tuple[int, int, bytes, bytes, bytes]]:
        """Return all messages: sequence, time, subject, header, payload."""

        def read(_: object) -> list[tuple[int, int, bytes, bytes, bytes]]:
            found = []
            at = self.stream.next_msg(b">", 1)
            while at:
                found.append(at)
                at = self.stream.next_msg(b">", at[0] + 1)
            return found

        return self.server.call(read)

    def last(self) -> int:
        return self.server.call(lambda _: int(self.store.state().last_seq))

    def propose(self, data: bytes) -> bool:
        return self.server.call(lambda _: self.replica.group.node.propose(data))

    def snapshot(self) -> bool:
        return self.server.run(self.replica.snapshot())

    def close(self) -> None:
        async def close() -> None:
            await self.replica.close()
            self.stream.close()
            self.store.close()

        self.server.run(close())


class Replicated:
    def __init__(self, cluster: ClusterThread, directory: Path, **config: Any) -> None:
        self.cluster = cluster
        self.directory = directory
        self.config = StreamConfig(**({"name": NAME, "subjects": ("s.>",)} | config))
        self.names = [f"s{number}" for number in range(len(cluster))]
        self.members = [self.member(number) for number in range(len(cluster))]

    def member(self, number: int) -> Member:
        return Member(self.cluster.servers[number], self.names, self.directory / str(number), self.config)

    def leader(self) -> Member:
        return until(lambda: next((each for each in self.members if each.leads), None))

    def caller(self) -> Caller:
        """Return a client of the server that leads: the interest of others may be late."""
        return Caller(Address(("127.0.0.1", self.leader().server.port)))

    def publish(self, subject: str, payload: bytes, header: bytes = b"") -> dict[str, Any]:
        """Publish until somebody answers; return the answer."""

        def published() -> dict[str, Any]:
            with self.caller() as caller:
                answer = caller.request(subject, payload, header)
                return answer.json if answer.payload else {}

        return until(published)

    def agree(self, last: int) -> list[tuple[int, int, bytes, bytes, bytes]]:
        """Return the messages that all have when each has stored so many."""
        for member in self.members:
            until(lambda member=member: member.last() == last)  # type: ignore[misc]
        first, *others = (member.messages() for member in self.members)
        assert all(each == first for each in others)
        return first

    def stop(self, member: Member) -> int:
        number = self.members.index(member)
        member.close()
        self.cluster.stop(number)
        self.members.remove(member)
        return number

    def start(self, number: int) -> None:
        self.cluster.start(number)
        self.members.insert(number, self.member(number))

    def close(self) -> None:
        for member in self.members:
            member.close()


@pytest.fixture(params=[False, True], ids=["", "synced"])
def cluster(request: pytest.FixtureRequest) -> Iterator[ClusterThread]:
    with ClusterThread(3, jetstream=JetStreamOptions(sync_always=request.param)) as cluster:
        yield cluster


def test_messages_are_the_same_at_all(cluster: ClusterThread, tmp_path: Path) -> None:
    stream = Replicated(cluster, tmp_path)
    for number in range(1, 51):
        assert stream.publish(f"s.{number}", b"%d" % number) == {"stream": NAME, "seq": number}
    found = stream.agree(50)
    assert [(each[0], each[2], each[4]) for each in found] == [
        (number, b"s.%d" % number, b"%d" % number) for number in range(1, 51)
    ]
    stream.close()


def header(**fields: object) -> bytes:
    lines = "".join(f"Nats-{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


@pytest.fixture
def stream(cluster: ClusterThread, tmp_path: Path) -> Iterator[Replicated]:
    made = Replicated(cluster, tmp_path, allow_atomic=True, duplicate_window=120 * 10**9)
    yield made
    made.close()


def test_what_is_in_flight_counts(stream: Replicated) -> None:
    """Checks see what was proposed before as if it were stored; answers come in order."""
    with stream.caller() as caller:
        asked = [caller.ask("s.a", b"%d" % number, header(Msg_Id=number % 50)) for number in range(100)]
        answers = [caller.next_on(inbox).json for inbox in asked]
        assert [each["seq"] for each in answers[:50]] == list(range(1, 51))
        for each in answers[50:]:  # the first is stored, or in flight
            assert each.get("duplicate") or each["error"]["err_code"] == 10158
        wrong = caller.ask("s.b", b"x", header(Expected_Last_Sequence=49))
        right = caller.ask("s.b", b"x", header(Expected_Last_Sequence=50))
        late = caller.ask("s.b", b"x", header(Expected_Last_Subject_Sequence=0))
        assert caller.next_on(wrong).json["error"]["err_code"] == 10071
        assert caller.next_on(right).json["seq"] == 51
        assert caller.next_on(late).json["error"]["err_code"] in (10071, 10164)
    stream.agree(51)
    assert stream.leader().replica.log.waiting == 0


def test_a_refusal_when_it_is_stored_is_counted_by_all(stream: Replicated) -> None:
    """Only then is it known which message is the last before it."""
    assert stream.publish("s.a", b"1", header(Msg_Id="one"))["seq"] == 1
    with stream.caller() as caller:
        refused = caller.request("s.a", b"2", header(Expected_Last_Msg_Id="two")).json
        assert refused["error"]["err_code"] == 10070
        assert caller.request("s.a", b"2", header(Expected_Last_Msg_Id="one")).json["seq"] == 2
    stream.agree(2)
    assert {member.replica.log.refused for member in stream.members} == {1}
    stop_all(stream)
    assert stream.publish("s.a", b"3")["seq"] == 3
    assert [each[4] for each in stream.agree(3)] == [b"1", b"2", b"3"]


def stop_all(stream: Replicated) -> None:
    """Stop all servers, and start them again."""
    for _ in range(3):
        stream.stop(stream.members[0])
    stream.cluster.start()
    stream.members = [stream.member(number) for number in range(3)]


def test_an_atomic_batch_is_stored_by_all(stream: Replicated) -> None:
    with stream.caller() as caller:
        for number in range(1, 4):
            fields: dict[str, object] = {"Batch_Id": "b", "Batch_Sequence": number}
            if number == 3:
                fields["Batch_Commit"] = 1
            answer = caller.request(f"s.{number}", b"%d" % number, header(**fields))
        assert answer.json == {"stream": NAME, "seq": 3, "batch": "b", "count": 3}
    assert [each[4] for each in stream.agree(3)] == [b"1", b"2", b"3"]


def test_a_large_message(stream: Replicated) -> None:
    large = b"large " * 100_000
    assert stream.publish("s.a", large, b"NATS/1.0\r\nA: b\r\n\r\n")["seq"] == 1
    assert stream.agree(1)[0][3:] == (b"NATS/1.0\r\nA: b\r\n\r\n", large)


def test_what_is_handed_on_is_in_order(stream: Replicated) -> None:
    """Deletions between two messages."""
    assert stream.publish("s.a", b"1")["seq"] == 1
    leader = stream.leader()

    def mixed(_: object) -> None:
        for entry in (b"1", b"2"):
            assert leader.replica.group.node.propose(entry)

    with stream.caller() as caller:
        before = caller.ask("s.a", b"2")
        caller.fence()
        leader.server.call(mixed)
        after = caller.ask("s.a", b"3")
        assert [caller.next_on(inbox).json["seq"] for inbox in (before, after)] == [2, 3]
    assert stream.publish("s.a", b"4")["seq"] == 4
    for member in stream.members:
        until(lambda member=member: [each[0] for each in member.messages()] == [3, 4])  # type: ignore[misc]


@pytest.mark.parametrize("others", [False, True], ids=["", "while others publish"])
def test_nothing_acknowledged_is_lost_when_the_leader_ends(stream: Replicated, others: bool) -> None:
    acknowledged: list[dict[str, Any]] = []
    for round_number in range(3):
        with stream.caller() as caller:
            asked = [caller.ask("s.a", b"%d.%d" % (round_number, number)) for number in range(200)]
            acknowledged += [caller.next_on(inbox).json for inbox in (asked[:100] if others else asked)]
            number = stream.stop(stream.leader())
        stream.publish("s.b", b"again")
        stream.start(number)
    last = stream.publish("s.b", b"last")["seq"]
    found = {each[0]: each[4] for each in stream.agree(last)}
    kept = [found[each["seq"]].decode() for each in acknowledged]
    assert kept == [f"{number}.{each}" for number in range(3) for each in range(100 if others else 200)]


@pytest.mark.parametrize("kept", [False, True], ids=["nothing", "some"])
def test_a_replica_gets_what_it_lacks(stream: Replicated, kept: bool) -> None:
    """The records are gone at the others: a snapshot, and messages from the leader's store."""
    if kept:
        stream.publish("s.before", b"before")
        stream.agree(1)
    number = stream.stop(next(member for member in stream.members if not member.leads))
    with stream.caller() as caller:
        asked = [caller.ask(f"s.{each % 7}", b"%d " % each * 100) for each in range(1000)]
        last = [caller.next_on(inbox).json["seq"] for inbox in asked][-1]
        for seq in *range(2, 500, 2), *range(600, 700), 950:
            assert stream.leader().propose(b"%d" % seq)
        last = caller.request("s.again", b"again").json["seq"]
    for member in stream.members:
        until(lambda member=member: len(member.messages()) == last - 350)  # type: ignore[misc]
        assert member.snapshot()
    stream.start(number)
    found = stream.agree(last)
    assert len(found) == last - 350
    assert stream.publish("s.last", b"last")["seq"] == last + 1
    assert len(stream.agree(last + 1)) == last - 349


def test_a_replica_that_lost_its_directory_comes_back(stream: Replicated) -> None:
    for number in range(20):
        stream.publish("s.a", b"%d" % number)
    stream.agree(20)
    follower = next(member for member in stream.members if not member.leads)
    number = stream.stop(follower)
    for member in stream.members:
        assert member.snapshot()
    shutil.rmtree(follower.directory)
    follower.directory.mkdir()
    stream.start(number)
    assert len(stream.agree(20)) == 20
