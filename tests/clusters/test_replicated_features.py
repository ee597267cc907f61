"""Delete markers, schedules and fast batches of streams with three replicas, in all kinds of clusters."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.caller import Caller
from support.servers import until

from .conftest import require_all
from .members import named
from .test_jetstream import ANSWER_WITHIN, Members, mixtures, running
from .test_replicas import delete, host, lead, replicated, settled

pytestmark = pytest.mark.timeout(300)

SECOND = 1_000_000_000
FAST = 300
"""Messages of a fast batch."""


@pytest.fixture(scope="module", params=mixtures()[1:], ids=named)
def members(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    require_all(request.param)
    with running(tmp_path_factory.mktemp("js"), request.param) as members:
        yield members


def state_of(members: Members, name: str) -> dict[str, Any]:
    found: dict[str, Any] = members.api(members.cluster.running()[0], f"STREAM.INFO.{name}")["state"]
    return found


def messages(members: Members, name: str) -> dict[int, tuple[str, bytes, dict[str, str]]]:
    """Return subject, payload and header of each message, as the leader has them."""
    state = state_of(members, name)
    found = {}
    for seq in range(max(state["first_seq"], 1), state["last_seq"] + 1):
        answer = members.ask(members.cluster.running()[0], f"$JS.API.STREAM.MSG.GET.{name}", {"seq": seq})
        if message := answer.get("message"):
            lines = b64decode(message.get("hdrs", "")).decode().split("\r\n")[1:]
            header = dict(line.split(": ", 1) for line in lines if line)
            found[seq] = message["subject"], b64decode(message.get("data", "")), header
    return found


def same_everywhere(members: Members, name: str) -> None:
    """Check that each replica has the same, by having each lead."""
    seen = []
    for member in range(3):
        lead(members, name, member)
        state = settled(members, name)["state"]
        seen.append((state["messages"], state["last_seq"], messages(members, name)))
    assert seen[0] == seen[1] == seen[2]


def publish(
    members: Members, subject: str, header: dict[str, str], payload: bytes = b""
) -> dict[str, Any] | None:
    """Publish at the first member that runs; None: nobody has answered."""
    block = "NATS/1.0\r\n" + "".join(f"{key}: {value}\r\n" for key, value in header.items()) + "\r\n"
    with Caller(members.cluster[members.cluster.running()[0]], inbox="_INBOX.features") as caller:
        caller.connection.sock.settimeout(ANSWER_WITHIN)
        try:
            answer = caller.request(subject, payload, header=block.encode())
        except TimeoutError:
            return None
    found: dict[str, Any] = answer.json if answer.payload else {}
    return None if found.get("error", {}).get("code") == 503 else found


def fail_over(members: Members, name: str) -> int:
    """Kill the member that leads a stream; return its number."""
    gone = until(lambda: host(members, name) + 1) - 1
    members.cluster[gone].kill()
    until(lambda: host(members, name) not in (-1, gone), 60)
    return gone


def come_back(members: Members, gone: int, name: str) -> None:
    members.cluster[gone].start_again()
    members.leader()
    settled(members, name)


@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
def test_expired_messages_leave_one_marker_a_subject(members: Members, killed: bool) -> None:
    """The marker comes once, from the server that leads, and expires itself; lasting messages stay."""
    config = {"allow_msg_ttl": True, "allow_rollup_hdrs": True, "subject_delete_marker_ttl": 3600 * SECOND}
    name = replicated(members, max_age=(4 if killed else 2) * SECOND, **config)
    for number in range(30):
        subject = f"{name}.{number % 10}"
        assert until(lambda subject=subject: publish(members, subject, {}))["seq"]  # type: ignore[misc]
    last = until(lambda: publish(members, f"{name}.lasts", {"Nats-TTL": "never"}, b"lasts"))["seq"]
    gone = fail_over(members, name) if killed else -1

    def markers() -> list[str]:
        found = messages(members, name).values()
        return sorted(subject for subject, _, header in found if header.get("Nats-Marker-Reason") == "MaxAge")

    if not killed:
        until(lambda: markers() == [f"{name}.{number}" for number in range(10)], 60)
    until(lambda: state_of(members, name)["messages"] == 1, 60)  # the age ends markers, too
    if killed:
        come_back(members, gone, name)
    assert state_of(members, name)["last_seq"] == last + 10
    assert [subject for subject, _, _ in messages(members, name).values()] == [f"{name}.lasts"]
    same_everywhere(members, name)
    delete(members, name)


def test_markers_expire(members: Members) -> None:
    config = {"allow_msg_ttl": True, "allow_rollup_hdrs": True, "subject_delete_marker_ttl": SECOND}
    name = replicated(members, max_age=SECOND // 2, **config)
    for number in range(10):
        until(lambda number=number: publish(members, f"{name}.{number}", {}))  # type: ignore[misc]
    last = state_of(members, name)["last_seq"]
    until(lambda: state_of(members, name)["last_seq"] == last + 10, 60)
    until(lambda: state_of(members, name)["messages"] == 0, 60)
    same_everywhere(members, name)
    delete(members, name)


@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
def test_a_scheduled_message_comes_once(members: Members, killed: bool) -> None:
    name = replicated(members, allow_msg_schedules=True, allow_msg_ttl=True, allow_rollup_hdrs=True)
    due = datetime.now(UTC) + timedelta(seconds=4 if killed else 2)
    for number in range(5):
        header = {
            "Nats-Schedule": f"@at {due.isoformat(timespec='seconds').replace('+00:00', 'Z')}",
            "Nats-Schedule-Target": f"{name}.target.{number}",
        }
        subject, payload = f"{name}.schedule.{number}", b"%d" % number
        answer = until(
            lambda subject=subject, header=header, payload=payload: publish(members, subject, header, payload)  # type: ignore[misc]
        )
        assert "error" not in answer
    gone = fail_over(members, name) if killed else -1
    until(lambda: len(targets(members, name)) >= 5, 60)
    if killed:
        come_back(members, gone, name)
    assert targets(members, name) == [(f"{name}.target.{number}", b"%d" % number) for number in range(5)]
    assert not [subject for subject, _, _ in messages(members, name).values() if ".schedule." in subject]
    same_everywhere(members, name)
    delete(members, name)


def targets(members: Members, name: str) -> list[tuple[str, bytes]]:
    """Return what schedules have made, in the order of subjects."""
    found = messages(members, name).values()
    return sorted((subject, payload) for subject, payload, _ in found if ".target" in subject)


def test_a_schedule_repeats_where_another_server_leads(members: Members) -> None:
    name = replicated(members, allow_msg_schedules=True, allow_msg_ttl=True, allow_rollup_hdrs=True)
    header = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": f"{name}.target"}
    until(lambda: publish(members, f"{name}.schedule", header, b"again"))
    for turn in range(3):
        lead(members, name, turn)
        before = state_of(members, name)["last_seq"]
        until(lambda before=before: state_of(members, name)["last_seq"] > before, 60)  # type: ignore[misc]
    assert {payload for _, payload in targets(members, name)} == {b"again"}
    delete(members, name)


def test_a_fast_batch_is_at_all_members(members: Members) -> None:
    name = replicated(members, allow_batched=True)
    start = state_of(members, name)["last_seq"]
    for turn, (flow, ends) in enumerate([(0, 2), (10, 2), (1, 3)]):
        with Caller(members.cluster[turn], inbox=f"_INBOX.fast{turn}") as caller:
            caller.subscribe(f"fast{turn}.>")
            acked = 0
            for number in range(1, FAST + 1):
                operation = 0 if number == 1 else ends if number == FAST and ends == 2 else 1
                reply = f"fast{turn}.b{turn}.{flow}.fail.{number}.{operation}.$FI"
                caller.publish(f"{name}.{number % 7}", b"%d" % number, reply=reply)
                while number - acked > 200:  # as a client that is told how fast it may go
                    acked = max(acked, caller.next().json["seq"])
            if ends == 3:
                caller.publish(f"{name}.end", b"", reply=f"fast{turn}.b{turn}.{flow}.fail.{FAST + 1}.3.$FI")
            while (answer := caller.next().json).get("type") == "ack":
                assert answer["seq"] <= FAST
            start += FAST
            assert (answer["seq"], answer["batch"], answer["count"]) == (start, f"b{turn}", FAST)
    found = list(messages(members, name).values())
    assert [payload for _, payload, _ in found] == [b"%d" % number for number in range(1, FAST + 1)] * 3
    same_everywhere(members, name)
    delete(members, name)


def test_a_fast_batch_ends_with_the_lead(members: Members) -> None:
    """The server that leads next does not know it; what was stored of it stays."""
    name = replicated(members, allow_batched=True)
    begun = until(lambda: host(members, name) + 1) - 1
    with Caller(members.cluster[begun], inbox="_INBOX.ends") as caller:
        caller.subscribe("fast.>")
        caller.publish(f"{name}.a", b"1", reply="fast.b.1.fail.1.0.$FI")
        assert caller.next().json["type"] == "ack"
        lead(members, name, (begun + 1) % 3)
        until(lambda: "seq" in members.ask(begun, f"{name}.b", b""), 60)

        caller.connection.sock.settimeout(1)

        def refused() -> int:
            caller.publish(f"{name}.a", b"2", reply="fast.b.1.fail.2.1.$FI")
            try:
                return int(caller.next().json.get("error", {}).get("err_code", 0))
            except TimeoutError:
                return 0  # it was lost on its way to the next leader

        assert until(refused, 60) == 10208
    same_everywhere(members, name)
    delete(members, name)
