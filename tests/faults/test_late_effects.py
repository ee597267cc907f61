"""A message expires, and a schedule runs, even when there was no memory to note it while it was stored."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.failing_server import Call, Failing, build
from support.servers import Kind, Server, selected, until
from support.wire import header

import gnats

from .scenes import SYSTEM
from .stage import Peer, Stage, closing

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc"),
]
KINDS = [kind for kind in selected() if not kind.is_reference]
PACKAGE = Path(gnats.__file__).parent
MODULES = [
    str(path.relative_to(PACKAGE)).partition(".")[0]
    for folder in ("core", "store", "jetstream")
    for path in (PACKAGE / folder).rglob("*.so")
]
DELAY = 4
"""Seconds until something is due: longer than a server takes to stop and start."""


def store_mortal(peer: Peer, stream: str) -> bool:
    """Store a message that expires after DELAY."""
    peer.api(f"STREAM.CREATE.{stream}", name=stream, subjects=[f"{stream}.>"], allow_msg_ttl=True)
    answer = peer.ask(f"{stream}.a", b"", header(f"Nats-TTL: {DELAY}s"))
    return answer is not None and "seq" in answer.json


def is_expired(peer: Peer, stream: str) -> bool:
    return peer.api(f"STREAM.INFO.{stream}")["state"]["messages"] == 0


def store_schedule(peer: Peer, stream: str) -> bool:
    """Store a schedule that is due after DELAY."""
    peer.api(f"STREAM.CREATE.{stream}", name=stream, subjects=[f"{stream}.>"], allow_msg_schedules=True)
    due = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + DELAY))
    target = f"Nats-Schedule-Target: {stream}.target"
    answer = peer.ask(f"{stream}.a", b"", header(f"Nats-Schedule: @at {due}", target))
    return answer is not None and "seq" in answer.json


def is_carried_out(peer: Peer, stream: str) -> bool:
    return "message" in peer.api(f"STREAM.MSG.GET.{stream}", last_by_subj=f"{stream}.target")


Late = tuple[str, Callable[[Peer, str], bool], Callable[[Peer, str], bool]]
LATE: dict[str, Late] = {
    "TTL": ("store/index/wheel", store_mortal, is_expired),
    "schedule": ("store/index/schedules", store_schedule, is_carried_out),
}
"""By name: the module whose allocations fail; functions that store a message and check its effect."""
cases = pytest.mark.parametrize("late", LATE.values(), ids=LATE)
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def config(path: Path) -> str:
    return f"jetstream {{store_dir: '{path / 'store'}'}}\n{SYSTEM}"


@contextmanager
def failing_in(kind: Kind, path: Path, module: str) -> Iterator[tuple[Stage, Failing]]:
    """Run a server in which only the allocations of one module fail."""
    assert module in MODULES
    failing = build(path, tuple(each for each in MODULES if each != module), depth=1)
    stage = Stage(Server(kind, path / "server", config=config(path), wrapper=failing.wrapper), failing)
    try:
        yield stage, failing
        stage.server.stop(rested=False)
    finally:
        stage.server.kill()


def store_all(failing: Failing, peer: Peer, store: Callable[[Peer, str], bool]) -> list[str]:
    """Store in new streams until no further allocation fails; return the streams for which one failed."""
    streams: list[str] = []
    while True:
        failing.fail_next(Call.MEMORY)
        assert store(peer, f"S{len(streams)}")
        if not failing.stop():
            assert streams
            return streams
        streams.append(f"S{len(streams)}")


@kinds
@cases
def test_its_time_comes(kind: Kind, tmp_path: Path, late: Late) -> None:
    module, store, is_done = late
    with failing_in(kind, tmp_path, module) as (stage, failing), closing(Peer(stage, "a", {})) as peer:
        streams = store_all(failing, peer, store)
        assert "Out of memory" in stage.server.log_from(0)
        until(lambda: all(is_done(peer, stream) for stream in streams))


@kinds
@cases
def test_its_time_comes_after_a_restart(kind: Kind, tmp_path: Path, late: Late) -> None:
    module, store, is_done = late
    with failing_in(kind, tmp_path, module) as (stage, failing), closing(Peer(stage, "a", {})) as peer:
        streams = store_all(failing, peer, store)
    stage.server = Server(kind, tmp_path / "next", config=config(tmp_path))
    try:
        with closing(Peer(stage, "a", {})) as peer:
            until(lambda: all(is_done(peer, stream) for stream in streams))
        stage.server.stop()
    finally:
        stage.server.kill()
