"""The JetStream API when a request is slow, fails, or is one of too many."""

from __future__ import annotations

import asyncio
import json
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from support.natspy import joined

from gnats import Server
from gnats.core.subjects import subject
from gnats.jetstream.api import queue as apiqueue
from gnats.jetstream.api import stream_requests
from gnats.jetstream.api.queue import LONG_BODY
from gnats.jetstream.api.request import Body, Request
from gnats.jetstream.api.stream_requests import MANY_SUBJECTS
from gnats.jetstream.control.checks import StreamChecks
from gnats.jetstream.control.proposals import PurgeProposal
from gnats.jetstream.control.streams import Stream
from gnats.options.values.accounts import AccountConfig
from gnats.options.values.auth import User
from gnats.options.values.jetstream import JetStreamOptions
from gnats.options.values.limits import UNLIMITED

from .conftest import Start
from .peer import Log

pytestmark = pytest.mark.timeout(120)

GENERAL = {"code": 500, "err_code": 10051, "description": "internal error"}


async def ask(client: Client, verb: str, body: object = None) -> Any:
    payload = b"" if body is None else json.dumps(body).encode()
    return json.loads((await client.request(f"$JS.API.{verb}", payload, timeout=60)).data)


async def ask_later(client: Client, verb: str, body: object = None) -> asyncio.Task[Any]:
    """Send a request; return a task that waits for the answer."""
    inbox, payload = client.new_inbox(), b"" if body is None else json.dumps(body).encode()
    answers = await client.subscribe(inbox)
    await client.publish(f"$JS.API.{verb}", payload, reply=inbox)
    await client.flush()

    async def answer() -> Any:
        return json.loads((await answers.next_msg(timeout=60)).data)

    return asyncio.create_task(answer())


class SlowPurges:
    """Every purge of a stream waits, once begun, for `go_on`; `begun` has the streams' names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[str] = []
        self._more = asyncio.Event()
        self.go_on = asyncio.Event()
        purge = Stream.apply_purge

        async def slowly(stream: Stream, proposal: PurgeProposal) -> int:
            self.begun.append(stream.name)
            self._more.set()
            await self.go_on.wait()
            return await purge(stream, proposal)

        monkeypatch.setattr(Stream, "apply_purge", slowly)

    async def have_begun(self, *names: str) -> None:
        while sorted(self.begun) != sorted(names):
            self._more.clear()
            await self._more.wait()


@pytest.fixture
async def server(start: Start, tmp_path: Path, log: Log) -> Server:
    return await start(log=log, jetstream=JetStreamOptions(enabled=True, store_dir=str(tmp_path)))


@pytest.fixture
def log() -> Log:
    return Log()


async def make(client: Client, *names: str) -> None:
    for name in names:
        answer = await ask(client, f"STREAM.CREATE.{name}", {"name": name, "storage": "memory"})
        assert "error" not in answer


async def test_what_takes_its_time_holds_up_its_own_stream_only(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with joined(server.client_url) as client:
        await make(client, "S", "T")
        slow = SlowPurges(monkeypatch)
        purged = await ask_later(client, "STREAM.PURGE.S")
        await slow.have_begun("S")
        deleted = await ask_later(client, "STREAM.DELETE.S")
        told = await ask_later(client, "STREAM.INFO.S")
        consumer = {"stream_name": "T", "config": {"durable_name": "C", "ack_policy": "explicit"}}
        assert (await ask(client, "CONSUMER.CREATE.T.C", consumer))["name"] == "C"
        assert (await ask(client, "STREAM.INFO.T"))["state"]["consumer_count"] == 1
        assert (await ask(client, "INFO"))["streams"] == 2
        assert (await ask(client, "STREAM.NAMES"))["streams"] == ["S", "T"]
        assert (await ask(client, "STREAM.LIST"))["total"] == 2
        assert not purged.done() and not deleted.done() and not told.done()
        slow.go_on.set()
        assert (await purged)["success"] and (await deleted)["success"]
        assert (await told)["error"]["err_code"] == 10059


async def test_streams_come_and_go_in_the_order_of_the_requests(server: Server) -> None:
    async with joined(server.client_url) as client:
        answers = []
        for _ in range(20):
            answers.append(await ask_later(client, "STREAM.CREATE.S", {"name": "S"}))
            answers.append(await ask_later(client, "STREAM.DELETE.S"))
        assert not [answer for answer in await asyncio.gather(*answers) if "error" in answer]


async def test_one_account_cannot_take_all_that_is_done_at_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with joined(server.client_url) as client:
        names = [f"S{i}" for i in range(6)]
        await make(client, *names)
        slow = SlowPurges(monkeypatch)
        purged = [await ask_later(client, f"STREAM.PURGE.{name}") for name in names]
        await slow.have_begun(*names[:4])
        assert (await ask(client, "INFO"))["streams"] == 6
        assert slow.begun == names[:4]
        slow.go_on.set()
        assert all([(await each)["success"] for each in purged])
        assert slow.begun == names


@pytest.mark.parametrize("verb", ["STREAM.PURGE.S", "STREAM.INFO.S", "STREAM.CREATE.T"])
async def test_what_nobody_foresaw_is_logged_and_answered(
    server: Server, monkeypatch: pytest.MonkeyPatch, log: Log, verb: str
) -> None:
    async with joined(server.client_url) as client:
        await make(client, "S")

        def fail(*_: object, **__: object) -> None:
            raise OverflowError("value too large\nto convert")

        for of, name in ((Stream, "apply_purge"), (Stream, "state"), (StreamChecks, "check_overlap")):
            monkeypatch.setattr(of, name, fail)
        answer = await ask(client, verb, {"name": "T"} if "CREATE" in verb else None)
        assert answer["error"] == GENERAL
        lines = [line for line in log.lines if "JetStream API request" in line]
        assert len(lines) == 1 and "\n" not in lines[0]
        assert f'"$G > $JS.API.{verb}" failed: OverflowError(' in lines[0]
        monkeypatch.undo()
        assert (await ask(client, "STREAM.INFO.S"))["state"]["messages"] == 0
        assert (await ask(client, "STREAM.CREATE.T", {"name": "T"}))["did_create"]


async def test_what_is_asked_for_while_the_server_stops_ends_with_it(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    server = await start(log=log, jetstream=JetStreamOptions(enabled=True, store_dir=str(tmp_path)))
    async with joined(server.client_url) as client:
        await make(client, "S")
        slow = SlowPurges(monkeypatch)
        await ask_later(client, "STREAM.PURGE.S")
        await slow.have_begun("S")
        await server.shutdown()
    assert not [line for line in log.lines if "failed" in line or "never retrieved" in line]


@pytest.mark.parametrize("limit", ["requests", "bytes"])
async def test_whoever_asks_for_too_much_has_its_requests_dropped(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Log, limit: str
) -> None:
    options = JetStreamOptions(
        enabled=True, store_dir=str(tmp_path), request_queue_limit=5 if limit == "requests" else 0
    )
    body = {"filter": "x" * 100_000} if limit == "bytes" else None
    if limit == "bytes":
        monkeypatch.setattr(apiqueue, "MOST_BYTES", 450_000)
    users = [User("sys", "pw", account="SYS"), User("a", "pw", account="A")]
    accounts = [AccountConfig("SYS"), AccountConfig("A", jetstream=UNLIMITED)]
    server = await start(
        log=log, jetstream=options, accounts=accounts, users=users, system_account="SYS", no_auth_user="a"
    )
    async with (
        joined(server.client_url, user="sys", password="pw") as system,
        joined(server.client_url) as client,
        joined(server.client_url) as other,
    ):
        advisories = await system.subscribe("$JS.EVENT.ADVISORY.API.LIMIT_REACHED")
        await system.flush()
        await make(client, "S", "T")
        slow = SlowPurges(monkeypatch)
        first = await ask_later(client, "STREAM.PURGE.S")
        await slow.have_begun("S")
        theirs = await ask_later(other, "STREAM.PURGE.S")
        mine = [
            await ask_later(client, "STREAM.PURGE.S", body) for _ in range(4 if limit == "requests" else 5)
        ]
        advisory = json.loads((await advisories.next_msg(timeout=60)).data)
        assert advisory["type"] == "io.nats.jetstream.advisory.v1.api_limit_reached"
        assert advisory["dropped"] == len(mine)
        assert any("JetStream API queue limit reached, dropping" in line for line in log.lines)
        after = await ask_later(client, "STREAM.PURGE.T")
        await slow.have_begun("S", "T")
        slow.go_on.set()
        assert [(await each)["success"] for each in (first, theirs, after)] == [True] * 3
        for each in mine:
            assert not each.done()
            each.cancel()
        assert sorted(slow.begun) == ["S", "S", "T"]
        assert (await ask(client, "INFO"))["streams"] == 2


async def test_many_filters_are_looked_at_beside_the_others(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with joined(server.client_url, pending_size=1 << 24) as client:
        subjects = [f"s{i}.x" for i in range(5000)]
        assert (await ask(client, "STREAM.CREATE.S", {"name": "S", "subjects": subjects}))["did_create"]
        config = {"name": "C", "durable_name": "C", "ack_policy": "explicit", "filter_subjects": subjects}
        body = {"stream_name": "S", "config": config}
        assert (await ask(client, "CONSUMER.CREATE.S.C", body))["name"] == "C"
        config["filter_subjects"] = [*subjects, "s7.*"]
        answer = await ask(client, "CONSUMER.CREATE.S.C", body)
        assert answer["error"]["err_code"] == 10138
        again = {"name": "T", "subjects": [*(f"t{i}" for i in range(5000)), "s7.*"]}
        assert (await ask(client, "STREAM.CREATE.T", again))["error"]["err_code"] == 10065


async def test_streams_with_many_subjects_are_looked_through_while_others_ask(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with joined(server.client_url) as client:
        for name in "ST":
            subjects = [f"{name}.{number}" for number in range(2 * MANY_SUBJECTS)] + [f"last.{name}"]
            made = await ask(
                client, f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects, "storage": "memory"}
            )
            assert "error" not in made
        compared, seen = 0, list[int]()

        def collide(one: str, other: str) -> bool:
            nonlocal compared
            compared += 1
            return subject.collide(one, other)

        async def look() -> None:
            while True:
                seen.append(compared)
                await asyncio.sleep(0)

        monkeypatch.setattr(stream_requests, "collide", collide)
        looking = asyncio.create_task(look())
        for verb in ("STREAM.NAMES", "STREAM.LIST"):
            answers = [
                await ask(client, verb, {"subject": each}) for each in ("last.*", "last.T", "S.0", "none")
            ]
            assert [each["total"] for each in answers] == [2, 1, 1, 0]
        looking.cancel()
        assert compared > 16 * MANY_SUBJECTS
        assert max(after - before for before, after in pairwise(seen)) <= MANY_SUBJECTS
        assert answers[1]["streams"][0]["config"]["name"] == "T"
        assert (await ask(client, "STREAM.NAMES", {"subject": "last.S"}))["streams"] == ["S"]
        assert (await ask(client, "STREAM.NAMES", {"subject": "last.*", "offset": 1}))["streams"] == ["T"]
        assert (await ask(client, "STREAM.NAMES", {"subject": "none"}))["streams"] is None


async def test_a_long_payload_is_decoded_while_others_ask(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests about its stream wait for it, and the payload is read only once."""
    begun, go_on, decoded = asyncio.Event(), threading.Event(), 0
    loop, members = asyncio.get_running_loop(), Request._members

    def slowly(request: Request, body: Body[Any], warnings: list[str]) -> Any:
        nonlocal decoded
        if len(request.payload) >= LONG_BODY:
            decoded += 1
            loop.call_soon_threadsafe(begun.set)
            assert go_on.wait(60)
        return members(request, body, warnings)

    monkeypatch.setattr(Request, "_members", slowly)
    async with joined(server.client_url) as client, joined(server.client_url) as other:
        await make(other, "T")
        long = {"name": "S", "storage": "memory", "metadata": {"k": "v" * LONG_BODY}}
        made = await ask_later(client, "STREAM.CREATE.S", long)
        await begun.wait()
        told = await ask_later(client, "STREAM.INFO.S")
        assert (await ask(client, "STREAM.INFO.T"))["config"]["name"] == "T"
        assert (await ask(other, "INFO"))["streams"] == 1
        assert not made.done() and not told.done()
        go_on.set()
        assert (await made)["did_create"]
        assert (await told)["config"]["metadata"]["k"] == "v" * LONG_BODY
        assert decoded == 1


@pytest.mark.parametrize("padding", [0, LONG_BODY])
@pytest.mark.parametrize("strict", [False, True])
async def test_a_long_payload_is_answered_as_a_short_one(
    start: Start, tmp_path: Path, log: Log, strict: bool, padding: int
) -> None:
    options = JetStreamOptions(enabled=True, store_dir=str(tmp_path), strict=strict)
    server = await start(log=log, jetstream=options)
    async with joined(server.client_url) as client:
        await make(client, "S")
        before = len([line for line in log.lines if "Invalid JetStream request" in line])
        answer = await ask(client, "STREAM.PURGE.S", {"other": "x" * padding})
        assert ("error" in answer) == strict
        if strict:
            error = answer["error"]
            assert error["err_code"] == 10025 and error["description"].endswith('unknown field "other"')
        logged = [line for line in log.lines if "Invalid JetStream request" in line]
        assert len(logged) == before + 1
        answer = await ask(client, "CONSUMER.LIST.S", {"offset": "x" * padding})
        assert "cannot unmarshal string into Go struct field" in answer["error"]["description"]
        assert (await ask(client, "STREAM.NAMES", {"offset": 1, "subject": "." * padding}))["streams"] is None
        assert (await ask(client, "STREAM.INFO.T", {"offset": 1, "z": [0] * padding}))["error"]


@pytest.mark.parametrize(("fails", "reserved"), [("_change", 1000), ("_write_sources", 2000)])
async def test_what_is_reserved_is_what_is_in_force_after_a_failed_update(
    server: Server, monkeypatch: pytest.MonkeyPatch, fails: str, reserved: int
) -> None:
    """When only the positions of its sources cannot be written, a stream keeps its new configuration."""

    async def fail_later(stream: Stream, *args: Any) -> None:
        raise OSError(28, "No space left on device")

    def fail(stream: Stream, *args: Any) -> None:
        monkeypatch.undo()  # so that undoing the change succeeds
        raise OSError(28, "No space left on device")

    async with joined(server.client_url) as client:
        assert "error" not in await ask(client, "STREAM.CREATE.S", {"name": "S", "max_bytes": 1000})
        monkeypatch.setattr(Stream, fails, fail if fails == "_change" else fail_later)
        assert "error" in await ask(client, "STREAM.UPDATE.S", {"name": "S", "max_bytes": 2000})
        monkeypatch.undo()
        assert (await ask(client, "STREAM.INFO.S"))["config"]["max_bytes"] == reserved
        assert server.jetstream is not None
        assert server.jetstream.stats()["reserved_storage"] == reserved
