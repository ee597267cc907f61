"""Snapshots of streams, and streams restored from them, between the servers."""

from __future__ import annotations

import json
import random
import tarfile
from base64 import b64decode
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.backups import (
    Entry,
    archive,
    backup,
    begin,
    entries,
    give,
    pieces,
    send,
    state,
    take,
    tar_backup,
)
from support.caller import Caller
from support.jetstream import comparable
from support.launch import Launch
from support.servers import REFERENCE, Kind, Server, until

from gnats.codec import s2

pytestmark = [pytest.mark.timeout(120), pytest.mark.waits]

CONFIG = "server_name: srv, jetstream { store_dir: js }, accounts {}"
EVENTS = "$JS.EVENT.ADVISORY.STREAM."
STREAM: dict[str, Any] = {"name": "S", "subjects": ["s.>"], "metadata": {"a": "b"}, "description": "<d>"}
EXPLICIT = {"ack_policy": "explicit"}


def create(caller: Caller, config: dict[str, Any]) -> None:
    answer = caller.request(f"$JS.API.STREAM.CREATE.{config['name']}", config).json
    assert "error" not in answer, answer


def fill(caller: Caller, config: dict[str, Any] = STREAM, count: int = 60) -> None:
    """Make a stream with headers, deleted messages, and consumers at different places."""
    create(caller, config)
    noise = random.Random(1)
    for number in range(count):
        header = b"NATS/1.0\r\nA: b\r\n\r\n" if number % 3 else b""
        caller.request(f"s.{number % 7}", noise.randbytes(number * 40), header)
    for seq in (1, 2, 7, 30, count):
        assert caller.request("$JS.API.STREAM.MSG.DELETE.S", {"seq": seq}).json["success"]
    consumers: list[dict[str, Any]] = [
        EXPLICIT | {"durable_name": "D"},
        EXPLICIT | {"durable_name": "F", "filter_subject": "s.3", "description": "f"},
        EXPLICIT | {"name": "E", "inactive_threshold": 3600 * 10**9},
        {"durable_name": "N", "ack_policy": "none", "mem_storage": True},
    ]
    for consumer in consumers:
        name = consumer.get("durable_name") or consumer["name"]
        subject = f"$JS.API.CONSUMER.CREATE.S.{name}"
        answer = caller.request(subject, {"stream_name": "S", "config": consumer | {"name": name}}).json
        assert "error" not in answer, answer
    for name in ("D", "F"):
        caller.ask(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", b"6")
        messages = [caller.next() for _ in range(6)]
        for index in (0, 1, 4):
            caller.request(messages[index].reply, b"+ACK")
        caller.request(messages[2].reply, b"-NAK")
        caller.ask(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", b"1")
        caller.next()


def seen(caller: Caller) -> dict[str, Any]:
    """Return everything that the API shows of the stream."""
    info = caller.request("$JS.API.STREAM.INFO.S", {"deleted_details": True, "subjects_filter": ">"}).json
    info["config"]["metadata"].pop("_nats.ver", None)
    info["state"].pop("last_ts")  # a backup does not have the time of a deleted last message
    found: dict[str, Any] = {"config": info["config"], "state": info["state"]}
    for seq in range(info["state"]["first_seq"], info["state"]["last_seq"] + 1):
        found[f"{seq}"] = caller.request("$JS.API.STREAM.MSG.GET.S", {"seq": seq}).json
    for name in caller.request("$JS.API.CONSUMER.NAMES.S").json["consumers"]:
        consumer = caller.request(f"$JS.API.CONSUMER.INFO.S.{name}").json
        consumer["config"]["metadata"].pop("_nats.ver", None)
        for member in ("created", "ts", "num_waiting"):
            consumer.pop(member)
        for counts in ("delivered", "ack_floor"):
            consumer[counts].pop("last_active", None)
        found[f"consumer {name}"] = consumer
    return found


@pytest.fixture
def caller(kind: Kind, launch: Launch) -> Iterator[Caller]:
    with Caller(launch(config=CONFIG)) as caller:
        yield caller


@pytest.fixture
def other(kind: Kind, launch: Launch) -> Iterator[Caller]:
    """The reference."""
    with Caller(launch(config=CONFIG, kind=REFERENCE)) as other:
        yield other


def delete(caller: Caller) -> None:
    answer = caller.request("$JS.API.STREAM.DELETE.S").json
    assert answer.get("success"), answer


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("back", [False, True], ids=["there", "back"])
def test_a_backup_is_restored_by_the_other_server(
    caller: Caller, other: Caller, storage: str, back: bool
) -> None:
    first, second = (other, caller) if back else (caller, other)
    config = STREAM | {"storage": storage}
    fill(first, config)
    before = seen(first)
    taken = take(first, "S")
    assert taken.answer["state"]["messages"] == 55
    answer = give(second, "S", taken.answer["config"], taken.data, 1000)
    assert "error" not in answer, answer
    answer["state"].pop("last_ts")
    taken.answer["state"].pop("last_ts")
    assert answer["state"] == taken.answer["state"] | {"consumer_count": 4}
    assert seen(second) == before
    assert second.request("s.new", b"x").json["seq"] == 61


def test_a_backup_says_what_that_of_the_reference_says(caller: Caller, other: Caller) -> None:
    found = []
    for each in (caller, other):
        fill(each)
        taken = take(each, "S", chunk_size=1024, window_size=1)
        parts = list(entries(taken.data))
        assert parts[0].name == b"state.json"
        for part in parts:
            part.ts = 0
            if part.name.startswith((b"state", b"consumers/")):
                document = json.loads(part.payload)
                for pending in document.get("state", {}).get("pending", {}).values():
                    pending["Timestamp"] = 0
                part.payload = comparable(document)
        shape = [len(reply.split(".")) for reply in taken.replies]
        sizes = [reply.split(".")[5:] for reply in taken.replies]
        assert sizes == [["1024", f"{index}"] for index in range(1, len(sizes) + 1)]
        found.append(
            (comparable(taken.answer), taken.status, shape[:9], sorted(parts, key=lambda p: (p.seq, p.name)))
        )
    assert found[0] == found[1]


def test_a_small_backup_ends_without_a_status(caller: Caller, other: Caller) -> None:
    found = []
    for each in (caller, other):
        create(each, STREAM)
        each.request("s.1", b"one")
        taken = take(each, "S", no_consumers=True)
        found.append((taken.status, taken.replies, len(list(entries(taken.data)))))
    assert found[0] == found[1] == (b"", [], 2)


class Listener:
    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        for what in ("SNAPSHOT_CREATE", "SNAPSHOT_COMPLETE", "RESTORE_CREATE", "RESTORE_COMPLETE"):
            caller.subscribe(f"{EVENTS}{what}.S")

    def next(self) -> tuple[str, Any]:
        while not (message := self.caller.next()).subject.startswith(EVENTS):
            continue  # an answer to a request
        event = message.json
        event["id"] = ""
        for name in ("rtt", "id", "start"):
            event["client"][name] = ""
        if "bytes" in event:
            event["bytes"] = 0
        if "error" in event:
            event["error"] = str(event["error"])
        return message.subject, comparable(event)


def test_advisories(launch: Launch, kind: Kind) -> None:
    found = []
    for server in (launch(config=CONFIG), launch(config=CONFIG, kind=REFERENCE)):
        with Caller(server) as caller, Caller(server) as listening:
            listener = Listener(listening)
            create(caller, STREAM)
            caller.request("s.1", b"one")
            # The advisory that ends a snapshot or a restore may come after the answer.
            taken = take(caller, "S")
            events = [listener.next(), listener.next()]
            delete(caller)
            answer = give(caller, "S", STREAM, taken.data)
            assert "error" not in answer, answer
            events += [listener.next(), listener.next()]
            delete(caller)
            give(caller, "S", STREAM, b"no backup")
            events += [listener.next(), listener.next()]
            found.append(events)
    assert found[0] == found[1]


ASKED: list[tuple[str, Any]] = [
    ("SNAPSHOT.S", b""),
    ("SNAPSHOT.S", {"deliver_subject": ""}),
    ("SNAPSHOT.S", {"deliver_subject": "a.*"}),
    ("SNAPSHOT.S", {"deliver_subject": "a", "chunk_size": "x"}),
    ("SNAPSHOT.S", b"{"),
    ("SNAPSHOT.NONE", {"deliver_subject": "a"}),
    ("RESTORE.S", {"config": STREAM}),
    ("RESTORE.T", b""),
    ("RESTORE.T", b"{"),
    ("RESTORE.T", {"config": {"name": "X"}}),
    ("RESTORE.T", {"config": {"name": "T", "max_age": -1}}),
    ("RESTORE.T", {"config": {"name": "T"}, "state": {"messages": -1}}),
    ("RESTORE.T", {"config": {"name": "T", "max_bytes": 1 << 60}}),
]


def test_requests_that_are_refused(caller: Caller, other: Caller) -> None:
    for each in (caller, other):
        create(each, STREAM)
    for verb, body in ASKED:
        answers = [comparable(each.request(f"$JS.API.STREAM.{verb}", body).json) for each in (caller, other)]
        assert answers[0] == answers[1], verb
        assert "error" in dict(answers[0])


# -- failures ----------------------------------------------------------------------------------------------


def test_nobody_listens(caller: Caller) -> None:
    create(caller, STREAM)
    caller.request("s.1", b"x" * 100_000)
    caller.subscribe(f"{EVENTS}SNAPSHOT_COMPLETE.S")
    caller.request("$JS.API.STREAM.SNAPSHOT.S", {"deliver_subject": "nobody"})
    event = caller.next_on(f"{EVENTS}SNAPSHOT_COMPLETE.S").json
    assert event["stream"] == "S"


def test_chunks_that_are_not_answered_end_it(caller: Caller, other: Caller) -> None:
    found = []
    # Begin on both servers first, so that their timeouts run at the same time.
    for each in (caller, other):
        create(each, STREAM)
        for _ in range(3):
            each.request("s.1", random.Random(1).randbytes(100_000))
        each.subscribe("chunks")
        options = {"deliver_subject": "chunks", "chunk_size": 10_000, "window_size": 30_000}
        each.request("$JS.API.STREAM.SNAPSHOT.S", options)
    for each in (caller, other):
        messages = [each.next_on("chunks") for _ in range(4)]
        found.append([(len(message.payload), message.header) for message in messages])
    assert found[0] == found[1] == [(10_000, b"")] * 3 + [(0, b"NATS/1.0 408 No Flow Response\r\n\r\n")]


def test_a_snapshot_of_a_stream_that_is_written_to_is_of_one_moment(kind: Kind, launch: Launch) -> None:
    server = launch(config=CONFIG)
    with Caller(server) as caller, Caller(server) as writer:
        create(caller, STREAM)
        payload = random.Random(2).randbytes(2000)
        for number in range(500):
            writer.publish("s.1", b"%d " % number + payload, "no.answer")
        writer.fence()
        caller.subscribe("chunks")
        options = {"deliver_subject": "chunks", "chunk_size": 1024, "window_size": 8192}
        answer = caller.request("$JS.API.STREAM.SNAPSHOT.S", options).json
        data = b""
        number = 500
        while True:
            message = caller.next_on("chunks")
            data += message.payload
            if message.reply:
                caller.publish(message.reply)
                if number < 1500:
                    writer.publish("s.2", b"%d " % number + payload, "no.answer")
                    number += 1
            if not message.payload:
                break
        writer.fence()
        last = answer["state"]["last_seq"]
        found = [entry for entry in entries(data) if entry.seq]
        assert [entry.seq for entry in found] == list(range(1, last + 1))
        assert all(entry.payload.startswith(b"%d " % (entry.seq - 1)) for entry in found)
        # The reference stores what is not acknowledged after it has answered the writer's PING.
        until(lambda: caller.request("$JS.API.STREAM.INFO.S").json["state"]["last_seq"] == number)


def message(seq: int, **more: Any) -> Entry:
    return Entry(b"s.1", b"m%d" % seq, ts=10**18, seq=seq, **more)


CONSUMER = {
    "config": {"durable_name": "C", "ack_policy": "explicit"},
    "state": {
        "delivered": {"consumer_seq": 1, "stream_seq": 1},
        "ack_floor": {"consumer_seq": 0, "stream_seq": 0},
    },
}


def consumer(name: bytes = b"C", **changes: Any) -> Entry:
    return Entry(b"consumers/" + name, json.dumps(CONSUMER | changes).encode(), ts=1)


WHOLE = backup(state(1, 3), message(1), message(3))
HOSTILE = {
    "nothing": b"",
    "no S2": b"x" * 700,
    "only the beginning": s2.encode(b""),
    "S2 of nothing known": s2.encode(b"y" * 700),
    "S2 of a few bytes": s2.encode(b"NATS"),
    "cut off in S2": WHOLE[:-3],
    "a flipped bit": WHOLE[:-20] + bytes([WHOLE[-20] ^ 4]) + WHOLE[-19:],
    "no state": backup(message(1)),
    "a state that is no JSON": backup(Entry(b"state.json", b"{")),
    "a state of other types": backup(Entry(b"state.json", b'{"first_seq":-1}')),
    "no end": backup(state(1, 3), message(1), end=False),
    "cut off in a message": s2.encode(archive(state(1, 3), message(1), end=False)[:-1]),
    "sequences that fall": backup(state(1, 3), message(2), message(1)),
    "a sequence twice": backup(state(1, 3), message(2), message(2)),
    "a sequence before the first": backup(state(5, 9), message(4)),
    "no sequence": backup(state(1, 3), message(0)),
    "a message too large": backup(state(1, 1), replace(message(1), payload=b"x" * (1 << 20), header=b"y")),
    "a size beyond everything": backup(state(1, 1), message(1, sizes=(0, 1 << 62))),
    "a size of 2**64-1": backup(state(1, 1), message(1, sizes=(0, (1 << 64) - 1))),
    "a name of a terabyte": s2.encode(b"NATSARC1" + b"\xff\xff\xff\xff\xff\x1f" + b"x" * 100),
    "a number that does not end": s2.encode(b"NATSARC1" + b"\xff" * 100),
    "a consumer that is none": backup(state(1, 1, 1), message(1)),
    "a consumer without a state": backup(state(1, 1, 1), consumer(state=None), message(1)),
    "a consumer without a config": backup(state(1, 1, 1), consumer(config=None), message(1)),
    "a consumer that is no JSON": backup(state(1, 1, 1), Entry(b"consumers/C", b"["), message(1)),
    "fewer consumers than said": backup(state(1, 1, 2), consumer(), message(1)),
}


def nothing_is_left(caller: Caller, server: Server) -> None:
    assert caller.request("$JS.API.STREAM.INFO.S").json["error"]["err_code"] == 10059
    streams = server.directory / "js" / "jetstream" / "$G" / "streams"
    assert not streams.exists() or list(streams.iterdir()) == []


@pytest.mark.parametrize("size", [128 * 1024, 50])
def test_what_is_no_backup_leaves_nothing_behind(kind: Kind, launch: Launch, size: int) -> None:
    if kind.is_reference:
        pytest.skip("the reference keeps messages read before an error")
    server = launch(config=CONFIG)
    with Caller(server) as caller:
        for what, data in HOSTILE.items():
            answer = give(caller, "S", STREAM, data, size)
            assert answer["error"]["err_code"] == 10062, what
            nothing_is_left(caller, server)
        assert "error" not in give(caller, "S", STREAM, WHOLE + b"what follows is not looked at", size)
        info = caller.request("$JS.API.STREAM.INFO.S", {"deleted_details": True}).json["state"]
        assert (info["messages"], info["last_seq"], info["deleted"]) == (2, 3, [2])


NOT_THERE = {
    "a subject with line ends": backup(state(1, 1), Entry(b"s.1\r\nPUB x 0\r\n", seq=1, ts=1)),
    "a subject with wildcards": backup(state(1, 1), Entry(b"s.>", seq=1, ts=1)),
    "a long subject": backup(state(1, 1), Entry(b"s." + b"x" * 5000, seq=1, ts=1)),
    "a sequence beyond everything": backup(state(1, 1), message(1 << 63)),
    "a consumer with a path": backup(state(1, 1, 1), consumer(b"../../C"), message(1)),
    "a consumer twice": backup(state(1, 1, 2), consumer(), consumer(), message(1)),
    "a consumer of another name": backup(state(1, 1, 1), consumer(b"D"), message(1)),
    "acks beyond what was delivered": backup(
        state(1, 1, 1),
        consumer(state=CONSUMER["state"] | {"ack_floor": {"consumer_seq": 9, "stream_seq": 9}}),
        message(1),
    ),
    "pending beyond what was delivered": backup(
        state(1, 1, 1),
        consumer(state=CONSUMER["state"] | {"pending": {"9": {"Sequence": 1, "Timestamp": 1}}}),
        message(1),
    ),
    "pending at no number": backup(
        state(1, 1, 1), consumer(state=CONSUMER["state"] | {"pending": {"x": {"Sequence": 1}}}), message(1)
    ),
}


def test_what_would_do_harm_later_is_refused(kind: Kind, launch: Launch) -> None:
    if kind.is_reference:
        pytest.skip("the reference accepts most of these backups")
    server = launch(config=CONFIG)
    with Caller(server) as caller:
        for what, data in NOT_THERE.items():
            answer = give(caller, "S", STREAM, data)
            assert answer["error"]["err_code"] in (10062, 10004), what
            nothing_is_left(caller, server)


MESSAGE = Entry(b"s.a", b"payload", ts=1, seq=1)


def consumer_at(delivered: tuple[int, int], floor: tuple[int, int]) -> Entry:
    """Make the entry of a consumer; `delivered` and `floor` are (consumer, stream) sequences."""
    pairs = {
        name: {"consumer_seq": pair[0], "stream_seq": pair[1]}
        for name, pair in (("delivered", delivered), ("ack_floor", floor))
    }
    document = {"config": EXPLICIT | {"name": "C"}, "state": pairs}
    return Entry(b"consumers/C", json.dumps(document).encode(), ts=1)


AT_ENDS = {
    "bytes": [state(1, 1, bytes=2**64 - 1), MESSAGE],
    "bytes of an int64": [state(1, 1, bytes=2**63), MESSAGE],
    "floor": [state(1, 1, 1), consumer_at((1, 1), (2, 2)), MESSAGE],
    "floor of a consumer": [state(1, 1, 1), consumer_at((1, 1), (2, 1)), MESSAGE],
    "largest floor": [state(1, 1, 1), consumer_at((1, 1), (2**64 - 1, 2**64 - 1)), MESSAGE],
}


@pytest.mark.parametrize("what", AT_ENDS)
def test_numbers_at_their_ends_are_answered(kind: Kind, launch: Launch, what: str) -> None:
    """A refused restore leaves nothing in the way of the next; the reference keeps the stream."""
    server = launch(config=CONFIG)
    with Caller(server) as caller:
        answer = give(caller, "S", STREAM, backup(*AT_ENDS[what]))
        assert answer["error"]["err_code"] == (10047 if "bytes" in what else 10062)
        if kind != REFERENCE:
            nothing_is_left(caller, server)
            assert "error" not in give(caller, "S", STREAM, backup(state(1, 1), MESSAGE))


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"redelivered": {"1": None}}, None),
        ({"redelivered": {"9" * 5000: 1}}, 10062),
        ({"pending": {"9" * 5000: {"Sequence": 1, "Timestamp": 1}}}, 10062),
    ],
    ids=["null", "redelivered", "pending"],
)
def test_a_consumer_of_a_backup_may_have_odd_numbers(caller: Caller, members: Any, code: int | None) -> None:
    entry = consumer_at((1, 1), (0, 0))
    document = json.loads(entry.payload)
    document["state"] |= members
    changed = Entry(entry.name, json.dumps(document).encode(), ts=1)
    answer = give(caller, "S", STREAM, backup(state(1, 1, 1), changed, MESSAGE))
    assert answer.get("error", {}).get("err_code") == code, answer


@pytest.mark.parametrize("seq", [2**63 - 1, 2**63, 2**64 - 1])
def test_a_consumer_may_begin_behind_all_sequences(caller: Caller, other: Caller, seq: int) -> None:
    found = []
    for each in (caller, other):
        each.request("$JS.API.STREAM.CREATE.S", STREAM)
        begin = {"name": "C", "durable_name": "C", "deliver_policy": "by_start_sequence"} | EXPLICIT
        begin["opt_start_seq"] = seq
        request = {"stream_name": "S", "config": begin}
        assert "error" not in each.request("$JS.API.CONSUMER.CREATE.S.C", request).json
        taken = take(each, "S")
        assert "error" not in taken.answer, taken.answer
        found.append([part.name for part in entries(taken.data)])
    assert found[0] == found[1]


def test_gaps_are_kept(caller: Caller, other: Caller) -> None:
    data = backup(state(10**15, 10**15 + 9 * 10**9), message(10**15 + 5), message(10**15 + 5 * 10**9))
    for each in (caller, other):
        answer = give(each, "S", STREAM, data)
        assert "error" not in answer, answer
        assert each.request("s.1", b"x").json["seq"] == 10**15 + 9 * 10**9 + 1
        last = each.request("$JS.API.STREAM.MSG.GET.S", {"last_by_subj": "s.1"}).json["message"]
        assert last["seq"] == 10**15 + 9 * 10**9 + 1
        for seq in (10**15 + 5, 10**15 + 5 * 10**9):
            found = each.request("$JS.API.STREAM.MSG.GET.S", {"seq": seq}).json["message"]
            assert b64decode(found["data"]) == b"m%d" % seq


def test_limits_hold(kind: Kind, launch: Launch) -> None:
    if kind.is_reference:
        pytest.skip("the reference keeps messages read before an error")
    server = launch(config="jetstream { store_dir: js, max_file: 1MB, max_mem: 1MB }")
    noise = random.Random(3).randbytes(500_000)
    small = backup(state(1, 1), replace(message(1), payload=noise))
    large = backup(state(1, 3), *(replace(message(seq), payload=noise) for seq in (1, 2, 3)))
    declared = backup(state(1, 1, bytes=1 << 40), message(1))
    zeros = backup(state(1, 9), *(replace(message(seq), payload=bytes(1 << 20)) for seq in range(1, 10)))
    with Caller(server) as caller:
        for storage, code in (("file", 10047), ("memory", 10028)):
            config = STREAM | {"storage": storage}
            for data in (large, declared, zeros):
                assert give(caller, "S", config, data)["error"]["err_code"] == code
                nothing_is_left(caller, server)
            assert "error" not in give(caller, "S", config, small)
            delete(caller)
        info = caller.request("$JS.API.INFO").json
        assert (info["memory"], info["storage"]) == (0, 0)


def test_a_chunk_without_a_reply_ends_it(kind: Kind, launch: Launch) -> None:
    server = launch(config=CONFIG)
    with Caller(server) as caller:
        caller.subscribe(f"{EVENTS}RESTORE_COMPLETE.S")
        answer = begin(caller, "S", STREAM)
        caller.publish(answer["deliver_subject"], WHOLE)
        assert caller.next_on(f"{EVENTS}RESTORE_COMPLETE.S").json["stream"] == "S"
        server.wait_log("requires reply subject for each chunk")
        nothing_is_left(caller, server)
        assert "error" not in give(caller, "S", STREAM, WHOLE)


def test_a_restore_that_stalls_is_given_up(kind: Kind, launch: Launch) -> None:
    if kind.is_reference:
        pytest.skip("the reference does not log it")
    server = launch(config=CONFIG)
    with Caller(server) as caller:
        answer = begin(caller, "S", STREAM)
        caller.request(answer["deliver_subject"], WHOLE[:20])
        again = begin(caller, "S", STREAM)
        assert again["error"]["err_code"] == 10130
        made = caller.request("$JS.API.STREAM.CREATE.S", STREAM).json
        assert made["error"]["err_code"] == 10058
        server.wait_log("restore for stream '.G > S' is stalled")
        nothing_is_left(caller, server)
        assert "error" not in give(caller, "S", STREAM, WHOLE)


def test_a_kill_during_a_restore_leaves_nothing(kind: Kind, launch: Launch, tmp_path: Path) -> None:
    if kind.is_reference:
        pytest.skip("the reference keeps messages read before the kill")
    where = tmp_path / "js"
    config = f"jetstream {{ store_dir: '{where}' }}"
    server = Server(kind, tmp_path / "first", config=config)
    try:
        with Caller(server) as caller:
            answer = begin(caller, "S", STREAM)
            data = backup(
                state(1, 2000), *(replace(message(seq), payload=bytes(1000)) for seq in range(1, 2001))
            )
            for chunk in pieces(data, 2000)[:-1]:
                caller.request(answer["deliver_subject"], chunk)
        streams = where / "jetstream" / "$G" / "streams"
        assert [path.name[0] for path in streams.iterdir()] == ["."]
    finally:
        server.kill()
    with Caller(launch(config=config)) as caller:
        assert caller.request("$JS.API.STREAM.NAMES").json["total"] == 0
        assert list(streams.iterdir()) == []


# -- backups of nats-server before 2.15 --------------------------------------------------------------------


def test_backups_of_older_servers_are_restored(kind: Kind, launch: Launch, caller: Caller) -> None:
    old = launch(config=CONFIG, kind=REFERENCE)
    with Caller(old) as other:
        fill(other)
        before = seen(other)
    old.stop()
    directory = old.directory / "js" / "jetstream" / "$G" / "streams" / "S"
    config = before["config"] | {"metadata": {"a": "b", "_nats.req.level": "0"}}
    answer = give(caller, "S", config, tar_backup(directory), 1000)
    assert "error" not in answer, answer
    del before["consumer N"]  # a consumer in memory is not in a backup
    before["state"]["consumer_count"] -= 1
    after = seen(caller)
    assert after.keys() == before.keys()
    for name, value in before.items():
        assert after[name] == value, name
    delete(caller)
    if kind.is_reference:
        return

    def info(name: str, **more: Any) -> tarfile.TarInfo:
        found = tarfile.TarInfo(name)
        for key, value in more.items():
            setattr(found, key, value)
        return found

    link = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}
    for what, extra in {
        "a path up": (info("../../x", size=1), b"x"),
        "an absolute path": (info("/tmp/x", size=1), b"x"),
        "a path up below": (info("obs/../meta.inf", size=1), b"x"),
        "a link": (info("msgs/9.blk", **link), b""),
        "a directory": (info("msgs", type=tarfile.DIRTYPE), b""),
        "a device": (info("msgs/9.blk", type=tarfile.CHRTYPE), b""),
        "another file": (info("x", size=1), b"x"),
        "a file twice": (info("meta.inf", size=1), b"x"),
    }.items():
        answer = give(caller, "S", STREAM, tar_backup(directory, extra))
        assert answer["error"]["err_code"] == 10062, what
        assert caller.request("$JS.API.STREAM.INFO.S").json["error"]["err_code"] == 10059
    for skip in ("meta.inf", "meta.sum"):
        answer = give(caller, "S", STREAM, tar_backup(directory, skip=skip))
        assert answer["error"]["err_code"] == 10062
    whole = tar_backup(directory)
    for cut in (len(whole) // 2, len(whole) - 10):
        assert give(caller, "S", STREAM, whole[:cut])["error"]["err_code"] == 10062
    assert give(caller, "T", {"name": "T"}, whole)["error"]["err_code"] == 10062
    assert caller.request("$JS.API.STREAM.NAMES").json["total"] == 0


@pytest.mark.parametrize("old", [False, True], ids=["archive", "tar"])
def test_what_is_restored_is_encrypted_and_compressed(kind: Kind, launch: Launch, old: bool) -> None:
    config = STREAM | {"compression": "s2"}
    plain = launch(config=CONFIG, kind=REFERENCE)
    with Caller(plain) as other:
        fill(other, config)
        before = seen(other)
        data = take(other, "S").data
    plain.stop()
    if old:
        data = tar_backup(plain.directory / "js" / "jetstream" / "$G" / "streams" / "S")
        del before["consumer N"]
        before["state"]["consumer_count"] -= 1
    server = launch(config="server_name: srv, jetstream { store_dir: js, key: secret, cipher: aes }")
    directory = server.directory / "js" / "jetstream" / "$G" / "streams" / "S"
    with Caller(server) as caller:
        answer = give(caller, "S", before["config"] | {"metadata": {"a": "b", "_nats.req.level": "0"}}, data)
        assert "error" not in answer, answer
        assert seen(caller) == before
        assert (directory / "meta.key").exists() and (directory / "obs" / "D" / "meta.key").exists()
        again = take(caller, "S").data
        messages = [(entry.seq, entry.payload) for entry in entries(again) if entry.seq]
        assert len(messages) == 55
    server.stop()
    server.start_again()
    if before.pop("consumer N", None):
        before["state"]["consumer_count"] -= 1
    with Caller(server) as caller:
        assert seen(caller) == before


def test_other_connections_do_not_wait(kind: Kind, launch: Launch) -> None:
    """While a stream is restored, the server answers another connection's requests."""
    server = launch(config=CONFIG)
    with ExitStack() as stack:
        busy, asking = (stack.enter_context(Caller(server)) for _ in range(2))
        data = backup(state(1, 3000), *(replace(message(seq), payload=bytes(5000)) for seq in range(1, 3001)))
        answer = begin(busy, "S", STREAM)
        assert "error" not in answer
        for chunk in pieces(data, 20_000):
            busy.ask(answer["deliver_subject"], chunk)
            assert "error" not in asking.request("$JS.API.INFO").json
        final = send(busy, answer["deliver_subject"], ())
        assert final["state"]["messages"] == 3000
