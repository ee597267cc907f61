"""JetStream's waits end when due, beside others that have ended early and others of centuries."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.jetstream import config
from support.launch import Launch
from support.servers import Server
from support.waits import MS, NEVER, Waiter, header

from gnats.go.text import SECOND

pytestmark = [pytest.mark.timeout(120), pytest.mark.waits]


@pytest.fixture(scope="module")
def shared(launch_shared: Launch, tmp_path_factory: pytest.TempPathFactory) -> Server:
    return launch_shared(config=config(tmp_path_factory.mktemp("js")))


def test_others_wait_beside_a_request_that_was_satisfied(shared: Server) -> None:
    with Waiter(shared) as client:
        client.stream("SAT")
        client.consumer("SAT", "C", filter_subject="SAT.c")
        client.consumer("SAT", "D", filter_subject="SAT.d", ack_wait=3 * SECOND)
        satisfied = client.pull("SAT", "C", batch=1, expires=3 * SECOND)
        client.store("SAT.c")
        client.ack_sync(client.next_with(satisfied))
        client.store("SAT.d")
        asked = time.monotonic_ns()
        # The satisfied request would have expired meanwhile.
        inbox = client.pull("SAT", "D", batch=3, expires=5 * SECOND)
        assert [client.next_with(inbox).reply.split(".")[4] for _ in range(2)] == ["1", "2"]
        end = client.next_with(inbox)
        assert end.status == "408 Request Timeout"
        assert client.when(end) - asked >= 5 * SECOND


def test_ttl_of_centuries_keeps_no_other_message(shared: Server) -> None:
    with Waiter(shared) as client:
        client.stream("TTL", allow_msg_ttl=True)
        stored = time.monotonic_ns()
        client.store("TTL.short", "Nats-TTL: 1s")
        ttls = ["1h", "7000000000"]
        if not shared.kind.is_reference:  # the reference's sum overflows behind 2262
            ttls += ["8000000000", "9223372036", str(NEVER)]
        for ttl in ttls:
            client.store(f"TTL.{ttl}", f"Nats-TTL: {ttl}")
        client.store("TTL.other", "Nats-TTL: 1s")
        last = client.store("TTL.kept")["seq"]
        gone, info = client.until("STREAM.INFO.TTL", lambda a: a["state"]["messages"] <= last - 2)
        assert gone - stored >= SECOND
        assert info["state"]["messages"] == last - 2


@pytest.mark.parametrize(
    "waits",
    [
        {"ack_wait": 8 * 10**18},
        {"ack_wait": NEVER},
        {"backoff": [8 * 10**18, NEVER], "max_deliver": 3},
        {"ack_wait": NEVER, "inactive_threshold": 8 * 10**18},
    ],
    ids=lambda waits: ",".join(waits),
)
def test_ack_wait_of_centuries(launch: Launch, tmp_path: Path, waits: dict[str, object]) -> None:
    server = launch(config=config(tmp_path / "js"))
    with Waiter(server) as client:
        client.stream("W", storage="file")
        client.consumer("W", "C", durable_name="C", **waits)
        client.store("W.a")
        (got,) = [client.next_with(client.pull("W", "C", batch=1, expires=5 * SECOND))]
        assert got.reply.split(".")[4] == "1"
        assert (
            client.next_with(client.pull("W", "C", batch=1, expires=300 * MS)).status == "408 Request Timeout"
        )
        assert client.api("CONSUMER.INFO.W.C")["num_ack_pending"] == 1
    server.stop()
    server = launch(config=config(tmp_path / "js"))
    with Waiter(server) as client:
        assert (
            client.next_with(client.pull("W", "C", batch=1, expires=300 * MS)).status == "408 Request Timeout"
        )
        assert client.api("CONSUMER.INFO.W.C")["num_ack_pending"] == 1


def test_the_answer_to_the_creation_of_a_consumer_comes_before_its_messages(shared: Server) -> None:
    with Waiter(shared) as client:
        client.stream("FIRST")
        client.store_many([f"FIRST.{i}" for i in range(100)])
        sid = client.subscribe("deliver.first")
        answered = client.consumer("FIRST", "C", deliver_subject="deliver.first", ack_policy="none")
        assert (answered["num_pending"], answered["delivered"]["stream_seq"]) == (100, 0)
        assert answered["push_bound"] is True
        for seq in range(1, 101):
            message = client.next_with(sid)
            assert message.reply.split(".")[5] == str(seq)


def test_message_ids_are_remembered_for_their_window(shared: Server) -> None:
    """Among a thousand ids, a shortened window forgets; a longer one of another stream remembers."""
    with Waiter(shared) as client:
        client.stream("LONG", duplicate_window=3600 * SECOND)
        client.store("LONG.a", "Nats-Msg-Id: a")
        client.stream("IDS", duplicate_window=3600 * SECOND)
        for i in range(1000):
            client.publish("IDS.a", b"", "", header(f"Nats-Msg-Id: {i}"))
        stored = time.monotonic_ns()
        client.store("IDS.a", "Nats-Msg-Id: last")
        assert client.store("IDS.a", "Nats-Msg-Id: last")["duplicate"] is True
        config = {"name": "IDS", "subjects": ["IDS.>"], "storage": "memory", "duplicate_window": 700 * MS}
        client.api("STREAM.UPDATE.IDS", config)
        while True:
            asked = time.monotonic_ns()
            if not client.store("IDS.a", "Nats-Msg-Id: last").get("duplicate"):
                break
            assert asked - stored < 30 * SECOND
            time.sleep(0.02)
        assert time.monotonic_ns() - stored >= 700 * MS
        assert client.store("LONG.a", "Nats-Msg-Id: a")["duplicate"] is True


def test_original_replay_and_rate_limits_hold_messages_back(shared: Server) -> None:
    with Waiter(shared) as client:
        client.stream("PACE")
        client.store("PACE.a")
        time.sleep(0.6)
        client.store("PACE.b")
        sid = client.subscribe("deliver.pace")
        asked = time.monotonic_ns()
        client.consumer(
            "PACE", "C", deliver_subject="deliver.pace", ack_policy="none", replay_policy="original"
        )
        _, second = client.next_with(sid), client.next_with(sid)
        assert client.when(second) - asked >= 550 * MS


@pytest.mark.parametrize(
    "until", ["2262-04-11T23:47:16Z", "2300-01-01T00:00:00Z", "9999-12-31T23:59:59Z"], ids=lambda u: u[:4]
)
def test_pause_of_centuries(shared: Server, until: str) -> None:
    name = f"PAUSE{until[:4]}"
    with Waiter(shared) as client:
        client.stream(name)
        client.store(f"{name}.a")
        sid = client.subscribe(f"deliver.{name}")
        client.consumer(name, "C", deliver_subject=f"deliver.{name}", ack_policy="none", pause_until=until)
        client.consumer(name, "other", filter_subject=f"{name}.none")
        other = client.pull(name, "other", batch=1, expires=300 * MS)
        assert client.next_with(other).status == "408 Request Timeout"
        assert client.api(f"CONSUMER.INFO.{name}.C")["paused"] is True
        assert client.api(f"CONSUMER.PAUSE.{name}.C", {})["paused"] is False
        client.store(f"{name}.b")
        assert [client.next_with(sid).subject for _ in range(2)] == [f"{name}.a", f"{name}.b"]


def test_requests_of_centuries(shared: Server) -> None:
    """Requests that expire in centuries do not delay short ones, and get messages."""
    with Waiter(shared) as client:
        client.stream("AGES")
        client.consumer("AGES", "C")
        long = client.pull("AGES", "C", batch=1, expires=6 * 10**18, idle_heartbeat=3 * 10**18)
        asked = time.monotonic_ns()
        short = client.pull("AGES", "C", batch=1, expires=400 * MS)
        end = client.next_with(short)
        assert end.status == "408 Request Timeout"
        assert client.when(end) - asked >= 400 * MS
        client.store("AGES.a")
        assert client.next_with(long).subject == "AGES.a"
