"""Answer the CONNECT and INFO of leaf nodes: refuse the peer, or have it join its account.

The server that accepts sends INFO, takes CONNECT, and answers with a second INFO and its interest. The server
that dials takes INFO, sends CONNECT, and joins at the second INFO. With compression, both send an INFO with
the mode before CONNECT.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from gnats.auth.authenticator import Denied
from gnats.auth.connect import auth_violation, trace_connect
from gnats.client.grant import Grant
from gnats.clock import call_later
from gnats.cluster.compression import UnknownModeError, choose_mode, negotiates, shown_mode
from gnats.cluster.info import ROUTE_PROTO
from gnats.cluster.link_health import peers_words, wrong_port
from gnats.connection.closed_state import ClosedState
from gnats.go.json import JSONError
from gnats.go.text import quote
from gnats.leafnodes.authorization import LeafAuthorization
from gnats.leafnodes.credentials import CredentialsError, signed
from gnats.leafnodes.info import OwnInfo, PeerConnect, PeerInfo, at_least, connect_line
from gnats.leafnodes.leaf import Leaf
from gnats.options.values.cluster import (
    NOT_SUPPORTED,
    OFF,
    S2_AUTO,
    S2_UNCOMPRESSED,
    Compression,
    name_fault,
)
from gnats.version import NATS_VERSION

if TYPE_CHECKING:
    from asyncio import Task

    from gnats.accounts.account import Account
    from gnats.accounts.accounts import Accounts
    from gnats.events.events import Events
    from gnats.log.logger import Logger
    from gnats.nkeys.identity import Identity
    from gnats.options.options import Options

FINISH_TIMEOUT = 2.0
"""Seconds from CONNECT to the INFO that answers it (connectProcessTimeout)."""
DUPLICATE = ClosedState.DUPLICATE_REMOTE_LEAFNODE_CONNECTION
SAME_CLUSTER_NAME = "remote leafnode has same cluster name"
MIN_VERSION = "connection rejected since minimum version required is"
_CLIENT = "attempted to connect to leaf node port"
_WRONG_PORT = "attempted to connect to wrong port"
_VIOLATION = "Authorization Violation"
_DUPLICATE = ClosedState.DUPLICATE_REMOTE_LEAFNODE_CONNECTION

Spawn = Callable[[Coroutine[Any, Any, None]], "Task[None]"]


class Joining(Protocol):
    """What follows from handshakes; the leaf nodes of a server do it."""

    def register(self, leaf: Leaf, account: "Account") -> bool:
        """Count a connection in its account; return whether there is room."""

    def accepted(self, leaf: Leaf) -> None:
        """Have an accepted connection join its account."""

    def dialled(self, leaf: Leaf, connect: bytes) -> None:
        """Have a connection that was dialled join its account; send `connect` first."""

    def informed(self, leaf: Leaf, info: PeerInfo) -> None:
        """Use what an INFO says that may change."""

    def marked(self, leaf: Leaf, mark: str) -> None:
        """Note a mark of the peer."""

    def secure(self, leaf: Leaf, info: PeerInfo) -> None:
        """Hand a connection that was dialled to its poller, over TLS if one of the servers requires it."""


class Handshake:
    """Answers the CONNECT and INFO of leaf nodes. `options` returns the server's current options."""

    def __init__(
        self,
        identity: "Identity",
        info: OwnInfo,
        accounts: "Accounts",
        authorization: LeafAuthorization,
        leafnodes: Joining,
        log: "Logger",
        *,
        options: "Callable[[], Options]",
        events: "Callable[[], Events | None]",
        spawn: Spawn,
    ) -> None:
        self._identity = identity
        self._info = info
        self._accounts = accounts
        self._authorization = authorization
        self._leafnodes = leafnodes
        self._log = log
        self._options = options
        self._events = events
        self._spawn = spawn

    # -- CONNECT of a peer -----------------------------------------------------------------------------------

    def process_connect(self, leaf: Leaf, arg: bytes) -> None:
        """Answer a CONNECT: have the peer join, or close the connection."""
        log = self._log
        if leaf.session is None or leaf.leaving:
            return
        trace_connect(leaf, arg, log)
        if leaf.solicited:  # nobody owes one
            self._refuse_unauthorized(leaf)
            return
        if leaf.has_joined:  # for nats-server, too, it takes the place of its own connection
            leaf.refuse(log, DUPLICATE, str(DUPLICATE))
            return
        try:
            leaf.opts.merge(arg)
        except JSONError as exc:
            self._malformed(leaf, exc)
            return
        if not self._authorization.takes_jwts:
            leaf.opts.jwt = ""
        try:
            decision = self._authorization.check(leaf)
        except Denied as exc:
            self._denied(leaf, exc)
        else:
            if isinstance(decision, Grant):
                self._granted(leaf, arg, decision)
            else:
                deciding = self._spawn(self._decide_later(leaf, arg, decision))
                deciding.add_done_callback(partial(self._decided, leaf))
                leaf.decide(deciding)

    async def _decide_later(self, leaf: Leaf, arg: bytes, decision: Coroutine[Any, Any, Grant]) -> None:
        try:
            grant = await decision
        except Denied as exc:
            self._denied(leaf, exc)
        else:
            self._granted(leaf, arg, grant)

    def _decided(self, leaf: Leaf, deciding: "Task[None]") -> None:
        """Refuse the peer when the check has raised an unexpected error: else it would wait for ever."""
        if not deciding.cancelled() and (exc := deciding.exception()):
            self._log.error(f"{leaf} - Authentication failed: {exc!r:.500}")
            self._violation(leaf)

    def _denied(self, leaf: Leaf, why: Denied) -> None:
        if leaf.closing:
            return
        if text := str(why):
            self._log.debug(f"{leaf} - {text}")
        self._violation(leaf, why.state)
        account = self._accounts.get(why.account) if why.account else leaf.account
        events = self._events()
        if events and account:
            events.account_auth_error(leaf, account, why.reason)

    def _violation(self, leaf: Leaf, state: ClosedState = ClosedState.AUTHENTICATION_VIOLATION) -> None:
        auth_violation(leaf, self._log, self._events(), state)

    def _granted(self, leaf: Leaf, arg: bytes, grant: Grant) -> None:
        if leaf.closing:  # gone while its credentials were checked
            return
        if leaf.opts.new_account or leaf.opts.account:
            self._violation(leaf)
            return
        if leaf.has_joined:  # the session stays in the account that it has joined
            leaf.refuse(self._log, _DUPLICATE, str(_DUPLICATE))
            return
        account = self._accounts.get(grant.account)
        if account is None:
            user = quote(leaf.opts.user)
            text = f"authentication of user {user} failed, unable to lookup account {quote(grant.account)}"
            self._log.error(f"{text}: account missing")
            self._violation(leaf)
            return
        leaf.grant = grant
        if not self._leafnodes.register(leaf, account):
            error = "maximum account active connections exceeded"
            leaf.refuse(self._log, ClosedState.MAX_ACCOUNT_CONNECTIONS_EXCEEDED, error)
            return
        leaf.connected = True
        events = self._events()
        if events and not self._authorization.has_users:
            events.connected(leaf)
        if grant.expires is not None:
            leaf.expire_after(grant.expires, self._log)
        self._connected(leaf, arg)

    def _connected(self, leaf: Leaf, arg: bytes) -> None:
        """Check what a CONNECT says of the peer, which is authorized (processLeafNodeConnect)."""
        log, opts = self._log, self._options()
        if leaf.opts.lang:
            self._reject(leaf, ClosedState.WRONG_PORT, _CLIENT, _CLIENT)
            return
        try:
            connect = PeerConnect.read(arg)
        except JSONError as exc:
            self._malformed(leaf, exc)
            return
        if fault := name_fault(connect.cluster):
            self._reject(leaf, ClosedState.PROTOCOL_VIOLATION, fault, fault)
            return
        if connect.cluster and connect.cluster == opts.cluster.name:
            self._reject(leaf, ClosedState.CLUSTER_NAMES_IDENTICAL, SAME_CLUSTER_NAME, SAME_CLUSTER_NAME)
            return
        if connect.gateway:
            error = f"Rejecting connection from gateway {quote(connect.gateway)} on the leafnode port"
            log.error(f"{leaf} - {error}")
            leaf.close(log, ClosedState.WRONG_GATEWAY, error)
            log.error(f"{leaf} - wrong gateway")
            return
        permissions = leaf.grant.permissions
        leaf.imports = permissions.subscribe if permissions else None
        leaf.exports = permissions.publish if permissions else None
        oldest = opts.leafnodes.min_version
        if oldest and not at_least(connect.version, oldest):
            leaf.send(self._answer(leaf))
            error = f"{MIN_VERSION} {quote(oldest)}"
            leaf.refuse(log, ClosedState.MINIMUM_VERSION_REQUIRED, error)
            return
        leaf.headers = connect.headers and not opts.no_header_support
        leaf.compression = leaf.compression or connect.compress_mode or NOT_SUPPORTED
        leaf.peer_id = connect.server_id
        leaf.peer_name = connect.name
        leaf.remote_account = connect.remote_account
        leaf.isolated = leaf.isolated or connect.isolate
        leaf.spoke = connect.is_hub
        leaf.peer_cluster = connect.cluster
        leaf.peer_domain = connect.domain
        leaf.peer_denials = tuple(connect.deny_pub)
        leaf.proto = connect.protocol
        leaf.passes = connect.group_passing
        self._leafnodes.accepted(leaf)

    def _answer(self, leaf: Leaf) -> bytes:
        return self._info.answer(leaf, is_system=leaf.account is self._accounts.system_account)

    def _reject(self, leaf: Leaf, reason: ClosedState, error: str, why: str) -> None:
        leaf.refuse(self._log, reason, error)
        self._log.error(f"{leaf} - {why}")

    def _malformed(self, leaf: Leaf, exc: JSONError) -> None:
        self._log.error(f"{leaf} - {exc}")
        leaf.close(self._log, ClosedState.PROTOCOL_VIOLATION)

    def _refuse_unauthorized(self, leaf: Leaf) -> None:
        leaf.close(self._log, ClosedState.PROTOCOL_VIOLATION, _VIOLATION)

    # -- INFO ------------------------------------------------------------------------------------------------

    def process_line(self, leaf: Leaf, line: bytes) -> None:
        """Answer what a server that was dialled sends first: INFO hands the connection to a poller."""
        verb, _, arg = line.partition(b" ")
        match verb.upper():
            case b"INFO":
                self._first_info(leaf, arg.strip())
            case b"PING" if leaf.first_info:
                leaf.first_info.send(b"PONG\r\n")
            case b"-ERR":
                text = arg.decode("utf-8", "backslashreplace")
                self._log.error(f"{leaf} - Leafnode Error {text}")
                leaf.trouble = peers_words(text)
            case b"PONG" | b"+OK" | b"":
                pass
            case _:
                leaf.trouble = f"Expected an INFO, not {quote(verb[:32].decode('latin-1'))}"
                self._log.error(f"{leaf} - {leaf.trouble}")
                leaf.close(self._log, ClosedState.PROTOCOL_VIOLATION)

    def _first_info(self, leaf: Leaf, arg: bytes) -> None:
        info = self._read(leaf, arg)
        if info and self._comes_from_leaf_port(leaf, info):
            self._leafnodes.secure(leaf, info)

    def process_info(self, leaf: Leaf, arg: bytes) -> None:
        """Answer an INFO that a poller has read."""
        if leaf.session is None or leaf.leaving:
            return
        info = self._read(leaf, arg)
        if info is None:
            return
        if leaf.solicited:
            self.process_peer_info(leaf, info)
        elif (
            leaf.negotiated
            or leaf.connected
            or not self._compresses(leaf, info, self._options().leafnodes.compression)
        ):
            self._mark(leaf, info)
            leaf.session.resume()

    def _mark(self, leaf: Leaf, info: PeerInfo) -> None:
        if leaf.has_joined and info.nonce:
            self._leafnodes.marked(leaf, info.nonce)

    def _read(self, leaf: Leaf, arg: bytes) -> PeerInfo | None:
        try:
            return PeerInfo.read(arg)
        except JSONError as exc:
            self._malformed(leaf, exc)
            return None

    def _comes_from_leaf_port(self, leaf: Leaf, info: PeerInfo) -> bool:
        if info.of_leaf_port:
            return True
        self._log.error(f"{leaf} - {_WRONG_PORT}")
        leaf.trouble = wrong_port(leaf.host, leaf.port, info.kind_of_port, "leaf nodes")
        leaf.close(self._log, ClosedState.WRONG_PORT)
        return False

    def process_peer_info(self, leaf: Leaf, info: PeerInfo, *, waits: bool = True) -> None:
        """Go on with an INFO of a server that was dialled (processLeafnodeInfo).

        `waits`: the poller has read it and waits. Else it must not be told to go on: that could come late,
        after it has read the next INFO.
        """
        assert leaf.remote and leaf.session
        if leaf.has_info:
            self._further_info(leaf, info)
            return
        if not leaf.negotiated:
            if not self._comes_from_leaf_port(leaf, info):
                return
            leaf.nonce = info.nonce  # the next INFO may be without
            if self._compresses(leaf, info, leaf.remote.options.compression):
                return  # another INFO follows
        if fault := name_fault(info.cluster):
            leaf.refuse(self._log, ClosedState.PROTOCOL_VIOLATION, fault)
            return
        leaf.has_info = True
        leaf.nonce = info.nonce or leaf.nonce
        leaf.headers = info.headers and not self._options().no_header_support
        leaf.peer_id = info.server_id
        leaf.peer_name = info.server_name or info.server_id
        leaf.peer_domain = info.domain
        leaf.peer_cluster = info.cluster
        leaf.proto = info.proto
        leaf.passes = info.group_passing
        self._leafnodes.informed(leaf, info)
        connect = self._connect(leaf)
        if not connect:
            return
        if not info.info_on_connect:  # an old server goes on at once
            self._leafnodes.dialled(leaf, connect)
            return
        leaf.finish_timer = call_later(FINISH_TIMEOUT, self._stale, leaf)
        leaf.send(connect)
        if waits:
            leaf.session.resume()

    def _further_info(self, leaf: Leaf, info: PeerInfo) -> None:
        assert leaf.session
        leaf.remote_account = info.remote_account
        self._mark(leaf, info)
        self._leafnodes.informed(leaf, info)
        if info.connect_info and not leaf.has_joined:
            leaf.stop_waiting()
            self._leafnodes.dialled(leaf, b"")
        else:
            leaf.session.resume()

    def _stale(self, leaf: Leaf) -> None:
        leaf.finish_timer = None
        error = "Stale Leaf Node Connection - Closing"
        leaf.rate_limit(self._log, "DBG", error)
        leaf.close(self._log, ClosedState.STALE_CONNECTION, error)

    def _compresses(self, leaf: Leaf, info: PeerInfo, configured: Compression) -> bool:
        """Agree whether to compress (negotiateLeafCompression). Return whether another INFO follows."""
        assert leaf.session
        leaf.negotiated = True
        if not negotiates(configured.mode):
            unknown = not info.compression or configured.mode == NOT_SUPPORTED
            leaf.compression = NOT_SUPPORTED if unknown else OFF
            return False
        try:
            mode = choose_mode(configured.mode, info.compression)
        except UnknownModeError as exc:
            leaf.refuse(self._log, ClosedState.PROTOCOL_VIOLATION, str(exc))
            return True
        if mode == S2_AUTO:
            mode = leaf.s2_level(configured.rtt_thresholds)
        leaf.compression = mode
        if not negotiates(mode):
            return False
        shown = shown_mode(configured.mode, mode)
        own = self._info.line(
            client_id=leaf.cid, nonce="" if leaf.solicited else leaf.nonce, compression=shown
        )
        leaf.session.compress(own, solicited=leaf.solicited, uncompressed=mode == S2_UNCOMPRESSED)
        return True

    def _connect(self, leaf: Leaf) -> bytes:
        """Return the CONNECT; close the connection, and return nothing, when credentials cannot be read."""
        log, opts, remote = self._log, self._options(), leaf.remote
        assert remote and leaf.url
        if remote.options.credentials:
            log.debug(f"{leaf} - Authenticating with credentials file {quote(remote.options.credentials)}")
        try:
            proof = signed(remote.options, leaf.nonce)
        except CredentialsError as exc:
            log.error(f"{leaf} - {exc}")
            leaf.trouble = str(exc)
            leaf.close(log, ClosedState.WRITE_ERROR)
            return b""
        user, password, token = remote.login(leaf.url)
        values = {
            "version": NATS_VERSION,
            "user": user,
            "pass": password,
            "auth_token": token,
            "server_id": self._identity.id,
            "domain": opts.jetstream.domain,
            "name": self._identity.name,
            "is_hub": remote.options.hub,
            "cluster": opts.cluster.name,
            "headers": leaf.headers,
            "jetstream": leaf.account.jetstream_limits is not None,
            "deny_pub": list(remote.options.deny_imports),
            "isolate": remote.options.request_isolation,
            "compress_mode": leaf.compression,
            "remote_account": leaf.account.name,
            "protocol": ROUTE_PROTO,
            "group_passing": True,
        }
        log.debug(f"{leaf} - Remote leafnode connect msg sent")
        return connect_line(values | proof)
