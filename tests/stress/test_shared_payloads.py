"""Many queues share large payloads: when one is closed, the others lose nothing, and memory is freed."""

from __future__ import annotations

import random
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.nomemory import NoMemory
from support.peer import Peer
from support.process import SANITIZED
from support.servers import KINDS, Kind, Server
from support.wire import connect_op

pytestmark = pytest.mark.timeout(300)

NOISE = random.Random(5).randbytes(1 << 18)
HEADER = b"NATS/1.0\r\nName: " + b"h" * 200 + b"\r\n\r\n"
BARE = b'CONNECT {"verbose":false,"headers":false}\r\n'
HEADERS = b'CONNECT {"verbose":false,"headers":true}\r\n'
ACCOUNTS = """
    max_pending: 64mb
    accounts {
        A { users: [{user: a, password: p}], exports: [{stream: ">"}] }
        B { users: [{user: b, password: p}], imports: [{stream: {account: A, subject: a}, to: imported}] }
    }
"""
PENDING = 4 << 20
WINDOW = 1 << 20
"""Bytes that are published before the subscribers that read have them: only a slow one's queue gets long."""


def bodies(count: int, seed: int) -> list[bytes]:
    rng = random.Random(seed)
    return [NOISE[rng.randrange(1 << 16) :][: rng.randrange(12_000, 100_000)] for _ in range(count)]


def published(body: bytes) -> bytes:
    return b"HPUB a %d %d\r\n%s%s\r\n" % (len(HEADER), len(HEADER) + len(body), HEADER, body)


def delivered(body: bytes, headers: bool) -> bytes:
    if headers:
        return b"HMSG a 1 %d %d\r\n%s%s\r\n" % (len(HEADER), len(HEADER) + len(body), HEADER, body)
    return b"MSG a 1 %d\r\n%s\r\n" % (len(body), body)


def subscriber(port: int, hello: bytes) -> Peer:
    peer = Peer(port, hello)
    peer.send(b"SUB a 1\r\n")
    peer.fence()
    return peer


def frame(peer: Peer, size: int) -> bytes:
    """Read a message of `size` bytes; answer a PING that comes before it."""
    while (start := peer.take(6)) == b"PING\r\n":
        peer.send(b"PONG\r\n")
    return start + peer.take(size - len(start))


class Slow:
    """A subscriber with a small receive buffer that does not read."""

    def __init__(self, port: int, hello: bytes, subject: bytes = b"a") -> None:
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.sock.settimeout(60)
        self.sock.connect(("127.0.0.1", port))
        self.sock.sendall(hello + b"SUB %s 1\r\nPING\r\n" % subject)
        data = b""
        while b"PONG\r\n" not in data:
            data += self.sock.recv(4096)

    def close(self) -> None:
        self.sock.close()


def in_windows(messages: list[bytes]) -> Iterator[list[bytes]]:
    window: list[bytes] = []
    for body in messages:
        window.append(body)
        if sum(map(len, window)) >= WINDOW:
            yield window
            window = []
    yield window


def resident(server: Server) -> int:
    """Return the server's resident anonymous memory in bytes."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
    assert found
    return int(found[1]) * 1024


@pytest.fixture
def peers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_slow_consumer_is_closed_and_the_others_have_every_byte(
    launch: Callable[..., Server], kind: Kind
) -> None:
    server = launch(config=f"max_pending: {PENDING}")
    used = []
    for number in range(2 if kind.is_reference else 8):
        with ExitStack() as stack:
            readers = [
                (stack.enter_context(subscriber(server.port, hello)), hello is HEADERS)
                for hello in (HEADERS, BARE, HEADERS, BARE)
            ]
            for hello in (HEADERS, BARE):
                stack.callback(Slow(server.port, hello).close)
            publisher = stack.enter_context(Peer(server.port))
            start = len(server.log)
            for window in in_windows(bodies(400, number)):
                publisher.send(b"".join(map(published, window)))
                for reader, headers in readers:
                    for body in window:
                        want = delivered(body, headers)
                        assert frame(reader, len(want)) == want
            server.wait_log("(?s)Slow Consumer Detected.*Slow Consumer Detected", start)
            assert b"-ERR" not in publisher.fence()
        server.wait_for_rest()
        used.append(resident(server))
    if not kind.is_reference and not SANITIZED:
        # A round queues more than PENDING bytes: memory that it kept would show after eight rounds.
        assert used[-1] - used[1] < 3 * PENDING, used


@pytest.mark.skipif(bool(SANITIZED), reason="a sanitizer keeps what is freed")
def test_many_slow_consumers_take_the_memory_of_one(
    launch: Callable[..., Server], kind: Kind, peers: ExitStack
) -> None:
    if kind.is_reference:
        pytest.skip("the reference copies payloads")
    server = launch(config=f"max_pending: {64 << 20}")
    for number in range(32):
        peers.callback(Slow(server.port, HEADERS if number % 2 else BARE).close)
    publisher = peers.enter_context(Peer(server.port))
    before = resident(server)
    publisher.send(b"".join(map(published, [NOISE] * 64)))
    publisher.fence()
    # 16 MiB for subscribers with headers, as much for those without, and lines; copies would be 512 MiB.
    assert resident(server) - before < 96 << 20


def hello_of(user: str, headers: bool) -> bytes:
    return connect_op(user, "p", headers=headers)


def in_both_accounts() -> list[tuple[bytes, bytes, bool]]:
    """Return (CONNECT, subject, headers) of subscribers, exporting and importing account in turns."""
    return [
        (hello_of(user, headers), subject, headers)
        for headers in (True, False)
        for user, subject in (("a", b"a"), ("b", b"imported"))
    ] * 2


def test_importers_and_others_have_every_byte_under_their_own_subject(
    launch: Callable[..., Server], peers: ExitStack
) -> None:
    server = launch(config=ACCOUNTS)
    readers = []
    for hello, subject, headers in in_both_accounts():
        reader = peers.enter_context(Peer(server.port, hello))
        reader.send(b"SUB %s 1\r\n" % subject)
        reader.fence()
        readers.append((reader, subject, headers))
    publisher = peers.enter_context(Peer(server.port, hello_of("a", True)))
    sizes = random.Random(7)
    for number in range(200):
        body = NOISE[: sizes.choice((0, 16, 5000, 16_383, 16_384, 90_000, 200_000))]
        reply = b"reply.%d " % number if number % 3 else b""
        if number % 4:
            publisher.send(
                b"HPUB a %s%d %d\r\n%s%s\r\n" % (reply, len(HEADER), len(HEADER) + len(body), HEADER, body)
            )
        else:
            publisher.send(b"PUB a %s%d\r\n%s\r\n" % (reply, len(body), body))
        for reader, subject, headers in readers:
            if headers and number % 4:
                size = b"%d %d\r\n%s" % (len(HEADER), len(HEADER) + len(body), HEADER)
                want = b"HMSG %s 1 %s%s%s\r\n" % (subject, reply, size, body)
            else:
                want = b"MSG %s 1 %s%d\r\n%s\r\n" % (subject, reply, len(body), body)
            assert frame(reader, len(want)) == want


@pytest.mark.skipif(bool(SANITIZED), reason="a sanitizer keeps what is freed")
def test_slow_importers_and_others_take_the_memory_of_one(
    launch: Callable[..., Server], kind: Kind, peers: ExitStack
) -> None:
    if kind.is_reference:
        pytest.skip("the reference copies payloads")
    server = launch(config=ACCOUNTS)
    for hello, subject, _headers in in_both_accounts() * 4:
        peers.callback(Slow(server.port, hello, subject).close)
    publisher = peers.enter_context(Peer(server.port, hello_of("a", True)))
    before = resident(server)
    publisher.send(b"".join(map(published, [NOISE] * 64)))
    publisher.fence()
    # As in the test above: copies for importers alone would be 256 MiB.
    assert resident(server) - before < 96 << 20


@pytest.mark.skipif(bool(SANITIZED), reason="a sanitizer keeps what is freed")
def test_short_payloads_that_come_in_parts_take_the_memory_of_others(
    launch: Callable[..., Server], kind: Kind, peers: ExitStack
) -> None:
    """Otherwise a subscriber that does not read holds fifty times the bytes counted against max_pending."""
    if kind.is_reference:
        pytest.skip("it copies")
    server = launch(config=f"max_pending: {64 << 20}")
    peers.callback(Slow(server.port, BARE).close)
    fencer = peers.enter_context(Peer(server.port))
    fencer.send(b"".join(map(published, [NOISE] * 32)))  # more than the socket's buffers hold
    fencer.fence()
    publishers = [peers.enter_context(Peer(server.port)) for _ in range(100)]
    for publisher in publishers:
        publisher.send(b"PUB a 10\r\n01234")
    fencer.fence()
    before = resident(server)
    for _ in range(50):
        for publisher in publishers:
            publisher.send(b"56789\r\nPUB a 10\r\n01234")
        fencer.fence()
    # 120 kB of messages; 2 KiB for each would be 10 MiB.
    assert resident(server) - before < 2 << 20


@pytest.mark.skipif(bool(SANITIZED), reason="a sanitizer has an allocator of its own")
@pytest.mark.parametrize("name", ["gnats-loop", "gnats-threads"])
def test_without_memory_for_a_block_each_subscriber_has_a_copy(
    name: str, tmp_path: Path, peers: ExitStack
) -> None:
    body = NOISE[:120_000]  # for subscribers without headers it needs a block of its own
    memory = NoMemory(tmp_path, (len(body), len(body) + 100))
    server = Server(KINDS[name], tmp_path / "server", wrapper=memory.wrapper)
    peers.callback(server.stop)
    readers = [
        (peers.enter_context(subscriber(server.port, hello)), hello is HEADERS)
        for hello in (BARE, HEADERS, BARE)
    ]
    publisher = peers.enter_context(Peer(server.port))
    memory.fail()
    for _ in range(3):
        publisher.send(published(body))
        for reader, headers in readers:
            want = delivered(body, headers)
            assert frame(reader, len(want)) == want
    memory.end()
    publisher.send(published(body))
    for reader, headers in readers:
        assert frame(reader, len(want := delivered(body, headers))) == want
    assert b"-ERR" not in publisher.fence()
