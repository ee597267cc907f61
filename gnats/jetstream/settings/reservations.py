"""The reservations of streams in their account and server, by their max_bytes (jetstream.go)."""

from __future__ import annotations

from collections.abc import Callable

from gnats.go.text import MAX_INT64
from gnats.jetstream.errors import (
    MAXIMUM_CONSUMERS_LIMIT,
    MEMORY_RESOURCES_EXCEEDED,
    STORAGE_RESOURCES_EXCEEDED,
)
from gnats.jetstream.settings.config import FILE, MEMORY, StreamConfig
from gnats.options.values.limits import DEFAULT_TIER, JetStreamAccountLimits


class Resources:
    """The server's memory and storage in bytes, and how much of each streams have reserved.

    `changed` is called when that changes.
    """

    def __init__(self, max_memory: int, max_store: int, changed: Callable[[], object] | None = None) -> None:
        self.max_memory = max_memory
        self.max_store = max_store
        self.memory_reserved = self.store_reserved = 0
        self._changed = changed

    def reserve(self, storage: str, max_bytes: int) -> None:
        """Reserve bytes for a stream, or release them with a negative number."""
        if storage == MEMORY:
            self.memory_reserved += max_bytes
        else:
            self.store_reserved += max_bytes
        if self._changed and max_bytes:
            self._changed()


def account_reservation(tier: str, replicas: int, max_bytes: int) -> int:
    """Return the bytes that a stream reserves in its account. Limits without tiers count every replica."""
    if max_bytes <= 0:
        return 0
    return min(max_bytes * replicas, MAX_INT64) if tier == DEFAULT_TIER and replicas > 1 else max_bytes


def check_limits(
    limits: JetStreamAccountLimits, tier: str, config: StreamConfig, reserved: int, server: Resources | None
) -> None:
    """Raise ApiError when a stream exceeds the limits of its account or server (checkAllLimits).

    Without a `server`, those of the account count alone (checkAccountLimits). `reserved` are the bytes that
    the account's other streams have reserved.
    """
    if 0 < limits.max_consumers < config.max_consumers:
        raise MAXIMUM_CONSUMERS_LIMIT()
    more = 1 if config.max_bytes < 0 else config.max_bytes
    for_account = account_reservation(tier, config.num_replicas, more)
    in_memory = config.storage == MEMORY
    refusal = MEMORY_RESOURCES_EXCEEDED if in_memory else STORAGE_RESOURCES_EXCEEDED
    most = limits.max_memory if in_memory else limits.max_storage
    if most >= 0 and reserved + for_account > most:
        raise refusal()
    if server is None:
        return
    there = server.max_memory if in_memory else server.max_store
    taken = server.memory_reserved if in_memory else server.store_reserved
    if taken + more > there:
        raise refusal()


def max_bytes_limits(limits: JetStreamAccountLimits, config: StreamConfig) -> tuple[bool, int]:
    """Return (whether max_bytes must be set, its highest value; 0 or less: no limit)."""
    if config.storage == FILE:
        return limits.max_bytes_required, limits.storage_max_stream_bytes
    return limits.max_bytes_required, limits.memory_max_stream_bytes
