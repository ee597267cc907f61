"""What a client that may connect is granted, and the user of a JWT that it is."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnats.options.values.auth import GLOBAL_ACCOUNT, NkeyUser, Permissions, User

if TYPE_CHECKING:
    from gnats.jwt.account import UserScope


@dataclass(frozen=True, slots=True)
class JWTUser:
    """A user that a JWT lets in."""

    account: str
    """The account's public key."""
    user: str
    """The user's."""
    name: str
    tags: tuple[str, ...]
    issuer: str
    signing_key: str
    """The issuer, when it is a signing key."""
    issued_at: int
    token: str
    permissions: Permissions | None
    uses_default_permissions: bool
    """`permissions` are the account's."""
    max_subs: int
    """-1: no limit but the account's; so max_payload and max_data."""
    max_payload: int
    max_data: int
    expires: float
    """Unix time at which the client is to be closed, "User Authentication Expired"; 0: never."""
    connection_types: frozenset[str]
    scope: "UserScope | None"
    """Of the signing key, when it has one."""
    bearer: bool
    proxy_required: bool


@dataclass(frozen=True, slots=True)
class Grant:
    """What a client that may connect gets; `expires` in seconds from now, limits -1 for none."""

    account: str = GLOBAL_ACCOUNT
    permissions: Permissions | None = None
    expires: float | None = None
    max_subs: int = -1
    max_payload: int = -1
    pub_key: str = ""
    """The user's public nkey, of a JWT."""
    issuer_key: str = ""
    name_tag: str = ""
    tags: tuple[str, ...] = ()
    user: User | NkeyUser | JWTUser | None = None
    """The user of the configuration or of a JWT, for a reload or other claims to compare."""
