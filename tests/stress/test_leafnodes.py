"""Leaf nodes, hubs and routes while threads change all that they announce, and connections die.

The invariant of docs/routes.md (3.4): no message overtakes the interest that preceded it. At the end, each
peer has been told of what a naive model says.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial

import pytest
from support.audience import Interest, Key, Place, apply, told_of
from support.dataplane import Peer, permissions
from support.process import SANITIZED
from support.runningplane import PONG, RunningPlane, Wire
from support.servers import until
from support.stress import SCALE, together

from gnats.core.accounts.account import Account
from gnats.core.links.leaf_session import LeafSession
from gnats.core.runtime.kinds import LEAF, ROUTER
from gnats.options.values.auth import Permissions, SubjectPermission

pytestmark = pytest.mark.timeout(300 * SCALE)

REQUESTS = (60 if SANITIZED else 300) * SCALE
DEATHS = (15 if SANITIZED else 80) * SCALE
MAPPED = ((), (b"churn.1",), (b"churn.2", b"churn.3"))
DENIED: tuple[tuple[str, ...], ...] = ((), ("churn.1", "churn.2"), ("churn.>",))
SEEN_LOOP = b"$LDS.own"
GREETING = b"INFO {}\r\n"


@pytest.fixture(params=[2, 3], ids=["two pollers", "three"])
def plane(request: pytest.FixtureRequest) -> Iterator[RunningPlane]:
    with RunningPlane(request.param) as running:
        yield running


class Link(Wire):
    """A leaf node, a hub or another server that stays.

    It answers requests, and must know the inbox of each.
    """

    def __init__(self, plane: RunningPlane, account: Account, place: Place, poller: int) -> None:
        self.place = place
        self.interest: Interest = {(b"", (b"svc", b"")): 1, (b"", (b"group", b"g")): 2}
        self.told: Interest = {}
        self.asked = 0
        self.fences = 0
        self.mapped: tuple[bytes, ...] = ()
        self.denied: tuple[str, ...] = ()
        self.answers: list[bytes] = []
        self.heard = threading.Condition()
        with plane.control:
            super().__init__(connect(plane, account, place, poller))
        self.until(GREETING)
        verb = b"LS+" if place.kind == LEAF else b"RS+ A"
        self.send(b"%b svc\r\n%b group g 2\r\n" % (verb, verb))
        self.account = b"" if place.kind == LEAF else b"A"

    def serve(self) -> None:
        """Answer requests until the connection ends."""
        with suppress(EOFError):
            while True:
                self.handle(self.op())

    def handle(self, op: bytes) -> None:
        words = op.partition(b"\r\n")[0].split(b" ")
        if words[0] in (b"LS+", b"LS-", b"RS+", b"RS-"):
            apply(self.told, op, self.account)
        elif words[0] in (b"LMSG", b"RMSG"):
            on_behalf = words[0] == b"LMSG" and self.account
            origin = words.pop(1) if on_behalf else b""
            if self.account:
                assert words.pop(1) == self.account
            if words[1] in (b"svc", b"group"):
                inbox = words[3] if words[2] == b"+" else words[2]
                assert (origin, (inbox, b"")) in self.told, f"{op!r} came before its interest"
                self.asked += 1
                self.publish(inbox, b"ok")
            else:
                with self.heard:
                    self.answers.append(words[1])
                    self.heard.notify()
        elif op == PONG:
            with self.heard:
                self.fences += 1
                self.heard.notify()
        else:
            raise AssertionError(op)

    def publish(self, subject: bytes, payload: bytes, reply: bytes = b"") -> None:
        words = [b"LMSG", subject] if self.place.kind == LEAF else [b"RMSG", b"A", subject]
        words += [reply] if reply else []
        self.send(b"%b %d\r\n%b\r\n" % (b" ".join(words), len(payload), payload))

    def subscribe(self, subject: bytes, begins: bool = True) -> None:
        verb = b"LS" if self.place.kind == LEAF else b"RS"
        about = subject if self.place.kind == LEAF else b"A " + subject
        self.send(b"%b%b %b\r\n" % (verb, b"+" if begins else b"-", about))

    def ask(self, number: int, answers: int) -> None:
        """Send requests, each with an inbox of its own; require that number of answers to each."""
        for n in range(REQUESTS):
            inbox = b"link.%d.%d" % (number, n)
            self.subscribe(inbox)
            self.publish(b"svc", b"x", inbox)
            with self.heard:
                assert self.heard.wait_for(lambda: len(self.answers) >= answers, 60), (n, self.answers)
                assert self.answers == [inbox] * answers
                self.answers.clear()
            self.subscribe(inbox, begins=False)
        self.pass_fence()

    def pass_fence(self) -> None:
        """Return when what has been sent has been handled; another thread reads."""
        with self.heard:
            before = self.fences
            self.send(b"PING\r\n")
            assert self.heard.wait_for(lambda: self.fences > before, 60)

    def expected(self, places: list[tuple[Place, Interest]]) -> Interest:
        """Return what the peer must have been told of."""
        told = told_of(self.place, places)
        if self.place.kind == LEAF:
            told = {key: weight for key, weight in told.items() if not is_denied(self.denied, key[1][0])}
            for subject in self.mapped:
                if not self.place.spoke or not is_denied(self.denied, subject):
                    told[b"", (subject, b"")] = 1
            told[b"", (SEEN_LOOP, b"")] = 1
        return told


def is_denied(denied: tuple[str, ...], subject: bytes) -> bool:
    """Return whether permissions forbid to announce a subject."""
    text = subject.decode()
    return text in denied or ("churn.>" in denied and text.startswith("churn."))


def connect(
    plane: RunningPlane, account: Account, place: Place, poller: int, loop: bytes = SEEN_LOOP
) -> Peer:
    """Connect a leaf node, a hub or another server."""
    if place.kind == ROUTER:
        return plane.route(poller, origins=place.origins, greeting=GREETING)
    return plane.leaf(
        account,
        poller,
        cluster=place.cluster,
        spoke=place.spoke,
        isolated=place.isolated,
        loop_subject=loop,
        greeting=GREETING,
    )


class Links:
    """Links that stay, each with a thread that reads."""

    def __init__(self, stack: ExitStack, plane: RunningPlane, account: Account, places: list[Place]) -> None:
        pollers = len(plane.pollers)
        self.all = [
            stack.enter_context(Link(plane, account, place, n % pollers)) for n, place in enumerate(places)
        ]
        self.failed: list[BaseException] = []
        self._threads = [threading.Thread(target=self._serve, args=(link,)) for link in self.all]
        for thread in self._threads:
            thread.start()
        for link in self.all:
            link.pass_fence()

    def _serve(self, link: Link) -> None:
        try:
            link.serve()
        except BaseException as exc:  # noqa: BLE001 - handed to the test
            self.failed.append(exc)
            link.close()

    def end(self) -> None:
        """Close all connections; raise what a thread has raised."""
        for link in self.all:
            link.close()
        for thread in self._threads:
            thread.join()
        if self.failed:
            raise self.failed[0]


def client(plane: RunningPlane, account: Account, poller: int) -> Wire:
    """Connect a client; it is verbose."""
    with plane.control:
        return Wire(plane.client(account, poller))


def ask(plane: RunningPlane, account: Account, poller: int, number: int, answers: int) -> None:
    """Send requests as a client does, each with an inbox of its own, to all and to a queue group."""
    with client(plane, account, poller) as wire:
        for n in range(REQUESTS):
            for service, most in ((b"svc", answers), (b"group", 1)):
                inbox = b"in.%d.%d.%b" % (number, n, service)
                wire.send(b"SUB %b %d\r\nPUB %b %b 1\r\nx\r\n" % (inbox, n, service, inbox))
                for _ in range(most):
                    assert wire.until(b"MSG ").startswith(b"MSG %b %d 2\r\nok" % (inbox, n))
                wire.send(b"UNSUB %d\r\n" % n)
        wire.fence()


def ask_through_others(plane: RunningPlane, account: Account, number: int, answers: int) -> None:
    """Have a client of another poller ask, with an inbox that the first one has told it of."""
    relay = b"relay.%d" % number
    last = len(plane.pollers) - 1
    with client(plane, account, 0) as first, client(plane, account, last) as second:
        second.send(b"SUB %b 1\r\n" % relay)
        second.fence()
        for n in range(REQUESTS):
            inbox = b"through.%d.%d" % (number, n)
            first.send(b"SUB %b %d\r\nPUB %b %b 0\r\n\r\n" % (inbox, n, relay, inbox))
            asked = second.until(b"MSG ").split(b" ")[3]
            assert asked == inbox
            second.send(b"PUB svc %b 1\r\nx\r\n" % asked)
            for _ in range(answers):
                first.until(b"MSG %b " % inbox)
            first.send(b"UNSUB %d\r\n" % n)
        first.fence()


def churn(plane: RunningPlane, account: Account, seed: int, done: threading.Event) -> tuple[Wire, Interest]:
    """Subscribe and unsubscribe, in groups and not, until the others are done; return what is left."""
    rng = random.Random(seed)
    while True:
        last = done.is_set()
        wire = client(plane, account, rng.randrange(len(plane.pollers)))
        left: dict[int, Key] = {}
        for sid in range(200):
            key = b"churn.%d" % rng.randrange(5), rng.choice((b"", b"g", b"h"))
            wire.send(b"SUB %b %b %d\r\n" % (*key, sid))
            left[sid] = key
            if rng.random() < 0.8:
                gone = rng.choice(list(left))
                wire.send(b"UNSUB %d\r\nPUB churn.1 1\r\nx\r\n" % gone)
                del left[gone]
        wire.fence()
        if last:
            interest: Interest = {}
            for key in left.values():
                interest[b"", key] = interest.get((b"", key), 0) + 1
            return wire, interest
        with wire:
            pass


def die(plane: RunningPlane, account: Account, seed: int) -> None:
    """Connect as any kind of link, tell of interest, publish, and close the connection."""
    rng = random.Random(seed)
    for n in range(DEATHS):
        place = rng.choice(
            (
                Place(LEAF, cluster=rng.choice((b"L1", b"L2", b"L3", b"")), isolated=rng.random() < 0.2),
                Place(LEAF, cluster=rng.choice((b"H", b"L1")), spoke=True),
                Place(ROUTER, origins=rng.choice((0, 2))),
            )
        )
        with plane.control:
            poller, loop = rng.randrange(len(plane.pollers)), b"$LDS.%d" % rng.randrange(3)
            peer = connect(plane, account, place, poller, loop)
        with Wire(peer) as wire, suppress(OSError, EOFError):
            if n % 4:
                wire.until(GREETING)  # else its interest may come before it is registered
            wire.send(b"".join(random_line(rng, place) for _ in range(150)))
            if n % 3:
                wire.fence()


def random_line(rng: random.Random, place: Place) -> bytes:
    subject = rng.choice((b"churn.%d" % rng.randrange(5), b"churn.*", b"$LDS.far"))
    group = rng.choice((b"", b"g", b"h"))
    begins = rng.random() < 0.6
    weight = b" %d" % rng.randrange(1, 5) if group and begins else b""
    rest = b"%b%b%b\r\n" % (subject, b" " + group if group else b"", weight)
    verb = b"S+" if begins else b"S-"
    leaf = place.kind == LEAF
    if rng.random() < 0.3:
        return b"%b churn.%d 1\r\nx\r\n" % (b"LMSG" if leaf else b"RMSG A", rng.randrange(5))
    if leaf:
        return b"L" + verb + b" " + rest
    if rng.random() < 0.5:
        return b"L%b %b A %b" % (verb, rng.choice((b"L1", b"L9")), rest)
    return b"R%b A %b" % (verb, rest)


def change(plane: RunningPlane, links: list[Link], done: threading.Event) -> None:
    """Change permissions and mapped subjects of leaf nodes until the others are done."""
    rng = random.Random(1)
    while not done.wait(0.001):
        link = rng.choice(links)
        assert isinstance(link.session, LeafSession)
        with plane.control:
            if rng.random() < 0.5:
                link.mapped = rng.choice(MAPPED)
                link.session.set_mapped(link.mapped)
            else:
                link.denied = rng.choice(DENIED)
                link.session.set_permissions(
                    permissions(Permissions(subscribe=SubjectPermission(deny=link.denied)))
                    if link.denied
                    else None
                )


def refused(hub: Link, done: threading.Event) -> None:
    """Subscribe, as a hub, to what changing permissions do not forbid."""
    while not done.is_set():
        hub.subscribe(b"churn.far")
        hub.subscribe(b"churn.far", begins=False)
        hub.pass_fence()


def test_no_message_overtakes_interest_and_all_are_told(plane: RunningPlane) -> None:
    """Of clients, leaf nodes, a hub and routes, on all pollers, while everything changes."""
    account = plane.account("A")
    places = [
        Place(LEAF, cluster=b"L1"),
        Place(LEAF, cluster=b"L2"),
        Place(ROUTER),
        Place(LEAF, cluster=b"H", spoke=True),
        Place(ROUTER, origins=0),
        Place(LEAF, cluster=b"L3"),
    ]
    done = threading.Event()
    left: list[tuple[Wire, Interest]] = []
    with ExitStack() as stack:
        links = Links(stack, plane, account, places)
        leaf, hub, route = links.all[1], links.all[3], links.all[2]
        every = len(places)

        def work() -> None:
            try:
                jobs: list[Callable[[], None]] = [
                    partial(ask, plane, account, n % len(plane.pollers), n, every) for n in range(2)
                ]
                jobs.append(partial(ask_through_others, plane, account, 0, every))
                jobs.append(partial(leaf.ask, 0, every - 1))
                jobs.append(partial(hub.ask, 1, 3))  # leaf nodes; what a hub sends goes no further
                jobs.append(partial(route.ask, 2, 3))
                jobs += [partial(die, plane, account, seed) for seed in range(2)]
                together(*jobs)
            finally:
                done.set()

        def churning(seed: int) -> None:
            left.append(churn(plane, account, seed, done))

        try:
            together(
                work,
                *(partial(churning, seed) for seed in range(2)),
                partial(change, plane, [link for link in links.all if link.place.kind == LEAF], done),
                partial(refused, hub, done),
            )
            for wire, _ in left:
                stack.enter_context(wire)
            every_interest = [(link.place, link.interest) for link in links.all]
            every_interest += [(Place(), interest) for _, interest in left]
            for link in links.all:
                wanted = link.expected(every_interest)
                with suppress(TimeoutError, AssertionError):
                    until(lambda link=link, wanted=wanted: links.failed or link.told == wanted)  # type: ignore[misc]
                assert links.failed or link.told == wanted, link.place
        finally:
            links.end()
        assert min(link.asked for link in links.all) >= REQUESTS
    assert not plane.posted
