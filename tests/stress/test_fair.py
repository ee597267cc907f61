"""One client can neither occupy the control plane nor fill the memory with the work that it causes."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.peer import Peer
from support.servers import until
from support.stress import settle, together
from support.wire import HELLO

from gnats.core.runtime.inbox import (
    EV_CONNECT,
    EV_MSG,
    INBOX_BYTES,
    SHORT_READ,
    SOURCE_BYTES,
    SOURCE_EVENTS,
)
from gnats.log.logger import Logger
from gnats.options.values.auth import Permissions, SubjectPermission, User
from gnats.options.values.jetstream import JetStreamOptions
from gnats.server.server import Server
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(120)
READ = 256 * 1024
REQUEST = b"PUB $SYS.REQ.USER.INFO r 0\r\n\r\n"
EVENT = 128
"""Bytes of an event besides its data, at most."""
REQUEST_SIZE = 1024
"""Bytes of a small request as an event, at most."""


@contextlib.contextmanager
def held(server: ServerThread) -> Iterator[None]:
    """Block the control plane's thread inside the `with` block."""
    standing, go_on = threading.Event(), threading.Event()

    def stand(_: Server) -> None:
        standing.set()
        assert go_on.wait(60)

    caller = threading.Thread(target=server.call, args=(stand,))
    caller.start()
    assert standing.wait(30)
    try:
        yield
    finally:
        go_on.set()
        caller.join()


def stats(server: ServerThread) -> dict[str, int]:
    """Return the counts of work that waits for the control plane; works while that is blocked."""
    assert server.server.pollers is not None
    return server.server.pollers.inbox_stats()


def push(peer: Peer, data: bytes, is_parked: Callable[[], bool]) -> int:
    """Send until the server has parked the connection and reads no more; return the number of bytes sent.

    Raises TimeoutError when it is not parked in 30 s.
    """
    limit = time.monotonic() + 30
    peer.sock.settimeout(0.05)
    sent = 0
    while sent < len(data):
        try:
            sent += peer.sock.send(data[sent : sent + READ])
        except TimeoutError:
            if is_parked():
                break
            if time.monotonic() > limit:
                raise
    peer.sock.settimeout(30)
    return sent


def record(server: ServerThread, seen: list[tuple[int, int]]) -> None:
    """Append (kind, cid of the cause) of each event that the control plane handles to `seen`."""

    def install(running: Server) -> None:
        pollers = running.pollers
        assert pollers is not None
        handle = pollers._handle

        def noted(event: Any) -> bool:
            kind, client, a, _, _ = event
            seen.append((kind, a if kind == EV_MSG else client.cid if client else 0))
            return handle(event)

        pollers._handle = noted

    server.call(install)


def test_a_connect_is_not_behind_what_another_client_has_caused() -> None:
    seen: list[tuple[int, int]] = []
    with ServerThread(io_threads=1) as server, Peer(server.port) as hostile:
        polite = socket.create_connection(("127.0.0.1", server.port), 30)
        with polite:
            assert polite.recv(4096).startswith(b"INFO ")
            record(server, seen)
            with held(server):
                hostile.send(REQUEST * 1000)
                hostile.fence()  # all events are in the inbox
                before = stats(server)["events"]
                polite.sendall(HELLO + b"PING\r\n")
                until(lambda: stats(server)["events"] > before)
            assert polite.recv(4096).startswith(b"PONG\r\n")
    kinds = [kind for kind, _ in seen]
    assert kinds.count(EV_MSG) == 1000
    assert kinds.index(EV_CONNECT) <= 2


def test_connections_take_turns_and_keep_their_order() -> None:
    seen: list[tuple[int, int]] = []
    with ServerThread(io_threads=1) as server, contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(server.port)) for _ in range(3)]
        record(server, seen)
        with held(server):
            for peer in peers:
                peer.send(b"SUB r 1\r\n" + REQUEST * 100)
                peer.fence()
        for peer in peers:
            for _ in range(100):
                peer.until(b"}\r\n")
    causes = [cid for kind, cid in seen if kind == EV_MSG]
    assert len(causes) == 300
    for at in range(0, 300, 3):
        assert len(set(causes[at : at + 3])) == 3


@pytest.mark.parametrize(
    ("body", "count", "connections", "events", "size"),
    [
        (
            0,
            5000,
            1,
            SOURCE_EVENTS + READ // len(REQUEST),
            SOURCE_BYTES + READ // len(REQUEST) * REQUEST_SIZE,
        ),
        (1_000_000, 10, 8, 8 * 4, 8 * (SOURCE_BYTES + 1_000_000 + 2 * REQUEST_SIZE)),
        (100_000, 15, 80, 1000, INBOX_BYTES + 80 * (100_000 + SHORT_READ + REQUEST_SIZE)),
    ],
    ids=["small", "large", "from many"],
)
def test_what_waits_is_bounded_and_is_all_answered(
    body: int, count: int, connections: int, events: int, size: int
) -> None:
    """The server stops reading a connection beyond the bounds, and goes on when its requests are answered."""
    with ServerThread(io_threads=1) as server, contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(server.port)) for _ in range(connections)]
        text = b"x" * body
        requests = [
            b"PUB $SYS.REQ.USER.INFO r%02d %d\r\n%s\r\n" % (n, body, text) for n in range(connections)
        ]
        for n, peer in enumerate(peers):
            peer.send(b"SUB r%02d 1\r\n" % n)
            peer.fence()
        sent = [0] * connections

        def all_parked() -> bool:
            return stats(server)["parked"] == connections

        def fill(n: int) -> None:
            sent[n] = push(peers[n], requests[n] * count, all_parked)

        with held(server):
            together(*(lambda n=n: fill(n) for n in range(connections)))  # type: ignore[misc]
            until(all_parked)
            waiting = stats(server)
        assert waiting["events"] <= events
        assert waiting["bytes"] <= size

        def finish(n: int) -> None:
            rest = memoryview(requests[n] * count)[sent[n] :]
            writer = threading.Thread(target=peers[n].sock.sendall, args=(rest,))
            writer.start()
            for _ in range(count):
                peers[n].until(b"}\r\n")
            writer.join()

        together(*(lambda n=n: finish(n) for n in range(connections)))  # type: ignore[misc]
        until(lambda: stats(server)["parked"] == 0)
        assert stats(server)["dropped"] == 0


def test_a_parked_connection_that_goes_is_closed() -> None:
    with ServerThread(io_threads=1) as server:
        for _ in range(3):
            hostile = Peer(server.port)
            with held(server):
                push(hostile, REQUEST * 1500, lambda: stats(server)["parked"] > 0)
                until(lambda: stats(server)["parked"] > 0)
                hostile.reset()
        settle(server)
        until(lambda: stats(server)["events"] == 0)
        assert stats(server)["bytes"] == stats(server)["parked"] == 0


@pytest.mark.parametrize("threads", [0, 2])
def test_traces_of_one_client_do_not_pile_up(threads: int) -> None:
    lines: list[bytes] = []
    with (
        ServerThread(log=Logger(lines.append, trace=True), io_threads=threads) as server,
        Peer(server.port) as peer,
    ):
        for _ in range(20):
            peer.send(b"PUB a 1\r\nx\r\n" * 1000)
            assert stats(server)["events"] <= SOURCE_EVENTS + 2 * READ // 12
        peer.fence()
    assert sum(b"<<- [PUB a 1]" in line for line in lines) == 20_000


@pytest.mark.parametrize("threads", [0, 2])
def test_entries_of_one_client_are_summed_up_when_they_are_many(threads: int) -> None:
    lines: list[bytes] = []
    count = 5000
    denied = Permissions(publish=SubjectPermission(deny=("no",)))
    users = [User("bad", "pw", denied), User("good", "pw")]
    login = HELLO.replace(b"{", b'{"user":"bad","pass":"pw",')
    with (
        ServerThread(log=Logger(lines.append), io_threads=threads, users=users) as server,
        Peer(server.port, login) as hostile,
    ):
        hostile.send(b"PUB no 1\r\nx\r\n" * 20)
        assert hostile.fence().count(b"-ERR 'Permissions Violation for Publish to \"no\"'\r\n") == 20
        server.call(lambda _: None)
        assert sum(b"Publish Violation" in line for line in lines) == 20
        hostile.send(b"PUB no 1\r\nx\r\n" * count)
        assert hostile.fence().count(b"-ERR 'Permissions Violation for Publish to \"no\"'\r\n") == count
    told = sum(b"Publish Violation" in line for line in lines)
    sums = [int(line.split(b"Left out ")[1].split()[0]) for line in lines if b"Left out " in line]
    assert told + sum(sums) == count + 20
    assert sums
    assert told < count // 2


@pytest.mark.parametrize("threads", [0, 2])
def test_logins_that_are_being_checked_hold_nobody_up(
    threads: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow password checks delay neither other clients nor JetStream's file work."""
    go_on = threading.Event()

    def compare(stored: str, given: str) -> bool:
        return go_on.wait(60)

    monkeypatch.setattr("gnats.auth.passwords._check_bcrypt", compare)
    users = [User("slow", "$2b$11$" + "x" * 53), User("good", "pw")]
    with ServerThread(
        io_threads=threads,
        users=users,
        jetstream=JetStreamOptions(enabled=True, store_dir=str(tmp_path)),
    ) as server:
        waiting = []
        for _ in range(300):
            sock = socket.create_connection(("127.0.0.1", server.port), 30)
            sock.sendall(HELLO.replace(b"{", b'{"user":"slow","pass":"x",') + b"PING\r\n")
            waiting.append(sock)
        try:
            with Peer(server.port, HELLO.replace(b"{", b'{"user":"good","pass":"pw",')) as peer:
                peer.send(b"SUB r 1\r\n")
                config = json.dumps({"name": "S", "subjects": ["s"]}).encode()
                peer.send(b"PUB $JS.API.STREAM.CREATE.S r %d\r\n%s\r\n" % (len(config), config))
                assert b'"error"' not in peer.until(b"}\r\n")
        finally:
            go_on.set()
            for sock in waiting:
                sock.close()
