"""The server (server.go): start, reload and shutdown, and its clients."""

import asyncio
import socket
import time
from collections import ChainMap
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gnats.accounts.account import Account
from gnats.accounts.accounts import Accounts
from gnats.accounts.internal_client import InternalClient
from gnats.accounts.internal_clients import InternalClients
from gnats.auth.authenticator import Authenticator
from gnats.auth.connect import Connector, close_over_maximum
from gnats.client.session import Session
from gnats.clock import time_ns, timeout
from gnats.connection.info import Info
from gnats.core.net.connection import Connection
from gnats.core.runtime.inbox import EV_JETSTREAM, EV_MSG_TRACE
from gnats.core.runtime.kinds import CLIENT, GATEWAY, LEAF, ROUTER
from gnats.core.runtime.state import ServerState
from gnats.errors import OptionError, ServerError
from gnats.events.events import Events
from gnats.events.remote_latency import RemoteLatency
from gnats.events.replies import Replies
from gnats.go.hostport import parse_host_port
from gnats.go.json import marshal
from gnats.go.text import duration, join_host_port, os_error
from gnats.log.logger import Logger, SilentLogger
from gnats.nkeys.identity import NuidSource, new_identity
from gnats.options.options import Options
from gnats.options.values.cluster import name_fault
from gnats.runtime.accept import AcceptLoop, listen_for_clients
from gnats.runtime.dispatch import EventTable
from gnats.runtime.pollers import Pollers, io_threads
from gnats.server.authorization import configure_authorization
from gnats.server.banner import print_banner
from gnats.server.clients import Clients
from gnats.server.links import Links
from gnats.server.log import configure_logger, logs_somewhere
from gnats.server.system_services import Services
from gnats.system.paths import write_pid_file

if TYPE_CHECKING:
    from gnats.cluster.cluster import Cluster
    from gnats.cluster.route import Route
    from gnats.events.latency import Latency
    from gnats.events.msgtrace import Traces
    from gnats.events.servers import Servers
    from gnats.gateways.gateway import Gateway
    from gnats.gateways.gateways import Gateways
    from gnats.jetstream.api.assigned import Assigned
    from gnats.jetstream.cluster.nodes import Nodes
    from gnats.jetstream.control.jetstream import JetStream
    from gnats.jetstream.engine.engine import Engine
    from gnats.leafnodes.leafnodes import LeafNodes
    from gnats.monitor.http import Monitor
    from gnats.monitor.profiling import Profiler
    from gnats.operator.accounts import OperatorAccounts
    from gnats.operator.mode import OperatorMode
    from gnats.options.values.accounts import ServiceLatency
    from gnats.server.lame_duck import LameDuck
    from gnats.server.ports_file import PortsFile
    from gnats.tls.context import ClientTLS

LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""The address to connect to on the same machine, by the wildcard address that a server listens on."""
CLOSE_TIMEOUT = 5.0
"""Seconds that a shutdown waits for clients to read their queued bytes, before it drops these."""


class Server:
    """A NATS server in the running event loop, on loopback unless the options name a host.

    Use it as `async with Server(Options(port=-1)) as server:`, or call start() and shutdown(). Call it from
    the loop's thread only. Without `log`, it logs only when the options configure a file or syslog. Options
    from a configuration file come from Options.from_file(). A Server starts only once.

    Raises OptionError for invalid options, ServerError for a log that cannot be opened.
    """

    def __init__(self, opts: Options | None = None, log: Logger | None = None) -> None:
        self.opts = opts = _with_cluster_name((opts or Options()).baseline())
        self.make_log: Callable[[Options], Logger] | None = None if log else _make_log
        """Makes a new log from options at a reload; None when the caller passed a log, which then stays."""
        self.log = log or _make_log(opts)
        self.options_reader: Callable[[], Options] | None = None
        """Reads the options for a reload, in a thread; None: a reload reads the configuration file."""
        self.identity = new_identity(opts.server_name, keys=bool(opts.accounts_by_jwt or opts.auth_callout))
        self.start_time = time_ns()
        self.config_time = self.start_time
        self.state = ServerState()
        self.state.debug = self.log.debug_on
        self.state.trace = self.log.trace_on
        self.update_state()
        self.clients: dict[int, Session] = {}
        """The clients by connection id, without refused connections."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.operator_accounts: OperatorAccounts | None = None
        """Applies JWTs to the accounts; None when the configuration defines the accounts."""
        self.accounts = self._make_accounts(opts)
        self.global_account = self.accounts.global_account
        self.system_account = self.accounts.system_account
        self._closed = asyncio.Event()
        self.internal_clients = InternalClients(self.state, self.log, self.system_account, self._closed.set)
        self.events: Events | None = None
        self.jetstream: JetStream | None = None
        self.js_engine: Engine | None = None
        """JetStream's half of the data plane. Made when JetStream starts first; stays when it is disabled."""
        self.http_requests: dict[str, int] = {}
        self.pollers: Pollers | None = None
        self.on_state: Callable[[str], object] | None = None
        """Called with "reloading" and then "ready" or "lame duck" around a reload, and with "lame duck" and
        "stopping" when these begin."""
        self._info = self._make_info(opts)
        self._connector = Connector(
            self.configure_authorization(opts),
            self._info,
            self.accounts,
            self.log,
            options=lambda: self.opts,
            events=lambda: self.events,
            spawn=self.spawn,
        )
        self._info.auth_required = self.auth.required
        self._clients = Clients(
            self.clients,
            self._connector,
            self.state,
            self.global_account,
            self.internal_clients.next_cid,
            self._closed.set,
            most_closed=max(opts.max_closed_clients, 0),
        )
        self.links = Links(self, opts)
        self.internal_clients.leaf_names_requesters = self.links.leaf_names_requesters
        self._remote_latency = RemoteLatency(
            self.accounts,
            self.clients,
            self.log,
            server=self.description,
        )
        self._agreed = not self.opts.cluster.generated
        """A generated name of the cluster is in no details of clients until servers have agreed on one."""
        self._described = b"", b""
        self.describe()
        self.others: Servers | None = None
        """What is known of the other servers; None without links, or without a system account."""
        self.nodes: Nodes | None = None
        """What JetStream knows of the servers, from its first start on; None when `others` is."""
        self._began = False
        self._listener: AcceptLoop | None = None
        self._monitor: Monitor | None = None
        self._profiler: Profiler | None = None
        self._lame_duck: LameDuck | None = None
        self._latency: Latency | None = None
        self._traces: Traces | None = None
        self._ports_file: PortsFile | None = None
        self._listening: dict[str, socket.socket] = {}
        self._changing = asyncio.Lock()  # held while starting, and while stopping
        self._reloading = asyncio.Lock()
        self._half_reloaded = False
        """The last reload ended for want of memory: accounts may have a part of its options."""
        self._stopping: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self.replace_tls(opts)

    def _make_accounts(self, opts: Options) -> Accounts:
        if not opts.accounts_by_jwt:
            return Accounts(opts, self.name, log_error=self.log.error)
        from gnats.operator.accounts import OperatorAccounts

        self.operator_accounts = by_jwt = OperatorAccounts(
            opts,
            self.clients,
            self.log,
            options=lambda: self.opts,
            limits_changed=self._reconfigure_jetstream,
            spawn=self.spawn,
        )
        by_jwt.accounts = Accounts(opts, self.name, by_jwt.check_activation, by_jwt.complain)
        return by_jwt.accounts

    def _make_info(self, opts: Options) -> Info:
        return Info(
            server_id=self.id,
            server_name=self.name,
            host=opts.host,
            port=opts.port,
            headers=not opts.no_header_support,
            max_payload=opts.max_payload,
            jetstream=opts.jetstream.enabled,
            cluster=opts.cluster.name,
            domain=opts.jetstream.domain,
            xkey=self.identity.keys.curve.public_key if self.identity.keys else "",
        )

    def configure_authorization(self, opts: Options) -> Authenticator:
        """Make the authenticator of these options."""
        accounts, clients = self.accounts, self.internal_clients
        return configure_authorization(opts, self.operator_mode, self.identity, accounts, clients, self.log)

    # -- properties and look-ups -----------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.identity.id

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def cluster(self) -> "Cluster | None":
        """The routes to other servers; None without a port for them."""
        return self.links.cluster

    @property
    def leafs(self) -> "LeafNodes | None":
        """The leaf nodes; None without a port for them and without remotes."""
        return self.links.leafs

    @property
    def gateways(self) -> "Gateways | None":
        """The connections to and from other clusters; None without a gateway."""
        return self.links.gateways

    @property
    def auth(self) -> Authenticator:
        return self._connector.auth

    @property
    def tls(self) -> "ClientTLS | None":
        return self._clients.tls

    @property
    def port(self) -> int:
        """The client port; when the options ask for a free port, the one that the kernel chose."""
        return self._listener.port if self._listener else self.opts.port

    @property
    def monitor_port(self) -> int:
        """The port of the monitoring endpoints, 0 when monitoring is off."""
        return self._monitor.port if self._monitor else 0

    @property
    def accepting(self) -> bool:
        """Whether the client port is open: from the end of start() to lame duck mode or shutdown."""
        return self._clients.accepting

    @property
    def client_url(self) -> str:
        """A URL that clients on this machine can connect to."""
        host = LOOPBACK.get(self.opts.host, self.opts.host)
        return f"{'tls' if self.tls else 'nats'}://{join_host_port(host, self.port)}"

    @property
    def operator_mode(self) -> "OperatorMode | None":
        """The accounts and users that JWTs define; None when the configuration defines them."""
        return self.operator_accounts.mode if self.operator_accounts else None

    @property
    def num_clients(self) -> int:
        """The number of connected clients (NumClients)."""
        return len(self.clients)

    @property
    def active_servers(self) -> int:
        """The number of servers that are known, this one among them."""
        return 1 + (len(self.others) if self.others is not None else 0)

    @property
    def total_clients(self) -> int:
        """The number of clients since the start."""
        return self._clients.total

    @property
    def closed_clients(self) -> Iterable[Session]:
        """The clients that were closed last."""
        return self._clients.closed

    @property
    def num_subscriptions(self) -> int:
        """The number of subscriptions in all accounts, including the server's own."""
        return sum(account.sublist.count() for account in self.accounts.values())

    def varz(self) -> dict[str, object]:
        """Return the page /varz as JSON values."""
        from gnats.monitor.pages.varz import varz

        return varz(self)

    def lookup_account(self, name: str) -> Account | None:
        """Return the account of that name, None for an unknown one."""
        return self.accounts.get(name)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine as a task, which a shutdown cancels."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- life ------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    async def start(self) -> None:
        """Listen for clients, and return when the server is ready. It serves clients until shutdown().

        Raises ServerError when a port or a file cannot be opened, after closing all that was opened;
        RuntimeError when the server was started before.
        """
        if self._began:
            raise RuntimeError("a Server starts once; make another one")
        self._began = True
        async with self._changing:
            plaintext = self.auth.plaintext_passwords
            print_banner(self.opts, self.log, self.name, self.id, plaintext_passwords=plaintext)
            try:
                await self._start()
            except BaseException:
                await self._stop()
                raise
            self.log.notice("Server is ready")

    async def _start(self) -> None:
        opts = self.opts
        if opts.prof_port:
            from gnats.monitor.profiling import Profiler  # loads aiohttp

            self._profiler = await Profiler.listen(self)
        elif opts.prof_block_rate > 0:
            self.log.warn("prof_block_rate has no effect without prof_port")
        if opts.pid_file:
            try:
                write_pid_file(opts.pid_file)
            except OSError as exc:
                reason = f"open {opts.pid_file}: {os_error(exc)}"
                raise ServerError(f"Could not write pidfile: {reason}") from exc
        events = EventTable()
        for part in (self.accounts, self.internal_clients, self._clients, self._remote_latency):
            part.serve(events)
        self.links.serve(events)
        events.on(EV_JETSTREAM, self._on_jetstream_event)
        events.on(EV_MSG_TRACE, self._on_msg_trace, (CLIENT, ROUTER, GATEWAY, LEAF))
        self.pollers = Pollers(self.state, io_threads(opts.io_threads), events.handle, self.log)
        self.internal_clients.poller = self.pollers.internal
        self.accounts.no_events = self._let_go_of_streams
        if self.operator_accounts:
            await self.operator_accounts.start()
        if self.system_account:
            self._start_system_account(self.system_account)
        if opts.http_port or opts.https_port:  # JetStream may take long: live, not ready
            from gnats.monitor.http import Monitor  # loads aiohttp

            self._monitor = await Monitor.listen(self)
        if opts.jetstream.enabled:
            await self.enable_jetstream()
        await self.links.start(self.pollers)
        sock = await listen_for_clients(opts.host, max(opts.port, 0))
        self._clients.accept(self.pollers)
        self._listener = AcceptLoop(sock, "Client", self._clients.create_client, self.log)
        self.log.notice(f"Listening for client connections on {join_host_port(opts.host, self.port)}")
        if self.tls:
            self.tls.announce()
            self.tls.report_blocked()
        self.update_info()
        self._listening = {"nats": sock}
        if self._monitor:
            self._listening["monitoring"] = self._monitor.sock
        if self.cluster:
            self._listening["cluster"] = await self.cluster.start(self.pollers, self.port)
        self.links.solicit()
        if self._profiler:
            self._listening["profile"] = self._profiler.sock
        self.update_ports_file()

    async def shutdown(self) -> None:
        """Stop accepting, close every connection, and return when all that this server started has ended.

        May be called more than once. The shutdown continues when its caller is cancelled.
        """
        await asyncio.shield(self.begin_shutdown())

    def begin_shutdown(self) -> asyncio.Task[None]:
        """Begin a shutdown, and return its task, the same one at every call."""
        if self._stopping is None:
            self.tell("stopping")
            self._stopping = asyncio.create_task(self._shutdown())
        return self._stopping

    async def wait_for_shutdown(self) -> None:
        """Wait until a shutdown is complete. Does not begin one."""
        await self._stopped.wait()
        await self.shutdown()

    async def _shutdown(self) -> None:
        try:
            async with self._changing:
                self.log.notice("Initiating Shutdown...")
                await self._stop()
            self.log.notice("Server Exiting..")
            self.log.close()
        finally:
            self._stopped.set()

    async def _stop(self) -> None:
        """Undo _start, also one that failed half-way."""
        if self.jetstream:
            self.jetstream.signal_pull_consumers()
        if self._lame_duck:
            self._lame_duck.cancel()
        for task in self._tasks:
            task.cancel()
        self.accounts.close()
        self.stop_accepting()
        self.links.stop_accepting()
        jetstream, self.jetstream = self.jetstream, None
        if jetstream:
            await jetstream.close()
        if self.js_engine:
            asyncio.get_running_loop().remove_reader(self.js_engine.fileno())
        if self.operator_accounts:
            await self.operator_accounts.close()
        if self.tls:
            self.tls.close()
        if self._monitor:
            await self._monitor.close()
            self._monitor = None
        if self._profiler:
            await self._profiler.close()
            self._profiler = None
        if self.pollers:
            if self.others is not None:  # it is empty while no other is known
                self.others.close()
                self._remote_latency.close()
            if self.events:
                self.events.close()
                self.events = None
            self.pollers.hurry()
            self._clients.close()
            self.links.close()
            self.internal_clients.close()
            closed = await self._wait_for_closed()
            self.pollers.stop(close=closed, before=self.js_engine.close if self.js_engine else None)
            self.pollers = None
        if self._ports_file:
            self._ports_file.delete()
            self._ports_file = None

    def keep_closed(self, session: Session) -> None:
        """Keep a closed connection, for monitoring."""
        self._clients.closed.append(session)

    def connection_gone(self) -> None:
        """Note that a connection has gone."""
        self._closed.set()

    async def _wait_for_closed(self) -> bool:
        """Wait for the end of all connections; return whether all have gone.

        After CLOSE_TIMEOUT, abort those that are left and wait as long again.
        """
        for _ in range(2):
            try:
                async with timeout(CLOSE_TIMEOUT):
                    while self._clients or self.links.connected or self.internal_clients:
                        self._closed.clear()
                        await self._closed.wait()
                return True
            except TimeoutError:
                left = self._clients.connections()
                left += self.links.connections()
                self.log.warn(f"Dropping what {len(left)} connections do not read")
                for connection in left:
                    connection.abort()
        return False

    def stop_accepting(self) -> None:
        """Close the client port; established connections stay."""
        self._clients.stop_accepting()
        self._listening.pop("nats", None)
        if self._listener:
            self._listener.close()

    def lame_duck_mode(self) -> None:
        """Close the client port, then the clients one by one, then shut down. Cannot be undone."""
        if self.accepting:
            from gnats.server.lame_duck import LameDuck

            self.tell("lame duck")
            self.log.notice("Entering lame duck mode, stop accepting new clients")
            self.stop_accepting()
            ldm_info = partial(self._connector.client_info, ldm=True)
            self._lame_duck = LameDuck(
                self.clients,
                self.opts,
                self.log,
                ldm_info,
                self._hand_over,
                self._tell_routes_of_lame_duck,
                self.shutdown,
            )
            if self.events:
                self.events.lame_duck()

    async def _hand_over(self) -> None:
        if self.jetstream:
            await self.jetstream.hand_over()

    def _tell_routes_of_lame_duck(self) -> None:
        if self.cluster:
            self.cluster.lame_duck()
            self._info.connect_urls = self.cluster.urls.shown

    def tell(self, state: str) -> None:
        """Call `on_state` with the name of the new state."""
        if self.on_state:
            self.on_state(state)

    @property
    def in_lame_duck_mode(self) -> bool:
        """Whether lame duck mode has begun (isLameDuckMode)."""
        return self._lame_duck is not None

    def reopen_log(self) -> None:
        """Open the log file again, after it was renamed (ReOpenLogFile). Log the outcome, also an error."""
        try:
            reopened = self.log.reopen()
        except ServerError as exc:
            self.log.error(f"File log not re-opened: {exc}")
        else:
            ignored = "File log re-open ignored, not a file logger"
            self.log.notice("File log re-opened" if reopened else ignored)

    def replace_tls(self, opts: Options) -> None:
        """Apply the TLS options to new connections; established ones keep their context.

        Raises OptionError, with nothing changed.
        """
        self.use_tls(self.make_tls(opts))

    def make_tls(self, opts: Options) -> "ClientTLS | None":
        """Make the TLS contexts of these options, for use_tls(); None without TLS. Raises OptionError."""
        if not opts.tls:
            return None
        from gnats.tls.context import ClientTLS  # loads OpenSSL

        return ClientTLS(opts.tls, opts.allow_non_tls, self.log)

    def use_tls(self, tls: "ClientTLS | None") -> None:
        """Use these TLS contexts (None: no TLS) for new connections, and announce TLS in INFO."""
        if self.tls:
            self.tls.close()
        self._clients.tls, info = tls, self._info
        info.tls_required = bool(tls and not tls.mixed)
        info.tls_available = bool(tls and tls.mixed)
        info.tls_verify = bool(tls and tls.context.verify)
        if tls and self.accepting:
            tls.report_blocked()

    # -- JetStream -------------------------------------------------------------------------------------------

    async def enable_jetstream(self) -> None:
        """Start JetStream with the server's options (EnableJetStream). Raises ServerError."""
        log = self.log
        log.notice("Starting JetStream")
        start = time.monotonic_ns()
        try:
            await self._start_jetstream()
        finally:
            log.notice(f"Took {duration(time.monotonic_ns() - start)} to start JetStream")

    async def _start_jetstream(self) -> None:
        from gnats.jetstream.api.api import Api
        from gnats.jetstream.cluster.nodes import Nodes
        from gnats.jetstream.control.advisories import Advisories
        from gnats.jetstream.control.jetstream import JetStream, configure
        from gnats.jetstream.control.shared import Shared
        from gnats.jetstream.engine.engine import Engine

        clients, system = self.internal_clients, self.system_account
        assert self.pollers and self.events and system
        if system.jetstream_limits:
            raise ServerError("Not allowed to enable JetStream on the system account")
        config = configure(self.opts.jetstream, self.log)
        if self.js_engine is None:
            pollers = list(self.pollers.all)
            self.js_engine = Engine(pollers, self.state, [clients.next_cid() for _ in pollers])
        advisories = Advisories(self.events, system, config.options.domain, self.opts.cluster.name)
        shared = Shared(config, self.js_engine, clients, advisories, self.log, lambda: self.opts)
        if self.nodes is None and self.others is not None:
            self.nodes = Nodes(self.identity, lambda: self.opts, lambda: self.jetstream)
            self.others.watch(self.nodes)
        reserved = self.events.statsz_update if self.cluster or self.gateways else None
        shared.retires = self.in_lame_duck_mode
        js = self.jetstream = JetStream(shared, self.name, self.accounts, self.spawn, reserved)
        if self.cluster and self.nodes and self.opts.jetstream.enabled:
            js.join(
                self.nodes,
                self._expected_peers(),
                self.cluster.watchers,
                lambda: self.spawn(self._leave_cluster()),
            )

        def serve_api() -> "tuple[Api, Assigned | None]":
            api = Api(js, clients.new(system), self.clients)
            if js.cluster is None:
                return api, None
            from gnats.jetstream.api.assigned import Assigned

            return api, Assigned(js, js.cluster, api, api.refuse_assignment)

        await js.start(serve_api)

    def _expected_peers(self) -> int:
        """Return how many other servers the configuration names, for a JetStream cluster's first start."""
        remotes = [each for each in self.opts.gateway.gateways if each.name != self.opts.cluster.name]
        return len(self.opts.cluster.routes) + sum(len(each.urls) for each in remotes)

    async def disable_jetstream(self) -> None:
        """Stop JetStream; the server goes on without it (DisableJetStream)."""
        js, self.jetstream = self.jetstream, None
        self.update_info()
        if js:
            await js.close()

    async def _leave_cluster(self) -> None:
        """Stop JetStream: the cluster has removed this server. A shutdown stops it as well."""
        async with self._changing:
            await self.disable_jetstream()

    async def restart_jetstream(self) -> None:
        """Start JetStream in a running server (restartJetStream). Log an error, and go on without."""
        self.log.notice("Restarting JetStream")
        try:
            await self.enable_jetstream()
        except ServerError as exc:
            self.log.warn(f"Can't start JetStream: {exc}")
            await self.disable_jetstream()
        self.update_info()

    def _reconfigure_jetstream(self, account: Account) -> None:
        if self.jetstream:
            self.jetstream.reconfigure_soon(account)

    def _on_jetstream_event(self, source: object, a: int, b: int, data: object) -> None:
        if self.jetstream:
            self.jetstream.shared.on_event(source, a, b, data)

    # -- clients ---------------------------------------------------------------------------------------------

    def _start_system_account(self, account: Account) -> None:
        client = self.internal_clients.new(account)
        replies = Replies(client, self.name)
        self.events = Events(
            self.identity,
            self.accounts,
            client,
            self.internal_clients,
            options=lambda: self.opts,
            jetstream=lambda: self.jetstream,
            stats=self._stats,
        )
        Services(
            client,
            self.events,
            replies,
            self,
            self.accounts,
            self.clients,
            self.log,
            connections=ChainMap[int, Any](self.clients, *self.links.tables()),
            options=lambda: self.opts,
            spawn=self.spawn,
            reload=self.reload,
            disconnect=self.disconnect_client_by_id,
            lame_duck=self._clients.lame_duck,
        )
        self.accounts.measured = self._measured
        if self.links:
            self._follow_others(client, self.events)
        if self.operator_accounts:
            self.operator_accounts.serve(
                client, self.events, replies, () if self.others is None else self.others
            )

    def _follow_others(self, client: InternalClient, events: Events) -> None:
        from gnats.events.servers import Servers

        self.others = Servers(client, events, self.accounts, self.log, exceeded=self._close_exceeding)
        self.accounts.added = self.others.track
        self._remote_latency.start(self.name, client)

    def _close_exceeding(self, account: Account) -> None:
        """Close the latest clients of an account that has too many, together with other servers."""
        close_over_maximum(account, self.clients, self.log, elsewhere=account.num_elsewhere)

    def _stats(self) -> dict[str, object]:
        from gnats.monitor.pages.statsz import server_stats

        return server_stats(self)

    def _let_go_of_streams(self) -> bool:
        """Free closed streams, which refer to their accounts; return whether no event of a poller waits."""
        if self.js_engine:
            self.js_engine.reap()
        return self.pollers is not None and not self.pollers.pending_events

    def _measured(
        self, account: Account, wanted: "ServiceLatency", status: int, data: bytes, seconds: float
    ) -> None:
        if self._latency is None:
            from gnats.events.latency import Latency

            clients, remote = self.internal_clients, self._remote_latency
            self._latency = Latency(self.description, self.clients, clients, remote)
        self._latency.measured(account, wanted, status, data, seconds)

    def _on_msg_trace(self, source: Connection | None, a: int, b: int, data: object) -> None:
        if source is None or not isinstance(data, bytes):
            return
        if self._traces is None:
            from gnats.events.msgtrace import Traces  # the first traced message loads it

            find, events = self._find_connection, lambda: self.events
            self._traces = Traces(find, self.accounts, events, self.spawn, self.log)
        self._traces.publish(source.cid, data)

    def _find_connection(self, cid: int) -> "Session | Route | Gateway | None":
        return self.clients.get(cid) or self.links.find(cid)

    def disconnect_client_by_id(self, cid: int) -> None:
        """Close the connection of a client or a leaf node. Raises KeyError for an unknown one."""
        (self.leafs if self.leafs and cid in self.leafs.open else self._clients).disconnect(cid)

    def ldm_client_by_id(self, cid: int) -> None:
        """Send a client the INFO of lame duck mode, as Clients.lame_duck()."""
        self._clients.lame_duck(cid)

    # -- cluster ---------------------------------------------------------------------------------------------

    def update_urls(self) -> None:
        """Tell clients the URLs of the cluster."""
        if self.cluster and not self._stopping:
            self._info.connect_urls = self.cluster.urls.shown
            self._clients.send_info()

    def rename_cluster(self, name: str, generated: bool) -> None:
        """Use a new name of the cluster (setClusterName)."""
        self.opts = replace(self.opts, cluster=replace(self.opts.cluster, name=name, generated=generated))
        self._info.cluster = name
        self._agreed = True
        self.accounts.rename_cluster(name)
        self.describe()
        self.log.notice(f"Cluster name updated to {name}")

    def description(self) -> dict[str, object]:
        """Return what details of clients say of their server (addServerAndClusterInfo in client.go)."""
        cluster = self.opts.cluster.name if self._agreed else ""
        members = {"server": self.name, "cluster": cluster, "alts": self.links.alternates()}
        return {name: value for name, value in members.items() if value}

    def describe(self) -> None:
        """Have the data plane put the description, as it is now, into requests to services."""
        texts = (b',"%b":' % name.encode() + marshal(value) for name, value in self.description().items())
        members = next(texts), b"".join(texts)
        if members != self._described:
            with suppress(MemoryError):  # the next change brings this one, too
                self.state.set_details(*members)
                self._described = members

    # -- reload ----------------------------------------------------------------------------------------------

    async def reload(self, opts: Options | None = None) -> None:
        """Apply options: `opts`, or those that `options_reader` or the configuration file have now.

        Raises OptionError or ServerError, after logging it, when the options are invalid or cannot change
        while the server runs: the old ones stay. ServerError also when there is no memory: then a part of
        the new ones may be in force. Reloads run one after the other.
        """
        from gnats.server.reload import Reload, read_options

        async with self._reloading:
            if self.running:
                self.tell("reloading")
            try:
                new = (
                    opts.baseline()
                    if opts
                    else await asyncio.to_thread(read_options, self.opts, self.options_reader)
                )
                await Reload(self, self._connector, new, again=self._half_reloaded).run()
                self._half_reloaded = False
            except (OptionError, ServerError) as exc:
                self.log.error(f"Failed to reload server configuration: {exc}")
                raise
            except MemoryError as exc:
                self._half_reloaded = True
                self.log.error("Failed to reload server configuration: out of memory; reload it again")
                raise ServerError("out of memory") from exc
            finally:
                if self.running:
                    self.tell("lame duck" if self.in_lame_duck_mode else "ready")

    @property
    def running(self) -> bool:
        """Whether the server has started and has not begun to shut down."""
        return self.pollers is not None and self._stopping is None

    def update_state(self) -> None:
        """Copy the options that the data plane reads to its state."""
        opts, state = self.opts, self.state
        state.trace_verbose, state.trace_headers = opts.trace_verbose, opts.trace_headers
        state.max_traced_msg_len = max(opts.max_traced_msg_len, 0)
        state.no_fast_producer_stall = opts.no_fast_producer_stall

    def update_info(self) -> None:
        """Copy the options, the port and JetStream's state to the INFO of later clients."""
        opts, info = self.opts, self._info
        info.host, info.port = opts.host, self.port
        if opts.client_advertise:
            info.host, info.port = parse_host_port(opts.client_advertise, self.port)
        info.max_payload, info.auth_required = opts.max_payload, self.auth.required
        info.jetstream = self.jetstream is not None

    def update_ports_file(self) -> None:
        """Delete the old ports file, and write a new one if the options name a directory."""
        if self._ports_file:
            self._ports_file.delete()
            self._ports_file = None
        if self.opts.ports_file_dir:
            from gnats.server.ports_file import PortsFile

            self._ports_file = PortsFile(self.opts, self._listening, self.log)

    def update_pid_file(self) -> None:
        """Write the pid file that the options name; an old one elsewhere stays. Errors are logged."""
        path = self.opts.pid_file
        try:
            write_pid_file(path)
        except OSError as exc:
            self.log.error(f"Failed to write pidfile: open {path}: {os_error(exc)}")

    def check_endpoints(self, opts: Options) -> None:
        """Raise ServerError for options that reload_endpoints() could not apply."""
        if self._monitor and opts.tls:
            self._monitor.check_tls(opts.tls)

    def reload_endpoints(self) -> None:
        """Apply the options that the endpoints for monitoring and profiling can change while they run."""
        if self._monitor:
            self._monitor.reload_tls()
        if self._profiler:
            self._profiler.set_block_profile_rate(self.opts.prof_block_rate)


def _with_cluster_name(opts: Options) -> Options:
    """Return options whose cluster has a name: a generated one, or for remotes of leaf nodes the server's."""
    cluster = opts.cluster
    if cluster.port and not cluster.name:
        opts.cluster = replace(cluster, name=NuidSource().next(), generated=True)
    elif opts.leafnodes.remotes and not cluster.name:
        opts.cluster = replace(cluster, name=opts.server_name, hidden=True)
        if fault := name_fault(opts.server_name):
            raise OptionError(fault)
    return opts


def _make_log(opts: Options) -> Logger:
    """Make the log of an embedded server: silent unless the options configure one. Raises ServerError."""
    return configure_logger(opts) if logs_somewhere(opts) else SilentLogger()
