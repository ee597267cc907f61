"""What waits in JetStream ends when it is due: beside waits that ended before, and beside those of centuries."""

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


def test_requests_expire_after_one_was_satisfied(shared: Server) -> None:
    with Waiter(shared) as client:
        client.stream("SAT")
        client.consumer("SAT", "C", ack_wait=SECOND)
        first = client.pull("SAT", "C", batch=1, expires=300 * MS)
        client.store("SAT.a")
        got = client.next_with(first)
        client.ack_sync(got)
        time.sleep(0.4)  # past the time at which the request would have expired
        client.store("SAT.b")
        inbox = client.pull("SAT", "C", batch=2, expires=1500 * MS)
        asked = time.monotonic_ns()
        delivered = client.next_with(inbox)
        again = client.next_with(inbox)
        assert (delivered.payload, again.payload) == (b"x", b"x")
        assert again.reply.split(".")[4] == "2"  # it was not acknowledged
        last = client.pull("SAT", "C", batch=2, expires=500 * MS)
        client.ack_sync(again)
        assert status(client.next_with(last)) == "408 Request Timeout"
        assert client.when(again) - asked >= SECOND


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
