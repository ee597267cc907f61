"""Accounts in a configuration: limits, exports, imports, mappings (accounts.go)."""

from dataclasses import dataclass, field

from gnats.options.values.auth import Permissions
from gnats.options.values.limits import Tiers


@dataclass(frozen=True, slots=True)
class MapDest:
    """A destination of a subject mapping. `weight` is in percent; `cluster` "" means any cluster."""

    subject: str
    weight: int = 100
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Mapping:
    """Maps messages published to `source` to one of `dests` (AddWeightedMappings)."""

    source: str
    dests: tuple[MapDest, ...]


@dataclass(frozen=True, slots=True)
class ServiceLatency:
    """The subject for measurements of a service. `sampling` is in percent; 0: request headers decide."""

    subject: str
    sampling: int = 100


@dataclass(frozen=True, slots=True)
class StreamExport:
    """A stream export. Only `accounts` may import it; None: all accounts may."""

    subject: str
    accounts: tuple[str, ...] | None = None
    account_token_position: int = 0


@dataclass(frozen=True, slots=True)
class ServiceExport:
    """A service export; `accounts` as in StreamExport.

    `response_type` is "singleton", "stream" or "chunked"; `threshold` is in seconds, 0: the default.
    """

    subject: str
    accounts: tuple[str, ...] | None = None
    account_token_position: int = 0
    response_type: str = "singleton"
    threshold: float = 0.0
    latency: ServiceLatency | None = None
    allow_trace: bool = False


@dataclass(frozen=True, slots=True)
class StreamImport:
    """Imports `subject` of `account` as `to` (may use $1 or {{wildcard(1)}}), or below `prefix`."""

    account: str
    subject: str
    to: str = ""
    prefix: str = ""
    allow_trace: bool = False
    token: str = ""
    """An activation JWT, issued by the exporting account."""


@dataclass(frozen=True, slots=True)
class ServiceImport:
    """Imports a service: requests to `to` (empty: `subject`) go to `subject` of `account`.

    With `share`, the service gets details of the requester.
    """

    account: str
    subject: str
    to: str = ""
    share: bool = False
    token: str = ""
    """An activation JWT, issued by the exporting account."""


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """Limits of an account; -1: no limit. `max_payload` is in bytes."""

    max_connections: int = -1
    max_leafnodes: int = -1
    max_subscriptions: int = -1
    max_payload: int = -1


@dataclass(slots=True)
class AccountConfig:
    """An account of the configuration. Its users are in the options `users` and `nkeys`."""

    name: str
    nkey: str = ""
    default_permissions: Permissions | None = None
    exports: list[StreamExport | ServiceExport] = field(default_factory=list)
    imports: list[StreamImport | ServiceImport] = field(default_factory=list)
    mappings: list[Mapping] = field(default_factory=list)
    limits: AccountLimits = AccountLimits()
    trace_dest: str = ""
    trace_sampling: int = 100
    jetstream: Tiers | None = None
    """Limits by tier; None: the account has no JetStream."""
