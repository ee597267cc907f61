"""The events of the system account (events.go): clients that come, go or are refused, and figures.

Nothing is written down for an event that nobody listens to.
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
    from gnats.options.options import Options
    from gnats.runtime.steps import Steps

CONNECT_EVENT = "io.nats.server.advisory.v1.client_connect"
DISCONNECT_EVENT = "io.nats.server.advisory.v1.client_disconnect"
ACCOUNT_CONNECTIONS = "io.nats.server.advisory.v1.account_connections"
AUTH_ERROR_IN_ACCOUNT = "$SYS.ACCOUNT.CLIENT.AUTH.ERR"

CONNS_INTERVAL = 30.0
STATSZ_INTERVAL = 10.0
STATSZ_FIRST = 0.25
"""Seconds; each time until the next STATSZ doubles up to STATSZ_INTERVAL."""
STATSZ_RATE_LIMIT = 1.0
_PACKED_AT_ONCE = 1 << 16
JETSTREAM_FLAGS = 1 | 2 | 4
"""JetStream, binary stream snapshots, accounts that carry their own Raft traffic."""


class JetStream(Protocol):
    """JetStream, while it runs."""

    @property
    def domain(self) -> str: ...


class Host(Protocol):
    """The server as events name it."""

    @property
    def name(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def opts(self) -> "Options": ...
    @property
    def jetstream(self) -> JetStream | None: ...


class Events:
    """Publishes what happens; made with the server's start, closed with its end.

    `client` is one of the system account, `clients` gives those of other accounts; `stats` makes the server's
    figures (ServerStats).
    """

    def __init__(
        self,
        server: Host,
        accounts: "Accounts",
        client: InternalClient,
        clients: "InternalClients",
        stats: Callable[[], dict[str, object]],
    ) -> None:
        self._server = server
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
        """Say that the server goes, and stop."""
        self._publish_info("SHUTDOWN")
        self._statsz_timer.cancel()
        for timer in self._conns_timers.values():
            timer.cancel()

    @property
    def server_name(self) -> str:
        return self._server.name

    @property
    def server_id(self) -> str:
        return self._server.id

    # -- envelopes -------------------------------------------------------------------------------------------

    def server_info(self) -> dict[str, object]:
        """The server as each event and answer names it; counts them (ServerInfo)."""
        server, opts = self._server, self._server.opts
        self._seq += 1
        info: dict[str, object] = {
            "name": server.name,
            "host": opts.host,
            "id": server.id,
        }
        js = server.jetstream
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
        """Publish in any account, compressed if that is asked for in a way known here."""
        header, payload = encode(marshal(message), accept_encoding)
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

    def _interest(self, subject: str) -> bool:
        system = self._accounts.system_account
        return system is not None and system.sublist.interested(text_bytes(subject))

    def _publish_info(self, what: str) -> None:
        subject = f"$SYS.SERVER.{self._server.id}.{what}"
        if self._interest(subject):
            self._client.publish(text_bytes(subject), marshal(self.server_info()), reply=b"")

    def lame_duck(self) -> None:
        """The server has entered lame duck mode."""
        self._publish_info("LAMEDUCK")

    # -- clients ---------------------------------------------------------------------------------------------

    def connected(self, session: "Session") -> None:
        """A client has been let in."""
        subject = f"$SYS.ACCOUNT.{session.account.name}.CONNECT"
        if self._interest(subject):
            event = self._event(CONNECT_EVENT, time_ns())
            event["client"] = session.client_info(name_tag=session.account.name_tag)
            self._client.publish(text_bytes(subject), marshal(event), reply=b"")

    def disconnected(self, session: "Session") -> None:
        """A client's connection has been closed."""
        subject = f"$SYS.ACCOUNT.{session.account.name}.DISCONNECT"
        if self._interest(subject):
            event = self._closing(session, session.stop, session.reason or ClosedState.CLIENT_CLOSED)
            self._client.publish(text_bytes(subject), marshal(event), reply=b"")

    def auth_error(self, session: "Session", reason: ClosedState) -> None:
        """A client has been refused."""
        subject = f"$SYS.SERVER.{self._server.id}.CLIENT.AUTH.ERR"
        if self._interest(subject):
            event = self._closing(session, time_ns(), reason)
            self._client.publish(text_bytes(subject), marshal(event), reply=b"")

    def account_auth_error(self, session: "Session", account: Account, reason: str) -> None:
        """A client that belongs to an account has been refused: its owners are told in it."""
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
        """The connections of an account have changed; repeated from time to time while there are any."""
        if account is self._accounts.global_account:
            return
        if timer := self._conns_timers.pop(account.name, None):
            timer.cancel()
        if account.clients:
            self._conns_timers[account.name] = call_later(CONNS_INTERVAL, self.conns_update, account)
        old, new = f"$SYS.SERVER.ACCOUNT.{account.name}.CONNS", f"$SYS.ACCOUNT.{account.name}.SERVER.CONNS"
        self.send_conns(account, *filter(self._interest, (old, new)))

    def send_conns(self, account: Account, *subjects: str) -> None:
        """Say how many connections an account has."""
        if subjects:
            event = self._event(ACCOUNT_CONNECTIONS, time_ns()) | account.statz()
            for number, subject in enumerate(subjects):
                if number:
                    event["server"] = self.server_info()
                self.respond(text_bytes(subject), event)

    # -- the server ------------------------------------------------------------------------------------------

    def _heartbeat(self) -> None:
        self._statsz_after = min(self._statsz_after * 2, STATSZ_INTERVAL)
        self._statsz_timer = call_later(self._statsz_after, self._heartbeat)
        self.statsz_update()

    def statsz_update(self, *, now: bool = False) -> None:
        """Publish the server's figures; if that was just done, do it a bit later unless it is to be `now`."""
        time_now = monotonic()
        limit = min(STATSZ_RATE_LIMIT, self._statsz_after)
        wait = 0.0 if now else self._last_statsz + limit - time_now
        if wait > 0:
            self._statsz_timer.cancel()
            self._statsz_timer = call_later(wait, self._heartbeat)
            return
        self._last_statsz = time_now
        subject = f"$SYS.SERVER.{self._server.id}.STATSZ"
        if self._interest(subject):
            self.respond(text_bytes(subject), self.statsz())

    def statsz(self) -> dict[str, object]:
        """The server's figures (ServerStatsMsg)."""
        return {"server": self.server_info(), "statsz": self._stats()}


def encode(payload: bytes, accept_encoding: bytes) -> tuple[bytes | None, bytes]:
    """A header and a payload, compressed if one of the encodings asked for is known here."""
    if not accept_encoding.strip():
        return None, payload
    if b"gzip" in accept_encoding.lower():
        import gzip

        return b"NATS/1.0\r\nContent-Encoding: gzip\r\n\r\n", gzip.compress(payload, mtime=0)
    return b"NATS/1.0\r\nContent-Encoding: identity\r\n\r\n", payload


def encode_steps(payload: bytes, accept_encoding: bytes) -> "Steps[tuple[bytes | None, bytes]]":
    """encode() in steps."""
    if b"gzip" not in accept_encoding.lower():
        return encode(payload, accept_encoding)
    import zlib

    packer = zlib.compressobj(zlib.Z_BEST_COMPRESSION, wbits=16 + zlib.MAX_WBITS)  # as gzip
    parts = []
    for start in range(0, len(payload), _PACKED_AT_ONCE):
        parts.append(packer.compress(payload[start : start + _PACKED_AT_ONCE]))
        yield
    return b"NATS/1.0\r\nContent-Encoding: gzip\r\n\r\n", b"".join(parts) + packer.flush()
