"""A refused request leaves nothing on the disk, and a server starts beside streams that it cannot recover."""

from __future__ import annotations

import json
import resource
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.caller import Caller, Message
from support.faults import Home, create, info, stored
from support.servers import Server, until
from support.wire import header

from gnats.store.format.highway import checksum

pytestmark = pytest.mark.timeout(120)

DURABLE = {"durable_name": "C", "ack_policy": "explicit"}


@contextmanager
def no_descriptors(server: Server) -> Iterator[None]:
    """Let the server open no further descriptors inside the `with` block."""
    pid = server.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    lowest = next(fd for fd in range(len(used) + 1) if fd not in used)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def files(home: Home) -> list[str]:
    return sorted(str(path.relative_to(home.store)) for path in home.store.rglob("*"))


def ask(caller: Caller, subject: str, body: Any = None) -> Any:
    return caller.request(f"$JS.API.{subject}", body).json


@pytest.mark.parametrize("key", ["", "key: secret"], ids=["clear", "encrypted"])
def test_what_is_refused_for_want_of_descriptors_is_not_there(home: Home, key: str) -> None:
    home.options = key
    server = home.start()
    with Caller(server) as caller:
        with no_descriptors(server):
            answer = ask(caller, "STREAM.CREATE.FIRST", {"name": "FIRST", "subjects": ["FIRST.>"]})
            assert "error" in answer and str(home.path) not in answer["error"]["description"]
        assert not list(home.store.rglob("FIRST"))
        create(caller, "S", storage="file")
        before = files(home)
        with no_descriptors(server):
            for subject, body in (
                ("STREAM.CREATE.NEW", {"name": "NEW", "subjects": ["NEW.>"]}),
                ("STREAM.CREATE.NEW", {"name": "NEW", "subjects": ["NEW.>"], "first_seq": 100}),
                ("STREAM.UPDATE.S", {"name": "S", "subjects": ["S.>", "OTHER"]}),
                ("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": DURABLE}),
            ):
                answer = ask(caller, subject, body)
                assert "error" in answer, subject
                assert str(home.path) not in answer["error"]["description"]
        assert files(home) == before
        assert ask(caller, "STREAM.NAMES")["streams"] == ["S"]
    home.stop()
    with Caller(home.start()) as caller:
        assert ask(caller, "STREAM.NAMES")["streams"] == ["S"]
        assert info(caller, "S")["config"]["subjects"] == ["S.>"]
        assert not ask(caller, "CONSUMER.NAMES.S")["consumers"]
        create(caller, "NEW", storage="file")
        assert "error" not in ask(caller, "CONSUMER.CREATE.S.C", {"stream_name": "S", "config": DURABLE})
    home.stop()


def test_a_rollup_that_cannot_open_a_file_is_done_later(home: Home) -> None:
    with Caller(home.start()) as caller:
        window = 10**8  # a start reads the messages of the last 100 ms
        create(
            caller, "S", storage="file", allow_rollup_hdrs=True, max_bytes=127_000, duplicate_window=window
        )
        for payload in (b"old", b"older"):
            caller.request("S.a", payload)
        for _ in range(3):
            caller.request("S.b", bytes(30_000))  # a block each
        later = time.time() + 2 * window / 10**9
    home.stop()
    assert len(list(home.store.rglob("*.blk"))) > 1
    until(lambda: time.time() > later)
    server = home.start()
    with Caller(server) as caller:
        caller.request("S.b", b"the last block is open now")
        with no_descriptors(server):
            assert "seq" in caller.request("S.a", b"new", header=header("Nats-Rollup: sub")).json
        assert info(caller, "S")["state"]["messages"] == 7
        until(lambda: info(caller, "S")["state"]["messages"] == 5)
        assert ask(caller, "STREAM.MSG.GET.S", {"next_by_subj": "S.a", "seq": 1})["message"]["seq"] == 7
    home.stop()


def change(directory: Path, key: str, **members: Any) -> None:
    """Change members of a description (meta.inf), and its checksum."""
    path = directory / "meta.inf"
    document = json.loads(path.read_bytes()) | members
    data = json.dumps(document).encode()
    path.write_bytes(data)
    (directory / "meta.sum").write_bytes(checksum(key.encode(), data).hex().encode())


HOSTILE: list[dict[str, Any]] = [
    {"inactive_threshold": 2**63 - 1},
    {"max_waiting": 2**32},
    {"sample_freq": "4294967296"},
    {"ack_wait": 2**63 - 1},
    {"opt_start_seq": 2**64 - 1, "deliver_policy": "by_start_sequence"},
    {"max_deliver": 2**63 - 1},
    {"backoff": [2**63 - 1]},
    {"filter_subject": "\x00"},
    {"max_ack_pending": 2**63 - 1},
    {"Name": "another"},
    {"rate_limit_bps": 2**64 - 1},
]


def test_consumers_that_cannot_be_recovered_keep_no_server_from_starting(home: Home) -> None:
    with Caller(home.start()) as caller:
        create(caller, "S", storage="file")
        caller.request("S.a", b"message")
        for number in range(len(HOSTILE)):
            config = {"durable_name": f"C{number}", "ack_policy": "explicit"}
            assert "error" not in ask(
                caller, f"CONSUMER.CREATE.S.C{number}", {"stream_name": "S", "config": config}
            )
        create(caller, "LAST", storage="file")
    home.stop()
    consumers = home.stream("S") / "obs"
    for number, members in enumerate(HOSTILE):
        change(consumers / f"C{number}", f"S/C{number}", **members)
    (consumers / "junk").mkdir()
    (consumers / "file").write_bytes(b"no directory")
    for _ in range(2):
        with Caller(home.start()) as caller:
            assert sorted(ask(caller, "STREAM.NAMES")["streams"]) == ["LAST", "S"]
            assert stored(caller, "S") == {1: ("S.a", b"message")}
            assert caller.request("LAST.a", b"served").json["stream"] == "LAST"
            assert "error" not in ask(caller, "CONSUMER.CREATE.S.C", {"stream_name": "S", "config": DURABLE})
        home.stop()


STREAMS: list[dict[str, Any]] = [
    {"max_msgs": 2**63 - 1},
    {"max_age": 2**63 - 1},
    {"first_seq": 2**64 - 1},
    {"duplicate_window": 2**63 - 1},
    {"subjects": ["\x00"]},
    {"name": "\x00"},
    {"name": "../../other"},
    {"storage": "memory"},
    {"retention": "no such"},
    {"max_msg_size": 2**31},
]


def test_streams_that_cannot_be_recovered_keep_no_server_from_starting(home: Home) -> None:
    with Caller(home.start()) as caller:
        for number in range(len(STREAMS)):
            create(caller, f"S{number}", storage="file")
            caller.request(f"S{number}.a", b"message")
        create(caller, "Z", storage="file")
        caller.request("Z.a", b"message")
    home.stop()
    for number, members in enumerate(STREAMS):
        change(home.stream(f"S{number}"), f"S{number}", **members)
    streams = home.stream("Z").parent
    (streams / "junk").mkdir()
    (streams / "file").write_bytes(b"no directory")
    shutil.rmtree(home.stream("S9") / "msgs")
    (home.stream("S9") / "msgs").write_bytes(b"no directory")
    for _ in range(2):
        server = home.start()
        with Caller(server) as caller:
            assert stored(caller, "Z") == {1: ("Z.a", b"message")}
            create(caller, "NEW", storage="file")
            assert ask(caller, "STREAM.DELETE.NEW")["success"]
        assert "junk" in server.log
        home.stop()


def sequence(message: Message) -> int:
    """Return the stream sequence of a delivered message."""
    return int(message.reply.split(".")[-4])


def test_a_consumer_waits_for_what_cannot_be_read_now(home: Home) -> None:
    """Without descriptors a consumer delivers later; it skips no message."""
    with Caller(home.start()) as caller:
        create(caller, "S", storage="file", max_bytes=100_000, duplicate_window=100_000_000)
        for number in range(1000):
            caller.publish(f"S.{number % 3}", b"%d " % number * 20)
        caller.fence()
        published = time.monotonic()
        config = {"durable_name": "C", "ack_policy": "explicit"}
        assert "error" not in ask(caller, "CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    home.stop()
    until(lambda: time.monotonic() - published > 0.1)  # a start maps the blocks within the duplicate window
    server = home.start()
    with Caller(server) as caller:
        state = info(caller, "S")["state"]
        assert len(home.blocks("S")) > 2
        with no_descriptors(server):
            # Messages that are readable now, and a status at the end.
            caller.ask("$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch": 1000, "no_wait": true}')
            found = []
            while not (message := caller.next()).header:
                found.append(sequence(message))
            assert len(found) < state["messages"]
        while len(found) < state["messages"]:
            caller.ask("$JS.API.CONSUMER.MSG.NEXT.S.C", b"1")
            found.append(sequence(caller.next()))
        assert found == list(range(state["first_seq"], state["last_seq"] + 1))
    home.stop()
