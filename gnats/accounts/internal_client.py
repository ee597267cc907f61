"""The server's own clients (server.go): each subscribes with callbacks and publishes in one account."""

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnats.connection.closed_state import ClosedState
from gnats.connection.log_lines import trace_line
from gnats.core.internal import InternalSubscriber
from gnats.core.messages.headers import header_value
from gnats.core.net.log_records import TraceCode
from gnats.core.runtime.kinds import ACCOUNT, SYSTEM

if TYPE_CHECKING:
    from gnats.core.accounts.account import Account
    from gnats.core.poller import Poller
    from gnats.core.runtime.state import ServerState
    from gnats.log.logger import Logger


MessageParts = tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes]
"""The data of an EV_MSG: subject, reply, header, payload, requester, account, sid."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message for the server; `producer` is the publisher's connection id.

    `from_server` says that another server has sent it, over a link that may be closed by now: its events are
    believed, and a client's are not.
    `requester` and `account` say where a request comes from. The header does not: the publisher can write
    anything there. Of a request that another server sends, they are what that server has written there
    (remote_requests).
    """

    subject: bytes
    reply: bytes
    header: bytes
    payload: bytes
    producer: int
    requester: bytes = b""
    """The requester as JSON (ClientInfo); b"" if the message came through no imported service."""
    account: bytes = b'""'
    """The name, as JSON, of the account that imports the service; without an import, of the publisher's
    account."""
    from_server: bool = False

    @property
    def account_name(self) -> str:
        """The name in `account`."""
        name = json.loads(self.account)
        assert isinstance(name, str)
        return name

    def header_value(self, name: bytes) -> bytes:
        """Return the value of the first header line with that name; b"" if there is none."""
        return header_value(self.header, name) or b""

    def has_header(self, name: bytes) -> bool:
        """Check for a header line with that name; its value may be empty."""
        return header_value(self.header, name) is not None


Callback = Callable[[Message], None]


class InternalClient:
    """The server's client in one account. Used in the loop's thread only.

    A client of the system account traces its protocol to `log` when trace_verbose is on.
    """

    def __init__(
        self,
        account: "Account",
        cid: int,
        poller: "Poller",
        state: "ServerState",
        kind: int = ACCOUNT,
        log: "Logger | None" = None,
    ) -> None:
        self.client = InternalSubscriber(kind, -1, cid, poller, state)
        self.client.register(account)
        self.kind = kind
        self._state = state
        self._log = log if kind == SYSTEM else None
        self._sids = itertools.count(1)
        self._callbacks: dict[bytes, Callback] = {}

    def subscribe(self, subject: bytes, callback: Callback, queue: bytes | None = None) -> bytes:
        """Subscribe, and call `callback` with each message. Return the sid, for unsubscribe().

        Raises ValueError for an invalid subject, and MemoryError.
        """
        sid = b"%d" % next(self._sids)
        self.client.subscribe_internal(subject, queue, sid)
        self._callbacks[sid] = callback
        if self._traced():
            self._trace(TraceCode.TRACE_IN, b"SUB %s %s %s" % (subject, queue or b"", sid))
        return sid

    def unsubscribe(self, sid: bytes) -> None:
        """End a subscription. Messages that wait for it are dropped. Raises KeyError for an unknown sid."""
        del self._callbacks[sid]
        self.client.unsubscribe_internal(sid)

    def publish(
        self, subject: bytes, payload: bytes, *, reply: bytes | None = None, header: bytes | None = None
    ) -> bool:
        """Publish in the account; True if a subscriber received it. `header` is a whole header block."""
        if self._traced():
            message = (header or b"") + payload
            self._trace(TraceCode.TRACE_IN, b"PUB %s %s %d" % (subject, reply or b"", len(message)))
            most = self._state.max_traced_msg_len or len(message)
            if message and not self._state.trace_headers:
                self._trace(TraceCode.TRACE_IN_PAYLOAD, message[:most], len(message) > most)
        return self.client.publish_internal(subject, reply, header, payload)

    def process_message(self, producer: int, from_server: bool, message: MessageParts) -> None:
        """Call the subscription's callback with the message of an EV_MSG."""
        subject, reply, header, payload, requester, account, sid = message
        if callback := self._callbacks.get(sid):
            callback(Message(subject, reply, header, payload, producer, requester, account, from_server))

    def _traced(self) -> bool:
        return self._log is not None and self._log.trace_on and self._state.trace_verbose

    def _trace(self, code: int, data: bytes, cut: int = 0) -> None:
        assert self._log is not None
        self._log.trace(f"SYSTEM - {trace_line(code, cut, data)}")

    def close(self) -> None:
        """End all subscriptions and close the client."""
        self._callbacks.clear()
        self.client.close_connection(ClosedState.CLIENT_CLOSED)
