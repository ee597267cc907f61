"""Routes while threads change interest and publish, accounts come and go, and other servers connect and die.

The invariant of docs/routes.md (3.4): no message overtakes the interest that preceded it.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial

import pytest
from support.peer import Peer
from support.process import SANITIZED
from support.routepeer import Fake, RoutePeer
from support.servers import until
from support.stress import SCALE, together
from support.wire import PONG, Closed, connect_op

from gnats.options.options import Options
from gnats.options.values.accounts import AccountConfig
from gnats.options.values.auth import User
from gnats.options.values.cluster import OFF, ClusterOptions, Compression
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(300 * SCALE)

REQUESTS = (100 if SANITIZED else 600) * SCALE
REQUESTERS = 4
CONNECTIONS = (5 if SANITIZED else 30) * SCALE
DEATHS = (15 if SANITIZED else 100) * SCALE
STEADY = ("A", "B")
"""Accounts that stay."""


def configuration(base: Options, n: int) -> Options:
    """Return configuration n: each other account is there in every second one."""
    passing = [f"X{i}" for i in range(4) if (n + i) % 2]
    names = [*STEADY, *passing]
    return replace(
        base,
        accounts=[AccountConfig(name) for name in names],
        users=[User(name.lower(), "pw", account=name) for name in names],
        system_account="",
    )


@pytest.fixture(params=[2, 3])
def server(request: pytest.FixtureRequest) -> Iterator[ServerThread]:
    cluster = ClusterOptions(port=-1, name="C", compression=Compression(OFF))
    opts = configuration(Options(port=-1, server_name="here", io_threads=request.param, cluster=cluster), 0)
    with ServerThread(opts) as running:
        yield running


def route_address(server: ServerThread) -> tuple[str, int]:
    """Return where the server listens for routes."""
    return "127.0.0.1", server.call(lambda s: s.cluster.port if s.cluster else 0)


def login(name: str) -> bytes:
    return connect_op(name.lower(), "pw")


class Remote:
    """A server that answers requests, and checks that it knows the inbox of each."""

    def __init__(self, peer: RoutePeer, account: bytes) -> None:
        self.peer = peer
        self.account = account
        self.known: set[bytes] = set()
        self.asked = 0
        self.peer.send(b"RS+ %b svc\r\nRS+ %b group g 2\r\n" % (account, account))
        for op in peer.opening:
            self.read(op)

    def read(self, op: bytes) -> bytes:
        """Note interest; return the inbox of a request. Raises AssertionError when it is not known."""
        words = op.partition(b"\r\n")[0].split(b" ")
        if words[0] in (b"RS+", b"RS-") and words[1] == self.account and len(words) == 3:
            (self.known.add if words[0] == b"RS+" else self.known.discard)(words[2])
        elif words[0] == b"RMSG" and words[1] == self.account and words[2] in (b"svc", b"group"):
            inbox = words[4] if words[3] == b"+" else words[3]
            assert inbox in self.known, f"{op!r} came before its interest"
            return inbox
        return b""

    def serve(self) -> None:
        """Answer requests until the connection ends."""
        with suppress(Closed):
            while True:
                if inbox := self.read(self.peer.read_op()):
                    self.asked += 1
                    self.peer.send(b"RMSG %b %b 2\r\nok\r\n" % (self.account, inbox))


class Remotes:
    """Servers of one account each, with a connection on each of the pollers, that serve in threads."""

    def __init__(self, stack: ExitStack, address: tuple[str, int], each: int) -> None:
        self.all = [
            Remote(stack.enter_context(Fake()).dial(address), account.encode())
            for account in STEADY
            for _ in range(each)
        ]
        self.failed: list[BaseException] = []
        self._threads = [threading.Thread(target=self._serve, args=(remote,)) for remote in self.all]
        for thread in self._threads:
            thread.start()

    def _serve(self, remote: Remote) -> None:
        try:
            remote.serve()
        except BaseException as exc:  # noqa: BLE001 - handed to the test
            self.failed.append(exc)
            remote.peer.close()

    def end(self) -> None:
        """Close all connections; raise what a thread has raised."""
        for remote in self.all:
            with suppress(OSError):
                remote.peer.sock.shutdown(2)
        for thread in self._threads:
            thread.join()
        if self.failed:
            raise self.failed[0]


def ask(port: int, account: str, number: int, answers: int) -> None:
    """Send requests, each with an inbox of its own; require that number of answers to each."""
    with Peer(port, login(account)) as peer:
        peer.sock.settimeout(60)
        for n in range(REQUESTS):
            inbox = b"in.%d.%d" % (number, n)
            peer.send(b"SUB %b %d\r\nPUB svc %b 1\r\nx\r\n" % (inbox, n, inbox))
            for _ in range(answers):
                assert peer.until(b"\r\n").startswith(b"MSG %b %d 2" % (inbox, n))
                assert peer.until(b"\r\n") == b"ok\r\n"
            peer.send(b"UNSUB %d\r\n" % n)
        assert peer.fence() == PONG


def ask_through_others(port: int, account: str, number: int) -> None:
    """Have a second client ask, with an inbox that the first one has told it of.

    The inbox is the first client's: its interest precedes what the second one publishes because of it.
    """
    relay = b"relay.%b.%d" % (account.encode(), number)
    with Peer(port, login(account)) as first, Peer(port, login(account)) as second:
        for peer in first, second:
            peer.sock.settimeout(60)
        second.send(b"SUB %b 1\r\n" % relay)
        second.fence()
        for n in range(REQUESTS):
            inbox = b"through.%d.%d" % (number, n)
            first.send(b"SUB %b %d\r\nPUB %b %b 0\r\n\r\n" % (inbox, n, relay, inbox))
            asked = second.until(b"\r\n\r\n").split(b" ")[3]
            assert asked == inbox
            second.send(b"PUB group %b 1\r\nx\r\n" % asked)
            assert first.until(b"ok\r\n").startswith(b"MSG %b %d 2\r\n" % (inbox, n))
            first.send(b"UNSUB %d\r\n" % n)
        first.fence()


def churn(port: int, account: str, seed: int, done: threading.Event) -> None:
    """Subscribe and unsubscribe, in groups and not, until the others are done."""
    rng = random.Random(seed)
    with suppress(OSError, EOFError):
        while not done.is_set():
            with Peer(port, login(account)) as peer:
                for sid in range(200):
                    group = rng.choice((b"", b" g", b" h"))
                    peer.send(b"SUB churn.%d.%d%b %d\r\n" % (seed, rng.randrange(30), group, sid))
                    if rng.random() < 0.7:
                        peer.send(b"UNSUB %d\r\nPUB churn.%d.1 1\r\nx\r\n" % (rng.randrange(sid + 1), seed))
                peer.fence()


def test_no_message_overtakes_interest(server: ServerThread) -> None:
    """Of many clients, in two accounts, to servers whose connections are on all pollers."""
    done = threading.Event()
    each = 3
    own = sum(subscriptions(server))
    with ExitStack() as stack:
        remotes = Remotes(stack, route_address(server), each)
        until(lambda: sum(subscriptions(server)) >= own + 2 * each * len(STEADY))

        def work() -> None:
            try:
                jobs = [
                    partial(ask, server.port, account, number, each)
                    for account in STEADY
                    for number in range(REQUESTERS)
                ]
                jobs += [partial(ask_through_others, server.port, account, 0) for account in STEADY]
                together(*jobs)
            finally:
                done.set()

        try:
            together(work, *(partial(churn, server.port, account, ord(account), done) for account in STEADY))
            until(lambda: not any(remote.known for remote in remotes.all))
        finally:
            remotes.end()
        assert min(remote.asked for remote in remotes.all) >= REQUESTERS * REQUESTS


def test_no_message_overtakes_interest_that_is_walked(server: ServerThread) -> None:
    """Servers connect where there is much interest, and are sent requests while they are told of it."""
    address = route_address(server)
    many = 5_000 if SANITIZED else 20_000
    done = threading.Event()

    def request(number: int) -> None:
        """Send requests with inboxes that stay, since the end of interest may precede that of its request."""
        with Peer(server.port, login("A")) as peer:
            for n in itertools.count():
                if done.is_set():
                    return
                inbox = b"in.%d.%d" % (number, n)
                peer.send(b"SUB %b %d\r\nPUB svc %b 1\r\nx\r\n" % (inbox, n, inbox))
                peer.fence()

    def connect() -> None:
        try:
            for _ in range(CONNECTIONS):
                with Fake() as fake:
                    peer = fake.greet(address)
                    peer.send(fake.connect() + fake.info() + b"RS+ A svc\r\n")
                    hear_requests(peer, many)
        finally:
            done.set()

    with Peer(server.port, login("A")) as peer:
        peer.send(b"".join(b"SUB many.%d %d\r\n" % (n, n) for n in range(many)))
        peer.fence()
        together(connect, *(partial(request, number) for number in range(3)))


def hear_requests(peer: RoutePeer, many: int) -> None:
    """Read some requests; check that all interest was told before the first one, and the inbox of each."""
    known: set[bytes] = set()
    asked = 0
    while asked < 20:
        words = peer.read_op().partition(b"\r\n")[0].split(b" ")
        if words[0] == b"RS+" and words[1] == b"A":
            known.add(words[2])
        elif words[0] == b"RMSG":
            assert words[3] in known
            assert len(known) >= many
            asked += 1


def subscriptions(server: ServerThread) -> list[int]:
    """Return how many subscriptions each of the steady accounts has."""
    return server.call(lambda s: [s.accounts[name].sublist.count() for name in STEADY])


def test_servers_connect_and_die_while_accounts_come_and_go(server: ServerThread) -> None:
    """What remains knows all interest, and the server keeps nothing of what has gone."""
    done = threading.Event()
    address = route_address(server)
    base = server.call(lambda s: s.opts)
    own = subscriptions(server)

    def die(seed: int) -> None:
        """Connect as a server, tell of interest in all accounts, and close or reset the connection."""
        rng = random.Random(seed)
        for n in range(DEATHS):
            with Fake() as fake, suppress(OSError, Closed):
                peer = fake.dial(address)
                names = [b"A", b"B", *(b"X%d" % i for i in range(4))]
                lines = (
                    b"RS+ %b s.%d%b\r\nRMSG %b svc 1\r\nx\r\n" % (name, i, rng.choice((b"", b" g 3")), name)
                    for i in range(100)
                    for name in names
                )
                peer.send(b"".join(lines))
                if n % 3:
                    peer.fence()

    def die_together() -> None:
        try:
            together(*(partial(die, seed) for seed in range(2)))
        finally:
            done.set()

    def reload() -> None:
        for n in itertools.count(1):
            server.run(server.server.reload(configuration(base, n)))
            if done.is_set():
                return

    def passing(name: str) -> None:
        """Be a client of an account that comes and goes."""
        while not done.is_set():
            with suppress(OSError, EOFError), Peer(server.port, login(name)) as peer:
                while not done.is_set():
                    peer.send(b"SUB x 1\r\nPUB svc 1\r\nx\r\nPUB s.1 1\r\nx\r\nUNSUB 1\r\n")
                    peer.fence()

    with ExitStack() as stack:
        remotes = Remotes(stack, address, 1)
        try:
            together(
                reload,
                die_together,
                *(partial(churn, server.port, account, ord(account), done) for account in STEADY),
                *(partial(passing, f"X{i}") for i in range(2)),
            )
            with Peer(server.port, login("A")) as peer:
                peer.send(b"SUB last 1\r\n")
                peer.fence()
                until(lambda: remotes.all[0].known == {b"last"})
            until(lambda: not any(remote.known for remote in remotes.all))
        finally:
            remotes.end()
    until(lambda: server.call(lambda s: s.cluster is not None and not s.cluster.connected))
    until(lambda: subscriptions(server) == own)
