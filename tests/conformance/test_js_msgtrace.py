"""Traces of messages to streams, beside the reference's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.caller import Caller
from support.jetstream import comparable
from support.launch import Launch
from support.servers import REFERENCE, Server, until

pytestmark = pytest.mark.timeout(60)

Act = Callable[[Caller], list[Any]]

STREAMS: list[dict[str, Any]] = [
    {"name": "S", "subjects": ["s.>"]},
    {
        "name": "TO",
        "subjects": ["to.>"],
        "subject_transform": {"src": "to.*", "dest": "made.{{wildcard(1)}}"},
        "republish": {"src": "made.*", "dest": "again.{{wildcard(1)}}"},
    },
    {"name": "INTEREST", "subjects": ["i.>"], "retention": "interest"},
    {"name": "FULL", "subjects": ["full"], "max_msgs": 1, "discard": "new"},
    {"name": "SMALL", "subjects": ["small"], "max_msg_size": 200},
    {"name": "COUNT", "subjects": ["count"], "allow_msg_counter": True},
    {"name": "ROLL", "subjects": ["roll"], "allow_rollup_hdrs": True},
    {"name": "ATOMIC", "subjects": ["atomic"], "allow_atomic": True},
]


def headers(fields: dict[str, str]) -> bytes:
    lines = "".join(f"{key}: {value}\r\n" for key, value in fields.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


@pytest.fixture(scope="module")
def callers(
    launch_shared: Launch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Caller, Caller]]:
    with ExitStack() as stack:
        found = []
        for more in ({}, {"kind": REFERENCE}):
            config = f"server_name: srv, jetstream {{ store_dir: '{tmp_path_factory.mktemp('js')}' }}"
            caller = stack.enter_context(Caller(launch_shared(config=config, **more)))
            for stream in STREAMS:
                answer = caller.request(f"$JS.API.STREAM.CREATE.{stream['name']}", stream).json
                assert "error" not in answer, answer
            body = {"stream_name": "INTEREST", "config": {"durable_name": "D", "filter_subject": "i.heard"}}
            answer = caller.request("$JS.API.CONSUMER.CREATE.INTEREST.D.i.heard", body).json
            assert "error" not in answer, answer
            caller.subscribe("dest")
            found.append(caller)
        yield found[0], found[1]


def same(callers: tuple[Caller, Caller], act: Act) -> list[Any]:
    ours, theirs = (act(caller) for caller in callers)
    assert ours == theirs
    return theirs


def without(event: Any) -> Any:
    """Return a trace without the values that differ from run to run."""
    event = json.loads(event) if isinstance(event, bytes) else event
    event["server"] = sorted(event["server"])
    for each in event["events"]:
        each.pop("cid", None)
    return comparable(event)


def last(caller: Caller, stream: str) -> Any:
    return caller.request(f"$JS.API.STREAM.INFO.{stream}").json["state"]["last_seq"]


def traced(caller: Caller, subject: str, payload: bytes = b"payload", **more: str) -> Any:
    """Publish a message with a trace destination and return its trace."""
    fields = {"Nats-Trace-Dest": "dest"} | {key.replace("_", "-"): value for key, value in more.items()}
    caller.publish(subject, payload, "", headers(fields))
    return without(caller.next_on("dest").payload)


def js_event(event: Any) -> dict[str, Any]:
    [found] = [dict(each) for each in dict(event)["events"] if dict(each)["type"] == "js"]
    return found


@pytest.mark.parametrize("only", ["", "true"])
@pytest.mark.parametrize(
    ("stream", "subject", "told"),
    [
        ("S", "s.a", {"subject": "s.a"}),
        ("TO", "to.x", {"subject": "made.x"}),
        ("INTEREST", "i.heard", {"subject": "i.heard"}),
        ("INTEREST", "i.nobody", {"subject": "i.nobody", "nointerest": True}),
    ],
)
def test_a_message_that_is_stored(
    callers: tuple[Caller, Caller], stream: str, subject: str, told: dict[str, Any], only: str
) -> None:
    """The trace names the stream; with Nats-Trace-Only the message is not stored."""

    def act(caller: Caller) -> list[Any]:
        before = last(caller, stream)
        event = traced(caller, subject, Nats_Trace_Only=only)
        if not only:
            until(lambda: last(caller, stream) > before)  # nats-server stores it after sending the trace
        return [event, last(caller, stream) - before]

    event, more = same(callers, act)
    assert js_event(event) == {"type": "js", "ts": "time", "stream": stream} | told
    assert more == (0 if only else 1)


def test_what_is_stored_is_not_traced_again(callers: tuple[Caller, Caller]) -> None:
    def act(caller: Caller) -> list[Any]:
        before = last(caller, "S")
        traced(caller, "s.kept", Other="x")
        until(lambda: last(caller, "S") > before)
        stored = caller.request("$JS.API.STREAM.MSG.GET.S", {"last_by_subj": "s.kept"}).json["message"]
        return [stored["hdrs"], stored["data"]]

    same(callers, act)


def test_consumers_and_subscribers_hear_nothing_of_what_is_only_traced(
    callers: tuple[Caller, Caller],
) -> None:
    def act(caller: Caller) -> list[Any]:
        sids = [caller.subscribe("s.heard"), caller.subscribe("again.heard")]
        found = [traced(caller, subject, Nats_Trace_Only="1") for subject in ("s.heard", "to.heard")]
        caller.request("to.heard", b"republished", b"")
        found.append(caller.next_on("again.heard").payload)
        for sid in sids:
            caller.send(f"UNSUB {sid}\r\n".encode())
        for event in found[:2]:
            event[-1] = (event[-1][0], sorted(event[-1][1], key=str))
        return [*found, caller.fence()]

    same(callers, act)


@pytest.mark.parametrize("only", ["", "true"])
@pytest.mark.parametrize(
    ("subject", "fields", "error"),
    [
        ("s.a", {"Nats-Expected-Stream": "OTHER"}, "expected stream does not match"),
        ("s.a", {"Nats-Expected-Last-Sequence": "9999"}, "last sequence mismatch: 9999 vs "),
        ("s.a", {"Nats-Expected-Last-Sequence": "x"}, "last sequence mismatch: 18446744073709551615 vs "),
        (
            "s.none",
            {"Nats-Expected-Last-Subject-Sequence": "77"},
            "last sequence by subject mismatch: 77 vs 0",
        ),
        ("s.a", {"Nats-Expected-Last-Subject-Sequence-Subject": "s.b"}, "(10193)"),
        ("s.a", {"Nats-Expected-Last-Msg-Id": 'a "b'}, 'last msgid mismatch: "a \\"b" vs ""'),
        ("s.a", {"Nats-TTL": "1h"}, "message TTL disabled"),
        ("s.a", {"Nats-Rollup": "all"}, "rollup not permitted"),
        ("s.a", {"Nats-Incr": "1"}, "message counters is disabled (10168)"),
        ("s.a", {"Nats-Schedule": "@every 1h"}, "(10188)"),
        ("s.a", {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"}, "atomic publish is disabled (10174)"),
        ("roll", {"Nats-Rollup": "Other"}, 'rollup value invalid: "other"'),
        ("count", {"Other": "x"}, "message counter increment is missing (10169)"),
        ("small", {"Other": "x" * 200}, "maximum payload exceeded"),
    ],
)
def test_a_message_that_is_refused(
    callers: tuple[Caller, Caller], subject: str, fields: dict[str, str], error: str, only: str
) -> None:
    only = "" if "Nats-Batch-Id" in fields else only  # nats-server counts it to the batch even then
    fields |= {"Nats-Trace-Only": only} if only else {}
    event, told = same(
        callers,
        lambda caller: [
            traced(caller, subject, b"" if subject == "count" else b"payload", **fields),
            caller.fence(),
        ],
    )
    assert error in js_event(event)["error"]
    assert "subject" not in js_event(event)
    assert told == []


def test_a_message_id_that_is_known(callers: tuple[Caller, Caller]) -> None:
    def act(caller: Caller) -> list[Any]:
        found = [traced(caller, "s.id", Nats_Msg_Id="one") for _ in range(2)]
        return [*found, traced(caller, "s.id", Nats_Msg_Id="one", Nats_Trace_Only="true")]

    first, *others = same(callers, act)
    assert "error" not in js_event(first)
    assert [js_event(event)["error"] for event in others] == ["msgid is duplicate"] * 2


def test_a_stream_that_is_full(callers: tuple[Caller, Caller]) -> None:
    def act(caller: Caller) -> list[Any]:
        return [traced(caller, "full", Nats_Trace_Only=only) for only in ("true", "", "")]

    first, second, third = same(callers, act)
    assert "error" not in js_event(first) and "error" not in js_event(second)
    assert js_event(third)["error"] == "maximum messages exceeded"
    assert js_event(third)["subject"] == "full"


def test_a_reply_is_sent_unless_it_is_only_traced(callers: tuple[Caller, Caller]) -> None:
    def act(caller: Caller) -> list[Any]:
        answer = caller.request("s.r", b"x", headers({"Nats-Trace-Dest": "dest"})).json
        caller.next_on("dest")
        fields = {"Nats-Trace-Dest": "dest", "Nats-Trace-Only": "true"}
        silent = caller.unanswered("s.r", b"x", "$JS.API.INFO", headers(fields))
        caller.next_on("dest")
        fields["Nats-Expected-Stream"] = "OTHER"
        refused = caller.request("s.r", b"x", headers(fields)).json
        caller.next_on("dest")
        return [answer.keys(), silent, refused]

    _, silent, refused = same(callers, act)
    assert silent and refused["error"]["err_code"] == 10060


def test_the_end_of_a_batch(callers: tuple[Caller, Caller]) -> None:
    def act(caller: Caller) -> list[Any]:
        batch = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"}
        caller.request("atomic", b"1", headers(batch))
        batch |= {"Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1", "Nats-Trace-Dest": "dest"}
        answer = caller.request("atomic", b"2", headers(batch)).json
        event = without(caller.next_on("dest").payload)
        batch["Nats-Batch-Id"] = "other"
        refused = caller.request("atomic", b"2", headers(batch)).json
        return [answer, event, refused, without(caller.next_on("dest").payload)]

    _, event, _, refused = same(callers, act)
    assert js_event(event)["subject"] == "atomic"
    assert js_event(refused)["error"] == "atomic publish batch is incomplete (10176)"


@pytest.mark.parametrize("allow", [True, False])
@pytest.mark.parametrize("only", ["", "true"])
def test_a_stream_of_another_account(launch: Launch, tmp_path: Path, allow: bool, only: str) -> None:
    """Behind a service import, the trace has the stream's event only where the export allows it."""

    def act(server: Server) -> list[Any]:
        with Caller(server, "a") as owner, Caller(server, "b") as other:
            stream = {"name": "S", "subjects": ["s.>"]}
            assert "error" not in owner.request("$JS.API.STREAM.CREATE.S", stream).json
            other.subscribe("dest")
            event = traced(other, "there", Nats_Trace_Only=only)
            other.fence()
            if not only:
                until(lambda: last(owner, "S"))  # nats-server stores it after sending the trace
            return [event, last(owner, "S")]

    found = []
    for number, more in enumerate(({}, {"kind": REFERENCE})):
        config = f"""
            server_name: srv, jetstream {{ store_dir: '{tmp_path}/{number}' }}
            accounts {{
              A {{ jetstream: enabled, users: [{{user: a, password: pw}}]
                  exports: [{{service: "s.x", allow_trace: {str(allow).lower()}}}] }}
              B {{ users: [{{user: b, password: pw}}]
                  imports: [{{service: {{account: A, subject: "s.x"}}, to: "there"}}] }}
            }}"""
        found.append(act(launch(config=config, **more)))
    ours, theirs = found
    assert ours == theirs
    kinds = [dict(event)["type"] for event in dict(theirs[0])["events"]]
    assert kinds == (["in", "si", "js"] if allow else ["in", "si"])
