"""Streams with three replicas in clusters of gnats, nats-server and both: each server has all, one leads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.caller import Caller, Message
from support.monitor import monitor
from support.servers import until

from .conftest import require_all
from .members import named
from .test_jetstream import ANSWER_WITHIN, READY, Members, mixtures, running
from .test_meta_operations import health

pytestmark = pytest.mark.timeout(300)

NOT_SUPPORTED = 10074


@pytest.fixture(scope="module", params=mixtures(), ids=named)
def members(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    require_all(request.param)
    with running(tmp_path_factory.mktemp("js"), request.param) as members:
        yield members


def replicated(members: Members, member: int = 0, **config: Any) -> str:
    name = members.stream(member, num_replicas=3, **config)
    settled(members, name)
    return name


def described(members: Members, name: str, kind: str) -> dict[str, Any]:
    """Return the description of a stream, or of the consumer <stream>.<name> with `kind` "CONSUMER"."""
    return members.api(members.cluster.running()[0], f"{kind}.INFO.{name}")


def settled(members: Members, name: str, kind: str = "STREAM") -> dict[str, Any]:
    """Wait until both others have what the leader has; return the description."""
    seen: dict[str, Any] = {}

    def same() -> dict[str, Any] | None:
        info = described(members, name, kind)
        seen.update(info["cluster"])
        others = info["cluster"].get("replicas", [])
        here = [each for each in others if each["current"] and not each.get("lag")]
        return info if len(here) == 2 and not any(each.get("offline") for each in others) else None

    try:
        return until(same, 60)
    except TimeoutError as error:
        error.add_note(f"{kind} {name}: {seen}")
        raise


def host(members: Members, name: str, kind: str = "STREAM") -> int:
    """Return the member that leads; -1 where nobody does."""
    return int(described(members, name, kind)["cluster"].get("leader", "s-1")[1:])


def lead(members: Members, name: str, member: int, kind: str = "STREAM") -> None:
    """Have a member lead."""

    def leads() -> bool:
        if host(members, name, kind) == member:
            return True
        preferred = {"placement": {"preferred": f"s{member}"}}
        members.ask(member, f"$JS.API.{kind}.LEADER.STEPDOWN.{name}", preferred)
        return False

    until(leads, 60)


def contents(members: Members, name: str, last: int) -> list[tuple[int, str, str]]:
    """Return sequence, subject and time of what the leader has, from READY + 1 on."""
    found = []
    for seq in range(READY + 1, last + 1):
        answer = members.ask(0, f"$JS.API.STREAM.MSG.GET.{name}", {"seq": seq})
        if message := answer.get("message"):
            found.append((message["seq"], message["subject"], message["time"]))
    return found


def delete(members: Members, name: str) -> None:
    """Delete a stream, by a request that is sent again when its answer is lost."""
    until(lambda: members.ask(0, f"$JS.API.STREAM.DELETE.{name}"))
    assert members.error(0, f"STREAM.INFO.{name}") == 10059


def pull(members: Members, member: int, stream: str, consumer: str) -> bytes:
    """Have a consumer deliver a message; ask again while its interest is not known at the member yet."""

    def pulled() -> Message | None:
        with Caller(members.cluster[member], inbox=f"_INBOX.{consumer}") as caller:
            caller.connection.sock.settimeout(ANSWER_WITHIN)
            caller.ask(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", b"1")
            try:
                return caller.next()
            except TimeoutError:
                return None

    return until(pulled, 60).payload


def test_a_stream_is_at_all_members(members: Members) -> None:
    name = replicated(members)
    for number in range(30):
        answer = members.ask(number % 3, f"{name}.{number}", b"%d" % number)
        assert answer == {"stream": name, "seq": READY + 1 + number}
    assert members.api(0, f"STREAM.MSG.DELETE.{name}", {"seq": READY + 7})["success"]
    assert members.api(1, f"STREAM.PURGE.{name}", {"filter": f"{name}.9"})["purged"] == 1
    assert members.api(2, f"STREAM.PURGE.{name}", {"filter": f"{name}.>", "keep": 25})["purged"] == 3
    assert members.error(0, f"STREAM.MSG.DELETE.{name}", {"seq": READY + 7}) in (10043, 10057)
    seen = []
    for member in range(3):
        lead(members, name, member)
        info = settled(members, name)
        assert info["cluster"]["raft_group"].startswith("S-R3F-")
        assert {each["name"] for each in info["cluster"]["replicas"]} == {"s0", "s1", "s2"} - {f"s{member}"}
        seen.append(info["state"])
        seen.append(contents(members, name, READY + 30))
        assert len(seen[-1]) == 25
    assert seen[0] == seen[2] == seen[4]
    assert seen[1] == seen[3] == seen[5]
    for member in range(3):
        (listed,) = [
            each for each in members.api(member, "STREAM.LIST")["streams"] if each["config"]["name"] == name
        ]
        assert listed["state"] == seen[0]
    assert members.api(1, f"STREAM.DELETE.{name}")["success"]
    for member in range(3):
        assert members.error(member, f"STREAM.INFO.{name}") == 10059


def test_a_stream_is_changed_at_all_members(members: Members) -> None:
    name = replicated(members, max_msgs=100)
    config = {"name": name, "subjects": [f"{name}.>", f"{name}-more"], "max_msgs": 10, "num_replicas": 3}
    assert members.api(1, f"STREAM.UPDATE.{name}", config)["config"]["max_msgs"] == 10
    members.reachable(f"{name}-more")
    for number in range(20):
        members.ask(number % 3, f"{name}.a", b"")
    states = []
    for member in range(3):
        lead(members, name, member)
        states.append(settled(members, name)["state"])
        again = members.api(member, f"STREAM.CREATE.{name}", config)
        assert not again.get("did_create", False)
    assert states[0]["messages"] == 10
    assert states[0] == states[1] == states[2]
    delete(members, name)


def test_every_replica_answers_direct_gets(members: Members) -> None:
    name = replicated(members, allow_direct=True)
    seq = members.ask(0, f"{name}.a", b"direct")["seq"]
    settled(members, name)
    for member in range(3):
        message = until(
            lambda member=member: members.answer(member, f"$JS.API.DIRECT.GET.{name}", {"seq": seq})  # type: ignore[misc]
        )
        assert message.payload == b"direct"
    delete(members, name)


def test_consumers_with_one_replica(members: Members) -> None:
    name = replicated(members)
    for number in range(3):
        members.ask(number, f"{name}.{number}", b"%d" % number)
    for number in range(6):
        config = {"durable_name": f"C{number}", "ack_policy": "explicit", "num_replicas": 1}
        body = {"stream_name": name, "config": config}
        members.api(number % 3, f"CONSUMER.DURABLE.CREATE.{name}.C{number}", body)
        got = [pull(members, (number + each) % 3, name, f"C{number}") for each in range(3)]
        assert got == [b"0", b"1", b"2"]
    assert len(members.api(1, f"CONSUMER.NAMES.{name}")["consumers"]) == 6
    delete(members, name)


def test_changes_of_the_number_of_replicas_are_refused(members: Members) -> None:
    if any(server.kind.is_reference for server in members.cluster.servers):
        pytest.skip("nats-server makes them")
    name = replicated(members)
    for replicas in 1, 2, 5:
        changed = {"name": name, "subjects": [f"{name}.>"], "num_replicas": replicas}
        assert members.error(1, f"STREAM.UPDATE.{name}", changed) == NOT_SUPPORTED
    delete(members, name)


@pytest.mark.parametrize("graceful", [False, True], ids=["killed", "stopped"])
def test_a_leader_ends(graceful: bool, members: Members) -> None:
    """What was acknowledged stays; the server that was away has all of it again."""
    name = replicated(members)
    acknowledged = [members.ask(0, f"{name}.a", b"%d" % number)["seq"] for number in range(20)]
    gone = until(lambda: host(members, name) + 1) - 1
    server = members.cluster[gone]
    members.cluster.stop(gone) if graceful else server.kill()
    left = sorted({0, 1, 2} - {gone})
    until(lambda: "seq" in members.ask(left[0], f"{name}.b", b""), 60)
    acknowledged += [members.ask(left[1], f"{name}.c", b"%d" % number)["seq"] for number in range(20)]
    server.start_again()
    members.leader()
    settled(members, name)
    lead(members, name, gone)
    found = contents(members, name, acknowledged[-1])
    assert set(acknowledged) <= {seq for seq, _, _ in found}
    assert members.ask(gone, f"{name}.d", b"last")["seq"] > acknowledged[-1]
    delete(members, name)


def test_all_members_are_killed(members: Members) -> None:
    name = replicated(members)
    acknowledged = [members.ask(0, f"{name}.a", b"%d" % number)["seq"] for number in range(50)]
    before = contents(members, name, acknowledged[-1])
    for server in members.cluster.servers:
        server.kill()
    for server in members.cluster.servers:
        server.start_again()
    members.leader()
    settled(members, name)
    states = []
    for member in range(3):
        lead(members, name, member)
        assert contents(members, name, acknowledged[-1]) == before
        states.append(settled(members, name)["state"])
    assert states[0] == states[1] == states[2]
    assert members.ask(1, f"{name}.d", b"last")["seq"] == acknowledged[-1] + 1
    delete(members, name)


def test_a_stream_in_memory(members: Members) -> None:
    """A server that was away has lost it, and gets it again; nobody has it when all were away."""
    name = replicated(members, storage="memory")
    acknowledged = [members.ask(0, f"{name}.a", b"%d" % number)["seq"] for number in range(30)]
    before = contents(members, name, acknowledged[-1])
    gone = until(lambda: host(members, name) + 1) - 1
    server = members.cluster[gone]
    server.kill()
    until(lambda: "seq" in members.ask(sorted({0, 1, 2} - {gone})[0], f"{name}.b", b""), 60)
    server.start_again()
    members.leader()
    settled(members, name)
    lead(members, name, gone)
    assert contents(members, name, acknowledged[-1]) == before
    for each in members.cluster.servers:
        each.kill()
    for each in members.cluster.servers:
        each.start_again()
    members.leader()
    until(lambda: "seq" in members.ask(0, f"{name}.c", b""), 90)
    assert settled(members, name)["state"]["messages"] < 30
    delete(members, name)


def test_health_and_details(members: Members) -> None:
    """A server is well when its replicas are; each describes the group in its /jsz."""
    name = replicated(members)
    body = {"stream_name": name, "config": {"durable_name": "C", "ack_policy": "explicit"}}
    members.api(0, f"CONSUMER.DURABLE.CREATE.{name}.C", body)
    leader = host(members, name)
    for member in range(3):
        server = members.cluster[member]
        until(lambda server=server: health(server)[1]["status"] == "ok", 60)  # type: ignore[misc]
        page = monitor(server, "/jsz?streams=true&consumers=true&accounts=true")
        (detail,) = [each for each in page["account_details"][0]["stream_detail"] if each["name"] == name]
        assert detail["cluster"]["leader"] == f"s{leader}"
        assert len(detail["cluster"]["replicas"]) == 2
        (consumer,) = detail["consumer_detail"]
        assert consumer["cluster"]["raft_group"].startswith("C-R3F-")
        asked = f"?account=$G&stream={name}&consumer=C"
        assert health(server, asked)[1]["status"] == "ok"
    delete(members, name)
