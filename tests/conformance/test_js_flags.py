"""Feature flags, and limits of the API."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.caller import Caller
from support.jetstream import config
from support.launch import Launch

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("domain", ["", "hub"])
def test_acks_and_flow_control_of_version_2(launch: Launch, tmp_path: Path, domain: str) -> None:
    flags = "feature_flags { js_ack_fc_v2: true, no_such_flag: true }"
    options = f"domain: {domain}" if domain else ""
    server = launch(config=config(tmp_path, options, flags))
    with Caller(server) as caller:
        stream = {"name": "S", "subjects": ["s.>"]}
        assert "error" not in caller.request("$JS.API.STREAM.CREATE.S", stream).json
        for name, more in (("PULL", {}), ("PUSH", {"deliver_subject": "to", "flow_control": True})):
            wanted = {"durable_name": name, "ack_policy": "explicit"} | more
            if more:
                wanted["idle_heartbeat"] = 1_000_000_000
            body = {"stream_name": "S", "config": wanted}
            assert "error" not in caller.request(f"$JS.API.CONSUMER.CREATE.S.{name}", body).json
        caller.subscribe("to")
        controls = 0
        for _ in range(30):
            caller.publish("s.a", b"x" * 100_000)
        acked = 0
        while acked < 30 or controls < 1:
            message = caller.next()
            tokens = message.reply.split(".")
            if tokens[1:2] == ["FC"]:
                assert (tokens[2], len(tokens[3]), tokens[4:6]) == (domain or "_", 8, ["S", "PUSH"])
                controls += 1
            elif message.subject.startswith("s."):
                assert tokens[:3] == ["$JS", "ACK", domain or "_"]
                assert tokens[4:7] == ["S", "PUSH", "1"] and len(tokens) == 11
                assert len(tokens[3]) == 8
                acked += 1
            else:
                continue
            caller.publish(message.reply, b"")
        caller.ask("$JS.API.CONSUMER.MSG.NEXT.S.PULL", b"1")
        pulled = caller.next()
        old = pulled.reply.split(".")
        del old[2:4]  # the server accepts both forms
        assert caller.request(".".join(old), b"+ACK").payload == b""
        for name, floor in (("PUSH", 30), ("PULL", 1)):
            told = caller.request(f"$JS.API.CONSUMER.INFO.S.{name}").json
            assert told["ack_floor"]["stream_seq"] == floor
    assert "Configured:    js_ack_fc_v2 (opt-in)" in server.log
    assert "Unsupported:   no_such_flag" in server.log


@pytest.mark.parametrize("infos", [False, True], ids=["requests", "infos"])
def test_a_queue_that_is_too_long_is_dropped(launch: Launch, tmp_path: Path, infos: bool) -> None:
    """Dropped requests get no answer; the server sends an advisory and logs a line."""
    limits = "request_queue_limit: 1000, info_queue_limit: 5" if infos else "request_queue_limit: 5"
    accounts = (
        "accounts { A { jetstream: enabled, users [{user: a, password: a}] },"
        " SYS { users [{user: s, password: s}] } }, system_account: SYS"
    )
    server = launch(config=config(tmp_path, limits, accounts))
    with Caller(server, user="a", password="a") as caller, Caller(server, user="s", password="s") as watcher:
        watcher.subscribe("$JS.EVENT.ADVISORY.API.LIMIT_REACHED")
        watcher.fence()
        subject = "$JS.API.STREAM.INFO.S" if infos else "$JS.API.STREAM.CREATE.S"
        caller.send(f"PUB {subject} 2\r\n{{}}\r\n".encode() * 4000)
        told = watcher.next().json
        assert told["type"] == "io.nats.jetstream.advisory.v1.api_limit_reached"
        assert told["server"] == "srv" and told["dropped"] >= (0 if server.kind.is_reference else 5)
        assert told.keys() == {"type", "id", "timestamp", "server", "dropped"}
        name = "JetStream API info queue" if infos else "JetStream API queue"
        server.wait_log(rf"{name} limit reached, dropping \d+ requests")


@pytest.mark.parametrize("flag", [False, True], ids=["version-1", "version-2"])
@pytest.mark.parametrize("domain", ["", "hub"])
def test_which_acks_are_understood(launch: Launch, tmp_path: Path, domain: str, flag: bool) -> None:
    """Version 1 and 2 are accepted, whatever the flag; a subject of another account or domain is not."""
    options = f"domain: {domain}" if domain else ""
    flags = f"feature_flags {{ js_ack_fc_v2: {str(flag).lower()} }}"
    server = launch(config=config(tmp_path, options, flags))
    with Caller(server) as caller:
        assert "error" not in caller.request("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"]}).json
        wanted = {"durable_name": "D", "ack_policy": "explicit"}
        body = {"stream_name": "S", "config": wanted}
        assert "error" not in caller.request("$JS.API.CONSUMER.CREATE.S.D", body).json
        for _ in range(6):
            caller.request("s", b"x")
        caller.ask("$JS.API.CONSUMER.MSG.NEXT.S.D", b"6")
        replies = [caller.next().reply.split(".") for _ in range(6)]
        shape = ["$JS", "ACK"] + ([domain or "_", replies[0][3]] if flag else []) + ["S", "D", "1", "1", "1"]
        assert replies[0][: len(shape)] == shape
        own = replies[0][2:4] if flag else [domain or "_", account_hash(tmp_path, launch)]
        rest = [reply[-7:] for reply in replies]
        assert caller.request(".".join(["$JS.ACK", *rest[0]]), b"+ACK").payload == b""
        assert caller.request(".".join(["$JS.ACK", *own, *rest[1]]), b"+ACK").payload == b""
        assert caller.request(".".join(["$JS.ACK", *own, *rest[2], "more", "tokens"]), b"+ACK").payload == b""
        for other in (["other", own[1]], [own[0], "XXXXXXXX"]):
            assert caller.unanswered(".".join(["$JS.ACK", *other, *rest[3]]), b"+ACK", "$JS.API.INFO")
        caller.publish(".".join(["$JS.ACK", *own, *rest[3]]), b"-NAK")
        assert caller.request(".".join(["$JS.ACK", *own, *rest[4]]), b"+TERM").payload == b""
        told = caller.request("$JS.API.CONSUMER.INFO.S.D").json
        assert told["ack_floor"]["stream_seq"] == 3 and told["num_ack_pending"] == 2


def account_hash(directory: Path, launch: Launch) -> str:
    """Return the account token of version 2's subjects for the global account."""
    server = launch(config=config(directory / "other", "", "feature_flags { js_ack_fc_v2: true }"))
    with Caller(server) as caller:
        assert "error" not in caller.request("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"]}).json
        body = {"stream_name": "S", "config": {"durable_name": "D", "ack_policy": "explicit"}}
        assert "error" not in caller.request("$JS.API.CONSUMER.CREATE.S.D", body).json
        caller.request("s", b"x")
        caller.ask("$JS.API.CONSUMER.MSG.NEXT.S.D", b"1")
        return caller.next().reply.split(".")[3]


@pytest.mark.parametrize("queue", [0, 3])
def test_a_limit_of_the_queue_that_is_not_set_is_the_default(
    launch: Launch, tmp_path: Path, queue: int
) -> None:
    """Requests that wait for each other's answer stay below any limit."""
    server = launch(config=config(tmp_path, f"request_queue_limit: {queue}"))
    with Caller(server) as caller:
        for _ in range(20):
            answer = caller.request("$JS.API.STREAM.INFO.NONE").json
            assert answer["error"]["err_code"] == 10059
