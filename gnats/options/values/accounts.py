"""What a configuration says about accounts: limits, exports, imports, mappings (accounts.go)."""

from dataclasses import dataclass, field

from gnats.options.values.auth import Permissions
from gnats.options.values.limits import Tiers


@dataclass(frozen=True, slots=True)
class MapDest:
    """One destination of a subject mapping; `weight` in percent, `cluster` "" for any."""

    subject: str
    weight: int = 100
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Mapping:
    """Messages published to `source` go to one of `dests` instead (AddWeightedMappings)."""

    source: str
    dests: tuple[MapDest, ...]


@dataclass(frozen=True, slots=True)
class ServiceLatency:
    """Where measurements of a service go; `sampling` in percent, 0: decided by the request's headers."""

    subject: str
    sampling: int = 100


@dataclass(frozen=True, slots=True)
class StreamExport:
    """`accounts` None: public; otherwise only these accounts may import."""

    subject: str
    accounts: tuple[str, ...] | None = None
    account_token_position: int = 0


@dataclass(frozen=True, slots=True)
class ServiceExport:
    """`response_type` is "singleton", "stream" or "chunked"; `threshold` in seconds, 0: the default."""

    subject: str
    accounts: tuple[str, ...] | None = None
    account_token_position: int = 0
    response_type: str = "singleton"
    threshold: float = 0.0
    latency: ServiceLatency | None = None
    allow_trace: bool = False


@dataclass(frozen=True, slots=True)
class StreamImport:
    """`subject` of `account` is seen as `to` (may use $1 or {{wildcard(1)}}) or below `prefix` here."""

    account: str
    subject: str
    to: str = ""
    prefix: str = ""
    allow_trace: bool = False
    token: str = ""
    """An activation JWT of the exporter."""


@dataclass(frozen=True, slots=True)
class ServiceImport:
    """Requests published to `to` (`subject` when empty) are served by `subject` of `account`."""

    account: str
    subject: str
    to: str = ""
    share: bool = False
    token: str = ""
    """An activation JWT of the exporter."""


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """-1: none."""

    max_connections: int = -1
    max_leafnodes: int = -1
    max_subscriptions: int = -1
    max_payload: int = -1


@dataclass(slots=True)
class AccountConfig:
    """An account of the configuration; its users are among the server's options' users and nkeys."""

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
    """Limits by tier; None: it has no JetStream."""
