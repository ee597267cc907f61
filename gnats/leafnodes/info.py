"""The INFO and CONNECT of leaf nodes: this server's own, and those of its peers."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gnats.cluster.info import identity_fields, info_line
from gnats.cluster.told import ToldAddress
from gnats.connection.info import INFO_FIELDS
from gnats.go.json import Struct, marshal, unmarshal
from gnats.go.text import join_host_port
from gnats.options.values.auth import SubjectPermission
from gnats.version import JS_API_LEVEL

if TYPE_CHECKING:
    from gnats.leafnodes.leaf import Leaf
    from gnats.nkeys.identity import Identity
    from gnats.options.options import Options


class OwnInfo(ToldAddress):
    """Makes this server's INFO lines for leaf nodes."""

    def __init__(self, identity: "Identity", options: "Callable[[], Options]") -> None:
        super().__init__(lambda: options().leafnodes)
        self._identity = identity
        self._options = options

    def line(self, **changes: object) -> bytes:
        """Return an INFO line; `changes` adds fields. Of a server that does not listen, it has only these."""
        if not self.port:
            return info_line(changes)
        opts = self._options()
        host, port = self.address()
        tls = opts.leafnodes.tls
        values: dict[str, object] = {
            **identity_fields(self._identity),
            "host": host,
            "port": port,
            "headers": not opts.no_header_support,
            "auth_required": True,
            "tls_required": tls is not None,
            "tls_verify": tls is not None and (tls.verify or tls.verify_and_map),
            "max_payload": opts.max_payload,
            "jetstream": opts.jetstream.enabled,
            "ip": join_host_port(host, port),
            "cluster": opts.cluster.name,
            "domain": opts.jetstream.domain,
            "api_lvl": JS_API_LEVEL,
            "info_on_connect": True,
            "leafnode_urls": tuple(self.urls),
            "group_passing": True,
        }
        return info_line(values | changes)

    def initial(self, leaf: "Leaf", compression: str) -> bytes:
        """Return the INFO with a mode of compression: the first of an accepted connection, or the answer."""
        return self.line(client_id=leaf.cid, nonce=leaf.nonce, compression=compression)

    def answer(self, leaf: "Leaf", *, is_system: bool) -> bytes:
        """Return the INFO that answers a CONNECT (sendPermsAndAccountInfo)."""
        return self.line(
            **{"import": _permission(leaf.imports), "export": _permission(leaf.exports)},
            client_id=leaf.cid,
            connect_info=True,
            remote_account=leaf.account.name,
            acc_is_sys=is_system,
        )


def _permission(permission: SubjectPermission | None) -> dict[str, list[str]] | None:
    if permission is None:
        return None
    halves = {"allow": list(permission.allow or ()), "deny": list(permission.deny)}
    return {name: subjects for name, subjects in halves.items() if subjects}


@dataclass(slots=True, kw_only=True)
class PeerInfo:
    """An INFO of a peer."""

    server_id: str = ""
    server_name: str = ""
    proto: int = 0
    headers: bool = False
    tls_required: bool = False
    client_id: int = 0
    nonce: str = ""
    cluster: str = ""
    domain: str = ""
    compression: str = ""
    connect_info: bool = False
    remote_account: str = ""
    info_on_connect: bool = False
    connect_urls: list[str] = field(default_factory=list)
    leafnode_urls: list[str] | None = None
    group_passing: bool = False
    """Whether it knows messages that are passed on to queue groups alone."""
    gateway: str = ""
    imports: SubjectPermission | None = None
    exports: SubjectPermission | None = None

    @classmethod
    def read(cls, arg: bytes) -> "PeerInfo":
        """Read the argument of an INFO. Raises JSONError."""
        sent = unmarshal(arg, INFO_FIELDS, "Info")
        found = cls()
        for name in _KEPT & sent.keys():
            setattr(found, name, sent[name])
        found.imports = _read_permission(sent.get("import"))
        found.exports = _read_permission(sent.get("export"))
        return found

    @property
    def of_leaf_port(self) -> bool:
        """Whether it comes from a port for leaf nodes: those for clients and routes send something else.

        Either of two fields will do: with `no_advertise`, a server sends no URLs.
        """
        return self.client_id != 0 and (self.info_on_connect or self.leafnode_urls is not None)

    @property
    def kind_of_port(self) -> str:
        """What the port is for that it comes from, if not for leaf nodes."""
        return "gateways" if self.gateway else "clients" if self.client_id else "routes"


_KEPT = frozenset(PeerInfo.__slots__) - {"imports", "exports"}


def _read_permission(sent: object) -> SubjectPermission | None:
    if not isinstance(sent, dict):
        return None
    allow = sent.get("allow")
    return SubjectPermission(None if allow is None else tuple(allow), tuple(sent.get("deny") or ()))


def denying(permission: SubjectPermission | None, subjects: Iterable[str]) -> SubjectPermission | None:
    """Return a permission that denies these subjects, too; None allows everything."""
    more = tuple(subjects)
    if not more:
        return permission
    before = permission or SubjectPermission()
    return SubjectPermission(before.allow, before.deny + more)


_LEAF_CONNECT: Struct = {
    "version": "string",
    "nkey": "string",
    "jwt": "string",
    "sig": "string",
    "user": "string",
    "pass": "string",
    "auth_token": "string",
    "server_id": "string",
    "domain": "string",
    "name": "string",
    "is_hub": "bool",
    "cluster": "string",
    "headers": "bool",
    "jetstream": "bool",
    "deny_pub": "strings",
    "isolate": "bool",
    "compress_mode": "string",
    "gateway": "string",
    "remote_account": "string",
    "protocol": "int",
    "group_passing": "bool",
}


@dataclass(slots=True, kw_only=True)
class PeerConnect:
    """The fields of a leaf node's CONNECT; those that a client sends, too, are ClientOptions."""

    version: str = ""
    server_id: str = ""
    domain: str = ""
    name: str = ""
    is_hub: bool = False
    cluster: str = ""
    headers: bool = False
    deny_pub: list[str] = field(default_factory=list)
    isolate: bool = False
    compress_mode: str = ""
    gateway: str = ""
    remote_account: str = ""
    protocol: int = 0
    group_passing: bool = False

    @classmethod
    def read(cls, arg: bytes) -> "PeerConnect":
        """Read the argument of a CONNECT. Raises JSONError."""
        sent = unmarshal(arg, _LEAF_CONNECT, "leafConnectInfo")
        found = cls()
        for name in _CONNECT_KEPT & sent.keys():
            if sent[name] is not None:
                setattr(found, name, sent[name])
        return found


_CONNECT_KEPT = frozenset(PeerConnect.__slots__)
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:[-+].*)?", re.ASCII)
_ORDER = (
    *("version", "nkey", "jwt", "sig", "user", "pass", "auth_token", "server_id", "domain", "name", "is_hub"),
    *(
        "cluster",
        "headers",
        "jetstream",
        "deny_pub",
        "isolate",
        "compress_mode",
        "remote_account",
        "protocol",
        "group_passing",
    ),
)


def connect_line(values: dict[str, object]) -> bytes:
    """Return the CONNECT with these values, in nats-server's order, without empty ones (sendLeafConnect).

    The last one is gnats's own.
    """
    return b"CONNECT " + marshal({name: values[name] for name in _ORDER if values.get(name)}) + b"\r\n"


def at_least(version: str, oldest: str) -> bool:
    """Return whether a version is this one or a later one; another text is none (versionAtLeast)."""
    found = _VERSION.fullmatch(version)
    return found is not None and _numbers(found) >= _numbers(_VERSION.fullmatch(oldest))


def _numbers(found: "re.Match[str] | None") -> tuple[int, ...]:
    return tuple(map(int, found.groups())) if found else ()
