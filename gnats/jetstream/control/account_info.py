"""What an account uses and has, as responses show it (JetStreamUsage in jetstream.go)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gnats.go.json import Json
from gnats.jetstream.settings.config import FILE, MEMORY, StreamConfig
from gnats.options.values.limits import DEFAULT_TIER, JetStreamAccountLimits, tier_name
from gnats.version import JS_API_LEVEL

if TYPE_CHECKING:
    from gnats.jetstream.control.shared import Shared
    from gnats.options.values.limits import Tiers

NO_LIMITS = JetStreamAccountLimits(
    max_memory=0,
    max_storage=0,
    max_streams=0,
    max_consumers=0,
    max_ack_pending=0,
    memory_max_stream_bytes=0,
    storage_max_stream_bytes=0,
)
"""The limits of a tier that an account has not."""


class UsingAccount(Protocol):
    """An account that uses resources: a JSAccount."""

    shared: Shared
    limits: Tiers
    api_total: int
    api_errors: int

    def used(self, tier: str | None = None) -> tuple[int, int]:
        """Return the bytes of memory and storage in use: in a tier, or (None) in all."""


class CountedStream(NamedTuple):
    """A stream that counts, and the number of its consumers by their replicas."""

    config: StreamConfig
    consumers: Mapping[int, int]


def account_info(jsa: UsingAccount, streams: Sequence[CountedStream]) -> Json:
    """Return the fields of an account_info_response, for an account that has these streams."""
    default = jsa.limits.get(DEFAULT_TIER)
    info = _usage(jsa, streams, None, default or NO_LIMITS)
    if domain := jsa.shared.domain:
        info["domain"] = domain
    info["api"] = {"level": JS_API_LEVEL, "total": jsa.api_total, "errors": jsa.api_errors}
    if default is None:
        tiers = {tier_name(stream.config.num_replicas) for stream in streams}
        tiers |= {tier_name(replicas) for stream in streams for replicas, n in stream.consumers.items() if n}
        shown = sorted({*jsa.limits, *tiers})
        info["tiers"] = {tier: _usage(jsa, streams, tier, jsa.limits.get(tier, NO_LIMITS)) for tier in shown}
    return info


def _usage(
    jsa: UsingAccount, streams: Sequence[CountedStream], tier: str | None, limits: JetStreamAccountLimits
) -> Json:
    """Describe what belongs to a tier, or (None) all."""
    mine = [each.config for each in streams if tier in (None, tier_name(each.config.num_replicas))]
    memory, storage = jsa.used(tier)
    return {
        "memory": memory,
        "storage": storage,
        "reserved_memory": _reserved(mine, MEMORY),
        "reserved_storage": _reserved(mine, FILE),
        "streams": len(mine),
        "consumers": sum(
            n
            for stream in streams
            for replicas, n in stream.consumers.items()
            if tier in (None, tier_name(replicas))
        ),
        "limits": limits.json(),
    }


def _reserved(streams: Sequence[StreamConfig], storage: str) -> int:
    return sum(max(each.max_bytes, 0) for each in streams if each.storage == storage)
