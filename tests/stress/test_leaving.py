"""Closing a connection with many subscriptions: the poller removes them in slices, between other work."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from support.peer import Peer
from support.process import SANITIZED
from support.stress import SCALE, settle, together
from support.wire import connect_op

from gnats.core.runtime import quiesce
from gnats.options.options import Options
from gnats.options.values.accounts import (
    AccountConfig,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
)
from gnats.options.values.auth import User
from gnats.server.server import Server
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(300 * SCALE)
MANY = 20_000
"""Subscriptions that take many turns to remove."""


def options(threads: int) -> Options:
    imports: list[StreamImport | ServiceImport] = [StreamImport("A", "steady.>"), ServiceImport("A", "svc")]
    return Options(
        host="127.0.0.1",
        port=-1,
        io_threads=threads,
        users=[User(name, "p", account=name.upper()) for name in ("a", "b", "sys")],
        accounts=[
            AccountConfig("A", exports=[StreamExport("steady.>"), ServiceExport("svc")]),
            AccountConfig("B", imports=imports),
            AccountConfig("SYS"),
        ],
        system_account="SYS",
        max_closed_clients=100,
    )


@pytest.fixture(params=[0, 2], ids=["loop", "threads"])
def server(request: pytest.FixtureRequest) -> Iterator[ServerThread]:
    with ServerThread(options(request.param)) as running:
        yield running


@pytest.fixture
def loop() -> Iterator[ServerThread]:
    """A server in one event loop, which a test can run round by round."""
    with ServerThread(options(0)) as running:
        yield running


def join(port: int, name: str) -> Peer:
    return Peer(port, connect_op(name, "p", verbose=True, headers=True, no_responders=True))


def subscribe(peer: Peer, line: Callable[[int], bytes], count: int = MANY) -> None:
    for first in range(0, count, 5000):
        peer.send(b"".join(line(n) for n in range(first, min(first + 5000, count))))
        peer.fence()


def steady(n: int) -> bytes:
    return b"SUB steady.%d.%d %d\r\n" % (n % 997, n, n)


def grouped(n: int) -> bytes:
    return b"SUB q group %d\r\n" % n


def mixed(n: int) -> bytes:
    """Encode SUB number n: in turn literal, with a wildcard, in a queue group."""
    return (b"SUB steady.%d.%d %d\r\n", b"SUB w%d.*.%d %d\r\n", b"SUB g%d.%d group %d\r\n")[n % 3] % (
        n % 97,
        n,
        n,
    )


def count(server: Server, name: str) -> int:
    return server.accounts[name].sublist.count()


def round_of(server: Server) -> None:
    """Run one round of the poller, without the control plane."""
    assert server.pollers is not None
    server.pollers.internal.run_once(0)


def test_others_are_served_between(loop: ServerThread) -> None:
    other = join(loop.port, "b")
    leaver = join(loop.port, "b")
    before = loop.call(lambda s: (count(s, "A"), count(s, "B")))
    subscribe(leaver, steady)

    def close(server: Server) -> list[tuple[int, int]]:
        leaver.close()
        seen, asked = [], 0
        while (left := (count(server, "A"), count(server, "B"))) != before:
            seen.append(left)
            other.send(b"SUB fresh.%d %d\r\nPUB fresh.%d 0\r\n\r\nPING\r\n" % ((asked,) * 3))
            while b"PONG\r\n" not in other.data:
                round_of(server)
                seen.append((count(server, "A"), count(server, "B")))
                try:
                    other.data += other.sock.recv(1 << 16, 0x40)  # MSG_DONTWAIT
                except BlockingIOError:
                    continue
            assert b"MSG fresh.%d %d 0\r\n" % ((asked,) * 2) in other.until(b"PONG\r\n")
            other.send(b"UNSUB %d\r\n" % asked)
            asked += 1
            round_of(server)
        return seen

    seen = loop.call(close)
    shadows, subs = zip(*seen, strict=True)
    assert len(set(shadows)) > 3, "shadows were not removed in slices"
    assert len(set(subs)) > 3, "subscriptions were not removed in slices"
    assert list(shadows) == sorted(shadows, reverse=True)
    other.close()
    settle(loop)


def test_counts_and_events_are_right_afterwards(server: ServerThread) -> None:
    before = server.call(lambda s: [count(s, name) for name in ("A", "B", "SYS")])
    listener = join(server.port, "sys")
    listener.send(b"SUB $SYS.ACCOUNT.B.DISCONNECT 1\r\nSUB $SYS.ACCOUNT.B.SERVER.CONNS 2\r\n")
    listener.fence()
    publisher = join(server.port, "a")
    leaver = join(server.port, "b")
    subscribe(leaver, mixed)
    publisher.send(b"PUB steady.0.0 2\r\nhi\r\n")
    assert leaver.until(b"hi\r\n").endswith(b"MSG steady.0.0 0 2\r\nhi\r\n")
    leaver.close()
    while True:
        line = listener.until(b"\r\n")
        event = json.loads(listener.take(int(line.split()[-1]) + 2))
        if event.get("type", "").endswith("client_disconnect"):
            break
    assert event["reason"] == "Client Closed"

    def look(s: Server) -> tuple[int, int, int]:
        (session,) = s.closed_clients
        account = s.accounts["B"]
        return session.final["subscriptions"], len(account.clients), count(s, "B")

    assert server.call(look) == (MANY, 0, before[1])
    publisher.close()
    listener.close()
    settle(server)
    assert server.call(lambda s: [count(s, name) for name in ("A", "B", "SYS")]) == before
    assert server.call(until_reclaimed) == 0


def until_reclaimed(_: Server) -> int:
    for _round in range(100):
        quiesce.reclaim()
        if quiesce.waiting_blocks() == 0:
            break
    return quiesce.waiting_blocks()


def test_a_closed_member_of_a_queue_group_gets_nothing(server: ServerThread) -> None:
    """After the server has closed it, every message goes to the other member of the group."""
    with join(server.port, "b") as stays, join(server.port, "b") as publisher:
        stays.send(b"SUB q group 1\r\n")
        stays.fence()
        for _ in range(2 if SANITIZED else 4):
            leaver = join(server.port, "b")
            subscribe(leaver, grouped, 5000)
            leaver.send(b"NONSENSE\r\n")
            while leaver.sock.recv(1 << 16):
                pass
            publisher.send(b"PUB q 1\r\nx\r\n" * 500)
            publisher.fence()
            assert stays.fence().count(b"MSG q 1 1\r\nx\r\n") == 500
            leaver.close()
    settle(server)


def test_publishers_beside_those_that_leave(server: ServerThread) -> None:
    """Clients that stay lose no message, and in the end the subscriptions are as many as before."""
    with join(server.port, "a") as responder, join(server.port, "b") as asker:
        responder.send(b"SUB svc 1\r\n")
        responder.fence()
        asker.send(b"PUB svc back 1\r\n?\r\n")  # makes account A's own subscription for responses
        asker.fence()
        responder.until(b"?\r\n")
    settle(server)
    before = server.call(lambda s: [count(s, name) for name in ("A", "B")])
    rounds = (3 if SANITIZED else 8) * SCALE
    stays = [join(server.port, name) for name in ("a", "b")]
    for peer in stays:
        peer.send(b"SUB steady.> 1\r\n")
        peer.fence()
    done = threading.Event()
    sent = [0, 0]

    def publish(which: int) -> None:
        with join(server.port, "a") as peer:
            while not done.is_set():
                peer.send(
                    b"".join(
                        b"PUB steady.%d.%d 2\r\nhi\r\nPUB svc steady.%d.%d 1\r\n?\r\n"
                        % (n % 997, n, n % 997, n)
                        for n in range(sent[which] % MANY, sent[which] % MANY + 100)
                    )
                )
                peer.fence()
                sent[which] += 100

    def ask() -> None:
        with join(server.port, "a") as responder, join(server.port, "b") as asker:
            responder.send(b"SUB svc 1\r\n")
            responder.fence()
            while not done.is_set():
                asker.send(b"SUB back.* 1\r\nPUB svc back.1 1\r\n?\r\nUNSUB 1\r\n")
                asker.fence()
                responder.fence()

    def drain(peer: Peer) -> None:
        while not done.is_set():
            peer.fence()

    def leave() -> None:
        try:
            for n in range(rounds):
                leavers = [join(server.port, "b") for _ in range(2)]
                for leaver in leavers:
                    subscribe(leaver, mixed, 3000)
                together(*(leaver.reset if n % 2 else leaver.close for leaver in leavers))
        finally:
            done.set()

    got = [0, 0]

    def listen(which: int) -> None:
        while not done.is_set():
            got[which] += stays[which].fence().count(b"hi\r\n")

    together(partial(publish, 0), partial(publish, 1), ask, leave, partial(listen, 0), partial(listen, 1))
    for which, peer in enumerate(stays):
        got[which] += peer.fence().count(b"hi\r\n")
    assert got == [sum(sent)] * 2
    for peer in stays:
        peer.close()
    settle(server)
    assert server.call(lambda s: [count(s, name) for name in ("A", "B")]) == before


def leave_midway(server: Server, leaver: Peer) -> int:
    """Close a connection with many subscriptions, run until some are gone, and return how many are left."""
    all_of_them = count(server, "B")
    leaver.close()
    while count(server, "B") == all_of_them:
        round_of(server)
    return count(server, "B")


def test_a_connection_that_is_leaving_is_killed(loop: ServerThread) -> None:
    leaver = join(loop.port, "b")
    before = loop.call(lambda s: count(s, "B"))
    subscribe(leaver, lambda n: b"SUB x%d.%d %d\r\n" % (n % 97, n, n))

    def kill(server: Server) -> None:
        assert leave_midway(server, leaver) > before
        (session,) = server.clients.values()
        client = session.client
        assert client is not None
        assert len(client.subscriptions()) == client.snapshot()["subscriptions"] > 0
        client.close_connection(3)
        client.abort()
        client.enqueue_proto(b"PING\r\n")
        client.renew_imports()
        client.set_permissions(None)

    loop.call(kill)
    settle(loop)
    assert loop.call(lambda s: count(s, "B")) == before


def test_the_server_stops_while_a_connection_is_leaving(loop: ServerThread) -> None:
    leaver = join(loop.port, "b")
    subscribe(leaver, mixed)

    def stop(server: Server) -> asyncio.Task[None]:
        leave_midway(server, leaver)
        return server.begin_shutdown()

    loop.call(stop)
    loop.stop()
    assert not loop.server.clients


def test_the_server_stops_with_connections_that_have_many_subscriptions(server: ServerThread) -> None:
    leavers = [join(server.port, "b") for _ in range(3)]
    for leaver in leavers:
        subscribe(leaver, mixed, 5000)
    leavers[0].close()
    stopped = server.server
    server.call(lambda s: s.begin_shutdown())
    server.stop()
    assert not stopped.clients
    for leaver in leavers[1:]:
        leaver.close()
