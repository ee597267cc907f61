"""A hostile or unlucky client does no harm to others."""

import gc
import socket

import pytest
from support.peer import Peer
from support.process import SANITIZED, resident
from support.wire import HELLO

from gnats.core.client import Client
from gnats.core.runtime.kinds import CLIENT
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(120)
MEBIBYTE = 1 << 20


def test_a_client_that_overruns_its_own_queue_leaves_the_message_whole_for_others(
    server: ServerThread,
) -> None:
    """The server closes the publisher in the middle of the fan-out of a payload that came in pieces."""
    with Peer(server.port) as greedy, Peer(server.port) as other:
        greedy.send(b"".join(b"SUB a %d\r\n" % sid for sid in range(80)))
        greedy.fence()
        other.send(b"SUB a 1\r\n")
        other.fence()
        payload = bytes(range(256)) * 4096
        head = b"PUB a %d\r\n" % len(payload)
        greedy.send(head + payload[:1000])
        other.fence()  # the server has read the first piece
        try:
            greedy.send(payload[1000:] + b"\r\n")
        except ConnectionError:
            pytest.fail("closed before the message was complete")
        assert other.until(b"\r\n") == b"MSG a 1 %d\r\n" % len(payload)
        assert other.take(len(payload)) == payload


def test_what_a_publisher_sent_before_it_reset_the_connection_arrives(server: ServerThread) -> None:
    with Peer(server.port) as subscriber:
        subscriber.send(b"SUB a 1\r\n")
        subscriber.fence()
        for number in range(50):
            sock = socket.create_connection(("127.0.0.1", server.port))
            sock.sendall(b'CONNECT {"verbose":false}\r\nPUB a 5\r\n#%04d\r\n' % number)
            sock.close()  # INFO is unread, so the kernel resets the connection
            assert subscriber.until(b"#%04d\r\n" % number)


@pytest.mark.skipif(bool(SANITIZED), reason="a sanitizer keeps freed memory")
def test_cached_results_do_not_grow_without_bound(server: ServerThread) -> None:
    subjects, subscriptions = 1000, 10_000
    with Peer(server.port, HELLO.replace(b"{", b'{"echo":false,')) as peer:
        publishes = b"".join(b"PUB s%d 1\r\nx\r\n" % number for number in range(subjects))
        peer.send(publishes)
        peer.fence()
        peer.send(b"".join(b"SUB > %d\r\n" % sid for sid in range(subscriptions)))
        peer.fence()
        before = resident()
        peer.send(publishes)
        peer.fence()
        assert resident() - before < 40 * MEBIBYTE  # caching all of them would take 80 MiB


@pytest.mark.skipif(bool(SANITIZED), reason="a sanitizer keeps freed memory")
def test_lines_for_the_log_do_not_pile_up(server: ServerThread) -> None:
    """The server refuses and logs each publish, and stops reading the client until the lines are written."""
    count = 200_000
    with Peer(server.port) as peer, Peer(server.port) as other:
        before = worst = resident()
        for _ in range(count // 1000):
            peer.send(b"PUB a _R_.x 0\r\n\r\n" * 1000)
            peer.fence()
            worst = max(worst, resident())
        other.fence()
        assert worst - before < 60 * MEBIBYTE


def test_a_message_dropped_for_a_stalled_consumer_counts_for_its_auto_unsubscribe() -> None:
    with (
        ServerThread(
            io_threads=0, no_fast_producer_stall=True, max_payload=100_000, max_pending=200_000
        ) as server,
        Peer(server.port) as consumer,
        Peer(server.port) as publisher,
    ):
        consumer.send(b"SUB one 1\r\nUNSUB 1 1\r\nSUB big 2\r\n")
        consumer.fence()
        own = server.call(lambda s: s.num_subscriptions)
        big = b"PUB big 20000\r\n" + b"x" * 20_000 + b"\r\n"

        def pending() -> int:
            return max(server.call(lambda s: [c.snapshot()["pending_bytes"] for c in s.clients.values()]))

        for _ in range(2000):
            publisher.send(big)
            publisher.fence()
            if pending() > 150_000:
                break
        assert pending() > 150_000
        publisher.send(big + b"PUB one 1\r\nx\r\n")
        publisher.fence()
        assert server.call(lambda s: s.num_subscriptions) == own - 1


def test_many_connects_in_one_read_cost_no_more_than_their_bytes(server: ServerThread) -> None:
    with Peer(server.port) as peer:
        peer.send(b'CONNECT {"verbose":false}\r\n' * 5000)
        peer.fence()


def test_a_refused_connection_publishes_nothing() -> None:
    with ServerThread(io_threads=1, max_conn=1) as server, Peer(server.port) as subscriber:
        subscriber.send(b"SUB a 1\r\n")
        subscriber.fence()
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", server.port)) as sock:
                sock.sendall(b'CONNECT {"verbose":false}\r\nPUB a 1\r\nx\r\n')
                answer = b""
                try:
                    while got := sock.recv(4096):
                        answer += got
                except ConnectionResetError:
                    pass
        assert subscriber.fence() == b"PONG\r\n"


def clients(server: ServerThread) -> int:
    """Return the number of live client objects, after the inbox has released those it may."""
    with Peer(server.port) as peer:
        peer.fence()
    gc.collect()
    return sum(isinstance(found, Client) and found.kind == CLIENT for found in gc.get_objects())


@pytest.mark.timeout(20)
def test_a_client_that_is_closed_before_its_connect_is_answered_is_let_go(server: ServerThread) -> None:
    before = clients(server)
    for _ in range(50):
        sock = socket.create_connection(("127.0.0.1", server.port))
        sock.sendall(b"PUB a 0\r\n\r\nCONNECT {}\r\n")  # +OK stays unread, so the connection is reset
        sock.close()
    while clients(server) > before + 5:
        pass
