"""A server that is not there: routes over plain sockets, dialled by a test or by the server under test.

`Fake` makes the CONNECT and the INFO of such a server, `RoutePeer` is one connection of it, `RouteListener`
is what a server's `routes` name. A peer compresses only where a test asks for it (`dial_compressed`,
`serve_compressed`): for all others set `compression: off` in the server's `cluster`.
"""

from __future__ import annotations

import itertools
import re
import socket
import ssl
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from .linkpeer import LinkListener, LinkPeer, encode
from .servers import TIMEOUT, Server
from .wire import CRLF, Connection, parse_info, publish_op

POOL = 3
"""The size of a pool of routes, here and in a server that has not another one configured."""
SYSTEM = b"$SYS"
GLOBAL = b"$G"
LISTENING = re.compile(r"Listening for route connections on (\S+):(\d+)")

_fakes = itertools.count(1)
_marks = itertools.count(1)


def route_address(server: Server) -> tuple[str, int]:
    """Return the address on which a server listens for routes, from its log."""
    host, port = server.wait_log(LISTENING).groups()
    return host, int(port)


def pool_index(account: bytes, size: int = POOL) -> int:
    """Return the index in a pool of the connection that carries an account (computeRoutePoolIdx)."""
    value = 2166136261
    for byte in account:
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value % size


def messages(ops: Iterable[bytes]) -> list[bytes]:
    """Return the RMSG and HMSG operations."""
    return [op for op in ops if op.startswith((b"RMSG ", b"HMSG "))]


class RoutePeer(LinkPeer):
    """One route's connection; see LinkPeer. `account` is set for a pinned account."""

    tag = "rid"

    def __init__(self, sock: socket.socket, account: bytes = b"") -> None:
        super().__init__(sock)
        self.account = account

    def line(self, verb: bytes, account: bytes, rest: bytes) -> bytes:
        """Write a line about an account in the form of this connection: a pinned account is not named."""
        named = rest if self.account else account + b" " + rest
        return verb + b" " + named + CRLF

    def tell(self, verb: bytes, account: bytes, *rests: bytes) -> list[bytes]:
        """Send a line for each of `rests`, and wait until the other side has read them, as `fence` does."""
        self.send(b"".join(self.line(verb, account, rest) for rest in rests))
        return self.fence()

    def message(
        self, account: bytes, subject: bytes, payload: bytes = b"", *, header: bytes = b"", to: bytes = b""
    ) -> None:
        """Send RMSG or, with a header block, HMSG. `to` is what stands before the sizes: reply, groups."""
        words = [subject, to] if to else [subject]
        words += [b"%d" % len(header)] if header else []
        words.append(b"%d" % (len(header) + len(payload)))
        self.send(self.line(b"HMSG" if header else b"RMSG", account, b" ".join(words)))
        self.send(header + payload + CRLF)

    def interest(self, ops: Iterable[bytes], account: bytes = GLOBAL) -> list[bytes]:
        """Return the RS+ and RS- lines of an account among `ops`, without its name and without line ends."""
        found = []
        for op in ops:
            verb, _, rest = op.removesuffix(CRLF).partition(b" ")
            name = self.account
            if not name:
                name, _, rest = rest.partition(b" ")
            if verb in (b"RS+", b"RS-") and name == account:
                found.append(verb + b" " + rest)
        return found

    def after(self, client: Connection, account: bytes = GLOBAL) -> list[bytes]:
        """Return the operations before a message that `client`, in that account, publishes now.

        All interest and messages that this client has caused are before it (docs/routes.md, 1.4).
        """
        mark = b"mark.%d" % next(_marks)
        ops = self.tell(b"RS+", account, mark)
        client.send(publish_op(mark.decode()))
        ops += self.until(self.line(b"RMSG", account, mark + b" 0"))[:-1]
        self.send(self.line(b"RS-", account, mark))
        return ops

    def settle(self) -> None:
        """Take `info` and the pinned `account` from the INFO in `opening`, if there is one."""
        for op in self.opening:
            if op.startswith(b"INFO ") and not self.info:
                self.info = parse_info(op)
                self.account = self.info.get("route_account", "").encode()


class RouteListener(LinkListener):
    """A socket on loopback that servers dial as a route; see LinkListener. `tls` is what to accept with."""

    scheme = "nats-route"

    def __init__(self, port: int = 0) -> None:
        super().__init__(port)
        self.tls: ssl.SSLContext | None = None

    def __enter__(self) -> RouteListener:
        return self

    def accept(self) -> RoutePeer:
        """Take the next connection, and read its CONNECT. Raises OSError; TimeoutError when nobody dials."""
        sock = self.take_socket()
        if self.tls:
            sock = self.tls.wrap_socket(sock, server_side=True)
        peer = RoutePeer(sock)
        try:
            peer.take_connect()
        except BaseException:
            peer.close()
            raise
        return peer


class Fake:
    """A server that is not there: its CONNECT and INFO, with any member changed or, as None, left out.

    `members` are changes of every INFO. The id and the name are unique unless given. Its connections are
    closed when the `with` block ends.
    """

    def __init__(self, name: str = "", *, server_id: str = "", cluster: str = "C", **members: Any) -> None:
        number = next(_fakes)
        self.name = name or f"fake{number}"
        self.id = server_id or f"NFAKE{number:051d}"
        self.cluster = cluster
        self.members = members
        self._peers = ExitStack()

    def __enter__(self) -> Fake:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections of this server."""
        self._peers.close()

    def connect(self, **changes: Any) -> bytes:
        """Encode CONNECT. For user and password: user="u", **{"pass": "p"}."""
        members = {
            "echo": True,
            "verbose": False,
            "pedantic": False,
            "tls_required": False,
            "headers": True,
            "name": self.id,
            "cluster": self.cluster,
            "lnoc": True,
        }
        return encode("CONNECT", members | changes)

    def info(self, **changes: Any) -> bytes:
        """Encode INFO. It has no pool; a pool takes route_pool_size and, unless it is 0, route_pool_idx."""
        members = {
            "server_id": self.id,
            "server_name": self.name,
            "version": "2.15.1",
            "proto": 3,
            "go": "go1.25",
            "host": "127.0.0.1",
            "port": 1,
            "headers": True,
            "max_payload": 1 << 20,
            "cluster": self.cluster,
            "lnoc": True,
            "lnocu": True,
        }
        return encode("INFO", members | self.members | changes)

    def greet(self, server: Server | tuple[str, int], tls: ssl.SSLContext | None = None) -> RoutePeer:
        """Dial a server's port for routes, over TLS with `tls`, and read its INFO; send nothing else."""
        address = route_address(server) if isinstance(server, Server) else server
        sock = socket.create_connection(address, TIMEOUT)
        if tls:
            sock = tls.wrap_socket(sock, server_hostname="localhost")
        peer = self._peers.enter_context(RoutePeer(sock))
        peer.take_info()
        return peer

    def accept(self, listener: RouteListener) -> RoutePeer:
        """Take the next connection to a listener of this server, and read its CONNECT."""
        return self._peers.enter_context(listener.accept())

    def greeted(self, listener: RouteListener) -> RoutePeer:
        """Take the next connection to a listener of this server, and see which one it is; send no INFO yet.

        The connection of a pinned account has sent INFO by itself: then `info` and `account` are set.
        """
        peer = self.accept(listener)
        peer.opening = peer.fence()
        peer.settle()
        return peer

    def answer(self, peer: RoutePeer, size: int = POOL, **info: Any) -> RoutePeer:
        """Send INFO over a connection that a server has dialled; keep what comes then in its `opening`."""
        peer.send(self.info(route_pool_size=size or None, **info))
        if not peer.info:
            peer.opening += peer.until(b"INFO ")
        peer.opening += peer.fence()
        peer.settle()
        return peer

    def serve(self, listener: RouteListener, count: int = POOL + 1, **info: Any) -> list[RoutePeer]:
        """Answer the next connections; return those of the pool by their index, then pinned ones."""
        peers = [self.answer(self.greeted(listener), **info) for _ in range(count)]
        return sorted(peers, key=lambda peer: (peer.account, peer.info.get("route_pool_idx", 0)))

    def dial(
        self,
        server: Server | tuple[str, int],
        *,
        connect: dict[str, Any] | None = None,
        account: bytes = b"",
        **info: Any,
    ) -> RoutePeer:
        """Dial, greet with CONNECT and INFO, and wait until both are read. Raises Closed when refused.

        `connect` and `info` are changes of the two. Without further ones it is a connection without a pool.
        The peer's `opening` is what came after INFO up to then. Interest may still be on its way (`after`).
        """
        peer = self.greet(server)
        peer.account = account
        peer.send(self.connect(**connect or {}) + self.info(**info))
        peer.opening = peer.fence()
        return peer

    def dial_compressed(
        self, server: Server | tuple[str, int], mode: str, *, account: bytes = b"", **info: Any
    ) -> RoutePeer:
        """As `dial`, with a mode of compression that makes both sides compress.

        The peer's `info` becomes the other side's second one, which is compressed.
        """
        peer = self.greet(server)
        peer.account = account
        about = {"route_account": info.get("route_account")}
        peer.send(self.connect() + self.info(compression=mode, **about))
        peer.compress()
        peer.take_info()
        peer.send(self.info(compression=mode, **info))
        peer.opening = peer.fence()
        return peer

    def serve_compressed(self, listener: RouteListener, mode: str, count: int = POOL + 1) -> list[RoutePeer]:
        """As `serve`, with a mode of compression that makes both sides compress.

        The `info` of each is the one that the server sends last, `opening` begins with the one before it.
        """
        peers = [self.answer_compressed(self.accept(listener), mode) for _ in range(count)]
        return sorted(peers, key=lambda peer: (peer.account, peer.info.get("route_pool_idx", 0)))

    def answer_compressed(self, peer: RoutePeer, mode: str, size: int = POOL) -> RoutePeer:
        """Send INFO over a connection that a server has dialled, and a second one that is compressed."""
        peer.send(self.info(route_pool_size=size, compression=mode))
        peer.opening = [peer.read_op()]
        peer.compress()
        peer.send(self.info(route_pool_size=size, compression=mode))
        peer.take_info()
        peer.account = peer.info.get("route_account", "").encode()
        peer.opening += peer.fence()
        return peer

    def pooled(self, server: Server, account: bytes = GLOBAL, size: int = POOL, **info: Any) -> RoutePeer:
        """Dial the connection of a pool that carries an account."""
        index = pool_index(account, size) or None
        return self.dial(server, route_pool_size=size, route_pool_idx=index, **info)

    def pinned(self, server: Server, account: bytes = SYSTEM, size: int = POOL, **info: Any) -> RoutePeer:
        """Dial the connection of a pinned account."""
        return self.dial(
            server, account=account, route_pool_size=size, route_account=account.decode(), **info
        )
