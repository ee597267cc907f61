"""Streams of gnats: expiry, message ids, many publishers, failures."""

from __future__ import annotations

import json
import re
import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.servers import until
from support.streams import Client, GnatsStreams

from gnats.jetstream.engine.usage import Usage
from gnats.jetstream.stream.stream import StreamError
from gnats.store.store import StoreFailure

pytestmark = pytest.mark.timeout(120)


def acked(payload: bytes) -> int:
    """Return the sequence in an acknowledgement. Raises AssertionError for an error."""
    answer = json.loads(payload)
    assert "error" not in answer, answer
    seq: int = answer["seq"]
    return seq


def test_message_ids_are_recovered(tmp_path: Path) -> None:
    with GnatsStreams(tmp_path, 0) as streams:
        streams.add(name="IDS", subjects=["ids.>"])
        with Client(streams.address) as client:
            client.ask(b"ids.a", b"x", [b"Nats-Msg-Id: 1"])
            client.ask(b"ids.a", b"x", [b"Nats-Msg-Id: last"])
        streams.call(streams.streams["IDS"].close)
        streams.call(streams.streams["IDS"].store.close)
        streams.streams.clear()
        streams.add(name="IDS", subjects=["ids.>"])
        with Client(streams.address) as client:
            assert (
                client.ask(b"ids.a", b"x", [b"Nats-Msg-Id: 1"])[0][1]
                == b'{"stream":"IDS","seq":1,"duplicate": true}'
            )
            assert acked(client.ask(b"ids.a", b"x", [b"Nats-Expected-Last-Msg-Id: last"])[0][1]) == 3


def test_updates(tmp_path: Path, io_threads: int) -> None:
    with GnatsStreams(tmp_path, io_threads) as streams:
        streams.add(name="UP", subjects=["up.a"])
        stream = streams.streams["UP"]

        def update(**config: Any) -> None:
            streams.call(stream.configure, streams.checked({"name": "UP", **config}))

        with Client(streams.address) as client:
            client.ask(b"up.a", b"x")
            update(subjects=["up.b"], allow_direct=True)
            assert client.ask(b"up.a", b"x")[0][0].startswith(b"NATS/1.0 503")
            assert acked(client.ask(b"up.b", b"x")[0][1]) == 2
            assert client.ask(b"$JS.API.DIRECT.GET.UP.up.b")[0][1] == b"x"
            update(subjects=["up.b"], no_ack=True)
            assert client.ask(b"$JS.API.DIRECT.GET.UP.up.b")[0][0].startswith(b"NATS/1.0 503")
            client.publish(b"up.b", b"y", reply=b"_INBOX.none")
            assert client.connection.fence() == []
            assert streams.state("UP")[0] == 3
            update(subjects=["up.b"], sealed=True)
            assert b"10109" in client.ask(b"up.b", b"x")[0][1]
            with pytest.raises(StreamError, match="sealed stream"):
                stream.purge()


def test_removing_and_purging(tmp_path: Path, io_threads: int) -> None:
    usage = Usage(max_storage=1_000_000)
    with GnatsStreams(tmp_path, io_threads, usage=usage) as streams:
        streams.add(name="RM", subjects=["rm.>"])
        stream = streams.streams["RM"]
        with Client(streams.address) as client:
            for i in range(10):
                client.ask(b"rm.%d" % (i % 2), b"x" * 100)
            full = usage.storage
            assert full > 1000
            assert stream.delete_msg(1)
            assert not stream.delete_msg(1)
            assert not stream.delete_msg(99)
            assert stream.delete_msg(2, erase=True)
            assert usage.storage == full // 10 * 8
            assert stream.purge(b"rm.0") == 4
            assert stream.purge(keep=1) == 3
            assert streams.state("RM") == (1, 10, 10)
            assert stream.purge() == 1
            assert usage.storage == 0
            usage.max_storage = 100
            assert b"10002" in client.ask(b"rm.0", b"x" * 100)[0][1]
            usage.max_storage = -1
            assert acked(client.ask(b"rm.0", b"x" * 100)[0][1]) == 11
        streams.call(stream.close)
        assert usage.storage == 0
        with pytest.raises(StreamError, match="closed"):
            stream.delete_msg(11)


@pytest.mark.parametrize("sync_always", [False, True], ids=["flushed", "synced"])
def test_many_publishers(tmp_path: Path, io_threads: int, sync_always: bool) -> None:
    """Each message is acknowledged once, in the order of its publisher, and is stored.

    A publisher may be held up while all others publish: the limit leaves room for its last message even then.
    """
    publishers, rounds, each = 6, 5, 100
    kept = (publishers - 1) * rounds * each + 1
    with GnatsStreams(tmp_path, io_threads, sync_always=sync_always) as streams:
        streams.add(name="MANY", subjects=["many.*"], max_msgs=kept, allow_direct=True)
        streams.add(name="OTHER", subjects=["other.*"], storage="memory")

        def publish(number: int) -> list[int]:
            seqs: list[int] = []
            with Client(streams.address) as client:
                for _ in range(rounds):
                    batch = [(b"many.%d" % number, b"%d" % i, []) for i in range(each)]
                    seqs += map(acked, client.ask_all(batch))
                    client.ask(b"other.%d" % number, b"x")
                    header = client.ask(b"$JS.API.DIRECT.GET.MANY.many.%d" % number)[0][0]
                    if number:  # else it may be purged
                        assert b"Nats-Sequence: %d\r\n" % seqs[-1] in header
            return seqs

        with ThreadPoolExecutor(publishers) as pool:
            futures = [pool.submit(publish, i) for i in range(publishers)]
            purged = streams.streams["MANY"].purge(b"many.0")
            seqs = [future.result() for future in futures]
        assert all(own == sorted(own) for own in seqs)
        assert sorted(seq for own in seqs for seq in own) == list(range(1, publishers * rounds * each + 1))
        msgs, _, last = streams.state("MANY")
        assert last == publishers * rounds * each
        assert msgs <= kept
        assert purged >= 0
        assert streams.state("OTHER")[0] == publishers * rounds
        if sync_always:
            assert 0 < streams.engine.stats()["syncs"] <= publishers * rounds * each


def test_streams_come_and_go_while_they_are_published_to(tmp_path: Path, io_threads: int) -> None:
    with GnatsStreams(tmp_path, io_threads) as streams:
        stop = threading.Event()
        answers: list[bytes] = []

        def publish() -> None:
            with Client(streams.address) as client:
                while not stop.is_set():
                    answers.extend(client.ask_in_passing(b"gone.a", b"x" * 100))

        threads = [threading.Thread(target=publish) for _ in range(3)]
        for thread in threads:
            thread.start()
        for i in range(20):
            seen = len(answers)
            streams.add(name=f"GONE{i}", subjects=["gone.*"], storage="memory" if i % 2 else "file")
            until(lambda seen=seen: len(answers) > seen + 3)  # type: ignore[misc]
            stream = streams.streams.pop(f"GONE{i}")
            streams.call(stream.close)
            streams.call(stream.store.close)
        stop.set()
        for thread in threads:
            thread.join()
        kinds = {re.sub(rb"\d+", b"N", answer.split(b"\r\n")[0]) for answer in answers}
        assert kinds <= {b'{"stream":"GONEN","seq":N}', b"NATS/N.N N"}
        until(lambda: streams.call(reaped, streams))


def reaped(streams: GnatsStreams) -> bool:
    streams.engine.reap()
    return bool(streams.engine.stats()["buried"] == 0)


def test_a_store_that_fails_acknowledges_nothing(tmp_path: Path, io_threads: int) -> None:
    with GnatsStreams(tmp_path, io_threads) as streams:
        streams.add(name="BAD", subjects=["bad.*"])
        streams.add(name="GOOD", subjects=["good.*"], storage="memory")
        stream = streams.streams["BAD"]
        with Client(streams.address) as client:
            assert acked(client.ask(b"bad.a", b"x")[0][1]) == 1
            before = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
            try:
                client.publish(b"bad.a", b"y", reply=client.inbox + b"never")
                assert acked(client.ask(b"good.a", b"x")[0][1]) == 1
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
            until(lambda: stream.failure)
            assert "File too large" in stream.failure
            client.publish(b"bad.a", b"z", reply=client.inbox + b"never")
            assert acked(client.ask(b"good.a", b"x")[0][1]) == 2
            assert client.connection.fence() == []
            assert stream.get_msg(1)[4] == b"x"
            with pytest.raises(StoreFailure):
                stream.delete_msg(1)
