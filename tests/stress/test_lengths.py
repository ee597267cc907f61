"""Messages about as long as the server's buffers, back to back: each subscriber gets every byte.

Payload sizes, and sizes of whole delivered messages, go from 80 bytes below each power of two to 16 above.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from support.caller import Caller
from support.certs import Certificates
from support.peer import Peer
from support.process import SANITIZED
from support.servers import Server
from support.tlswire import client_context
from support.wire import PING, connect_op

from gnats.options.values.tls import TLSOptions
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(600 if SANITIZED else 300)

BELOW, ABOVE = 80, 16
SMALL = [1 << power for power in range(17)]
"""Up to the largest buffer of an outbound queue; a longer message is spread over several."""
LARGE = [1 << power for power in range(17, 21)]
WINDOW = 2 << 20
"""Bytes of messages that are on their way at a time."""
OPTIONS: dict[str, Any] = {"max_payload": 2 << 20, "max_control_line": 8192}
NOISE = random.Random(1).randbytes(max(LARGE) + 4096)


def around(edges: Iterable[int]) -> list[int]:
    return sorted({n for edge in edges for n in range(max(edge - BELOW, 0), edge + ABOVE + 1)})


@dataclass(frozen=True)
class Message:
    subject: bytes
    reply: bytes
    header: bytes
    body: bytes

    @property
    def published(self) -> bytes:
        to = b" ".join(filter(None, (self.subject, self.reply)))
        size = len(self.header) + len(self.body)
        if self.header:
            return b"HPUB %s %d %d\r\n%s%s\r\n" % (to, len(self.header), size, self.header, self.body)
        return b"PUB %s %d\r\n%s\r\n" % (to, size, self.body)

    def delivered(self, sid: bytes, headers: bool) -> bytes:
        to = b" ".join(filter(None, (self.subject, sid, self.reply)))
        size = len(self.header) + len(self.body)
        if self.header and headers:
            return b"HMSG %s %d %d\r\n%s%s\r\n" % (to, len(self.header), size, self.header, self.body)
        return b"MSG %s %d\r\n%s\r\n" % (to, len(self.body), self.body)


@dataclass(frozen=True)
class Shape:
    """The common part of a sweep's messages."""

    subject: bytes = b"a"
    reply: bytes = b""
    header: bytes = b""

    def message(self, size: int) -> Message:
        """Make a message of `size` bytes of header and payload."""
        start = size % 4093  # so that messages of similar sizes have different bytes
        return Message(self.subject, self.reply, self.header, NOISE[start : start + size - len(self.header)])


class Checker(Peer):
    """A connection that checks what it reads against the expected bytes."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None, headers: bool = True) -> None:
        super().__init__(port, connect_op(headers=headers), tls)
        self.headers = headers
        self.sid = b""

    def subscribe(self, subject: bytes, sid: bytes, queue: bytes = b"") -> None:
        self.sid = sid
        self.send(b"SUB %s\r\n" % b" ".join(filter(None, (subject, queue, sid))))
        self.fence()

    def expect(self, want: bytes) -> None:
        """Require that exactly these bytes come next, apart from PINGs between messages."""
        got = bytearray(self.take(len(want)))
        while got != want:
            at = first_difference(got, want)
            near = slice(max(at - 40, 0), at + 40)
            assert got[at : at + len(PING)] == PING, (at, bytes(got[near]), want[near])
            del got[at : at + len(PING)]
            got += self.take(len(PING))


def first_difference(a: bytes | bytearray, b: bytes) -> int:
    low, high = 0, len(b)
    while low < high:
        middle = (low + high) // 2
        if a[low : middle + 1] == b[low : middle + 1]:
            low = middle + 1
        else:
            high = middle
    return low


def windows(messages: Iterable[Message]) -> Iterator[list[Message]]:
    window: list[Message] = []
    size = 0
    for message in messages:
        window.append(message)
        size += len(message.body)
        if size >= WINDOW:
            yield window
            window, size = [], 0
    yield window


def sweep(publisher: Checker, subscribers: Sequence[Checker], shape: Shape, sizes: Iterable[int]) -> None:
    for window in windows(shape.message(size) for size in sizes if size >= len(shape.header)):
        publisher.send(b"".join(message.published for message in window))
        for peer in subscribers:
            peer.expect(b"".join(message.delivered(peer.sid, peer.headers) for message in window))


def totals(peer: Checker, shape: Shape, edges: Iterable[int]) -> Iterator[int]:
    """Yield sizes with which the delivered messages of `peer` have lengths around the edges."""
    for total in around(edges):
        size = total
        while (over := len(shape.message(size).delivered(peer.sid, peer.headers)) - total) > 0:
            size -= over
            if size < len(shape.header):
                break
        else:
            yield size


SHAPES = {
    "short": Shape(),
    "long": Shape(subject=b"long." + b"s" * 200, reply=b"reply." + b"r" * 300),
    "reply": Shape(reply=b"r"),
    "header": Shape(header=b"NATS/1.0\r\n\r\n"),
    "long header": Shape(b"l" * 70, b"r" * 70, b"NATS/1.0\r\nName: " + b"h" * 500 + b"\r\n\r\n"),
}
SIDS = [b"1", b"s" * 31, b"s" * 5000]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


Join = Callable[..., Checker]


@pytest.fixture(params=["loop", "threads", "tls loop", "tls threads"])
def join(request: pytest.FixtureRequest, certs: Certificates, stack: ExitStack) -> Join:
    """join(): a new connection to a server; with threads, its pollers take turns."""
    options: dict[str, Any] = {"io_threads": 2 if "threads" in request.param else 0}
    context = None
    if "tls" in request.param:
        files = {"cert_file": certs.server.cert_file, "key_file": certs.server.key_file}
        options["tls"] = TLSOptions(**{name: str(path) for name, path in files.items()})
        context = client_context(certs)
    server = stack.enter_context(ServerThread(**OPTIONS | options))

    def join(**options: Any) -> Checker:
        peer = Checker(server.port, context, **options)
        stack.callback(peer.sock.close)
        return peer

    return join


@pytest.mark.parametrize("name", SHAPES)
def test_every_length_arrives_whole(join: Join, name: str) -> None:
    shape = SHAPES[name]
    publisher = join()
    several = []
    for sid in SIDS:
        peer = join()
        peer.subscribe(shape.subject, sid)
        sweep(publisher, [*several, peer], shape, totals(peer, shape, SMALL))
        several.append(peer)
    member = join(headers=False)
    member.subscribe(shape.subject, b"9", b"q" * 900)
    sweep(publisher, [*several, member], shape, totals(member, shape, SMALL))
    several.append(member)
    sizes = around(SMALL)
    sweep(publisher, several, shape, sizes)
    random.Random(2).shuffle(sizes)
    sweep(publisher, several, shape, sizes)


def test_every_length_over_several_buffers_arrives_whole(join: Join) -> None:
    publisher, peer, other = join(), join(), join()
    edges = LARGE[:1] if SANITIZED else LARGE
    peer.subscribe(b"a", b"1")
    sweep(publisher, [peer], SHAPES["short"], totals(peer, SHAPES["short"], edges))
    other.subscribe(b"a", b"s" * 31)
    sweep(publisher, [peer, other], SHAPES["short"], around(edges))


def test_two_deliveries_that_nearly_fill_a_buffer_leave_each_other_alone(join: Join) -> None:
    publisher, peer = join(), join()
    peer.subscribe(b"a", b"1")
    for size in range(65_536 - 2 * BELOW, 65_536 + ABOVE):
        sweep(publisher, [peer], SHAPES["short"], [size, size, 0, size, 1])


@pytest.mark.parametrize("name", ["short", "long", "long header"])
def test_payloads_that_come_in_pieces_arrive_whole(join: Join, name: str) -> None:
    """Pieces end anywhere. The server reads the rest of a payload into the block that queues refer to."""
    rng = random.Random(4)
    shape = SHAPES[name]
    publisher = join()
    peers = [join(), join(headers=False), join(), join()]
    for number, peer in enumerate(peers):
        peer.subscribe(shape.subject, b"%d" % number, b"group" if number == 3 else b"")
    sizes = [*around([8192, 16_384, 65_536]), *rng.sample(range(1 << 18), 40), *rng.choices(range(64), k=100)]
    rng.shuffle(sizes)
    for window in windows(shape.message(size) for size in sizes if size >= len(shape.header)):
        data = b"".join(message.published for message in window)
        while data:
            n = rng.choice([1, 2, 60, 4000, 20_000, 70_000, 300_000])
            publisher.send(data[:n])
            data = data[n:]
        for peer in peers:
            peer.expect(b"".join(message.delivered(peer.sid, peer.headers) for message in window))


STREAM_SHAPES = [
    ("", ""),
    ("r" * 200, ""),
    ("", "NATS/1.0\r\nName: " + "h" * 100 + "\r\n\r\n"),
]
ACK_REPLY = 64
"""About how much longer a delivery of a stream is than its payload and subject."""


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_every_length_goes_through_a_stream(launch: Callable[..., Server], storage: str) -> None:
    server = launch(config="jetstream { store_dir: js }\nmax_pending: 256MB")
    edges = SMALL[8:] if SANITIZED else [*SMALL, LARGE[0]]
    with Caller(server) as caller, Caller(server, inbox="_INBOX.other") as reader:
        made = caller.request(
            "$JS.API.STREAM.CREATE.S",
            {"name": "S", "subjects": ["s.>"], "storage": storage, "allow_direct": True},
        )
        assert "error" not in made.json
        listen(reader, "before")
        sizes = sorted({max(n - less, 0) for n in around(edges) for less in (0, ACK_REPLY)})
        sent: list[tuple[str, bytes, bytes]] = []
        for i, size in enumerate(sizes):
            token, header = STREAM_SHAPES[i % len(STREAM_SHAPES)]
            head = header.encode()
            body = NOISE[size % 4093 :][: max(size - len(head), 0)]
            sent.append((f"s.{size}{token}", head, body))
        for start in range(0, len(sent), 64):
            for subject, header, body in sent[start : start + 64]:
                caller.publish(subject, body, header=header)
            expect_messages(reader, "before", sent[start : start + 64])
        listen(reader, "after")
        expect_messages(reader, "after", sent)
        for subject, _, body in sent[:: 1 if storage == "memory" else 7]:
            assert caller.request(f"$JS.API.DIRECT.GET.S.{subject}").payload == body


def listen(reader: Caller, name: str) -> None:
    """Make a push consumer of the whole stream, with a queue group."""
    reader.subscribe(f"deliver.{name}", "q" * 50)
    config = {"durable_name": name, "deliver_subject": f"deliver.{name}", "deliver_group": "q" * 50}
    request = {"stream_name": "S", "config": config | {"ack_policy": "none"}}
    assert "error" not in reader.request(f"$JS.API.CONSUMER.DURABLE.CREATE.S.{name}", request).json


def expect_messages(reader: Caller, name: str, sent: Sequence[tuple[str, bytes, bytes]]) -> None:
    for subject, header, body in sent:
        message = reader.next()
        assert message.reply.startswith(f"$JS.ACK.S.{name}.1.")
        assert (message.subject, message.header) == (subject, header)
        assert message.payload == body, (len(message.payload), len(body))
