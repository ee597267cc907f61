"""Fixtures for every test that talks to a server."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
from gnats.server.idle import wait_for_rest_in_loop
from gnats.testing import ServerThread

settings.register_profile("gnats", parent=settings(), deadline=None)  # a busy machine is no fault
settings.load_profile("gnats")


@pytest.fixture(scope="session", autouse=True)
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A place for compiled modules where PYTHONDONTWRITEBYTECODE is set.

    A server that has to compile its modules needs twice the time to start, and the tests start many.
    """
    with pytest.MonkeyPatch.context() as environ:
        if "PYTHONDONTWRITEBYTECODE" in os.environ:
            environ.delenv("PYTHONDONTWRITEBYTECODE")
            environ.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("bytecode")))
        yield


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts servers as programs; other tests fork them."""
    monkeypatch.setattr(servers, "FORKS", False)


@pytest.fixture(scope="session", params=selected(), ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    """The server that is tested."""
    kind: Kind = request.param
    require(kind)
    return kind


@pytest.fixture(
    scope="session",
    params={kind.command: kind for kind in reversed(selected())}.values(),
    ids=lambda kind: kind.command,
)
def executable(request: pytest.FixtureRequest) -> Kind:
    """A server whose command is run to its end (Kind.run): it is the same one in both ways of running."""
    executable: Kind = request.param
    require(executable)
    return executable


@pytest.fixture(params=[0, 2], ids=["loop", "threads"])
def io_threads(request: pytest.FixtureRequest) -> int:
    """How many threads serve connections, in both ways of running a server inside a test."""
    count: int = request.param
    return count


@pytest.fixture
def clock() -> Iterator[HeldClock]:
    """The time of this process, held from before the test's servers start until after they have ended.

    It begins with a second, so that what is rounded to seconds is rounded alike in every run.
    """
    with HeldClock(realtime=time.time_ns() // SECOND * SECOND) as clock:
        yield clock


@pytest.fixture(scope="session", autouse=True)
def rest() -> Iterator[None]:
    """Has every server that tests start in their own process rest before it is stopped."""
    leave = Embedded.__aexit__

    async def rest_and_leave(server: Embedded, kind: Any, exc: Any, trace: Any) -> None:
        try:
            if kind is None and server.pollers:
                await wait_for_rest_in_loop(server)
        finally:
            await leave(server, kind, exc, trace)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServerThread, "checks_rest", True)
        patch.setattr(Embedded, "__aexit__", rest_and_leave)
        yield


@pytest.fixture(scope="session")
def shared_server(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = start(kind, tmp_path_factory.mktemp(kind.name))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def server(shared_server: Server) -> Iterator[Server]:
    """A running server with default settings, shared by all tests that change nothing in it.

    It rests after each module's tests: whatever disturbs that is in the module.
    """
    yield shared_server
    shared_server.wait_for_rest()


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A reference server with default settings to compare with; it is never the one that is tested."""
    server = start(REFERENCE, tmp_path_factory.mktemp("compare"))
    yield server
    server.stop()


@pytest.fixture
def launch(kind: Kind, tmp_path: Path) -> Iterator[Launch]:
    """Starts servers for one test: launch(*flags, config="text", kind=the server that is tested)."""
    with launcher(kind, tmp_path) as launch:
        yield launch


@pytest.fixture(scope="module")
def launch_shared(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    """Like `launch`, for servers that the tests of one module share."""
    with launcher(kind, tmp_path_factory.mktemp("shared")) as launch:
        yield launch


@pytest.fixture(params=["to-gnats", "to-nats-server"])
def move(request: pytest.FixtureRequest, kind: Kind, launch: Launch, tmp_path: Path) -> Move:
    """Has one server fill a store directory, and starts the other in a copy: move(fill, options).

    What `fill` says, and the second server. The directories are tmp_path / "js" and tmp_path / "copy".
    """
    if kind.is_reference:
        pytest.skip("it needs two servers")
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
    """Certificates of an authority that lives as long as the tests."""
    return Certificates(tmp_path_factory.mktemp("certs"))
