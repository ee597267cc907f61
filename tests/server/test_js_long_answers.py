"""Streams and consumers with very many sources, subjects or filters leave the loop to others."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from support.natspy import joined

from gnats import Server
from gnats.jetstream.api import stream_requests
from gnats.jetstream.control import info
from gnats.jetstream.control.sources import ConsumerNames, Origin
from gnats.options.values.jetstream import JetStreamOptions
from gnats.runtime import paced, steps

from .conftest import Start
from .peer import Log

pytestmark = pytest.mark.timeout(120)

MANY = 300
SOURCES = [
    {"name": f"from{number % 100}", "subject_transforms": [{"src": f"a.{number}.>", "dest": f"b.{number}.>"}]}
    for number in range(MANY)
]


async def ask(client: Client, verb: str, body: object = None) -> Any:
    payload = b"" if body is None else json.dumps(body).encode()
    return json.loads((await client.request(f"$JS.API.{verb}", payload, timeout=60)).data)


@pytest.fixture
async def server(start: Start, tmp_path: Path) -> Server:
    return await start(log=Log(), jetstream=JetStreamOptions(enabled=True, store_dir=str(tmp_path)))


async def test_origins_are_asked_while_others_are_answered(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request to an origin has a round of the loop to itself."""
    monkeypatch.setattr(paced, "TURN", 0.0)
    monkeypatch.setattr(steps, "TURN", 0.0)
    rounds, asked = 0, dict[str, list[int]](made=[], left=[])
    all_asked = asyncio.Event()
    set_up, leave = Origin._set_up, Origin.leave

    def note_set_up(origin: Origin) -> None:
        asked["made"].append(rounds)
        if len(asked["made"]) == MANY:
            all_asked.set()
        set_up(origin)

    def note_leave(origin: Origin) -> None:
        asked["left"].append(rounds)
        leave(origin)

    async def count() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(Origin, "_set_up", note_set_up)
    monkeypatch.setattr(Origin, "leave", note_leave)
    counting = asyncio.create_task(count())
    async with joined(server.client_url) as client:
        config: dict[str, object] = {"name": "S", "storage": "memory", "sources": SOURCES}
        assert (await ask(client, "STREAM.CREATE.S", config))["did_create"]
        await all_asked.wait()
        assert len(set(asked["made"])) == len(asked["made"])
        names = {each["name"] for each in (await ask(client, "STREAM.INFO.S"))["sources"]}
        assert names == {each["name"] for each in SOURCES}
        config["sources"] = SOURCES[:1]
        assert len((await ask(client, "STREAM.UPDATE.S", config))["sources"]) == 1
        assert len(set(asked["left"])) == len(asked["left"]) == MANY  # the one that stays gets another name
        assert (await ask(client, "STREAM.DELETE.S"))["success"]
    counting.cancel()


async def test_a_stream_stops_while_its_origins_begin(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paced, "TURN", 0.0)
    asked, begun = list[str](), asyncio.Event()
    set_up = Origin._set_up

    def note(origin: Origin) -> None:
        asked.append(origin.source.name)
        begun.set()
        set_up(origin)

    monkeypatch.setattr(Origin, "_set_up", note)
    async with joined(server.client_url) as client:
        config = {"name": "S", "storage": "memory", "sources": SOURCES}
        assert (await ask(client, "STREAM.CREATE.S", config))["did_create"]
        await begun.wait()
        assert (await ask(client, "STREAM.DELETE.S"))["success"]
        before = len(asked)
        assert before < MANY
        for _ in range(2 * MANY):
            await asyncio.sleep(0)
        assert len(asked) == before


async def test_names_of_consumers_do_not_depend_on_how_they_are_counted(server: Server) -> None:
    async with joined(server.client_url) as client:
        config = {"name": "S", "storage": "memory", "sources": [*SOURCES, {"name": "alone"}]}
        assert (await ask(client, "STREAM.CREATE.S", config))["did_create"]
        assert server.jetstream is not None
        stream = server.jetstream.accounts["$G"].stream("S")
        names = ConsumerNames(stream)
        sources = [each for each in stream.config.sources if each]
        found = {names.of(each, mirror=False) for each in sources}
        assert len(found) == len(sources)
        assert found == {each.consumer_name for each in stream.origins.sources.values()}
        alone = names.of(sources[-1], mirror=False)
        update = {"name": "S", "storage": "memory", "sources": [{"name": "alone"}]}
        assert "error" not in await ask(client, "STREAM.UPDATE.S", update)
        assert names.of(sources[-1], mirror=False) == alone
        assert names.of(sources[0], mirror=False).startswith("JS_SRC_")
        assert names.of(sources[0], mirror=True).startswith("JS_MIRROR_")


async def test_long_answers_are_those_that_are_given_at_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with joined(server.client_url) as client:
        made = {"name": "S", "subjects": ["s.>"], "storage": "memory", "metadata": {"a": "<b>"}}
        await ask(client, "STREAM.CREATE.S", made)
        await ask(client, "STREAM.CREATE.T", {"name": "T", "storage": "memory", "sources": [{"name": "S"}]})
        for name in "CD":
            consumer = {"name": name, "durable_name": name, "ack_policy": "explicit"}
            consumer |= {"filter_subjects": ["s.1", "s.2"]}  # type: ignore[dict-item]
            assert "error" not in await ask(
                client, f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": consumer}
            )
        await client.publish("s.1", b"x")
        requests: list[tuple[str, object]] = [
            ("STREAM.INFO.S", None),
            ("STREAM.INFO.S", {"subjects_filter": ">", "deleted_details": True}),
            ("STREAM.INFO.T", None),
            ("STREAM.LIST", None),
            ("STREAM.UPDATE.S", made),
            ("CONSUMER.LIST.S", None),
            ("CONSUMER.LIST.S", {"offset": 1}),
        ]
        answers = list[list[bytes]]()
        for long in (info.LONG, 1):
            monkeypatch.setattr(info, "LONG", long)
            monkeypatch.setattr(stream_requests, "MANY_SUBJECTS", long)
            answers.append(
                [
                    re.sub(
                        rb'"(ts|active|lag)":[^,}]*',
                        b"",
                        (
                            await client.request(
                                f"$JS.API.{verb}", json.dumps(body).encode() if body else b"", timeout=60
                            )
                        ).data,
                    )
                    for verb, body in requests
                ]
            )
        assert answers[0] == answers[1]
