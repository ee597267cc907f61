"""A server's connections of one kind, routes, gateways or leaf nodes: open ones, what they carry."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from gnats.accounts.account import TRAFFIC
from gnats.cluster.link_health import peers_words
from gnats.connection.closed_state import ClosedState
from gnats.core.net.connection import Connection
from gnats.core.runtime.inbox import EV_CONNECT, EV_INFO
from gnats.runtime.accept import AcceptLoop
from gnats.runtime.reported import Waiting, answer_punt
from gnats.runtime.reporting import Reported, Reporting

if TYPE_CHECKING:
    from gnats.core.accounts.subscriber import Subscriber
    from gnats.core.poller import Poller
    from gnats.log.logger import Logger
    from gnats.runtime.dispatch import EventTable

MAX_PENDING_FACTOR = 4
"""Times max_pending that may be queued for another server: nats-server has no limit there."""

_STALE = ClosedState.STALE_CONNECTION
_SLOW = (ClosedState.SLOW_CONSUMER_PENDING_BYTES, ClosedState.SLOW_CONSUMER_WRITE_DEADLINE)


class Open(Reported, Waiting, Protocol):
    """A connection to another server."""

    @property
    def cid(self) -> int: ...
    @property
    def session(self) -> "Subscriber | None": ...

    trouble: str


C = TypeVar("C", bound=Open)
C_contra = TypeVar("C_contra", contravariant=True)


class Handshake(Protocol[C_contra]):
    """Answers the verbs of connections that have not joined yet, and INFO also later."""

    def process_connect(self, connection: C_contra, arg: bytes, /) -> None: ...
    def process_info(self, connection: C_contra, arg: bytes, /) -> None: ...


class Connections(Generic[C]):
    """The connections of one kind, in both directions. Used from the loop's thread."""

    def __init__(self, log: "Logger") -> None:
        self._log = log
        self.open: dict[int, C] = {}
        """All connections by id, also those that have not joined (yet)."""
        self.watchers: set[Callable[[], object]] = set()
        """Called when a connection has joined, has left or is closed, and when a mark has come."""
        self._pollers: Iterator[Poller] | None = None
        """Choose the pollers of new connections; None: none are made."""
        self._listener: AcceptLoop | None = None
        self._ended = dict.fromkeys(TRAFFIC, 0)
        """The traffic of connections that are closed."""
        self._closed_as_slow = 0
        self.stale = 0
        """Connections that were closed because they did not answer PINGs."""

    @property
    def connected(self) -> bool:
        """Whether there are connections, joined or not."""
        return bool(self.open)

    @property
    def running(self) -> bool:
        """Whether new connections are made."""
        return self._pollers is not None

    def traffic(self) -> dict[str, int]:
        """Return the messages and bytes (TRAFFIC) of all connections since the start."""
        total = dict(self._ended)
        for link in self.open.values():
            counters = link.session.snapshot() if link.session else {}
            for name in TRAFFIC:
                total[name] += counters.get(name, 0)
        return total

    @property
    def slow(self) -> int:
        """How often a peer did not read fast enough, whether it was closed or kept."""
        return self._closed_as_slow + self.traffic()["slow"]

    def stop_accepting(self) -> None:
        """Close the port, and dial nobody any more; established connections stay. Idempotent."""
        self._pollers = None
        if self._listener:
            self._listener.close()

    def close(self) -> None:
        """Close all connections: the server shuts down."""
        for link in list(self.open.values()):
            link.close(self._log, ClosedState.SERVER_SHUTDOWN)

    def connections(self) -> list[Connection]:
        """Return the data plane's sides of all connections."""
        return [link.session for link in self.open.values() if link.session]

    def _serve(self, events: "EventTable", kind: int, handshake: Handshake[C]) -> None:
        """Handle the events that all kinds have: CONNECT, INFO, log and trace records."""
        for event, answer in (EV_CONNECT, handshake.process_connect), (EV_INFO, handshake.process_info):
            events.on(event, partial(self._answer_verb, answer), (kind,))
        Reporting(self._log, self._find, self._note_words).serve(events, (kind,))

    def _note_words(self, source: Connection | None, text: str) -> None:
        if link := self._find(source):
            link.trouble = peers_words(text)

    def _answer_verb(
        self, answer: Callable[[C, bytes], None], source: Connection | None, a: int, b: int, data: object
    ) -> bool:
        return answer_punt(self._find(source), data, answer, self._log)

    def _find(self, source: Connection | None) -> C | None:
        return self.open.get(source.cid) if isinstance(source, Connection) else None

    def _count_end(self, final: dict[str, int], reason: int) -> None:
        """Count a connection that is closed, with its last counters."""
        for name in TRAFFIC:
            self._ended[name] += final.get(name, 0)
        self.stale += reason == _STALE
        self._closed_as_slow += reason in _SLOW

    def _tell_watchers(self) -> None:
        for watcher in list(self.watchers):
            watcher()
