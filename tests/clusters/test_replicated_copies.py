"""Mirrors and streams with sources that have three replicas, in clusters of gnats, nats-server and both."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from support.servers import until

from .conftest import require_all
from .members import named
from .test_jetstream import Members, mixtures, running
from .test_replicas import delete, host, lead, settled

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", params=mixtures(), ids=named)
def members(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    require_all(request.param)
    with running(tmp_path_factory.mktemp("js"), request.param) as members:
        yield members


class Copied(NamedTuple):
    subject: str
    payload: str
    time: str
    header: str

    @property
    def origin_seq(self) -> int:
        """The sequence in the origin of a message of a source."""
        (line,) = [line for line in self.header.split("\r\n") if line.startswith("Nats-Stream-Source: ")]
        return int(line.split(" ")[2])


class Copies:
    """An origin that keeps one message a subject, a mirror of it, and a stream with two sources."""

    def __init__(self, members: Members) -> None:
        self.members = members
        self.origin = members.stream(0, num_replicas=3, max_msgs_per_subject=1)
        self.other = members.stream(1)
        self.published = 0
        self.publish(20)
        self.names = [f"{self.origin}-M", f"{self.origin}-S"]
        self.create(self.names[0], mirror={"name": self.origin}, mirror_direct=True)
        transform = [{"src": f"{self.origin}.>", "dest": "from.origin.>"}]
        sources = [{"name": self.origin, "subject_transforms": transform}, {"name": self.other}]
        self.create(self.names[1], sources=sources)

    def create(self, name: str, **config: Any) -> None:
        self.members.api(2, f"STREAM.CREATE.{name}", {"name": name, "num_replicas": 3} | config)

    def publish(self, number: int) -> None:
        """Publish to both origins; only the last message of each of seven subjects stays in the first."""
        for _ in range(number):
            self.published += 1
            for name in (self.origin, self.other):
                subject = f"{name}.{self.published % 7}"
                answer = self.members.ask(self.published % 3, subject, b"%d" % self.published)
                assert answer["seq"] > self.published

    def messages(self, name: str) -> dict[int, Copied]:
        """Return the messages, as the leader has them."""
        state = self.members.api(0, f"STREAM.INFO.{name}")["state"]
        found = {}
        for seq in range(max(state["first_seq"], 1), state["last_seq"] + 1):
            answer = self.members.ask(0, f"$JS.API.STREAM.MSG.GET.{name}", {"seq": seq})
            if message := answer.get("message"):
                header = b64decode(message.get("hdrs", "")).decode()
                found[seq] = Copied(message["subject"], message.get("data", ""), message["time"], header)
        return found

    def wait(self) -> None:
        """Wait until both copies are complete; check that nothing is there twice."""
        origin = self.messages(self.origin)
        last = self.members.api(0, f"STREAM.INFO.{self.origin}")["state"]["last_seq"]
        until(lambda: self.members.api(0, f"STREAM.INFO.{self.names[0]}")["state"]["last_seq"] == last, 60)
        mirrored = self.messages(self.names[0])
        assert {seq: mirrored[seq] for seq in origin} == origin
        own = list(self.messages(self.other).values())
        until(lambda: len(self.sourced(self.other)) >= len(own), 60)
        assert [message.payload for message in self.sourced(self.other)] == [each.payload for each in own]
        until(lambda: last in [message.origin_seq for message in self.sourced(self.origin)], 60)
        for name in (self.origin, self.other):
            seqs = [message.origin_seq for message in self.sourced(name)]
            assert seqs == sorted(set(seqs))
        assert {seq: message.payload for seq, message in origin.items()}.items() <= {
            message.origin_seq: message.payload for message in self.sourced(self.origin)
        }.items()

    def sourced(self, origin: str) -> list[Copied]:
        """Return the messages of a source."""
        prefix = "from.origin." if origin == self.origin else f"{origin}."
        found = self.messages(self.names[1]).values()
        return [message for message in found if message.subject.startswith(prefix)]

    def same_everywhere(self) -> None:
        """Check that each replica has the same, by having each lead."""
        for name in self.names:
            seen = []
            for member in range(3):
                lead(self.members, name, member)
                state = settled(self.members, name)["state"]
                seen.append((state["messages"], state["last_seq"], self.messages(name)))
            assert seen[0] == seen[1] == seen[2]

    def delete(self) -> None:
        for name in [*self.names, self.other, self.origin]:
            delete(self.members, name)


@pytest.fixture
def copies(members: Members) -> Iterator[Copies]:
    copies = Copies(members)
    yield copies
    copies.delete()


def test_copies_are_at_all_members(copies: Copies) -> None:
    copies.wait()
    copies.publish(20)
    copies.wait()
    copies.same_everywhere()
    for name, what in zip(copies.names, ("mirror", "sources"), strict=True):

        def origins(name: str = name, what: str = what) -> list[dict[str, Any]]:
            info = copies.members.api(1, f"STREAM.INFO.{name}")
            assert info["cluster"]["raft_group"].startswith("S-R3F-")
            found: list[dict[str, Any]] = info[what] if what == "sources" else [info[what]]
            return found

        until(lambda origins=origins: all(each["active"] >= 0 for each in origins()), 60)  # type: ignore[misc]
        assert {each["name"] for each in origins()} <= {copies.origin, copies.other}
        assert all(each["lag"] == 0 for each in origins())


def test_copies_go_on_where_another_server_leads(copies: Copies) -> None:
    """Messages come while the leaders of copies and origin change: none is lost, none is there twice."""
    for turn in range(6):
        copies.publish(5)
        for name in (*copies.names, copies.origin):
            lead(copies.members, name, turn % 3)
        copies.publish(5)
    copies.wait()
    copies.same_everywhere()


def test_leaders_of_copies_are_killed(copies: Copies) -> None:
    members = copies.members
    for name in copies.names:
        copies.publish(5)
        gone = until(lambda name=name: host(members, name) + 1) - 1  # type: ignore[misc]
        server = members.cluster[gone]
        if members.host(copies.other) == gone:
            continue  # the origin with one replica would be away, too
        server.kill()
        left = min({0, 1, 2} - {gone})
        until(lambda left=left: "seq" in members.ask(left, f"{copies.origin}.away", b"away"), 60)  # type: ignore[misc]
        server.start_again()
        members.leader()
        copies.publish(5)
        copies.wait()
    copies.same_everywhere()


def test_all_members_with_copies_are_killed(copies: Copies) -> None:
    copies.publish(5)
    for server in copies.members.cluster.servers:
        server.kill()
    for server in copies.members.cluster.servers:
        server.start_again()
    copies.members.leader()
    for name in copies.names:
        settled(copies.members, name)
    copies.publish(5)
    copies.wait()
    copies.same_everywhere()


def test_a_mirror_becomes_a_stream(copies: Copies) -> None:
    copies.wait()
    members, name = copies.members, copies.names[0]
    config = {"name": name, "subjects": [f"{name}.>"], "num_replicas": 3, "mirror_direct": False}
    members.api(1, f"STREAM.UPDATE.{name}", config)
    members.reachable(f"{name}.own")
    before = len(copies.messages(name))
    copies.publish(3)
    answer = members.ask(2, f"{name}.own", b"own")
    settled(members, name)
    assert len(copies.messages(name)) == before + 1
    assert answer["seq"] == members.api(0, f"STREAM.INFO.{name}")["state"]["last_seq"]
    copies.same_everywhere()
