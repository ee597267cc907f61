"""Store directories: a restarted server, and the other server, find everything stored."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.caller import Caller
from support.jetstream import comparable, config
from support.launch import Launch, Move
from support.servers import REFERENCE, Kind, Server, until

pytestmark = pytest.mark.timeout(120)

NO_ACKS = {"ack_policy": "none"}
EXPLICIT = {"ack_policy": "explicit"}

STREAMS: list[dict[str, Any]] = [
    {"name": "LIMITS", "subjects": ["l.>"], "max_msgs_per_subject": 2, "description": "<d>"},
    {"name": "WORK", "subjects": ["w.>"], "retention": "workqueue"},
    {"name": "INTEREST", "subjects": ["i.>"], "retention": "interest"},
    {"name": "FIRST", "subjects": ["f"], "first_seq": 100, "allow_direct": True},
    {"name": "SMALL", "subjects": ["s"], "max_bytes": 120_000, "compression": "s2"},
    {"name": "EMPTY", "subjects": ["e"], "metadata": {"a": "b"}, "allow_msg_ttl": True},
]
CONSUMERS = {
    "LIMITS": [EXPLICIT | {"durable_name": "D"}, EXPLICIT | {"durable_name": "F", "filter_subject": "l.1"}],
    "WORK": [EXPLICIT | {"durable_name": "D", "max_ack_pending": 10}],
    "INTEREST": [EXPLICIT | {"durable_name": "D"}],
    "FIRST": [NO_ACKS | {"durable_name": "D", "deliver_policy": "last"}],
}


ENCRYPTED = ["", "key: secret", "key: secret, cipher: aes"]


def fill(caller: Caller) -> None:
    """Make streams, consumers, and messages, some of them acknowledged and some deleted."""
    for stream in STREAMS:
        answer = caller.request(f"$JS.API.STREAM.CREATE.{stream['name']}", stream).json
        assert "error" not in answer, answer
    for name, consumers in CONSUMERS.items():
        for consumer in consumers:
            subject = f"$JS.API.CONSUMER.CREATE.{name}.{consumer['durable_name']}"
            answer = caller.request(subject, {"stream_name": name, "config": consumer}).json
            assert "error" not in answer, answer
    for number in range(12):
        for prefix in "lwi":
            caller.request(f"{prefix}.{number % 4}", b"%d" % number * number)
        caller.request("f", b"first", b"NATS/1.0\r\nA: b\r\n\r\n")
    for number in range(60):  # two blocks
        caller.request("s", b"%d" % number * 400)
    caller.request("$JS.API.STREAM.MSG.DELETE.FIRST", {"seq": 105})
    for name in ("LIMITS", "WORK", "INTEREST"):
        caller.ask(f"$JS.API.CONSUMER.MSG.NEXT.{name}.D", b"5")
        messages = [caller.next() for _ in range(5)]
        for message in messages[:3]:
            caller.request(message.reply, b"+ACK")  # the answer says that it has been processed
    caller.fence()


NAMES = [stream["name"] for stream in STREAMS]


def seen(caller: Caller, names: list[str] = NAMES) -> dict[str, Any]:
    """Return everything that the API shows of streams, messages and consumers."""
    found: dict[str, Any] = {}
    for name in names:
        # For a stream that never had a message nats-server lists 0 as deleted.
        asked = {"subjects_filter": ">", "deleted_details": name != "EMPTY"}
        info = caller.request(f"$JS.API.STREAM.INFO.{name}", asked)
        found[name] = comparable(info.json), info.json["created"]
        state = info.json["state"]
        for seq in range(state["first_seq"], state["last_seq"] + 1):
            found[f"{name}.{seq}"] = caller.request(f"$JS.API.STREAM.MSG.GET.{name}", {"seq": seq}).json
        for consumer in CONSUMERS.get(name, ()):
            told = caller.request(f"$JS.API.CONSUMER.INFO.{name}.{consumer['durable_name']}").json
            for volatile in ("ts", "num_waiting"):
                told.pop(volatile)
            for counts in ("delivered", "ack_floor"):
                told[counts].pop("last_active", None)
            found[f"{name} > {consumer['durable_name']}"] = told
    return found


@pytest.mark.parametrize("options", ENCRYPTED)
def test_what_is_stored_is_there_after_a_restart(launch: Launch, tmp_path: Path, options: str) -> None:
    server = launch(config=config(tmp_path / "js", options))
    with Caller(server) as caller:
        fill(caller)
        before = seen(caller)
    server.stop()
    server.start_again()
    with Caller(server) as caller:
        assert seen(caller) == before
        assert caller.request("l.new", b"x").json["stream"] == "LIMITS"
        assert caller.request("$JS.API.STREAM.DELETE.WORK").json["success"]
    server.stop()
    server.start_again()
    with Caller(server) as caller:
        names = caller.request("$JS.API.STREAM.NAMES").json["streams"]
        assert names == ["EMPTY", "FIRST", "INTEREST", "LIMITS", "SMALL"]


@pytest.mark.parametrize("options", ENCRYPTED)
def test_a_directory_moves_between_the_servers(move: Move, options: str) -> None:
    def filled(caller: Caller) -> dict[str, Any]:
        fill(caller)
        return seen(caller)

    before, second = move(filled, options)
    with Caller(second) as caller:
        after = seen(caller)
    assert after.keys() == before.keys()
    for name, value in before.items():
        assert after[name] == value, name


@pytest.mark.parametrize("cipher", ["chacha", "aes"])
def test_nothing_stored_is_readable_without_the_key(launch: Launch, tmp_path: Path, cipher: str) -> None:
    server = launch(config=config(tmp_path / "js", f"key: secret, cipher: {cipher}"))
    stream = {"name": "S", "subjects": ["plain.subject"], "description": "plain words"}
    consumer = {"stream_name": "S", "config": EXPLICIT | {"durable_name": "D", "description": "plain words"}}
    with Caller(server) as caller:
        assert "error" not in caller.request("$JS.API.STREAM.CREATE.S", stream).json
        assert "error" not in caller.request("$JS.API.CONSUMER.CREATE.S.D", consumer).json
        assert caller.request("plain.subject", b"plain words").json["seq"] == 1
    server.stop()
    files = [path for path in (tmp_path / "js").rglob("*") if path.is_file()]
    assert {"meta.inf", "meta.key", "1.blk", "1.key"} <= {path.name for path in files}
    assert not [path for path in files if b"plain" in path.read_bytes()]
    again = launch(config=config(tmp_path / "js", f"key: wrong, cipher: {cipher}"))
    with Caller(again) as caller:
        assert caller.request("$JS.API.STREAM.INFO.S").json["error"]["err_code"] == 10059
    assert "Error decrypting our stream metafile: unable to recover keys" in again.log
    again.stop()
    last = launch(config=config(tmp_path / "js", f"key: secret, cipher: {cipher}"))
    with Caller(last) as caller:
        assert caller.request("$JS.API.STREAM.INFO.S").json["state"]["messages"] == 1
        assert caller.request("$JS.API.CONSUMER.INFO.S.D").json["num_pending"] == 1


def undated(found: dict[str, Any]) -> dict[str, Any]:
    """Drop the creation times, which nats-server's conversion does not keep."""
    kept = {name: value[0] if name in NAMES else value for name, value in found.items()}
    for name in kept:
        if " > " in name:
            kept[name] = {key: value for key, value in kept[name].items() if key != "created"}
    return kept


CHANGES = {
    "key": ("key: secret", "key: other, prev_key: secret"),
    "cipher": ("key: secret", "key: secret, cipher: aes"),
    "both": ("key: secret, cipher: aes", "key: other, prev_key: secret"),
    "begins": ("", "key: secret"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_key_or_cipher(launch: Launch, kind: Kind, tmp_path: Path, change: str) -> None:
    if kind.is_reference and change != "begins":
        pytest.skip("nats-server 2.15.1 does not find the consumers again")
    before, now = CHANGES[change]
    server = launch(config=config(tmp_path / "js", before))
    with Caller(server) as caller:
        fill(caller)
        there = seen(caller)
    server.stop()
    again = launch(config=config(tmp_path / "js", now))
    with Caller(again) as caller:
        assert seen(caller) == there
        assert caller.request("l.new", b"x").json["stream"] == "LIMITS"


@pytest.mark.parametrize("change", CHANGES)
def test_what_nats_server_stored_is_converted_and_opened_by_it(
    kind: Kind, launch: Launch, tmp_path: Path, change: str
) -> None:
    if kind.is_reference:
        pytest.skip("needs the reference and another server")
    before, now = CHANGES[change]
    first = launch(config=config(tmp_path / "js", before), kind=REFERENCE)
    with Caller(first) as caller:
        fill(caller)
        there = seen(caller)
    first.stop()
    second = launch(config=config(tmp_path / "js", now), kind=kind)
    with Caller(second) as caller:
        assert seen(caller) == there
    second.stop()
    assert second.log.count("it is encrypted as is configured now") == len(STREAMS)
    without = now.split(",")[0] + (", cipher: aes" if "aes" in now else "")
    copies = [tmp_path / "copy", tmp_path / "wrong"]
    for copy in copies:
        shutil.copytree(tmp_path / "js", copy)
    third = launch(config=config(copies[0], without), kind=REFERENCE)
    with Caller(third) as caller:
        assert seen(caller) == there
    if before:  # the old key does not open it any more
        fourth = launch(config=config(copies[1], before.replace("secret", "wrong")), kind=kind)
        with Caller(fourth) as caller:
            assert caller.request("$JS.API.STREAM.NAMES").json["streams"] is None
        assert fourth.log.count("unable to recover keys") == len(STREAMS)


@pytest.mark.parametrize("change", ["cipher", "begins"])
def test_what_nats_server_converted_is_opened(
    kind: Kind, launch: Launch, tmp_path: Path, change: str
) -> None:
    if kind.is_reference:
        pytest.skip("needs the reference and another server")
    before, now = CHANGES[change]
    # nats-server refuses empty blocks, and finds no consumers after a change of the cipher.
    names = [name for name in NAMES if name != "EMPTY"] if change == "begins" else ["SMALL"]
    first = launch(config=config(tmp_path / "js", before), kind=kind)
    with Caller(first) as caller:
        fill(caller)
        there = seen(caller, names)
    if change == "cipher":
        del there["SMALL"]
    first.stop()
    for each in (REFERENCE, kind):
        server = launch(config=config(tmp_path / "js", now), kind=each)
        with Caller(server) as caller:
            found = seen(caller, names)
        assert undated({name: found[name] for name in there}) == undated(there)
        server.stop()


def test_a_change_of_compression_is_for_new_blocks(launch: Launch, kind: Kind, tmp_path: Path) -> None:
    if kind.is_reference:
        pytest.skip("nats-server 2.15.1 compresses from the next start only")
    server = launch(config=config(tmp_path / "js", "sync_interval: 500ms"))
    messages = tmp_path / "js" / "jetstream" / "$G" / "streams" / "S" / "msgs"
    stream = {"name": "S", "subjects": ["s"], "max_bytes": 120_000, "storage": "file"}

    def packed() -> dict[str, bool]:
        return {path.stem: path.read_bytes()[:3] == b"cmp" for path in messages.glob("*.blk")}

    with Caller(server) as caller:
        for action, compression, blocks in (("CREATE", "none", 2), ("UPDATE", "s2", 3)):
            answer = caller.request(f"$JS.API.STREAM.{action}.S", stream | {"compression": compression}).json
            assert answer["config"]["compression"] == compression
            while len(packed()) < blocks:
                caller.request("s", b"the same words again and again " * 50)
        until(lambda: packed() == {"1": False, "2": True, "3": False})


def test_acknowledged_messages_survive_a_kill(launch: Launch, kind: Kind, tmp_path: Path) -> None:
    server = Server(kind, tmp_path / "first", config=config(tmp_path / "js"))
    try:
        with Caller(server) as caller:
            fill(caller)
            caller.request("l.a", b"last")
            before = seen(caller)
    finally:
        server.kill()
    again = launch(config=config(tmp_path / "js"))
    with Caller(again) as caller:
        after = seen(caller)
    for name, value in before.items():
        if " > " not in name:  # consumers' states are written a little later
            assert after[name] == value, name


def test_what_was_acknowledged_is_removed_at_the_next_start(launch: Launch, tmp_path: Path) -> None:
    """With the blocks from before the acknowledgements, the consumers' states remove the messages again."""
    server = launch(config=config(tmp_path / "js"))
    stream = {"name": "S", "subjects": ["s.*"], "retention": "interest"}
    with Caller(server) as caller:
        caller.request("$JS.API.STREAM.CREATE.S", stream)
        for name, subject in (("A", "s.0"), ("B", "s.1"), ("C", "s.2"), ("D", "s.2")):
            consumer = EXPLICIT | {"durable_name": name, "filter_subject": subject}
            body = {"stream_name": "S", "config": consumer}
            assert "error" not in caller.request(f"$JS.API.CONSUMER.CREATE.S.{name}", body).json
        for number in range(12):
            caller.request(f"s.{number % 3}", b"x")
    server.stop()
    messages = tmp_path / "js" / "jetstream" / "$G" / "streams" / "S" / "msgs"
    shutil.copytree(messages, tmp_path / "before")
    server.start_again()
    with Caller(server) as caller:
        for name, count in (("A", 3), ("C", 4), ("D", 1)):
            caller.ask(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", b"%d" % count)
            for message in [caller.next() for _ in range(count)]:
                caller.request(message.reply, b"+ACK")
    server.stop()
    shutil.rmtree(messages)
    (tmp_path / "before").rename(messages)
    server.start_again()
    with Caller(server) as caller:
        info = caller.request("$JS.API.STREAM.INFO.S", {"subjects_filter": ">"}).json
    assert info["state"]["subjects"] == {"s.0": 1, "s.1": 4, "s.2": 3}


def test_a_stream_that_cannot_be_read_is_left_alone(launch: Launch, tmp_path: Path) -> None:
    server = launch(config=config(tmp_path / "js"))
    with Caller(server) as caller:
        fill(caller)
    server.stop()
    streams = tmp_path / "js" / "jetstream" / "$G" / "streams"
    (streams / "LIMITS" / "meta.sum").write_text("0" * 16)
    (streams / "WORK" / "meta.inf").unlink()
    meta = streams / "INTEREST" / "obs" / "D" / "meta.inf"
    meta.write_bytes(meta.read_bytes()[:-5])
    files = sorted(path for path in streams.rglob("*"))
    server.start_again()
    with Caller(server) as caller:
        names = caller.request("$JS.API.STREAM.NAMES").json["streams"]
        assert names == ["EMPTY", "FIRST", "INTEREST", "SMALL"]
    for text in ("checksums do not match", "Missing stream metafile"):
        assert text in server.log
    server.stop()
    assert {path for path in files if path.suffix != ".db"} <= set(streams.rglob("*"))


def test_the_longest_names_are_gone_for_good(launch: Launch, tmp_path: Path) -> None:
    """The name that a directory gets while it is deleted must fit into the file system's limit."""
    name, options = "N" * 255, config(tmp_path / "js", "max_file_store: 1000000")
    stream = {"name": name, "subjects": ["n"], "max_bytes": 900_000}
    consumer = {"stream_name": "S", "config": EXPLICIT | {"durable_name": name}}
    server = launch(config=options)
    with Caller(server) as caller:
        for _ in range(2):  # the second needs the first one's bytes
            assert "error" not in caller.request(f"$JS.API.STREAM.CREATE.{name}", stream).json
            assert caller.request(f"$JS.API.STREAM.DELETE.{name}").json.get("success") is True
        assert "error" not in caller.request("$JS.API.STREAM.CREATE.S", {"name": "S"}).json
        assert "error" not in caller.request(f"$JS.API.CONSUMER.DURABLE.CREATE.S.{name}", consumer).json
        assert caller.request(f"$JS.API.CONSUMER.DELETE.S.{name}").json["success"] is True
    server.stop()
    with Caller(launch(config=options)) as caller:
        assert caller.request("$JS.API.STREAM.NAMES").json["streams"] == ["S"]
        assert caller.request("$JS.API.CONSUMER.NAMES.S").json["consumers"] == []


def test_what_cannot_be_deleted_reserves_nothing(launch: Launch, tmp_path: Path, kind: Kind) -> None:
    if kind.is_reference:
        pytest.skip("the reference deletes in another way")
    stream = {"name": "S", "max_bytes": 900_000}
    server = launch(config=config(tmp_path / "js", "max_file_store: 1000000"))
    with Caller(server) as caller:
        assert "error" not in caller.request("$JS.API.STREAM.CREATE.S", stream).json
        (tmp_path / "js/jetstream/$G/streams/.S").touch()  # in the way of the deletion
        assert caller.request("$JS.API.STREAM.DELETE.S").json["error"]["err_code"] == 10050
        assert "error" not in caller.request("$JS.API.STREAM.CREATE.T", stream | {"name": "T"}).json


def test_messages_that_nobody_is_interested_in_any_more(launch: Launch, tmp_path: Path) -> None:
    """An interest stream removes messages when the consumer is deleted or its filter changes."""
    consumer = EXPLICIT | {"durable_name": "C", "filter_subjects": ["i.a", "i.b"]}
    other = EXPLICIT | {"durable_name": "D", "filter_subject": "i.c"}
    with Caller(launch(config=config(tmp_path / "js"))) as caller:

        def make(config: dict[str, Any]) -> None:
            subject = f"$JS.API.CONSUMER.CREATE.I.{config['durable_name']}"
            assert "error" not in caller.request(subject, {"stream_name": "I", "config": config}).json

        def messages() -> int:
            return int(caller.request("$JS.API.STREAM.INFO.I").json["state"]["messages"])

        stream = {"name": "I", "subjects": ["i.>"], "retention": "interest"}
        assert "error" not in caller.request("$JS.API.STREAM.CREATE.I", stream).json
        make(consumer)
        make(other)
        for subject in ("i.a", "i.b", "i.c", "i.b"):
            caller.request(subject, b"x")
        assert messages() == 4
        make(EXPLICIT | {"durable_name": "C", "filter_subject": "i.a"})
        until(lambda: messages() == 2)
        assert caller.request("$JS.API.CONSUMER.DELETE.I.D").json["success"] is True
        assert messages() == 1
        assert caller.request("$JS.API.CONSUMER.DELETE.I.C").json["success"] is True
        assert messages() == 0
