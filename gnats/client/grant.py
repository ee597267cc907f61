"""Grants: the account, permissions and limits of a client that may connect; users of JWTs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnats.options.values.auth import GLOBAL_ACCOUNT, NkeyUser, Permissions, User

if TYPE_CHECKING:
    from gnats.jwt.account import UserScope


@dataclass(frozen=True, slots=True)
class JWTUser:
    """A user authenticated by a JWT."""

    account: str
    """The account's public key."""
    user: str
    """The user's public key."""
    name: str
    tags: tuple[str, ...]
    issuer: str
    signing_key: str
    """The issuer's public key if it is a signing key; else empty."""
    issued_at: int
    token: str
    permissions: Permissions | None
    uses_default_permissions: bool
    """True if `permissions` are the account's default permissions."""
    max_subs: int
    """Subscriptions; -1: no limit but the account's. The same holds for max_payload and max_data (bytes)."""
    max_payload: int
    max_data: int
    expires: float
    """Unix time (seconds) at which the client is closed, "User Authentication Expired"; 0: never."""
    connection_types: frozenset[str]
    scope: "UserScope | None"
    """The scope of the signing key; None if it has no scope."""
    bearer: bool
    proxy_required: bool


@dataclass(frozen=True, slots=True)
class Grant:
    """The account, permissions and limits of a client that may connect. -1: no limit."""

    account: str = GLOBAL_ACCOUNT
    permissions: Permissions | None = None
    expires: float | None = None
    """Seconds from now until the client is closed; None: never."""
    max_subs: int = -1
    max_payload: int = -1
    pub_key: str = ""
    """The public key in the user's JWT."""
    issuer_key: str = ""
    name_tag: str = ""
    tags: tuple[str, ...] = ()
    user: User | NkeyUser | JWTUser | None = None
    """The user of the configuration or of a JWT. A reload, or new claims, compare it with the present one."""
