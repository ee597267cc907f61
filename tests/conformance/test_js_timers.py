"""What waits in JetStream ends when it is due: beside waits that ended before, and those of centuries."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.jetstream import config
from support.servers import Server
from support.waits import MS, NEVER, SECOND, Waiter, status

pytestmark = [pytest.mark.timeout(120), pytest.mark.waits]

Launch = Callable[..., Server]


@pytest.fixture(scope="module")
def shared(launch_shared: Launch, tmp_path_factory: pytest.TempPathFactory) -> Server:
    return launch_shared(config=config(tmp_path_factory.mktemp("js")))


def test_others_wait_beside_a_request_that_was_satisfied(shared: Server) -> None:
    with Waiter(shared) as client:
        client.stream("SAT")
        client.consumer("SAT", "C", filter_subject="SAT.c")
        client.consumer("SAT", "D", filter_subject="SAT.d", ack_wait=SECOND)
        satisfied = client.pull("SAT", "C", batch=1, expires=300 * MS)
        client.store("SAT.c")
        client.ack_sync(client.next_with(satisfied))
        time.sleep(0.4)  # past the time at which it would have expired; nothing is asked of its consumer
        client.store("SAT.d")
        asked = time.monotonic_ns()
        inbox = client.pull("SAT", "D", batch=3, expires=1700 * MS)
        assert [client.next_with(inbox).reply.split(".")[4] for _ in range(2)] == ["1", "2"]
        end = client.next_with(inbox)
        assert status(end) == "408 Request Timeout"
        assert client.when(end) - asked >= 1700 * MS


def test_ttl_of_centuries_keeps_no_other_message(shared: Server) -> None:
    with Waiter(shared) as client:
        client.stream("TTL", allow_msg_ttl=True)
        stored = time.monotonic_ns()
        client.store("TTL.short", "Nats-TTL: 1s")
        ttls = ["1h", "7000000000"]
        if not shared.kind.is_reference:  # its sum wraps around behind 2262
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
            status(client.next_with(client.pull("W", "C", batch=1, expires=300 * MS)))
            == "408 Request Timeout"
        )
        assert client.api("CONSUMER.INFO.W.C")["num_ack_pending"] == 1
    server.stop()
    server = launch(config=config(tmp_path / "js"))
    with Waiter(server) as client:
        assert (
            status(client.next_with(client.pull("W", "C", batch=1, expires=300 * MS)))
            == "408 Request Timeout"
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
