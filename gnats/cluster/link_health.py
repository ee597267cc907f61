"""The health of links: traffic by remote server, slow ones, conflicts, and configured ones that are missing.

A server has a LinkHealth for each kind of link: routes, leaf nodes, gateways. They are used in the loop's
thread.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gnats.accounts.account import TRAFFIC
from gnats.clock import monotonic
from gnats.cluster.link_conflicts import LinkConflicts
from gnats.connection.closed_state import ClosedState
from gnats.go.text import join_host_port, quote

if TYPE_CHECKING:
    from gnats.log.logger import Logger

CHECK_INTERVAL = 1.0
"""Seconds between two checks whether links are slow."""
ATTEMPTS = 2
"""Attempts to connect that must fail until a configured link is missing."""
SETTLED = 2.0
"""Seconds after which a connection is there to stay: some servers refuse one that has joined already."""
MOST_PEERS = 256
"""Remote servers whose counters are kept; beyond them, the first one without connections is forgotten."""

MOST_OF_PEERS_WORDS = 256
"""Characters of what another server says that operators are shown."""

_WORDS = {"route": "Route", "leafnode": "Leafnode connection", "gateway": "Gateway connection"}
_STALE = ClosedState.STALE_CONNECTION
_SURPLUS = ClosedState.DUPLICATE_ROUTE
"""Two servers that dial each other make connections that neither needs: it is no error."""
_SLOW = (ClosedState.SLOW_CONSUMER_PENDING_BYTES, ClosedState.SLOW_CONSUMER_WRITE_DEADLINE)


class Session(Protocol):
    """The data plane's side of a link."""

    def snapshot(self) -> dict[str, int]: ...


class Link(Protocol):
    """A connection to another server; `trace_name` is the remote server's name, empty before it is known."""

    @property
    def session(self) -> Session | None: ...
    @property
    def trace_name(self) -> str: ...


class Configured(NamedTuple):
    """A route, remote or gateway of the configuration, without secrets."""

    address: str
    """host:port, of several URLs with commas between."""
    account: str
    """The account that it is for alone; empty: it is a route of the pool."""

    def __str__(self) -> str:
        return quote(self.address) + (f" for account {quote(self.account)}" if self.account else "")


class Missing(NamedTuple):
    """A route, remote or gateway of the configuration that is not connected."""

    link: Configured
    attempts: int
    """Attempts that have failed since it was connected last."""
    error: str
    """Why the last one failed."""


@dataclass(slots=True)
class PeerState:
    """A remote server: what its connections have carried, with those that are closed, and how they are."""

    name: str
    connections: int = 0
    """Open now, after a handshake."""
    traffic: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TRAFFIC, 0))
    pending: int = 0
    """Bytes queued for the remote server."""
    rtt: int = 0
    """ns, the longest of the connections; 0: not measured."""
    subscriptions: int = 0
    """Of the remote server."""
    slow: bool = False
    times_slow: int = 0
    """How often it began to be slow."""
    stale: int = 0
    """Connections that were closed because PINGs had no answer."""
    repairs: int = 0
    """How often its interest here was not what it had told, and it told all again."""
    error: str = ""
    """Why the last one that has ended was closed; empty: none has, or as one too many."""


@dataclass(slots=True)
class _Peer:
    ended: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TRAFFIC, 0))
    missed: int = 0
    """Write deadlines missed, when that was looked at last."""
    slow: bool = False
    times_slow: int = 0
    stale: int = 0
    repairs: int = 0
    error: str = ""


@dataclass(slots=True)
class _Attempts:
    failed: int = 0
    error: str = ""
    joined: float | None = None
    """When a connection joined that is not settled yet."""


class LinkHealth:
    """Watches the links of one kind, "route", "leafnode" or "gateway".

    `links` returns those that have joined, `configured` what the configuration asks for.
    """

    def __init__(
        self,
        kind: str,
        log: "Logger",
        links: Callable[[], Iterable[Link]],
        configured: Callable[[], Iterable[Configured]],
    ) -> None:
        self.kind = kind
        self._what = _WORDS[kind]
        self._log = log
        self.conflicts = LinkConflicts(self._what, log)
        self._links = links
        self._configured = configured
        self._peers: dict[str, _Peer] = {}
        self._attempts: dict[Configured, _Attempts] = {}

    # -- remote servers --------------------------------------------------------------------------------------

    def check(self) -> list[PeerState]:
        """Return the state of each remote server; log the name of one that has begun or ceased to be slow."""
        self.conflicts.expire()
        self._settle()
        states: dict[str, PeerState] = {}
        late: dict[str, bool] = {}
        over: dict[str, bool] = {}
        for name, counters in self._open():
            state = states.setdefault(name, PeerState(name))
            _add(state, counters)
            pending, gate = counters.get("pending_bytes", 0), counters.get("gate", 0)
            late[name] = late.get(name, False) or bool(counters.get("late"))
            # Half of the gate: one that has just come below it may be above it again at once.
            limit = gate // 2 if name in self._peers and self._peers[name].slow else gate
            over[name] = over.get(name, False) or pending > limit
        for name, state in states.items():
            peer = self._peer(name)
            missed = peer.ended["slow"] + state.traffic["slow"]
            self._judge(state, peer, slow=late[name] or over[name] or missed > peer.missed)
            peer.missed = missed
        for name, peer in self._peers.items():
            state = states.setdefault(name, PeerState(name))
            if not state.connections:
                peer.slow = False
            for counter in TRAFFIC:
                state.traffic[counter] += peer.ended[counter]
            state.slow, state.times_slow, state.stale = peer.slow, peer.times_slow, peer.stale
            state.repairs += peer.repairs
            state.error = peer.error
        return sorted(states.values(), key=lambda state: state.name)

    def closed(self, link: Link, final: dict[str, int], reason: int, trouble: str = "") -> None:
        """Note the end of a link, with its last counters.

        `trouble`, if not empty, says more than the reason.
        """
        if not (name := link.trace_name):
            return
        peer = self._peer(name)
        for counter in TRAFFIC:
            peer.ended[counter] += final.get(counter, 0)
        peer.missed = max(peer.missed, peer.ended["slow"])
        peer.stale += reason == _STALE
        peer.repairs += final.get("repairs", 0)
        if trouble or reason != _SURPLUS:
            peer.error = trouble or str(ClosedState(reason))
        if reason in _SLOW and not peer.slow:
            peer.times_slow += 1
            self._log.warn(f"{self._what} to {quote(name)} was slow, and is closed: {ClosedState(reason)}")

    def _open(self) -> Iterator[tuple[str, dict[str, int]]]:
        for link in self._links():
            if link.session and link.trace_name:
                yield link.trace_name, link.session.snapshot()

    def _peer(self, name: str) -> _Peer:
        if (peer := self._peers.get(name)) is None:
            if len(self._peers) >= MOST_PEERS:
                connected = {link.trace_name for link in self._links()}
                if gone := next((each for each in self._peers if each not in connected), None):
                    del self._peers[gone]
            peer = self._peers[name] = _Peer()
        return peer

    def _judge(self, state: PeerState, peer: _Peer, *, slow: bool) -> None:
        if slow == peer.slow:
            return
        peer.slow = slow
        peer.times_slow += slow
        link = f"{self._what} to {quote(state.name)}"
        if slow:
            self._log.warn(f"{link} is slow: {state.pending} bytes are pending")
        else:
            self._log.notice(f"{link} is not slow any more")

    # -- links of the configuration --------------------------------------------------------------------------

    def failed(self, link: Configured, error: str) -> None:
        """Note an attempt to connect that has failed; log the second one in a row."""
        attempts = self._attempts.setdefault(link, _Attempts())
        attempts.failed += 1
        attempts.error = error
        attempts.joined = None
        if attempts.failed == ATTEMPTS:
            self._log.warn(f"{self._what} to {link} is missing: {ATTEMPTS} attempts have failed: {error}")

    def joined(self, link: Configured) -> None:
        """Note that a link is connected; it is reached when that lasts."""
        if attempts := self._attempts.get(link):
            attempts.joined = monotonic()

    def _settle(self) -> None:
        limit = monotonic() - SETTLED
        for link, attempts in list(self._attempts.items()):
            if attempts.joined is not None and attempts.joined <= limit:
                self.reached(link)

    def reached(self, link: Configured) -> None:
        """Note that a link is connected to stay, or needs no connection."""
        attempts = self._attempts.pop(link, None)
        if attempts and attempts.failed >= ATTEMPTS:
            self._log.notice(f"{self._what} to {link} is not missing any more")

    def configured(self) -> dict[Configured, Missing | None]:
        """Return the links of the configuration, and of each whether it is missing."""
        links = dict.fromkeys(self._configured())
        for link in self._attempts.keys() - links.keys():  # a reload has removed it
            del self._attempts[link]
        return {link: self._missing(link) for link in links}

    def _missing(self, link: Configured) -> Missing | None:
        attempts = self._attempts.get(link)
        if attempts is None or attempts.failed < ATTEMPTS:
            return None
        return Missing(link, attempts.failed, attempts.error)


def peers_words(text: str) -> str:
    """Return what another server has said, `'text'` of its -ERR, as a reason for operators."""
    said = text if len(text) <= MOST_OF_PEERS_WORDS else f"{text[:MOST_OF_PEERS_WORDS]}..."
    return f"the other server says {said}"


def wrong_port(host: str, port: int, found: str, wanted: str) -> str:
    """Return that a port is for others than was thought, as a reason for operators."""
    return f"{ClosedState.WRONG_PORT}: {join_host_port(host, port)} is a port for {found}, not for {wanted}"


def _add(state: PeerState, counters: dict[str, int]) -> None:
    state.connections += 1
    for counter in TRAFFIC:
        state.traffic[counter] += counters.get(counter, 0)
    state.pending += counters.get("pending_bytes", 0)
    state.rtt = max(state.rtt, counters.get("rtt", 0))
    state.subscriptions += counters.get("subscriptions", 0)
    state.repairs += counters.get("repairs", 0)
