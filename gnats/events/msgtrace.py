"""Publish message traces (msgtrace.go): for one message, the events on its way, in order."""

import asyncio
import json
import os
import struct
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from json.encoder import encode_basestring  # the one in C, if there is one
from typing import TYPE_CHECKING, Any, Protocol

from gnats.core.routing.tracing import fields
from gnats.events.events import encode
from gnats.go.json import escape, marshal, text_of
from gnats.go.text import quote, rfc3339
from gnats.jetstream.publish.errors import (
    ERR_HEADER_EXCEEDS_MAXIMUM,
    ERR_MESSAGE_EXCEEDS_MAXIMUM,
    ERR_ROLLUP_FAILED,
    ERR_STORE_FAILED,
    ERR_STREAM_NOT_MATCH,
    ERR_TTL_DISABLED,
    ERR_WRONG_LAST_MSG_ID,
    ERR_WRONG_LAST_SEQUENCE,
    publish_error,
)

if TYPE_CHECKING:
    from gnats.accounts.accounts import Accounts
    from gnats.events.events import Events
    from gnats.log.logger import Logger

CLIENT = 0
"""The kind of connection of a client, in events."""


class Traced(Protocol):
    """A connection, as traces show it."""

    @property
    def trace_name(self) -> str:
        """The name of the client, or of the server at the other end; "" without one."""

    @property
    def trace_account(self) -> str:
        """The account of a client; "" for a connection that carries several."""


Find = Callable[[int], Traced | None]
"""Return the connection with an id, None if it has gone."""

_HEAD = struct.Struct("=IIqIxxxx")
_ENTRY = struct.Struct("=qQIIIcBxx")

_EGRESS_ERRORS = {
    1: "Not delivered because of no echo",
    2: "Not delivered because subscription denies this subject",
    3: "Not delivered because subscription is closed",
    4: "Not delivered because client is closed",
    5: "Not delivered because auto-unsubscribe exceeded",
    6: "Not delivered because fast producer not stalled and consumer is slow",
    7: "Not delivered because remote does not support message tracing",
    8: "Message delivered but remote does not support message tracing so no trace event generated from there",
}
_REFUSALS = {
    1: "Permissions Violation for Publish to",
    2: "Permissions Violation for Publish with Reply of",
}

_TOO_LARGE = "maximum payload exceeded"

_DUPLICATE, _LAST_SUBJECT_SEQUENCE = 1, 2
_STREAM_ERRORS = {
    _DUPLICATE: "msgid is duplicate",
    ERR_MESSAGE_EXCEEDS_MAXIMUM: _TOO_LARGE,
    ERR_STREAM_NOT_MATCH: publish_error(ERR_STREAM_NOT_MATCH)[1],
    ERR_HEADER_EXCEEDS_MAXIMUM: _TOO_LARGE,
    ERR_TTL_DISABLED: "message TTL disabled",
}
"""Texts in traces for messages that a stream refused, where publishers get another text."""
_MISMATCHES = {
    ERR_WRONG_LAST_SEQUENCE: ("last sequence mismatch", b"Nats-Expected-Last-Sequence"),
    _LAST_SUBJECT_SEQUENCE: ("last sequence by subject mismatch", b"Nats-Expected-Last-Subject-Sequence"),
}

Entry = tuple[int, int, str, int, list[bytes]]
"""A note: time (ns since 1970), connection id, kind, code, texts; see core.messages.msgtrace."""


LONG = 32 << 10
"""From this number of bytes of notes on, a thread makes the trace."""
_MOST_WAITING = 8 << 20
"""Bytes of notes that may wait for one account on one connection."""
_MOST_CAUSERS = 16
"""Accounts on connections that may have notes waiting."""


class Traces:
    """Publishes the traces of messages in their accounts.

    A thread makes those with very long headers, or of very many deliveries. Connections take turns, and so do
    accounts behind one; the traces of one come in order. `find` returns a connection by its id. `spawn`
    starts a task that is cancelled when the server stops. Used in the loop's thread.
    """

    def __init__(
        self,
        find: Find,
        accounts: "Accounts",
        events: "Callable[[], Events | None]",
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        log: "Logger",
    ) -> None:
        self._find = find
        self._accounts = accounts
        self._events = events
        self._spawn = spawn
        self._log = log
        self._waiting: dict[tuple[int, str], deque[bytes]] = {}

    def publish(self, cid: int, data: bytes) -> None:
        """Publish the trace of a connection's message; `data` are the poller's notes (EV_MSG_TRACE)."""
        events = self._events()
        if events is None:
            return
        trace = _Trace(self._find, data, events.server_info())
        causer = cid, trace.account
        waiting = self._waiting.get(causer)
        if waiting is None and len(data) < LONG:
            self._publish(events, trace, *trace.encode())
            return
        if waiting is None and len(self._waiting) < _MOST_CAUSERS:
            waiting = self._waiting[causer] = deque()
            if len(self._waiting) == 1:
                self._spawn(self._work())
        if waiting is None or sum(map(len, waiting)) + len(data) > _MOST_WAITING:
            if self._log.allow(text := "Dropped message traces: too many long ones wait"):
                self._log.warn(text)
            return
        waiting.append(data)

    def _publish(self, events: "Events", trace: "_Trace", header: bytes | None, payload: bytes) -> None:
        if account := self._accounts.get(trace.account):
            events.publish_encoded_in(account, trace.dest, header, payload)

    async def _work(self) -> None:
        try:
            while self._waiting:
                causer, waiting = next(iter(self._waiting.items()))
                await self._publish_long(waiting[0])
                waiting.popleft()
                del self._waiting[causer]
                if waiting:
                    self._waiting[causer] = waiting  # at the end: the others come first
        finally:
            self._waiting.clear()

    async def _publish_long(self, data: bytes) -> None:
        if events := self._events():
            trace = _Trace(self._find, data, events.server_info())
            encoded = await asyncio.to_thread(trace.encode)
            self._publish(events, trace, *encoded)


class _Trace:
    """One message's trace, to be published to `dest` in `account`."""

    def __init__(self, find: Find, data: bytes, server: dict[str, object]) -> None:
        self._find = find
        self._data = data
        self._server = server
        self._header_n, dest_n, self._size, self._hops = _HEAD.unpack_from(data)
        self._at = _HEAD.size + self._header_n + dest_n
        self.dest = data[self._at - dest_n : self._at]
        _, _, _, _, (_, account, _) = next(entries(data, self._at))  # the ingress
        self.account: str = json.loads(account)

    def encode(self) -> tuple[bytes | None, bytes]:
        """Return the header and the payload to publish. May be called in a thread."""
        header = self._data[_HEAD.size : _HEAD.size + self._header_n]
        events = trace_events(self._find, self.account, header, entries(self._data, self._at))
        payload = b'{"server":%b,"request":{"header":%b,"msgsize":%d},%b"events":%b}' % (
            marshal(self._server),
            header_json(header),
            self._size,
            b'"hops":%d,' % self._hops if self._hops else b"",
            marshal(events),
        )
        return encode(payload, _first(header, b"Accept-Encoding").encode(errors="replace"))


def header_json(header: bytes) -> bytes:
    """Return a header's fields that have a value, by name: an object of arrays, each with all values."""
    text = bytes.decode if header.isascii() else text_of
    found: dict[str, str] = {}
    more: dict[str, list[str]] = {}  # lists for repeated names only: the garbage collector looks at each
    for key, value in _fields(header):
        name, shown = text(key), encode_basestring(text(value))
        if name not in found:
            found[name] = shown
        elif name in more:
            more[name].append(shown)
        else:
            more[name] = [found[name], shown]
    for name, values in more.items():
        found[name] = ",".join(values)
    members = ",".join(f"{encode_basestring(name)}:[{found[name]}]" for name in sorted(found))
    return escape(f"{{{members}}}").encode()


def _first(header: bytes, name: bytes) -> str:
    """Return the first value of a field, "" without one."""
    return next((text_of(value) for key, value in _fields(header) if key == name), "")


def _fields(header: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Return a header's fields that have a value, in order: (name, value)."""
    both = iter(fields(header))
    return zip(both, both, strict=True)


def entries(data: bytes, at: int) -> Iterator[Entry]:
    """Yield the notes in `data` from offset `at` on."""
    while at < len(data):
        when, cid, *sizes, kind, code = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        texts = []
        for size in sizes:
            texts.append(data[at : at + size])
            at += size
        yield when, cid, kind.decode(), code, texts


def trace_events(find: Find, account: str, header: bytes, noted: Iterator[Entry]) -> list[dict[str, object]]:
    """Turn a trace's notes into its events; the first is the ingress of the message."""
    events: list[dict[str, object]] = []
    stream: dict[str, object] = {}
    for when, cid, kind, code, (first, second, third) in noted:
        ts = rfc3339(when)
        event: dict[str, object]
        match kind:
            case "i":
                event = {"type": "in", "ts": ts, "kind": code, "cid": cid}
                event |= _named(find(cid)) | {"acc": account, "subj": text_of(first)}
            case "x":
                events[0]["error"] = f"{_REFUSALS[code]} {quote(first)}" if code in _REFUSALS else _TOO_LARGE
                continue
            case "m":
                event = {"type": "sm", "ts": ts, "to": text_of(first)}
            case "e":
                event = {"type": "se", "ts": ts, "acc": json.loads(first), "to": text_of(second)}
            case "s":
                event = {"type": "si", "ts": ts, "acc": json.loads(first)}
                event |= {"from": text_of(second), "to": text_of(third)}
            case "j":
                event = stream = {"type": "js", "ts": ts, "stream": text_of(first)}
            case "k":
                stream |= {"ts": ts, "subject": text_of(first)} | ({"nointerest": True} if code else {})
                continue
            case "l":
                stream["error"] = stream_error(cid, text_of(first), header)
                continue
            case "h":
                event = {"type": "eg", "ts": ts, "kind": second[0], "cid": cid} | _named(find(cid))
                event["hop"] = text_of(first)
                if code:
                    event["error"] = _EGRESS_ERRORS[code]
            case _:
                event = {"type": "eg", "ts": ts, "kind": CLIENT, "cid": cid}
                if receiver := find(cid):
                    event |= _named(receiver)
                    if receiver.trace_account != account:
                        event["acc"] = receiver.trace_account
                event["sub"] = text_of(first)
                if second:
                    event["queue"] = text_of(second)
                if code:
                    event["error"] = _EGRESS_ERRORS[code]
        events.append(event)
    return events


def stream_error(number: int, text: str, header: bytes) -> str:
    """Return the text for a message that a stream refused.

    `number` is a JetStream error, or -errno in 64 bits; `text` is the detail that belongs to it.
    """
    if number >> 63:
        return os.strerror(2**64 - number).lower()
    if number in (ERR_STORE_FAILED, ERR_ROLLUP_FAILED):
        return text
    if number == ERR_WRONG_LAST_MSG_ID:
        expected = _first(header, b"Nats-Expected-Last-Msg-Id")
        return f"last msgid mismatch: {quote(expected.encode())} vs {quote(text.encode())}"
    if number in _MISMATCHES:
        what, name = _MISMATCHES[number]
        expected = _first(header, name)
        return f"{what}: {expected if expected.isdecimal() else 2**64 - 1} vs {text}"
    if number in _STREAM_ERRORS:
        return _STREAM_ERRORS[number]
    return f"{publish_error(number)[1]}{text} ({number})"


def _named(connection: Traced | None) -> dict[str, object]:
    return {"name": connection.trace_name} if connection and connection.trace_name else {}
