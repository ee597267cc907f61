"""What accounts use at the servers of a cluster: messages, and a table of them (jetstream.go).

A message tells all that an account uses at one server, so the last one counts. Its subject is
$JSC.ARU.<account>.<peer>; numbers are little endian.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from gnats.go.text import MAX_INT64, MAX_UINT64, text_bytes

SUBJECT = b"$JSC.ARU."
_PEER = 8
"""Characters of a peer's name."""
_FIRST = struct.Struct("<4Q")  # memory, storage, requests, errors
_MORE_TIERS = struct.Struct("<IQ")  # how many other tiers follow, and the bytes of the tier's name
_TIER = struct.Struct("<3Q")  # memory, storage, bytes of the tier's name


class AccountUsage(NamedTuple):
    """What an account uses at one server."""

    tiers: Mapping[str, tuple[int, int]] = {}
    """Bytes in memory and in files, by tier."""
    api_total: int = 0
    api_errors: int = 0


class UsageError(Exception):
    """A message tells no usage."""


def usage_subject(account: str, peer: str) -> bytes:
    """Return the subject of a server's messages about an account."""
    return SUBJECT + text_bytes(account) + b"." + peer.encode()


def encode_usage(usage: AccountUsage) -> bytes:
    """Return the message; there must be a tier."""
    (first, (memory, storage)), *others = usage.tiers.items()
    name = text_bytes(first)
    parts = [
        _FIRST.pack(memory, storage, usage.api_total, usage.api_errors),
        _MORE_TIERS.pack(len(others), len(name)),
        name,
    ]
    for tier, (memory, storage) in others:
        name = text_bytes(tier)
        parts += [_TIER.pack(memory, storage, len(name)), name]
    return b"".join(parts)


def decode_usage(data: bytes) -> AccountUsage:
    """Read a message; one of old servers has no tiers. Raises UsageError."""
    if len(data) < _FIRST.size:
        raise UsageError("Ignoring remote usage update with size too short")
    memory, storage, total, errors = _FIRST.unpack_from(data)
    at, more, tier = _FIRST.size, 0, ""
    if len(data) >= at + _MORE_TIERS.size:
        more, n = _MORE_TIERS.unpack_from(data, at)
        tier, at = _name(data, at + _MORE_TIERS.size, n)
    tiers = {tier: (_bytes(memory), _bytes(storage))}
    while more and len(data) - at >= _TIER.size:
        memory, storage, n = _TIER.unpack_from(data, at)
        tier, at = _name(data, at + _TIER.size, n)
        tiers[tier] = _bytes(memory), _bytes(storage)
        more -= 1
    return AccountUsage(tiers, total, errors)


def _name(data: bytes, at: int, n: int) -> tuple[str, int]:
    """Return a tier's name, and the position behind it."""
    if n > len(data) - at:
        raise UsageError("Received corrupt remote usage update")
    return data[at : at + n].decode(errors="replace"), at + n


def _bytes(number: int) -> int:
    """Return 0 for a number below 0, which a server writes that has counted wrongly."""
    return number if number <= MAX_INT64 else 0


class UsageElsewhere:
    """What accounts use at other servers, those included that are offline."""

    def __init__(self) -> None:
        self._accounts: dict[str, dict[str, AccountUsage]] = {}

    def heard(self, subject: bytes, data: bytes, own: str) -> None:
        """Note a message; one about `own` peer is ignored. Raises UsageError."""
        account, _, peer = subject[len(SUBJECT) :].decode(errors="replace").rpartition(".")
        if not account or len(peer) != _PEER:
            raise UsageError("Received remote usage update with no remote node")
        if peer == own:
            return
        usage = decode_usage(data)
        if usage.api_total or any(any(used) for used in usage.tiers.values()):
            self._accounts.setdefault(account, {})[peer] = usage
        elif peers := self._accounts.get(account):
            peers.pop(peer, None)
            if not peers:
                del self._accounts[account]

    def used(self, account: str, tier: str) -> tuple[int, int]:
        """Return the bytes in memory and in files that an account uses in a tier."""
        found = [usage.tiers.get(tier, (0, 0)) for usage in self._accounts.get(account, {}).values()]
        memory, storage = sum(used[0] for used in found), sum(used[1] for used in found)
        return min(memory, MAX_INT64), min(storage, MAX_INT64)

    def tiers(self, account: str) -> set[str]:
        """Return the tiers in which an account uses something."""
        return {tier for usage in self._accounts.get(account, {}).values() for tier in usage.tiers}

    def requests(self, account: str) -> tuple[int, int]:
        """Return the numbers of an account's requests to the API, and of those that have failed."""
        found = self._accounts.get(account, {}).values()
        total, errors = sum(usage.api_total for usage in found), sum(usage.api_errors for usage in found)
        return min(total, MAX_UINT64), min(errors, MAX_UINT64)
