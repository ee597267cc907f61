"""The claims of JWTs of operators, users, activations and authorizations, with their names in JSON.

A list is None if it was not in the JWT. An empty list differs: an empty `allow` allows nothing. Times are
unix seconds, durations nanoseconds. A limit of -1 means no limit, 0 means nothing is allowed.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from gnats.go.json import Either, JSONError, MapOf
from gnats.jwt.schema import ALWAYS, Special
from gnats.nkeys.nkeys import Prefix

NO_LIMIT = -1
ALL = "*"
"""In revocations, all users; in allowed accounts, any account."""
VERSION = 2

Strings = tuple[str, ...] | None


def _read_kind(value: str) -> str:
    if value not in ("stream", "service"):
        raise JSONError(f'unknown export type "{value}"')
    return value


def _read_cidrs(value: str | list[str]) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(value)
    words = (word.strip() for word in value.lower().split(","))
    return tuple(dict.fromkeys(word for word in words if word))


KIND = Special("string", _read_kind, str)
"""The type of an export or import: "stream" or "service"; "" if missing."""
_ANY = Special(MapOf("any"), lambda value: value, lambda value: value)
_CIDRS = Special(Either("strings", "string"), _read_cidrs, list)


@dataclass(kw_only=True)
class GenericFields:
    """The members that the `nats` part of every JWT has."""

    tags: Strings = None
    type: str = ""
    version: int = 0


@dataclass(kw_only=True)
class Claims:
    """The members of every JWT: subject, issuer, times of validity (ClaimsData)."""

    TYPE: ClassVar[str] = ""
    ISSUERS: ClassVar[tuple[Prefix, ...]] = ()
    """The kinds of keys that may sign; empty: all."""

    aud: str = ""
    exp: int = 0
    jti: str = ""
    iat: int = 0
    iss: str = ""
    name: str = ""
    nbf: int = 0
    sub: str = ""

    @property
    def is_self_signed(self) -> bool:
        return self.iss == self.sub


@dataclass(kw_only=True)
class Permission:
    allow: Strings = None
    deny: Strings = None


@dataclass(kw_only=True)
class ResponsePermission:
    """Replies that may be published: `max` to each reply subject, for `ttl` nanoseconds."""

    max: int = field(default=0, metadata=ALWAYS)
    ttl: int = field(default=0, metadata=ALWAYS)


@dataclass(kw_only=True)
class Permissions:
    pub: Permission = field(default_factory=Permission)
    sub: Permission = field(default_factory=Permission)
    resp: ResponsePermission | None = None


@dataclass(kw_only=True)
class TimeRange:
    """Times of a day, hh:mm:ss."""

    start: str = ""
    end: str = ""


@dataclass(kw_only=True)
class UserPermissionLimits(Permissions):
    """A user's permissions and limits, in the user's JWT or in the template of a scoped signing key."""

    src: Strings = field(default=None, metadata={"special": _CIDRS})
    times: tuple[TimeRange, ...] | None = None
    times_location: str = ""
    subs: int = 0
    data: int = 0
    payload: int = 0
    bearer_token: bool = False
    proxy_required: bool = False
    allowed_connection_types: Strings = None


def unlimited() -> UserPermissionLimits:
    """Return permissions for everything, without limits."""
    return UserPermissionLimits(subs=NO_LIMIT, data=NO_LIMIT, payload=NO_LIMIT)


@dataclass(kw_only=True)
class User(UserPermissionLimits, GenericFields):
    issuer_account: str = ""
    """The account's public key if one of its signing keys is the issuer; else empty."""


@dataclass(kw_only=True)
class UserClaims(Claims):
    """A user. `UserClaims.new` sets all limits to "no limit"; a scoped signing key's user may not set any."""

    TYPE = "user"
    ISSUERS = (Prefix.ACCOUNT,)

    nats: User = field(default_factory=User)

    @classmethod
    def new(cls, sub: str) -> "UserClaims":
        return cls(sub=sub, nats=User(subs=NO_LIMIT, data=NO_LIMIT, payload=NO_LIMIT))

    @property
    def account(self) -> str:
        """The public key of the user's account."""
        return self.nats.issuer_account or self.iss

    def has_empty_permissions(self) -> bool:
        """Check that no permission or limit is set, as scoped signing keys require (HasEmptyPermissions)."""
        empty, nats = UserPermissionLimits(), self.nats
        return all(getattr(nats, name) == getattr(empty, name) for name in empty.__dataclass_fields__)


@dataclass(kw_only=True)
class Operator(GenericFields):
    signing_keys: Strings = None
    account_server_url: str = ""
    operator_service_urls: Strings = None
    system_account: str = ""
    assert_server_version: str = ""
    strict_signing_key_usage: bool = False


@dataclass(kw_only=True)
class OperatorClaims(Claims):
    """An operator. A server trusts accounts that its operators have signed."""

    TYPE = "operator"
    ISSUERS = (Prefix.OPERATOR,)

    nats: Operator = field(default_factory=Operator)

    @property
    def keys(self) -> tuple[str, ...]:
        """The public keys that may sign accounts."""
        own = () if self.nats.strict_signing_key_usage else (self.sub,)
        return own + (self.nats.signing_keys or ())


@dataclass(kw_only=True)
class Activation(GenericFields):
    subject: str = ""
    kind: str = field(default="", metadata={"special": KIND})
    issuer_account: str = ""


@dataclass(kw_only=True)
class ActivationClaims(Claims):
    """An exporter's permission for the account `sub` to import a subject."""

    TYPE = "activation"
    ISSUERS = (Prefix.ACCOUNT, Prefix.OPERATOR)

    nats: Activation = field(default_factory=Activation)


@dataclass(kw_only=True)
class ServerID:
    name: str = field(default="", metadata=ALWAYS)
    host: str = field(default="", metadata=ALWAYS)
    id: str = field(default="", metadata=ALWAYS)
    version: str = ""
    cluster: str = ""
    tags: Strings = None
    xkey: str = ""


@dataclass(kw_only=True)
class ClientInformation:
    host: str = ""
    id: int = field(default=0, metadata={"type": "uint64"})
    user: str = ""
    name: str = ""
    tags: Strings = None
    name_tag: str = ""
    kind: str = ""
    type: str = ""
    mqtt_id: str = ""
    nonce: str = ""


@dataclass(kw_only=True)
class ConnectOptions:
    jwt: str = ""
    nkey: str = ""
    sig: str = ""
    auth_token: str = ""
    user: str = ""
    # "pass" is a keyword of Python
    password: str = field(default="", metadata={"name": "pass"})
    name: str = ""
    lang: str = ""
    version: str = ""
    protocol: int = field(default=0, metadata=ALWAYS)


@dataclass(kw_only=True)
class ClientTLS:
    version: str = ""
    cipher: str = ""
    certs: Strings = None
    verified_chains: tuple[tuple[str, ...], ...] | None = None


@dataclass(kw_only=True)
class AuthorizationRequest(GenericFields):
    server_id: ServerID = field(default_factory=ServerID)
    user_nkey: str = field(default="", metadata=ALWAYS)
    client_info: ClientInformation = field(default_factory=ClientInformation)
    connect_opts: ConnectOptions = field(default_factory=ConnectOptions)
    client_tls: ClientTLS | None = None
    request_nonce: str = ""


@dataclass(kw_only=True)
class AuthorizationRequestClaims(Claims):
    """A server's request to an auth callout service about a client."""

    TYPE = "authorization_request"
    ISSUERS = (Prefix.SERVER,)

    nats: AuthorizationRequest = field(default_factory=AuthorizationRequest)


@dataclass(kw_only=True)
class AuthorizationResponse(GenericFields):
    jwt: str = ""
    error: str = ""
    issuer_account: str = ""


@dataclass(kw_only=True)
class AuthorizationResponseClaims(Claims):
    """The answer of an auth callout service: a user's JWT, or an error."""

    TYPE = "authorization_response"
    ISSUERS = (Prefix.ACCOUNT,)

    nats: AuthorizationResponse = field(default_factory=AuthorizationResponse)


@dataclass(kw_only=True)
class GenericClaims(Claims):
    """A JWT of any kind, with its `nats` part as JSON."""

    nats: dict[str, object] = field(default_factory=dict, metadata={"special": _ANY})
