"""Clients of the server itself: they subscribe with a callback and publish, within one account."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnats.core.client import Client
from gnats.core.parser import ACCOUNT
from gnats.reasons import ClosedState

if TYPE_CHECKING:
    from gnats.core.account import Account
    from gnats.core.poller import Poller
    from gnats.core.state import ServerState


@dataclass(frozen=True, slots=True)
class Message:
    """A message for the server; `producer` is the connection id of the client that published it."""

    subject: bytes
    reply: bytes
    header: bytes
    payload: bytes
    producer: int


Callback = Callable[[Message], None]


class InternalClient:
    """An internal client of an account. Used from the loop's thread only."""

    def __init__(
        self, account: "Account", cid: int, poller: "Poller", state: "ServerState", kind: int = ACCOUNT
    ) -> None:
        self.client = Client(kind, -1, cid, poller, state)
        self.client.register(account)
        self._sids = itertools.count(1)
        self._callbacks: dict[bytes, Callback] = {}

    def subscribe(self, subject: bytes, callback: Callback, queue: bytes | None = None) -> bytes:
        """Have `callback` called with each message; returns what unsubscribe() takes.

        Raises ValueError for an invalid subject, MemoryError.
        """
        sid = b"%d" % next(self._sids)
        self.client.subscribe_internal(subject, queue, sid)
        self._callbacks[sid] = callback
        return sid

    def unsubscribe(self, sid: bytes) -> None:
        """Undo subscribe(). Messages on their way are dropped. Raises KeyError for an unknown one."""
        del self._callbacks[sid]
        self.client.unsubscribe_internal(sid)

    def publish(
        self, subject: bytes, payload: bytes, *, reply: bytes | None = None, header: bytes | None = None
    ) -> bool:
        """Publish in the account; True when somebody received it. `header` is a whole header block."""
        return self.client.publish_internal(subject, reply, header, payload)

    def process_message(self, producer: int, message: tuple[bytes, bytes, bytes, bytes, bytes]) -> None:
        """Hand over a message of an EV_MSG: (subject, reply, header, payload, sid)."""
        subject, reply, header, payload, sid = message
        if callback := self._callbacks.get(sid):
            callback(Message(subject, reply, header, payload, producer))

    def close(self) -> None:
        """Unsubscribe from everything and go."""
        self._callbacks.clear()
        self.client.close_connection(ClosedState.CLIENT_CLOSED)
