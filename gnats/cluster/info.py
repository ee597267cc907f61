"""The INFO and CONNECT of routes: this server's own, and those of its peers."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields

from gnats.auth.authenticator import new_nonce
from gnats.cluster.compression import shown_mode
from gnats.cluster.name import ClusterName
from gnats.connection.connect_options import CONNECT_FIELDS
from gnats.connection.info import INFO_FIELDS
from gnats.go.hostport import parse_host_port
from gnats.go.json import Struct, marshal, unmarshal
from gnats.go.text import join_host_port
from gnats.go.url import URL
from gnats.nkeys.identity import Identity
from gnats.options.options import Options
from gnats.options.values.auth import SubjectPermission
from gnats.options.values.cluster import RoutePermissions
from gnats.version import NATS_VERSION, RUNTIME

ROUTE_PROTO = 3
"""The protocol between servers."""
TRACES_PROTO = 3
"""From this protocol on, a server knows traces of messages (MsgTraceProto)."""
GOSSIP_DEFAULT, GOSSIP_DISABLED, GOSSIP_OVERRIDE = range(3)
"""What a server does with the INFO of a server that it has connected to because of gossip: not forward it;
not forward it, even if it accepted the connection; forward it."""

_ALWAYS: dict[str, object] = {
    "server_id": "",
    "server_name": "",
    "version": "",
    "proto": 0,
    "go": "",
    "host": "",
    "port": 0,
    "headers": False,
    "max_payload": 0,
}
"""INFO's fields that are sent even when they are empty, as here."""
_CONNECT: dict[str, object] = {
    "echo": False,
    "verbose": False,
    "pedantic": False,
    "user": None,
    "pass": None,
    "tls_required": False,
    "headers": False,
    "name": "",
    "cluster": "",
}
"""CONNECT's first fields in nats-server's order; those with a value here are sent even when empty."""


def info_line(values: dict[str, object], end: bytes = b" \r\n") -> bytes:
    """Return an INFO line in nats-server's order of fields, without empty ones."""
    values = _ALWAYS | values
    present = {name: values[name] for name in INFO_FIELDS if values.get(name) or name in _ALWAYS}
    return b"INFO " + marshal(present) + end


def identity_fields(identity: Identity) -> dict[str, object]:
    """Return the members of INFO that say what this server is."""
    return {
        "server_id": identity.id,
        "server_name": identity.name,
        "version": NATS_VERSION,
        "proto": ROUTE_PROTO,
        "go": RUNTIME,
    }


def server_connect_line(values: dict[str, object]) -> bytes:
    """Return the CONNECT of a route or a gateway, without empty fields."""
    fields = {key: values.get(key) or empty for key, empty in _CONNECT.items()}
    fields |= {key: value for key, value in values.items() if value}
    present = {key: value for key, value in fields.items() if value is not None}
    return b"CONNECT " + marshal(present) + b"\r\n"


class OwnInfo:
    """Makes this server's INFO and CONNECT.

    `urls` returns the URLs of its client port, `leaf_url` and `gateway_url` its addresses for leaf nodes and
    for gateways.

    `port` is the port that it listens on for routes, set when it does.
    """

    def __init__(
        self,
        identity: Identity,
        options: Callable[[], Options],
        name: ClusterName,
        urls: Callable[[], tuple[str, ...]],
        leaf_url: Callable[[], str] = str,
        gateway_url: Callable[[], str] = str,
    ) -> None:
        self._identity = identity
        self._options = options
        self._name = name
        self._urls = urls
        self._leaf_url = leaf_url
        self._gateway_url = gateway_url
        self.port = 0

    def address(self) -> tuple[str, int]:
        """Return the host and the port that other servers are told."""
        cluster = self._options().cluster
        if cluster.advertise:
            return parse_host_port(cluster.advertise, self.port)
        return cluster.host, self.port

    def initial(
        self,
        *,
        account: str = "",
        index: int = 0,
        gossip_mode: int = GOSSIP_DEFAULT,
        compression: str = "",
    ) -> bytes:
        """Return the first INFO of a connection (generateRouteInitialInfoJSON).

        `account` is the one that the connection is for alone, `index` its place in a pool, `compression` what
        has come of the peer's INFO; "": that has not come yet.
        """
        mode = self._options().cluster.compression.mode
        return self.line(
            nonce=new_nonce(),
            compression=shown_mode(mode, compression or mode),
            route_account=account,
            route_pool_idx=index,
            gossip_mode=gossip_mode,
        )

    def line(self, **changes: object) -> bytes:
        """Return an INFO line of an established connection; `changes` adds fields, or replaces some."""
        opts, name = self._options(), self._name
        cluster = opts.cluster
        host, port = self.address()
        values: dict[str, object] = {
            **identity_fields(self._identity),
            "host": host,
            "port": port,
            "headers": not opts.no_header_support,
            "auth_required": bool(cluster.username),
            "tls_required": cluster.tls is not None,
            "tls_verify": cluster.tls is not None,
            "max_payload": opts.max_payload,
            "ip": f"nats-route://{join_host_port(host, port)}/" if cluster.advertise else "",
            "cluster": str(name),
            "cluster_dynamic": name.generated,
            "domain": opts.jetstream.domain,
            "connect_urls": () if cluster.no_advertise else self._urls(),
            **self.permissions(),
            "lnoc": True,
            "lnocu": True,
            "ln": True,
            "route_pool_size": max(cluster.pool_size, 0),
            "gateway_url": self._gateway_url(),
            "leafnode_urls": [url] if (url := self._leaf_url()) else (),
            "interest_digests": True,
            "group_passing": True,
        }
        return info_line(values | changes)

    def permissions(self) -> dict[str, object]:
        """Return the members `import` and `export`, those that are set."""
        permissions = self._options().cluster.permissions or RoutePermissions()
        halves = {"import": _permission(permissions.imports), "export": _permission(permissions.exports)}
        return {name: half for name, half in halves.items() if half is not None}

    def connect(self, url: URL) -> bytes:
        """Return the CONNECT for a server that this one has dialled (sendRouteConnect)."""
        name = self._name
        values: dict[str, object] = {
            "echo": True,
            "user": url.user,
            "pass": url.password or "",
            "tls_required": self._options().cluster.tls is not None,
            "headers": not self._options().no_header_support,
            "name": self._identity.id,
            "cluster": str(name),
            "cluster_dynamic": name.generated,
            "lnoc": True,
            "ln": True,
        }
        return server_connect_line(values)


def _permission(permission: SubjectPermission | None) -> dict[str, list[str]] | None:
    if permission is None:
        return None
    halves = {"allow": list(permission.allow or ()), "deny": list(permission.deny)}
    return {name: subjects for name, subjects in halves.items() if subjects}


@dataclass(slots=True, kw_only=True)
class PeerInfo:
    """A server's INFO: the peer's own, or that of another server that the peer tells of.

    `sent` has all known fields that the peer sent, `ip` is filled in when it was empty.
    """

    server_id: str = ""
    server_name: str = ""
    proto: int = 0
    host: str = ""
    port: int = 0
    headers: bool = False
    auth_required: bool = False
    ip: str = ""
    cluster: str = ""
    cluster_dynamic: bool = False
    connect_urls: list[str] = field(default_factory=list)
    ldm: bool = False
    compression: str = ""
    route_pool_size: int = 0
    route_pool_idx: int = 0
    route_account: str = ""
    route_acc_add_reqid: str = ""
    gossip_mode: int = 0
    gateway: str = ""
    gateway_urls: list[str] = field(default_factory=list)
    gateway_url: str = ""
    gateway_cmd: int = 0
    gateway_cmd_payload: str = ""
    gateway_iom: bool = False
    leafnode_urls: list[str] = field(default_factory=list)
    interest_digests: bool = False
    """Whether it compares digests of interest."""
    group_passing: bool = False
    """Whether it knows messages that are passed on to queue groups alone."""
    sent: dict[str, object] = field(default_factory=dict)

    @classmethod
    def read(cls, arg: bytes) -> "PeerInfo":
        """Read the argument of an INFO. Raises JSONError."""
        sent = unmarshal(arg, INFO_FIELDS, "Info")
        found = cls(sent=sent)
        for name in _KEPT & sent.keys():
            setattr(found, name, sent[name])
        return found

    @property
    def origins(self) -> int:
        """Whether the server knows the origins of what comes from leaf nodes: 0; 1, but for LS-; 2.

        3: it also knows the origin that stands for no cluster.
        """
        if not self.sent.get("lnoc"):
            return 0
        return 1 if not self.sent.get("lnocu") else 3 if self.sent.get("ln") else 2

    @property
    def kind_of_port(self) -> str:
        """What the port is for that it comes from, if not for routes; else empty."""
        if self.gateway:
            return "gateways"
        if not self.sent.get("client_id"):
            return ""
        return "leaf nodes" if self.leafnode_urls or self.sent.get("info_on_connect") else "clients"

    def forwarded(self, gossip_mode: int) -> bytes:
        """Return the INFO line that tells other servers of this one."""
        changes = {"ip": self.ip, "route_account": self.route_account, "nonce": ""}
        return info_line(self.sent | changes | {"gossip_mode": gossip_mode}, end=b"\r\n")


_KEPT = frozenset(each.name for each in fields(PeerInfo)) - {"sent"}

_ROUTE_CONNECT: Struct = {
    "name": "string",
    "cluster": "string",
    "cluster_dynamic": "bool",
    "lnoc": "bool",
    "lnocu": "bool",
    "ln": "bool",
    "gateway": "string",
    "headers": "bool",
    "echo": "bool",
    "verbose": "bool",
    "pedantic": "bool",
    "user": "string",
    "pass": "string",
    "tls_required": "bool",
}


@dataclass(slots=True, kw_only=True)
class PeerConnect:
    """The CONNECT of a route, in two parts, because its credentials are checked before the other fields."""

    user: str = ""
    password: str = field(default="", repr=False)
    lang: str = ""
    account: str = ""
    new_account: bool = False
    verbose: bool = False
    name: str = ""
    cluster: str = ""
    generated: bool = False
    gateway: str = ""

    @classmethod
    def read(cls, arg: bytes) -> "PeerConnect":
        """Read the fields that a client may send, too. Raises JSONError."""
        sent = unmarshal(arg, CONNECT_FIELDS, "ClientOpts")
        found = cls()
        for name in ("user", "lang", "account", "new_account", "verbose", "name"):
            setattr(found, name, sent.get(name, getattr(found, name)))
        found.password = str(sent.get("pass", ""))
        return found

    def read_cluster(self, arg: bytes) -> None:
        """Read the fields of servers. Raises JSONError."""
        sent = unmarshal(arg, _ROUTE_CONNECT, "connectInfo")
        self.cluster = str(sent.get("cluster", ""))
        self.gateway = str(sent.get("gateway", ""))
        self.generated = bool(sent.get("cluster_dynamic"))
