"""Dispatch the pollers' events by a table, which the parts of a server fill."""

from collections.abc import Callable, Iterable

from gnats.core.net.connection import Connection
from gnats.core.runtime.kinds import ACCOUNT, CLIENT, GATEWAY, JETSTREAM, LEAF, ROUTER, SYSTEM
from gnats.runtime.pollers import Event

KINDS = (CLIENT, ROUTER, GATEWAY, SYSTEM, LEAF, JETSTREAM, ACCOUNT)

Handler = Callable[[Connection | None, int, int, object], bool | None]
"""Handles an event with its source, two numbers and data, whose meanings depend on the event
(core.runtime.inbox). Returns True when the poller may resume a connection that waits."""


class EventTable:
    """The handlers of events. Used from the loop's thread."""

    def __init__(self) -> None:
        self._handlers: dict[tuple[int, int], Handler] = {}

    def on(self, event: int, handler: Handler, kinds: Iterable[int] = KINDS) -> None:
        """Have `handler` handle an event; one about a connection only for these kinds of connections."""
        for kind in kinds:
            self._handlers[event, kind] = handler

    def handle(self, event: Event) -> bool:
        """Handle an event; return True when the poller may resume a connection. Ignores unknown events."""
        which, source, a, b, data = event
        handler = self._handlers.get((which, source.kind if isinstance(source, Connection) else CLIENT))
        return bool(handler and handler(source, a, b, data))
