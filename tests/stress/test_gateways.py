"""Gateways while threads change interest and publish, accounts come and go, and connections die.

At the end, each server of another cluster knows all interest; a message for a group reaches one cluster.
"""

from __future__ import annotations

import base64
import json
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial

import pytest
from support.process import SANITIZED
from support.runningplane import RunningPlane, Wire
from support.servers import until
from support.stress import SCALE, together

from gnats.core.accounts.account import Account
from gnats.core.links.gateway_session import GatewaySession

pytestmark = pytest.mark.timeout(300 * SCALE)

DEATHS = (15 if SANITIZED else 80) * SCALE
JOBS = (300 if SANITIZED else 3000) * SCALE
PASSING = tuple(f"X{n}" for n in range(4))
"""Accounts that come and go."""
GREETING = b"INFO {}\r\n"
Told = dict[bytes, set[bytes]]
"""Subjects, and groups, by account."""


@pytest.fixture(params=[2, 3], ids=["two pollers", "three"])
def plane(request: pytest.FixtureRequest) -> Iterator[RunningPlane]:
    with RunningPlane(request.param) as running:
        yield running


class Reader:
    """A server of another cluster that stays, with a thread that reads."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def read(self, op: bytes) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        try:
            with suppress(EOFError):
                while True:
                    self.read(self.wire.op())
        except BaseException as exc:  # noqa: BLE001 - handed to the test
            self.failed.append(exc)
            self.wire.close()

    def end(self) -> None:
        self.wire.close()
        self._thread.join()
        if self.failed:
            raise self.failed[0]


class Listener(Reader):
    """One that is told of interest. A line must come behind the beginning of its account."""

    def __init__(self, wire: Wire) -> None:
        self.told: Told = {}
        self.complete: set[bytes] = set()
        super().__init__(wire)

    def read(self, op: bytes) -> None:
        verb, _, rest = op.removesuffix(b"\r\n").partition(b" ")
        if verb == b"INFO":
            info = json.loads(rest)
            account = base64.b64decode(info["gateway_cmd_payload"])
            if info["gateway_cmd"] == 2:
                self.told[account] = set()
                self.complete.discard(account)
            else:
                assert account in self.told
                self.complete.add(account)
        elif verb in (b"RS+", b"RS-"):
            account, subject, *group = rest.split(b" ")
            key = b" ".join((subject, *group[:1]))
            if verb == b"RS+":
                assert group[1:] in ([], [b"1"])
                self.told[account].add(key)
            else:
                self.told[account].discard(key)


class Worker(Reader):
    """One that is sent messages, and counts those of the group."""

    def __init__(self, wire: Wire) -> None:
        self.jobs = 0
        self.seen = 0
        wire.until(GREETING)  # else the interest may come before the peer is registered
        wire.send(b"RS+ A job g 1\r\nRS+ A all\r\n")
        wire.fence()
        super().__init__(wire)

    def read(self, op: bytes) -> None:
        self.jobs += op.startswith(b"RMSG A job | g ")
        self.seen += op.startswith(b"RMSG A all ")


def client(plane: RunningPlane, account: Account, poller: int) -> Wire:
    with plane.control:
        return Wire(plane.client(account, poller))


def churn(plane: RunningPlane, account: Account, seed: int, done: threading.Event) -> tuple[Wire, set[bytes]]:
    """Subscribe and unsubscribe until the others are done; return what is left."""
    rng = random.Random(seed)
    while True:
        last = done.is_set()
        wire = client(plane, account, rng.randrange(len(plane.pollers)))
        left: dict[int, bytes] = {}
        for sid in range(200):
            key = b"churn.%d%b" % (rng.randrange(5), rng.choice((b"", b" g", b" h")))
            wire.send(b"SUB %b %d\r\n" % (key, sid))
            left[sid] = key
            if rng.random() < 0.8:
                gone = rng.choice(list(left))
                wire.send(b"UNSUB %d\r\nPUB churn.1 1\r\nx\r\n" % gone)
                del left[gone]
        wire.fence()
        if last:
            return wire, set(left.values())
        with wire:
            pass


def die(plane: RunningPlane, seed: int) -> None:
    """Connect as a server of another cluster, in either direction, and close the connection."""
    rng = random.Random(seed)
    for n in range(DEATHS):
        outbound = rng.random() < 0.5
        with plane.control:
            poller = rng.randrange(len(plane.pollers))
            peer = plane.outbound(poller, rank=9) if outbound else plane.inbound(poller)
        with Wire(peer) as wire, suppress(OSError, EOFError):
            wire.send(b"".join(line(rng, outbound) for _ in range(150)))
            if n % 3:
                wire.fence()


def line(rng: random.Random, outbound: bool) -> bytes:
    account = rng.choice((b"A", *(name.encode() for name in PASSING)))
    subject = rng.choice((b"churn.%d" % rng.randrange(5), b"churn.*"))
    group = rng.choice((b"", b" g", b" h"))
    if not outbound:
        return b"RMSG %b churn.%d%b 1\r\nx\r\n" % (account, rng.randrange(5), group and b" |" + group)
    if rng.random() < 0.6:
        return b"RS+ %b %b%b\r\n" % (account, subject, group and group + b" 1")
    return b"RS- %b %b%b\r\n" % (account, subject, group)


def change_accounts(plane: RunningPlane, accounts: dict[str, Account], done: threading.Event) -> None:
    """Remove and add accounts until the others are done; all are there at the end."""
    rng = random.Random(3)
    here = set(accounts)
    while not done.wait(0.002):
        name = rng.choice(PASSING)
        with plane.control:
            if name in here:
                plane.registry.remove(name.encode())
                here.discard(name)
                if rng.random() < 0.5:
                    continue
            plane.registry.add(name.encode(), accounts[name])
            here.add(name)
    with plane.control:
        for name in set(accounts) - here:
            plane.registry.add(name.encode(), accounts[name])


def change_ranks(workers: list[Worker], done: threading.Event) -> None:
    rng = random.Random(4)
    while not done.wait(0.001):
        session = rng.choice(workers).wire.session
        assert isinstance(session, GatewaySession)
        session.set_rank(rng.randrange(5))


def publish(plane: RunningPlane, account: Account, poller: int) -> None:
    """Publish to the group and to all."""
    with client(plane, account, poller) as wire:
        for _ in range(JOBS // 100):
            wire.send(b"PUB job 1\r\nx\r\nPUB all 1\r\nx\r\n" * 100)
            wire.fence()


def test_all_are_told_and_groups_get_each_message_once(plane: RunningPlane) -> None:
    steady = plane.account("A")
    accounts = {name: plane.account(name) for name in PASSING}
    pollers = len(plane.pollers)
    done = threading.Event()
    left: dict[bytes, set[bytes]] = {b"A": set()}
    wires: list[Wire] = []
    with ExitStack() as stack:
        listeners = [
            Listener(stack.enter_context(Wire(plane.inbound(n % pollers)))) for n in range(pollers + 1)
        ]
        workers = [
            Worker(stack.enter_context(Wire(plane.outbound(n % pollers, rank=n, greeting=GREETING))))
            for n in range(pollers)
        ]

        def work() -> None:
            try:
                together(
                    *(partial(publish, plane, steady, n % pollers) for n in range(3)),
                    *(partial(die, plane, seed) for seed in range(2)),
                )
            finally:
                done.set()

        def churning(name: str, account: Account, seed: int) -> None:
            wire, interest = churn(plane, account, seed, done)
            wires.append(wire)
            left.setdefault(name.encode(), set()).update(interest)

        try:
            together(
                work,
                *(partial(churning, "A", steady, seed) for seed in range(2)),
                *(partial(churning, name, account, 9) for name, account in accounts.items()),
                partial(change_accounts, plane, accounts, done),
                partial(change_ranks, workers, done),
            )
            for wire in wires:
                stack.enter_context(wire)
            readers = [*listeners, *workers]

            def all_is_there() -> bool:
                told = all(each.told == left and each.complete == set(left) for each in listeners)
                return told and all(each.seen == 3 * JOBS for each in workers)

            with suppress(TimeoutError, AssertionError):
                until(lambda: any(reader.failed for reader in readers) or all_is_there())
            if not any(reader.failed for reader in readers):  # else end() raises it
                assert [listener.told for listener in listeners] == [left] * len(listeners)
                assert [listener.complete for listener in listeners] == [set(left)] * len(listeners)
                assert [worker.seen for worker in workers] == [3 * JOBS] * pollers
                assert sum(worker.jobs for worker in workers) == 3 * JOBS
        finally:
            for reader in (*listeners, *workers):
                reader.end()
    until(lambda: steady.sublist.count() == 0)
