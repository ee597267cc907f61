"""The options of a cluster (ClusterOpts in opts.go): the cluster block, and compression between servers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gnats.errors import OptionError
from gnats.go.hostport import RANDOM_PORT, parse_host_port
from gnats.go.text import duration_of, quote
from gnats.go.url import URL
from gnats.options.values.auth import SubjectPermission, check_permission_subjects
from gnats.options.values.tls import TLSOptions, default_auth_timeout

LOOPBACK = "127.0.0.1"
POOL_SIZE = 3
MAX_PING_INTERVAL = 30.0
"""Seconds between PINGs on a route, at most (routeMaxPingInterval)."""
NO_CLUSTER = "_"
"""Stands on routes for the cluster of leaf nodes that are in none; no cluster can be called so."""
RESERVED = "cluster name is reserved"
LONGEST_NAME = 255
"""Bytes of a cluster's name: it is part of lines that have a limit."""

NOT_SUPPORTED, OFF, ACCEPT, S2_AUTO = "not supported", "off", "accept", "s2_auto"
S2_UNCOMPRESSED, S2_FAST, S2_BETTER, S2_BEST = "s2_uncompressed", "s2_fast", "s2_better", "s2_best"
_MODES = {
    "not supported": NOT_SUPPORTED, "not_supported": NOT_SUPPORTED,
    "off": OFF, "disabled": OFF, "false": OFF,
    "accept": ACCEPT,
    "auto": S2_AUTO, "s2_auto": S2_AUTO,
    "fast": S2_FAST, "s2_fast": S2_FAST,
    "better": S2_BETTER, "s2_better": S2_BETTER,
    "best": S2_BEST, "s2_best": S2_BEST,
}  # fmt: skip
"""Modes of compression by the words that name them, in lower case."""
_ON = ("on", "enabled", "true")
_RTT_THRESHOLDS = (0.010, 0.050, 0.100)
_MOST_THRESHOLDS = 4


@dataclass(frozen=True, slots=True)
class Compression:
    """Compression between servers: a mode, and for S2_AUTO the round trip times (s) of its levels."""

    mode: str = ""
    rtt_thresholds: tuple[float, ...] = ()

    def normalized(self, on: str) -> Compression:
        """Return it with the mode's own name; `on` is the mode of words like "on". Raises OptionError.

        As validateAndNormalizeCompressionOption in server.go does.
        """
        word = self.mode.lower()
        mode = on if word in _ON else _MODES.get(word, "")
        if not mode:
            raise OptionError(f"unsupported compression mode {quote(self.mode)}")
        return Compression(mode, self._thresholds() if mode == S2_AUTO else ())

    def _thresholds(self) -> tuple[float, ...]:
        found: list[float] = []
        for threshold in self.rtt_thresholds:
            if threshold > 0 and threshold < max(found, default=0.0):
                shown = " ".join(map(duration_of, self.rtt_thresholds))
                raise OptionError(f"RTT threshold values [{shown}] should be in ascending order")
            found.append(max(threshold, 0.0))
        while found and not found[-1]:
            found.pop()  # a 0 skips a level, and behind the last one there is none to skip
        if len(found) > _MOST_THRESHOLDS:
            raise OptionError(
                f"compression mode {quote(self.mode)} should have no more than {_MOST_THRESHOLDS} RTT"
                f" thresholds: [{' '.join(map(duration_of, self.rtt_thresholds))}]"
            )
        if self.rtt_thresholds and not found:
            raise OptionError(f"compression mode {quote(self.mode)} requires at least one RTT threshold")
        return tuple(found) or _RTT_THRESHOLDS


@dataclass(frozen=True, slots=True)
class RoutePermissions:
    """Subjects whose interest crosses routes; None: all."""

    imports: SubjectPermission | None = None
    """What other servers are told that this one is interested in."""
    exports: SubjectPermission | None = None
    """What other servers may be interested in."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The cluster block of a server. Durations are seconds; 0 and "" mean the default."""

    name: str = ""
    """"": the server makes one up, or takes over one from another server, if it has a port."""
    generated: bool = False
    """The server has made the name up: one that is configured elsewhere takes its place."""
    hidden: bool = False
    """There is no cluster: a server with remotes of leaf nodes has its own name as the cluster's. Neither
    the log nor monitoring shows it."""
    host: str = ""
    port: int = 0
    """0: no routes; -1: a free port."""
    username: str = ""
    password: str = field(default="", repr=False)
    auth_timeout: float = 0.0
    permissions: RoutePermissions | None = None
    routes: tuple[URL, ...] = ()
    """The servers to dial."""
    tls: TLSOptions | None = None
    advertise: str = ""
    no_advertise: bool = False
    """Tell clients no URLs of this server, nor of the others."""
    connect_retries: int = 0
    connect_backoff: bool = False
    pool_size: int = 0
    """Connections to each server; -1: one, as servers before 2.10 have."""
    accounts: tuple[str, ...] = ()
    """Accounts with a connection of their own."""
    compression: Compression = Compression()
    ping_interval: float = 0.0
    ping_max: int = 0
    write_deadline: float = 0.0
    write_timeout: str = ""

    def baseline(self, system_account: str) -> ClusterOptions:
        """Return a checked copy with defaults; the system account ("": none) gets routes of its own.

        Raises OptionError.
        """
        cluster = self
        if self.port:
            accounts = self.accounts
            pool_size = self.pool_size or POOL_SIZE
            if pool_size > 0 and system_account and system_account not in accounts:
                accounts = (*accounts, system_account)
            cluster = replace(
                self,
                host=self.host or LOOPBACK,
                auth_timeout=self.auth_timeout or default_auth_timeout(self.tls),
                pool_size=pool_size,
                accounts=accounts,
                compression=self.compression if self.compression.mode else Compression(ACCEPT),
            )
        if cluster.compression.mode:
            cluster = replace(cluster, compression=cluster.compression.normalized(S2_FAST))
        cluster.validate()
        return cluster

    def validate(self) -> None:
        """Check the options as nats-server does. Raises OptionError."""
        if fault := name_fault(self.name):
            raise OptionError(fault)
        if not RANDOM_PORT <= self.port <= 65535:
            raise OptionError(f"cluster port {self.port} is not a port: -1 (a free one) to 65535")
        check_route_permissions(self.permissions)
        if self.accounts and self.pool_size < 0:
            raise OptionError("pool_size cannot be negative if pinned accounts are specified")
        for account in self.accounts:
            if self.accounts.count(account) > 1:
                shown = " ".join(map(quote, self.accounts))
                raise OptionError(
                    f"found duplicate account name {quote(account)} in pinned accounts list [{shown}]"
                )
        if self.advertise:
            parse_host_port(self.advertise, self.port)


def name_fault(name: str) -> str:
    """Return why a cluster cannot have a name; empty: it can."""
    if " " in name:
        return "cluster name cannot contain spaces"
    if any(letter < " " or letter == "\x7f" for letter in name):  # servers write it into their lines
        return "cluster name cannot contain control characters"
    if len(name.encode("utf-8", "replace")) > LONGEST_NAME:
        return f"cluster name cannot be longer than {LONGEST_NAME} bytes"
    return RESERVED if name == NO_CLUSTER else ""


def check_route_permissions(permissions: RoutePermissions | None) -> None:
    """Check that all are subjects (checkClusterPermissionSubjects). Raises OptionError."""
    if permissions is None:
        return
    for what, half in ("import", permissions.imports), ("export", permissions.exports):
        for kind, subjects in ("allow", half and half.allow), ("deny", half and half.deny):
            try:
                check_permission_subjects(subjects or (), queues=False)
            except ValueError as exc:
                raise OptionError(f"cluster {what} {kind}: {exc}") from None
