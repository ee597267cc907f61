"""Reload the configuration of a running server (reload.go): read the options, apply them, check the clients.

Clients are checked in slices, so that the loop gets to other work in between. Server.reload() reloads one
configuration after the other.
"""

import asyncio
import gc
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from gnats.auth.authenticator import Authenticator, Denied
from gnats.auth.connect import Connector, close_over_maximum, limits, permissions_of
from gnats.client.grant import Grant
from gnats.clock import time_ns
from gnats.connection.closed_state import ClosedState
from gnats.errors import OptionError, ServerError
from gnats.go.hostport import RANDOM_PORT
from gnats.options.options import Options, read_config
from gnats.options.values.auth import GLOBAL_ACCOUNT

if TYPE_CHECKING:
    from gnats.accounts.accounts import Accounts
    from gnats.client.session import Session
    from gnats.cluster.cluster import Cluster
    from gnats.core.runtime.state import ServerState
    from gnats.events.events import Events
    from gnats.gateways.gateways import Gateways
    from gnats.jetstream.control.jetstream import JetStream
    from gnats.leafnodes.leafnodes import LeafNodes
    from gnats.log.logger import Logger
    from gnats.operator.accounts import OperatorAccounts
    from gnats.server.links import Links
    from gnats.tls.context import ClientTLS

_AUTH = frozenset(("Username", "Password", "Authorization", "Users", "Nkeys", "NoAuthUser", "Accounts"))
_LIMITS = frozenset(("MaxControlLine", "MaxPayload", "PingInterval", "MaxPingsOut", "Accounts"))

_SLICE = 256
"""Clients that are checked before the loop gets to other work."""


def read_options(was: Options, read: Callable[[], Options] | None) -> Options:
    """Return the options that a server would have if it started now: from `read`, or from its file.

    Host, port and I/O threads are kept from `was`, and so is the store directory when the file names none.
    May be called in any thread. Raises OptionError.
    """
    if not (read or was.config_file):
        raise OptionError("can only reload config when a file is provided using -c or --config")
    with _no_collections():
        if read:
            return read()
        opts = Options()
        read_config(opts, was.config_file)
        opts.host, opts.port, opts.io_threads = was.host, was.port, was.io_threads
        if not opts.jetstream.store_dir:
            opts.jetstream = replace(opts.jetstream, store_dir=was.jetstream.store_dir)
        return opts.baseline()


@contextmanager
def _no_collections() -> Iterator[None]:
    """Disable garbage collection: reading a large configuration makes a million objects and no garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def close_clients_over_maximum(clients: "Mapping[int, Session]", most: int, log: "Logger") -> None:
    """Close the clients beyond `most` (`max_connections`): those that connected last."""
    over = list(clients.values())[max(most, 0) :]
    for session in over:
        error = "maximum connections exceeded"
        session.close(log, ClosedState.MAX_CONNECTIONS_EXCEEDED, error)
        session.rate_limit(log, "ERR", error)
    if over:
        log.notice(f"Closed {len(over)} connections to fall within max_connections")


class ReloadedServer(Protocol):
    """The server as a reload sees it."""

    opts: Options
    config_time: int

    @property
    def running(self) -> bool: ...
    @property
    def port(self) -> int: ...
    @property
    def state(self) -> "ServerState": ...
    @property
    def log(self) -> "Logger": ...
    @property
    def make_log(self) -> "Callable[[Options], Logger] | None": ...
    @property
    def accounts(self) -> "Accounts": ...
    @property
    def operator_accounts(self) -> "OperatorAccounts | None": ...
    @property
    def cluster(self) -> "Cluster | None": ...
    @property
    def leafs(self) -> "LeafNodes | None": ...
    @property
    def gateways(self) -> "Gateways | None": ...
    @property
    def links(self) -> "Links": ...
    @property
    def clients(self) -> "Mapping[int, Session]": ...
    @property
    def events(self) -> "Events | None": ...
    @property
    def jetstream(self) -> "JetStream | None": ...
    @property
    def tls(self) -> "ClientTLS | None": ...

    def configure_authorization(self, opts: Options) -> Authenticator: ...
    def make_tls(self, opts: Options) -> "ClientTLS | None": ...
    def use_tls(self, tls: "ClientTLS | None") -> None: ...
    def check_endpoints(self, opts: Options) -> None: ...
    def reload_endpoints(self) -> None: ...
    def update_state(self) -> None: ...
    def update_info(self) -> None: ...
    def update_pid_file(self) -> None: ...
    def update_ports_file(self) -> None: ...
    async def disable_jetstream(self) -> None: ...
    async def restart_jetstream(self) -> None: ...


class Reload:
    """One reload of a server: `new` are options that baseline() has completed.

    `again`: the last reload ended for want of memory, so configure the accounts even if no option changed.
    """

    def __init__(self, server: ReloadedServer, connector: Connector, new: Options, *, again: bool) -> None:
        self._server = server
        self._connector = connector
        self._old = replace(server.opts, port=server.port)
        if server.cluster:
            self._old.cluster = replace(self._old.cluster, port=server.cluster.port)
        if server.leafs:
            self._old.leafnodes = replace(self._old.leafnodes, port=server.leafs.port)
        if new.leafnodes.port == RANDOM_PORT:
            new = replace(new, leafnodes=replace(new.leafnodes, port=self._old.leafnodes.port))
        if server.gateways:
            self._old.gateway = replace(self._old.gateway, port=server.gateways.port)
        if new.gateway.port == RANDOM_PORT:
            new = replace(new, gateway=replace(new.gateway, port=self._old.gateway.port))
        # any free port: keep the current one
        new = replace(new, port=self._old.port) if new.port <= 0 else new
        cluster = self._old.cluster
        if new.cluster.port == RANDOM_PORT:
            new = replace(new, cluster=replace(new.cluster, port=cluster.port))
        self._names_cluster = bool(new.cluster.name) or not (cluster.port or cluster.hidden)
        self._new = new
        self._keep_cluster_name()
        self._again = again

    def _keep_cluster_name(self) -> None:
        """Without a configured name, keep the present one; it can be replaced by that of another server."""
        if not self._names_cluster:
            was = self._server.opts.cluster
            named = replace(self._new.cluster, name=was.name, generated=not was.hidden, hidden=was.hidden)
            self._new = replace(self._new, cluster=named)

    async def run(self) -> None:
        """Apply the options.

        All steps that can fail come first, so a reload changes everything or nothing. Raises OptionError or
        ServerError, and the old options stay.
        """
        from gnats.options.leafnode_changes import leafnode_changes
        from gnats.options.reloadable import LOG_OPTIONS, diff_options
        from gnats.server.links import make_cluster_tls, make_gateway_tls, make_leaf_tls

        server, old, new, before = self._server, self._old, self._new, self._connector.auth
        self._require_running()
        notices = diff_options(old, new)
        cluster = server.cluster.reload(old, new) if server.cluster else None
        if cluster:
            cluster.check()
        auth = server.configure_authorization(new)
        tls = server.make_tls(new)
        if "TLSConfig" not in notices and tls and server.tls and tls.digest != server.tls.digest:
            notices["TLSConfig"] = "Reloaded: tls = enabled"  # the same files, with other certificates
        routes, routes_tls = server.cluster, make_cluster_tls(new)
        if routes and routes.tls and routes_tls and routes.tls.digest != routes_tls.digest:
            notices.setdefault("Cluster", "Reloaded: cluster")  # the same files, with other certificates
        leaf_tls, gateway_tls = make_leaf_tls(new), make_gateway_tls(new)
        if server.leafs and server.leafs.tls and leaf_tls and server.leafs.tls.digests != leaf_tls.digests:
            notices.setdefault("LeafNode", "")  # the same files, with other certificates
        changed = notices.keys()
        server.check_endpoints(new)
        log = server.make_log(new) if server.make_log and changed & LOG_OPTIONS else None
        try:
            await self._reload_accounts(changed)
        except (OptionError, ServerError):
            if log:
                log.close()
            raise

        self._keep_cluster_name()  # another server may have brought one meanwhile
        server.opts, self._connector.auth = self._new, auth
        server.use_tls(tls)
        server.update_info()
        self._apply_options(changed)
        for field, notice in notices.items():
            if cluster:
                cluster.apply(field)
            if notice:
                server.log.notice(notice)
        if routes and "Cluster" in changed:
            routes.use_tls(routes_tls)
        if "LeafNode" in changed:
            await server.links.reload_leafs(leafnode_changes(old.leafnodes, new.leafnodes), leaf_tls)
        server.links.reload_gateways(old.gateway, gateway_tls)
        server.links.close_homeless()
        if log:
            server.log.become(log)
        server.config_time = time_ns()
        if old.jetstream.enabled or new.jetstream.enabled:
            await self._reload_jetstream(changed)

        by_jwt = server.operator_accounts is not None
        await ClientReload(self._connector, server.clients, changed, before, by_jwt=by_jwt).run()
        if cluster:
            await cluster.finish()
        digest = f"({new.config_digest})" if new.config_digest else ""
        server.log.notice(f"Reloaded server configuration {digest}")

    def _require_running(self) -> None:
        if not self._server.running:
            raise ServerError("the server is not running")

    async def _reload_accounts(self, changed: Set[str]) -> None:
        server = self._server
        if server.operator_accounts:
            await server.operator_accounts.reload(self._new)
            self._require_running()
        if self._again or changed & {"Accounts", "JetStream"}:
            server.accounts.configure(self._new)

    def _apply_options(self, changed: Set[str]) -> None:
        """Apply the options that cannot fail a reload. Errors with the pid and ports files are logged."""
        server, opts, log = self._server, self._new, self._server.log
        if "Debug" in changed:
            log.debug_on = server.state.debug = opts.debug
        if "Trace" in changed:
            log.trace_on = server.state.trace = opts.trace
        server.update_state()
        if "PidFile" in changed and opts.pid_file:
            server.update_pid_file()
        if "PortsFileDir" in changed:
            server.update_ports_file()
        server.reload_endpoints()
        if "MaxConn" in changed:
            close_clients_over_maximum(server.clients, opts.max_conn, log)
        if changed & {"Tags", "Metadata"} and server.events:
            server.events.statsz_update()

    async def _reload_jetstream(self, changed: Set[str]) -> None:
        """Start or stop JetStream, or apply its new limits and accounts."""
        js, opts = self._server.jetstream, self._new.jetstream
        if not opts.enabled:
            await self._server.disable_jetstream()
        elif js is None:
            await self._server.restart_jetstream()
        else:
            if changed & {"JetStreamMaxMemory", "JetStreamMaxStore"}:
                js.set_limits(
                    opts.max_memory if "JetStreamMaxMemory" in changed else js.max_memory,
                    opts.max_store if "JetStreamMaxStore" in changed else js.max_store,
                )
            if "JetStreamLimits" in changed:
                js.set_stream_limits(opts.limits)
            await js.configure_accounts()


class ClientReload:
    """Closes the clients that are no longer allowed; gives the others their new permissions and limits.

    `connector` has the new options and authenticator already; `before` is the authenticator of the old
    options. `changed` names the options that changed. `by_jwt`: JWTs define the users, not the options.
    """

    def __init__(
        self,
        connector: Connector,
        clients: "Mapping[int, Session]",
        changed: Set[str],
        before: Authenticator,
        *,
        by_jwt: bool,
    ) -> None:
        self._connector = connector
        self._clients = clients
        self._changed = changed
        self._before = before
        self._by_jwt = by_jwt
        self._opts = connector.options()
        self._log = connector.log

    async def run(self) -> None:
        """Check all clients."""
        if not self._changed & (_AUTH | _LIMITS | {"TLSPinnedCerts"}):
            return
        sessions, unpinned = list(self._clients.values()), 0
        for start in range(0, len(sessions), _SLICE):
            kept = await asyncio.gather(*map(self._reload_client, sessions[start : start + _SLICE]))
            unpinned += kept.count(False)
        if unpinned:
            self._log.notice(f"Disconnect {unpinned} clients due to pinned certs reload")
        if "Accounts" in self._changed:  # counts only the clients that the checks above have kept
            for account in self._connector.accounts.values():
                close_over_maximum(account, self._clients, self._log)

    async def _reload_client(self, session: "Session") -> bool:
        """Check one client; return False when it was closed because its certificate is not pinned."""
        if session.client is None:
            return True
        if "TLSPinnedCerts" in self._changed and not self._is_pinned(session):
            session.close(self._log, ClosedState.TLS_HANDSHAKE_ERROR)
            return False
        try:
            if self._changed & _AUTH and not self._by_jwt:  # operator mode has updated its clients already
                await self._reload_authorization(session)
            if self._changed & _LIMITS:
                self._reload_limits(session)
        except MemoryError:
            # The client must not keep permissions that the new options take from it.
            self._log.error(f"{session} - Out of memory - Closing")
            session.close(self._log, ClosedState.READ_ERROR)
        return True

    async def _reload_authorization(self, session: "Session") -> None:
        connector, before = self._connector, self._before
        if not session.connected:
            if connector.auth.required and not before.required:  # it could do everything without CONNECT
                connector.refuse(session)
            return
        if self._has_moved(session):
            session.close(self._log, ClosedState.CLIENT_CLOSED)
            return
        granted = session.grant
        try:
            decision = connector.auth.recheck(session, before)
            grant = decision if isinstance(decision, Grant) else await decision
        except Denied as exc:
            if session.grant is granted and session.client:
                connector.refuse(session, exc.state)
            return
        if session.grant is granted and session.client:  # another grant: a CONNECT was checked meanwhile
            session.grant = grant
            if grant.permissions != granted.permissions:
                session.client.set_permissions(permissions_of(session, self._log))

    def _has_moved(self, session: "Session") -> bool:
        """Whether the user is gone or in another account now (clientHasMovedToDifferentAccount)."""
        connector = self._connector
        if connector.accounts.get(session.account.name) is not session.account:
            return True
        user = session.grant.user
        if user is None:
            return False
        now = connector.auth.user_like(user)
        return now is None or (now.account or GLOBAL_ACCOUNT) != session.account.name

    def _reload_limits(self, session: "Session") -> None:
        opts = self._opts
        if session.client:
            max_subs, max_payload = limits(session, opts)
            session.client.set_limits(
                max_control_line=opts.max_control_line,
                max_payload=max_payload,
                max_subs=max_subs,
                ping_interval=opts.ping_interval,
                ping_max=max(opts.ping_max, -1),
            )

    def _is_pinned(self, session: "Session") -> bool:
        tls = self._opts.tls
        if tls is None or not tls.pinned_certs:
            return True
        der = session.peer_certificate()
        if der is None:
            return False
        from gnats.tls.certs import PeerCertificate

        return PeerCertificate.from_der(der).spki_sha256 in tls.pinned_certs
