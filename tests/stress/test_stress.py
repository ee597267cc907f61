"""Connections that come, go and break while others publish at full speed, in both ways of running.

`make tsan` and `make asan` run these with the sanitizers; a plain run checks that nothing is lost, repeated
or leaked. GNATS_STRESS multiplies the amount of work (the default is a short form).
"""

import random
import re
import threading
from collections.abc import Callable, Iterator

import pytest
from support.peer import Peer, several
from support.process import SANITIZED, resident
from support.stress import SCALE, settle, together

from gnats.bench.loadgen import PubSub
from gnats.bench.target import Target
from gnats.core.runtime import quiesce
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(300 * SCALE)


def numbers(data: bytes) -> list[int]:
    return [int(n) for n in re.findall(rb"#(\d+)\r\n", data)]


@pytest.fixture
def stable(server: ServerThread) -> Iterator[list[Peer]]:
    with several(4, server.port) as peers:
        yield peers


def test_churn_around_full_speed_publishers_loses_nothing(server: ServerThread, stable: list[Peer]) -> None:
    port = server.port
    own = server.call(lambda s: s.num_subscriptions)
    total = (3_000 if SANITIZED else 30_000) * SCALE
    rounds = (15 if SANITIZED else 120) * SCALE
    for peer in stable:
        peer.send(b"SUB stable.> 1\r\nSUB stable.*.x 2\r\n")
        peer.fence()

    def publish(which: int) -> Callable[[], None]:
        def run() -> None:
            with Peer(port) as peer:
                for first in range(0, total, 100):
                    batch = b"".join(
                        b"PUB stable.%d 7\r\n#%06d\r\nPUB churn.%d 4\r\nabcd\r\n" % (which, n, n % 50)
                        + b"PUB all churn.reply 1\r\nz\r\n"
                        for n in range(first, first + 100)
                    )
                    peer.send(batch)
                    peer.fence()

        return run

    def churn(seed: int) -> Callable[[], None]:
        def run() -> None:
            rng = random.Random(seed)
            for _ in range(rounds):
                with several(rng.randrange(1, 8), port) as peers:
                    for peer in peers:
                        for sid in range(rng.randrange(1, 20)):
                            subject = rng.choice(
                                [b"churn.%d" % rng.randrange(50), b"churn.*", b"churn.>", b"all", b"*"]
                            )
                            queue = rng.choice([b"", b" q%d" % rng.randrange(3)])
                            peer.send(b"SUB %s%s %d\r\n" % (subject, queue, sid))
                            if rng.random() < 0.4:
                                peer.send(b"UNSUB %d %d\r\n" % (sid, rng.randrange(0, 30)))
                    rng.shuffle(peers)
                    for peer in peers:
                        how = rng.randrange(4)
                        if how == 0:
                            peer.reset()
                            continue
                        if how == 1:
                            peer.send(b"GARBAGE\r\n")
                        elif how == 2:
                            peer.send(b"PUB churn.1 100\r\nnot all of it")
                        else:
                            peer.send(b"UNSUB 1\r\nUNSUB 2\r\n")
                        peer.close()

        return run

    received: dict[int, bytes] = {}

    def read(index: int) -> Callable[[], None]:
        def run() -> None:
            parts = []
            got = 0
            while got < 2 * total:
                part = stable[index].until(b"\r\n")
                parts.append(part)
                got += part.startswith(b"#")
            received[index] = b"".join(parts)

        return run

    together(publish(0), publish(1), churn(1), churn(2), *(read(i) for i in range(4)))
    for index in range(4):
        for which in (0, 1):
            mine = re.findall(rb"MSG stable\.%d 1 7\r\n#(\d+)\r\n" % which, received[index])
            assert [int(n) for n in mine] == list(range(total)), (index, which)
    for peer in stable:
        peer.close()
    settle(server)
    assert server.call(lambda s: s.num_subscriptions) == own


def test_auto_unsubscribe_is_exact_under_publishers_of_every_poller(server: ServerThread) -> None:
    port = server.port
    own = server.call(lambda s: s.num_subscriptions)
    rounds = (5 if SANITIZED else 20) * SCALE
    limit, subs = 50, 40
    with Peer(port) as one, Peer(port) as other, Peer(port) as left, Peer(port) as right:
        for _ in range(rounds):
            for peer in (left, right):
                peer.send(
                    b"".join(b"SUB limited %d\r\nUNSUB %d %d\r\n" % (sid, sid, limit) for sid in range(subs))
                )
                peer.fence()
            batch = b"PUB limited 1\r\nx\r\n" * limit

            def send(peer: Peer, batch: bytes = batch) -> Callable[[], None]:
                def run() -> None:
                    peer.send(batch)
                    peer.fence()

                return run

            together(send(one), send(other))
            for peer in (left, right):
                data = peer.fence()
                for sid in range(subs):
                    assert data.count(b"MSG limited %d 1\r\n" % sid) == limit
            left.fence()
        assert server.call(lambda s: s.num_subscriptions) == own


def test_a_queue_group_delivers_each_message_once_while_members_go(server: ServerThread) -> None:
    port = server.port
    total = (2_000 if SANITIZED else 20_000) * SCALE
    with Peer(port) as publisher, Peer(port) as member:
        member.send(b"SUB work q 1\r\n")
        member.fence()
        seen: list[int] = []
        lock = threading.Lock()
        done = threading.Event()

        def come_and_go() -> None:
            while not done.is_set():
                with Peer(port) as peer:
                    peer.send(b"SUB work q 1\r\n")
                    first = peer.fence()
                    peer.send(b"UNSUB 1\r\n")
                    got = numbers(first + peer.fence())
                with lock:
                    seen.extend(got)

        def publish() -> None:
            try:
                for first in range(0, total, 50):
                    publisher.send(b"".join(b"PUB work 7\r\n#%06d\r\n" % n for n in range(first, first + 50)))
                    publisher.fence()
            finally:
                done.set()

        kept: list[bytes] = []

        def work() -> None:
            while not done.is_set():
                kept.append(member.fence())

        together(publish, come_and_go, come_and_go, work)
        kept.append(member.fence())
        seen.extend(numbers(b"".join(kept)))
    # Each member has read up to its last PONG, so it has seen all its messages: none is missing or repeated.
    assert sorted(seen) == list(range(total))


def test_a_slow_consumer_harms_nobody(server: ServerThread) -> None:
    port = server.port
    size, total = 8192, (2_000 if SANITIZED else 12_000) * SCALE
    with Peer(port) as slow:
        slow.send(b"SUB bench 1\r\n")
        slow.fence()
        with PubSub(
            Target("127.0.0.1", port), publishers=2, subscriptions=[["bench"]] * 2, size=size
        ) as load:
            result = load.run(total, timeout=120)
        assert result.delivered == 2 * total


def test_the_server_closes_connections_in_the_middle_of_everything(server: ServerThread) -> None:
    port = server.port
    rounds = (5 if SANITIZED else 30) * SCALE
    for _ in range(rounds):
        with several(10, port) as victims:
            for victim in victims:
                victim.send(b"SUB victim.> 1\r\nSUB victim.* q 2\r\n")
                victim.fence()
            with Peer(port) as publisher:

                def publish(publisher: Peer = publisher) -> None:
                    for _ in range(20):
                        publisher.send(b"PUB victim.a 10\r\n0123456789\r\n" * 100)
                    publisher.fence()

                def kill() -> None:
                    for cid in server.call(lambda s: list(s.clients))[:10]:
                        server.call(lambda s, cid=cid: s.disconnect_client_by_id(cid))

                together(publish, kill)
    settle(server)


@pytest.mark.skipif(bool(SANITIZED), reason="a sanitizer keeps freed memory")
def test_memory_returns_after_ten_thousand_connections_come_and_go(server: ServerThread) -> None:
    port = server.port

    def wave(count: int) -> None:
        for _ in range(count // 500):
            with several(500, port) as peers:
                for peer in peers:
                    peer.send(b"SUB foo.* 1\r\nSUB bar q 2\r\n")
                peers[0].send(b"PUB foo.a 100\r\n" + b"x" * 100 + b"\r\n")
                for peer in peers:
                    peer.fence()
        settle(server)

    wave(1_000)  # makes the allocations that are made once
    before = resident()
    wave(10_000 * SCALE)
    assert resident() - before < 8 * 1024 * 1024
    with Peer(port) as peer:  # a batch after the last close frees memory that waited for one
        peer.fence()
    quiesce.reclaim()
    assert quiesce.waiting_blocks() < 10
