"""Atomic and fast batches of many publishers at once, good and bad, while streams change."""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.servers import until
from support.streams import Client, GnatsStreams, message
from support.stress import together

from gnats.jetstream.engine.usage import Usage
from gnats.jetstream.state.batchtable import BatchLimits

pytestmark = pytest.mark.timeout(300)

BATCHES = 60
HONEST, HOSTILE = 3, 2
MS = 10**6
BOTH: dict[str, Any] = {"allow_atomic": True, "allow_batched": True}


@pytest.fixture(params=[0, 2], ids=["loop", "threads"])
def streams(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GnatsStreams]:
    with GnatsStreams(tmp_path, request.param) as streams:
        yield streams
    limits = streams.batch_limits
    assert (limits.fast_open, limits.atomic_open, limits.kept) == (0, 0, 0)


def pattern(client: Client, batch: str, seq: object, op: object, flow: int = 10, gap: str = "fail") -> bytes:
    return client.inbox + f"{batch}.{flow}.{gap}.{seq}.{op}.$FI".encode()


def fast_batch(client: Client, stream: str, batch: str, n: int, flow: int) -> bytes:
    """Encode the messages of a fast batch without gaps."""
    return b"".join(
        message(
            f"{stream}.a".encode(),
            b"x",
            reply=pattern(client, batch, seq, 2 if seq == n else min(seq - 1, 1), flow),
        )
        for seq in range(1, n + 1)
    )


def atomic_batch(client: Client, stream: str, batch: str, n: int) -> bytes:
    lines = [
        [b"Nats-Batch-Id: " + batch.encode(), b"Nats-Batch-Sequence: %d" % seq] for seq in range(1, n + 1)
    ]
    lines[-1].append(b"Nats-Batch-Commit: 1")
    return b"".join(
        message(f"{stream}.a".encode(), b"x", each, client.inbox + batch.encode()) for each in lines
    )


def committed(client: Client, batch: str) -> int:
    """Skip flow control; return the number of messages in the acknowledgement of a batch."""
    flow = 0
    while True:
        payload = client.read()[1]
        told = json.loads(payload) if payload else {}
        assert "error" not in told, told
        if "batch" in told:
            assert told["batch"] == batch
            return int(told["count"])
        if told:
            assert told["type"] == "ack"
            assert told["seq"] >= flow
            flow = told["seq"]


def test_all_that_is_acknowledged_is_stored(streams: GnatsStreams) -> None:
    for name in "ST":
        streams.add(name=name, subjects=[f"{name}.>"], storage="file" if name == "S" else "memory", **BOTH)
    stored: Counter[str] = Counter()
    lock = threading.Lock()
    done = threading.Event()

    def publish(number: int) -> None:
        chance = random.Random(number)
        with Client(streams.address) as client:
            for i in range(BATCHES):
                batch, n = f"p{number}-{i}", chance.choice((1, 2, 30, 200))
                if chance.random() < 0.7:
                    client.connection.send(fast_batch(client, "S", batch, n, chance.choice((1, 5, 500))))
                else:
                    client.connection.send(atomic_batch(client, "S", batch, n))
                assert committed(client, batch) == n
                with lock:
                    stored["S"] += n

    def disturb(number: int) -> None:
        chance = random.Random(number)
        while not done.is_set():
            with Client(streams.address) as client:
                client.connection.send(b"".join(disturbance(client, chance) for _ in range(200)))
                client.connection.fence()

    def change() -> None:
        while not done.is_set():
            for on in ({}, {"allow_atomic": True}, {"allow_batched": True}, BOTH):
                streams.update(name="T", subjects=["T.>"], storage="memory", **on)

    def work() -> None:
        try:
            together(*(lambda number=number: publish(number) for number in range(HONEST)))
        finally:
            done.set()

    together(work, change, *(lambda number=number: disturb(number) for number in range(HOSTILE)))
    assert streams.state("S")[0] == stored["S"]


def test_a_batch_is_stored_whole_while_its_account_fills(tmp_path: Path) -> None:
    """Other streams of the account take its room away, and give it back, while the batch is stored."""
    n, large = 5000, 1_000_000
    usage = Usage(max_storage=large - 1)  # one has room: the batch, or what other streams store
    limits = BatchLimits()
    limits.set(size=n)
    filling, begun, done = threading.Event(), threading.Event(), threading.Event()

    def fill() -> None:
        while not done.is_set():
            filling.wait()
            begun.set()
            for _ in range(100):
                usage.add(False, large)
                usage.add(False, -large)

    def publish() -> None:
        try:
            with Client(streams.address) as client:
                for i in range(BATCHES):
                    name = b"Nats-Batch-Id: b%d" % i
                    lines = [[name, b"Nats-Batch-Sequence: %d" % seq] for seq in range(1, n + 1)]
                    client.connection.send(b"".join(message(b"S.a", b"x", each) for each in lines[:-1]))
                    client.connection.fence()
                    begun.clear()
                    filling.set()
                    begun.wait()
                    answer = client.ask(b"S.a", b"x", [*lines[-1], b"Nats-Batch-Commit: 1"])[0][1]
                    filling.clear()
                    assert streams.state("S")[0] == (0 if "error" in json.loads(answer) else n), answer
                    streams.streams["S"].purge()
        finally:
            done.set()
            filling.set()

    with GnatsStreams(tmp_path, 2, usage=usage, batch_limits=limits) as streams:
        streams.add(name="S", subjects=["S.>"], allow_atomic=True)
        together(publish, fill)


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_batch_that_cannot_be_stored_whole_leaves_nothing(streams: GnatsStreams, storage: str) -> None:
    """There is no sequence for its third message. Its first two are taken back, and their ids forgotten."""
    last = 2**62 - 3
    streams.add(name="S", subjects=["S.>"], storage=storage, allow_atomic=True)
    stream = streams.streams["S"]
    stream.store.skip(1, last)

    def publish(client: Client, n: int) -> dict[str, Any]:
        for seq in range(1, n):
            client.ask(b"S.a", b"x", [*lines(seq), b"Nats-Msg-Id: %d" % seq])
        answer = client.ask(b"S.a", b"x", [*lines(n), b"Nats-Batch-Commit: 1"])
        return dict(json.loads(answer[0][1]))

    def lines(seq: int) -> list[bytes]:
        return [b"Nats-Batch-Id: one", b"Nats-Batch-Sequence: %d" % seq]

    with Client(streams.address) as client:
        assert "no more sequences" in publish(client, 3)["error"]["description"]
        assert (stream.state().msgs, stream.state().last_seq, stream.msg_ids()) == (0, last, 0)
        assert publish(client, 2)["seq"] == last + 2
    assert (stream.state().msgs, stream.msg_ids()) == (2, 1)


def disturbance(client: Client, chance: random.Random) -> bytes:
    """Encode a message to T that opens a batch and leaves it, makes a gap, or is malformed."""
    batch = chance.choice(("x", "y", "z", f"{chance.getrandbits(40)}"))
    seq, op = chance.choice((1, 1, 2, 3, 9, 2**64 - 2, 0, "x")), chance.choice((0, 0, 1, 1, 2, 3, 4, 7, "x"))
    if chance.random() < 0.6:
        reply = pattern(
            client, batch, seq, op, chance.choice((0, 1, 9999)), chance.choice(("ok", "fail", "no"))
        )
        header = chance.choice(([], [], [b"Nats-Expected-Last-Sequence: 1"], [b"Nats-Msg-Id: 1"]))
        return message(b"T.a", b"x", header, reply)
    lines = [f"Nats-Batch-Id: {batch}".encode(), f"Nats-Batch-Sequence: {seq}".encode()]
    if chance.random() < 0.2:
        lines.append(
            chance.choice((b"Nats-Batch-Commit: 1", b"Nats-Batch-Commit: eob", b"Nats-Batch-Commit: x"))
        )
    return message(b"T.a", b"x", lines, client.inbox + b"a")


@pytest.mark.parametrize("atomic", [False, True], ids=["fast", "atomic"])
def test_ten_thousand_open_batches_go(tmp_path: Path, atomic: bool) -> None:
    """A client opens them and closes; the server serves another meanwhile, and keeps nothing of them."""
    limits = BatchLimits()
    limits.set(per_stream=10_000, total=20_000, timeout=300 * MS)
    with GnatsStreams(tmp_path, 0, batch_limits=limits) as streams:
        for name in "ST":
            streams.add(name=name, subjects=[f"{name}.>"], storage="memory", **BOTH)
        with Client(streams.address) as hostile, Client(streams.address) as other:
            for first in range(0, 12_000, 1000):
                numbers = range(first, first + 1000)
                hostile.connection.send(b"".join(opened(hostile, f"b{i}", atomic) for i in numbers))
                other.connection.send(fast_batch(other, "T", f"o{first}", 50, 10))
                assert committed(other, f"o{first}") == 50
            hostile.connection.fence()
            assert (limits.atomic_open if atomic else limits.fast_open) <= 10_000
        until(lambda: limits.atomic_open == limits.fast_open == limits.kept == 0)
        with Client(streams.address) as other:
            other.connection.send(fast_batch(other, "S", "last", 50, 10))
            assert committed(other, "last") == 50


def opened(client: Client, batch: str, atomic: bool) -> bytes:
    if atomic:
        lines = [f"Nats-Batch-Id: {batch}".encode(), b"Nats-Batch-Sequence: 1"]
        return message(b"S.a", b"x", lines, client.inbox + b"a")
    return message(b"S.a", b"x", reply=pattern(client, batch, 1, 0, 1000))


def test_an_endless_batch_keeps_nothing(streams: GnatsStreams) -> None:
    streams.add(name="S", subjects=["S.>"], storage="memory", max_msgs=10, allow_batched=True)
    count = 20_000
    with Client(streams.address) as client:
        for first in range(1, count, 1000):
            numbers = range(first, first + 1000)
            client.connection.send(
                b"".join(
                    message(b"S.a", b"x" * 100, reply=pattern(client, "one", seq, min(seq - 1, 1), 500))
                    for seq in numbers
                )
            )
        told: dict[str, int] = {}
        while told.get("seq") != count:
            told = json.loads(client.read()[1])
    assert streams.batch_limits.fast_open == 1
    assert streams.batch_limits.kept == 0
    assert streams.state("S") == (10, count - 9, count)


@pytest.mark.skipif("GNATS_SANITIZED" in os.environ, reason="takes 256 MiB")
def test_what_waits_for_a_commit_is_limited(streams: GnatsStreams) -> None:
    """A message beyond the limit of 256 MiB ends its batch and frees the batch's memory."""
    streams.add(name="S", subjects=["S.>"], storage="memory", allow_atomic=True)
    payload = b"x" * 1_000_000
    with Client(streams.address) as client:
        refused = 0
        for seq in range(1, 300):
            lines = [b"Nats-Batch-Id: one", b"Nats-Batch-Sequence: %d" % seq]
            reply = client.ask(b"S.a", payload, lines)[0][1]
            if reply:
                assert json.loads(reply)["error"]["err_code"] == 10176
                refused = refused or seq
            assert streams.batch_limits.kept <= 256 << 20
        assert refused == (256 << 20) // 1_000_000 + 1
        assert streams.batch_limits.kept == 0
