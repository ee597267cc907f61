"""Streams with one replica in clusters of gnats, nats-server and both: any server serves any stream."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.caller import Caller, Message
from support.clusters import Cluster
from support.launch import launcher
from support.monitor import wait_meta_leader
from support.servers import REFERENCE, Kind, selected, until

from .conftest import require_all
from .members import named

pytestmark = pytest.mark.timeout(180)

ANSWER_WITHIN = 5.0
"""Seconds after which a request counts as unanswered: nobody leads at the moment."""
NO_PEERS = 10005
READY = 3
"""Messages that Members.stream() has published, and purged."""
_names = itertools.count(1)


def mixtures() -> list[tuple[Kind, ...]]:
    """Return clusters of one kind, and of two."""
    gnats = [kind for kind in selected() if not kind.is_reference]
    mixed = [(gnats[-1], REFERENCE, REFERENCE), (REFERENCE, gnats[0], gnats[-1])]
    return [*[(kind,) * 3 for kind in (*gnats, REFERENCE)], *mixed]


class Members:
    """A running cluster with JetStream, and clients of its members."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def ask(self, member: int, subject: str, body: object = None) -> dict[str, Any]:
        """Send a request to a member until it is answered; return the answer."""

        def answer() -> dict[str, Any] | None:
            message = self.answer(member, subject, body)
            found: dict[str, Any] = message.json if message and message.payload else {}
            return None if found.get("error", {}).get("code") == 503 else found

        return until(answer, 60)

    def answer(self, member: int, subject: str, body: object = None) -> Message | None:
        """Send a request to a member once; None when nobody answers in time, or nobody listens."""
        with Caller(self.cluster[member], inbox=f"_INBOX.{next(_names)}") as caller:
            caller.connection.sock.settimeout(ANSWER_WITHIN)
            try:
                return caller.request(subject, body)
            except TimeoutError:
                return None

    def pull(self, member: int, stream: str, consumer: str) -> Message:
        """Have a consumer deliver a message to a client of a member."""
        with Caller(self.cluster[member], inbox=f"_INBOX.{next(_names)}") as caller:
            caller.ask(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", b"1")
            return caller.next()

    def api(self, member: int, what: str, body: object = None) -> dict[str, Any]:
        answer = self.ask(member, f"$JS.API.{what}", body)
        assert "error" not in answer, answer
        return answer

    def error(self, member: int, what: str, body: object = None) -> int:
        return int(self.ask(member, f"$JS.API.{what}", body)["error"]["err_code"])

    def stream(self, member: int = 0, **config: Any) -> str:
        name = f"S{next(_names)}"
        body = {"name": name, "subjects": [f"{name}.>"]} | config

        def placed() -> dict[str, Any] | None:
            answer = self.ask(member, f"$JS.API.STREAM.CREATE.{name}", body)
            if answer.get("error", {}).get("err_code") == NO_PEERS:
                return None  # the leader of a new cluster does not know all members yet
            return answer

        info = until(placed, 60)
        assert "error" not in info, info
        self.reachable(f"{name}.ready")
        self.api(member, f"STREAM.PURGE.{name}")
        return name

    def reachable(self, subject: str) -> None:
        """Wait until a publisher at any member is answered."""
        for member in self.cluster.running():
            until(lambda member=member: "seq" in self.ask(member, subject, b""))  # type: ignore[misc]

    def leader(self) -> int:
        """Return the member that leads the meta group, as all say."""
        return int(wait_meta_leader(self.cluster[member] for member in self.cluster.running())[1:])

    def host(self, name: str) -> int:
        """Return the member that has a stream."""
        found = self.api(self.cluster.running()[0], f"STREAM.INFO.{name}")["cluster"]
        assert found["name"] == "C"
        return int(found["leader"][1:])


@pytest.fixture(scope="module", params=mixtures(), ids=named)
def members(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    require_all(request.param)
    directory = tmp_path_factory.mktemp("js")
    with running(directory, request.param) as members:
        yield members


class running:
    """Start a cluster with JetStream, and stop it at the end."""

    def __init__(self, directory: Path, kinds: tuple[Kind, ...]) -> None:
        self.directory = directory
        self.kinds = kinds

    def __enter__(self) -> Members:
        self._launcher = launcher(REFERENCE, self.directory)
        launch = self._launcher.__enter__()
        cluster = Cluster(
            launch,
            self.kinds,
            config=lambda number: (
                f"jetstream {{ store_dir: '{self.directory / str(number)}' }}\nserver_tags: [n{number}]"
            ),
        )
        cluster.wait_mesh()
        members = Members(cluster)
        members.leader()
        for number in range(len(cluster)):
            until(lambda number=number: members.ask(number, "$JS.API.INFO"))  # type: ignore[misc]
        return members

    def __exit__(self, *exc: Any) -> None:
        self._launcher.__exit__(*exc)


def test_a_stream_is_the_same_from_every_member(members: Members) -> None:
    name = members.stream(0)
    host = members.host(name)
    for member in range(3):
        answer = members.ask(member, f"{name}.{member}", b"from %d" % member)
        assert (answer["stream"], answer["seq"]) == (name, READY + member + 1)
    for member in range(3):
        info = members.api(member, f"STREAM.INFO.{name}")
        assert info["state"]["messages"] == 3
        assert info["cluster"]["leader"] == f"s{host}"
        message = members.api(member, f"STREAM.MSG.GET.{name}", {"seq": READY + 2})["message"]
        assert message["subject"] == f"{name}.1"
        assert name in members.api(member, "STREAM.NAMES")["streams"]
        (listed,) = [
            each for each in members.api(member, "STREAM.LIST")["streams"] if each["config"]["name"] == name
        ]
        assert listed["state"]["messages"] == 3
    assert members.api(2, f"STREAM.MSG.DELETE.{name}", {"seq": READY + 1})["success"]
    assert members.api(1, f"STREAM.PURGE.{name}")["purged"] == 2
    assert members.api(1, f"STREAM.DELETE.{name}")["success"]
    for member in range(3):
        assert members.error(member, f"STREAM.INFO.{name}") == 10059


def test_streams_are_made_and_changed_at_any_member(members: Members) -> None:
    names = [members.stream(member) for member in range(3)]
    for member, name in enumerate(names):
        config = {"name": name, "subjects": [f"{name}.>", f"{name}-more"], "max_msgs": 10}
        other = (member + 1) % 3
        assert members.api(other, f"STREAM.UPDATE.{name}", config)["config"]["max_msgs"] == 10
        members.reachable(f"{name}-more")
        assert members.api(member, f"STREAM.INFO.{name}")["state"]["messages"] == 3
    for name in names:
        members.api(0, f"STREAM.DELETE.{name}")


def test_the_same_stream_again(members: Members) -> None:
    name = members.stream(0)
    config = {"name": name, "subjects": [f"{name}.>"]}
    for member in range(3):
        again = members.api(member, f"STREAM.CREATE.{name}", config)
        assert not again.get("did_create", False)
        assert again["config"]["name"] == name
        assert members.error(member, f"STREAM.CREATE.{name}", config | {"max_msgs": 3}) == 10058
        other = f"{name}x"
        assert (
            members.error(member, f"STREAM.CREATE.{other}", {"name": other, "subjects": [f"{name}.a"]})
            == 10065
        )
    members.api(0, f"STREAM.DELETE.{name}")


def test_what_is_refused(members: Members) -> None:
    for member in range(3):
        assert members.error(member, "STREAM.INFO.NONE") == 10059
        assert members.error(member, "STREAM.DELETE.NONE") == 10059
        assert members.error(member, "STREAM.UPDATE.NONE", {"name": "NONE"}) == 10059
        assert members.error(member, "CONSUMER.CREATE.NONE", {"stream_name": "NONE", "config": {}}) == 10059
        assert members.error(member, "CONSUMER.INFO.NONE.C") == 10059


def test_consumers_are_the_same_from_every_member(members: Members) -> None:
    name = members.stream(0)
    for n in range(6):
        members.ask(n % 3, f"{name}.{n}", b"%d" % n)
    for member in range(3):
        consumer = f"c{member}"
        config = {"durable_name": consumer, "ack_policy": "explicit"}
        body = {"stream_name": name, "config": config}
        info = members.api(member, f"CONSUMER.DURABLE.CREATE.{name}.{consumer}", body)
        assert (info["stream_name"], info["name"], info["num_pending"]) == (name, consumer, 6)
    for member in range(3):
        found = members.api(member, f"CONSUMER.NAMES.{name}")["consumers"]
        assert sorted(found) == ["c0", "c1", "c2"]
        listed = members.api(member, f"CONSUMER.LIST.{name}")["consumers"]
        assert sorted(each["name"] for each in listed) == ["c0", "c1", "c2"]
        assert members.api(member, f"CONSUMER.INFO.{name}.c0")["num_pending"] == 6 - 2 * member
        for number in range(2 * member, 2 * member + 2):
            message = members.pull(member, name, "c0")
            assert message.payload == b"%d" % number
            acknowledged = members.answer(member, message.reply, b"+ACK")
            assert acknowledged and acknowledged.payload == b""
        floor = members.api(member, f"CONSUMER.INFO.{name}.c0")["ack_floor"]["stream_seq"]
        assert floor == READY + 2 * member + 2
    assert members.api(1, f"CONSUMER.DELETE.{name}.c0")["success"]
    for member in range(3):
        assert members.error(member, f"CONSUMER.INFO.{name}.c0") == 10014
    members.api(0, f"STREAM.DELETE.{name}")


def test_a_push_consumer_delivers_to_any_member(members: Members) -> None:
    name = members.stream(1)
    for member in range(3):
        with Caller(members.cluster[member]) as caller:
            caller.subscribe("deliver.to")
            caller.fence()
            config = {"deliver_subject": "deliver.to", "ack_policy": "none", "deliver_policy": "new"}
            made = members.api(member, f"CONSUMER.CREATE.{name}", {"stream_name": name, "config": config})
            until(lambda made=made: members.api(0, f"CONSUMER.INFO.{name}.{made['name']}").get("push_bound"))  # type: ignore[misc]
            members.ask((member + 1) % 3, f"{name}.pushed", b"data")
            assert (message := caller.next()).payload == b"data", message
            members.api(member, f"CONSUMER.DELETE.{name}.{made['name']}")
    members.api(0, f"STREAM.DELETE.{name}")


def test_the_account_counts_all_members(members: Members) -> None:
    names = [members.stream(member) for member in range(3)]
    for name in names:
        members.ask(0, f"{name}.x", b"x" * 1000)
    for member in range(3):
        info = members.api(member, "INFO")
        assert info["streams"] == 3
        until(lambda member=member: members.api(member, "INFO")["storage"] > 3000)  # type: ignore[misc]
    for name in names:
        members.api(0, f"STREAM.DELETE.{name}")
    assert members.api(0, "INFO")["streams"] == 0


def test_a_mirror_and_sources_across_members(members: Members) -> None:
    origins = [members.stream(member) for member in range(2)]
    mirror, sourced = f"M{origins[0]}", f"A{origins[0]}"
    for origin in origins:
        members.ask(2, f"{origin}.a", b"a")
    members.api(0, f"STREAM.CREATE.{mirror}", {"name": mirror, "mirror": {"name": origins[0]}})
    sources = [{"name": origin} for origin in origins]
    members.api(1, f"STREAM.CREATE.{sourced}", {"name": sourced, "sources": sources})
    until(lambda: members.api(2, f"STREAM.INFO.{mirror}")["state"]["messages"] == 1, 60)
    until(lambda: members.api(2, f"STREAM.INFO.{sourced}")["state"]["messages"] == 2, 60)
    for name in (mirror, sourced, *origins):
        members.api(0, f"STREAM.DELETE.{name}")


# -- servers that come and go --


@pytest.mark.parametrize("kinds", mixtures(), ids=named)
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_stream_comes_back_with_its_server(kinds: tuple[Kind, ...], killed: bool, tmp_path: Path) -> None:
    require_all(kinds)
    with running(tmp_path, kinds) as members:
        name = members.stream(0)
        body = {"stream_name": name, "config": {"durable_name": "c", "ack_policy": "explicit"}}
        members.api(0, f"CONSUMER.DURABLE.CREATE.{name}.c", body)
        for n in range(5):
            members.ask(0, f"{name}.{n}", b"%d" % n)
        host = members.host(name)
        others = [member for member in range(3) if member != host]
        if killed:
            members.cluster.kill(host)
        else:
            members.cluster.stop(host)
        members.leader()
        later = name
        if not killed:  # else nobody knows for sure that it has gone
            later = members.stream(others[0])
            assert members.host(later) != host
        members.cluster.start_again(host)
        members.leader()
        for member in range(3):
            info = until(lambda member=member: members.api(member, f"STREAM.INFO.{name}"))  # type: ignore[misc]
            assert info["state"]["messages"] == 5
            assert members.api(member, f"CONSUMER.INFO.{name}.c")["num_pending"] == 5
            assert later in members.api(member, "STREAM.NAMES")["streams"]
        members.reachable(f"{name}.again")
