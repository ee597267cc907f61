"""The control plane's inbox: events that pollers post for Python, behind one eventfd for each server."""

from gnats.core.net.connection import Connection

EV_CONNECT: int
"""CONNECT was received: data is its argument. The connection stops until accept_connect() or a close."""
EV_INFO: int
"""INFO was received: data is its argument. The connection stops until client.resume() or a close."""
EV_CLOSED: int
"""The connection is closed; posted once for each started client.

a is the reason (gnats.connection.closed_state), b the number of its subscriptions, data the first 32 KiB of
them: lines of subject, queue, sid, delivered and max, separated by blanks."""
EV_LOG: int
"""A log entry about the client: a is a LogCode or a parser's Violation, b a number, data bytes."""
EV_TRACE: int
"""A line of the protocol trace: a is a TRACE_* code, b is not 0 when data is cut, data is the line."""
EV_MSG: int
"""A message for an internal client: data is (subject, reply, header, payload, requester, account, sid).

a is the id of the connection that it has come over, b says what that is (PRODUCER_).
`requester` is JSON (ClientInfo), known from the connection and the imports that the message came through;
b"" without an imported service. `account` is the name, as JSON, of the account that imports the service;
without an import, of the publisher's account."""
EV_RESPONSES: int
"""An exported service expects its first response: a is the service's id."""
EV_LATENCY: int
"""A request was measured: a is the id of the exported service, b the status, data is for
gnats.events.latency."""
EV_MSG_TRACE: int
"""A message was traced; data is for gnats.events.msgtrace."""
EV_PONG: int
"""A link's PING, which the control plane wanted, was answered."""
EV_BEGUN: int
EV_LEAF: int
"""A link's session has begun, after the handshake of TLS if there is one."""

EV_TRACKED: int
EV_ANSWERED: int
"""A client got a measured request of another server, or answers it: a is the client's id, b the time in ns on
the monotonic clock, data reply and subject with a blank between, or the reply alone."""
EV_JETSTREAM: int
"""An event of a stream or a consumer, which takes the place of the client; a is its kind."""

PRODUCER_CLIENT: int
"""A client, or a leaf node in an account that is not the system account."""
PRODUCER_CLUSTER: int
"""A route or a gateway."""
PRODUCER_LEAF: int
"""A leaf node in the system account."""

SOURCE_EVENTS: int
SOURCE_BYTES: int
"""Waiting events, and their bytes, that one connection may cause; beyond it, the connection is not read."""
INBOX_EVENTS: int
INBOX_BYTES: int
"""Waiting events, and their bytes, that all connections together may cause."""
INTERNAL_EVENTS: int
INTERNAL_BYTES: int
"""Waiting events, and their bytes, that one of the server's own clients may cause; more are dropped."""
SHORT_READ: int
"""Bytes that one read of a connection may take while the inbox is over INBOX_EVENTS or INBOX_BYTES."""

class Inbox:
    def __init__(self) -> None: ...
    def fileno(self) -> int:
        """Return the eventfd: readable when drain() has something to return."""
    def __len__(self) -> int:
        """The number of events that wait."""
    @property
    def dropped(self) -> int:
        """Events dropped since the start: the server's own clients had too many waiting."""
    @property
    def names_jetstream(self) -> bool:
        """Whether an event that waits names a stream or a consumer."""
    def stats(self) -> dict[str, int]:
        """Return `events`, their `bytes`, `parked` connections now; `parkings`, `dropped` since the start."""
    def drain(self, most: int = 64) -> list[tuple[int, Connection | None, int, int, object]]:
        """Return up to `most` events as (event, client, a, b, data); connections take turns.

        `data` is None when there was no memory for it.
        """
    def close(self) -> None: ...
