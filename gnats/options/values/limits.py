"""How much streams and consumers may use: the server's limits and an account's (jetstream.go).

Sizes are bytes, durations nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

DEFAULT_TIER = ""
"""The tier that limits without tiers are under: they are for all streams together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JSLimitOpts:
    """The server's limits for each stream and consumer; 0: none."""

    max_request_batch: int = 0
    max_ack_pending: int = 0
    max_ha_assets: int = 0
    max_duplicate_window: int = 0
    max_batch_inflight_per_stream: int = 0
    max_batch_inflight_total: int = 0
    max_batch_size: int = 0
    max_batch_timeout: int = 0
    default_max_consumers: int = 1000
    """Consumers of a stream where neither it nor its account says how many it may have."""

    def json(self) -> dict[str, int]:
        """As a page of the monitor has them."""
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class JetStreamAccountLimits:
    """What one account may use in a tier; -1 (0 for the bytes of a stream): no limit."""

    max_memory: int = -1
    max_storage: int = -1
    max_streams: int = -1
    max_consumers: int = -1
    max_ack_pending: int = -1
    memory_max_stream_bytes: int = -1
    storage_max_stream_bytes: int = -1
    max_bytes_required: bool = False

    def json(self) -> dict[str, int]:
        """As the API has them."""
        return asdict(self)


Tiers = Mapping[str, JetStreamAccountLimits]
"""Limits by tier: DEFAULT_TIER, or R1, R3..."""
UNLIMITED: Tiers = {DEFAULT_TIER: JetStreamAccountLimits()}


def tier_name(replicas: int) -> str:
    """The tier of streams with so many replicas."""
    return f"R{replicas or 1}"


def select_limits(tiers: Tiers, replicas: int) -> tuple[JetStreamAccountLimits, str] | None:
    """The limits for a stream with so many replicas and their tier; None where there are none."""
    if (limits := tiers.get(DEFAULT_TIER)) is not None:
        return limits, DEFAULT_TIER
    tier = tier_name(replicas)
    return (limits, tier) if (limits := tiers.get(tier)) is not None else None
