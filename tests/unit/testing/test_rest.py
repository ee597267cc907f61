"""The check of idle servers finds every cause that keeps one from resting, and passes servers that rest."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.js import NativeJs
from support.process import SANITIZED
from support.servers import KINDS, Kind, Server, until
from support.wire import PING, PONG, Connection

from gnats import Options
from gnats import Server as EmbeddedGnats
from gnats.go.text import SECOND
from gnats.testing import ServerThread, rest
from gnats.testing.rest import NotAtRest, ServerProcess, wait_for_rest

pytestmark = pytest.mark.timeout(120)

WAYS = [kind for kind in KINDS.values() if not kind.is_reference]
LIBC = ctypes.CDLL(None, use_errno=True)

# Runs a server whose pollers' timers fire every NANOSECONDS, once the file "go" exists.
SPINNING = """
import ctypes, os, pathlib, runpy, struct, sys, threading, time
def spin():
    while not os.path.exists("go"):
        time.sleep(0.5)
    for fd in pathlib.Path("/proc/self/fd").iterdir():
        if fd.exists() or fd.is_symlink():
            try:
                if os.readlink(fd) == "anon_inode:[timerfd]":
                    spec = struct.pack("=4q", 0, NANOSECONDS, 0, NANOSECONDS)
                    assert ctypes.CDLL(None).timerfd_settime(int(fd.name), 0, spec, None) == 0
            except FileNotFoundError:
                pass
    pathlib.Path("gone").touch()
threading.Thread(target=spin, daemon=True).start()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def timers() -> set[int]:
    return {fd for fd, target in rest.descriptors("self").items() if target == "anon_inode:[timerfd]"}


def set_timer(fd: int, nanoseconds: int) -> None:
    """Have a timer fire every `nanoseconds`; 0 disarms it."""
    spec = struct.pack("=4q", 0, nanoseconds, 0, nanoseconds)
    assert LIBC.timerfd_settime(fd, 0, spec, None) == 0, os.strerror(ctypes.get_errno())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the check's time limits, for servers that are sure to fail it."""
    monkeypatch.setattr(rest, "PATIENCE", 0.3)
    monkeypatch.setattr(rest, "WORK", 0.3)


@pytest.fixture
def program() -> Iterator[Callable[[str], ServerProcess]]:
    """Run a program that prints "ready", and then reads a line before it continues."""
    with ExitStack() as stack:

        def program(code: str) -> ServerProcess:
            process = subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdin and process.stdout
            assert process.stdout.readline() == "ready\n"
            watched = ServerProcess(process.pid)
            process.stdin.write("go\n")
            process.stdin.flush()
            assert process.stdout.readline() == "gone\n"
            return watched

        yield program


BEGIN = (
    "import os, socket, sys, tempfile, threading, time\nprint('ready', flush=True)\nsys.stdin.readline()\n"
)
END = "\nprint('gone', flush=True)\n"


@pytest.mark.parametrize("kind", WAYS, ids=lambda kind: kind.name)
def test_a_server_with_clients_that_ping_rests(kind: Kind, tmp_path: Path) -> None:
    server = Server(kind, tmp_path, config=f"ping_interval: '100ms', jetstream {{ store_dir: '{tmp_path}' }}")
    with ExitStack() as clients:
        connections = [clients.enter_context(Connection(server.address)) for _ in range(3)]
        for connection in connections:
            connection.send(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPUB a 2\r\nhi\r\n' + PING)
            connection.read_until(PONG)
        server.wait_for_rest()
    server.stop()


@pytest.mark.parametrize("kind", WAYS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("nanoseconds", [1, 10_000_000])
def test_a_server_that_goes_round_is_found(
    kind: Kind, nanoseconds: int, tmp_path: Path, impatient: None
) -> None:
    code = SPINNING.replace("NANOSECONDS", str(nanoseconds))
    server = Server(kind, tmp_path, wrapper=(sys.executable, "-c", code))
    (tmp_path / "go").touch()
    until((tmp_path / "gone").exists)
    where = r"gnats-io-\d" if kind.io_threads else "python|gnats-server"
    with pytest.raises(NotAtRest, match=rf"thread ({where}) .* (runs|sleeps): "):
        server.stop()
    assert server.process.poll() is not None


@pytest.mark.parametrize("io_threads", [0, 2])
@pytest.mark.parametrize("nanoseconds", [1, 10_000_000])
def test_an_embedded_server_that_goes_round_is_found(
    io_threads: int, nanoseconds: int, impatient: None
) -> None:
    before = timers()
    server = ServerThread(io_threads=io_threads)
    server.start()
    for fd in timers() - before:
        set_timer(fd, nanoseconds)
    # On a busy machine the poller may not have run in the last window.
    with pytest.raises(NotAtRest, match=r"poller \d went round|thread \S+ \(\d+\) runs"):
        server.stop()


@pytest.mark.parametrize("io_threads", [0, 2])
def test_a_deadline_that_passes_unnoticed_is_found(io_threads: int, impatient: None) -> None:
    before = timers()
    server = ServerThread(io_threads=io_threads, ping_interval=0.5)
    server.start()
    with Connection(("127.0.0.1", server.port)) as client:
        client.send(b'CONNECT {"verbose":false}\r\n')
        client.fence()
        for fd in timers() - before:
            set_timer(fd, 0)
        until(lambda: any(poller.state_now()["overdue"] for poller in server.server.pollers.all))
        with pytest.raises(NotAtRest, match=r"the first deadline of poller \d has passed \d+ ns ago"):
            server.stop()


def test_what_has_work_left_gets_the_time_for_it(program: Callable[[str], ServerProcess]) -> None:
    busy = program(
        f"{BEGIN}{END}end = time.thread_time() + 0.5\nwhile time.thread_time() < end: pass\ntime.sleep(99)"
    )
    wait_for_rest(busy)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("threading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True).start()", "runs"),
        ("file = tempfile.TemporaryFile()", "a file that was removed"),
        ("kept = os.pipe()", "2 more of pipe"),
        (
            "threading.Thread(target=lambda: [time.sleep(0.005) for _ in iter(int, 1)], daemon=True).start()",
            "switched",
        ),
        (
            "listener = socket.create_server(('127.0.0.1', 0))\n"
            "client = socket.create_connection(listener.getsockname())\n"
            "kept = listener.accept()[0]\nclient.close()",
            r"a connection to port \d+ that has ended",
        ),
    ],
    ids=["spins", "removed-file", "pipe", "polls", "connection"],
)
def test_what_is_not_at_rest_is_named(
    program: Callable[[str], ServerProcess], code: str, told: str, impatient: None
) -> None:
    watched = program(f"{BEGIN}{code}{END}time.sleep(99)")
    with pytest.raises(NotAtRest, match=told):
        wait_for_rest(watched)


def test_what_a_stopped_server_keeps_open_is_named() -> None:
    with ServerThread() as server:
        port, pollers = server.port, server.server.pollers
        assert pollers
        with pytest.raises(NotAtRest, match="poller 0 is open"):
            rest.require_closed(port, pollers)
        with socket.create_connection(("127.0.0.1", port)), pytest.raises(NotAtRest, match=f"port {port}"):
            rest.require_closed(port, pollers)
    rest.require_closed(port, pollers)


@pytest.mark.parametrize("threads", [0, 2])
def test_an_engine_made_outside_the_server_is_watched(threads: int, impatient: None) -> None:
    """The check comes before the test takes the engine out of the loop and closes it."""
    js = NativeJs(threads)
    js.create_stream("Q", subjects=["q"])
    js.create_consumer("Q", "C", ack_policy="explicit", ack_wait=SECOND // 20)
    with js.peer() as peer:
        peer.pub("$JS.API.CONSUMER.MSG.NEXT.Q.C", b'{"batch":9}', peer.inbox())
        peer.flush()
        js.publish("q")
        loop = js.thread.run(_loop())
        js.call(lambda _: loop.remove_reader(js.engine.fileno()))
        until(lambda: js.engine.stats()["overdue"])
        with pytest.raises(NotAtRest, match="the first deadline of JetStream has passed"):
            js.close()


async def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


@pytest.mark.parametrize(
    ("leak", "told"),
    [
        (lambda _: [os.eventfd(0), os.eventfd(0)], "2 more of .*eventfd"),
        (lambda path: [os.open(path / "1.blk", os.O_CREAT)], "1.blk"),
    ],
    ids=["eventfd", "block"],
)
def test_what_an_ended_server_leaves_open_in_its_process_is_named(
    leak: Callable[[Path], Iterable[int]], told: str, tmp_path: Path
) -> None:
    server = ServerThread()
    server.start()
    kept = leak(tmp_path)
    try:
        with pytest.raises(NotAtRest, match=told):
            server.stop()
    finally:
        for fd in kept:
            os.close(fd)


def test_a_block_that_is_open_twice_in_a_process_with_a_server_is_named(
    tmp_path: Path, impatient: None
) -> None:
    server = ServerThread()
    server.start()
    kept = [os.open(tmp_path / "1.blk", os.O_CREAT) for _ in range(2)]
    try:
        with pytest.raises(NotAtRest, match=r"1\.blk open 2 times"):
            server.stop()
    finally:
        for fd in kept:
            os.close(fd)


@pytest.mark.skipif(bool(SANITIZED), reason="a sanitizer keeps freed memory, and memory is not compared")
def test_memory_that_an_ended_server_leaves_is_named() -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # memory that earlier tests have freed would hide what this one keeps
    server = ServerThread()
    server.start()
    kept = bytearray(b"x") * (300 << 20)
    with pytest.raises(NotAtRest, match=r"\d+ MiB more memory"):
        server.stop()
    del kept


def test_servers_that_run_together_are_compared_when_the_last_one_ends() -> None:
    with ServerThread() as one:
        two = ServerThread()
        two.start()
        one.stop()
        kept = os.eventfd(0)
        with pytest.raises(NotAtRest, match=r"1 more of .*eventfd"):
            two.stop()
    os.close(kept)


async def test_an_embedded_server_that_has_shut_itself_down_is_looked_at() -> None:
    kept = -1
    with pytest.raises(NotAtRest, match=r"1 more of .*eventfd"):
        async with EmbeddedGnats(Options(host="127.0.0.1", port=-1)) as server:
            kept = os.eventfd(0)
            await server.shutdown()
    os.close(kept)
