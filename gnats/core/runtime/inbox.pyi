"""What the data plane tells the control plane: one queue with one eventfd for each server."""

from gnats.core.client import Client

EV_CONNECT: int
"""CONNECT was received: data is its argument; the connection is parked until client.connected() or close."""
EV_INFO: int
"""An INFO was received from the peer: data is its argument; parked until client.resume() or close."""
EV_CLOSED: int
"""The connection is gone, sent once for each started client.

a is the reason (gnats.connection.closed_state), b the number of subscriptions it had, data the first
32 KiB of them: lines of subject, queue, sid, delivered and max with a blank between."""
EV_LOG: int
"""Something to log about the client: a is a LOG_* code, b a number, data bytes."""
EV_TRACE: int
"""Protocol trace: a is a TRACE_* code, data the line."""
EV_MSG: int
"""A message for an internal client: data is (subject, reply, header, payload, asker, account, sid).

Who asks is known from the connection and the imports that the message came through: `asker` is the requester
as JSON (ClientInfo), b"" where it came through no imported service; `account` is the name, as JSON, of the
account that imports the service, or else the producer's."""
EV_RESPONSES: int
"""Responses are expected that may not come in time: a is the id of an exported service."""
EV_LATENCY: int
"""A request has been measured: a is the id of the exported service, b the status, data as
gnats.events.latency reads it."""
EV_MSG_TRACE: int
"""A message was traced; data is for gnats.events.msgtrace."""

EV_JETSTREAM: int
"""A stream or a consumer, which takes the place of the client, has something to tell: a says what."""

SOURCE_EVENTS: int
SOURCE_BYTES: int
"""What one connection may have caused and nobody has handled yet; beyond it, it is not read."""
INBOX_EVENTS: int
INBOX_BYTES: int
"""The same of all connections."""
INTERNAL_EVENTS: int
INTERNAL_BYTES: int
"""The same of one of the server's own clients; beyond it, what it causes is dropped."""
SHORT_READ: int
"""Bytes that are read from a connection at once while all have caused what they may."""

class Inbox:
    def __init__(self) -> None: ...
    def fileno(self) -> int:
        """An eventfd: readable when drain() has something to return."""
    def __len__(self) -> int:
        """Events waiting."""
    @property
    def dropped(self) -> int:
        """Events that were dropped so far."""
    @property
    def names_jetstream(self) -> bool:
        """Does an event that waits name a stream or a consumer?"""
    def stats(self) -> dict[str, int]:
        """`events` and `bytes` that wait, connections `parked`; so far: `parkings`, events `dropped`."""
    def drain(self, most: int = 64) -> list[tuple[int, Client | None, int, int, object]]:
        """Up to `most` events, as (event, client, a, b, data): connections take turns."""
    def close(self) -> None: ...
