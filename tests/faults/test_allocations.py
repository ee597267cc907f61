"""Each allocation of the data plane fails once, in a server or in a store; and no allocation is left out.

Whatever fails, the server goes on and serves others. What it has acknowledged is there, also after a
restart. What it could not do it says, to the client or in the log.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.allocations import NoSymbols, find, sites
from support.failing_server import build
from support.servers import Kind, Server, selected

from .scenes import JETSTREAM, PLAIN, SYSTEM, Scene
from .stage import Stage

pytestmark = pytest.mark.timeout(300)

KINDS = [kind for kind in selected() if not kind.is_reference]
TESTS = Path(__file__).parents[1]
DEPTH = 2
"""Callers that tell allocations apart: array_grow may not be inlined."""
NOT_FAILED = {
    # not part of a running server yet
    "core.protocol.parser.parse_remote_msg": "no server has routes yet",
    "core.protocol.parser.split_args": "no server has routes yet",
    # failed elsewhere
    "core.routing.route.add_last": "test_failing_server: many imports of one subject",
    "core.tls.tls.keep_certificate": "TLS; test_failing_server has some of it",
    "core.tls.tls.settle": "TLS; test_failing_server has some of it",
    "core.tls.tlstransport.failed": "TLS; test_failing_server has some of it",
    # at the start of a server, of a stream or of a consumer, where a MemoryError ends it
    "core.routing.remote.make_handoffs": "when a poller starts",
    "jetstream.stream.sourcing.note_source": "when a stream with sources is recovered",
    "store.format.codec.consumer_fields": "when a consumer is recovered",
    # without it, only more time or memory is used
    "core.accounts.departures.depart": "the search is done at once instead",
    "core.runtime.doorkeeper.door_known": "the cache then lets everything in",
    # after a reload
    "core.accounts.subscriptions.apply_permissions": "a reload that takes permissions away",
    "core.protocol.answers.report_removed": "a reload that takes permissions away",
    # not reached yet
    "core.publishing.map_subject": "more than a poller's room for mapped subjects",
    "core.routing.remote.signal_after_batch": "connections of another poller, more than 64 in one batch",
    "core.runtime.timers.timers_reserve": "more timers than a power of two, for the first time",
    "core.subjects.sublist.list_add": "more wildcard branches than 64 for one subject",
    "core.subjects.rows.rows_add": "a listing larger than its first room",
    "jetstream.engine.barrier.commit_soon": "an interval sync while others wait",
    "store.block.block_push_slot": "a large gap within a block",
    "store.block.grow_slots": "a large gap within a block",
    "store.format.packing.pack_records": "packed records",
    "store.format.region.watch": "readers of a region that moves",
    "store.index.seqset.seqset_copy": "a copy of a full node",
    "store.index.seqset.spell_out": "a deletion in a full node",
    "store.index.stree.more_frames": "deeper subjects than 32 nodes",
    "store.index.stree.more_states": "more filters than an iterator has room for",
}
"""Functions whose allocations none of these tests fails, and why not."""

_found: dict[str, list[str]] = {}
"""By test: where calls have failed."""


@pytest.fixture(scope="session", autouse=True)
def compiler() -> None:
    for tool in ("gcc", "addr2line"):
        if not shutil.which(tool):
            pytest.skip(f"no {tool}")


@pytest.mark.parametrize("scenes", [PLAIN, JETSTREAM], ids=["plain", "jetstream"])
def test_a_server_goes_on(kind: Kind, tmp_path: Path, scenes: tuple[Scene, ...]) -> None:
    failing = build(tmp_path, depth=DEPTH)
    sync = "sync_interval: always" if kind.io_threads else "sync_interval: '50ms'"
    trace = "debug: true, trace: true\n" if scenes is PLAIN else ""
    config = f"{trace}jetstream {{store_dir: '{tmp_path / 'store'}'\n{sync}}}\n{SYSTEM}"
    server = Server(kind, tmp_path / "server", config=config, wrapper=failing.wrapper)
    stage = Stage(server, failing)
    try:
        for scene in scenes:
            stage.play(scene)
    finally:
        server.kill()
    _found[f"{kind.name} {scenes is PLAIN}"] = stage.calls
    if stage.acked:
        stage.server = Server(kind, tmp_path / "next", config=config)
        try:
            assert not stage.lost()
        finally:
            stage.server.stop()


def test_a_store_goes_on(tmp_path: Path) -> None:
    failing = build(tmp_path, depth=DEPTH)
    found = subprocess.run(
        [sys.executable, "-P", "-m", "faults.store_allocations", tmp_path / "stores", str(DEPTH)],
        env=os.environ
        | failing.variables
        | {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert found.returncode == 0, found.stderr
    *calls, problems = found.stdout.split("\0")
    assert not problems.strip(), problems
    _found["store"] = calls


def test_no_allocation_is_left_out() -> None:
    """After the other tests of this module."""
    if len(_found) < 2 * len(KINDS) + 1:
        pytest.skip("not all tests of this module have run")
    try:
        failed = find(call for calls in _found.values() for call in calls)
    except NoSymbols as missing:
        pytest.skip(f"built without debug information: {missing}")
    left = {site for site in sites() if site not in failed}
    unexpected = sorted(
        f"{site.name} ({site.path}:{site.line})" for site in left if site.name not in NOT_FAILED
    )
    assert not unexpected, "\n".join(unexpected)
    known = {site.name for site in sites()}
    assert not NOT_FAILED.keys() - known, "there are no such functions"
