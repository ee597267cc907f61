"""Messages of a server process to the service manager, over its datagram socket."""

import asyncio
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.quiet import quiet_server
from support.servers import KINDS, TIMEOUT, Kind
from support.wire import Connection

from gnats import Server
from gnats.commands.systemd import HUBS, LINKED, Notifier, Service, start_service
from gnats.testing import ClusterThread

from .conftest import Start

pytestmark = pytest.mark.timeout(60)

GNATS = [kind for kind in KINDS.values() if not kind.is_reference]


class Manager:
    """The service manager's end of the socket."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.bind(address.replace("@", "\0", 1))
        self._sock.settimeout(TIMEOUT)

    def close(self) -> None:
        self._sock.close()

    def read(self) -> dict[str, str]:
        """Return the next message as a dict."""
        return dict(line.split("=", 1) for line in self._sock.recv(4096).decode().split("\n"))

    def read_state(self) -> dict[str, str]:
        """Return the next message that is not a watchdog ping."""
        while "WATCHDOG" in (message := self.read()):
            pass
        return message

    async def read_later(self) -> dict[str, str]:
        return await asyncio.to_thread(self.read)

    def silent(self) -> bool:
        self._sock.setblocking(False)
        try:
            self._sock.recv(4096)
        except BlockingIOError:
            return True
        finally:
            self._sock.settimeout(TIMEOUT)
        return False


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    path = str(tmp_path / "notify")
    manager = Manager(path if request.param == "path" else f"@{path}")
    yield manager
    manager.close()


@pytest.fixture(params=GNATS, ids=lambda kind: kind.name)
def gnats(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


def test_the_life_of_a_process(gnats: Kind, manager: Manager, tmp_path: Path) -> None:
    env = {"NOTIFY_SOCKET": manager.address}
    with quiet_server(gnats, tmp_path, config="", env=env) as server:
        ready = manager.read()
        url = "nats://{}:{}".format(*server.address)
        assert ready == {"READY": "1", "STATUS": f"Serving clients at {url}"}
        with Connection(server.address) as client:
            before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            server.process.send_signal(signal.SIGHUP)
            reloading = manager.read()
            assert reloading["RELOADING"] == "1"
            assert before <= int(reloading["MONOTONIC_USEC"])
            assert manager.read()["READY"] == "1"
            client.send(b'CONNECT {"verbose":false}\r\n')
            client.fence()
            server.process.send_signal(signal.SIGUSR2)
            assert manager.read() == {"STATUS": "Lame duck mode: clients are being moved away"}
            server.process.send_signal(signal.SIGINT)
            assert manager.read()["STOPPING"] == "1"
        assert server.process.wait(TIMEOUT) == 0
    assert manager.silent()


def test_a_process_with_a_watchdog_pings(gnats: Kind, manager: Manager, tmp_path: Path) -> None:
    env = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "90000"}
    with quiet_server(gnats, tmp_path, config="", env=env) as server:
        assert manager.read()["READY"] == "1"
        for _ in range(5):
            assert manager.read() == {"WATCHDOG": "1"}
        server.process.send_signal(signal.SIGTERM)
        assert manager.read_state()["STOPPING"] == "1"
        assert server.process.wait(TIMEOUT) == 0


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:3"])
async def test_without_a_socket_nobody_is_told(start: Start, address: str) -> None:
    server = await start()
    assert start_service(server, {"NOTIFY_SOCKET": address}) is None
    assert start_service(server, {}) is None


async def test_a_manager_that_is_gone_does_no_harm(start: Start, tmp_path: Path) -> None:
    server = await start()
    assert start_service(server, {"NOTIFY_SOCKET": str(tmp_path / "none")})
    assert not Notifier(str(tmp_path / "none")).notify("READY=1")
    await server.shutdown()


def test_a_server_of_a_cluster_tells_of_its_routes(manager: Manager) -> None:
    with ClusterThread(2) as cluster:
        first, url = cluster.servers[0], cluster.client_url
        service = first.call(lambda server: start_service(server, {"NOTIFY_SOCKET": manager.address}))
        assert service
        connected = f"Serving clients at {url}, connected to 1 other server of the cluster"
        alone = f"Serving clients at {url}, connected to 0 other servers of the cluster"
        assert manager.read() == {"READY": "1", "STATUS": connected, LINKED: "s1"}
        cluster.stop(1)
        assert manager.read() == {"STATUS": alone, LINKED: ""}
        cluster.start(1)
        assert manager.read() == {"STATUS": connected, LINKED: "s1"}
    assert manager.read()["STOPPING"] == "1"
    assert manager.silent()


def test_a_leaf_node_tells_of_its_hubs(manager: Manager) -> None:
    with ClusterThread(1, leafs=1) as cluster:
        leaf, url = cluster.leafs[0], cluster.leaf_urls[0]
        assert leaf.call(lambda server: start_service(server, {"NOTIFY_SOCKET": manager.address}))
        status = f"Serving clients at {url}, as a leaf node with {{}} of 1 remotes"
        assert manager.read() == {"READY": "1", "STATUS": status.format(1), HUBS: "s0"}
        cluster.stop(0)
        assert manager.read() == {"STATUS": status.format(0), HUBS: ""}
        cluster.start(0)
        assert manager.read() == {"STATUS": status.format(1), HUBS: "s0"}
    assert manager.read()["STOPPING"] == "1"
    assert manager.silent()


async def test_a_watchdog_for_another_process_is_not_ours(start: Start, manager: Manager) -> None:
    server = await start()
    environ = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "30000", "WATCHDOG_PID": "1"}
    service = start_service(server, environ)
    assert service
    assert service._watchdog is None


class Stuck:
    """A poller that does not wake up."""

    def stats(self) -> dict[str, int]:
        return {"wakeups": 7}

    def wake(self) -> None:
        pass


async def test_a_poller_that_is_stuck_ends_the_pings(
    start: Start, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: Server = await start()
    service = Service(server, Notifier(manager.address), watchdog=0.06)
    assert (await manager.read_later())["READY"] == "1"
    for _ in range(3):
        assert await manager.read_later() == {"WATCHDOG": "1"}
    rounds = asyncio.Event()
    stuck = Stuck()
    asked = 0

    def wake() -> None:
        nonlocal asked
        asked += 1
        if asked == 5:
            rounds.set()

    stuck.wake = wake  # type: ignore[method-assign]
    with monkeypatch.context() as patch:
        assert server.pollers
        patch.setattr(server, "pollers", SimpleNamespace(all=(*server.pollers.all, stuck)))
        await rounds.wait()
        while not manager.silent():  # drop pings from before the poller was stuck
            pass
        asked = 0
        rounds.clear()
        await rounds.wait()
        assert manager.silent()
    assert await manager.read_later() == {"WATCHDOG": "1"}
    assert service._watchdog  # it would wake pollers more often than a server at rest may
    service._watchdog.cancel()
