"""Events that must not be lost survive failed allocations."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nomemory import NoMemory
from support.peer import Peer
from support.process import SANITIZED
from support.servers import KINDS, Server, until
from support.wire import HELLO

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(bool(SANITIZED), reason="a sanitizer has an allocator of its own"),
]
SIZES = 20_000, 24_000


@pytest.fixture(params=["gnats-loop", "gnats-threads"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Server, NoMemory]]:
    """A server with max_connections 1, and the switch that makes its allocations fail."""
    memory = NoMemory(tmp_path, SIZES)
    config = "max_connections: 1\nmax_control_line: 65536\nauthorization { user: u, password: p }\n"
    running = Server(KINDS[request.param], tmp_path / "server", config=config, wrapper=memory.wrapper)
    yield running, memory
    running.stop()


LOGIN = HELLO.replace(b"{", b'{"user":"u","pass":"p",')


def get_in(port: int) -> Peer | None:
    """Log in; return None where the server refuses, as it still counts the last connection."""
    try:
        return Peer(port, LOGIN)
    except (EOFError, ConnectionError):
        return None


def test_a_connect_that_cannot_be_handed_over_closes_the_connection(server: tuple[Server, NoMemory]) -> None:
    """Left open, the client would wait for its answer for ever."""
    running, memory = server
    with socket.create_connection(running.address, 30) as sock:
        assert sock.recv(4096).startswith(b"INFO ")
        memory.fail()
        sock.sendall(b'CONNECT {"verbose":false,"user":"u","pass":"p","name":"%s"}\r\n' % (b"n" * SIZES[0]))
        assert sock.recv(4096) == b""
        memory.end()
    until(lambda: get_in(running.port)).close()
    running.wait_log("Out of memory - Closing")


def test_the_end_of_a_connection_is_told(server: tuple[Server, NoMemory]) -> None:
    """The event of a closed connection arrives: otherwise it would count for ever."""
    running, memory = server
    with Peer(running.port, LOGIN) as peer:
        peer.send(b"".join(b"SUB %s.%03d %d\r\n" % (b"s" * 96, n, n) for n in range(200)))
        peer.fence()
        memory.fail()
    try:
        until(lambda: get_in(running.port)).close()
    finally:
        memory.end()
