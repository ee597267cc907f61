"""gnats.testing, for the tests of programs that use NATS: a server in a thread, and pytest fixtures."""

import asyncio
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.natspy import jetstream, joined

from gnats import Options, ServerError
from gnats.options.values.jetstream import JetStreamOptions
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(120)


def greeting(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 30) as sock, sock.makefile("rb") as lines:
        return lines.readline()


def test_a_server_runs_in_a_thread_of_its_own(io_threads: int) -> None:
    before = set(threading.enumerate())
    with ServerThread(io_threads=io_threads, server_name="mine") as server:
        assert b'"server_name":"mine"' in greeting(server.port)
        assert server.client_url == f"nats://127.0.0.1:{server.port}"
        assert server.call(lambda inner: inner.total_clients) == 1
        port = server.port
    assert set(threading.enumerate()) == before
    with pytest.raises(ConnectionRefusedError):
        greeting(port)


def test_options_may_be_given_as_a_whole() -> None:
    opts = Options(host="127.0.0.1", port=-1, server_name="whole")
    with ServerThread(opts, loop_factory=asyncio.new_event_loop) as server:
        assert b'"server_name":"whole"' in greeting(server.port)


def test_a_failed_start_is_raised_to_the_caller() -> None:
    with ServerThread() as first:
        server = ServerThread(port=first.port)
        with pytest.raises(ServerError, match="address already in use"):
            server.start()
        server.stop()


def store_of(server: ServerThread) -> Path:
    return Path(server.call(lambda inner: inner.opts.jetstream.store_dir))


def test_streams_of_a_server_without_a_store_directory_are_its_own_and_go_with_it() -> None:
    options = JetStreamOptions(enabled=True)
    with ServerThread(jetstream=options) as one, ServerThread(jetstream=options) as two:
        stores = [store_of(one), store_of(two)]
        assert stores[0] != stores[1]

        async def add() -> int | None:
            async with joined(one.client_url) as client:
                await jetstream(client).add_stream(name="S", subjects=["s"])
                return (await jetstream(client).publish("s", b"")).seq

        assert asyncio.run(add()) == 1
        assert list(stores[0].rglob("*.blk"))
        assert not list(stores[1].rglob("*.blk"))
    assert not any(store.exists() for store in stores)


def test_a_store_directory_that_is_named_stays(tmp_path: Path) -> None:
    with ServerThread(jetstream=JetStreamOptions(enabled=True, store_dir=str(tmp_path))) as server:
        assert store_of(server) == tmp_path
    assert (tmp_path / "jetstream").is_dir()


def test_a_server_that_cannot_start_leaves_no_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with ServerThread() as first:
        server = ServerThread(port=first.port, jetstream=JetStreamOptions(enabled=True))
        with pytest.raises(ServerError, match="address already in use"):
            server.start()
        server.stop()
    assert not list(tmp_path.iterdir())


def test_stopping_twice_is_fine() -> None:
    server = ServerThread()
    server.start()
    server.stop()
    server.stop()


def test_the_fixtures_serve_tests_with_and_without_asyncio(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(
        """
import socket
import nats

def greeting(server):
    with socket.create_connection(("127.0.0.1", server.port), 30) as sock, sock.makefile("rb") as lines:
        return lines.readline()

def test_sync(nats_server):
    assert greeting(nats_server).startswith(b"INFO {")
    assert nats_server.client_url == f"nats://127.0.0.1:{nats_server.port}"

async def test_async(nats_server):
    client = await nats.connect(nats_server.client_url, connect_timeout=30)
    subscription = await client.subscribe("a")
    await client.publish("a", b"hi")
    assert (await subscription.next_msg(timeout=30)).data == b"hi"
    await client.close()

def test_factory(nats_server_factory):
    one, two = nats_server_factory(max_payload=77), nats_server_factory()
    assert b'"max_payload":77' in greeting(one)
    assert one.port != two.port

def test_one_server_for_one_test(nats_server):
    assert nats_server.call(lambda server: server.total_clients) == 0
"""
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-o",
            "asyncio_mode=auto",
            "-p",
            "no:cacheprovider",
            "test_user.py",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert "4 passed" in done.stdout, done.stdout + done.stderr
