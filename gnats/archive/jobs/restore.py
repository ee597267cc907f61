"""Archived messages published again, in their order.

Each goes to its subject with its headers, text or not, and with what it was: Nats-Archived-Stream,
Nats-Archived-Origin (the stream's account and when it was created), Nats-Archived-Sequence and
Nats-Archived-Time. Headers that would have the server do something (remove older
messages, remember an id, expect a sequence) come as Nats-Archived-Header-NAME.

The server takes each message only behind the one before it: by Nats-Expected-Last-Sequence, and by the id of
that one, which a message that somebody else put between does not have. So nothing is stored twice, in another
order, or behind one that was refused, whatever gets lost on the way. A restore that was interrupted is run
again: the last message of the stream says where it was.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from gnats.archive.errors import ArchiveError
from gnats.archive.files import batches, clusters
from gnats.archive.jobs.broker import TIMEOUT, Broker
from gnats.archive.manifest import Manifest, Origin, State
from gnats.archive.text import show, unshow
from gnats.archive.writer import FILE_SCHEMA
from gnats.go.text import rfc3339

STREAM, ORIGIN = "Nats-Archived-Stream", "Nats-Archived-Origin"
SEQUENCE, TIME = "Nats-Archived-Sequence", "Nats-Archived-Time"
UNKNOWN = "-"
ASIDE = "Nats-Archived-Header-"
EXPECTED, EXPECTED_ID, ID = "Nats-Expected-Last-Sequence", "Nats-Expected-Last-Msg-Id", "Nats-Msg-Id"
_ACTING = ("nats-expected-", "nats-batch-", "nats-schedule")
_ACTING_NAMES = {
    "nats-msg-id",
    "nats-rollup",
    "nats-ttl",
    "nats-incr",
    "nats-required-api-level",
    "nats-trace-dest",
}
_BLANKS = frozenset(b" \t\r\n")
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


def shown_origin(origin: Origin) -> str:
    """Whose stream it was and when it was created, as Nats-Archived-Origin says it."""
    return f"{origin.account or UNKNOWN} {origin.created or UNKNOWN}"


def same_origin(said: str, origin: Origin) -> bool:
    """Whether a Nats-Archived-Origin may be of this stream: what one of both does not know makes no
    difference."""
    pairs = zip(said.rpartition(" ")[::2], shown_origin(origin).rpartition(" ")[::2], strict=True)
    return all(one == other or UNKNOWN in (one, other) for one, other in pairs)


def _acts(name: str) -> bool:
    """Whether a header of this name would have the server do something."""
    return name.lower() in _ACTING_NAMES or name.lower().startswith(_ACTING)


def _set_aside(rest: bytes) -> bytes:
    """What came behind the headers: servers look for their headers there as well."""
    lines = rest.split(b"\n")
    names = [line.partition(b":")[0].decode("latin-1") for line in lines]
    pairs = zip(names, lines, strict=True)
    return b"\n".join(ASIDE.encode() + line if _acts(name) else line for name, line in pairs)


def headers_of(row: dict[str, Any], origin: Origin, expected: int, behind: int | None) -> bytes:
    """The headers that a message is published with: to be stored after sequence `expected`, which is where
    the message was stored that had the sequence `behind` in the archive."""
    lines, rest = [b"NATS/1.0"], b""
    for name, values in row["headers"] or ():
        key = unshow(f"{ASIDE}{name}" if _acts(name) else name)
        for value in map(unshow, values):
            if key:
                lines.append(b"%s: %s" % (key, value))
            elif b"\n" in value or b":" in value[1:]:
                rest += value  # not a line, but what came behind the headers or in their place
            else:
                lines.append(value)
    stream = origin.stream
    own: list[tuple[str, object]] = [(STREAM, stream), (ORIGIN, shown_origin(origin))]
    own += [(SEQUENCE, row["sequence"]), (TIME, rfc3339(row["time_ns"]))]
    own += [(ID, f"archived:{stream}:{row['sequence']}"), (EXPECTED, expected)]
    if behind is not None:
        own.append((EXPECTED_ID, f"archived:{stream}:{behind}"))
    lines += [f"{name}: {value}".encode() for name, value in own]
    return b"\r\n".join([*lines, b"", _set_aside(rest)])


def restore(broker: Broker, manifest: Manifest, wanted: Wanted) -> Restored:
    """Publishes what is wanted. Raises ArchiveError; what was published by then stays, and is not published
    again."""
    return asyncio.run(_restore(broker, manifest, wanted))


async def _restore(broker: Broker, manifest: Manifest, wanted: Wanted) -> Restored:
    state = manifest.load()
    async with broker.connect() as connection:
        info = await broker.ask(connection, f"STREAM.INFO.{wanted.into}")
        last = int(info["state"]["last_seq"])
        done = Restored()
        if last:
            done.resumed_after = await _restored_up_to(broker, connection, wanted.into, last, state.origin)
        first = max(wanted.first_seq, done.resumed_after + 1)
        acks = await Acks.subscribe(connection, wanted.into)
        await _publish(acks, messages(manifest, state, first, wanted.last_seq), state, wanted, last, done)
        return done


async def _restored_up_to(broker: Broker, connection: Any, stream: str, last: int, archived: Origin) -> int:
    """The archived sequence of the last message of a stream."""
    headers: dict[str, str] = {}
    try:
        answer = await broker.ask(connection, f"STREAM.MSG.GET.{stream}", {"seq": last})
    except ArchiveError:
        pass  # it was deleted
    else:
        text = base64.b64decode(answer["message"].get("hdrs", "")).decode(errors="replace")
        lines = text.partition("\r\n\r\n")[0].split("\r\n")  # behind an empty line the publisher has the word
        headers = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    ours = headers.get(STREAM) == archived.stream and same_origin(headers.get(ORIGIN, ""), archived)
    if not ours or not headers.get(SEQUENCE, "").isdigit():
        raise ArchiveError(
            f"stream {stream} has messages, and its last, {last}, was not restored from {archived.stream} "
            f"({shown_origin(archived)}): a restore needs an empty stream, or one that it has begun"
        )
    return int(headers[SEQUENCE])


class Acks:
    """Messages on their way into a stream, and the server's answers, which come in the same order."""

    def __init__(self, connection: Any, stream: str, inbox: str, answers: Any) -> None:
        self._connection = connection
        self._stream = stream
        self._inbox = inbox
        self._answers = answers
        self._waiting: deque[tuple[int, int, int]] = deque()
        self.size = 0

    @classmethod
    async def subscribe(cls, connection: Any, stream: str) -> Acks:
        inbox = connection.new_inbox()
        return cls(connection, stream, inbox, await connection.subscribe(inbox))

    def __len__(self) -> int:
        return len(self._waiting)

    async def publish(self, subject: bytes, row: dict[str, Any], headers: bytes, expected: int) -> None:
        """Sends a message that is to be stored under sequence `expected`. Raises ArchiveError, once those
        before it are stored, when the server cannot take it."""
        payload: bytes = row["payload"]
        size = len(headers) + len(payload)
        refusal = ""
        if size > self._connection.max_payload:
            refusal = (
                f"has {size:,} bytes with its headers, "
                f"and the server takes no more than {self._connection.max_payload:,} (max_payload)"
            )
        elif not subject or not _BLANKS.isdisjoint(subject):
            refusal = f"cannot be published to {show(subject)!r}, which is no subject"
        if refusal:
            await self.confirm_all()
            raise ArchiveError(f"message {row['sequence']} {refusal}")
        # Not by publish(), which takes text only, and of headers not all that servers do.
        await self._connection._send_command(
            b"HPUB %s %s %d %d\r\n%s%s\r\n"
            % (subject, self._inbox.encode(), len(headers), size, headers, payload)
        )
        await self._connection._flush_pending()
        self._waiting.append((row["sequence"], expected, row["size"]))
        self.size += row["size"]

    async def confirm_all(self) -> None:
        while self._waiting:
            await self.confirm()

    async def confirm(self) -> None:
        """Waits for the oldest. Raises ArchiveError when it was not stored, or elsewhere."""
        sequence, expected, size = self._waiting.popleft()
        self.size -= size
        answer = await self._answers.next_msg(timeout=TIMEOUT)
        if not answer.data:
            raise ArchiveError(f"message {sequence}: no stream takes its subject")
        ack = json.loads(answer.data)
        if error := ack.get("error"):
            raise ArchiveError(f"message {sequence} was refused: {error.get('description')}")
        if (ack["stream"], ack["seq"]) != (self._stream, expected):
            raise ArchiveError(
                f"message {sequence} was stored as {ack['seq']} of {ack['stream']}, "
                f"not as {expected} of {self._stream}"
            )


async def _publish(
    acks: Acks, rows: Iterator[dict[str, Any]], state: State, wanted: Wanted, last: int, done: Restored
) -> None:
    loop = asyncio.get_running_loop()
    due = loop.time()
    behind = None
    prefix = os.fsencode(wanted.prefix)
    for row in rows:
        if wanted.rate:
            due = max(due + 1 / wanted.rate, loop.time())
            if (pause := due - loop.time()) > 0.002:
                await asyncio.sleep(pause)
        while len(acks) >= WINDOW_MESSAGES or (len(acks) and acks.size + row["size"] > WINDOW_BYTES):
            await acks.confirm()
            done.messages += 1
        headers = headers_of(row, state.origin, last, behind)
        last += 1
        behind = row["sequence"]
        await acks.publish(prefix + unshow(row["subject"]), row, headers, last)
    while len(acks):
        await acks.confirm()
        done.messages += 1
