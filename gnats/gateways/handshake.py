"""Answer the CONNECT and INFO of gateways (processGatewayConnect, processGatewayInfo): refuse, or register.

The server that accepts sends INFO, and takes CONNECT and INFO. The server that dials takes INFO, sends
CONNECT and INFO, and goes on at once: nothing answers that.
"""

import base64
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from gnats.auth.connect import trace_connect
from gnats.cluster.certificates import Wanted
from gnats.cluster.info import PeerConnect, PeerInfo
from gnats.cluster.login import Login
from gnats.connection.closed_state import ClosedState
from gnats.gateways.gateway import INTEREST_ONLY, TRANSITIONING, Gateway
from gnats.gateways.info import ALL_SUBS_COMPLETE, ALL_SUBS_START, GOSSIP
from gnats.go.json import JSONError
from gnats.go.text import quote
from gnats.options.values.gateway import GatewayOptions

if TYPE_CHECKING:
    from asyncio import Task

    from gnats.log.logger import Logger
    from gnats.options.options import Options

Spawn = Callable[[Coroutine[Any, Any, None]], "Task[None]"]

MOST_MODES = 65_536
"""Accounts whose mode is noted, of those that a peer names."""
_WRONG_PORT = "attempted to connect to gateway port"


class Joining(Protocol):
    """What follows from handshakes; the gateways of a server do it."""

    def accepted(self, gateway: Gateway, info: PeerInfo) -> None:
        """Register an inbound connection, and have it join."""

    def dialled(self, gateway: Gateway, info: PeerInfo) -> None:
        """Answer the peer's first INFO, register the outbound connection, and have it join."""

    def answered(self, gateway: Gateway) -> None:
        """Note that the peer of an outbound connection has taken the CONNECT."""

    def marked(self, gateway: Gateway, mark: str) -> None:
        """Note a mark of the peer of an outbound connection (gnats.gateways.mesh)."""

    def refused(self, gateway: Gateway) -> None:
        """Tell of a peer whose credentials are refused."""

    def informed(self, gateway: Gateway, info: PeerInfo) -> None:
        """Use what the peer of an outbound connection says of its cluster."""

    def discovered(self, info: PeerInfo) -> None:
        """Dial a cluster that a server tells of, unless it is known."""

    def is_known(self, name: str) -> bool:
        """Whether a cluster is one of the configuration, or another server has told of it."""

    def is_here(self, server_name: str) -> bool:
        """Whether a server of this cluster has this name."""


class Handshake:
    """Answers the CONNECT and INFO of gateways. `options` returns the server's current options."""

    def __init__(
        self, gateways: Joining, log: "Logger", *, options: "Callable[[], Options]", spawn: Spawn
    ) -> None:
        self._gateways = gateways
        self._log = log
        self._options = options
        self._spawn = spawn
        self._login = Login(log, lambda: wanted(options().gateway))

    # -- CONNECT of an inbound connection --------------------------------------------------------------------

    def process_connect(self, gateway: Gateway, arg: bytes) -> None:
        """Answer a CONNECT: accept it, or close the connection."""
        log = self._log
        if gateway.session is None or gateway.leaving:
            return
        trace_connect(gateway, arg, log)
        if gateway.outbound:  # nobody owes one
            self._refuse(gateway)
            return
        try:
            gateway.connect = PeerConnect.read(arg)
        except JSONError as exc:
            gateway.malformed(log, exc)
            return
        good = self._login.check(gateway)
        if good is None:
            checking = self._spawn(self._check_hash(gateway, arg))
            self._login.watch(gateway, checking, partial(self._refuse, gateway))
        else:
            self._authenticated(gateway, arg, good)

    async def _check_hash(self, gateway: Gateway, arg: bytes) -> None:
        self._authenticated(gateway, arg, await self._login.check_hash(gateway))

    def _refuse(self, gateway: Gateway) -> None:
        gateway.violation(self._log)
        self._gateways.refused(gateway)

    def _authenticated(self, gateway: Gateway, arg: bytes, good: bool) -> None:
        connect, log = gateway.connect, self._log
        if gateway.session is None or gateway.leaving:  # gone while its password was checked
            return
        if not good or connect.account or connect.new_account:
            self._refuse(gateway)
            return
        gateway.connected = True
        try:
            connect.read_cluster(arg)
        except JSONError as exc:
            gateway.malformed(log, exc)
            return
        if not connect.gateway:  # a client, a route or a leaf node
            gateway.refuse(log, ClosedState.WRONG_PORT, _WRONG_PORT)
            log.error(f"{gateway} - {_WRONG_PORT}")
        elif self._takes(gateway, connect.gateway):
            gateway.session.accept_connect()

    def _takes(self, gateway: Gateway, name: str) -> bool:
        """Check whether a cluster may connect; close the connection if it may not."""
        block = self._options().gateway
        if not block.reject_unknown or self._gateways.is_known(name):
            return True
        self._log.error(f"{gateway} - Rejecting connection from gateway {quote(name)}")
        error = f"Connection to gateway {quote(block.name)} rejected"
        gateway.reject(self._log, ClosedState.WRONG_GATEWAY, error, "wrong gateway")
        return False

    # -- INFO ------------------------------------------------------------------------------------------------

    def process_info(self, gateway: Gateway, arg: bytes) -> None:
        """Answer an INFO: the first one registers the connection or closes it; only that is waited for."""
        if gateway.session is None or gateway.leaving:
            return
        try:
            info = PeerInfo.read(arg)
        except JSONError as exc:
            gateway.malformed(self._log, exc)
            return
        first = gateway.peer is None
        if first:
            gateway.peer, gateway.remote_id = info, info.server_id
        if gateway.outbound:
            self._of_outbound(gateway, info, first=first)
        elif first:
            self._of_inbound(gateway, info)

    def _of_inbound(self, gateway: Gateway, info: PeerInfo) -> None:
        if not info.gateway:
            gateway.malformed(self._log, ValueError("INFO without the name of a gateway"))
            return
        gateway.name = info.gateway
        if self._is_unique(gateway, info) and self._takes(gateway, info.gateway):
            self._gateways.accepted(gateway, info)

    def _is_unique(self, gateway: Gateway, info: PeerInfo) -> bool:
        if not self._gateways.is_here(info.server_name):
            return True
        self._log.error(f"{gateway} - Remote server has a duplicate name: {quote(info.server_name)}")
        gateway.close(self._log, ClosedState.DUPLICATE_SERVER_NAME)
        return False

    def _of_outbound(self, gateway: Gateway, info: PeerInfo, *, first: bool) -> None:
        log, name = self._log, gateway.name
        if not first and not gateway.answered:
            self._gateways.answered(gateway)
        if not first and (mark := info.sent.get("nonce")):
            self._gateways.marked(gateway, str(mark))
        if not info.gateway:
            error = f"Attempt to connect to gateway {quote(name)} using wrong port"
            gateway.refuse(log, ClosedState.WRONG_PORT, error)
        elif info.gateway != name:
            if first or info.gateway_cmd != GOSSIP:
                self._wrong_cluster(gateway, info.gateway)
            elif not self._options().gateway.reject_unknown or self._gateways.is_known(info.gateway):
                self._gateways.discovered(info)
        elif not self._is_unique(gateway, info):
            return
        elif first:
            if info.gateway_iom:
                self._gateways.dialled(gateway, info)
            else:  # a server before 2.9, which waits to be asked
                error = f"Gateway {quote(name)} does not announce all its interest"
                gateway.refuse(log, ClosedState.MINIMUM_VERSION_REQUIRED, error)
        elif info.gateway_cmd:
            self._obey(gateway, info)
        else:
            self._gateways.informed(gateway, info)

    def _wrong_cluster(self, gateway: Gateway, found: str) -> None:
        wanted, own = quote(gateway.name), quote(self._options().gateway.name)
        text = f"Failing connection to gateway {wanted}, remote gateway name is {quote(found)}"
        self._log.error(f"{gateway} - {text}")
        error = f"Connection from {own} rejected, wanted to connect to {wanted}, this is {quote(found)}"
        gateway.close(self._log, ClosedState.WRONG_GATEWAY, error)

    def _obey(self, gateway: Gateway, info: PeerInfo) -> None:
        """Note what a command says of the peer's interest; its session has read the interest itself."""
        name, command = quote(gateway.name), info.gateway_cmd
        if command not in (ALL_SUBS_START, ALL_SUBS_COMPLETE):
            self._log.warn(f"Received unknown command {command} from gateway {name}")
            return
        complete = command == ALL_SUBS_COMPLETE
        if not info.gateway_cmd_payload:
            what = "complete" if complete else "start"
            error = f"Account absent from receive-all-subscriptions-{what} command"
            gateway.refuse(self._log, ClosedState.PROTOCOL_VIOLATION, error)
            return
        try:
            account = base64.b64decode(info.gateway_cmd_payload, validate=True).decode("utf-8", "replace")
        except ValueError as exc:
            gateway.malformed(self._log, exc)
            return
        if complete and account not in gateway.modes:
            return
        if len(gateway.modes) < MOST_MODES or account in gateway.modes:
            gateway.modes[account] = INTEREST_ONLY if complete else TRANSITIONING
        text = f"Gateway {name}: switching account {quote(account)} to {INTEREST_ONLY} mode"
        self._log.debug(f"{gateway} - {text}{' complete' if complete else ''}")


def wanted(block: GatewayOptions) -> Wanted:
    """Return what the options ask of gateways that connect."""
    urls = tuple(url for remote in block.gateways for url in remote.urls)
    return Wanted(block.username, block.password, block.tls, urls)
