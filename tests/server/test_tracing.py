"""Traces in the log and traces of messages."""

import asyncio
import json
import threading

import pytest
from support.natspy import joined

from gnats.events import msgtrace

from .conftest import Start
from .peer import Log

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({}, []),
        (
            {"trace_verbose": True},
            ["<<- [SUB a q 1]", "<<- [PUB b  5]", '<<- MSG_PAYLOAD: ["hello"]', "<<- [PUB c d 0]"],
        ),
        (
            {"trace_verbose": True, "max_traced_msg_len": 2},
            ["<<- [SUB a q 1]", "<<- [PUB b  5]", '<<- MSG_PAYLOAD: ["he..."]', "<<- [PUB c d 0]"],
        ),
        (
            {"trace_verbose": True, "trace_headers": True},
            ["<<- [SUB a q 1]", "<<- [PUB b  5]", "<<- [PUB c d 0]"],
        ),
    ],
)
async def test_the_system_accounts_clients_are_traced_verbosely(
    start: Start, options: dict[str, object], lines: list[str]
) -> None:
    log = Log()
    log.trace_on = True
    server = await start(log, **options)
    log.lines.clear()
    for account in (server.global_account, server.system_account):
        client = server.internal_clients.new(account)
        client.subscribe(b"a", lambda message: None, b"q")
        client.publish(b"b", b"hello")
        client.publish(b"c", b"", reply=b"d")
    assert log.with_text("[TRC] SYSTEM - ") == [f"[TRC] SYSTEM - {line}" for line in lines]


async def test_long_message_traces_are_made_while_others_are_served(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The traces of one client come in order; those of others do not wait."""
    server = await start(Log())
    begun, go_on, encode = asyncio.Event(), threading.Event(), msgtrace._Trace.encode
    loop, most = asyncio.get_running_loop(), 3 * msgtrace.LONG

    def slowly(trace: msgtrace._Trace) -> tuple[bytes | None, bytes]:
        if len(trace._data) >= msgtrace.LONG:
            loop.call_soon_threadsafe(begun.set)
            assert go_on.wait(60)
        return encode(trace)

    monkeypatch.setattr(msgtrace._Trace, "encode", slowly)
    monkeypatch.setattr(msgtrace, "_MOST_WAITING", most)
    async with joined(server.client_url) as client, joined(server.client_url) as other:
        mine, theirs = await client.subscribe("mine"), await other.subscribe("theirs")
        await client.flush()
        await other.flush()

        async def publish(subject: str, size: int) -> None:
            headers = {"Nats-Trace-Dest": "mine", "X": "x" * size}
            await client.publish(subject, b"", headers=headers)
            await client.flush()

        await publish("long", msgtrace.LONG)
        await begun.wait()
        await publish("short", 1)
        await publish("dropped", most)
        await other.publish("t", b"", headers={"Nats-Trace-Dest": "theirs"})
        trace = json.loads((await theirs.next_msg(timeout=60)).data)
        assert trace["events"][0]["subj"] == "t"
        assert not mine.pending_msgs
        go_on.set()
        for subject, size in (("long", msgtrace.LONG), ("short", 1)):
            trace = json.loads((await mine.next_msg(timeout=60)).data)
            assert trace["events"][0]["subj"] == subject
            assert trace["request"]["header"]["X"] == ["x" * size]
        await publish("last", 1)
        trace = json.loads((await mine.next_msg(timeout=60)).data)
        assert trace["events"][0]["subj"] == "last"
