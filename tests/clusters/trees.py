"""Whole topologies with leaf nodes: clusters and single servers, each of a kind, that dial one another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.launch import Launch, launcher
from support.monitor import monitor
from support.servers import REFERENCE, Kind, Server, reserve_port, until

from .conftest import require_all
from .members import ACCOUNTS, member_kinds

MAPPINGS = next(line for line in ACCOUNTS.splitlines() if "mappings" in line)
UNMAPPED = ACCOUNTS.replace(MAPPINGS, "")
BARE = "\n".join(f"{name} {{ users: [ {{ user: {name.lower()}, password: p }} ] }}" for name in "ABCP")
BARE = f"accounts {{\n{BARE}\n}}"
"""The accounts of ACCOUNTS without exports, imports and mappings."""


@dataclass(frozen=True)
class Dial:
    """A remote of a place: the number of its hub, the account of both sides, and further lines of it."""

    hub: int
    account: str = "A"
    more: str = ""


@dataclass(frozen=True)
class Place:
    """A server of a topology.

    Places with the same `cluster` form one; "" is a server on its own. `block` are further lines of its
    leafnodes block. Only places with `maps` have the mappings of ACCOUNTS; those with `bare` have its
    accounts and users only.
    """

    cluster: str = ""
    dials: tuple[Dial, ...] = ()
    block: str = ""
    maps: bool = False
    bare: bool = False


@dataclass(frozen=True)
class Shape:
    """The places of a topology.

    `parted` are pairs of places, (publisher, subscriber), where interest of the second one does not get to
    the first. `accounts` are those that all places share.
    """

    places: tuple[Place, ...]
    parted: frozenset[tuple[int, int]] = frozenset()
    accounts: str = "A"

    def own(self, number: int) -> list[int]:
        """Return the places of one's cluster, itself among them."""
        cluster = self.places[number].cluster
        return [
            n for n, each in enumerate(self.places) if n == number or (cluster and each.cluster == cluster)
        ]

    def others(self, number: int) -> list[int]:
        """Return the places that are not of one's cluster."""
        own = self.own(number)
        return [n for n in range(len(self.places)) if n not in own]

    def beyond(self, number: int, peer: int) -> set[int]:
        """Return the places that one gets to over its leaf node connection with another one."""
        places = range(len(self.places))
        linked = {frozenset((n, dial.hub)) for n in places for dial in self.places[n].dials}
        linked |= {frozenset((n, m)) for n in places for m in self.own(n) if n != m}
        linked.discard(frozenset((number, peer)))
        found, new = set(), {peer}
        while new:
            found |= new
            new = {n for n in places if any(frozenset((n, m)) in linked for m in found)} - found
        return found

    def can_ask(self, requester: int, responder: int) -> bool:
        """Whether requests of one place get to another one, and the answers back."""
        return not {(requester, responder), (responder, requester)} & self.parted


def assignments(size: int) -> list[tuple[Kind, ...]]:
    """Return the kinds to try in so many places: one kind everywhere, and the reference in each place."""
    kinds = member_kinds()
    own = [kind for kind in kinds if not kind.is_reference]
    found = [(kind,) * size for kind in kinds]
    if own and REFERENCE in kinds:
        found += [
            tuple(REFERENCE if n == place else own[(n + place) % len(own)] for n in range(size))
            for place in range(size)
        ]
    return found


class Tree:
    """The running servers of a shape, called s0, s1 and so on; they keep their ports.

    `leaf_port` returns the port that a place dials to get to a hub, where it is not the hub's own.
    `block` are further lines of each leafnodes block, `config` lines outside of it.
    """

    def __init__(
        self,
        launch: Launch,
        shape: Shape,
        kinds: Sequence[Kind],
        *,
        leaf_port: Callable[[int, int], int] | None = None,
        block: str = "",
        config: str = "",
    ) -> None:
        self.shape = shape
        numbers = range(len(shape.places))
        self.route_ports = [reserve_port(self) for _ in numbers]
        self.leaf_ports = [reserve_port(self) for _ in numbers]
        self._leaf_port = leaf_port or (lambda place, hub: self.leaf_ports[hub])
        self.servers: list[Server] = [
            launch("-m", "-1", "-D", config=f"{config}\n{self._config(number, block)}", kind=kinds[number])
            for number in numbers
        ]

    def _config(self, number: int, block: str) -> str:
        place = self.shape.places[number]
        lines = [f"server_name: s{number}"]
        if place.cluster:
            routes = ", ".join(
                f"nats-route://127.0.0.1:{self.route_ports[n]}" for n in self.shape.own(number) if n != number
            )
            lines += [
                f"cluster {{ name: {place.cluster}, listen: '127.0.0.1:{self.route_ports[number]}'",
                f"compression: off, routes: [{routes}] }}",
            ]
        remotes = "\n".join(
            f"{{ url: 'nats-leaf://{dial.account.lower()}:p@127.0.0.1:{self._leaf_port(number, dial.hub)}'\n"
            f"account: {dial.account}\n{dial.more}\n}}"
            for dial in place.dials
        )
        lines += ["leafnodes {", "no_advertise: true", "reconnect: '0.2s'", block, place.block]
        if any(dial.hub == number for each in self.shape.places for dial in each.dials):
            lines.append(f"listen: '127.0.0.1:{self.leaf_ports[number]}'")
        lines += [f"remotes [ {remotes} ]" if remotes else "", "}", self._accounts(place)]
        return "\n".join(lines)

    @staticmethod
    def _accounts(place: Place) -> str:
        return BARE if place.bare else ACCOUNTS if place.maps else UNMAPPED

    def __getitem__(self, number: int) -> Server:
        return self.servers[number]

    def __len__(self) -> int:
        return len(self.servers)

    def wait(self) -> None:
        """Wait until the clusters and the leaf nodes have found each other."""
        for number in range(len(self)):
            until(lambda number=number: self.is_linked(number))  # type: ignore[misc]

    def is_linked(self, number: int) -> bool:
        """Whether a place has all its routes and leaf nodes."""
        dialled = [(f"s{dial.hub}", dial.account) for dial in self.shape.places[number].dials]
        accepted = [
            (f"s{n}", dial.account)
            for n, place in enumerate(self.shape.places)
            for dial in place.dials
            if dial.hub == number
        ]
        found = sorted((leaf["name"], leaf["account"]) for leaf in self.leafs(number))
        routes = monitor(self[number], "/routez").get("routes") or []
        others = {f"s{n}" for n in self.shape.own(number) if n != number}
        return found == sorted(dialled + accepted) and {route["remote_name"] for route in routes} == others

    def leafs(self, number: int) -> list[dict[str, Any]]:
        """Return the entries of a place's /leafz, with the subjects that the other side wants."""
        found: list[dict[str, Any]] = monitor(self[number], "/leafz?subs=1").get("leafs") or []
        return found


@contextmanager
def growing(directory: Path, shape: Shape, kinds: Sequence[Kind], **how: Any) -> Iterator[Tree]:
    """Run a shape whose places have found each other. `how`: see Tree."""
    require_all(tuple(kinds))
    with launcher(REFERENCE, directory) as launch:
        tree = Tree(launch, shape, kinds, **how)
        tree.wait()
        yield tree
