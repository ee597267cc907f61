"""Atomic batches beside the reference server: a stream stores all messages of one, or none."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from support.streams import Client, GnatsStreams, ReferenceStreams, Streams

from gnats.jetstream.consumer.consumer import Consumer
from gnats.jetstream.settings.config import ConsumerConfig

pytestmark = pytest.mark.timeout(120)

_numbers = itertools.count(1)
Message = tuple[str, bytes, list[str]]


def part(
    batch: str, seq: object, *header: str, subject: str = "S.a", commit: str = "", payload: bytes = b"x"
) -> Message:
    lines = [f"Nats-Batch-Id: {batch}", f"Nats-Batch-Sequence: {seq}"]
    return subject, payload, lines + ([f"Nats-Batch-Commit: {commit}"] if commit else []) + list(header)


def plain(subject: str = "S.a", *header: str) -> Message:
    return subject, b"plain", list(header)


CASES: dict[str, tuple[list[Message], dict[str, Any]]] = {
    "committed": ([part("one", 1), part("one", 2, subject="S.b"), part("one", 3, commit="1")], {}),
    "of one message": ([part("one", 1, commit="1"), plain()], {}),
    "ended by a message of its own": ([part("one", 1), part("one", 2), part("one", 3, commit="eob")], {}),
    "only an end": ([part("one", 1, commit="eob"), plain()], {}),
    "not committed": ([part("one", 1), part("one", 2), plain()], {}),
    "two at once": (
        [part("one", 1), part("two", 1), part("two", 2, commit="1"), plain(), part("one", 2, commit="1")],
        {},
    ),
    "a gap": ([part("one", 1), part("one", 3), part("one", 2, commit="1")], {}),
    "without a beginning": ([part("one", 2), part("one", 2000), part("one", 1001, commit="eob")], {}),
    "without a sequence": (
        [("S.a", b"x", ["Nats-Batch-Id: one"]), part("one", "x"), part("one", -1), part("one", 0)],
        {},
    ),
    "an unknown commit": ([part("one", 1), part("one", 2, commit="2"), part("one", 2, commit="1")], {}),
    "a long id": ([part("i" * 65, 1), part("i" * 64, 1, commit="1"), part('q"<', 1, commit="1")], {}),
    "a level": (
        [
            part("one", 1, "Nats-Required-Api-Level: 1"),
            part("one", 2, "Nats-Required-Api-Level: 100"),
            part("two", 1, "Nats-Required-Api-Level: 1", commit="1"),
        ],
        {},
    ),
    "an unsupported header": (
        [part("one", 1), part("one", 2, "Nats-Expected-Last-Msg-Id: x", commit="1"), plain()],
        {},
    ),
    "expected sequences": (
        [
            plain(),
            part("one", 1, "Nats-Expected-Last-Sequence: 1"),
            part("one", 2, commit="1"),
            part("two", 1, "Nats-Expected-Last-Sequence: 1"),
            part("two", 2, commit="1"),
            part("three", 1),
            part("three", 2, "Nats-Expected-Last-Sequence: 4", commit="1"),
            part("four", 1),
            part("four", 2, "Nats-Expected-Last-Sequence: 9", commit="1"),
        ],
        {},
    ),
    "expected sequences of subjects": (
        [
            plain(),
            part("one", 1, "Nats-Expected-Last-Subject-Sequence: 1"),
            part("one", 2, "Nats-Expected-Last-Subject-Sequence: 0", subject="S.b", commit="1"),
            part("two", 1, "Nats-Expected-Last-Subject-Sequence: 2"),
            part("two", 2, "Nats-Expected-Last-Subject-Sequence: 2", commit="1"),
            part("three", 1, "Nats-Expected-Last-Subject-Sequence: 7", commit="1"),
            part("four", 1, "Nats-Expected-Last-Subject-Sequence-Subject: S.b", commit="1"),
            part(
                "five",
                1,
                "Nats-Expected-Last-Subject-Sequence: 3",
                "Nats-Expected-Last-Subject-Sequence-Subject: S.b",
                subject="S.c",
                commit="1",
            ),
        ],
        {},
    ),
    "message ids": (
        [
            plain("S.a", "Nats-Msg-Id: 1"),
            part("one", 1, "Nats-Msg-Id: 2"),
            part("one", 2, "Nats-Msg-Id: 2", commit="1"),
            part("two", 1, "Nats-Msg-Id: 1", commit="1"),
            part("three", 1, "Nats-Msg-Id: 3"),
            part("three", 2, "Nats-Msg-Id: 4", commit="1"),
            plain("S.a", "Nats-Msg-Id: 4"),
        ],
        {},
    ),
    "rollups": (
        [
            plain(),
            plain("S.b"),
            part("one", 1, "Nats-Rollup: sub"),
            part("one", 2, commit="1"),
            part("two", 1),
            part("two", 2, "Nats-Rollup: sub", commit="1"),
            part("three", 1),
            part("three", 2, "Nats-Rollup: all", commit="1"),
            part("four", 1, "Nats-Rollup: all"),
            part("four", 2, commit="1"),
            part("five", 1, "Nats-Rollup: some", commit="1"),
        ],
        {"allow_rollup_hdrs": True},
    ),
    "rollups without permission": ([part("one", 1, "Nats-Rollup: sub", commit="1")], {}),
    "TTL without permission": (
        [part("one", 1, "Nats-TTL: 10", commit="1"), part("two", 1, "Nats-TTL: x", commit="1")],
        {},
    ),
    "TTL": (
        [part("one", 1, "Nats-TTL: 10", commit="1"), part("two", 1, "Nats-TTL: x", commit="1")],
        {"allow_msg_ttl": True},
    ),
    "another stream": ([part("one", 1), part("one", 2, "Nats-Expected-Stream: other", commit="1")], {}),
    "too many messages": (
        [
            plain(),
            part("one", 1),
            part("one", 2, commit="1"),
            part("two", 1, commit="1"),
            part("three", 1, commit="1"),
        ],
        {"max_msgs": 2, "discard": "new"},
    ),
    "too many bytes": (
        [
            part("one", 1, payload=b"x" * 200),
            part("one", 2, payload=b"x" * 200, commit="1"),
            part("two", 1, commit="1"),
        ],
        {"max_bytes": 400, "discard": "new"},
    ),
    "too many of a subject": (
        [
            part("one", 1),
            part("one", 2, commit="1"),
            part("two", 1),
            part("two", 2, subject="S.b", commit="1"),
        ],
        {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True},
    ),
    "a large message": (
        [part("one", 1), part("one", 2, payload=b"x" * 200), part("one", 2, commit="1")],
        {"max_msg_size": 150},
    ),
    "counters": (
        [
            part("one", 1, "Nats-Incr: 5", payload=b""),
            part("one", 2, "Nats-Incr: 6", payload=b"", commit="1"),
            part("two", 1, "Nats-Incr: 1", payload=b""),
            part("two", 2, payload=b"", commit="1"),
            ("S.a", b"", ["Nats-Incr: 1"]),
        ],
        {"allow_msg_counter": True},
    ),
    "counters that outgrow a message in their batch": (
        [
            part("one", 1, "Nats-Incr: 9", payload=b""),
            part("one", 2, "Nats-Incr: 1", payload=b"", commit="1"),  # 92 bytes with {"val":"10"}
            part("two", 1, "Nats-Incr: 8", payload=b"", commit="1"),
            part("two", 1, "Nats-Incr: 2", payload=b"", commit="1"),
        ],
        {"allow_msg_counter": True, "max_msg_size": 103},
    ),
    "transformed": (
        [part("one", 1), part("one", 2, "Nats-Expected-Last-Subject-Sequence: 0", subject="S.c", commit="1")],
        {"subject_transform": {"src": "S.a", "dest": "S.c"}},
    ),
}


def told(
    streams: Streams, messages: list[Message], config: dict[str, Any], name: str
) -> tuple[object, object, object]:
    streams.add(**eval(repr({"name": name, "subjects": ["S.>"], **config}).replace("S.", f"{name}.")))
    replies, stored = [], []
    with Client(streams.address) as client:
        for subject, payload, header in messages:
            lines = [line.replace(" S.", f" {name}.").encode() for line in header]
            replies.append(client.ask(subject.replace("S.", f"{name}.").encode(), payload, lines)[0][1])
        for seq in range(1, 12):
            head, payload = client.ask(f"$JS.API.DIRECT.GET.{name}".encode(), b'{"seq":%d}' % seq)[0]
            fields = [line for line in head.split(b"\r\n") if not line.startswith(b"Nats-Time-Stamp")]
            stored.append((fields, payload))
    plain_name = name.encode()
    return (
        [reply.replace(plain_name, b"NAME") for reply in replies],
        [([f.replace(plain_name, b"NAME") for f in fields], payload) for fields, payload in stored],
        streams.state(name),
    )


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize(("messages", "config"), CASES.values(), ids=CASES.keys())
def test_batches(
    tested: GnatsStreams,
    compared: ReferenceStreams,
    messages: list[Message],
    config: dict[str, Any],
    storage: str,
) -> None:
    config = config | {"storage": storage, "allow_atomic": True, "allow_direct": True}
    name = f"B{next(_numbers)}"
    assert told(tested, messages, config, name) == told(compared, messages, config, name)


def test_too_many_batches(tested: GnatsStreams, compared: ReferenceStreams) -> None:
    answers = []
    for streams in (tested, compared):
        name = f"M{next(_numbers)}"
        streams.add(name=name, subjects=[f"{name}.>"], allow_atomic=True)
        with Client(streams.address) as client:
            replies = [
                client.ask(f"{name}.a".encode(), b"x", [b"Nats-Batch-Id: %d" % i, b"Nats-Batch-Sequence: 1"])[
                    0
                ][1]
                for i in range(52)
            ]
        answers.append([reply.replace(name.encode(), b"NAME") for reply in replies])
    assert answers[0] == answers[1]


def test_a_batch_that_was_stored_in_part_goes(tmp_path: Path) -> None:
    """Recovery removes the messages of a batch whose commit is missing, as after a kill."""
    with GnatsStreams(tmp_path, 0) as streams:
        streams.add(name="PART", subjects=["part.>"], allow_atomic=True)
        with Client(streams.address) as client:
            client.ask(b"part.a", b"before")
            for seq in (1, 2, 3):
                lines = [b"Nats-Batch-Id: one", b"Nats-Batch-Sequence: %d" % seq]
                client.ask(b"part.a", b"x", lines + ([b"Nats-Batch-Commit: 1"] if seq == 3 else []))
        assert streams.state("PART") == (4, 1, 4)
        stream = streams.streams["PART"]
        streams.call(stream.close)
        stream.store.truncate_to(3)
        stream.store.close()
        (tmp_path / "PART" / "msgs" / "index.db").unlink(missing_ok=True)
        streams.streams.clear()
        streams.add(name="PART", subjects=["part.>"], allow_atomic=True)
        assert streams.state("PART") == (1, 1, 1)


def test_what_takes_the_sequences_of_a_part_waits_for_a_sync(tmp_path: Path) -> None:
    """A consumer sees no message that a crash could take back."""
    config: dict[str, Any] = {"name": "PART", "subjects": ["part.>"], "allow_atomic": True}
    with GnatsStreams(tmp_path, 0, sync_always=True) as streams:
        streams.add(**config)
        with Client(streams.address) as client:
            for seq in (1, 2, 3):
                lines = [b"Nats-Batch-Id: one", b"Nats-Batch-Sequence: %d" % seq]
                client.ask(b"part.a", b"x", lines + ([b"Nats-Batch-Commit: 1"] if seq == 3 else []))
        stream = streams.streams["PART"]
        streams.call(stream.close)
        stream.store.truncate_to(2)
        stream.store.close()
        (tmp_path / "PART" / "msgs" / "index.db").unlink(missing_ok=True)
        streams.streams.clear()
        streams.add(**config)
        assert streams.state("PART") == (0, 0, 0)
        stream = streams.streams["PART"]
        checked = ConsumerConfig.from_json(b'{"name": "C", "ack_policy": "explicit", "max_waiting": 9}')
        consumer = streams.call(lambda: Consumer(stream, "C", checked, account="$G"))
        streams.call(consumer.start)
        streams.call(streams.engine.stop_sync)
        try:
            with Client(streams.address) as client:
                client.publish(b"part.a", b"new", [], b"")
                client.publish(b"$JS.API.CONSUMER.MSG.NEXT.PART.C", b"1", [], client.inbox + b"pull")
                for _ in range(2):  # the first PONG may overtake deliveries at the end of the poller's batch
                    assert client.connection.fence() == []
                streams.call(streams.engine.start_sync)
                assert client.read()[1] == b"new"
        finally:
            streams.call(streams.engine.start_sync)
            streams.call(consumer.close)


def test_the_limits_of_a_batch_are_those_of_the_store(tmp_path: Path) -> None:
    """An update of the stream comes at different moments: it stores the whole batch, or nothing of it."""
    config: dict[str, Any] = {"name": "PART", "subjects": ["part.>"], "allow_atomic": True, "discard": "new"}
    with GnatsStreams(tmp_path, 0) as streams:
        streams.add(**config, max_msgs=3)
        stream = streams.streams["PART"]
        for raised in ({"max_msgs": 9}, {"discard": "old", "max_msgs": 3}):
            streams.call(stream.configure, streams.checked(config | raised))
            with Client(streams.address) as client:
                for seq in range(1, 5):
                    lines = [b"Nats-Batch-Id: one", b"Nats-Batch-Sequence: %d" % seq]
                    lines += [b"Nats-Batch-Commit: 1"] if seq == 4 else []
                    answer = client.ask(b"part.a", b"x", lines)[0][1]
            assert b"maximum messages exceeded" in answer
            assert streams.state("PART") == (0, 0, 0)


def test_nothing_goes_for_what_one_header_says(tmp_path: Path) -> None:
    """A fast batch's message with the headers of an atomic batch's third makes recovery remove nothing."""
    with GnatsStreams(tmp_path, 0) as streams:
        both = {"allow_atomic": True, "allow_batched": True}
        streams.add(name="PART", subjects=["part.>"], **both)
        with Client(streams.address) as client:
            client.ask(b"part.a", b"before")
            client.ask(b"part.a", b"before")
            lines = [b"Nats-Batch-Id: one", b"Nats-Batch-Sequence: 3"]
            client.publish(b"part.a", b"x", lines, client.inbox + b"one.1.ok.1.2.$FI")
            assert b'"count":1' in client.read()[1]
        stream = streams.streams["PART"]
        streams.call(stream.close)
        stream.store.close()
        (tmp_path / "PART" / "msgs" / "index.db").unlink(missing_ok=True)
        streams.streams.clear()
        streams.add(name="PART", subjects=["part.>"], **both)
        assert streams.state("PART") == (3, 1, 3)


def test_what_comes_of_a_schedule_that_was_in_a_batch_stays(tmp_path: Path) -> None:
    """A message made by a schedule has the schedule's batch headers, and is no part of the batch."""
    with GnatsStreams(tmp_path, 0) as streams:
        config = {"name": "PART", "subjects": ["part.>"], "allow_atomic": True}
        streams.add(**config)
        stream = streams.streams["PART"]
        lines = b"Nats-Batch-Id: one\r\nNats-Batch-Sequence: 1\r\nNats-Scheduler: part.a\r\n"
        streams.call(stream.store.store_msg, b"part.b", b"x", b"NATS/1.0\r\n" + lines + b"\r\n")
        streams.call(stream.close)
        stream.store.close()
        (tmp_path / "PART" / "msgs" / "index.db").unlink(missing_ok=True)
        streams.streams.clear()
        streams.add(**config)
        assert streams.state("PART") == (1, 1, 1)
