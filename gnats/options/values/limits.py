"""Limits of streams and consumers: the server's, and each account's by tier (jetstream.go).

Sizes are bytes, durations nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

DEFAULT_TIER = ""
"""The tier of limits that apply to all streams together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JSLimitOpts:
    """The server's limits for streams and consumers; 0: no limit."""

    max_request_batch: int = 0
    max_ack_pending: int = 0
    max_ha_assets: int = 0
    max_duplicate_window: int = 0
    max_batch_inflight_per_stream: int = 0
    max_batch_inflight_total: int = 0
    max_batch_size: int = 0
    max_batch_timeout: int = 0
    default_max_consumers: int = 1000
    """Consumers of a stream when neither the stream nor its account has a limit."""

    def json(self) -> dict[str, int]:
        """Return the limits for monitoring, without those that are 0."""
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class JetStreamAccountLimits:
    """Limits of an account in a tier; -1 (for the bytes of a stream also 0): no limit."""

    max_memory: int = -1
    max_storage: int = -1
    max_streams: int = -1
    max_consumers: int = -1
    max_ack_pending: int = -1
    memory_max_stream_bytes: int = -1
    storage_max_stream_bytes: int = -1
    max_bytes_required: bool = False

    def json(self) -> dict[str, int]:
        """Return the limits as the API shows them."""
        return asdict(self)


Tiers = Mapping[str, JetStreamAccountLimits]
"""Limits by tier: DEFAULT_TIER, or R1, R3..."""
UNLIMITED: Tiers = {DEFAULT_TIER: JetStreamAccountLimits()}


def tier_name(replicas: int) -> str:
    """Return the tier of streams with that number of replicas."""
    return f"R{replicas or 1}"


def select_limits(tiers: Tiers, replicas: int) -> tuple[JetStreamAccountLimits, str] | None:
    """Return the limits for a stream with that number of replicas, and their tier; None: no such tier."""
    if (limits := tiers.get(DEFAULT_TIER)) is not None:
        return limits, DEFAULT_TIER
    tier = tier_name(replicas)
    return (limits, tier) if (limits := tiers.get(tier)) is not None else None
