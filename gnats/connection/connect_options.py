"""The options that a client sends in CONNECT (ClientOpts in client.go)."""

from dataclasses import dataclass, fields

from gnats.connection.info import PERMISSION
from gnats.go.json import Struct, unmarshal

CLIENT_PROTO_INFO = 1
"""The `protocol` of clients that accept INFO at any time."""

CONNECT_FIELDS: Struct = {
    "echo": "bool",
    "verbose": "bool",
    "pedantic": "bool",
    "tls_required": "bool",
    "nkey": "string",
    "jwt": "string",
    "sig": "string",
    "auth_token": "string",
    "user": "string",
    "pass": "string",
    "name": "string",
    "lang": "string",
    "version": "string",
    "protocol": "int",
    "account": "string",
    "new_account": "bool",
    "headers": "bool",
    "no_responders": "bool",
    "import": PERMISSION,
    "export": PERMISSION,
    "remote_account": "string",
    "proxy_sig": "string",
}
"""CONNECT's fields. Fields that ClientOptions lacks are checked for their type and then ignored."""


@dataclass(slots=True)
class ClientOptions:
    """CONNECT's fields (ClientOpts in client.go); before the first CONNECT, the defaults."""

    echo: bool = True
    verbose: bool = True
    pedantic: bool = True
    nkey: str = ""
    jwt: str = ""
    sig: str = ""
    proxy_sig: str = ""
    auth_token: str = ""
    user: str = ""
    password: str = ""
    name: str = ""
    lang: str = ""
    version: str = ""
    protocol: int = 0
    account: str = ""
    new_account: bool = False
    headers: bool = False
    no_responders: bool = False

    def merge(self, connect: bytes) -> None:
        """Set the fields that a CONNECT's argument names. Raises JSONError."""
        for name, value in unmarshal(connect, CONNECT_FIELDS, "ClientOpts").items():
            name = "password" if name == "pass" else name
            if name in _KEPT:
                setattr(self, name, value)


_KEPT = frozenset(field.name for field in fields(ClientOptions))
