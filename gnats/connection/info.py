"""The INFO line, which describes the server to a connection (Info in server.go)."""

from dataclasses import dataclass, fields

from gnats.go.json import Struct, marshal
from gnats.version import JS_API_LEVEL, NATS_VERSION, PROTO, RUNTIME, __version__

PERMISSION: Struct = {"allow": "strings", "deny": "strings"}

INFO_FIELDS: Struct = {
    "server_id": "string",
    "server_name": "string",
    "version": "string",
    "proto": "int",
    "git_commit": "string",
    "go": "string",
    "host": "string",
    "port": "int",
    "headers": "bool",
    "auth_required": "bool",
    "tls_required": "bool",
    "tls_verify": "bool",
    "tls_available": "bool",
    "max_payload": "int32",
    "jetstream": "bool",
    "ip": "string",
    "client_id": "uint64",
    "client_ip": "string",
    "nonce": "string",
    "cluster": "string",
    "cluster_dynamic": "bool",
    "domain": "string",
    "connect_urls": "strings",
    "ws_connect_urls": "strings",
    "ldm": "bool",
    "compression": "string",
    "connect_info": "bool",
    "remote_account": "string",
    "acc_is_sys": "bool",
    "api_lvl": "int",
    "import": PERMISSION,
    "export": PERMISSION,
    "lnoc": "bool",
    "lnocu": "bool",
    "ln": "bool",
    "info_on_connect": "bool",
    "route_pool_size": "int",
    "route_pool_idx": "int",
    "route_account": "string",
    "route_acc_add_reqid": "string",
    "gossip_mode": "uint8",
    "gateway": "string",
    "gateway_urls": "strings",
    "gateway_url": "string",
    "gateway_cmd": "uint8",
    "gateway_cmd_payload": "string",
    "gateway_nrp": "bool",
    "gateway_iom": "bool",
    "leafnode_urls": "strings",
    "xkey": "string",
    "interest_digests": "bool",
    "group_passing": "bool",
}
"""The fields of a peer's INFO, for all kinds of peers; the last two are gnats's own."""


@dataclass(slots=True, kw_only=True)
class Info:
    """INFO's fields, with their names in JSON and in the order of the line.

    Fields are sent when they are not empty; host, port, headers and max_payload are always sent. `version` is
    the version of nats-server that gnats behaves as; `gnats` is the version of gnats.
    """

    server_id: str
    server_name: str
    version: str = NATS_VERSION
    proto: int = PROTO
    go: str = RUNTIME
    host: str
    port: int
    headers: bool
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    max_payload: int
    jetstream: bool = False
    client_id: int = 0
    client_ip: str = ""
    nonce: str = ""
    cluster: str = ""
    domain: str = ""
    connect_urls: tuple[str, ...] = ()
    ldm: bool = False
    connect_info: bool = False
    remote_account: str = ""
    acc_is_sys: bool = False
    api_lvl: int = JS_API_LEVEL
    xkey: str = ""
    gnats: str = __version__

    def line(self, **changes: object) -> bytes:
        """Return the INFO line; `changes` replaces some fields."""
        values = {name: changes.get(name, getattr(self, name)) for name in _NAMES}
        present = {name: value for name, value in values.items() if value or name in _ALWAYS}
        return b"INFO " + marshal(present) + b" \r\n"


_NAMES = tuple(field.name for field in fields(Info))
_ALWAYS = frozenset(("host", "port", "headers", "max_payload"))
