"""Archived messages published again, in their order.

Each goes to its subject with its headers, and with what it was: Nats-Archived-Stream,
Nats-Archived-Sequence and Nats-Archived-Time. Headers that would have the server do something (remove older
messages, remember an id, expect a sequence) come as Nats-Archived-Header-NAME.

The server takes each message only behind the one before it (Nats-Expected-Last-Sequence), so nothing is
stored twice or in another order, whatever gets lost on the way. A restore that was interrupted is run
again: the last message of the stream says where it was."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from gnats.archive.broker import TIMEOUT, Broker
from gnats.archive.errors import ArchiveError
from gnats.archive.files import batches, clusters
from gnats.archive.manifest import Manifest, State
from gnats.archive.writer import FILE_SCHEMA
from gnats.gofmt import rfc3339

STREAM, SEQUENCE, TIME = "Nats-Archived-Stream", "Nats-Archived-Sequence", "Nats-Archived-Time"
ASIDE = "Nats-Archived-Header-"
EXPECTED = "Nats-Expected-Last-Sequence"
_ACTING = ("nats-expected-", "nats-batch-", "nats-schedule")
_ACTING_NAMES = {
    "nats-msg-id",
    "nats-rollup",
    "nats-ttl",
    "nats-incr",
    "nats-required-api-level",
    "nats-trace-dest",
}
WINDOW_MESSAGES = 512
WINDOW_BYTES = 16 << 20
"""How much may be on the way to the server."""


@dataclass(frozen=True)
class Wanted:
    """What is restored, and how: into which stream, with what before each subject, at most how many a
    second."""

    into: str
    prefix: str = ""
    first_seq: int = 1
    last_seq: int | None = None
    rate: float = 0.0


@dataclass
class Restored:
    """What was done: messages published now, the sequence the restore went on after (0: it began)."""

    messages: int = 0
    resumed_after: int = 0


class Headers(dict[str, str]):
    """Headers for nats-py, which takes one value of each name: it goes through items(), and here may be
    several."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._pairs = list(pairs)
        super().__init__(self._pairs)

    def items(self) -> Any:
        return self._pairs


def messages(
    manifest: Manifest, state: State, first_seq: int, last_seq: int | None
) -> Iterator[dict[str, Any]]:
    """The rows of an archive by sequence. Raises ArchiveError when a file is not what the manifest says."""
    entries = [
        entry
        for entry in state.entries
        if entry.last_seq >= first_seq and (last_seq is None or entry.first_seq <= last_seq)
    ]
    for cluster in clusters(entries):
        parts: Iterable[pa.RecordBatch]
        if len(cluster) == 1:
            parts = batches(manifest, cluster[0], 1024)
        else:
            table = pa.Table.from_batches(
                [each for entry in cluster for each in batches(manifest, entry)], FILE_SCHEMA
            )
            parts = table.sort_by("sequence").to_batches(1024)
        for batch in parts:
            for row in batch.to_pylist():
                if row["sequence"] >= first_seq and (last_seq is None or row["sequence"] <= last_seq):
                    yield row


def headers_of(row: dict[str, Any], stream: str, expected: int) -> Headers:
    """The headers that a message is published with."""
    pairs = []
    for name, values in row["headers"] or ():
        acts = name.lower() in _ACTING_NAMES or name.lower().startswith(_ACTING)
        pairs += [(f"{ASIDE}{name}" if acts else name, value) for value in values]
    pairs += [(STREAM, stream), (SEQUENCE, str(row["sequence"])), (TIME, rfc3339(row["time_ns"]))]
    return Headers([*pairs, (EXPECTED, str(expected))])


def restore(broker: Broker, manifest: Manifest, wanted: Wanted) -> Restored:
    """Publishes what is wanted. Raises ArchiveError; what was published by then stays, and is not published
    again."""
    return asyncio.run(_restore(broker, manifest, wanted))


async def _restore(broker: Broker, manifest: Manifest, wanted: Wanted) -> Restored:
    state = manifest.load()
    async with broker.connect() as connection:
        info = await broker.ask(connection, f"STREAM.INFO.{wanted.into}")
        last = int(info["state"]["last_seq"])
        js = connection.jetstream(timeout=TIMEOUT, domain=broker.domain)
        done = Restored()
        if last:
            done.resumed_after = await _restored_up_to(js, wanted.into, last, state.origin.stream)
        first = max(wanted.first_seq, done.resumed_after + 1)
        await _publish(js, manifest, state, wanted, first, last, done)
        return done


async def _restored_up_to(js: Any, stream: str, last: int, archived: str) -> int:
    from nats.js.errors import NotFoundError

    try:
        message = await js.get_msg(stream, seq=last)
        headers = message.headers or {}
    except NotFoundError:
        headers = {}
    if headers.get(STREAM) != archived or not headers.get(SEQUENCE, "").isdigit():
        raise ArchiveError(
            f"stream {stream} has messages, and its last, {last}, was not restored from {archived}: "
            "a restore needs an empty stream, or one that it has begun"
        )
    return int(headers[SEQUENCE])


async def _publish(
    js: Any, manifest: Manifest, state: State, wanted: Wanted, first: int, last: int, done: Restored
) -> None:
    waiting: deque[tuple[int, int, int, asyncio.Future[Any]]] = deque()
    on_the_way = 0
    loop = asyncio.get_running_loop()
    due = loop.time()

    async def confirm() -> None:
        nonlocal on_the_way
        sequence, expected, size, future = waiting.popleft()
        on_the_way -= size
        try:
            ack = await asyncio.wait_for(future, TIMEOUT)
        except TimeoutError:
            raise ArchiveError(f"message {sequence} was not acknowledged; run the restore again") from None
        if ack.stream != wanted.into or ack.seq != expected:
            raise ArchiveError(
                f"message {sequence} was stored as {ack.seq} of {ack.stream}, "
                f"not as {expected} of {wanted.into}"
            )
        done.messages += 1

    try:
        for row in messages(manifest, state, first, wanted.last_seq):
            if wanted.rate:
                due = max(due + 1 / wanted.rate, loop.time())
                if (pause := due - loop.time()) > 0.002:
                    await asyncio.sleep(pause)
            while len(waiting) >= WINDOW_MESSAGES or (waiting and on_the_way + row["size"] > WINDOW_BYTES):
                await confirm()
            headers = headers_of(row, state.origin.stream, last)
            last += 1
            future = await js.publish_async(wanted.prefix + row["subject"], row["payload"], headers=headers)
            waiting.append((row["sequence"], last, row["size"], future))
            on_the_way += row["size"]
        while waiting:
            await confirm()
    finally:
        for *_, future in waiting:
            future.cancel()
