"""Play steps to a server."""

from __future__ import annotations

import json
from collections.abc import Iterable

from .draw import MAX_PAYLOAD
from .steps import Step
from .wires import Wire, pump

PENDING = 4 << 20  # bytes that may wait for the server before the next step
PATTERN = bytes(range(32, 127)) * (MAX_PAYLOAD // 95 + 2)


def payload_of(what: object) -> bytes:
    """Return the bytes of a payload, given as text, as a number of bytes, or as an object (JSON)."""
    if isinstance(what, int):
        return PATTERN[:what]
    return what.encode() if isinstance(what, str) else json.dumps(what).encode()


def message(subject: str, reply: str, header: list[list[str]] | None, payload: object) -> bytes:
    """Encode PUB or, with a header, HPUB."""
    body = payload_of(payload)
    to = f"{subject} {reply}" if reply else subject
    if header is None:
        return f"PUB {to} {len(body)}\r\n".encode() + body + b"\r\n"
    block = ("NATS/1.0\r\n" + "".join(f"{key}: {value}\r\n" for key, value in header) + "\r\n").encode()
    return f"HPUB {to} {len(block)} {len(block) + len(body)}\r\n".encode() + block + body + b"\r\n"


def say(wire: Wire, step: Step) -> None:
    """Play a step that only sends. Raises ValueError for any other step."""
    what = step[0]
    if what == "send":
        wire.send(step[2].encode())
    elif what == "publish":
        wire.send(message(*step[2:]))
    elif what == "request":
        _, _, subject, header, body = step
        wire.send(message(subject, wire.next_inbox(), header, body))
    elif what == "ack":
        if wire.to_ack:
            _, _, which, payload = step
            wire.send(message(wire.to_ack[-1 - which % len(wire.to_ack)], wire.next_inbox(), None, payload))
    else:
        raise ValueError(f"no such step: {step}")


def drain(wires: Iterable[Wire]) -> None:
    """Send waiting output, as far as the server reads it without a stall."""
    wires = list(wires)
    while pump(wires) or (
        any(wire.waits_to_send > PENDING and not wire.closed for wire in wires) and pump(wires, 0.2)
    ):
        pass  # the check at the end finds a connection that stalls
