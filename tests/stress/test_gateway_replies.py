"""Requests from other clusters while the connections that their answers take die and are replaced.

Clients answer all the time, on every poller; the tables of ways are replaced under them. Each answer goes
over one connection at most, and to nobody else; when nothing changes any more, each one arrives.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial

import pytest
from support.process import SANITIZED
from support.runningplane import RunningPlane, Wire
from support.servers import until
from support.stress import SCALE, together

from gnats.core.accounts.account import Account
from gnats.core.routing.gateway_reply import GatewayReplies, name_hash

pytestmark = pytest.mark.timeout(300 * SCALE)

REQUESTS = (300 if SANITIZED else 3000) * SCALE
"""Of each source; a burst has a tenth of them."""
SOURCES = 3
PREFIX = b"_GR_.%b.%b." % (name_hash(b"F"), name_hash(b"S"))


@pytest.fixture(params=[2, 3], ids=["two pollers", "three"])
def plane(request: pytest.FixtureRequest) -> Iterator[RunningPlane]:
    with RunningPlane(request.param) as running:
        yield running


class Answers:
    """What has come over the connections to the cluster of the requesters."""

    def __init__(self) -> None:
        self.count: Counter[bytes] = Counter()
        self._lock = threading.Lock()

    def read(self, wire: Wire) -> None:
        """Take answers until the connection ends."""
        with suppress(EOFError):
            while True:
                verb, account, subject, *_ = wire.op().split(b" ")
                assert (verb, account) == (b"RMSG", b"A")
                assert subject.startswith(PREFIX)
                with self._lock:
                    self.count[subject.removeprefix(PREFIX)] += 1


def respond(wire: Wire) -> None:
    """Answer requests until the connection ends; now and then from a new subscription."""
    rng = random.Random(wire.session.cid)
    with suppress(EOFError, OSError):
        while True:
            op = wire.op()
            if op.startswith(b"MSG svc"):
                reply = op.split(b" ")[3]
                assert not reply.startswith(b"_GR_")
                wire.send(b"PUB %b 2\r\nok\r\n" % reply)
                if rng.random() < 0.01:
                    wire.send(b"UNSUB 1\r\nSUB svc workers 1\r\n")


def ask(plane: RunningPlane, number: int, first: int, count: int) -> None:
    """Send requests of another cluster."""
    with plane.control:
        peer = plane.inbound(number % len(plane.pollers))
    with Wire(peer) as wire:
        for start in range(first, first + count, 50):
            replies = (PREFIX + b"r.%d.%d" % (number, n) for n in range(start, start + 50))
            wire.send(b"".join(b"RMSG A svc + %b workers 1\r\n?\r\n" % reply for reply in replies))
            wire.fence()


def replace_ways(
    plane: RunningPlane, replies: GatewayReplies, answers: Answers, done: threading.Event
) -> None:
    """Connect to the cluster of the requesters again and again; the connection before ends first, or last."""
    rng = random.Random(5)
    readers: list[threading.Thread] = []
    before: Wire | None = None
    while not done.wait(0.005):
        if before and rng.random() < 0.5:
            before.close()
        with plane.control:
            wire = Wire(plane.outbound(rng.randrange(len(plane.pollers))))
            replies.set_gateway_links({name_hash(b"F"): wire.session})  # type: ignore[dict-item]
        readers.append(threading.Thread(target=answers.read, args=(wire,)))
        readers[-1].start()
        if before:
            before.close()
        before = wire
        if rng.random() < 0.1:
            with plane.control:
                replies.set_gateway_links({})
    with plane.control:
        replies.set_gateway_links({})
    if before:
        before.close()
    for reader in readers:
        reader.join()


def client(plane: RunningPlane, account: Account, poller: int) -> Wire:
    with plane.control:
        return Wire(plane.client(account, poller))


def test_answers_go_over_one_connection(plane: RunningPlane) -> None:
    account = plane.account("A")
    replies = GatewayReplies(plane.state)
    replies.set_gateway(b"G", b"ID")
    answers, done = Answers(), threading.Event()
    with ExitStack() as stack:
        responders = [stack.enter_context(client(plane, account, n % len(plane.pollers))) for n in range(4)]
        curious = stack.enter_context(client(plane, account, 0))
        curious.send(b"SUB r.> 1\r\n")
        curious.fence()
        for responder in responders:
            responder.send(b"SUB svc workers 1\r\n")
            responder.fence()
        threads = [threading.Thread(target=respond, args=(responder,)) for responder in responders]
        for thread in threads:
            thread.start()

        def work() -> None:
            try:
                together(*(partial(ask, plane, number, 0, REQUESTS) for number in range(SOURCES)))
            finally:
                done.set()

        try:
            together(work, partial(replace_ways, plane, replies, answers, done))
            assert set(answers.count.values()) == {1}
            assert 0 < len(answers.count) <= SOURCES * REQUESTS
            with plane.control:
                last = stack.enter_context(Wire(plane.outbound(0)))
                replies.set_gateway_links({name_hash(b"F"): last.session})  # type: ignore[dict-item]
            reader = threading.Thread(target=answers.read, args=(last,))
            reader.start()
            steady = {b"r.%d.%d" % (number, n) for number in range(SOURCES) for n in range(10_000, 10_500)}
            together(*(partial(ask, plane, number, 10_000, 500) for number in range(SOURCES)))
            until(lambda: steady <= set(answers.count))
            assert set(answers.count.values()) == {1}
            curious.send(b"PING\r\n")
            assert curious.until(b"").startswith((b"PONG", b"+OK"))
            last.close()
            reader.join()
        finally:
            for responder in responders:
                responder.close()
            for thread in threads:
                thread.join()
