"""The control plane's side of a connection to another server: what routes and gateways have in common."""

from typing import TYPE_CHECKING, Generic, TypeVar

from gnats.clock import time_ns
from gnats.cluster.info import PeerConnect, PeerInfo
from gnats.connection.closed_state import ClosedState
from gnats.go.text import quote
from gnats.runtime.reported import ReportedConnection

if TYPE_CHECKING:
    from gnats.core.links.link_session import LinkSession
    from gnats.go.url import URL
    from gnats.log.logger import Logger

S = TypeVar("S", bound="LinkSession")


class LinkConnection(ReportedConnection, Generic[S]):
    """A connection to another server, with its session in the data plane, and the peer's CONNECT and INFO."""

    __slots__ = (
        "cid",
        "connect",
        "connected",
        "hint",
        "host",
        "no_reconnect",
        "peer",
        "port",
        "remote_id",
        "session",
        "start",
        "trouble",
        "url",
    )

    def __init__(self, session: S, host: str, port: int, url: "URL | None") -> None:
        super().__init__()
        self.session: S | None = session
        self.cid = session.cid
        self.host = host
        self.port = port
        self.start = time_ns()
        self.url = url
        """What this server has dialled; None for a connection that it has accepted."""
        self.connect = PeerConnect()
        self.connected = False
        """True once a CONNECT was accepted."""
        self.peer: PeerInfo | None = None
        """The peer's first INFO."""
        self.remote_id = ""
        self.no_reconnect = False
        self.trouble = ""
        """Why it cannot be, where that says more than the reason for which it is closed."""
        self.hint = ""
        """The same, where the peer's words would mislead."""

    @property
    def connection(self) -> S | None:
        return self.session

    @property
    def remote_name(self) -> str:
        """The peer's server name, empty before its INFO."""
        return self.peer.server_name if self.peer else ""

    @property
    def trace_name(self) -> str:
        """The peer's server name, for traces of messages."""
        return self.remote_name

    @property
    def trace_account(self) -> str:
        """Messages name their account."""
        return ""

    @property
    def closing(self) -> bool:
        """Whether the connection is closed, or will be."""
        return self.session is None or self.leaving or self.session.closed_reason != 0

    @property
    def headers(self) -> bool:
        """Whether the peer takes headers."""
        return self.peer is not None and self.peer.headers

    def peer_certificate(self) -> bytes | None:
        """Return the certificate of the peer (DER); None without one, or without TLS."""
        from gnats.core.tls.tlstransport import tls_info

        info = tls_info(self.session) if self.session else None
        return info["peer_certs"][0] if info and info["peer_certs"] else None

    def peer_key(self) -> str:
        """Return the digest of the key of the peer's certificate, as in pinned_certs; empty without one."""
        if (der := self.peer_certificate()) is None:
            return ""
        from gnats.tls.certs import PeerCertificate

        return PeerCertificate.from_der(der).spki_sha256

    def auth_user(self) -> str:
        """Return the user's name for authentication errors; empty without a user."""
        return f"User {quote(self.connect.user)}" if self.connect.user else ""

    def rate_limit(self, log: "Logger", level: str, text: str) -> None:
        """Log a statement about the connection, unless the same was logged in the last second."""
        user = f"user:{self.connect.user}" if self.connected and self.connect.user else ""
        self.log_limited(log, level, text, user)

    def refuse(self, log: "Logger", reason: ClosedState, error: str) -> None:
        """Close the connection with an error, which is logged (sendErrAndErr)."""
        self.trouble = error
        self.rate_limit(log, "ERR", error)
        self.close(log, reason, error)

    def reject(self, log: "Logger", reason: ClosedState, error: str, why: str) -> None:
        """Close the connection because of its CONNECT, with an error; log `why` after it."""
        self.close(log, reason, error)
        log.error(f"{self} - {why}")

    def violation(self, log: "Logger") -> None:
        """Close the connection because the peer may not connect."""
        if self.session is None or self.leaving:
            return
        user = self.auth_user()
        log.error(f"{self} - authentication error" + (f" - {user}" if user else ""))
        self.close(log, ClosedState.AUTHENTICATION_VIOLATION, "Authorization Violation")

    def malformed(self, log: "Logger", exc: Exception) -> None:
        """Close the connection because its CONNECT or INFO cannot be read."""
        log.error(f"{self} - {exc}")
        self.close(log, ClosedState.PROTOCOL_VIOLATION)

    def out_of_memory(self, log: "Logger") -> None:
        """Close the connection because it cannot be told of a change."""
        log.error(f"{self} - Out of memory - Closing")
        self.close(log, ClosedState.READ_ERROR)

    def send(self, line: bytes) -> None:
        """Send an INFO line to the peer, unless the connection is closed."""
        if self.session and not self.leaving:
            self.session.enqueue_proto(line)
