"""A server's leaf nodes: listens for them, dials its remotes, and joins what the other modules decide."""

import random
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

from gnats.accounts.account import Account
from gnats.auth.authenticator import Authenticator, new_nonce
from gnats.auth.connect import limits
from gnats.clock import call_later
from gnats.cluster.compression import negotiates
from gnats.cluster.connections import MAX_PENDING_FACTOR, Connections
from gnats.cluster.info import TRACES_PROTO
from gnats.cluster.link_conflicts import Conflict
from gnats.cluster.link_health import Configured, LinkHealth, peers_words
from gnats.connection.closed_state import ClosedState
from gnats.core.links.leaf_session import LeafEvent
from gnats.core.net.connection import Connection
from gnats.core.runtime.inbox import EV_BEGUN, EV_CLOSED, EV_LEAF, EV_PONG
from gnats.core.runtime.kinds import LEAF
from gnats.go.text import duration, join_host_port, printable, quote, text_bytes
from gnats.go.url import URL
from gnats.leafnodes.authorization import LeafAuthorization
from gnats.leafnodes.first_info import FirstInfo
from gnats.leafnodes.handshake import DUPLICATE, MIN_VERSION, SAME_CLUSTER_NAME, Handshake, Spawn
from gnats.leafnodes.info import OwnInfo, PeerInfo
from gnats.leafnodes.jetstream import keep_domains_apart
from gnats.leafnodes.leaf import Leaf
from gnats.leafnodes.permissions import session_permissions
from gnats.leafnodes.remote import Remote
from gnats.leafnodes.solicit import Solicitor
from gnats.leafnodes.table import LeafTable
from gnats.options.values.leafnodes import RemoteLeafOptions
from gnats.runtime.accept import AcceptLoop, listen_for_servers
from gnats.runtime.reported import answer_punt, unmapped

if TYPE_CHECKING:
    from gnats.accounts.accounts import Accounts
    from gnats.core.links.leaf_session import LeafSession
    from gnats.core.runtime.state import ServerState
    from gnats.events.events import Events
    from gnats.log.logger import Logger
    from gnats.nkeys.identity import Identity
    from gnats.options.options import Options
    from gnats.runtime.dispatch import EventTable
    from gnats.runtime.pollers import Pollers
    from gnats.tls.leafs import LeafTLS

INSECURE = (
    "TLS certificate chain and hostname of solicited leafnodes will not be verified."
    " DO NOT USE IN PRODUCTION!"
)
LOOP_DELAY = 30.0
"""Seconds to the next attempt after a loop; as long after the next two."""
MEETING_DELAYS = 0.5, 3.0
"""Seconds, at least and at most, to the next attempt after two servers have dialled each other."""
PERMISSION_DELAY = 30.0
RECENT = 64
SAME_CLUSTER_DELAY = 30.0
MIN_VERSION_DELAY = 5.0
MAPPED_REPLIES = b"_GR_.>"
"""Subjects of answers to requests that have come from other clusters (core/routing/gateway_reply)."""

LOOP = "two ways lead to this account: remove a remote"
TWICE = "another connection joins the same accounts: remove a remote, or give the servers different names"

_TLS_FAILED = ClosedState.TLS_HANDSHAKE_ERROR


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the leaf nodes ask of their server."""

    lookup_account: Callable[[str], Coroutine[Any, Any, Account | None]]
    """Return the account of that name, which a resolver may have; None without one."""
    authenticator: Callable[[], Authenticator]
    """Return what decides about clients."""
    events: "Callable[[], Events | None]"
    next_cid: Callable[[], int]
    """Return an unused connection id."""
    gone: Callable[[], object]
    """A connection has gone."""
    closed: Callable[[Leaf], object]
    """Keep a closed connection, for monitoring."""
    linked: Callable[[Account], object]
    """Another server has connected an account, or has sent an INFO since."""
    joined: Callable[[Account], object]
    """Another server has connected an account."""


LONGEST_ERROR = 2048
"""Characters of an error of a peer that are logged."""


class LeafNodes(Connections[Leaf]):
    """The leaf node connections of a server, in both directions.

    `options` returns the server's current options; `session` makes sessions of sockets.
    """

    def __init__(
        self,
        identity: "Identity",
        accounts: "Accounts",
        state: "ServerState",
        log: "Logger",
        hooks: Hooks,
        session: "type[LeafSession]",
        *,
        tls: "LeafTLS | None" = None,
        options: "Callable[[], Options]",
        spawn: Spawn,
    ) -> None:
        super().__init__(log)
        self._accounts = accounts
        self._state = state
        self._hooks = hooks
        self._make_session = session
        self.tls = tls
        """TLS of new connections; None: nothing asks for it, unless another server does."""
        self._options = options
        self.info = OwnInfo(identity, options)
        authorization = LeafAuthorization(options, hooks.authenticator, hooks.lookup_account, log)
        self._handshake = Handshake(
            identity,
            self.info,
            accounts,
            authorization,
            self,
            log,
            options=options,
            events=hooks.events,
            spawn=spawn,
        )
        self._solicitor = Solicitor(
            log, options=options, create=self._dialled, spawn=spawn, failed=self._attempt_failed
        )
        self.remotes: list[Remote] = []
        self.table = LeafTable()
        """The connections that have joined an account."""
        self.health = LinkHealth("leafnode", log, lambda: self.table, self._configured)
        self._recent: deque[object] = deque(maxlen=RECENT)
        """Permissions of the latest connections: when one comes again, pollers know what these say."""
        self._first: dict[int, PeerInfo] = {}
        """INFOs that were read before the poller had the connection, by id, until it has."""

    @property
    def port(self) -> int:
        """The port that it listens on; when the options ask for a free one, the one that the kernel chose."""
        return self.info.port or self._options().leafnodes.port

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self, pollers: "Pollers") -> None:
        """Listen for leaf nodes, if the options name a port. Raises ServerError."""
        self._pollers = cycle(pollers.serving)
        block = self._options().leafnodes
        if not block.port:
            return
        sock = await listen_for_servers("leafnode", block.host, max(block.port, 0))
        self._listener = AcceptLoop(sock, "Leafnode", self._accepted, self._log)
        self.info.port = self._listener.port
        self._log.notice(f"Listening for leafnode connections on {join_host_port(block.host, self.port)}")
        if block.advertise:
            self._log.notice(f"Advertise address for leafnode is set to {self.info.own_url}")
        if not block.no_advertise:
            self.info.urls.add(self.info.own_url)
        if self.tls and self.tls.insecure:
            self._log.warn(INSECURE)

    def solicit(self) -> None:
        """Dial the remotes of the configuration."""
        self.add_remotes(self._options().leafnodes.remotes)

    def add_remotes(self, remotes: Iterable[RemoteLeafOptions]) -> None:
        """Dial remotes, but for those that are disabled."""
        for options in remotes:
            self.remotes.append(remote := Remote(options))
            self._announce(remote)
            if options.disabled:
                remote.valid = False
            else:
                self.dial(remote)

    def dial(self, remote: Remote) -> None:
        """Dial a remote until it is connected."""
        system = self._accounts.system_account
        shares = system is not None and remote.options.account == system.name
        self._solicitor.dial(remote, shares_system=shares and self._options().cluster.port != 0)

    def _announce(self, remote: Remote) -> None:
        """Log what restricts a remote (solicitLeafNodeRemotes)."""
        options, log = remote.options, self._log
        system = self._accounts.system_account
        of_system = system is not None and options.account == system.name
        if of_system and options.deny_exports:
            log.notice("Remote for System Account uses restricted export permissions")
        if of_system and options.deny_imports:
            log.notice("Remote for System Account uses restricted import permissions")
        if not options.credentials:
            return
        from gnats.leafnodes.credentials import check_credentials

        error, restricted = check_credentials(options.credentials)
        if error:
            log.error(error)
        elif restricted:
            account = "System Account" if of_system else f"Account {options.account}"
            text = f"uses credentials file {quote(options.credentials)} with restricted permissions"
            log.notice(f"LeafNode Remote for {account} {text}")

    def disconnect(self, cid: int) -> None:
        """Close a connection. Raises KeyError for an unknown one."""
        self.open[cid].close(self._log, ClosedState.KICKED)

    # -- URLs of the cluster's servers -----------------------------------------------------------------------

    def add_url(self, url: str) -> None:
        """Tell leaf nodes of another server of the cluster that they can dial."""
        if self.info.urls.add(url):
            self._tell()

    def remove_url(self, url: str) -> None:
        """Undo an add_url(): the other server has gone."""
        if self._pollers is not None and self.info.urls.remove(url):
            self._tell()

    def _tell(self) -> None:
        line = self.info.line()
        for leaf in self.table:
            leaf.send(line)

    # -- connections -----------------------------------------------------------------------------------------

    def _create(
        self,
        sock: socket.socket,
        host: str,
        port: int,
        account: Account,
        *,
        remote: Remote | None = None,
        url: URL | None = None,
    ) -> Leaf:
        """Make a leaf node of a connected socket, which stays the caller's until the connection begins."""
        assert self._pollers
        opts = self._options()
        block = opts.leafnodes
        compression = remote.options.compression if remote else block.compression
        session = self._make_session(
            LEAF,
            sock.fileno(),
            self._hooks.next_cid(),
            next(self._pollers),
            self._state,
            self._accounts.registry,
            max_control_line=opts.max_control_line,
            max_payload=opts.max_payload,
            max_pending=opts.max_pending * MAX_PENDING_FACTOR,
            write_deadline=block.write_deadline or opts.write_deadline,
            retries=block.write_timeout != "close",
            ping_interval=opts.ping_interval,
            ping_max=max(opts.ping_max, -1),
            negotiates=negotiates(compression.mode),
        )
        nonce = "" if remote else new_nonce()
        leaf = Leaf(session, unmapped(host), port, account, nonce=nonce, remote=remote, url=url)
        leaf.isolated = block.isolate_leafnode_interest or (
            remote is not None and remote.options.local_isolation
        )
        self.open[leaf.cid] = leaf
        return leaf

    def _accepted(self, sock: socket.socket, host: str, port: int) -> None:
        """Make a leaf node of an accepted socket, and send INFO. Owns `sock`."""
        if self._pollers is None:
            sock.close()
            return
        leaf = self._create(sock, host, port, self._accounts.global_account)
        sock.detach()
        assert leaf.session
        self._log.notice(f"{leaf} - Leafnode connection created ")
        block = self._options().leafnodes
        mode = block.compression.mode
        info = self.info.initial(leaf, mode if mode != "not supported" else "")
        timeout = block.auth_timeout
        if self.tls and self.tls.accepting:
            self.tls.accepting.secure(leaf.session, info)
            info = b""
        leaf.begin(info, expect_connect=True, auth_timeout=timeout)

    async def _dialled(self, sock: socket.socket, host: str, port: int, remote: Remote, url: URL) -> None:
        """Make a leaf node of a socket that is connected to a remote. Owns `sock`."""
        options, log = remote.options, self._log
        try:
            account = await self._hooks.lookup_account(options.account)
        except BaseException:
            sock.close()
            raise
        if self._pollers is None or not remote.valid:
            sock.close()
            return
        if account is None:
            sock.close()
            what = f"Unable to lookup account {options.account} for solicited leafnode connection"
            log.error(f"{what}: account missing")
            self._attempt_failed(remote, "account missing")
            self._solicitor.dial_again(remote)
            return
        leaf = self._create(sock, host, port, account, remote=remote, url=url)
        log.notice(f"{leaf} - Leafnode connection created for account: {account.label} ")
        if options.tls and options.tls.handshake_first:
            sock.detach()
            leaf.finish_timer = call_later(
                options.tls.timeout + options.first_info_timeout, self._no_first_info, leaf
            )
            self._begin_secure(leaf, remote, url)
        else:
            leaf.first_info = FirstInfo(
                sock,
                options.first_info_timeout,
                lambda line: self._handshake.process_line(leaf, line),
                lambda reason: leaf.close(log, reason),
            )

    def _no_first_info(self, leaf: Leaf) -> None:
        leaf.finish_timer = None
        leaf.close(self._log, ClosedState.READ_ERROR)

    def _begin_secure(self, leaf: Leaf, remote: Remote, url: URL) -> None:
        from gnats.tls.leafs import LeafTLS

        self.tls = self.tls or LeafTLS(self._options().leafnodes)
        assert leaf.session
        self.tls.of(remote.options).secure(leaf.session, remote.host(url))
        leaf.begin(b"")

    def secure(self, leaf: Leaf, info: PeerInfo) -> None:
        """Hand a connection that was dialled to its poller, over TLS if one of the servers requires it."""
        assert leaf.remote and leaf.url and leaf.first_info
        leaf.first_info.stop()
        leaf.first_info = None
        self._first[leaf.cid] = info
        leaf.remote.tls_required |= info.tls_required
        if leaf.remote.tls_required:
            self._begin_secure(leaf, leaf.remote, leaf.url)
        else:
            leaf.begin(b"")

    # -- events ----------------------------------------------------------------------------------------------

    def serve(self, events: "EventTable") -> None:
        """Handle the events about leaf nodes."""
        for event, handler in (
            (EV_BEGUN, self._on_begun),
            (EV_CLOSED, self._on_closed),
            (EV_PONG, self._on_pong),
            (EV_LEAF, self._on_leaf),
        ):
            events.on(event, handler, (LEAF,))
        self._serve(events, LEAF, self._handshake)

    def _on_begun(self, source: Connection | None, a: int, b: int, data: object) -> bool:
        leaf = self._find(source)
        if leaf is None or (info := self._first.pop(leaf.cid, None)) is None or leaf.closing:
            return False
        try:
            self._handshake.process_peer_info(leaf, info, waits=False)
        except MemoryError:
            self._out_of_memory(leaf)
        return True

    def _out_of_memory(self, leaf: Leaf) -> None:
        self._log.error(f"{leaf} - Out of memory - Closing")
        leaf.close(self._log, ClosedState.READ_ERROR)

    def _on_pong(self, source: Connection | None, a: int, b: int, data: object) -> None:
        if leaf := self._find(source):
            compression = self._options().leafnodes.compression
            leaf.follow_rtt(leaf.remote.options.compression if leaf.remote else compression)

    def _on_leaf(self, source: Connection | None, what: int, b: int, data: object) -> bool:
        def answer(leaf: Leaf, text: bytes) -> None:
            self._answer(leaf, what, text.decode("utf-8", "backslashreplace"))

        return answer_punt(self._find(source), data, answer, self._log)

    def _answer(self, leaf: Leaf, what: int, text: str) -> None:
        """Answer what a session has found in its peer's interest and messages, or the peer's error."""
        if leaf.session is None or leaf.leaving:
            return
        if what == LeafEvent.LEAF_LOOP:
            self._loop(leaf)
        elif what == LeafEvent.LEAF_ERROR:
            self._peer_error(leaf, text)
        elif what == LeafEvent.LEAF_PUBLISH_DENIED:
            self._denied(leaf, text, "Publish", "Publish to")
        elif what == LeafEvent.LEAF_SUBSCRIBE_DENIED:
            self._denied(leaf, text, "Subscription", "Subscription to")
            self._log.debug(f"{leaf} - Permissions Violation for Subscription to {quote(text)}")
        if not leaf.closing:
            leaf.session.resume()

    def _loop(self, leaf: Leaf, *, tell: bool = True, seconds: float = LOOP_DELAY) -> None:
        """Close a connection in a circle, and dial it no more for a while (handleLeafNodeLoop)."""
        delay = self._delay(leaf, seconds)
        error = f"Loop detected for leafnode account={quote(leaf.account.name)}."
        error += f" Delaying attempt to reconnect for {delay}"
        self._log.error(f"{leaf} - {error}")
        leaf.trouble = f"Loop detected: {LOOP}"
        self.health.conflicts.add(_conflict("loop", leaf), leaf.trouble)
        leaf.close(self._log, ClosedState.PROTOCOL_VIOLATION, error if tell else None)

    def _note_duplicate(self, leaf: Leaf) -> None:
        """Note that a connection makes room for another one: once, as after a cut, that is no alert."""
        self.health.conflicts.add(_conflict("duplicate", leaf), TWICE, least=2)

    def _peer_error(self, leaf: Leaf, text: str) -> None:
        """Handle the peer's -ERR (leafProcessErr). It closes the connection itself, if it wants to."""
        say = self._log.error if leaf.logs_error() else self._log.debug
        say(f"{leaf} - Leafnode Error {text[:LONGEST_ERROR]}")
        leaf.trouble = peers_words(text)
        dropped = f"{leaf} - Leafnode connection dropped"
        if SAME_CLUSTER_NAME in text:
            delay = self._delay(leaf, SAME_CLUSTER_DELAY)
            why = "with same cluster name error"
            say(f"{dropped} {why}. Delaying attempt to reconnect for {delay}")
        elif MIN_VERSION in text:
            delay = self._delay(leaf, MIN_VERSION_DELAY)
            why = "due to minimum version requirement"
            say(f"{dropped} {why}. Delaying attempt to reconnect for {delay}")
        elif "Loop detected" in text:
            self._loop(leaf, tell=False)
        elif str(DUPLICATE) in text:
            self._note_duplicate(leaf)

    def _denied(self, leaf: Leaf, subject: str, action: str, what: str) -> None:
        """Close the connection of a spoke that does what it was told not to do (leafPermViolation)."""
        if leaf.spoke:  # the hub knows no better
            return
        self._delay(leaf, PERMISSION_DELAY)
        error = f"Permissions Violation for {what} {quote(subject)}"
        text = f"{action} Violation on {quote(subject)} - Check other side configuration"
        self._log.error(f"{leaf} - {text}")
        leaf.close(self._log, ClosedState.PROTOCOL_VIOLATION, error)

    @staticmethod
    def _delay(leaf: Leaf, seconds: float) -> str:
        """Dial the peer again only after so many seconds; return that time as text."""
        if leaf.remote:
            leaf.remote.delay = seconds
        return duration(round(seconds * 1_000_000_000))

    def _on_closed(self, source: Connection | None, reason: int, num_subs: int, data: object) -> None:
        leaf = self._find(source)
        if leaf is None:
            return
        why = ClosedState(reason)
        del self.open[leaf.cid]
        self._first.pop(leaf.cid, None)
        self._hooks.gone()
        leaf.tell_left_out(self._log)
        if reason == _TLS_FAILED and leaf.remote and leaf.session:
            self._tls_failed(leaf.session, leaf.remote)
        leaf.closed(why, num_subs, data if isinstance(data, bytes) else b"")
        self._hooks.closed(leaf)
        self._count_end(leaf.final, reason)
        remote = f" - Remote: {printable(leaf.peer_name)}" if leaf.peer_name else ""
        self._log.notice(f"{leaf} - Leafnode connection closed: {why}{remote}")
        if leaf.has_joined:
            self.health.closed(leaf, leaf.final, reason, leaf.trouble)
        refused = leaf.trouble or not leaf.has_joined
        if refused and leaf.remote and leaf.remote.valid and self._pollers is not None:
            self._attempt_failed(leaf.remote, leaf.trouble or str(why))
        self._leave(leaf)
        self._tell_watchers()
        if leaf.remote and leaf.remote.valid and self._pollers is not None and not leaf.no_reconnect:
            self._solicitor.dial_again(leaf.remote)

    def _configured(self) -> Iterator[Configured]:
        """Yield the remotes of the configuration that are not disabled."""
        return (configured(remote) for remote in self.remotes if remote.valid)

    def _attempt_failed(self, remote: Remote, error: str) -> None:
        self.health.failed(configured(remote), error)

    @staticmethod
    def _tls_failed(session: "LeafSession", remote: Remote) -> None:
        from gnats.core.tls.tlstransport import host_was_wrong

        if host_was_wrong(session):
            remote.tls_name = ""

    # -- what follows from handshakes ------------------------------------------------------------------------

    def register(self, leaf: Leaf, account: Account) -> bool:
        """Count a connection in its account; return whether there is room."""
        if leaf.account is account and leaf.cid in account.leafs:
            return True
        self._leave(leaf)
        leaf.account = account
        if not account.add_leaf(leaf):
            return False
        if events := self._hooks.events():
            events.conns_update(account)
        return True

    def _leave(self, leaf: Leaf) -> None:
        """Undo all that counts a connection."""
        account, events = leaf.account, self._hooks.events()
        self.table.remove(leaf)
        self._forget_cluster(leaf)
        if account.remove_leaf(leaf) and events:
            events.conns_update(account)
            if leaf.reason is not None:
                events.disconnected(leaf)

    @staticmethod
    def _forget_cluster(leaf: Leaf) -> None:
        clusters = leaf.account.leaf_clusters
        if leaf.counts_cluster:
            leaf.counts_cluster = False
            clusters[leaf.peer_cluster] -= 1
            if not clusters[leaf.peer_cluster]:
                del clusters[leaf.peer_cluster]

    def accepted(self, leaf: Leaf) -> None:
        """Have an accepted connection join its account (the end of processLeafNodeConnect)."""
        log = self._log
        self._forget_cluster(leaf)
        if self.table.other_way(leaf):
            self._loop(leaf)
            return
        if not leaf.spoke:
            leaf.account.leaf_clusters[leaf.peer_cluster] += 1
            leaf.counts_cluster = True
        same = self.table.same_peer(leaf)
        self.table.add(leaf)
        if same:
            same.refuse(log, DUPLICATE, str(DUPLICATE))
            self._note_duplicate(same)
            log.warn(f"{leaf} - Replacing connection from same server")
        self._join(leaf, self.info.answer(leaf, is_system=self._is_system(leaf)))

    def dialled(self, leaf: Leaf, connect: bytes) -> None:
        """Have a connection that was dialled join its account (leafNodeFinishConnectProcess).

        Send `connect` first, unless it was sent.
        """
        account, log = leaf.account, self._log
        assert leaf.remote
        if self.table.other_way(leaf):
            self._met(leaf, leaf.remote)
            return
        if account.leaf_clusters.get(leaf.peer_cluster) and leaf.peer_cluster:
            self._loop(leaf)
            return
        if not self.register(leaf, account):
            error = "maximum account active connections exceeded"
            leaf.refuse(log, ClosedState.MAX_ACCOUNT_CONNECTIONS_EXCEEDED, error)
            return
        if not leaf.remote.valid:
            leaf.no_reconnect = True
            leaf.close(log, ClosedState.CLIENT_CLOSED)
            return
        self.table.add(leaf)
        self._join(leaf, connect)
        if events := self._hooks.events():
            events.connected(leaf)

    def _met(self, leaf: Leaf, remote: Remote) -> None:
        """Close a connection to a server that has dialled this one meanwhile, and may do the same just now.

        Dial again at another moment than that one; when its connection is still there, as after a loop.
        """
        seconds = random.uniform(*MEETING_DELAYS) + (LOOP_DELAY if remote.met else 0.0)
        remote.met = True
        self._loop(leaf, seconds=round(seconds, 3))

    def _is_system(self, leaf: Leaf) -> bool:
        return leaf.account is self._accounts.system_account

    def _join(self, leaf: Leaf, greeting: bytes) -> None:
        if leaf.session is None or leaf.leaving:
            return
        keep_domains_apart(leaf, self._options(), self._accounts, self._log)
        permissions, receive = session_permissions(leaf)
        self._recent.append((permissions, receive))
        max_subs, max_payload = limits(leaf, self._options())
        leaf.has_joined = True
        leaf.mapped = announced_anyway(leaf, self._options())
        if leaf.account.shares_details:
            leaf.share_details()
        leaf.session.join(
            leaf.account,
            greeting=greeting,
            cluster=text_bytes(leaf.peer_cluster),
            spoke=leaf.spoke,
            dialled=leaf.solicited,
            isolated=leaf.isolated,
            headers=leaf.headers,
            traces=leaf.proto >= TRACES_PROTO,
            passes=leaf.passes,
            loop_subject=self.table.loop_subject(leaf.account),
            mapped=leaf.mapped,
            permissions=permissions,
            receive=receive,
            max_subs=max_subs,
            max_payload=max_payload,
        )
        if leaf.remote:
            leaf.remote.met = False
            self.health.joined(configured(leaf.remote))
        self._tell_watchers()
        self._hooks.joined(leaf.account)
        self._hooks.linked(leaf.account)

    def informed(self, leaf: Leaf, info: PeerInfo) -> None:
        """Use what an INFO of a server that was dialled says: URLs to dial, permissions.

        Permissions as before need no comparison of all interest; nats-server sets them again.
        """
        assert leaf.remote
        if not leaf.remote.options.ignore_discovered_servers and info.leafnode_urls:
            for url in leaf.remote.discovered(info.leafnode_urls):
                self._log.error(f"{leaf} - Error parsing url {quote(url)}")
        if leaf.has_joined:
            self._hooks.linked(leaf.account)
        if info.imports is None and info.exports is None:
            return
        if (info.imports, info.exports) == (leaf.imports, leaf.exports):
            return
        leaf.imports, leaf.exports = info.imports, info.exports
        if leaf.has_joined and leaf.session:
            leaf.session.set_permissions(*session_permissions(leaf))

    def marked(self, leaf: Leaf, mark: str) -> None:
        """Note a mark of the peer (gnats.leafnodes.mesh)."""
        leaf.mark = mark
        self._tell_watchers()

    def update_mapped(self) -> None:
        """Announce the present mappings and service imports of accounts, which may have changed."""
        for leaf in self.table:
            mapped = announced_anyway(leaf, self._options())
            if mapped != leaf.mapped and leaf.session and not leaf.leaving:
                leaf.mapped = mapped
                try:
                    leaf.session.set_mapped(mapped)
                except MemoryError:
                    self._out_of_memory(leaf)


def announced_anyway(leaf: Leaf, options: "Options") -> tuple[bytes, ...]:
    """Return the subjects that are announced whoever subscribes.

    These are the account's mappings, at a hub its service imports, whose interest permissions would hide, and
    with gateways the replies that these map.
    """
    account = leaf.account
    imports = (
        [] if leaf.spoke else [service.subscription()[0] for service in account.service_imports.values()]
    )
    replies = (MAPPED_REPLIES,) if options.gateway.configured else ()
    return tuple(dict.fromkeys((*account.mapped, *imports, *replies)))


def _conflict(problem: str, leaf: Leaf) -> Conflict:
    return Conflict(problem, leaf.peer_name or join_host_port(leaf.host, leaf.port), leaf.account.name)


def configured(remote: Remote) -> Configured:
    """Return how a remote is named to operators."""
    options = remote.options
    return Configured(",".join(url.host for url in options.urls), options.account)
