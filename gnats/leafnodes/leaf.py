"""The control plane's side of a leaf node connection: its peer, its role, its name in the log."""

from typing import TYPE_CHECKING, cast

from gnats.client.session import Session
from gnats.clock import Timer, monotonic, time_ns
from gnats.cluster.compression import level_for, negotiates
from gnats.cluster.link_health import SETTLED
from gnats.connection.closed_state import ClosedState
from gnats.go.text import SECOND, join_host_port
from gnats.options.values.auth import SubjectPermission
from gnats.options.values.cluster import S2_AUTO, S2_UNCOMPRESSED, Compression

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnats.accounts.account import Account
    from gnats.core.client import Client
    from gnats.core.links.leaf_session import LeafSession
    from gnats.go.url import URL
    from gnats.leafnodes.first_info import FirstInfo
    from gnats.leafnodes.remote import Remote
    from gnats.log.logger import Logger


ERRORS_A_SECOND = 20
"""Errors of one peer that are logged."""


class Leaf(Session):
    """A connection between an account of this server and one of another server.

    `remote` and `url` are what this server has dialled; None for a connection that it has accepted.
    """

    __slots__ = (
        "_errors",
        "_started",
        "_trouble",
        "_trouble_since",
        "compression",
        "counts_cluster",
        "exports",
        "finish_timer",
        "first_info",
        "has_info",
        "has_joined",
        "headers",
        "imports",
        "isolated",
        "js_denials",
        "mapped",
        "mark",
        "negotiated",
        "no_reconnect",
        "passes",
        "peer_cluster",
        "peer_denials",
        "peer_domain",
        "peer_id",
        "peer_name",
        "proto",
        "registered",
        "remote",
        "remote_account",
        "spoke",
        "url",
    )

    connection_type = "LEAFNODE"
    kind_name = "Leafnode"
    client_type = ""

    def __init__(
        self,
        session: "LeafSession",
        host: str,
        port: int,
        account: "Account",
        *,
        nonce: str = "",
        remote: "Remote | None" = None,
        url: "URL | None" = None,
    ) -> None:
        super().__init__(cast("Client", session), host, port, account, nonce)
        self.remote = remote
        self.url = url
        self.spoke = remote is not None and not remote.options.hub
        """The peer is the hub of this connection; else this server is."""
        self.isolated = False
        """The peer is not told of the interest of other leaf nodes."""
        self.peer_name = ""
        self.peer_id = ""
        """The peer's server id, which changes with each of its starts."""
        self.mark = ""
        """The last mark that has come (gnats.leafnodes.mesh)."""
        self.peer_cluster = ""
        self.peer_domain = ""
        self.remote_account = ""
        """The peer's account."""
        self.headers = False
        self.proto = 0
        self.passes = False
        """It knows messages that are passed on to queue groups alone."""
        self.imports: SubjectPermission | None = None
        self.exports: SubjectPermission | None = None
        """What a hub allows a spoke to receive and to send: here a user's permissions, or those of INFO."""
        self.peer_denials: tuple[str, ...] = ()
        """Subjects that the peer does not want (deny_pub of its CONNECT)."""
        self.js_denials: tuple[tuple[str, ...], tuple[str, ...]] = (), ()
        """Subjects of JetStream that are not sent to the peer, and not announced to it."""
        self.mapped: tuple[bytes, ...] = ()
        """Subjects that are announced to the peer whoever subscribes."""
        self.compression = ""
        """How this server compresses what it sends; empty before that is known."""
        self.negotiated = False
        """The servers have agreed whether to compress, or need not."""
        self.has_info = False
        """The peer's first INFO has come to an end: CONNECT was sent (of a connection that was dialled)."""
        self.has_joined = False
        self._errors = 0, 0
        """The last second with an error of the peer, and how many there were in it."""
        self.counts_cluster = False
        """It is counted in its account's leaf_clusters."""
        self.registered = False
        """It is in the table of connected leaf nodes."""
        self.no_reconnect = False
        self._trouble = ""
        self._trouble_since = 0.0
        self.first_info: FirstInfo | None = None
        """Waits for the peer's first INFO, before the poller has the connection."""
        self.finish_timer: Timer | None = None
        self._started = False

    def __str__(self) -> str:
        """Return the connection's name in the log."""
        return f"{join_host_port(self.host, self.port)} - lid:{self.cid}"

    @property
    def session(self) -> "LeafSession | None":
        """The data plane's side; None once it is closed."""
        return cast("LeafSession | None", self.client)

    def logs_error(self) -> bool:
        """Return whether one more error of the peer is logged, and count it. It may send any number."""
        second = int(monotonic())
        count = self._errors[1] + 1 if self._errors[0] == second else 1
        self._errors = second, count
        return count <= ERRORS_A_SECOND

    @property
    def solicited(self) -> bool:
        """This server has dialled."""
        return self.remote is not None

    @property
    def closing(self) -> bool:
        """Whether the connection is closed, or will be."""
        return self.session is None or self.leaving or self.session.closed_reason != 0

    @property
    def trouble(self) -> str:
        """Why it is closed, where that says more than the reason: what the peer said, or what was wrong here.

        A connection that has joined survives some errors: what it has survived for a while is forgotten.
        """
        survived = self.has_joined and monotonic() - self._trouble_since > SETTLED
        return "" if survived else self._trouble

    @trouble.setter
    def trouble(self, text: str) -> None:
        self._trouble, self._trouble_since = text, monotonic()

    @property
    def decorated_peer(self) -> str:
        """The peer's name and cluster, for the log."""
        return f"{self.peer_name}/{self.peer_cluster}" if self.peer_cluster else self.peer_name

    @property
    def server_name(self) -> str:
        """The peer, where requesters are."""
        return self.peer_name

    @property
    def trace_name(self) -> str:
        """The peer's server name, for traces of messages."""
        return self.peer_name

    def begin(self, lines: bytes, *, expect_connect: bool = False, auth_timeout: float = 0.0) -> None:
        """Hand the connection to its poller: send `lines`, then read."""
        if self.session and not self._started:
            self._started = True
            self.session.start(lines, expect_connect=expect_connect, auth_timeout=auth_timeout)

    def close(self, log: "Logger", reason: ClosedState, err: str | None = None) -> None:
        """Close the connection, also one that is not started; send `-ERR 'err'` first if `err` is given."""
        if self.session is None or self.leaving:
            return
        if self.first_info:
            self.first_info.stop()
        self.begin(b"")
        super().close(log, reason, err)

    def refuse(self, log: "Logger", reason: ClosedState, error: str) -> None:
        """Close the connection with an error, which is logged (sendErrAndErr)."""
        self.trouble = error
        self.rate_limit(log, "ERR", error)
        self.close(log, reason, error)

    def stop_waiting(self) -> None:
        """Stop the timer for the end of the handshake."""
        if self.finish_timer:
            self.finish_timer.cancel()
            self.finish_timer = None

    def closed(self, reason: ClosedState, num_subs: int = 0, subs: bytes = b"") -> None:
        self.stop_waiting()
        super().closed(reason, num_subs, subs)

    def send(self, line: bytes) -> None:
        """Send a line to the peer, unless the connection is closed."""
        if self.session and self._started and not self.leaving:
            self.session.enqueue_proto(line)

    def client_info(self, **changes: object) -> dict[str, object]:
        """Describe the connection for events, as Session.client_info()."""
        info = super().client_info(**changes)
        if self.cid not in self.account.leafs and self.reason is None:  # it has none yet
            info["acc"] = "N/A"
            info.pop("name_tag", None)
        return info

    # -- compression -----------------------------------------------------------------------------------------

    def s2_level(self, thresholds: "Sequence[float]") -> str:
        """Return the level for the round trip time; before the first PONG, for the time of the handshake."""
        assert self.session
        return level_for((self.session.snapshot()["rtt"] or time_ns() - self.start) / SECOND, thresholds)

    def follow_rtt(self, configured: Compression) -> None:
        """Compress as the round trip time says, if configured so (updateS2AutoCompressionLevel)."""
        if self.session and configured.mode == S2_AUTO and negotiates(self.compression):
            self.use_level(self.s2_level(configured.rtt_thresholds))

    def use_level(self, level: str) -> None:
        """Use another level of compression; the peer need not know."""
        if self.session and level != self.compression:
            self.compression = level
            self.session.set_uncompressed(level == S2_UNCOMPRESSED)
