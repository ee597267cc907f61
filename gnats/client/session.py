"""The control plane's side of a client (client.go): who it is, its CONNECT, how the log names it."""

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

if TYPE_CHECKING:
    from gnats.core.client import Client
    from gnats.core.tls.tlstransport import TLSInfo
    from gnats.log.logger import Logger

LEFT_OUT_TOLD = 1.0
"""Seconds after which it is told how many log entries were left out."""

_HEAD = ("start", "host", "id")
_MID = ("user", "name", "lang", "ver")
"""Fields of a ClientInfo before and amid those that depend on the service."""


class Session:
    """A client of the data plane with what only the control plane needs to know about it.

    `start` and `stop` are unix times in nanoseconds; `stop`, `reason`, `final` (the last snapshot) and
    `final_subs` (see EV_CLOSED) are set when the connection is closed, and `client` is gone then.
    """

    __slots__ = (
        "_deciding",
        "_expiry",
        "_left_out",
        "account",
        "cid",
        "client",
        "connected",
        "final",
        "final_subs",
        "grant",
        "host",
        "leaving",
        "names",
        "nonce",
        "opts",
        "port",
        "reason",
        "start",
        "stop",
        "tls_final",
    )

    def __init__(self, client: "Client", host: str, port: int, account: Account, nonce: str = "") -> None:
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
        self._left_out: Timer | None = None
        self.connected = False
        self.leaving = False
        """It was told to go, and is not gone yet."""
        self.names = ""
        self.start = time_ns()
        self.stop = 0
        self.reason: ClosedState | None = None
        self.final: dict[str, int] = {}
        self.final_subs = b""
        self.tls_final: TLSInfo | None = None

    def __str__(self) -> str:
        """How the log names the client."""
        return f"{join_host_port(self.host, self.port)} - cid:{self.cid}{self.names}"

    def set_names(self) -> None:
        """After the first CONNECT: name the client by its library, its own name, its account and its user."""
        opts = self.opts
        version = opts.version and f"v{opts.version}"
        library = ":".join(part for part in (version, opts.lang, opts.name) if part)
        if library:
            self.names = f" - {quote(library)}"
        if user := self.auth_user_label():
            self.names += f" - {quote(f'{self.account.label}/{user}')}"

    def raw_auth_user(self) -> str:
        """The user's name, for monitoring; a token is not shown."""
        opts = self.opts
        if opts.nkey or opts.user:
            return opts.nkey or opts.user
        return self.grant.pub_key if opts.jwt else ("[REDACTED]" if opts.auth_token else "")

    def auth_user(self) -> str:
        """The user as authentication errors name it, empty when there is none."""
        if self.opts.nkey:
            return f"Nkey {quote(self.opts.nkey)}"
        if self.opts.user:
            return f"User {quote(self.opts.user)}"
        if self.opts.jwt:
            return f"JWT User {quote(self.grant.pub_key)}" if self.grant.pub_key else ""
        return 'Token "[REDACTED]"' if self.opts.auth_token else ""

    def auth_user_label(self) -> str:
        if self.opts.nkey:
            return f"nkey:{self.opts.nkey}"
        if self.opts.user:
            return f"user:{self.opts.user}"
        if self.opts.jwt:
            return f"jwt:{self.grant.pub_key}"
        return "token" if self.opts.auth_token else ""

    def register_with_account(self, account: Account) -> bool:
        """Belong to an account from now on; False when it has as many connections as it may."""
        if account is self.account and self.connected and self.cid in account.clients:
            return True
        self.account.remove_client(self)
        self.account = account
        return account.add_client(self)

    def decide(self, deciding: "asyncio.Task[None]") -> None:
        """A task decides whether the client may connect: it ends when the client has gone."""
        self._deciding = deciding

    def expire_after(self, seconds: float, log: "Logger") -> None:
        """Close the connection when what it was granted ends."""
        self.cancel_expiry()

        def expire() -> None:
            self.rate_limit(log, "DBG", "User Authentication Expired")
            self.close(log, ClosedState.AUTHENTICATION_EXPIRED, "User Authentication Expired")

        self._expiry = call_later(seconds, expire)

    def expires_in(self) -> float:
        """Seconds until the connection is closed because its grant ends; 0 when it does not."""
        return seconds_until(self._expiry) if self._expiry else 0.0

    def cancel_expiry(self) -> None:
        if self._expiry:
            self._expiry.cancel()
            self._expiry = None

    def takes_info(self) -> bool:
        """Whether INFO may be sent now: the client knows what it means, and its first PING is answered."""
        return (
            self.connected
            and self.opts.protocol >= CLIENT_PROTO_INFO
            and self.client is not None
            and self.client.pong_sent
        )

    def peer_certificate(self) -> bytes | None:
        """The client's certificate, DER, when it has shown one in a TLS handshake."""
        info = self.tls_info()
        return info["peer_certs"][0] if info and info["peer_certs"] else None

    def close(self, log: "Logger", reason: ClosedState, err: str | None = None) -> None:
        """Close the connection, after telling the client `err` if there is one. Idempotent."""
        if self.client is None or self.leaving:
            return
        self.leaving = True
        if err and log.trace_on:
            log.trace(f"{self} - ->> [-ERR {err}]")
        self.client.close_connection(reason, err)

    def log_left_out(self, log: "Logger") -> None:
        """The data plane leaves out lines about the client: say in a second how many."""
        self._left_out = call_later(LEFT_OUT_TOLD, self.tell_left_out, log)

    def tell_left_out(self, log: "Logger") -> None:
        """Say how many lines were left out, if any were."""
        if self._left_out and self.client:
            self._left_out.cancel()
            self._left_out = None
            log.warn(f"{self} - Left out {self.client.take_unlogged()} log entries: too many in a second")

    def closed(self, reason: ClosedState, num_subs: int = 0, subs: bytes = b"") -> None:
        """Note the end: keep the counters and let go of the data plane's client."""
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

    def snapshot(self) -> dict[str, int]:
        """The counters, see Client.snapshot; those at its end for a closed connection."""
        return self.client.snapshot() if self.client else self.final

    def tls_info(self) -> "TLSInfo | None":
        """What its TLS handshake has settled, see core.tls.tlstransport.tls_info; kept when it has closed."""
        return tls_info(self.client) if self.client else self.tls_final

    def rate_limit(self, log: "Logger", level: str, text: str) -> None:
        """Log a statement about the client unless the same was just logged about another one."""
        statement = f"{text} - Account:{self.account.label}" if self.connected else text
        if log.allow(statement):
            user = self.auth_user_label() if self.connected else ""
            log.log(level, f"{self} - {statement}" + (f" - {user}" if user else ""))

    def client_info(self, **changes: object) -> dict[str, object]:
        """The client as events, services and auth callouts are told of it (ClientInfo in events.go).

        Fields in nats-server's order, without the empty ones; `changes` replace some of them.
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
            "stop": "",
            "jwt": opts.jwt,
            "issuer_key": grant.issuer_key,
            "name_tag": "",
            "tags": list(grant.tags),
            "kind": "Client",
            "client_type": "nats",
        }
        fields |= changes
        return {name: value for name, value in fields.items() if value}

    def share_details(self) -> None:
        """Have the data plane tell services, where an import shares it, who the client is."""
        info = self.client_info(acc="", name_tag=self.grant.name_tag)
        texts = {name: f'"{name}":'.encode() + marshal(value) for name, value in info.items()}
        head = b"".join(text + b"," for name, text in texts.items() if name in _HEAD)
        mid = b"".join(b"," + text for name, text in texts.items() if name in _MID)
        tail = b"".join(b"," + text for name, text in texts.items() if name not in _HEAD + _MID)
        if self.client:
            self.client.set_details(head, mid, tail)
