"""The S2 layer of a connection: what it reads in any pieces, and refuses, and what it writes."""

from __future__ import annotations

import functools
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.dataplane import DataPlane, Peer
from support.failing_server import build
from support.process import SANITIZED
from support.s2stream import (
    COMPRESSED,
    IDENTIFIER,
    MOST,
    PADDING,
    SKIPPABLE,
    SNAPPY,
    UNCOMPRESSED,
    S2Stream,
    bomb,
    chunk,
    compressed,
    masked_crc,
    uncompressed,
)

from gnats.connection.closed_state import ClosedState
from gnats.core.links.route_session import RouteSession
from gnats.core.net.transport_probe import disturb
from gnats.core.runtime.inbox import EV_CLOSED, EV_INFO, EV_PONG

pytestmark = pytest.mark.timeout(120)

EXEMPT = ("core/runtime/inbox",)
TESTS = Path(__file__).parents[3]
INFO = b"INFO {}\r\n"
GREETING = b"INFO {1}\r\n"


class Compressing:
    """A route that compresses, and its peer. What the peer reads is decoded, but for `plain`."""

    def __init__(self, plane: DataPlane, *, behind: bytes = b"", **terms: object) -> None:
        prepare: Callable[[RouteSession], object] | None = terms.pop("prepare", None)  # type: ignore[assignment]
        options = {"negotiates": True} | {name: terms.pop(name) for name in ("max_pending",) if name in terms}
        self.peer = plane.waiting_route(prepare=prepare, **options)
        self.stream = S2Stream()
        assert isinstance(self.peer.session, RouteSession)
        self.session = self.peer.session
        assert self.peer.say(INFO + behind) == b""
        assert len(plane.take(EV_INFO)) == 1
        solicited = bool(terms.get("solicited"))
        self.session.compress(GREETING, **{"solicited": solicited} | terms)  # type: ignore[arg-type]
        heard = self.peer.hear()
        self.plain = heard if solicited else b""
        assert (heard if solicited else self.stream.decode(heard)) == GREETING

    def join(self, *, measure: bool = False) -> None:
        self.session.join(headers=True, traces=True, pool_index=-1, pool_size=1, measure=measure)
        self.peer.plane.run()

    def say(self, data: bytes) -> bytes:
        """Send bytes as they are, and return what came back, decoded."""
        return self.stream.decode(self.peer.say(data))

    def hear(self) -> bytes:
        return self.stream.decode(self.peer.hear())

    @property
    def closed(self) -> int:
        self.peer.plane.run()
        return self.session.closed_reason


@pytest.fixture
def plane() -> DataPlane:
    return DataPlane()


def subscriber(plane: DataPlane) -> Peer:
    client = plane.client(plane.account("A"))
    client.say(b"SUB > 1\r\n")
    return client


def message(payload: bytes, subject: bytes = b"foo") -> bytes:
    return b"RMSG A %s %d\r\n%s\r\n" % (subject, len(payload), payload)


def delivered(payload: bytes, subject: bytes = b"foo") -> bytes:
    return b"MSG %s 1 %d\r\n%s\r\n" % (subject, len(payload), payload)


CORPUS = b"".join(
    (
        IDENTIFIER,
        uncompressed(b"RMSG A a 1\r\nx\r\n"),
        PADDING,
        compressed(message(b"abcdefgh" * 9, b"b")),
        IDENTIFIER,
        SKIPPABLE,
        chunk(0xFE, b""),
        uncompressed(b"RMSG A c"),
        SNAPPY,
        uncompressed(b""),
        uncompressed(b" 2\r\nyz\r\nPING\r\n"),
    )
)
HEARD = delivered(b"x", b"a") + delivered(b"abcdefgh" * 9, b"b") + delivered(b"yz", b"c")


def test_chunks_are_read_in_any_two_pieces() -> None:
    for split in range(len(CORPUS) + 1):
        with DataPlane() as plane:
            client, route = subscriber(plane), Compressing(plane)
            route.join()
            route.hear()
            answer = route.say(CORPUS[:split]) + route.say(CORPUS[split:])
            assert (client.hear(), answer) == (HEARD, b"PONG\r\n"), split


def test_chunks_are_read_byte_by_byte() -> None:
    with DataPlane() as plane:
        client, route = subscriber(plane), Compressing(plane)
        route.join()
        for byte in CORPUS:
            route.peer.say(bytes([byte]))
        assert client.hear() == HEARD


def test_what_was_read_behind_the_info_is_decoded() -> None:
    # the solicitor's second INFO decides what follows: the session waits for it, whatever came with the first
    second = IDENTIFIER + uncompressed(b'INFO {"x":1}\r\n')
    for split in range(len(second) + 1):
        with DataPlane() as plane:
            route = Compressing(plane, behind=second[:split])
            route.say(second[split:])
            [(_, _, _, _, data)] = plane.take(EV_INFO)
            assert data == b'{"x":1}', split
            route.join()
            assert route.say(uncompressed(b"PING\r\n")) == b"PONG\r\n"


def test_a_long_read_behind_the_info() -> None:
    with DataPlane() as plane:
        payload = random.Random(1).randbytes(100_000)
        whole = S2Stream().encode(b"INFO {}\r\n" + message(payload) * 2)
        client, route = subscriber(plane), Compressing(plane, behind=whole[:70_000])
        route.say(whole[70_000:])
        assert len(plane.take(EV_INFO)) == 1
        route.join()
        assert client.hear() == delivered(payload) * 2


@pytest.mark.parametrize("first", [b"P", b"PING\r\n", b"INFO {}\r\n", b"\r\n", b"\x00"])
def test_the_acceptor_reads_no_plain_text_behind_the_info(first: bytes) -> None:
    with DataPlane() as plane:
        route = Compressing(plane, behind=first + b"12345678")
        assert route.closed == ClosedState.READ_ERROR


def test_the_solicitor_waits_for_the_peer() -> None:
    with DataPlane() as plane:
        route = Compressing(plane, solicited=True)
        route.session.enqueue_proto(b"PING\r\n")
        assert route.peer.hear() == b""
        assert route.session.snapshot()["pending_bytes"] == 0
        assert route.say(IDENTIFIER[:1]) == b"PING\r\n"
        assert route.say(IDENTIFIER[1:] + uncompressed(b"PING\r\n")) == b"PONG\r\n"
        assert route.plain == GREETING


def test_the_acceptor_may_answer_in_plain_text() -> None:
    with DataPlane() as plane:
        route = Compressing(plane, solicited=True)
        route.session.enqueue_proto(b"PING\r\n")
        assert route.peer.say(b"-ERR 'Auth") == b""
        assert route.peer.say(b"orization Violation'\r\n") == b""
        assert route.closed == ClosedState.PARSE_ERROR


def block(data: bytes, size: int, tags: bytes) -> bytes:
    """Make a compressed chunk that says its data has `size` bytes, with the checksum of `data`."""
    varint = b""
    while size >= 0x80:
        varint += bytes([size & 0x7F | 0x80])
        size >>= 7
    return chunk(COMPRESSED, struct.pack("<I", masked_crc(data)) + varint + bytes([size]) + tags)


DAMAGED = {
    "no identifier": uncompressed(b"PING\r\n"),
    "another identifier": b"\xff\x06\x00\x00S2sTwX" + uncompressed(b"PING\r\n"),
    "a skippable chunk first": PADDING + IDENTIFIER,
    "a long skippable chunk first": b"\xfe\xff\xff\xff",
    "a long identifier": b"\xff\x07\x00\x00S2sTwO.",
    "a huge identifier": b"\xff\xff\xff\xff",
    "checksum of uncompressed data": IDENTIFIER + chunk(1, b"\x00\x00\x00\x00PING\r\n"),
    "checksum of a block": IDENTIFIER + block(b"PINGPING", 8, b"\x0cPONG\x01\x04"),
    "too short for a checksum": IDENTIFIER + chunk(1, b"abc"),
    "too short for a block's checksum": IDENTIFIER + chunk(0, b"abc"),
    "no length": IDENTIFIER + chunk(0, struct.pack("<I", masked_crc(b""))),
    "an offset before the data": IDENTIFIER + block(b"", 8, b"\x0cPONG\x01\x05"),
    "less data than it says": IDENTIFIER + block(b"", 9, b"\x0cPONG\x01\x04"),
    "more data than it says": IDENTIFIER + block(b"", 7, b"\x0cPONG\x01\x04"),
    "a block that is cut off": IDENTIFIER + block(b"", 8, b"\x0cPO"),
    "a block over 4 MiB": IDENTIFIER + block(b"", MOST + 1, b"\x0cPONG\x01\x04"),
    "a block of 4 EiB": IDENTIFIER + block(b"", 1 << 62, b"\x0cPONG\x01\x04"),
    "a chunk over 4 MiB": IDENTIFIER + b"\x01" + struct.pack("<I", MOST + 100)[:3],
    "a huge chunk": IDENTIFIER + b"\x00\xff\xff\xff",
    "an unknown kind": IDENTIFIER + chunk(0x02, b""),
    "the last kind that is not skippable": IDENTIFIER + chunk(0x7F, b""),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())
def test_damage_closes_the_connection(data: bytes) -> None:
    with DataPlane() as plane:
        route = Compressing(plane)
        route.say(data)
        assert route.closed == ClosedState.READ_ERROR


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())
def test_data_before_the_damage_is_handled(data: bytes) -> None:
    if not data.startswith(IDENTIFIER):
        pytest.skip("is first")
    with DataPlane() as plane:
        client, route = subscriber(plane), Compressing(plane)
        route.join()
        route.say(IDENTIFIER + uncompressed(message(b"1")) + uncompressed(message(b"2")[:-3]) + data)
        assert client.hear() == delivered(b"1")
        assert route.closed == ClosedState.READ_ERROR


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", ClosedState.CLIENT_CLOSED),
        (IDENTIFIER, ClosedState.CLIENT_CLOSED),
        (IDENTIFIER + uncompressed(b"PI"), ClosedState.CLIENT_CLOSED),
        (IDENTIFIER[:5], ClosedState.READ_ERROR),
        (IDENTIFIER + uncompressed(b"PING\r\n")[:-1], ClosedState.READ_ERROR),
        (IDENTIFIER + PADDING[:-1], ClosedState.READ_ERROR),
        (IDENTIFIER + PADDING, ClosedState.CLIENT_CLOSED),
    ],
)
def test_the_end_of_the_input(data: bytes, reason: ClosedState) -> None:
    with DataPlane() as plane:
        route = Compressing(plane)
        route.say(data)
        route.peer.socket.close()
        assert route.closed == reason


def test_a_long_skippable_chunk_takes_no_memory() -> None:
    with DataPlane() as plane:
        route = Compressing(plane)
        route.say(IDENTIFIER + b"\x80\xff\xff\xff")
        for _ in range(256):
            route.peer.say(bytes(65536) if _ < 255 else bytes(65535))
        assert route.say(uncompressed(b"PING\r\n")) == b"PONG\r\n"


def test_a_bomb_is_handled_in_pieces() -> None:
    # 16 MiB of PONGs from 300 bytes: another connection has its turn between two pieces
    with DataPlane() as plane:
        route, client = Compressing(plane), subscriber(plane)
        one = bomb(b"PONG\r\n", MOST // 6 * 6)
        assert len(one) < 40
        route.peer.send(IDENTIFIER + one * 4)
        client.send(b"PING\r\n")
        [poller] = plane.pollers
        rounds = answered = 0
        while poller.run_once(0):
            rounds += 1
            try:
                answered = answered or (client.socket.recv(100) == b"PONG\r\n" and rounds)
            except BlockingIOError:
                continue
        assert 0 < answered <= 2
        # a poller's buffer has 256 KiB
        assert rounds >= 4 * MOST // (256 * 1024)
        assert route.say(uncompressed(b"PING\r\n")) == b"PONG\r\n"


PAYLOADS = {
    "text": b"0123456789abcdef" * 20_000,
    "random": random.Random(2).randbytes(300_000),
    "mixed": random.Random(3).randbytes(70_000) + bytes(900_000),
    "large": b"".join(b"%d," % number for number in range(1_000_000)),
}


@pytest.mark.parametrize("shrink", [True, False], ids=["compressed", "uncompressed"])
@pytest.mark.parametrize("most", [1000, 1 << 20])
@pytest.mark.parametrize("name", PAYLOADS)
def test_large_messages_come(name: str, most: int, shrink: bool) -> None:
    payload = PAYLOADS[name]
    with DataPlane() as plane:
        client, route = subscriber(plane), Compressing(plane)
        route.join()
        data = message(payload) + message(payload[:100_000]) * 3 + message(b"end")
        stream = IDENTIFIER
        for at in range(0, len(data), most):
            part = data[at : at + most]
            stream += compressed(part) if shrink else uncompressed(part)
        heard = b""
        for at in range(0, len(stream), 150_000):
            route.peer.send(stream[at : at + 150_000])
            heard += client.hear()
        assert heard == delivered(payload) + delivered(payload[:100_000]) * 3 + delivered(b"end")


@pytest.mark.parametrize("shrink", [True, False], ids=["compressed", "uncompressed"])
@pytest.mark.parametrize("name", PAYLOADS)
def test_large_messages_are_sent(name: str, shrink: bool) -> None:
    payload = PAYLOADS[name][:1_000_000]
    with DataPlane() as plane:
        client = plane.client(plane.account("A"))
        route = Compressing(plane, uncompressed=not shrink)
        route.join()
        assert route.say(route.stream.encode(b"RS+ A foo\r\n")) == b""
        sizes = [len(payload), 20_000, 100, 1]
        for size in sizes:
            client.send(b"PUB foo %d\r\n" % size)
            heard, at = b"", 0
            while at < size:
                client.send(payload[at : min(at + 150_000, size)])
                at += 150_000
                heard += route.hear()
            client.send(b"\r\n")
            heard += route.hear()
            assert heard == message(payload[:size])
        kinds = set(route.stream.kinds[1:])
        assert UNCOMPRESSED in kinds
        assert (COMPRESSED in kinds) == (shrink and name != "random")


def test_the_level_changes() -> None:
    with DataPlane() as plane:
        route = Compressing(plane)
        text = b"+OK\r\n" * 100
        for off, kind in ((True, UNCOMPRESSED), (False, COMPRESSED)):
            route.session.set_uncompressed(off)
            route.session.enqueue_proto(text)
            assert route.hear() == text
            assert route.stream.kinds[-1] == kind
        assert route.stream.kinds.count(0xFF) == 1


def test_all_that_waits_is_counted() -> None:
    with DataPlane() as plane:
        client = plane.client(plane.account("A"))
        route = Compressing(plane)
        route.join()
        route.say(route.stream.encode(b"RS+ A foo\r\n"))
        payload = random.Random(4).randbytes(10_000)
        sent = 0
        for _ in range(300):
            client.say(b"PUB foo %d\r\n%s\r\n" % (len(payload), payload))
            sent += len(message(payload))
        pending = route.session.snapshot()["pending_bytes"]
        buffered = sent - pending
        assert pending > 2_000_000
        assert 0 < buffered < 500_000  # the sockets', and less than what is encoded ahead: that counts
        heard = b""
        while more := route.hear():
            heard += more
        assert heard == message(payload) * 300
        assert route.session.snapshot()["pending_bytes"] == 0


def test_a_peer_that_does_not_read_is_closed() -> None:
    with DataPlane() as plane:
        client = plane.client(plane.account("A"))
        route = Compressing(plane, max_pending=1_000_000)
        route.join()
        route.say(route.stream.encode(b"RS+ A foo\r\n"))
        payload = random.Random(4).randbytes(10_000)
        data = b"PUB foo %d\r\n%s\r\n" % (len(payload), payload) * 300
        while not route.closed:
            try:
                data = data[client.socket.send(data) :]
            except BlockingIOError:  # it is stalled
                plane.run()
        assert route.closed == ClosedState.SLOW_CONSUMER_PENDING_BYTES


def test_an_error_is_sent_before_the_close() -> None:
    with DataPlane() as plane:
        route = Compressing(plane)
        heard = route.say(route.stream.encode(b"MSG foo 1\r\n"))
        assert heard == b"-ERR 'Unknown Protocol Operation'\r\n"
        [(_, connection, *_rest)] = plane.take(EV_CLOSED)
        assert connection is route.session


@pytest.mark.parametrize("most", [1, 7, 64])
def test_a_network_that_splits_and_delays(most: int) -> None:
    with DataPlane() as plane:
        client = plane.client(plane.account("A"))
        client.say(b"SUB in.> 1\r\n")
        route = Compressing(plane, prepare=lambda session: disturb(session, most))
        route.join()
        route.say(route.stream.encode(b"RS+ A out.*\r\n"))
        heard = b""
        texts = [b"%d:" % n + b"text" * (n % 60) for n in range(100)]
        for n, text in enumerate(texts):
            route.peer.send(route.stream.encode(message(text, b"in.%d" % n), shrink=n % 3 != 0))
            client.send(b"PUB out.%d %d\r\n%s\r\n" % (n, len(text), text))
            heard += route.hear()
        came = client.hear().replace(b"+OK\r\n", b"")
        assert came == b"".join(delivered(text, b"in.%d" % n) for n, text in enumerate(texts))
        assert heard == b"".join(message(text, b"out.%d" % n) for n, text in enumerate(texts))


def test_failures_below_close_the_connection() -> None:
    for reads, writes in ((3, -1), (-1, 3)):
        with DataPlane() as plane:
            failing = functools.partial(disturb, most=64, reads=reads, writes=writes)
            route = plane.waiting_route(prepare=failing)
            assert isinstance(route.session, RouteSession)
            route.say(INFO)
            route.session.compress(GREETING * 100, solicited=False, uncompressed=True)
            route.send(IDENTIFIER + uncompressed(b"PING\r\n" * 100))
            plane.run()
            assert route.session.closed_reason in (ClosedState.READ_ERROR, ClosedState.WRITE_ERROR)


def test_a_pong_is_told_once_a_ping() -> None:
    with DataPlane() as plane:
        route = Compressing(plane)
        route.join(measure=True)
        assert route.hear() == b"PING\r\n"
        route.say(route.stream.encode(b"PONG\r\nPONG\r\n"))
        assert len(plane.take(EV_PONG)) == 1


def test_a_connection_that_closes_before_it_begins() -> None:
    with DataPlane() as plane:
        route = plane.waiting_route()
        assert isinstance(route.session, RouteSession)
        route.say(INFO)
        route.session.close_connection(ClosedState.SERVER_SHUTDOWN)
        route.session.compress(GREETING, solicited=False)
        plane.run()
        assert route.session.closed_reason == ClosedState.SERVER_SHUTDOWN


def test_nothing_is_left_of_a_connection_that_closes_in_a_chunk() -> None:
    with DataPlane() as plane:
        route = Compressing(plane)
        route.peer.send(IDENTIFIER + bomb(b"PONG\r\n", MOST // 6 * 6) * 2 + uncompressed(b"PING\r\n")[:-1])
        plane.pollers[0].run_once(0)
        route.session.close_connection(ClosedState.SERVER_SHUTDOWN)
        assert route.closed == ClosedState.SERVER_SHUTDOWN


@pytest.mark.skipif(bool(SANITIZED), reason="loads an allocator of its own in front of all others")
def test_a_failed_allocation_closes_the_route(tmp_path: Path) -> None:
    if not shutil.which("gcc"):
        pytest.skip("no gcc")
    found = subprocess.run(
        [sys.executable, "-P", "-m", "support.s2memory"],
        env=os.environ | build(tmp_path, depth=2, exempt=EXEMPT).variables | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert found.returncode == 0, found.stderr
    # the layer, its input, data that has no room, and what a poller needs to compress
    assert int(found.stdout) >= 4
