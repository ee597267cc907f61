"""A server inside a program: starting, using, stopping."""

import asyncio
import socket
import threading
from pathlib import Path

import nats
import pytest
import uvloop
from support.natspy import joined

from gnats import Options, Server, ServerError
from gnats.errors import OptionError
from gnats.version import NATS_VERSION, __version__

from .conftest import Connect, Start
from .peer import Log, Peer

pytestmark = pytest.mark.timeout(60)


def descriptors() -> set[str]:
    """Return the process's open descriptors, those that a server may have opened."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:
            continue
        if target.startswith(("socket:", "anon_inode:", "/proc/net")) or "eventpoll" in target:
            found.add(f"{entry.name} {target}")
    return found


async def test_messages_flow(start: Start) -> None:
    server = await start()
    async with joined(server.client_url) as client:
        subscription = await client.subscribe("greet.*")
        await client.publish("greet.joe", b"hello", headers={"a": "b"})
        message = await subscription.next_msg(timeout=30)
        assert (message.subject, message.data, message.headers) == ("greet.joe", b"hello", {"a": "b"})


async def test_requests_without_responders_fail_at_once(start: Start) -> None:
    server = await start()
    async with joined(server.client_url) as client:
        with pytest.raises(nats.errors.NoRespondersError):
            await client.request("nobody", b"", timeout=30)


async def test_it_tells_its_address_and_what_it_holds(start: Start, connect: Connect) -> None:
    server = await start(server_name="here")
    before = server.num_subscriptions
    peer = await connect(server)
    await peer.connected()
    await peer.ask(b"SUB a 1\r\nSUB b 2\r\n")
    assert server.client_url == f"nats://127.0.0.1:{server.port}"
    assert server.num_clients == 1
    assert server.num_subscriptions == before + 2
    assert (server.name, peer.info["server_name"]) == ("here", "here")
    assert peer.info["server_id"] == server.id
    assert peer.info["port"] == server.port


async def test_an_unnamed_server_has_its_id_as_name(start: Start) -> None:
    server = await start()
    assert server.name == server.id


async def test_clients_are_told_the_advertised_address(start: Start, connect: Connect) -> None:
    peer = await connect(await start(client_advertise="example.com:1234"))
    assert (peer.info["host"], peer.info["port"]) == ("example.com", 1234)


async def test_two_servers_in_one_loop_do_not_mix(start: Start, connect: Connect) -> None:
    one, two = await start(), await start()
    first, second = await connect(one), await connect(two)
    assert one.port != two.port
    assert first.info["server_id"] != second.info["server_id"]
    await second.connected()
    await second.ask(b"SUB a 1\r\n")
    await first.connected()
    await first.ask(b"PUB a 2\r\nhi\r\n")
    assert await second.ask(b"") == []


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_it_runs_in_either_event_loop(io_threads: int, loop_factory: object) -> None:
    async def main() -> list[bytes]:
        async with Server(Options(host="127.0.0.1", port=-1, io_threads=io_threads)) as server:
            peer = await Peer.connect(server.port)
            await peer.connected()
            answer = await peer.ask(b"SUB a 1\r\nPUB a 2\r\nhi\r\n")
            await peer.close()
            return answer

    with asyncio.Runner(loop_factory=loop_factory) as runner:  # type: ignore[arg-type]
        assert runner.run(main()) == [b"MSG a 1 2", b"hi"]


async def test_a_shut_down_server_leaves_nothing_behind(io_threads: int) -> None:
    async with Server(Options(host="127.0.0.1", port=-1, io_threads=io_threads)):
        pass  # the event loop has opened its own descriptors now
    opened, threads, tasks = descriptors(), set(threading.enumerate()), asyncio.all_tasks()
    async with Server(Options(host="127.0.0.1", port=-1, io_threads=io_threads)) as server:
        peers = [await Peer.connect(server.port) for _ in range(5)]
        for peer in peers:
            await peer.connected()
        assert len(threading.enumerate()) == len(threads) + io_threads
    for peer in peers:
        await peer.close()
    assert asyncio.all_tasks() == tasks
    assert set(threading.enumerate()) == threads
    assert descriptors() == opened


async def test_a_failed_start_leaves_nothing_behind(io_threads: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        opened, threads = descriptors(), set(threading.enumerate())
        server = Server(Options(host="127.0.0.1", port=taken.getsockname()[1], io_threads=io_threads))
        with pytest.raises(ServerError, match="bind: address already in use"):
            await server.start()
        assert set(threading.enumerate()) == threads
        assert descriptors() == opened


async def test_a_server_starts_once(start: Start) -> None:
    server = await start()
    with pytest.raises(RuntimeError, match="starts once"):
        await server.start()
    await server.shutdown()
    with pytest.raises(RuntimeError, match="starts once"):
        await server.start()


async def test_the_pid_file_must_be_writable(io_threads: int, tmp_path: Path) -> None:
    path = tmp_path / "no" / "pid"
    server = Server(Options(port=-1, pid_file=str(path), io_threads=io_threads))
    with pytest.raises(ServerError) as caught:
        await server.start()
    assert str(caught.value) == f"Could not write pidfile: open {path}: no such file or directory"


def test_options_that_cannot_work_are_refused_at_once() -> None:
    with pytest.raises(OptionError, match="server name cannot contain spaces"):
        Server(Options(server_name="a b"))


async def test_it_is_silent_unless_given_a_log(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    await start(debug=True, trace=True)
    assert capfd.readouterr() == ("", "")


async def test_it_logs_to_the_file_it_is_told(io_threads: int, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    opts = Options(host="127.0.0.1", port=-1, log_file=str(path), logtime=False, io_threads=io_threads)
    async with Server(opts) as server:
        where = f"127.0.0.1:{server.port}"
    assert [line.split("] ", 1)[1] for line in path.read_text().splitlines()] == [
        "[INF] Starting nats-server",
        f"[INF]   Version:  {NATS_VERSION}",
        "[INF]   Git:      [not set]",
        f"[INF]   gnats:    {__version__}",
        f"[INF]   Name:     {server.name}",
        f"[INF]   ID:       {server.id}",
        f"[INF] Listening for client connections on {where}",
        "[INF] Server is ready",
        "[INF] Initiating Shutdown...",
        "[INF] Server Exiting..",
    ]


async def test_its_log_names_a_client_from_beginning_to_end(start: Start, connect: Connect) -> None:
    log = Log()
    peer = await connect(await start(log))
    await peer.connected(name="me", lang="py", version="1")
    name = f"{peer.address} - cid:{peer.info['client_id']}"
    await peer.close()
    await log.seen("connection closed")
    assert log.with_text(name) == [
        f"[DBG] {name} - Client connection created",
        f'[DBG] {name} - "v1:py:me" - Client connection closed: Client Closed',
    ]


def listening_addresses(server: Server) -> set[str]:
    """Return the addresses that a server's client port is open on, as the kernel writes them."""
    port = f"{server.port:04X}"
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            address, _, number = line.split()[1].rpartition(":")
            if number == port and line.split()[3] == "0A":  # listening
                found.add(address)
    return found


async def test_it_listens_on_loopback_unless_it_is_told_otherwise() -> None:
    async with Server(Options(port=-1)) as server:
        assert listening_addresses(server) == {"0100007F"}
        assert server.client_url == f"nats://127.0.0.1:{server.port}"
    async with Server(Options(host="", port=-1)) as server:
        assert listening_addresses(server) == {"0100007F"}


@pytest.mark.parametrize(("host", "shown"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]")])
async def test_one_on_all_addresses_has_a_url_that_can_be_used(host: str, shown: str) -> None:
    async with Server(Options(host=host, port=-1)) as server:
        assert listening_addresses(server) & {"0" * 8, "0" * 32}
        assert server.client_url == f"nats://{shown}:{server.port}"
        async with joined(server.client_url) as client:
            await client.flush()


async def test_a_configuration_file_holds(io_threads: int, connect: Connect, tmp_path: Path) -> None:
    """Only users of the file may connect, also after a reload."""
    conf = tmp_path / "server.conf"
    conf.write_text("port: -1\nauthorization { user: joe, password: secret }")
    opts = Options.from_file(conf)
    opts.io_threads = io_threads
    async with Server(opts) as server:
        for _ in range(2):
            stranger = await connect(server)
            stranger.send(b"CONNECT {}\r\n")
            assert await stranger.rest() == b"-ERR 'Authorization Violation'\r\n"
            await (await connect(server)).connected(user="joe", **{"pass": "secret"})
            await server.reload()
        assert listening_addresses(server) == {"0100007F"}


def test_a_configuration_file_that_nobody_has_read_is_refused(tmp_path: Path) -> None:
    conf = tmp_path / "server.conf"
    conf.write_text("authorization { user: joe, password: secret }")
    with pytest.raises(OptionError, match=r"was not read: use Options\.from_file\(\)"):
        Server(Options(port=-1, config_file=str(conf)))


def test_a_configuration_file_is_refused_or_doubted_with_line_and_position(tmp_path: Path) -> None:
    conf = tmp_path / "server.conf"
    conf.write_text("port: -1\nmax_payload: []")
    with pytest.raises(OptionError, match=r"server\.conf:2:\d+"):
        Options.from_file(conf)
    conf.write_text("")
    with pytest.warns(UserWarning, match="config has no values or is empty"):
        assert Options.from_file(str(conf)).port == 4222
