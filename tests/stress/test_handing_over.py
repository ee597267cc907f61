"""Messages for connections of other pollers, which a poller hands over in batches.

Two publishers and two subscribers in each test cover all combinations of two pollers.
"""

import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import pytest
from support.peer import Peer
from support.process import SANITIZED
from support.stress import SCALE, together

from gnats.options.values.jetstream import JetStreamOptions
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(300 * SCALE)

HELLO = b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"protocol":1}\r\n'
MSGS = (500 if SANITIZED else 5_000) * SCALE


Join = Callable[..., Peer]


@pytest.fixture
def join(tmp_path: Path) -> Iterator[Join]:
    """join(hello): connect to a server with two pollers, for the length of the test."""
    jetstream = JetStreamOptions(enabled=True, store_dir=str(tmp_path))
    with ServerThread(io_threads=2, jetstream=jetstream) as running, ExitStack() as stack:
        yield lambda *hello: stack.enter_context(Peer(running.port, *hello))


def test_a_core_message_arrives_before_what_a_stream_delivers_later(join: Join) -> None:
    create = (
        b'{"name":"S","subjects":["js"],"storage":"memory"}',
        b'{"stream_name":"S","config":{"deliver_subject":"d","ack_policy":"none"}}',
    )
    publishers = [join() for _ in range(2)]
    subscribers = [join() for _ in range(2)]
    ask(publishers[0], b"$JS.API.STREAM.CREATE.S", create[0])
    for subscriber in subscribers:
        subscriber.send(b"SUB core 1\r\nSUB d 2\r\n")
        subscriber.fence()
    ask(publishers[0], b"$JS.API.CONSUMER.CREATE.S", create[1])
    found: list[list[tuple[bytes, int]]] = [[] for _ in subscribers]

    def publish(which: int) -> Callable[[], None]:
        def run() -> None:
            for first in range(0, MSGS, 50):
                publishers[which].send(
                    b"".join(
                        b"PUB core 7\r\n%06d%d\r\n" % (n, which)
                        + b"PUB core 7\r\n%06d%d\r\n" % (n, which)
                        + b"PUB js 7\r\n%06d%d\r\n" % (n, which)
                        for n in range(first, first + 50)
                    )
                )
            publishers[which].fence()

        return run

    def read(which: int) -> Callable[[], None]:
        def run() -> None:
            while len(found[which]) < 2 * 3 * MSGS:
                line = subscribers[which].until(b"\r\n")
                if line.startswith(b"MSG "):
                    found[which].append((line.split(b" ")[2], int(subscribers[which].until(b"\r\n"))))

        return run

    together(publish(0), publish(1), read(0), read(1))
    for arrived in found:
        for which in range(2):
            core = [n for sid, n in arrived if sid == b"1" and n % 10 == which]
            assert core == [10 * (n // 2) + which for n in range(2 * MSGS)]
            seen: dict[int, int] = {}
            for sid, n in arrived:
                if sid == b"1":
                    seen[n] = seen.get(n, 0) + 1
                else:
                    assert seen.get(n) == 2, n


ROUNDS = (5 if SANITIZED else 25) * SCALE
FILL = b"".join(b"PUB n.%d 0\r\n\r\n" % i for i in range(8_000))  # makes a batch take long
FIRST = b"PUB q 1\r\na\r\n"


@pytest.mark.parametrize("name", ["first", "full", "subscription", "same", "same full"])
def test_an_effect_does_not_come_before_its_cause(join: Join, name: str) -> None:
    """P publishes to Q, then does something that R sees, or publishes to both at once; R then publishes to Q.

    Q gets P's message first.
    """
    peers = [[join(HELLO) for _ in range(2)] for _ in range(3)]
    sees: Callable[[Peer], bool]
    for n in range(ROUNDS):
        for p, q, r in product(*peers):
            q.send(b"SUB q 1\r\n")
            q.fence()
            r.send(b"SUB r 2\r\nSUB reply 3\r\nSUB both 5\r\n")
            r.fence()
            q.send(b"SUB both 4\r\n")
            q.fence()
            cause = b"PUB q 6\r\n%06d\r\n" % n
            batch, sees = {
                "first": (FIRST + cause + b"PUB r 1\r\nb\r\n", lambda r: b"MSG r " in r.fence()),
                "full": (
                    FIRST + b"PUB r 1\r\na\r\n" + cause + b"PUB r 1001\r\nb%s\r\n" % bytes(1000) * 70,
                    lambda r: b"MSG r 2 1001" in r.fence(),
                ),
                "subscription": (FIRST + cause + b"SUB s 7\r\n", lambda r: not has_no_responder(r)),
                "same": (FIRST + b"PUB both 6\r\n%06d\r\n" % n, lambda r: b"MSG both " in r.fence()),
                "same full": (
                    FIRST
                    + b"PUB r 1\r\na\r\n"
                    + b"PUB r 1001\r\nb%s\r\n" % bytes(1000) * 64
                    + b"PUB both 1006\r\n%s%06d\r\n" % (bytes(1000), n),
                    lambda r: b"MSG both " in r.fence(),
                ),
            }[name]
            sender = threading.Thread(target=p.send, args=(batch + FILL,))
            sender.start()
            while not sees(r):
                pass
            r.send(b"PUB q 6\r\neffect\r\n")
            assert b"%06d\r\n" % n in q.until(b"effect\r\n")
            sender.join()
            p.send(b"UNSUB 7\r\n")
            p.fence()
            q.send(b"UNSUB 1\r\nUNSUB 4\r\n")
            q.fence()
            r.send(b"UNSUB 2\r\nUNSUB 3\r\nUNSUB 5\r\n")
            r.fence()


def has_no_responder(peer: Peer) -> bool:
    peer.send(b"PUB s reply 0\r\n\r\n")
    return b" 503" in peer.fence()


def test_every_request_is_answered_or_refused(join: Join) -> None:
    requesters = [join(HELLO) for _ in range(2)]
    responder = join(HELLO)
    for requester in requesters:
        requester.send(b"SUB r 1\r\n")
        requester.fence()
        done = threading.Event()
        got = b""
        asked = refused = 0

        def ask(requester: Peer = requester, done: threading.Event = done) -> None:
            nonlocal asked, refused
            while not done.is_set():
                requester.send(b"PUB svc r 1\r\nx\r\n" * 20)
                asked += 20
                refused += requester.fence().count(b" 503")

        thread = threading.Thread(target=ask)
        thread.start()
        for sid in range(20 * ROUNDS):
            responder.send(b"SUB svc %d\r\n" % sid)
            got += responder.fence() + responder.fence()
            responder.send(b"UNSUB %d\r\n" % sid)
            got += responder.fence()
        done.set()
        thread.join()
        got += responder.fence()
        assert got.count(b"MSG svc ") + refused == asked
        requester.send(b"UNSUB 1\r\n")
        requester.fence()


def ask(peer: Peer, subject: bytes, body: bytes) -> None:
    peer.send(b"SUB answer 9\r\nUNSUB 9 1\r\nPUB %s answer %d\r\n%s\r\n" % (subject, len(body), body))
    peer.until(b"MSG answer 9 ")
    assert b"error" not in peer.until(b"}\r\n")


def test_nothing_follows_the_answer_to_an_unsubscribe(join: Join) -> None:
    flood(join, rounds=(40 if SANITIZED else 600) * SCALE, limit=None)


def test_a_limit_that_is_set_under_way_is_exact(join: Join) -> None:
    flood(join, rounds=(40 if SANITIZED else 600) * SCALE, limit=500)


def flood(join: Join, rounds: int, limit: int | None) -> None:
    """Subscribe and unsubscribe while pollers hand over messages of all lengths."""
    publishers = [join() for _ in range(2)]
    subscribers = [join() for _ in range(2)]
    wanted = [threading.Event() for _ in publishers]  # set: publish another batch
    done = threading.Event()

    def publish(which: int) -> Callable[[], None]:
        rng = random.Random(which)
        batch = b"".join(
            b"PUB f.%d %d\r\n%s\r\n" % (rng.randrange(3), n, b"x" * n)
            for n in (rng.choice([0, 1, 7, 7, 7, 200]) if i else 5000 for i in range(200))
        )

        def run() -> None:
            while wanted[which].wait() and not done.is_set():
                wanted[which].clear()
                publishers[which].send(batch)
                publishers[which].fence()

        return run

    def arrived(peer: Peer, sid: int) -> int:
        for each in wanted:
            each.set()
        return len(re.findall(rb"MSG f\.\d %d " % sid, peer.fence()))

    def subscribe(peer: Peer) -> None:
        for sid in range(rounds):
            peer.send(b"SUB f.* %d\r\n" % sid)
            total = arrived(peer, sid) + arrived(peer, sid)
            if limit is None:
                peer.send(b"UNSUB %d\r\n" % sid)
                peer.fence()
            else:
                last = total + limit
                peer.send(b"UNSUB %d %d\r\n" % (sid, last))
                total += arrived(peer, sid)
                late = total > last  # over the limit already: UNSUB ended the subscription at once
                while total < last:
                    total += arrived(peer, sid)
                assert total == last or late
            assert arrived(peer, sid) + arrived(peer, sid) == 0

    def run_subscribers() -> None:
        try:
            together(*(lambda peer=peer: subscribe(peer) for peer in subscribers))  # type: ignore[misc]
        finally:
            done.set()
            for each in wanted:
                each.set()

    together(publish(0), publish(1), run_subscribers)
