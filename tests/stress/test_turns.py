"""Much input of one connection lets the others go on, and is handled completely and in order."""

import itertools
import re
import ssl
from collections.abc import Iterator
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
"""Tokens of a subject; matching it visits 2 ** TOKENS nodes of the trie."""
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
    """Make many subscriptions with wildcards; return a subject below which each match visits them all."""
    subjects = [".".join(tokens) for tokens in itertools.product("a*", repeat=TOKENS)]
    peer.send("".join(f"SUB {subject}.z {n}\r\n" for n, subject in enumerate(subjects)).encode())
    peer.fence()
    return ".".join("a" * TOKENS)


def flood(subject: str) -> bytes:
    return "".join(f"PUB {subject}.{n} 0\r\n\r\n" for n in range(FLOOD)).encode()


def pass_through(port: int, tls: ssl.SSLContext | None = None) -> tuple[list[int], int]:
    """Flood the server.

    Return the numbers that a subscriber gets, and how many it had when another client's PING was answered.
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
            hostile.send(b"SUB r 1\r\n")
            hostile.send(f"PUB $JS.API.STREAM.CREATE.L{n} r {len(config)}\r\n{config}\r\n".encode())
            hostile.until(b'"created"')
        hostile.send(b"UNSUB 1\r\n" + b"PUB l1.a 1\r\nx\r\n" * messages)
        hostile.fence()
        # Messages go round for as long as the streams exist: nobody would be served before they are through.
        for n in range(ring):
            other.fence()
            delete = f"SUB r 1\r\nPUB $JS.API.STREAM.DELETE.L{n} r 0\r\n\r\n"
            other.send(delete.encode())
            assert b"error" not in other.until(b'"success"')
