"""Malformed header blocks: the server stores, delivers and copies them, and reads them after a restart."""

from __future__ import annotations

import json
import random
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.caller import Caller, Message
from support.jetstream import config
from support.launch import Launch
from support.servers import Kind

pytestmark = pytest.mark.timeout(300)

VERSION = b"NATS/1.0\r\n"
INCREMENT = VERSION + b"Nats-Incr: 1\r\n\r\n"
MARKS = [b"\r\n", b"\r", b"\n", b":", b" ", b"\0", b"\xff", b"\r\n\r\n", b"1", b"sub", b"x", b"@every 1h"]
NAMES = [
    *("Nats-Msg-Id", "Nats-TTL", "Nats-Rollup", "Nats-Incr", "Nats-Counter-Sources", "Nats-Stream-Source"),
    *("Nats-Expected-Stream", "Nats-Expected-Last-Sequence", "Nats-Expected-Last-Subject-Sequence"),
    *("Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit", "Nats-Schedule", "Nats-Schedule-Target"),
    *("Nats-Schedule-TTL", "Nats-Schedule-Next", "Nats-Scheduler", "Nats-Request-Info", "Nats-Marker-Reason"),
    *("Nats-Trace-Dest", "Nats-Trace-Only", "traceparent", "Nats-Required-Api-Level", "KV-Operation"),
]
WHOLE = [
    f"{name}: {'1h' if 'TTL' in name else 1}\r\n".encode() for name in NAMES
]  # no message expires meanwhile
PIECES = [*MARKS, *(name.encode() for name in NAMES), *WHOLE]
STREAMS = {
    "PLAIN": {"subjects": ["plain.>"], "allow_direct": True},
    "ALL": {
        "subjects": ["all.>"],
        "allow_direct": True,
        "allow_msg_ttl": True,
        "allow_rollup_hdrs": True,
        "allow_atomic": True,
        "allow_batched": True,
        "allow_msg_schedules": True,
        "republish": {"src": "all.>", "dest": "again.>"},
    },
    "NEW": {
        "subjects": ["new.>"],
        "allow_rollup_hdrs": True,
        "max_msgs_per_subject": 1,
        "discard": "new",
        "discard_new_per_subject": True,
    },
    "COUNT": {"subjects": ["count.>"], "allow_msg_counter": True, "allow_direct": True},
    "MIRROR": {"mirror": {"name": "PLAIN"}, "mirror_direct": True},
    "SOURCE": {"sources": [{"name": "PLAIN"}, {"name": "ALL"}]},
}
CONSUMERS = {
    "bodies": {},
    "headers": {"headers_only": True},
    "pinned": {"priority_groups": ["g"], "priority_policy": "pinned_client", "priority_timeout": 10**9},
    "both": {
        "headers_only": True,
        "priority_groups": ["g"],
        "priority_policy": "pinned_client",
        "priority_timeout": 10**9,
    },
    "last": {"deliver_policy": "last_per_subject", "filter_subject": ">", "headers_only": True},
}


def headers(seed: int) -> list[bytes]:
    """Return a block of each length up to 80: pieces of well-formed ones, and random bytes."""
    rng = random.Random(seed)
    blocks = []
    for length in range(1, 81):
        block = VERSION * rng.randrange(2)
        while len(block) < length:
            block += rng.choice(PIECES) if rng.random() < 0.9 else rng.randbytes(2)
        blocks += [block[:length], rng.randbytes(length)]
    version = VERSION + b"\r\n"
    return [*blocks, b"\r", b"\n", b"\r\n", *(version[:n] for n in range(1, len(version) + 1))]


def make(caller: Caller) -> None:
    for name, stream in STREAMS.items():
        answer = caller.request(f"$JS.API.STREAM.CREATE.{name}", {"name": name} | stream).json
        assert "error" not in answer, answer


def fill(caller: Caller, prefix: str, blocks: list[bytes]) -> int:
    """Publish a message with each block; return how many are stored. Others are refused or batched."""
    stored = 0
    for number, block in enumerate(blocks):
        caller.publish(f"{prefix}.{number}", b"body", f"_INBOX.caller.{prefix}", block)
    caller.fence()
    caller.request(f"{prefix}.last", b"", INCREMENT if prefix == "count" else b"")
    waiting, caller._waiting = caller._waiting, []
    for message in waiting:
        stored += message.payload.startswith(b'{"stream"') and b"seq" in message.payload
    return stored


def consume(caller: Caller, stream: str, name: str, more: dict[str, object], n: int) -> list[Message]:
    """Make a consumer and return the first `n` messages that it delivers."""
    config = {"name": name, "ack_policy": "explicit", "max_ack_pending": 10_000} | more
    body = {"stream_name": stream, "config": config, "action": "create"}
    answer = caller.request(f"$JS.API.CONSUMER.CREATE.{stream}.{name}", body).json
    assert "error" not in answer, answer
    group = {"group": "g"} if "priority_groups" in more else {}
    pull = json.dumps({"batch": n, "no_wait": True} | group).encode()
    inbox = caller.ask(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", pull)
    found = []
    while len(found) < n:
        message = caller.next()
        if message.reply:
            found.append(message)
        elif message.subject == inbox:
            break  # a status: no more messages
    return found


def begun(header: bytes) -> bytes:
    return header[:-2] if len(header) > 2 else VERSION


def check(caller: Caller, run: str) -> dict[str, int]:
    """Read every message in all ways and compare; return the number of messages of each stream."""
    sizes = {}
    for stream in STREAMS:
        state = caller.request(f"$JS.API.STREAM.INFO.{stream}").json["state"]
        n = sizes[stream] = state["messages"]
        whole = consume(caller, stream, f"bodies{run}", {}, n + 1)
        assert len(whole) == n
        for name, more in CONSUMERS.items():
            if name == "bodies":
                continue
            found = consume(caller, stream, name + run, more, n + 1)
            assert len(found) == n if name != "last" else len(found) <= n, (stream, name, len(found), n)
            by_subject = {message.subject: message for message in whole}
            for first, message in zip(whole, found, strict=False):
                origin = first if name != "last" else by_subject[message.subject]
                expected = begun(origin.header)
                if more.get("headers_only"):
                    expected += b"Nats-Msg-Size: %d\r\n" % len(origin.payload)
                if "priority_groups" in more:
                    expected += message.header[len(expected) : -2]
                    assert b"Nats-Pin-Id: " in message.header[-41:]
                assert message.header == expected + b"\r\n"
                assert message.payload == (b"" if more.get("headers_only") else origin.payload)
        last = state["last_seq"]
        for seq in range(state["first_seq"], last + 1):
            caller.request(f"$JS.API.STREAM.MSG.GET.{stream}", {"seq": seq})
            if stream in ("PLAIN", "ALL", "COUNT"):
                caller.request(f"$JS.API.DIRECT.GET.{stream}", {"seq": seq})
        if stream == "ALL":
            asked = {"multi_last": ["all.>"], "batch": 1000}
            inbox = caller.ask(f"$JS.API.DIRECT.GET.{stream}", json.dumps(asked).encode())
            while not caller.next_on(inbox).header.startswith(b"NATS/1.0 204"):
                pass
    return sizes


@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_called_a_header(kind: Kind, launch: Launch, tmp_path: Path, seed: int) -> None:
    if kind.is_reference:
        pytest.skip("the reference crashes at a header of one byte")
    blocks = headers(seed)
    server = launch(config=config(tmp_path / "js"))
    with ExitStack() as stack:
        caller = stack.enter_context(Caller(server))
        other = stack.enter_context(Caller(server, inbox="_INBOX.other"))
        other.subscribe("again.>")
        make(caller)
        assert fill(caller, "plain", blocks) >= len(blocks) // 2
        for prefix in ("all", "count", "new", "new"):
            fill(caller, prefix, blocks)
        while (
            caller.request("$JS.API.STREAM.INFO.MIRROR").json["state"]["messages"]
            != (caller.request("$JS.API.STREAM.INFO.PLAIN").json["state"]["messages"])
        ):
            caller.fence()
        before = check(caller, "before")
        other.fence()
        assert all(b"Nats-Subject: all." in message.header for message in other._waiting)
        assert other._waiting
    server.stop()
    server = launch(config=config(tmp_path / "js"))
    with Caller(server) as caller:
        after = check(caller, "after")
        for name in ("PLAIN", "COUNT", "NEW"):
            assert after[name] == before[name]
        assert fill(caller, "plain", blocks[:10]) >= 0
    assert "failed" not in server.log
