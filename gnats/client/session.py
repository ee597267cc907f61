"""The control plane's side of a client (client.go): its CONNECT, account and grant, its name in the log."""

import asyncio
from typing import TYPE_CHECKING

from gnats.accounts.account import Account
from gnats.client.grant import Grant
from gnats.clock import Timer, call_later, seconds_until, time_ns
from gnats.connection.closed_state import ClosedState
from gnats.connection.connect_options import CLIENT_PROTO_INFO, ClientOptions
from gnats.core.tls.tlstransport import tls_info
from gnats.go.json import marshal
from gnats.go.text import join_host_port, quote, rfc3339
from gnats.runtime.reported import ReportedConnection

if TYPE_CHECKING:
    from gnats.core.client import Client
    from gnats.core.tls.tlstransport import TLSInfo
    from gnats.log.logger import Logger

_HEAD = ("start", "host", "id")
_MID = ("user", "name", "lang", "ver")
"""Fields of a ClientInfo: those before the account, and those between the account and the round trip time
(see Subscriber.set_details)."""


class Session(ReportedConnection):
    """A client of the data plane, and the facts about it that only the control plane needs.

    `start` and `stop` are unix times in nanoseconds. When the connection is closed, `stop`, `reason`, `final`
    (the last snapshot), `final_subs` (see EV_CLOSED) and `tls_final` are set, and `client` becomes None.
    """

    __slots__ = (
        "_deciding",
        "_expiry",
        "account",
        "cid",
        "client",
        "connected",
        "final",
        "final_subs",
        "grant",
        "host",
        "names",
        "nonce",
        "opts",
        "port",
        "reason",
        "start",
        "stop",
        "tls_final",
    )

    connection_type = "STANDARD"
    """One of gnats.options.values.auth.CONNECTION_TYPES."""
    kind_name = "Client"
    """The kind of connection, in events and on pages."""
    client_type = "nats"
    """The protocol of a client."""

    def __init__(self, client: "Client", host: str, port: int, account: Account, nonce: str = "") -> None:
        super().__init__()
        self.client: Client | None = client
        self.cid = client.cid
        self.host = host
        self.port = port
        self.account = account
        self.nonce = nonce
        self.opts = ClientOptions()
        self.grant = Grant()
        self._deciding: asyncio.Task[None] | None = None
        self._expiry: Timer | None = None
        self.connected = False
        """True once a CONNECT was accepted."""
        self.names = ""
        self.start = time_ns()
        self.stop = 0
        self.reason: ClosedState | None = None
        self.final: dict[str, int] = {}
        self.final_subs = b""
        self.tls_final: TLSInfo | None = None

    @property
    def connection(self) -> "Client | None":
        return self.client

    def __str__(self) -> str:
        """Return the client's name in the log."""
        return f"{join_host_port(self.host, self.port)} - cid:{self.cid}{self.names}"

    def set_names(self) -> None:
        """Add the client's library, name, account and user to its name in the log, after its CONNECT."""
        opts = self.opts
        version = opts.version and f"v{opts.version}"
        library = ":".join(part for part in (version, opts.lang, opts.name) if part)
        if library:
            self.names = f" - {quote(library)}"
        if user := self.auth_user_label():
            self.names += f" - {quote(f'{self.account.label}/{user}')}"

    def raw_auth_user(self) -> str:
        """Return the user's name for monitoring; "[REDACTED]" for a token."""
        opts = self.opts
        if opts.nkey or opts.user:
            return opts.nkey or opts.user
        return self.grant.pub_key if opts.jwt else ("[REDACTED]" if opts.auth_token else "")

    def auth_user(self) -> str:
        """Return the user's name for authentication errors; empty without a user."""
        if self.opts.nkey:
            return f"Nkey {quote(self.opts.nkey)}"
        if self.opts.user:
            return f"User {quote(self.opts.user)}"
        if self.opts.jwt:
            return f"JWT User {quote(self.grant.pub_key)}" if self.grant.pub_key else ""
        return 'Token "[REDACTED]"' if self.opts.auth_token else ""

    def auth_user_label(self) -> str:
        """Return the user for log lines: its kind and its name, "token", or "" without a user."""
        if self.opts.nkey:
            return f"nkey:{self.opts.nkey}"
        if self.opts.user:
            return f"user:{self.opts.user}"
        if self.opts.jwt:
            return f"jwt:{self.grant.pub_key}"
        return "token" if self.opts.auth_token else ""

    def register_with_account(self, account: Account) -> bool:
        """Move to an account. Return False when that account has max_connections already."""
        if account is self.account and self.connected and self.cid in account.clients:
            return True
        self.account.remove_client(self)
        self.account = account
        return account.add_client(self)

    def decide(self, deciding: "asyncio.Task[None]") -> None:
        """Keep the task that decides whether the client may connect; closed() cancels it."""
        self._deciding = deciding

    def expire_after(self, seconds: float, log: "Logger") -> None:
        """Close the connection after `seconds`, when its grant ends."""
        self.cancel_expiry()

        def expire() -> None:
            self.rate_limit(log, "DBG", "User Authentication Expired")
            self.close(log, ClosedState.AUTHENTICATION_EXPIRED, "User Authentication Expired")

        self._expiry = call_later(seconds, expire)

    def expires_in(self) -> float:
        """Return the seconds until the grant ends and the connection is closed; 0 when it does not end."""
        return seconds_until(self._expiry) if self._expiry else 0.0

    def cancel_expiry(self) -> None:
        if self._expiry:
            self._expiry.cancel()
            self._expiry = None

    def takes_info(self) -> bool:
        """Check whether INFO may be sent now: the client supports it, and its first PING was answered."""
        return self.knows_info() and self.client is not None and self.client.pong_sent

    def knows_info(self) -> bool:
        """Check whether the client supports INFO at any time; it may not be sent yet (takes_info)."""
        return self.connected and self.opts.protocol >= CLIENT_PROTO_INFO and self.client is not None

    def peer_certificate(self) -> bytes | None:
        """Return the certificate (DER) that the client presented in its TLS handshake, or None."""
        info = self.tls_info()
        return info["peer_certs"][0] if info and info["peer_certs"] else None

    def closed(self, reason: ClosedState, num_subs: int = 0, subs: bytes = b"") -> None:
        """Record the end: keep the counters, leave the account, drop the data plane's client."""
        self.stop = time_ns()
        self.reason = reason
        self.final = self.snapshot() | {"subscriptions": num_subs}
        self.final_subs = subs
        self.account.remove_client(self)
        self.tls_final = self.tls_info()
        self.client = None
        self.cancel_expiry()
        if self._deciding:
            self._deciding.cancel()
            self._deciding = None

    @property
    def trace_name(self) -> str:
        """The name that the client gave itself, for traces of messages."""
        return self.opts.name

    @property
    def trace_account(self) -> str:
        """The name of the client's account, for traces of messages."""
        return self.account.name

    def snapshot(self) -> dict[str, int]:
        """Return the counters (see Client.snapshot); of a closed connection, the last ones."""
        return self.client.snapshot() if self.client else self.final

    def tls_info(self) -> "TLSInfo | None":
        """Return the results of its TLS handshake (core.tls.tlstransport.tls_info), also after the close."""
        return tls_info(self.client) if self.client else self.tls_final

    def rate_limit(self, log: "Logger", level: str, text: str) -> None:
        """Log a statement about the client, unless the same was logged in the last second, of any client."""
        statement = f"{text} - Account:{self.account.label}" if self.connected else text
        self.log_limited(log, level, statement, self.auth_user_label() if self.connected else "")

    def client_info(self, **changes: object) -> dict[str, object]:
        """Describe the client for events, services and auth callouts (ClientInfo in events.go).

        The fields are in nats-server's order, without empty ones; `changes` replaces some of them.
        """
        opts, grant = self.opts, self.grant
        fields: dict[str, object] = {
            "start": rfc3339(self.start),
            "host": self.host,
            "id": self.cid,
            "acc": self.account.name,
            "svc": "",
            "user": self.raw_auth_user(),
            "name": opts.name,
            "lang": opts.lang,
            "ver": opts.version,
            "rtt": 0,
            "server": "",
            "cluster": "",
            "alts": [],
            "stop": "",
            "jwt": opts.jwt,
            "issuer_key": grant.issuer_key,
            "name_tag": "",
            "tags": list(grant.tags),
            "kind": self.kind_name,
            "client_type": self.client_type,
        }
        fields |= changes
        return {name: value for name, value in fields.items() if value}

    @property
    def server_name(self) -> str:
        """The server of whoever sends over the connection, if that is another one."""
        return ""

    def share_details(self) -> None:
        """Give the data plane the client's details, for services imported with `share`."""
        info = self.client_info(acc="", name_tag=self.grant.name_tag, server=self.server_name)
        texts = {name: f'"{name}":'.encode() + marshal(value) for name, value in info.items()}
        head = b"".join(text + b"," for name, text in texts.items() if name in _HEAD)
        mid = b"".join(b"," + text for name, text in texts.items() if name in _MID)
        server = b"," + texts.pop("server") if "server" in texts else b""
        tail = b"".join(b"," + text for name, text in texts.items() if name not in _HEAD + _MID)
        if self.client:
            self.client.set_details(head, mid, tail, server)
