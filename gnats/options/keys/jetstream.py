"""The jetstream blocks of servers and accounts (parseJetStream, parseJetStreamForAccount in opts.go)."""

import re
from typing import Any

from gnats.conf import Token
from gnats.go.text import SECOND, quote
from gnats.options.keys.values import (
    ConfigError,
    Problems,
    Read,
    boolean,
    duration,
    integer,
    keys,
    not_yet,
    read_block,
    seconds,
    show,
    string,
)
from gnats.options.values.jetstream import AES, CHACHA, JetStreamOptions
from gnats.options.values.limits import DEFAULT_TIER, UNLIMITED, JetStreamAccountLimits, JSLimitOpts, Tiers

_SIZE = re.compile(r"([+-]?[0-9]+)([KMGT])")
_SHIFTS = {"K": 10, "M": 20, "G": 30, "T": 40}
_FEWEST_IO, _MOST_IO = 4, 8192


def _size(key: str, token: Token, problems: Problems) -> int:
    """Read bytes: a number, or text like "10G"."""
    if type(token.value) is int:
        return token.value
    if not isinstance(token.value, str):
        raise ConfigError(token, f"{key} must be int64 or string")
    if not token.value:
        return 0
    found = _SIZE.fullmatch(token.value)
    if not found:
        raise ConfigError(token, f"{key} sizes defined as strings must end in K, M, G, T")
    return int(found[1]) << _SHIFTS[found[2]]


def _nanoseconds(key: str, token: Token, problems: Problems) -> int:
    return round(duration(key, token, problems) * SECOND)


def _switch(key: str, token: Token) -> bool | None:
    """Read a switch; None if the value is a block."""
    value = token.value
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        if value.lower() in ("enabled", "enable"):
            return True
        if value.lower() in ("disabled", "disable"):
            return False
        raise ConfigError(token, f"{key}: expected 'enabled' or 'disabled' for string value, got '{value}'")
    if not isinstance(value, dict):
        raise ConfigError(token, f"{key} takes a block {{ ... }}, a bool or a string, not {show(value)}")
    return None


def _sync(key: str, token: Token, problems: Problems) -> dict[str, Any]:
    if isinstance(token.value, str) and token.value.lower() == "always":
        return {"sync_always": True}
    return {"sync_interval": seconds(key, token, problems)}


def _cipher(key: str, token: Token, problems: Problems) -> str:
    name = string(key, token, problems)
    if name.lower() in ("chacha", "chachapoly"):
        return CHACHA
    if name.lower() == "aes":
        return AES
    raise ConfigError(token, f"unknown cipher type: {quote(name)}")


def _unique_tag(key: str, token: Token, problems: Problems) -> str:
    return string(key, token, problems).strip().lower()


def _hint(key: str, token: Token, problems: Problems) -> str:
    return string(key, token, problems).lower()


def _natural(read: Read) -> Read:
    """Make a reader that refuses negative numbers."""

    def check(key: str, token: Token, problems: Problems) -> int:
        value: int = read(key, token, problems)
        if value < 0:
            raise ConfigError(token, f"{key} cannot be negative")
        return value

    return check


def _of_replicas(read: Read) -> Read:
    """Make a reader that checks a value and ignores it: it matters with replicas only."""

    def check(key: str, token: Token, problems: Problems) -> dict[str, Any]:
        _natural(read)(key, token, problems)
        return {}

    return check


def _without_effect(read: Read, why: str) -> Read:
    """Make a reader that checks a value and warns that it has no effect."""

    def check(key: str, token: Token, problems: Problems) -> dict[str, Any]:
        read(key, token, problems)
        problems.misuse(key, token, why)
        return {}

    return check


def _concurrent_io(key: str, token: Token, problems: Problems) -> int:
    number = integer(key, token, problems)
    if not _FEWEST_IO <= number <= _MOST_IO:
        raise ConfigError(token, f"{key} takes a number from {_FEWEST_IO} to {_MOST_IO}")
    return number


def _limits(key: str, token: Token, problems: Problems) -> JSLimitOpts:
    return JSLimitOpts(**read_block(_LIMITS, key, token, problems))


def _batch(key: str, token: Token, problems: Problems) -> dict[str, Any]:
    return read_block(_BATCH, key, token, problems)


def jetstream(key: str, token: Token, problems: Problems) -> JetStreamOptions:
    """Read the jetstream block of a server."""
    enabled = _switch(key, token)
    if enabled is not None:
        return JetStreamOptions(enabled=enabled)
    return JetStreamOptions(**({"enabled": True} | read_block(_SERVER, key, token, problems)))


def account_jetstream(key: str, token: Token, problems: Problems) -> Tiers | None:
    """Read the jetstream block of an account: its limits; None: the account has no JetStream."""
    enabled = _switch(key, token)
    if enabled is not None:
        return UNLIMITED if enabled else None
    return {DEFAULT_TIER: JetStreamAccountLimits(**read_block(_ACCOUNT, key, token, problems))}


_NO_QUEUE = "messages are stored as they arrive, there is no queue to limit"
_NO_POOL = "there is no pool of threads to limit"

_BATCH = keys(
    ("max_batch_inflight_per_stream", integer, "max_inflight_per_stream"),
    ("max_batch_inflight_total", integer, "max_inflight_total"),
    ("max_batch_size", integer, "max_msgs"),
    ("max_batch_timeout", _nanoseconds, "timeout"),
)
_LIMITS = keys(
    ("max_ack_pending", integer, "max_ack_pending"),
    ("max_ha_assets", integer, "max_ha_assets"),
    ("max_request_batch", integer, "max_request_batch"),
    ("default_max_consumers", integer, "default_max_consumers"),
    ("max_duplicate_window", _nanoseconds, "duplicate_window"),
    ("", _batch, "batch"),
)
_SERVER = keys(
    ("enabled", boolean, "enable enabled"),
    ("strict", boolean, "strict"),
    ("store_dir", string, "store store_dir storedir"),
    ("", _sync, "sync sync_interval"),
    ("max_memory", _size, "max_memory_store max_mem_store max_mem"),
    ("max_store", _size, "max_file_store max_file"),
    ("domain", string, "domain"),
    ("key", string, "key ek encryption_key"),
    ("prev_key", string, "prev_key prev_ek prev_encryption_key"),
    ("cipher", _cipher, "cipher"),
    ("extension_hint", _hint, "extension_hint"),
    ("limits", _limits, "limits"),
    ("unique_tag", _unique_tag, "unique_tag"),
    ("request_queue_limit", integer, "request_queue_limit"),
    ("info_queue_limit", integer, "info_queue_limit"),
    ("", _of_replicas(_size), "max_outstanding_catchup"),
    ("meta_compact", _natural(integer), "meta_compact"),
    ("meta_compact_size", _natural(_size), "meta_compact_size"),
    ("meta_compact_sync", boolean, "meta_compact_sync"),
    ("", _without_effect(_size, _NO_QUEUE), "max_buffered_size"),
    ("", _without_effect(integer, _NO_QUEUE), "max_buffered_msgs"),
    ("", _without_effect(_concurrent_io, _NO_POOL), "max_concurrent_io"),
    ("", not_yet, "tpm"),
)
_TRAFFIC = re.compile("|system|owner")


def _cluster_traffic(key: str, token: Token, problems: Problems) -> dict[str, Any]:
    if not _TRAFFIC.fullmatch(string(key, token, problems)):
        raise ConfigError(token, f"{key}: expected 'system' or 'owner', got {show(token.value)}")
    return {}


_ACCOUNT = keys(
    ("max_memory", integer, "max_memory max_mem mem memory"),
    ("max_storage", integer, "max_store max_file max_disk store disk"),
    ("max_streams", integer, "max_streams streams"),
    ("max_consumers", integer, "max_consumers consumers"),
    ("max_bytes_required", boolean, "max_bytes_required max_stream_bytes max_bytes"),
    ("memory_max_stream_bytes", integer, "mem_max_stream_bytes memory_max_stream_bytes"),
    ("storage_max_stream_bytes", integer, "disk_max_stream_bytes store_max_stream_bytes"),
    ("max_ack_pending", integer, "max_ack_pending"),
    ("", _cluster_traffic, "cluster_traffic"),
)
