"""The other servers, as their events in the system account show them (events.go).

A server is known from the first of its events on, until it says that it goes or is silent for long. Events
also tell how many clients an account has there: an account's limit counts the clients of all servers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gnats.accounts.internal_client import InternalClient, Message
from gnats.clock import call_later, monotonic
from gnats.events.events import CONNS_INTERVAL, Events
from gnats.go.json import JSONError, Struct, marshal, unmarshal
from gnats.go.text import quote, text_bytes

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.accounts.accounts import Accounts
    from gnats.log.logger import Logger

CHECK_INTERVAL = 3 * CONNS_INTERVAL
"""Seconds between two checks for silent servers."""
GONE_AFTER = 5 * CONNS_INTERVAL
"""Seconds without an event after which a check takes a server for gone."""

_ID_AT = 2  # index of the server's token in $SYS.SERVER.<id>.<what>
_SERVER: Struct = {
    "id": "string",
    "seq": "uint64",
    "name": "string",
    "cluster": "string",
    "domain": "string",
    "ver": "string",
    "tags": "strings",
    "jetstream": "bool",
    "flags": "uint64",
}
_JETSTREAM: Struct = {
    "config": {"max_memory": "int64", "max_storage": "int64"},
    "stats": {
        "memory": "uint64",
        "storage": "uint64",
        "reserved_memory": "uint64",
        "reserved_storage": "uint64",
        "ha_assets": "int",
    },
}
_STATSZ: Struct = {"server": _SERVER, "statsz": {"jetstream": _JETSTREAM}}
_CONNS: Struct = {"server": _SERVER, "acc": "string", "conns": "int", "leafnodes": "int"}


@dataclass(slots=True)
class _Known:
    """A server that is known. `seq` is the number of its last event, `heard` the time of it."""

    seq: int
    heard: float
    event: "Event"
    """Its last statistics; before them, its first event."""


Event = tuple[Mapping[str, Any], Mapping[str, Any] | None, bool]
"""The member "server" of an event, "jetstream" of statistics, and whether the event has statistics."""


class Watcher(Protocol):
    """Keeps what the events say of their servers, as gnats.jetstream.cluster.nodes does."""

    def heard(self, server: Mapping[str, Any], jetstream: Mapping[str, Any] | None, statistics: bool) -> None:
        """Note an event, by the members of Event."""

    def gone(self, server_id: str) -> None:
        """Note that a server has gone."""


class Servers:
    """What a server knows of the others, from its start to its shutdown. Used from the loop's thread.

    `client` is the system account's. Only what another server sends is an event of it: a client can publish
    anything. `exceeded` is called for an account that has
    more clients in the cluster than it may.
    """

    def __init__(
        self,
        client: InternalClient,
        events: Events,
        accounts: "Accounts",
        log: "Logger",
        *,
        exceeded: "Callable[[Account], object]",
    ) -> None:
        self._client = client
        self._events = events
        self._accounts = accounts
        self._log = log
        self._exceeded = exceeded
        self._known: dict[str, _Known] = {}
        self._watcher: Watcher | None = None
        self._inbox = f"$SYS._INBOX_.{events.server_id}".encode()
        self._on(b"$SYS.SERVER.*.STATSZ", self._on_statsz)
        self._on(b"$SYS.SERVER.*.SHUTDOWN", self._on_shutdown)
        self._on(b"$SYS.SERVER.*.LAMEDUCK", self._on_shutdown)
        self._on(b"$SYS.SERVER.ACCOUNT.*.CONNS", self._on_conns)
        self._on(self._inbox, self._on_conns)
        self._sweeper = call_later(CHECK_INTERVAL, self._check)

    def __len__(self) -> int:
        """The number of other servers that are known (TrackedRemoteServers)."""
        return len(self._known)

    def close(self) -> None:
        """Stop looking for silent servers."""
        self._sweeper.cancel()

    def watch(self, watcher: Watcher) -> None:
        """Tell a watcher of the servers that are known, and of each event from now on."""
        self._watcher = watcher
        for known in self._known.values():
            watcher.heard(*known.event)

    def track(self, account: "Account") -> None:
        """Ask the other servers how many clients a new account has there (enableAccountTracking)."""
        subject = f"$SYS.REQ.ACCOUNT.{account.name}.CONNS"
        if self._events.has_interest(subject):
            request = {"server": self._events.server_info(), "acc": account.name}
            self._client.publish(text_bytes(subject), marshal(request), reply=self._inbox)

    def _on(self, subject: bytes, handle: Callable[[Message], None]) -> None:
        def heard(message: Message) -> None:
            if message.from_server:
                handle(message)

        self._client.subscribe(subject, heard)

    # -- events ----------------------------------------------------------------------------------------------

    def _on_statsz(self, message: Message) -> None:
        """Note that a server lives (remoteServerUpdate)."""
        if not message.payload:
            self._log.debug("Received empty server info for remote server update")
            return
        try:
            event: dict[str, Any] = unmarshal(message.payload, _STATSZ, "ServerStatsMsg")
        except JSONError:
            self._log.debug("Received bad server info for remote server update")
            return
        self._heard(event.get("server", {}), event.get("statsz", {}).get("jetstream"), statistics=True)

    def _on_shutdown(self, message: Message) -> None:
        """Forget a server that goes (remoteServerShutdown)."""
        if not message.payload:
            subject = quote(message.subject)
            self._log.error(f"Remote server sent invalid (empty) shutdown message to {subject}")
            return
        try:
            unmarshal(message.payload, _SERVER, "ServerInfo")
        except JSONError:
            self._log.debug("Received bad server info for remote server shutdown")
            return
        self._forget(message.subject.split(b".")[_ID_AT].decode(errors="replace"))

    def _on_conns(self, message: Message) -> None:
        """Note how many clients an account has on another server (remoteConnsUpdate)."""
        if not message.payload:
            self._log.error("SYSTEM - No message body provided")
            return
        try:
            event: dict[str, Any] = unmarshal(message.payload, _CONNS, "AccountNumConns")
        except JSONError as exc:
            self._log.error(f"SYSTEM - Error unmarshalling account connection event message: {exc}")
            return
        account = self._accounts.get(event.get("acc", ""))
        if account is None:
            return
        server = event.get("server", {})
        name = server.get("id", "")
        if name == self._events.server_id:
            self._log.error("SYSTEM - Processing our own account connection event message: ignored")
            return
        account.set_clients_elsewhere(name, event.get("conns", 0), event.get("leafnodes", 0))
        self._heard(server)
        if account.over_maximum:
            self._exceeded(account)

    # -- servers ---------------------------------------------------------------------------------------------

    def _heard(
        self, server: dict[str, Any], jetstream: dict[str, Any] | None = None, *, statistics: bool = False
    ) -> None:
        """Note an event of a server, as the event describes it (updateRemoteServer).

        `jetstream` is that member of its statistics, if the event has these.
        """
        name, seq = server.get("id", ""), server.get("seq", 0)
        if not name or name == self._events.server_id:
            return
        known = self._known.get(name)
        if known and seq <= known.seq:
            self._log.error(f"Received out of order remote server update from: {quote(name)}")
            return
        if known is None or statistics:
            event: Event = server, jetstream, statistics
            if self._watcher:
                self._watcher.heard(*event)
        else:
            event = known.event
        self._known[name] = _Known(seq, monotonic(), event)
        if known is None:
            self._events.statsz_update()  # so that the new one knows this server as soon

    def _forget(self, name: str) -> None:
        """Forget a server and its clients (processRemoteServerShutdown)."""
        if self._known.pop(name, None):
            if self._watcher:
                self._watcher.gone(name)
            for account in self._accounts.values():
                account.set_clients_elsewhere(name, 0)

    def _check(self) -> None:
        """Forget the servers that were silent for too long (checkRemoteServers)."""
        self._sweeper = call_later(CHECK_INTERVAL, self._check)
        now = monotonic()
        for name in [name for name, known in self._known.items() if now - known.heard > GONE_AFTER]:
            self._log.debug(f"Detected orphan remote server: {quote(name)}")
            self._forget(name)
