"""A server that is not there: leaf node connections over plain sockets, dialled by either side.

`FakeLeaf` makes the CONNECT and the INFO of such a server, `LeafPeer` is one connection of it, `LeafListener`
is what a server's remotes name. A peer compresses only where a test asks for it: for all others set
`compression: off`.
"""

from __future__ import annotations

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
from .linkpeer import LinkListener, LinkPeer, encode
from .servers import TIMEOUT, Server
from .wire import CRLF, Connection, parse_info, publish_op

LISTENING = re.compile(r"Listening for leafnode connections on (\S+):(\d+)")
LOOP = b"$LDS."
"""The beginning of the subjects by which servers detect loops."""

_MESSAGE = re.compile(rb"[LH]MSG ")
_fakes = itertools.count(1)
_marks = itertools.count(1)


def leaf_address(server: Server) -> tuple[str, int]:
    """Return the address on which a server listens for leaf nodes, from its log."""
    host, port = server.wait_log(LISTENING).groups()
    return host, int(port)


def accepting(block: str = "", config: str = "") -> str:
    """Return the configuration of `launch_accepting`."""
    return f"leafnodes {{ listen: '127.0.0.1:-1', compression: off\n{block}\n}}\n{config}"


def launch_accepting(launch: Launch, *args: str, block: str = "", config: str = "", **more: Any) -> Server:
    """Start a server, with monitoring, that listens for leaf nodes on a random port and compresses none.

    `block` are further lines of leafnodes, `config` lines outside of it.
    """
    return start(launch, "-m", "-1", *args, config=accepting(block, config), **more)


def soliciting(*urls: str, remote: str = "", block: str = "", config: str = "") -> str:
    """Return a configuration with one remote, whose URLs these are."""
    remotes = f"remotes [ {{ urls: {json.dumps(urls)}, compression: off\n{remote}\n}} ]"
    return f"leafnodes {{ reconnect: '0.2s'\n{remotes}\n{block}\n}}\n{config}"


def launch_soliciting(
    launch: Launch,
    *urls: str,
    args: Iterable[str] = ("-D",),
    remote: str = "",
    block: str = "",
    config: str = "",
    **more: Any,
) -> Server:
    """Start a server, with monitoring, that is a leaf node of one remote; it dials 0.2 s after a failure."""
    text = soliciting(*urls, remote=remote, block=block, config=config)
    return start(launch, "-m", "-1", *args, config=text, **more)


def messages(ops: Iterable[bytes]) -> list[bytes]:
    """Return the LMSG and HMSG operations."""
    return [op for op in ops if _MESSAGE.match(op)]


def loop_subject(ops: Iterable[bytes]) -> bytes:
    """Return the subject for detecting loops that is announced among `ops`; empty without one."""
    return next((op[4:-2] for op in ops if op.startswith(b"LS+ " + LOOP)), b"")


def interest(ops: Iterable[bytes]) -> list[bytes]:
    """Return LS+ and LS- lines without line ends, sorted; leave out the subjects for detecting loops."""
    lines = [op.removesuffix(CRLF) for op in ops if op.startswith((b"LS+ ", b"LS- "))]
    return sorted(line for line in lines if not line[4:].startswith(LOOP))


class LeafPeer(LinkPeer):
    """One leaf node connection; see LinkPeer. `connected` is the INFO that answers CONNECT, if read."""

    tag = "lid"

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.connected: dict[str, Any] = {}

    def __enter__(self) -> LeafPeer:
        return self

    def take_connected(self) -> dict[str, Any]:
        """Read the INFO that answers CONNECT into `connected`; drop what comes before."""
        self.connected = parse_info(self.await_op(b"INFO "))
        return self.connected

    def subscribe(self, *rests: bytes) -> list[bytes]:
        """Send LS+ for each of `rests`; return what came before the other side had read them."""
        self.send(b"".join(b"LS+ " + rest + CRLF for rest in rests))
        return self.fence()

    def unsubscribe(self, *rests: bytes) -> list[bytes]:
        """Send LS- for each of `rests`; return what came before the other side had read them."""
        self.send(b"".join(b"LS- " + rest + CRLF for rest in rests))
        return self.fence()

    def publish(self, subject: bytes, payload: bytes = b"", *, header: bytes = b"", to: bytes = b"") -> None:
        """Send LMSG or, with a header block, HMSG. `to` is what stands before the sizes: reply, groups."""
        words = [subject, to] if to else [subject]
        words += [b"%d" % len(header)] if header else []
        words.append(b"%d" % (len(header) + len(payload)))
        self.send((b"HMSG " if header else b"LMSG ") + b" ".join(words) + CRLF + header + payload + CRLF)

    def after_client(self, client: Connection) -> list[bytes]:
        """Return the operations before a message that `client`, in the leaf's account, publishes now."""
        mark = b"mark.%d" % next(_marks)
        ops = self.subscribe(mark)
        client.send(publish_op(mark.decode()))
        ops += self.until(b"LMSG " + mark + b" 0")[:-1]
        self.send(b"LS- " + mark + CRLF)
        return ops


class LeafListener(LinkListener):
    """A socket on loopback that servers dial as leaf nodes; see LinkListener."""

    scheme = "nats-leaf"

    def take(self) -> LeafPeer:
        """Take the next connection as it is. Raises TimeoutError when nobody dials."""
        return LeafPeer(self.take_socket())


class FakeLeaf:
    """A server that is not there: its CONNECT and INFO, with any member changed or, as None, left out.

    `cluster` is "" outside of a cluster. `members` are changes of every INFO. The id and the name are unique
    unless given. Its connections are closed when the `with` block ends.
    """

    def __init__(self, name: str = "", *, server_id: str = "", cluster: str = "", **members: Any) -> None:
        number = next(_fakes)
        self.name = name or f"leaf{number}"
        self.id = server_id or f"NLEAF{number:051d}"
        self.cluster = cluster
        self.members = members
        self._peers = ExitStack()

    def __enter__(self) -> FakeLeaf:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections of this server."""
        self._peers.close()

    def connect(self, **changes: Any) -> bytes:
        """Encode CONNECT. For user and password: user="u", **{"pass": "p"}."""
        members = {
            "version": "2.15.1",
            "server_id": self.id,
            "name": self.name,
            "cluster": self.cluster or None,
            "headers": True,
            "remote_account": "$G",
            "protocol": 1,
        }
        return encode("CONNECT", members | changes)

    def info(self, **changes: Any) -> bytes:
        """Encode the first INFO of a server that accepts leaf nodes."""
        members = {
            "server_id": self.id,
            "server_name": self.name,
            "version": "2.15.1",
            "proto": 1,
            "go": "go1.25",
            "host": "127.0.0.1",
            "port": 1,
            "headers": True,
            "auth_required": True,
            "max_payload": 1 << 20,
            "ip": "127.0.0.1:1",
            "client_id": 7,
            "nonce": "AAAAAAAAAAAAAAA",
            "cluster": self.cluster or None,
            "info_on_connect": True,
            "leafnode_urls": ["127.0.0.1:1"],
        }
        return encode("INFO", members | self.members | changes)

    def greet(self, server: Server | tuple[str, int], tls: ssl.SSLContext | None = None) -> LeafPeer:
        """Dial a server's port for leaf nodes, read its INFO, and go on with TLS if asked to."""
        address = leaf_address(server) if isinstance(server, Server) else server
        peer = self._peers.enter_context(LeafPeer(socket.create_connection(address, TIMEOUT)))
        peer.take_info()
        if tls:
            peer.sock = self._peers.enter_context(tls.wrap_socket(peer.sock, server_hostname="localhost"))
        return peer

    def dial(self, server: Server | tuple[str, int], **connect: Any) -> LeafPeer:
        """Dial, send CONNECT, and wait until it is read. Raises Closed when refused.

        The peer's `connected` is the INFO that answers, `opening` the interest that came with it.
        """
        peer = self.greet(server)
        peer.send(self.connect(**connect))
        peer.take_connected()
        peer.opening = peer.fence()
        return peer

    def accept(self, listener: LeafListener, **info: Any) -> LeafPeer:
        """Take the next connection to a listener of this server, send INFO, and read its CONNECT."""
        peer = self._peers.enter_context(listener.take())
        peer.send(self.info(**info))
        peer.take_connect()
        return peer

    def serve(self, listener: LeafListener, *, account: str = "$G", **info: Any) -> LeafPeer:
        """Accept a connection to a listener of this server, and answer CONNECT; see answer()."""
        peer = self.accept(listener, **info)
        self.answer(peer, account=account)
        return peer

    def answer(self, peer: LeafPeer, *, account: str = "$G", **info: Any) -> None:
        """Send the INFO that answers a CONNECT; keep what comes then in the peer's `opening`."""
        peer.send(self.info(connect_info=True, remote_account=account, nonce=None, **info))
        peer.opening = peer.fence()
