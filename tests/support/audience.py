"""A naive model of whose interest a link's peer is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gnats.core.runtime.kinds import CLIENT, GATEWAY, LEAF, ROUTER

Key = tuple[bytes, bytes]
"""A subject and a queue group."""
Interest = dict[tuple[bytes, Key], int]
"""The weight of subscriptions by origin, which only routes know of, subject and queue group."""


@dataclass(eq=False)
class Place:
    """Where a connection leads: a client's has only a kind."""

    kind: int = CLIENT
    cluster: bytes = b""
    """Of the leaf node at the other end; empty: it is in none."""
    spoke: bool = False
    """Of a leaf node: the peer is the hub."""
    isolated: bool = False
    origins: int = 2
    """Of a route: 0 when the peer knows no origins, 3 when it also knows the one that is no cluster."""


def same(cluster: bytes, other: bytes) -> bool:
    """Return whether two names are those of one cluster; an empty one is none's."""
    return bool(cluster) and cluster == other


def is_told(place: Place, of: Place, origin: bytes, subject: bytes) -> bool:
    """Return whether the peer at a place is told of a subscription that another connection has."""
    if of.kind == CLIENT:
        return True
    if place.kind == GATEWAY:
        return of.kind == ROUTER or (of.kind == LEAF and not of.spoke)
    if place.kind == ROUTER:
        return of.kind == LEAF and not of.spoke
    free = not place.spoke or subject.startswith(b"$LDS.")
    if of.kind == GATEWAY:
        return free
    if of.kind == ROUTER:
        return free and not same(origin, place.cluster)
    if of is place or place.isolated or same(of.cluster, place.cluster):
        return False
    return free or not of.spoke


def told_of(place: Place, interest: Iterable[tuple[Place, Mapping[tuple[bytes, Key], int]]]) -> Interest:
    """Return the interest that the peer at a place is told of: a weight is 1 outside of queue groups.

    To a gateway it always is.
    """
    total: Counter[tuple[bytes, Key]] = Counter()
    for of, subscriptions in interest:
        for (origin, key), weight in subscriptions.items():
            if is_told(place, of, origin, key[0]):
                by_origin = place.kind == ROUTER and of.kind == LEAF and place.origins
                none = b"_" if place.origins == 3 else b""
                total[(of.cluster or none) if by_origin else b"", key] += weight
    weighs = place.kind != GATEWAY
    return {key: weight if weighs and key[1][1] else 1 for key, weight in total.items()}


def apply(told: Interest, line: bytes, account: bytes = b"A") -> None:
    """Apply a line of interest, RS+, RS-, LS+ of a route or LS+ of a leaf node, to what has been told before.

    Lines of routes and gateways name `account`; empty: lines of a leaf node.
    """
    verb, *words = line.removesuffix(b"\r\n").split(b" ")
    assert verb in (b"LS+", b"LS-", b"RS+", b"RS-"), line
    origin = words.pop(0) if account and verb[:1] == b"L" else b""
    assert not account or words.pop(0) == account, line
    begins = verb[2:] == b"+"
    assert len(words) in ((1, 3) if begins else (1, 2)), line
    key = origin, (words[0], words[1] if len(words) > 1 else b"")
    if begins:
        told[key] = int(words[2]) if len(words) > 1 else 1
    else:
        told.pop(key, None)
