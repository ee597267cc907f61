"""Fixtures for every test that talks to a server."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from hypothesis import settings
from support import servers
from support.caller import Caller
from support.certs import Certificates
from support.clock import HeldClock
from support.jetstream import config
from support.kernel import SocketDiag
from support.launch import Launch, Move, launcher, require, start
from support.servers import REFERENCE, Kind, Server, selected

from gnats import Server as Embedded
from gnats.go.text import SECOND
from gnats.runtime.pollers import Pollers
from gnats.testing import ServerThread
from gnats.testing.rest import Footprint, require_closed, require_nothing_left, wait_for_rest_in_loop

settings.register_profile("gnats", parent=settings(), deadline=None)  # a busy machine must not fail a test
settings.load_profile("gnats")


@pytest.fixture(scope="session", autouse=True)
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let servers write bytecode to a temporary folder where PYTHONDONTWRITEBYTECODE is set.

    A server that compiles its modules takes twice as long to start, and the tests start many servers.
    """
    with pytest.MonkeyPatch.context() as environ:
        if "PYTHONDONTWRITEBYTECODE" in os.environ:
            environ.delenv("PYTHONDONTWRITEBYTECODE")
            environ.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("bytecode")))
        yield


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start gnats servers as programs; without this fixture they are forked (support.forks)."""
    monkeypatch.setattr(servers, "FORKS", False)


@pytest.fixture(scope="session", params=selected(), ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    """The server under test; skips where the reference is not installed."""
    kind: Kind = request.param
    require(kind)
    return kind


@pytest.fixture(
    scope="session",
    params={kind.command: kind for kind in reversed(selected())}.values(),
    ids=lambda kind: kind.command,
)
def executable(request: pytest.FixtureRequest) -> Kind:
    """A kind for each command, for tests that run the command to its end (Kind.run).

    The number of I/O threads makes no difference to them, so gnats is here once.
    """
    executable: Kind = request.param
    require(executable)
    return executable


@pytest.fixture(params=[0, 2], ids=["loop", "threads"])
def io_threads(request: pytest.FixtureRequest) -> int:
    """The number of I/O threads of a server inside the test's process: 0 (the event loop serves) and 2."""
    count: int = request.param
    return count


@pytest.fixture
def clock() -> Iterator[HeldClock]:
    """This process's clock, held from before the test's servers start until after they end.

    The time starts at a whole second, so that times rounded to seconds are the same in every run.
    """
    with HeldClock(realtime=time.time_ns() // SECOND * SECOND) as clock:
        yield clock


@pytest.fixture(scope="session", autouse=True)
def rest() -> Iterator[None]:
    """Require (NotAtRest) that a server in the test's own process comes to rest before it is stopped.

    Afterwards it must have closed everything; also one that the test has shut down itself.
    """
    start, leave = Embedded.start, Embedded.__aexit__
    started: WeakKeyDictionary[Embedded, tuple[Pollers, int, Footprint]] = WeakKeyDictionary()

    async def enter(server: Embedded) -> Embedded:
        before = Footprint.begin()
        try:
            await start(server)
        except BaseException:
            before.end()
            raise
        assert server.pollers
        started[server] = server.pollers, server.port, before
        return server

    async def rest_and_leave(server: Embedded, kind: Any, exc: Any, trace: Any) -> None:
        pollers, port, before = started.pop(server)
        try:
            if kind is None and server.pollers:
                await wait_for_rest_in_loop(server, before)
        finally:
            await leave(server, kind, exc, trace)
            before.allow(server.js_engine)
            is_last = before.end()
        if kind is None:
            require_closed(port, pollers)
            if is_last:
                require_nothing_left(before)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServerThread, "checks_rest", True)
        patch.setattr(Embedded, "__aenter__", enter)
        patch.setattr(Embedded, "__aexit__", rest_and_leave)
        yield


@pytest.fixture(scope="session")
def shared_server(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = start(kind, tmp_path_factory.mktemp(kind.name))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def server(shared_server: Server) -> Iterator[Server]:
    """A running server with default settings, shared by all tests that leave it as it was.

    It must rest after each module's tests, so a failure names the module that left work behind.
    """
    yield shared_server
    shared_server.wait_for_rest()


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A reference server with default settings to compare with; it is never the server under test."""
    server = start(REFERENCE, tmp_path_factory.mktemp("compare"))
    yield server
    server.stop()


@pytest.fixture
def launch(kind: Kind, tmp_path: Path) -> Iterator[Launch]:
    """Start servers for one test: launch(*flags, config="text", kind=the server under test)."""
    with launcher(kind, tmp_path) as launch:
        yield launch


@pytest.fixture(scope="module")
def launch_shared(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    """Like `launch`, for servers that the tests of one module share."""
    with launcher(kind, tmp_path_factory.mktemp("shared")) as launch:
        yield launch


@pytest.fixture(params=["to-gnats", "to-nats-server"])
def move(request: pytest.FixtureRequest, kind: Kind, launch: Launch, tmp_path: Path) -> Move:
    """Fill a store directory with one server and start the other in a copy: move(fill, options).

    `fill` gets a Caller of the first server; `options` are JetStream's, for both servers. Returns the result
    of `fill` and the second server. The directories are tmp_path / "js" and tmp_path / "copy".
    """
    if kind.is_reference:
        pytest.skip("needs the reference and another server")
    kinds = (REFERENCE, kind) if request.param == "to-gnats" else (kind, REFERENCE)

    def move(fill: Callable[[Caller], Any], options: str = "") -> tuple[Any, Server]:
        first = launch(config=config(tmp_path / "js", options), kind=kinds[0])
        with Caller(first) as caller:
            found = fill(caller)
        first.stop()
        shutil.copytree(tmp_path / "js", tmp_path / "copy")
        return found, launch(config=config(tmp_path / "copy", options), kind=kinds[1])

    return move


@pytest.fixture(scope="session")
def diag() -> Iterator[SocketDiag]:
    """Asks the kernel whether a server has read its input."""
    with SocketDiag() as diag:
        yield diag


@pytest.fixture(scope="session")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of one authority for the whole session."""
    return Certificates(tmp_path_factory.mktemp("certs"))
