"""Publish archived messages again, in their order.

Each message goes to its subject with its headers, even if these are not text. Added headers say where it
comes from: Nats-Archived-Stream, Nats-Archived-Origin (the stream's account and time of creation),
Nats-Archived-Sequence and Nats-Archived-Time. Headers that the server would act on (remove older messages,
remember an id, expect a sequence) are renamed to Nats-Archived-Header-NAME.

The server stores a message only directly after the one before it: Nats-Expected-Last-Sequence and the id of
that message require it, and another client's message in between lacks the id. So no message is stored twice,
out of order, or after a refused one, even if answers are lost. Run an interrupted restore again: it continues
from the stream's last message.
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
"""Most bytes of messages that wait for the server's answers."""


@dataclass(frozen=True)
class Wanted:
    """The selection and options of a restore: stream, prefix for subjects, rate in messages a second."""

    into: str
    prefix: str = ""
    first_seq: int = 1
    last_seq: int | None = None
    rate: float = 0.0


@dataclass
class Restored:
    """The result: messages published, and the archived sequence after which it continued (0: new)."""

    messages: int = 0
    resumed_after: int = 0


def messages(
    manifest: Manifest, state: State, first_seq: int, last_seq: int | None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of an archive by sequence. Raises ArchiveError when a file differs from the manifest."""
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
    """Return the value of Nats-Archived-Origin: the stream's account and time of creation."""
    return f"{origin.account or UNKNOWN} {origin.created or UNKNOWN}"


def same_origin(said: str, origin: Origin) -> bool:
    """Whether a Nats-Archived-Origin may be of this stream; unknown parts match anything."""
    pairs = zip(said.rpartition(" ")[::2], shown_origin(origin).rpartition(" ")[::2], strict=True)
    return all(one == other or UNKNOWN in (one, other) for one, other in pairs)


def _acts(name: str) -> bool:
    """Whether the server acts on a header of this name."""
    return name.lower() in _ACTING_NAMES or name.lower().startswith(_ACTING)


def _set_aside(rest: bytes) -> bytes:
    """Rename headers in the text after the headers, where servers search for headers, too."""
    lines = rest.split(b"\n")
    names = [line.partition(b":")[0].decode("latin-1") for line in lines]
    pairs = zip(names, lines, strict=True)
    return b"\n".join(ASIDE.encode() + line if _acts(name) else line for name, line in pairs)


def headers_of(row: dict[str, Any], origin: Origin, expected: int, behind: int | None) -> bytes:
    """Return the headers for publishing a message.

    It must be stored after sequence `expected`, where the message with the archived sequence `behind` is.
    """
    lines, rest = [b"NATS/1.0"], b""
    for name, values in row["headers"] or ():
        key = unshow(f"{ASIDE}{name}" if _acts(name) else name)
        for value in map(unshow, values):
            if key:
                lines.append(b"%s: %s" % (key, value))
            elif b"\n" in value or b":" in value[1:]:
                rest += value  # not a line, but the text after the headers, or instead of them
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
    """Publish the wanted messages. Raises ArchiveError; a later restore continues after those published."""
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
    """Return the archived sequence of a stream's last message."""
    headers: dict[str, str] = {}
    try:
        answer = await broker.ask(connection, f"STREAM.MSG.GET.{stream}", {"seq": last})
    except ArchiveError:
        pass  # the message was deleted
    else:
        text = base64.b64decode(answer["message"].get("hdrs", "")).decode(errors="replace")
        lines = text.partition("\r\n\r\n")[0].split("\r\n")  # text after an empty line is not trusted
        headers = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    ours = headers.get(STREAM) == archived.stream and same_origin(headers.get(ORIGIN, ""), archived)
    if not ours or not headers.get(SEQUENCE, "").isdigit():
        raise ArchiveError(
            f"stream {stream} has messages, and its last, {last}, was not restored from {archived.stream} "
            f"({shown_origin(archived)}): a restore needs an empty stream, or one that it has begun"
        )
    return int(headers[SEQUENCE])


class Acks:
    """Published messages that wait for the server's answers, which arrive in the same order."""

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
        """Publish a message that must get sequence `expected`.

        Raises ArchiveError when the server cannot store it, after those before it have been stored.
        """
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
        # Not with publish(): it accepts only text, and not all headers that servers accept.
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
        """Wait for the oldest answer. Raises ArchiveError unless the message got its sequence."""
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
