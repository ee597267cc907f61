"""Much input of one connection lets the others go on, and is handled completely and in order.

So do the answers of a stream; they do not pile up.
"""

import itertools
import re
import resource
import select
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.certs import Certificates
from support.peer import Peer
from support.process import SANITIZED
from support.stress import SCALE

from gnats.options.values.jetstream import JetStreamOptions
from gnats.options.values.tls import TLSOptions
from gnats.server.server import Server
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(300 * SCALE)

HELLO = b'CONNECT {"verbose":false,"headers":true}\r\n'
TOKENS = 9 if SANITIZED else 12
"""Tokens of a subject. Each subject visits 2 ** TOKENS nodes of the trie, which have subscriptions."""
FLOOD = 500
"""Messages of a flood: more than a second of work, and less than what one read takes."""
NUMBER = re.compile(rb"MSG \S+\.(\d+) \S+ 0\r\n")


@pytest.fixture
def server(io_threads: int, tmp_path: Path) -> Iterator[ServerThread]:
    jetstream = JetStreamOptions(enabled=True, store_dir=str(tmp_path))
    with ServerThread(io_threads=io_threads, jetstream=jetstream) as running:
        yield running


def join(port: int, tls: ssl.SSLContext | None = None) -> Peer:
    peer = Peer(port, HELLO, tls)
    peer.fence()
    return peer


def costly_subject(peer: Peer) -> str:
    """Make many subscriptions with wildcards; return a subject. A match below it visits them all."""
    subjects = [".".join(tokens) for tokens in itertools.product("a*", repeat=TOKENS)]
    peer.send("".join(f"SUB {subject}.z {n}\r\n" for n, subject in enumerate(subjects)).encode())
    peer.fence()
    return ".".join("a" * TOKENS)


def flood(subject: str) -> bytes:
    return "".join(f"PUB {subject}.{n} 0\r\n\r\n" for n in range(FLOOD)).encode()


def pass_through(port: int, tls: ssl.SSLContext | None = None) -> tuple[list[int], int]:
    """Flood the server. Return the numbers that a subscriber gets.

    Also return how many it had when another one's PING was answered.
    """
    with join(port, tls) as hostile, join(port, tls) as subscriber, join(port, tls) as other:
        subject = costly_subject(hostile)
        subscriber.send(f"SUB {subject}.* 1\r\n".encode())
        subscriber.fence()
        hostile.send(flood(subject) + b"PING\r\n")
        first = subscriber.until(b".0 1 0\r\n")  # the flood has been read, and its first message is through
        other.fence()
        before = first + subscriber.fence()
        hostile.until(b"PONG\r\n")
        after = subscriber.fence()
        numbers = [int(number) for number in NUMBER.findall(before + after)]
        return numbers, len(NUMBER.findall(before))


def test_a_ping_is_answered_before_anothers_flood_is_through(server: ServerThread) -> None:
    numbers, before = pass_through(server.port)
    assert numbers == list(range(FLOOD))
    assert before < FLOOD


def test_over_tls(io_threads: int, certs: Certificates) -> None:
    cert = certs.server
    options = TLSOptions(cert_file=str(cert.cert_file), key_file=str(cert.key_file), timeout=30.0)
    context = ssl.create_default_context(cafile=str(certs.ca.cert_file))
    context.check_hostname = False
    with ServerThread(io_threads=io_threads, tls=options) as running:
        numbers, before = pass_through(running.port, context)
    assert numbers == list(range(FLOOD))
    assert before < FLOOD


def test_all_that_was_sent_before_a_client_leaves_is_handled(server: ServerThread) -> None:
    with join(server.port) as hostile, join(server.port) as subscriber:
        subject = costly_subject(hostile)
        subscriber.send(f"SUB {subject}.* 1\r\nSUB last 2\r\n".encode())
        subscriber.fence()
        hostile.send(flood(subject) + b"PUB last 0\r\n\r\n")
        hostile.close()
        got = subscriber.until(b"MSG last 2 0\r\n\r\n")
    assert [int(number) for number in NUMBER.findall(got)] == list(range(FLOOD))


def test_a_server_stops_while_it_has_input_to_handle(io_threads: int) -> None:
    with ServerThread(io_threads=io_threads) as server, join(server.port) as hostile:
        subject = costly_subject(hostile)
        hostile.send(f"SUB {subject}.0 first\r\n".encode() + flood(subject))
        hostile.until(b" first 0\r\n")
        server.call(Server.begin_shutdown)
        with pytest.raises((EOFError, ConnectionResetError)):
            hostile.until(f".{FLOOD} never".encode())


def test_two_floods_take_turns(server: ServerThread) -> None:
    with join(server.port) as one, join(server.port) as two, join(server.port) as subscriber:
        subject = costly_subject(one)
        subscriber.send(f"SUB {subject}.* 1\r\n".encode())
        subscriber.fence()
        one.send(flood(subject) + b"PING\r\n")
        two.send(flood(subject) + b"PING\r\n")
        one.until(b"PONG\r\n")
        two.until(b"PONG\r\n")
        numbers = [int(number) for number in NUMBER.findall(subscriber.fence())]
    assert sorted(numbers) == sorted([*range(FLOOD)] * 2)


def test_streams_that_republish_in_a_ring_let_others_be_served(server: ServerThread) -> None:
    ring, messages = 10, 1_000
    with join(server.port) as hostile, join(server.port) as other:
        for n in range(ring):
            config = (
                f'{{"name":"L{n}","subjects":["l{n}.>"],"storage":"memory","max_msgs":10,'
                f'"republish":{{"src":">","dest":"l{(n + 1) % ring}.>"}}}}'
            )
            request = f"PUB $JS.API.STREAM.CREATE.L{n} r {len(config)}\r\n{config}\r\n"
            hostile.send(f"SUB r 1\r\n{request}".encode())
            hostile.until(b'"created"')
        hostile.send(b"UNSUB 1\r\n" + b"PUB l1.a 1\r\nx\r\n" * messages)
        hostile.fence()
        # Messages go round for as long as the streams exist: nobody would be served before they are through.
        for n in range(ring):
            other.fence()
            delete = f"SUB r 1\r\nPUB $JS.API.STREAM.DELETE.L{n} r 0\r\n\r\n"
            other.send(delete.encode())
            assert b"error" not in other.until(b'"success"')


def make_stream(peer: Peer, name: str) -> None:
    """Make a stream whose subject is its name."""
    config = f'{{"name":"{name}","subjects":["{name}"],"storage":"memory","max_msgs":10}}'
    peer.send(f"SUB r x\r\nPUB $JS.API.STREAM.CREATE.{name} r {len(config)}\r\n{config}\r\n".encode())
    peer.until(b'"created"')
    peer.send(b"UNSUB x\r\n")
    peer.fence()


def test_an_answer_waits_longer_than_its_stream_exists(server: ServerThread) -> None:
    with join(server.port) as hostile, join(server.port) as other:
        subject = costly_subject(hostile)
        make_stream(hostile, "slow")
        make_stream(other, "gone")
        hostile.send("".join(f"PUB slow {subject}.{n} 1\r\nx\r\n" for n in range(FLOOD)).encode())
        hostile.fence()
        # Hundreds of costly answers are before this one.
        other.send(b"SUB answer 1\r\nPUB gone answer 1\r\nx\r\n")
        got = other.fence()
        other.send(b"SUB deleted 2\r\nPUB $JS.API.STREAM.DELETE.gone deleted 0\r\n\r\n")
        got += other.until(b'"success":true}\r\n')
        for n in range(3):
            server.call(reap)
            make_stream(hostile, f"another{n}")  # where the deleted one was, if its memory is free
        if b"MSG answer 1 " not in got:
            got += other.until(b"}\r\n")
        assert b'{"stream":"gone","seq":1}' in got


def reap(server: Server) -> None:
    """Let go of deleted streams that nothing names."""
    assert server.js_engine
    server.js_engine.reap()


@pytest.mark.skipif(bool(SANITIZED), reason="a sanitizer's memory is not the server's")
@pytest.mark.parametrize("costly", [False, True])
def test_answers_do_not_pile_up(server: ServerThread, costly: bool) -> None:
    """Several connections publish to a stream, and do not wait for its answers."""
    publishers, most = 4, 48 << 20
    with ExitStack() as stack, join(server.port) as first:
        subject = costly_subject(first) if costly else "nobody"
        make_stream(first, "s")
        data = "".join(f"PUB s {subject}.{n} 1\r\nx\r\n" for n in range(20_000)).encode()
        before = resident()
        grown = 0
        peers = [stack.enter_context(join(server.port)) for _ in range(publishers)]
        for peer in peers:
            peer.sock.setblocking(False)
        places = dict.fromkeys(peers, 0)
        end = time.monotonic() + 5
        while time.monotonic() < end and grown < most:
            _, ready, _ = select.select([], [peer.sock for peer in peers], [], 0.01)
            for peer in peers:
                if peer.sock in ready:
                    at = places[peer]
                    places[peer] = (at + peer.sock.send(data[at : at + 65536])) % len(data)
            grown = resident() - before
        assert grown < most


def resident() -> int:
    """Bytes of the process's memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
