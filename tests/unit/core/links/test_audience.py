"""Whose interest each link tells its peer of: for any subscriptions, what a naive model says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.audience import Interest, Key, Place, apply, told_of
from support.dataplane import COMMAND, DataPlane, Peer, permissions
from support.process import SANITIZED

from gnats.core.accounts.account import Account
from gnats.core.links.leaf_session import LeafSession
from gnats.core.routing.services import ExportedService, ImportedService
from gnats.core.runtime.kinds import GATEWAY, LEAF, ROUTER
from gnats.options.values.auth import Permissions, SubjectPermission

pytestmark = pytest.mark.timeout(300)

EXAMPLES = 40 if SANITIZED else 300

SUBJECTS = (b"a", b"b.c", b"b.*", b"$LDS.other")
GROUPS = (b"", b"", b"g", b"h")
CLUSTERS = (b"", b"L1", b"L1", b"L2", b"H")
SERVICES = (b"a", b"serve")
DENIED = (b"a", b"b.c", b"serve")
MAPPED = ((), (b"a",), (b"b.c", b"from"))


@dataclass(eq=False)
class Actor:
    """A connection that subscribes: its peer, None while it is closed, and its interest, with weights."""

    number: int
    poller: int
    place: Place = field(default_factory=Place)
    peer: Peer | None = None
    interest: Interest = field(default_factory=dict)
    told: Interest = field(default_factory=dict)
    """What it has been told of, line by line."""

    def open(self, plane: DataPlane, account: Account) -> Peer:
        raise NotImplementedError

    def close(self) -> None:
        """End the connection, and with it what it subscribes to."""
        assert self.peer is not None
        self.peer.socket.close()
        self.peer = None
        self.interest.clear()
        self.told.clear()

    def subscribe(self, origin: bytes, key: Key, weight: int) -> None:
        """Subscribe, or change the weight."""
        raise NotImplementedError

    def unsubscribe(self, origin: bytes, key: Key) -> None:
        """Undo subscribe(), if there is that subscription."""
        raise NotImplementedError

    def expected(self, world: World) -> Interest:
        """Return what it must have been told of."""
        return {}

    def read(self, line: bytes) -> None:
        """Apply a line of interest."""


class ClientActor(Actor):
    """A client, which may subscribe to the same several times: it weighs the number."""

    sid = 0

    def open(self, plane: DataPlane, account: Account) -> Peer:
        self.sids: dict[Key, list[int]] = {}
        return plane.client(account, self.poller)

    def subscribe(self, origin: bytes, key: Key, weight: int) -> None:
        assert self.peer is not None
        self.sid += 1
        self.sids.setdefault(key, []).append(self.sid)
        self.peer.send(b"SUB %b %b %d\r\n" % (*key, self.sid))
        self.interest[b"", key] = len(self.sids[key])

    def unsubscribe(self, origin: bytes, key: Key) -> None:
        assert self.peer is not None
        if sids := self.sids.get(key):
            self.peer.send(b"UNSUB %d\r\n" % sids.pop(0))
            self.interest[b"", key] = len(sids)
            if not sids:
                del self.interest[b"", key]


@dataclass(eq=False)
class LeafActor(Actor):
    """A leaf node, or a hub."""

    denied: tuple[bytes, ...] = ()
    mapped: tuple[bytes, ...] = ()

    @property
    def loop_subject(self) -> bytes:
        return b"$LDS.%d" % self.number

    def open(self, plane: DataPlane, account: Account) -> Peer:
        return plane.leaf(
            account,
            self.poller,
            cluster=self.place.cluster,
            spoke=self.place.spoke,
            isolated=self.place.isolated,
            loop_subject=self.loop_subject,
            mapped=self.mapped,
            permissions=denial(self.denied),
        )

    def deny(self, denied: tuple[bytes, ...]) -> None:
        """Announce other subjects."""
        assert self.peer is not None
        assert isinstance(self.peer.session, LeafSession)
        self.peer.session.set_permissions(denial(denied))
        self.denied = denied

    def map(self, mapped: tuple[bytes, ...]) -> None:
        """Announce other mapped subjects."""
        assert self.peer is not None
        assert isinstance(self.peer.session, LeafSession)
        self.peer.session.set_mapped(mapped)
        self.mapped = mapped

    def subscribe(self, origin: bytes, key: Key, weight: int) -> None:
        assert self.peer is not None
        self.peer.send(b"LS+ %b\r\n" % b" ".join((*key, b"%d" % weight) if key[1] else key[:1]))
        self.interest[b"", key] = weight if key[1] else 1

    def unsubscribe(self, origin: bytes, key: Key) -> None:
        assert self.peer is not None
        self.peer.send(b"LS- %b\r\n" % b" ".join(filter(None, key)))
        self.interest.pop((b"", key), None)

    def expected(self, world: World) -> Interest:
        services = {(b"", (subject, b"")): 1 for subject in world.services}
        told = told_of(self.place, [*world.interest(), (Place(), services)])
        told = {key: weight for key, weight in told.items() if key[1][0] not in self.denied}
        for subject in (*self.mapped, self.loop_subject):
            if not self.place.spoke or subject not in self.denied:
                told[b"", (subject, b"")] = 1
        return told

    def read(self, line: bytes) -> None:
        apply(self.told, line, b"")


@dataclass(eq=False)
class RouteActor(Actor):
    """Another server of the cluster."""

    def open(self, plane: DataPlane, account: Account) -> Peer:
        return plane.route(self.poller, origins=self.place.origins)

    def subscribe(self, origin: bytes, key: Key, weight: int) -> None:
        assert self.peer is not None
        verb = b"LS+ %b A" % origin if origin else b"RS+ A"
        self.peer.send(b"%b %b\r\n" % (verb, b" ".join((*key, b"%d" % weight) if key[1] else key[:1])))
        self.interest[origin, key] = weight if key[1] else 1

    def unsubscribe(self, origin: bytes, key: Key) -> None:
        assert self.peer is not None
        verb = b"LS- %b A" % origin if origin else b"RS- A"
        self.peer.send(b"%b %b\r\n" % (verb, b" ".join(filter(None, key))))
        self.interest.pop((origin, key), None)

    def expected(self, world: World) -> Interest:
        return told_of(self.place, world.interest())

    def read(self, line: bytes) -> None:
        assert line.startswith(b"R") or self.place.origins, line
        apply(self.told, line)


@dataclass(eq=False)
class InboundActor(Actor):
    """A server of another cluster that sends messages, and is told of interest."""

    begun: set[bytes] = field(default_factory=set)
    """The INFO commands that have come about the account."""

    def open(self, plane: DataPlane, account: Account) -> Peer:
        self.begun.clear()
        return plane.inbound(self.poller)

    def subscribe(self, origin: bytes, key: Key, weight: int) -> None:
        """Do nothing: the connection would end."""

    def unsubscribe(self, origin: bytes, key: Key) -> None:
        """Do nothing, as well."""

    def expected(self, world: World) -> Interest:
        assert self.begun == {b"2", b"3"}
        return told_of(self.place, world.interest())

    def read(self, line: bytes) -> None:
        if line.startswith(COMMAND):
            if line[len(COMMAND) + 1 :] == b',"gateway_cmd_payload":"QQ=="}':
                self.begun.add(line[len(COMMAND) :][:1])
            return
        assert b"2" in self.begun, line
        apply(self.told, line)


@dataclass(eq=False)
class OutboundActor(Actor):
    """A server of another cluster that is sent messages, and tells of interest."""

    def open(self, plane: DataPlane, account: Account) -> Peer:
        return plane.outbound(self.poller)

    def subscribe(self, origin: bytes, key: Key, weight: int) -> None:
        assert self.peer is not None
        self.peer.send(b"RS+ A %b\r\n" % b" ".join((*key, b"1") if key[1] else key[:1]))
        self.interest[b"", key] = 1

    def unsubscribe(self, origin: bytes, key: Key) -> None:
        assert self.peer is not None
        self.peer.send(b"RS- A %b\r\n" % b" ".join(filter(None, key)))
        self.interest.pop((b"", key), None)


class World:
    """A data plane whose connections come and go."""

    def __init__(self, plane: DataPlane, actors: list[Actor]) -> None:
        self.plane = plane
        self.account = plane.account("A")
        self.exporter = plane.account("S")
        self.actors = actors
        self.services: dict[bytes, ImportedService] = {}

    def open_actors(self) -> Iterator[Actor]:
        return (actor for actor in self.actors if actor.peer is not None)

    def interest(self) -> list[tuple[Place, Interest]]:
        """Return what all connections subscribe to."""
        return [(actor.place, actor.interest) for actor in self.open_actors()]

    def toggle_service(self, subject: bytes) -> None:
        """Import a service, or do so no longer."""
        if imported := self.services.pop(subject, None):
            imported.close()
            return
        self.services[subject] = ImportedService(
            self.account, ExportedService(self.exporter, "singleton", 60.0), subject, b"to", None,
            use_published=False, share=False, to_system=False, sid=subject,
        )  # fmt: skip

    def do(self, step: Step) -> None:
        """Take a step."""
        actor = self.actors[step.actor % len(self.actors)]
        key = SUBJECTS[step.subject], GROUPS[step.group]
        origin = (b"", b"L1", b"L2")[step.choice % 3]
        if step.what == "service":
            self.toggle_service(SERVICES[step.choice % len(SERVICES)])
        elif actor.peer is None:
            actor.peer = actor.open(self.plane, self.account)
        elif step.what == "close":
            actor.close()
        elif step.what == "subscribe":
            actor.subscribe(origin, key, step.weight)
        elif step.what == "unsubscribe":
            actor.unsubscribe(origin, key)
        elif step.what == "deny" and isinstance(actor, LeafActor):
            actor.deny(DENIED[: step.choice % (len(DENIED) + 1)])
        elif step.what == "map" and isinstance(actor, LeafActor):
            actor.map(MAPPED[step.choice % len(MAPPED)])
        if step.pause:
            self.check()

    def check(self) -> None:
        """Compare what all peers have been told with what they must have been."""
        for actor in list(self.open_actors()):
            assert actor.peer is not None
            for line in actor.peer.hear().splitlines():
                actor.read(line)
        for actor in self.open_actors():
            assert actor.told == actor.expected(self), actor


@dataclass(frozen=True)
class Step:
    """Something that happens; `pause`: nothing else does before all peers have been told."""

    what: str
    actor: int
    subject: int
    group: int
    weight: int
    choice: int
    pause: bool


def denial(subjects: tuple[bytes, ...]) -> object:
    """Compile permissions that forbid to announce subjects."""
    if not subjects:
        return None
    return permissions(
        Permissions(subscribe=SubjectPermission(deny=tuple(subject.decode() for subject in subjects)))
    )


LEAVES = st.builds(
    Place,
    st.just(LEAF),
    cluster=st.sampled_from(CLUSTERS),
    spoke=st.booleans(),
    isolated=st.sampled_from((False, False, True)),
)
ROUTES = st.builds(Place, st.just(ROUTER), origins=st.sampled_from((2, 3, 0)))
KINDS = st.one_of(
    st.just(ClientActor),
    st.builds(partial, st.just(LeafActor), place=LEAVES),
    st.builds(partial, st.just(RouteActor), place=ROUTES),
    st.just(partial(InboundActor, place=Place(GATEWAY))),
    st.just(partial(OutboundActor, place=Place(GATEWAY))),
)
PLACED = st.tuples(KINDS, st.integers(0, 1))
"""A kind of connection, and its poller."""
STEPS = st.builds(
    Step,
    st.sampled_from(("subscribe",) * 6 + ("unsubscribe",) * 4 + ("close", "service", "deny", "map")),
    st.integers(0, 5),
    st.integers(0, len(SUBJECTS) - 1),
    st.integers(0, len(GROUPS) - 1),
    st.integers(1, 5),
    st.integers(0, 11),
    st.booleans(),
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(placed=st.lists(PLACED, min_size=2, max_size=6), steps=st.lists(STEPS, max_size=40))
@pytest.mark.parametrize("pollers", [1, 2], ids=["one poller", "two"])
def test_peers_are_told_what_the_model_says(
    pollers: int, placed: list[tuple[Callable[[int, int], Actor], int]], steps: list[Step]
) -> None:
    with DataPlane(pollers) as plane:
        world = World(plane, [kind(n, place % pollers) for n, (kind, place) in enumerate(placed)])
        for step in steps:
            world.do(step)
        world.check()
        for imported in world.services.values():
            imported.close()
