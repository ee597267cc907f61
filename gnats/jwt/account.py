"""The claims of an account's JWT: exports, imports, limits, signing keys, revocations."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from gnats.go.json import Either, JSONError, ListOf, unmarshal
from gnats.jwt.claims import (
    ALL,
    KIND,
    NO_LIMIT,
    Claims,
    GenericFields,
    Permissions,
    Strings,
    UserPermissionLimits,
    unlimited,
)
from gnats.jwt.schema import ALWAYS, Special, fill, struct, to_json
from gnats.nkeys.nkeys import Prefix

USER_SCOPE = "user_scope"


@dataclass(kw_only=True)
class JetStreamLimits:
    """JetStream limits of an account or a tier. Sizes are bytes; 0 for *_max_stream_bytes means no limit."""

    mem_storage: int = 0
    disk_storage: int = 0
    streams: int = 0
    consumer: int = 0
    max_ack_pending: int = 0
    mem_max_stream_bytes: int = 0
    disk_max_stream_bytes: int = 0
    max_bytes_required: bool = False


@dataclass(kw_only=True)
class OperatorLimits(JetStreamLimits):
    """The limits that the operator sets for an account; -1: no limit, 0: none allowed."""

    subs: int = 0
    data: int = 0
    payload: int = 0
    imports: int = 0
    exports: int = 0
    wildcards: bool = False
    disallow_bearer: bool = False
    conn: int = 0
    leaf: int = 0
    tiered_limits: dict[str, JetStreamLimits] = field(default_factory=dict)

    def jetstream_enabled(self) -> bool:
        """Check whether a JetStream limit allows storing anything (IsJSEnabled)."""
        tiers = self.tiered_limits.values() or (self,)
        return any(tier.mem_storage or tier.disk_storage for tier in tiers)


@dataclass(kw_only=True)
class WeightedMapping:
    subject: str = field(default="", metadata=ALWAYS)
    weight: int = field(default=0, metadata={"type": "uint8"})
    """Percent; 0 means 100."""
    cluster: str = ""


@dataclass(kw_only=True)
class ExternalAuthorization:
    """The account's auth callout."""

    auth_users: Strings = None
    allowed_accounts: Strings = None
    xkey: str = ""

    @property
    def enabled(self) -> bool:
        return bool(self.auth_users)


@dataclass(kw_only=True)
class MsgTrace:
    """The subject for traces of messages; `sampling` in percent."""

    dest: str = ""
    sampling: int = 0


def _read_sampling(value: int | str) -> int:
    if isinstance(value, int):
        return value
    if value.lower() != "headers":
        raise JSONError(f"{value} is not a sampling rate")
    return 0


_SAMPLING = Special(Either("int", "string"), _read_sampling, lambda rate: rate or "headers")


@dataclass(kw_only=True)
class ServiceLatency:
    """Where measurements of a service go. `sampling` is in percent; 0: request headers decide."""

    sampling: int = field(default=0, metadata=ALWAYS | {"special": _SAMPLING})
    results: str = field(default="", metadata=ALWAYS)


@dataclass(kw_only=True)
class Export:
    """An export; `response_threshold` in nanoseconds."""

    name: str = ""
    subject: str = ""
    type: str = field(default="", metadata={"special": KIND})
    token_req: bool = False
    revocations: dict[str, int] = field(default_factory=dict)
    response_type: str = ""
    response_threshold: int = 0
    service_latency: ServiceLatency | None = None
    account_token_position: int = field(default=0, metadata={"type": "uint64"})
    advertise: bool = False
    allow_trace: bool = False
    description: str = ""
    info_url: str = ""


@dataclass(kw_only=True)
class Import:
    """An import. `subject` is the exporter's; for a service that has `to`, it is the importer's."""

    name: str = ""
    subject: str = ""
    account: str = ""
    token: str = ""
    to: str = ""
    """Deprecated in favour of `local_subject`."""
    local_subject: str = ""
    type: str = field(default="", metadata={"special": KIND})
    share: bool = False
    allow_trace: bool = False


@dataclass(kw_only=True)
class UserScope:
    """A scoped signing key: all users that it signs get the permissions and limits of `template`."""

    kind: str = field(default=USER_SCOPE, metadata=ALWAYS)
    key: str = field(default="", metadata=ALWAYS)
    role: str = field(default="", metadata=ALWAYS)
    template: UserPermissionLimits = field(default_factory=unlimited)
    description: str = field(default="", metadata=ALWAYS)


SigningKeys = dict[str, UserScope | None]


def _read_signing_keys(value: list[object]) -> SigningKeys:
    keys: SigningKeys = {}
    for each in value:
        if isinstance(each, str):
            keys[each] = None
        elif isinstance(each, dict):
            if each.get("kind") != USER_SCOPE:
                raise JSONError("unknown signing key scope")
            scope = fill(UserScope(), unmarshal(json.dumps(each).encode(), struct(UserScope), "UserScope"))
            keys[scope.key] = scope
    return keys


def _write_signing_keys(keys: SigningKeys) -> list[object]:
    return [key if (scope := keys[key]) is None else to_json(scope) for key in sorted(keys)]


@dataclass(kw_only=True)
class Account(GenericFields):
    imports: tuple[Import, ...] = ()
    exports: tuple[Export, ...] = ()
    limits: OperatorLimits = field(default_factory=OperatorLimits)
    signing_keys: SigningKeys = field(
        default_factory=dict,
        metadata={"special": Special(ListOf("any"), _read_signing_keys, _write_signing_keys)},
    )
    revocations: dict[str, int] = field(default_factory=dict)
    default_permissions: Permissions = field(default_factory=Permissions)
    mappings: dict[str, tuple[WeightedMapping, ...]] = field(default_factory=dict)
    authorization: ExternalAuthorization = field(default_factory=ExternalAuthorization)
    trace: MsgTrace | None = None
    cluster_traffic: str = ""
    description: str = ""
    info_url: str = ""


@dataclass(kw_only=True)
class AccountClaims(Claims):
    """An account. `AccountClaims.new` sets all limits to "no limit", and gives it no JetStream."""

    TYPE = "account"
    ISSUERS = (Prefix.ACCOUNT, Prefix.OPERATOR)

    nats: Account = field(default_factory=Account)

    @classmethod
    def new(cls, sub: str) -> "AccountClaims":
        limits = OperatorLimits(
            subs=NO_LIMIT,
            data=NO_LIMIT,
            payload=NO_LIMIT,
            imports=NO_LIMIT,
            exports=NO_LIMIT,
            wildcards=True,
            conn=NO_LIMIT,
            leaf=NO_LIMIT,
        )
        return cls(sub=sub, nats=Account(limits=limits))


def is_revoked(revocations: Mapping[str, int], key: str, issued_at: int) -> bool:
    """Check whether a JWT for `key`, issued at `issued_at`, is revoked (isRevoked in accounts.go)."""
    return any(name in revocations and revocations[name] >= issued_at for name in (key, ALL))
