"""Listening and accepting."""

import asyncio
import errno
import os
import socket
from typing import Any

import pytest

from gnats.errors import ServerError
from gnats.log.logger import Logger
from gnats.runtime import accept
from gnats.runtime.accept import AcceptLoop, listen, listen_for_clients

pytestmark = pytest.mark.timeout(60)


class Accepted:
    """Keeps the connections that an accept loop hands over."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[tuple[socket.socket, str, int]] = asyncio.Queue()
        self.socks: list[socket.socket] = []

    def create(self, sock: socket.socket, host: str, port: int) -> None:
        self.socks.append(sock)
        self.queue.put_nowait((sock, host, port))

    def close(self) -> None:
        for sock in self.socks:
            sock.close()


class Tired(socket.socket):
    """A listening socket whose accept() fails a given number of times."""

    def __init__(self, sock: socket.socket, error: int, failures: int) -> None:
        super().__init__(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self.setblocking(False)
        self.error = error
        self.failures = failures
        self.calls = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.calls += 1
        if self.calls <= self.failures:
            raise OSError(self.error, os.strerror(self.error))
        return super().accept()


async def test_a_connection_is_handed_over_non_blocking_and_without_delay() -> None:
    accepted = Accepted()
    loop = AcceptLoop(await listen("127.0.0.1", 0), "Client", accepted.create, Logger(len))
    with socket.create_connection(("127.0.0.1", loop.port)) as peer:
        sock, host, port = await accepted.queue.get()
        assert (host, port) == peer.getsockname()
        assert sock.gettimeout() == 0.0
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert not sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    loop.close()
    accepted.close()


async def test_more_connections_than_a_batch_are_all_accepted() -> None:
    accepted = Accepted()
    loop = AcceptLoop(await listen("127.0.0.1", 0), "Client", accepted.create, Logger(len))
    count = accept.BATCH * 2 + 1
    peers = [socket.create_connection(("127.0.0.1", loop.port)) for _ in range(count)]
    hosts = {(await accepted.queue.get())[2] for _ in range(count)}
    assert hosts == {peer.getsockname()[1] for peer in peers}
    loop.close()
    accepted.close()
    for peer in peers:
        peer.close()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
async def test_when_descriptors_or_memory_run_out_it_waits_longer_each_time_and_goes_on(error: int) -> None:
    lines: list[str] = []
    log = Logger(lambda line: lines.append(line.decode()), logtime=False)
    sock = Tired(await listen("127.0.0.1", 0), error, failures=3)
    accepted = Accepted()
    loop = AcceptLoop(sock, "Client", accepted.create, log)
    with socket.create_connection(("127.0.0.1", loop.port)) as peer:
        _, _, port = await accepted.queue.get()
        assert port == peer.getsockname()[1]
    reason = (
        f"accept tcp 127.0.0.1:{loop.port}: accept4: {os.strerror(error)[0].lower()}{os.strerror(error)[1:]}"
    )
    assert [line.split("] ", 1)[1] for line in lines] == [
        f"[ERR] Temporary Client Accept Error({reason}), sleeping {sleep}ms\n" for sleep in (10, 20, 40)
    ]
    assert sock.calls == 5  # three failures, the connection, and nothing more
    loop.close()
    accepted.close()


async def test_the_wait_is_a_second_at_most_and_short_again_after_a_success() -> None:
    lines: list[str] = []
    log = Logger(lambda line: lines.append(line.decode()), logtime=False)
    loop = AcceptLoop(await listen("127.0.0.1", 0), "Client", lambda *_: None, log)
    error = OSError(errno.EMFILE, "Too many open files")
    delays = []
    for _ in range(9):
        loop._back_off(error)
        delays.append(lines[-1].rpartition(" ")[2].strip())
    assert delays == [f"{ms}ms" for ms in (10, 20, 40, 80, 160, 320, 640, 1000, 1000)]
    loop.close()


async def test_a_peer_that_has_left_again_is_skipped() -> None:
    lines: list[bytes] = []
    sock = Tired(await listen("127.0.0.1", 0), errno.ECONNABORTED, failures=2)
    accepted = Accepted()
    loop = AcceptLoop(sock, "Client", accepted.create, Logger(lines.append))
    with socket.create_connection(("127.0.0.1", loop.port)):
        await accepted.queue.get()
    assert lines == []
    loop.close()
    accepted.close()


async def test_after_close_nobody_gets_in_and_no_timer_is_left() -> None:
    lines: list[str] = []
    log = Logger(lambda line: lines.append(line.decode()), logtime=False, debug=True)
    loop = AcceptLoop(await listen("127.0.0.1", 0), "Client", lambda *_: None, log)
    port = loop.port
    loop._back_off(OSError(errno.EMFILE, "Too many open files"))
    loop.close()
    loop.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    assert loop._timer is None
    assert [line for line in lines if "DBG" in line] == [lines[-1]]
    assert lines[-1].endswith("Client accept loop exiting..\n")


async def test_a_name_is_looked_up() -> None:
    sock = await listen("localhost", 0)
    assert sock.getsockname()[0] in ("127.0.0.1", "::1")
    sock.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
@pytest.mark.parametrize("host", accept.UNSPECIFIED)
async def test_the_unspecified_address_is_all_of_both_families(host: str) -> None:
    accepted = Accepted()
    loop = AcceptLoop(await listen(host, 0), "Client", accepted.create, Logger(len))
    with socket.create_connection(("127.0.0.1", loop.port)):
        assert (await accepted.queue.get())[1] == "::ffff:127.0.0.1"
    with socket.create_connection(("::1", loop.port)):
        assert (await accepted.queue.get())[1] == "::1"
    loop.close()
    accepted.close()


@pytest.mark.parametrize("error", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
async def test_without_ipv6_the_unspecified_address_is_all_of_ipv4(
    error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = accept._bound

    def without_ipv6(family: int, address: tuple[Any, ...]) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(error, os.strerror(error))
        return bound(family, address)

    monkeypatch.setattr(accept, "_bound", without_ipv6)
    with await listen("0.0.0.0", 0) as sock:
        assert sock.family == socket.AF_INET


async def test_a_port_in_use_is_an_error_that_names_it() -> None:
    with await listen("127.0.0.1", 0) as sock:
        where = f"127.0.0.1:{sock.getsockname()[1]}"
        with pytest.raises(ServerError) as caught:
            await listen_for_clients(*sock.getsockname())
    reason = f"listen tcp {where}: bind: address already in use"
    assert str(caught.value) == f'Error listening on port: {where}, "{reason}"'


async def test_a_host_that_is_not_ours_is_an_error() -> None:
    with pytest.raises(ServerError, match=r"Error listening on port: 192\.0\.2\.1:0"):
        await listen_for_clients("192.0.2.1", 0)
