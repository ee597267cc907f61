"""Store directories of nats-server 2.9, with other files beside the blocks: gnats opens them as 2.15 does."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.caller import Caller
from support.jetstream import comparable, config
from support.launch import Launch
from support.servers import REFERENCE, Kind, Server

pytestmark = pytest.mark.timeout(60)

PLACES = ("/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin")
EXPLICIT = {"ack_policy": "explicit", "deliver_policy": "all", "replay_policy": "instant"}

STREAMS: list[dict[str, Any]] = [
    {"name": "BIG", "subjects": ["b.>"], "max_bytes": 120_000, "description": "<d>"},
    {"name": "LIMITS", "subjects": ["l.>"], "max_msgs_per_subject": 2},
    {"name": "WORK", "subjects": ["w.>"], "retention": "workqueue"},
    {"name": "INTEREST", "subjects": ["i.>"], "retention": "interest"},
    {
        "name": "KV_K",
        "subjects": ["$KV.K.>"],
        "max_msgs_per_subject": 3,
        "discard": "new",
        "deny_delete": True,
        "allow_rollup_hdrs": True,
        "allow_direct": True,
    },
    {"name": "EMPTY", "subjects": ["e"]},
]
CONSUMERS = ("BIG", "WORK", "INTEREST")


@dataclass(frozen=True)
class Installed(Kind):
    """A server installed on the system, outside this Python's environment."""

    place: str = ""

    def find(self) -> Path:
        return Path(self.place)


def old_server() -> Kind:
    """Find nats-server 2.9, which Debian has. Skips the test where it is not installed."""
    for place in PLACES:
        path = Path(place) / "nats-server"
        if path.exists():
            kind = Installed("nats-server 2.9", "nats-server", place=str(path))
            if kind.run(Path("/"), "--version").stdout.startswith("nats-server: v2.9."):
                return kind
    pytest.skip("nats-server 2.9 (Debian's package nats-server) is not installed")


def ask(caller: Caller, verb: str, body: object = None) -> Any:
    answer = caller.request(f"$JS.API.{verb}", body).json
    assert "error" not in answer, answer
    return answer


def fill(caller: Caller) -> None:
    for stream in STREAMS:
        settings = {"storage": "file", "retention": "limits", "num_replicas": 1} | stream
        ask(caller, f"STREAM.CREATE.{stream['name']}", settings)
    for name in CONSUMERS:
        body = {"stream_name": name, "config": EXPLICIT | {"durable_name": "D"}}
        ask(caller, f"CONSUMER.DURABLE.CREATE.{name}.D", body)
    for number in range(60):
        assert caller.request(f"b.{number % 3}", b"%d " % number * 400).json["seq"] == number + 1
        for prefix in "lwi":
            caller.request(f"{prefix}.{number % 5}", b"%d" % number, b"NATS/1.0\r\nA: b\r\n\r\n")
        caller.request(f"$KV.K.{number % 7}", b"value %d" % number)
    caller.request("$KV.K.1", b"", b"NATS/1.0\r\nKV-Operation: PURGE\r\nNats-Rollup: sub\r\n\r\n")
    for seq in (20, 21, 22, 50):
        ask(caller, "STREAM.MSG.DELETE.BIG", {"seq": seq})
    ask(caller, "STREAM.PURGE.BIG", {"seq": 5})
    for name in CONSUMERS:
        caller.ask(f"$JS.API.CONSUMER.MSG.NEXT.{name}.D", b"12")
        for number, message in enumerate([caller.next() for _ in range(12)]):
            if number < 6 or number % 3 == 0:
                assert caller.request(message.reply, b"+ACK").payload == b""


def seen(caller: Caller) -> dict[str, Any]:
    """Return everything that the API shows of streams, messages and consumers."""
    found: dict[str, Any] = {}
    for stream in STREAMS:
        name = stream["name"]
        asked = {"subjects_filter": ">", "deleted_details": name != "EMPTY"}
        told = ask(caller, f"STREAM.INFO.{name}", asked)
        del told["cluster"]
        first, last = (told["state"][which] for which in ("first_seq", "last_seq"))
        if not last:
            del told["state"]["first_seq"]  # 1 where there was an .idx, 0 in a new stream
        found[name] = comparable(told), told["created"]
        for seq in range(first, last + 1) if last else ():
            found[f"{name} {seq}"] = caller.request(f"$JS.API.STREAM.MSG.GET.{name}", {"seq": seq}).json
    for name in CONSUMERS:
        told = ask(caller, f"CONSUMER.INFO.{name}.D")
        for part in (told["delivered"], told["ack_floor"]):
            part.pop("last_active", None)
        for other in ("ts", "cluster"):
            told.pop(other, None)
        found[f"{name} > D"] = told
    return found


def test_a_directory_of_nats_server_2_9(launch: Launch, kind: Kind, tmp_path: Path) -> None:
    old = Server(old_server(), tmp_path / "old", config=config(tmp_path / "js"))
    try:
        with Caller(old) as caller:
            fill(caller)
        old.stop(signal.SIGINT)
    finally:
        old.kill()
    files = {path.suffix for path in (tmp_path / "js").rglob("*.*")}
    assert {".blk", ".idx", ".fss"} <= files
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "js", copy)
    reference = launch(config=config(copy), kind=REFERENCE)
    with Caller(reference) as caller:
        wanted = seen(caller)
    reference.stop()
    server = launch(config=config(tmp_path / "js"))
    with Caller(server) as caller:
        found = seen(caller)
        for name, value in wanted.items():
            assert found[name] == value, name
        assert found.keys() == wanted.keys()
        assert caller.request("b.new", b"x").json["seq"] == 61
        assert caller.request("$KV.K.1", b"again").json["stream"] == "KV_K"
        caller.ask("$JS.API.CONSUMER.MSG.NEXT.WORK.D", json.dumps({"batch": 1}).encode())
        assert caller.request(caller.next().reply, b"+ACK").payload == b""
        before = seen(caller)
    server.stop()
    left = {path.suffix for path in (tmp_path / "js").rglob("*.*")}
    assert not left & {".idx", ".fss"}
    server.start_again()
    with Caller(server) as caller:
        assert seen(caller) == before
