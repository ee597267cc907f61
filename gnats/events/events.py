"""The events of the system account (events.go): clients connect, disconnect or are refused; statistics.

An event without a subscriber is not made.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from gnats.accounts.account import Account
from gnats.accounts.internal_client import InternalClient
from gnats.clock import Timer, call_later, monotonic, time_ns
from gnats.connection.closed_state import ClosedState
from gnats.go.json import marshal
from gnats.go.text import rfc3339, text_bytes
from gnats.nkeys.identity import NuidSource
from gnats.version import NATS_VERSION, feature_flags

if TYPE_CHECKING:
    from gnats.accounts.accounts import Accounts
    from gnats.accounts.internal_clients import InternalClients
    from gnats.client.session import Session
    from gnats.nkeys.identity import Identity
    from gnats.options.options import Options
    from gnats.runtime.steps import Steps

CONNECT_EVENT = "io.nats.server.advisory.v1.client_connect"
DISCONNECT_EVENT = "io.nats.server.advisory.v1.client_disconnect"
ACCOUNT_CONNECTIONS = "io.nats.server.advisory.v1.account_connections"
AUTH_ERROR_IN_ACCOUNT = "$SYS.ACCOUNT.CLIENT.AUTH.ERR"

CONNS_INTERVAL = 30.0
STATSZ_INTERVAL = 10.0
STATSZ_FIRST = 0.25
"""Seconds to the first STATSZ. The interval then doubles up to STATSZ_INTERVAL."""
STATSZ_RATE_LIMIT = 1.0
_PACKED_AT_ONCE = 1 << 16
JETSTREAM_ENABLED = 1
JETSTREAM_FLAGS = JETSTREAM_ENABLED | 2 | 4
"""Server flags: JetStream, binary stream snapshots, Raft traffic in the accounts themselves."""


class Login(Protocol):
    """What a server that has connected says in its CONNECT."""

    @property
    def user(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def lang(self) -> str: ...


class Counting(Protocol):
    """The data plane's side of a connection."""

    def snapshot(self) -> dict[str, int]: ...


class RefusedLink(Protocol):
    """A connection to another server; `start` is in ns since 1970."""

    @property
    def cid(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def start(self) -> int: ...
    @property
    def connect(self) -> Login: ...
    @property
    def session(self) -> Counting | None: ...


class JetStream(Protocol):
    """JetStream, while it runs."""

    @property
    def domain(self) -> str: ...


class Events:
    """Publishes events, from the server's start to its shutdown. Used from the loop's thread.

    `client` is the system account's; `clients` has those of other accounts. `options` returns the server's
    current options, `jetstream` its JetStream, None while that does not run, and `stats` its statistics
    (ServerStats).
    """

    def __init__(
        self,
        identity: "Identity",
        accounts: "Accounts",
        client: InternalClient,
        clients: "InternalClients",
        *,
        options: "Callable[[], Options]",
        jetstream: Callable[[], JetStream | None],
        stats: Callable[[], dict[str, object]],
    ) -> None:
        self._identity = identity
        self._options = options
        self._jetstream = jetstream
        self._accounts = accounts
        self._client = client
        self._clients = clients
        self._stats = stats
        self._ids = NuidSource()
        self._seq = 0
        self._conns_timers: dict[str, Timer] = {}
        self._statsz_after = STATSZ_FIRST
        self._loop = asyncio.get_running_loop()
        self._statsz_timer = call_later(STATSZ_FIRST, self._heartbeat)
        self._last_statsz = -STATSZ_RATE_LIMIT

    def close(self) -> None:
        """Publish that the server shuts down, and stop."""
        self._publish_info("SHUTDOWN")
        self._statsz_timer.cancel()
        for timer in self._conns_timers.values():
            timer.cancel()

    @property
    def server_name(self) -> str:
        return self._identity.name

    @property
    def server_id(self) -> str:
        return self._identity.id

    # -- envelopes -------------------------------------------------------------------------------------------

    def server_info(self) -> dict[str, object]:
        """Describe the server for one event or answer, with the next sequence number (ServerInfo)."""
        identity, opts = self._identity, self._options()
        self._seq += 1
        info: dict[str, object] = {
            "name": identity.name,
            "host": opts.host,
            "id": identity.id,
        }
        if opts.cluster.name:
            info["cluster"] = opts.cluster.name
        js = self._jetstream()
        if js and js.domain:
            info["domain"] = js.domain
        info["ver"] = NATS_VERSION
        if opts.server_tags:
            info["tags"] = list(opts.server_tags)
        if opts.server_metadata:
            info["metadata"] = opts.server_metadata
        info |= {"feature_flags": feature_flags(opts.feature_flags), "jetstream": js is not None}
        info["flags"] = JETSTREAM_FLAGS if js else 0
        info |= {"seq": self._seq, "time": rfc3339(time_ns())}
        return info

    def respond(self, reply: bytes, message: object, header: bytes | None = None) -> None:
        """Answer a request in the system account."""
        self._client.publish(reply, marshal(message), reply=b"", header=header)

    def publish_in(
        self, account: Account, subject: bytes, message: object, accept_encoding: bytes = b""
    ) -> None:
        """Publish in any account, in an encoding that `accept_encoding` names and encode() knows."""
        self.publish_encoded_in(account, subject, *encode(marshal(message), accept_encoding))

    def publish_encoded_in(
        self, account: Account, subject: bytes, header: bytes | None, payload: bytes
    ) -> None:
        """Publish a result of encode() in any account."""
        system = account is self._accounts.system_account
        client = self._client if system else self._clients.of(account)
        client.publish(subject, payload, reply=b"", header=header)

    def _event(self, kind: str, now: int) -> dict[str, object]:
        return {
            "type": kind,
            "id": self._ids.next(),
            "timestamp": rfc3339(now),
            "server": self.server_info(),
        }

    def has_interest(self, subject: str) -> bool:
        """Whether somebody is subscribed to a subject in the system account.

        Nobody is to one with a blank, which an account's name may have: no protocol can express it.
        """
        system = self._accounts.system_account
        valid = subject.split() == [subject]
        return valid and system is not None and system.sublist.interested(text_bytes(subject))

    def _publish_info(self, what: str) -> None:
        subject = f"$SYS.SERVER.{self._identity.id}.{what}"
        if self.has_interest(subject):
            self._client.publish(text_bytes(subject), marshal(self.server_info()), reply=b"")

    def lame_duck(self) -> None:
        """Publish that the server has entered lame duck mode."""
        self._publish_info("LAMEDUCK")

    # -- clients ---------------------------------------------------------------------------------------------

    def connected(self, session: "Session") -> None:
        """Publish that a client has connected."""
        subject = f"$SYS.ACCOUNT.{session.account.name}.CONNECT"
        if self.has_interest(subject):
            event = self._event(CONNECT_EVENT, time_ns())
            event["client"] = session.client_info(name_tag=session.account.name_tag)
            self._client.publish(text_bytes(subject), marshal(event), reply=b"")

    def disconnected(self, session: "Session") -> None:
        """Publish that a client's connection was closed."""
        subject = f"$SYS.ACCOUNT.{session.account.name}.DISCONNECT"
        if self.has_interest(subject):
            event = self._closing(session, session.stop, session.reason or ClosedState.CLIENT_CLOSED)
            self._client.publish(text_bytes(subject), marshal(event), reply=b"")

    def auth_error(self, session: "Session", reason: ClosedState) -> None:
        """Publish in the system account that a client was refused."""
        subject = f"$SYS.SERVER.{self._identity.id}.CLIENT.AUTH.ERR"
        if self.has_interest(subject):
            event = self._closing(session, time_ns(), reason)
            self._client.publish(text_bytes(subject), marshal(event), reply=b"")

    def link_refused(self, link: RefusedLink, kind: str) -> None:
        """Publish that a connection to another server, a `kind`, was refused for its credentials."""
        subject = f"$SYS.SERVER.{self._identity.id}.CLIENT.AUTH.ERR"
        if not self.has_interest(subject):
            return
        now = time_ns()
        event = self._event(DISCONNECT_EVENT, now)
        connect = link.connect
        client = {"start": rfc3339(link.start), "host": link.host, "id": link.cid, "acc": "N/A"}
        client |= {"user": connect.user, "name": connect.name, "lang": connect.lang}
        client |= {"stop": rfc3339(now), "kind": kind}
        event["client"] = {name: value for name, value in client.items() if value}
        counts = link.session.snapshot() if link.session else {}
        event["sent"] = {"msgs": counts.get("in_msgs", 0), "bytes": counts.get("in_bytes", 0)}
        event["received"] = {"msgs": counts.get("out_msgs", 0), "bytes": counts.get("out_bytes", 0)}
        event["reason"] = str(ClosedState.AUTHENTICATION_VIOLATION)
        self._client.publish(text_bytes(subject), marshal(event), reply=b"")

    def account_auth_error(self, session: "Session", account: Account, reason: str) -> None:
        """Publish in an account that one of its clients was refused."""
        subject = AUTH_ERROR_IN_ACCOUNT.encode()
        if account.sublist.interested(subject):
            event = self._closing(session, time_ns(), reason, acc=account.name)
            self.publish_in(account, subject, event)

    def _closing(
        self, session: "Session", now: int, reason: ClosedState | str, **changes: object
    ) -> dict[str, object]:
        event = self._event(DISCONNECT_EVENT, now)
        counts = session.snapshot()
        event["client"] = session.client_info(
            rtt=counts["rtt"] // 1000 * 1000,
            stop=rfc3339(now),
            name_tag=session.account.name_tag,
            **changes,
        )
        event["sent"] = {"msgs": counts["in_msgs"], "bytes": counts["in_bytes"]}
        event["received"] = {"msgs": counts["out_msgs"], "bytes": counts["out_bytes"]}
        event["reason"] = str(reason)
        return event

    # -- accounts --------------------------------------------------------------------------------------------

    def conns_update(self, account: Account) -> None:
        """Publish an account's number of connections, now and every CONNS_INTERVAL while it has any."""
        if account is self._accounts.global_account:
            return
        if timer := self._conns_timers.pop(account.name, None):
            timer.cancel()
        if account.clients or account.leafs:
            self._conns_timers[account.name] = call_later(CONNS_INTERVAL, self.conns_update, account)
        old, new = f"$SYS.SERVER.ACCOUNT.{account.name}.CONNS", f"$SYS.ACCOUNT.{account.name}.SERVER.CONNS"
        self.send_conns(account, *filter(self.has_interest, (old, new)))

    def send_conns(self, account: Account, *subjects: str) -> None:
        """Publish an account's number of connections to each of the subjects."""
        if subjects:
            event = self._event(ACCOUNT_CONNECTIONS, time_ns()) | account.statz()
            for number, subject in enumerate(subjects):
                if number:
                    event["server"] = self.server_info()
                self.respond(text_bytes(subject), event)

    def leafnode_connected(self, name: str) -> None:
        """Tell other clusters that an account has a leaf node (sendLeafNodeConnectMsg)."""
        subject = f"$SYS.ACCOUNT.{name}.LEAFNODE.CONNECT"
        if self.has_interest(subject):
            self.respond(text_bytes(subject), {"server": self.server_info(), "acc": name})

    # -- the server ------------------------------------------------------------------------------------------

    def _heartbeat(self) -> None:
        self._statsz_after = min(self._statsz_after * 2, STATSZ_INTERVAL)
        self._statsz_timer = call_later(self._statsz_after, self._heartbeat)
        self.statsz_update()

    def statsz_update(self, *, now: bool = False) -> None:
        """Publish the server's statistics; unless `now`, at most once in STATSZ_RATE_LIMIT seconds."""
        time_now = monotonic()
        limit = min(STATSZ_RATE_LIMIT, self._statsz_after)
        wait = 0.0 if now else self._last_statsz + limit - time_now
        if wait > 0:
            self._statsz_timer.cancel()
            self._statsz_timer = call_later(wait, self._heartbeat)
            return
        self._last_statsz = time_now
        subject = f"$SYS.SERVER.{self._identity.id}.STATSZ"
        if self.has_interest(subject):
            self.respond(text_bytes(subject), self.statsz())

    def statsz(self) -> dict[str, object]:
        """Return the server's statistics (ServerStatsMsg)."""
        return {"server": self.server_info(), "statsz": self._stats()}


def encode(payload: bytes, accept_encoding: bytes) -> tuple[bytes | None, bytes]:
    """Return (header, payload), compressed if the accepted encodings include gzip."""
    if not accept_encoding.strip():
        return None, payload
    if b"gzip" in accept_encoding.lower():
        import gzip

        return b"NATS/1.0\r\nContent-Encoding: gzip\r\n\r\n", gzip.compress(payload, mtime=0)
    return b"NATS/1.0\r\nContent-Encoding: identity\r\n\r\n", payload


def encode_steps(payload: bytes, accept_encoding: bytes) -> "Steps[tuple[bytes | None, bytes]]":
    """Encode as encode(), in steps, so that other work gets its turn."""
    if b"gzip" not in accept_encoding.lower():
        return encode(payload, accept_encoding)
    import zlib

    packer = zlib.compressobj(zlib.Z_BEST_COMPRESSION, wbits=16 + zlib.MAX_WBITS)  # as gzip
    parts = []
    for start in range(0, len(payload), _PACKED_AT_ONCE):
        parts.append(packer.compress(payload[start : start + _PACKED_AT_ONCE]))
        yield
    return b"NATS/1.0\r\nContent-Encoding: gzip\r\n\r\n", b"".join(parts) + packer.flush()
