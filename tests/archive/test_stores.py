"""The archive reads the messages that a server serves from the same store.

The store is read while its server runs, after a kill, and after a clean stop.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from support.archive_homes import encode
from support.natspy import jetstream, joined
from support.servers import KINDS, REFERENCE, Kind, Server

from gnats.archive import Keys, Selection, StreamDir, StreamSource, find_streams
from gnats.archive.text import unshow
from gnats.go.times import unix_ns

KEY = "a secret of the server"
MIB = 1 << 20
CIPHERS = {"": None, "chachapoly": Keys(KEY, None, "chachapoly"), "aes": Keys(KEY, None, "aes")}
Row = tuple[int, int, str, bytes, bytes]
"""Sequence, time in ns, subject as JSON has it, headers, payload."""


def config(root: Path, cipher: str) -> str:
    encryption = f', key: "{KEY}", cipher: {cipher}' if cipher else ""
    return f'max_payload: 64MB\njetstream {{ store_dir: "{root}"{encryption} }}'


async def api(client: Client, subject: str, request: object = None) -> Any:
    data = b"" if request is None else json.dumps(request).encode()
    answer = json.loads((await client.request(f"$JS.API.{subject}", data, timeout=20)).data)
    if "error" in answer and answer["error"]["err_code"] != 10037:
        raise AssertionError(answer)
    return answer


async def create(client: Client, name: str, **settings: Any) -> None:
    defaults = {"name": name, "subjects": [f"{name}.>"], "storage": "file", "retention": "limits"}
    await api(client, f"STREAM.CREATE.{name}", defaults | settings)


async def publish(client: Client, name: str, count: int, **headers: str) -> None:
    js = jetstream(client)
    acks = [
        js.publish(
            f"{name}.orders.{i % 13}",
            b"payload %d " % i * (i % 8),
            headers=(headers | {"Kind": "x" * (i % 40)}) if i % 5 == 0 else None,
        )
        for i in range(count)
    ]
    await asyncio.gather(*acks)


async def plain(client: Client, server: Server) -> None:
    """Store headers, TTLs, both kinds of deletes, empty payloads, subjects that are not UTF-8."""
    await create(client, "PLAIN", allow_msg_ttl=True, max_bytes=125_000)
    await publish(client, "PLAIN", 300, **{"Nats-TTL": "1h"})
    for seq in [*range(20, 40), 100, 102, 299]:
        await api(client, "STREAM.MSG.DELETE.PLAIN", {"seq": seq, "no_erase": seq % 2 == 0})
    with socket.create_connection(server.address) as wire:
        wire.sendall(b'CONNECT {"verbose":false}\r\nPUB PLAIN.\xff\xfe.\\xff 3\r\nabc\r\nPING\r\n')
        while b"PONG" not in wire.recv(4096):
            pass


async def purged(client: Client, server: Server) -> None:
    await create(client, "PURGED")
    await publish(client, "PURGED", 100)
    await api(client, "STREAM.PURGE.PURGED", {"filter": "PURGED.orders.3"})
    await api(client, "STREAM.PURGE.PURGED", {"filter": "PURGED.orders.4", "keep": 2})
    await api(client, "STREAM.PURGE.PURGED", {"seq": 30})
    await create(client, "EMPTIED")
    await publish(client, "EMPTIED", 20)
    await api(client, "STREAM.PURGE.EMPTIED")
    await publish(client, "EMPTIED", 3)
    await create(client, "EMPTY")
    await publish(client, "EMPTY", 20)
    await api(client, "STREAM.PURGE.EMPTY")


async def squeezed(client: Client, server: Server) -> None:
    """Store several compressed blocks."""
    await create(client, "SQUEEZED", compression="s2", max_bytes=125_000)
    await publish(client, "SQUEEZED", 2000)
    for seq in range(1900, 1990, 3):
        await api(client, "STREAM.MSG.DELETE.SQUEEZED", {"seq": seq})


async def limited(client: Client, server: Server) -> None:
    """Store messages that limits or acknowledgements then remove."""
    await create(client, "KV", max_msgs_per_subject=2)
    await publish(client, "KV", 100)
    await create(client, "CAPPED", max_msgs=30)
    await publish(client, "CAPPED", 100)
    await create(client, "FULL", max_bytes=3000)
    await publish(client, "FULL", 100)
    await create(client, "WORK", retention="workqueue")
    await publish(client, "WORK", 50)
    js = jetstream(client)
    pull = await js.pull_subscribe("WORK.>", "worker", "WORK")
    for i, message in enumerate(await pull.fetch(30, timeout=30)):
        if i % 3:
            await message.ack_sync(timeout=30)
    await pull.unsubscribe()


async def fill(server: Server, parts: list[Callable[[Client, Server], Awaitable[None]]]) -> None:
    async with joined(server.url) as client:
        for part in parts:
            await part(client, server)


async def serves(server: Server) -> dict[str, list[Row]]:
    """Return every message of a server by stream, requested sequence by sequence."""
    async with joined(server.url) as client:
        found: dict[str, list[Row]] = {}
        for name in (await api(client, "STREAM.NAMES"))["streams"] or []:
            state = (await api(client, f"STREAM.INFO.{name}"))["state"]
            seqs = range(max(state["first_seq"], 1), state["last_seq"] + 1)
            answers = await asyncio.gather(
                *(api(client, f"STREAM.MSG.GET.{name}", {"seq": seq}) for seq in seqs)
            )
            found[name] = [row(each["message"]) for each in answers if "message" in each]
    return found


def row(message: dict[str, Any]) -> Row:
    headers, payload = (base64.b64decode(message.get(name, "")) for name in ("hdrs", "data"))
    return message["seq"], unix_ns(message["time"]), message["subject"], headers, payload


def read(stream: StreamDir, keys: Keys | None, selection: Selection = Selection()) -> list[Row]:  # noqa: B008
    scan = StreamSource(stream, keys).scan(selection, batch_rows=50)
    found: list[Row] = []
    for batch in scan.reader:
        batch.validate(full=True)
        for each in batch.to_pylist():
            subject = unshow(each["subject"]).decode(errors="replace")
            headers = encode(each["headers"])
            found.append((each["sequence"], each["time_ns"], subject, headers, each["payload"]))
    assert not scan.damage
    assert scan.tail is None
    assert len(found) == scan.messages
    return found


def archived(root: Path, keys: Keys | None) -> dict[str, list[Row]]:
    return {stream.name: read(stream, keys) for stream in find_streams(root)}


def without_dropped(found: dict[str, list[Row]], live: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Leave out messages that the running server has dropped from the front for a limit on bytes.

    A restart would bring them back where others were deleted since: the files do not show the difference.
    """
    first = {name: rows[0][0] if rows else 0 for name, rows in live.items()}
    return {name: [each for each in rows if each[0] >= first[name]] for name, rows in found.items()}


@pytest.mark.parametrize("cipher", CIPHERS, ids=["clear", "chachapoly", "aes"])
def test_the_archive_reads_what_a_server_serves_after_a_restart(
    kind: Kind, tmp_path: Path, cipher: str
) -> None:
    if cipher and kind.name == "gnats-threads":
        pytest.skip("the files do not depend on I/O threads")
    keys = CIPHERS[cipher]
    root, killed = tmp_path / "store", tmp_path / "killed"
    server = Server(kind, tmp_path / "first", config=config(root, cipher))
    try:
        asyncio.run(fill(server, [plain, purged, squeezed, limited]))
        live = asyncio.run(serves(server))
        assert without_dropped(archived(root, keys), live) == live
    finally:
        server.kill()
    shutil.copytree(root, killed)
    server = Server(kind, tmp_path / "second", config=config(root, cipher))
    server.stop()
    for where in (root, killed):
        for other in (REFERENCE, KINDS["gnats-loop"]):
            copy = tmp_path / f"{where.name}-{other.name}"
            shutil.copytree(where, copy)
            found = archived(copy, keys)
            server = Server(other, tmp_path / "opened", config=config(copy, cipher))
            try:
                assert asyncio.run(serves(server)) == found
            finally:
                server.kill()
            shutil.rmtree(copy)
    assert set(found) == {
        *("PLAIN", "PURGED", "EMPTIED", "EMPTY", "SQUEEZED", "KV", "CAPPED", "FULL", "WORK"),
    }


def test_large_messages(kind: Kind, tmp_path: Path) -> None:
    """A store accepts records below 32 MiB, even where the server allows larger messages."""
    payloads = [b"a" * (20 * MIB), b"", bytes(range(256)) * 4096]

    async def large(client: Client, _: Server) -> None:
        await create(client, "LARGE")
        js = jetstream(client)
        for payload in payloads:
            await js.publish("LARGE.x", payload, timeout=20)
        with pytest.raises(nats.js.errors.APIError):
            await js.publish("LARGE.x", bytes(33 * MIB), timeout=20)

    server = Server(kind, tmp_path / "first", config=config(tmp_path / "store", ""))
    try:
        asyncio.run(fill(server, [large]))
    finally:
        server.stop()
    (stream,) = find_streams(tmp_path / "store")
    scan = StreamSource(stream).scan(batch_bytes=MIB)
    assert [batch.column("payload")[0].as_py() for batch in scan.reader] == payloads
    assert not scan.damage


def test_a_stream_that_is_written_is_read_to_a_record_of_its_end(kind: Kind, tmp_path: Path) -> None:
    """While the server publishes, deletes and rewrites, no message is wrong, repeated or missing."""
    root = tmp_path / "store"

    async def write(client: Client, _: Server) -> None:
        await create(client, "LIVE", max_bytes=400_000, max_msgs_per_subject=2000)
        js = jetstream(client)
        for lap in range(30):
            await asyncio.gather(*(js.publish(f"LIVE.{i % 3}", b"%d" % i * 9) for i in range(100)))
            for seq in range(lap * 100 + 1, lap * 100 + 90, 2):
                await api(client, "STREAM.MSG.DELETE.LIVE", {"seq": seq, "no_erase": bool(seq & 2)})
            seen.append((await api(client, "STREAM.INFO.LIVE"))["state"]["last_seq"])
            await asyncio.to_thread(look)

    def look() -> None:
        stream = StreamDir("$G", "LIVE", str(root / "jetstream" / "$G" / "streams" / "LIVE"))
        rows = read(stream, None)
        seqs = [each[0] for each in rows]
        assert seqs == sorted(set(seqs))
        assert seqs[-1] == seen[-1]
        last = len(seen) * 100
        kept = [seq for seq in range(1, last + 1) if (seq - 1) % 100 >= 89 or seq % 2 == 0]
        assert seqs == kept[-len(seqs) :]

    seen: list[int] = []
    server = Server(kind, tmp_path / "first", config=config(root, ""))
    try:
        asyncio.run(fill(server, [write]))
        assert archived(root, None) == asyncio.run(serves(server))
    finally:
        server.stop()
