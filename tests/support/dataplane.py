"""A data plane without a server: pollers that the test runs itself, clients and links over socket pairs."""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from gnats.core.accounts.account import Account
from gnats.core.accounts.registry import AccountRegistry
from gnats.core.auth.permissions import Permissions
from gnats.core.client import Client
from gnats.core.links.gateway_session import GatewaySession
from gnats.core.links.leaf_session import LeafSession
from gnats.core.links.route_session import RouteSession
from gnats.core.net.connection import Connection
from gnats.core.poller import Poller
from gnats.core.runtime.inbox import EV_CLOSED, Inbox
from gnats.core.runtime.kinds import CLIENT, GATEWAY, LEAF, ROUTER
from gnats.core.runtime.state import ServerState

Session = Client | RouteSession | LeafSession | GatewaySession
Posted = tuple[int, Connection | None, int, int, object]
COMMAND = b'INFO {"gateway":"G","gateway_cmd":'
"""An INFO line of this server, up to the value of gateway_cmd."""
QUIET = 3
"""Rounds of all pollers in a row without an event, after which nothing is left to do."""


class DataPlane:
    """Pollers in the test's own thread, so that each run takes the same course.

    `events` are those that they have posted so far.
    """

    def __init__(self, pollers: int = 1) -> None:
        self.inbox = Inbox()
        self.state = ServerState()
        self.state.set_details(b',"server":"srv"')
        self.registry = AccountRegistry()
        self.pollers = [Poller(n, self.inbox, self.state, solo=pollers == 1) for n in range(pollers)]
        self.events: list[Posted] = []
        self.made = 0
        self.open: set[int] = set()
        self.sockets: list[socket.socket] = []

    def account(self, name: str) -> Account:
        """Make an account and register it."""
        account = Account()
        account.set_identity(name.encode(), f'"{name}"'.encode(), b"")
        self.registry.add(name.encode(), account)
        return account

    def _socket(self) -> tuple[socket.socket, int, int]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.made += 1
        self.open.add(self.made)
        self.sockets.append(theirs)
        return theirs, ours.detach(), self.made

    def client(self, account: Account, poller: int = 0) -> Peer:
        """Connect a client that needs no CONNECT."""
        sock, fd, cid = self._socket()
        client = Client(CLIENT, fd, cid, self.pollers[poller], self.state)
        client.register(account)
        client.start(b"", expect_connect=False)
        return Peer(self, client, sock)

    def route(
        self, poller: int = 0, *, headers: bool = True, max_pending: int = 64 << 20, **terms: object
    ) -> Peer:
        """Connect a server that has been registered; see RouteSession.join() for `terms`."""
        peer = self.waiting_route(poller, max_pending=max_pending)
        assert isinstance(peer.session, RouteSession)
        pool = {"pool_index": -1, "pool_size": 1} | terms
        peer.session.join(headers=headers, **({"traces": True} | pool))  # type: ignore[arg-type]
        self.run()
        return peer

    def waiting_route(
        self,
        poller: int = 0,
        *,
        expect_connect: bool = False,
        greeting: bytes = b"",
        prepare: Callable[[RouteSession], object] | None = None,
        **options: Any,
    ) -> Peer:
        """Connect a server that has not been registered; `prepare` is called before its session starts."""
        sock, fd, cid = self._socket()
        options = {"ping_interval": 0, "write_deadline": 3600.0} | options
        route = RouteSession(ROUTER, fd, cid, self.pollers[poller], self.state, self.registry, **options)
        if prepare:
            prepare(route)
        route.start(greeting, expect_connect=expect_connect)
        self.run()
        return Peer(self, route, sock)

    def leaf(
        self,
        account: Account,
        poller: int = 0,
        *,
        cluster: bytes = b"L",
        spoke: bool = False,
        isolated: bool = False,
        headers: bool = True,
        **terms: Any,
    ) -> Peer:
        """Connect a leaf node, or a hub, that has been registered; see LeafSession.join()."""
        peer = self.waiting_leaf(poller)
        assert isinstance(peer.session, LeafSession)
        peer.session.join(
            account,
            cluster=cluster,
            spoke=spoke,
            dialled=spoke,
            isolated=isolated,
            headers=headers,
            **({"traces": True, "loop_subject": b"$LDS.own"} | terms),
        )
        self.run()
        return peer

    def waiting_leaf(self, poller: int = 0, *, expect_connect: bool = False, **options: Any) -> Peer:
        """Connect a leaf node that has not been registered."""
        sock, fd, cid = self._socket()
        options = {"ping_interval": 0, "write_deadline": 3600.0} | options
        leaf = LeafSession(LEAF, fd, cid, self.pollers[poller], self.state, self.registry, **options)
        leaf.start(b"", expect_connect=expect_connect)
        self.run()
        return Peer(self, leaf, sock)

    def inbound(
        self, poller: int = 0, *, cluster: bytes = b"F", headers: bool = True, digests: bool = False
    ) -> Peer:
        """Connect a server of another cluster that has dialled and has been registered: it sends messages."""
        peer = self.waiting_gateway(poller, outbound=False)
        assert isinstance(peer.session, GatewaySession)
        peer.session.join(cluster=cluster, headers=headers, traces=True, command=COMMAND, digests=digests)
        self.run()
        return peer

    def outbound(
        self,
        poller: int = 0,
        *,
        cluster: bytes = b"F",
        headers: bool = True,
        traces: bool = True,
        rank: int = 0,
        greeting: bytes = b"",
        digests: bool = False,
    ) -> Peer:
        """Connect a server of another cluster that has been dialled and registered: it is sent messages."""
        peer = self.waiting_gateway(poller, outbound=True)
        assert isinstance(peer.session, GatewaySession)
        terms = {"traces": traces, "rank": rank, "greeting": greeting, "digests": digests}
        peer.session.join(cluster=cluster, headers=headers, **terms)  # type: ignore[arg-type]
        self.run()
        return peer

    def waiting_gateway(
        self, poller: int = 0, *, outbound: bool, expect_connect: bool = False, **options: Any
    ) -> Peer:
        """Connect a server of another cluster that has not been registered."""
        sock, fd, cid = self._socket()
        options = {"ping_interval": 0, "write_deadline": 3600.0} | options
        gateway = GatewaySession(
            GATEWAY, fd, cid, self.pollers[poller], self.state, self.registry, outbound=outbound, **options
        )
        gateway.start(b"", expect_connect=expect_connect)
        self.run()
        return Peer(self, gateway, sock)

    def run(self) -> None:
        """Run all pollers until nothing is left to do, and collect what they post."""
        quiet = 0
        while quiet < QUIET:
            done = sum(poller.run_once(0) for poller in self.pollers)
            posted = self.inbox.drain()
            for event in posted:
                if event[0] == EV_CLOSED and event[1] is not None:
                    self.open.discard(event[1].cid)
            self.events += posted
            quiet = 0 if done or posted else quiet + 1

    def take(self, which: int) -> list[Posted]:
        """Return the events of a kind that have been posted since the last call, and forget them."""
        found = [event for event in self.events if event[0] == which]
        self.events = [event for event in self.events if event[0] != which]
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sock in self.sockets:
            sock.close()
        self.run()
        for poller in self.pollers:
            poller.close()
        if exc is None:
            assert not self.open


class Peer:
    """The other end of a connection. A route's `permissions` are those of its session."""

    def __init__(self, plane: DataPlane, session: Session, sock: socket.socket) -> None:
        self.plane = plane
        self.session = session
        self.socket = sock

    def send(self, data: bytes) -> None:
        """Write bytes; the pollers do not run."""
        self.socket.sendall(data)

    def say(self, data: bytes) -> bytes:
        """Write bytes, let the pollers run, and return what came back."""
        self.send(data)
        return self.hear()

    def hear(self) -> bytes:
        """Let the pollers run, and return what has come."""
        heard = b""
        while True:
            self.plane.run()
            more = self.come()
            if not more:
                return heard
            heard += more

    def come(self) -> bytes:
        """Return what has come; the pollers do not run."""
        come = b""
        while True:
            try:
                data = self.socket.recv(1 << 20)
            except BlockingIOError:
                return come
            if not data:
                return come
            come += data


def flood(publisher: Peer, subject: bytes) -> None:
    """Publish 7 MiB to a subject, while the pollers run and the subscribers read nothing."""
    message = b"PUB %b 65536\r\n%b\r\n" % (subject, bytes(65536))
    for _ in range(112):
        rest = message
        while rest:
            try:
                rest = rest[publisher.socket.send(rest) :]
            except BlockingIOError:
                publisher.plane.run()
    publisher.plane.run()


def permissions(granted: object) -> Permissions:
    """Compile permissions of the options."""
    from gnats.core.auth.permissions import compile_permissions

    compiled = compile_permissions(granted)  # type: ignore[arg-type]
    assert compiled is not None
    return compiled
