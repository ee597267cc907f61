"""Publish message traces (msgtrace.go): for one message, the events on its way, in order."""

import json
import os
import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gnats.core.routing.tracing import fields
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
    from gnats.client.session import Session
    from gnats.events.events import Events

CLIENT = 0
"""The kind of connection of a client, in events."""

_HEAD = struct.Struct("=IIq")
_ENTRY = struct.Struct("=qQIIIcBxx")

_EGRESS_ERRORS = {
    1: "Not delivered because of no echo",
    2: "Not delivered because subscription denies this subject",
    3: "Not delivered because subscription is closed",
    4: "Not delivered because client is closed",
    5: "Not delivered because auto-unsubscribe exceeded",
    6: "Not delivered because fast producer not stalled and consumer is slow",
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
    ERR_WRONG_LAST_SEQUENCE: ("last sequence mismatch", "Nats-Expected-Last-Sequence"),
    _LAST_SUBJECT_SEQUENCE: ("last sequence by subject mismatch", "Nats-Expected-Last-Subject-Sequence"),
}

Headers = dict[str, list[str]]
Entry = tuple[int, int, str, int, list[bytes]]
"""A note: time (ns since 1970), connection id, kind, code, texts; see core.messages.msgtrace."""


def publish(sessions: "Mapping[int, Session]", events: "Events", session: "Session", data: bytes) -> None:
    """Publish the trace of a client's message in its account.

    `data` are the poller's notes (EV_MSG_TRACE); `sessions` are all clients by id.
    """
    header_n, dest_n, size = _HEAD.unpack_from(data)
    header = data[_HEAD.size : _HEAD.size + header_n]
    at = _HEAD.size + header_n + dest_n
    headers = header_map(header)
    event = {
        "server": events.server_info(),
        "request": {"header": dict(sorted(headers.items())), "msgsize": size},
        "events": trace_events(sessions, session, headers, entries(data, at)),
    }
    encoding = headers.get("Accept-Encoding", [""])[0].encode(errors="replace")
    events.publish_in(session.account, data[at - dest_n : at], event, encoding)


def header_map(header: bytes) -> Headers:
    """Return a header's fields that have a value, each with all of its values."""
    found: Headers = {}
    for key, value in fields(header):
        found.setdefault(_text(key), []).append(_text(value))
    return found


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


def trace_events(
    sessions: "Mapping[int, Session]", session: "Session", headers: Headers, noted: Iterator[Entry]
) -> list[dict[str, object]]:
    """Turn a trace's notes into its events; the first is the ingress of the message."""
    events: list[dict[str, object]] = []
    stream: dict[str, object] = {}
    account = session.account.name
    for when, cid, kind, code, (first, second, third) in noted:
        ts = rfc3339(when)
        event: dict[str, object]
        match kind:
            case "i":
                event = {"type": "in", "ts": ts, "kind": CLIENT, "cid": cid}
                event |= _named(session) | {"acc": account, "subj": _text(first)}
            case "x":
                events[0]["error"] = f"{_REFUSALS[code]} {quote(first)}" if code in _REFUSALS else _TOO_LARGE
                continue
            case "m":
                event = {"type": "sm", "ts": ts, "to": _text(first)}
            case "e":
                event = {"type": "se", "ts": ts, "acc": json.loads(first), "to": _text(second)}
            case "s":
                event = {"type": "si", "ts": ts, "acc": json.loads(first)}
                event |= {"from": _text(second), "to": _text(third)}
            case "j":
                event = stream = {"type": "js", "ts": ts, "stream": _text(first)}
            case "k":
                stream |= {"ts": ts, "subject": _text(first)} | ({"nointerest": True} if code else {})
                continue
            case "l":
                stream["error"] = stream_error(cid, _text(first), headers)
                continue
            case _:
                event = {"type": "eg", "ts": ts, "kind": CLIENT, "cid": cid}
                if receiver := sessions.get(cid):
                    event |= _named(receiver)
                    if receiver.account.name != account:
                        event["acc"] = receiver.account.name
                event["sub"] = _text(first)
                if second:
                    event["queue"] = _text(second)
                if code:
                    event["error"] = _EGRESS_ERRORS[code]
        events.append(event)
    return events


def stream_error(number: int, text: str, headers: Headers) -> str:
    """Return the text for a message that a stream refused.

    `number` is a JetStream error, or -errno in 64 bits; `text` is the detail that belongs to it.
    """
    if number >> 63:
        return os.strerror(2**64 - number).lower()
    if number in (ERR_STORE_FAILED, ERR_ROLLUP_FAILED):
        return text
    if number == ERR_WRONG_LAST_MSG_ID:
        expected = headers.get("Nats-Expected-Last-Msg-Id", [""])[0]
        return f"last msgid mismatch: {quote(expected.encode())} vs {quote(text.encode())}"
    if number in _MISMATCHES:
        what, header = _MISMATCHES[number]
        expected = headers.get(header, [""])[0]
        return f"{what}: {expected if expected.isdecimal() else 2**64 - 1} vs {text}"
    if number in _STREAM_ERRORS:
        return _STREAM_ERRORS[number]
    return f"{publish_error(number)[1]}{text} ({number})"


def _named(session: "Session") -> dict[str, object]:
    return {"name": session.opts.name} if session.opts.name else {}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "gnats.fffd")
