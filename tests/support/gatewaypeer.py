"""A cluster that is not there: gateway connections over plain sockets, dialled by either side.

`FakeGateway` makes the CONNECT and the INFO of a server of such a cluster, `GatewayPeer` is one connection of
it, `GatewayListener` is what a server's `gateways` name. A connection carries messages in one direction, from
the side that dials to the side that accepts, and interest in the other (docs/gateways.md).
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import socket
import ssl
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from .clusters import start
from .launch import Launch
from .routepeer import RoutePeer, encode
from .servers import TIMEOUT, Server
from .wire import CRLF, Connection, parse_info, publish_op

LISTENING = re.compile(r"Listening for gateways connections on (\S+):(\d+)")
GOSSIP, ALL_SUBS_START, ALL_SUBS_COMPLETE = 1, 2, 3
"""Values of an INFO's gateway_cmd."""
REPLY = re.compile(rb"_GR_\.([0-9A-Za-z]{6})\.([0-9A-Za-z]{6})\.(.+)")
"""A mapped reply: hash of the cluster's name, hash of the server's id, the reply itself."""

_DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_fakes = itertools.count(1)
_marks = itertools.count(1)


def gateway_address(server: Server) -> tuple[str, int]:
    """Return the address on which a server listens for gateways, from its log."""
    host, port = server.wait_log(LISTENING).groups()
    return host, int(port)


def name_hash(name: str) -> bytes:
    """Return the hash of a cluster's name, or of a server's id, as it stands in a mapped reply (getHash)."""
    return bytes(_DIGITS[byte % 62] for byte in hashlib.sha256(name.encode()).digest()[:6])


def launch_gateway(
    launch: Launch,
    *args: str,
    name: str = "G",
    remotes: dict[str, str] | None = None,
    block: str = "",
    config: str = "",
    **more: Any,
) -> Server:
    """Start a server, with monitoring, that has a gateway on a random port of loopback.

    `remotes` are the URLs of other clusters by name, `block` further lines of the block, `config` lines
    outside of it.
    """
    others = json.dumps([{"name": name, "url": url} for name, url in (remotes or {}).items()])
    text = f"gateway {{ name: {name}, listen: '127.0.0.1:-1', gateways: {others}\n{block}\n}}\n{config}"
    return start(launch, "-m", "-1", *args, config=text, **more)


def messages(ops: Iterable[bytes]) -> list[bytes]:
    """Return the RMSG and HMSG operations."""
    return [op for op in ops if op.startswith((b"RMSG ", b"HMSG "))]


def interest(ops: Iterable[bytes], account: bytes = b"$G") -> list[bytes]:
    """Return the RS+, RS-, A+ and A- lines of an account, without its name and without line ends."""
    found = []
    for op in ops:
        verb, _, rest = op.removesuffix(CRLF).partition(b" ")
        name, _, subject = rest.partition(b" ")
        if verb in (b"RS+", b"RS-", b"A+", b"A-") and name == account:
            found.append(verb + b" " + subject if subject else verb)
    return found


def commands(ops: Iterable[bytes]) -> list[tuple[int, str]]:
    """Return gateway_cmd and the account that it is about, of every INFO with the former."""
    found = []
    for op in ops:
        if op.startswith(b"INFO ") and (command := (info := parse_info(op)).get("gateway_cmd")):
            payload = info.get("gateway_cmd_payload", "")
            found.append((command, base64.b64decode(payload).decode()))
    return found


class GatewayPeer(RoutePeer):
    """One gateway connection; see RoutePeer."""

    tag = "gid"

    def __enter__(self) -> GatewayPeer:
        return self

    def take_accounts(self, count: int) -> list[bytes]:
        """Read until the other side has announced all interest of that many accounts; return all operations.

        The server has accepted this connection.
        """
        while sum(command == ALL_SUBS_COMPLETE for command, _ in commands(self.seen)) < count:
            self.read_op()
        return self.seen

    def after_client(self, client: Connection, account: bytes = b"$G") -> list[bytes]:
        """Return the operations before a message that `client`, in that account, publishes now.

        For connections that the server has dialled, and accounts in interest-only mode.
        """
        mark = b"mark.%d" % next(_marks)
        ops = self.tell(b"RS+", account, mark)
        client.send(publish_op(mark.decode()))
        ops += self.until(self.line(b"RMSG", account, mark + b" 0"))[:-1]
        self.send(self.line(b"RS-", account, mark))
        return ops


class GatewayListener:
    """A socket on loopback that servers dial as a gateway, on a random port unless one is given."""

    def __init__(self, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self._listener.settimeout(TIMEOUT)
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"nats://{self.address}"
        self.tls: ssl.SSLContext | None = None  # what to accept connections with

    def __enter__(self) -> GatewayListener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self) -> GatewayPeer:
        """Take the next connection as it is. Raises TimeoutError when nobody dials."""
        sock = self._listener.accept()[0]
        if self.tls:
            sock.settimeout(TIMEOUT)
            sock = self.tls.wrap_socket(sock, server_side=True)
        return GatewayPeer(sock)

    def close(self) -> None:
        self._listener.close()


class FakeGateway:
    """A server that is not there: its CONNECT and INFO, with any member changed or, as None, left out.

    `gateway` is its cluster. `members` are changes of every INFO. The id and the name are unique unless
    given. INFO names no URLs, so nobody dials it because of them. Its connections are closed when the `with`
    block ends.
    """

    def __init__(self, gateway: str = "F", *, name: str = "", server_id: str = "", **members: Any) -> None:
        number = next(_fakes)
        self.gateway = gateway
        self.name = name or f"gate{number}"
        self.id = server_id or f"NGATE{number:051d}"
        self.members = members
        self._peers = ExitStack()

    def __enter__(self) -> FakeGateway:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections of this server."""
        self._peers.close()

    def connect(self, **changes: Any) -> bytes:
        """Encode CONNECT. For user and password: user="u", **{"pass": "p"}."""
        members = {
            "verbose": False,
            "pedantic": False,
            "tls_required": False,
            "name": self.id,
            "gateway": self.gateway,
        }
        return encode("CONNECT", members | changes)

    def info(self, **changes: Any) -> bytes:
        """Encode the INFO of the gateway."""
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
            "gateway": self.gateway,
            "gateway_nrp": True,
            "gateway_iom": True,
        }
        return encode("INFO", members | self.members | changes)

    def command(self, command: int, account: str | None = None, **changes: Any) -> bytes:
        """Encode an INFO with gateway_cmd, about an account."""
        payload = None if account is None else base64.b64encode(account.encode()).decode()
        members = {"gateway": self.gateway, "gateway_cmd": command, "gateway_cmd_payload": payload}
        return encode("INFO", members | changes)

    def greet(self, server: Server | tuple[str, int], tls: ssl.SSLContext | None = None) -> GatewayPeer:
        """Dial a server's gateway, over TLS with `tls`, and read its INFO; send nothing else."""
        address = gateway_address(server) if isinstance(server, Server) else server
        sock = socket.create_connection(address, TIMEOUT)
        if tls:
            sock = tls.wrap_socket(sock, server_hostname="localhost")
        peer = self._peers.enter_context(GatewayPeer(sock))
        peer.take_info()
        return peer

    def dial(
        self, server: Server | tuple[str, int], *, connect: dict[str, Any] | None = None, **info: Any
    ) -> GatewayPeer:
        """Dial, send CONNECT and INFO, and wait until both are read. Raises Closed when refused.

        `connect` and `info` are changes of the two. This side may send messages; the peer's `opening` is the
        interest and the gossip that came up to then.
        """
        peer = self.greet(server)
        peer.send(self.connect(**connect or {}) + self.info(**info))
        peer.opening = peer.fence()
        return peer

    def accept(self, listener: GatewayListener, **info: Any) -> GatewayPeer:
        """Take the next connection to a listener of this server, send INFO, and read CONNECT and INFO.

        The server sends messages over it, and expects interest.
        """
        peer = self._peers.enter_context(listener.take())
        peer.send(self.info(**info))
        peer.take_connect()
        peer.take_info()
        peer.opening = peer.fence()
        return peer
