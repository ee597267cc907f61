"""Fail each allocation of the data plane once, in a server or in a store, and check that none is left out.

After each failure the server goes on and serves other clients. Every acknowledged message is there, also
after a restart. The server reports a request that it could not carry out, to the client or in the log.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from support.allocations import NoSymbols, find, sites
from support.certs import Certificates
from support.failing_server import build
from support.servers import Kind, Server, selected
from support.tlswire import client_context

from .linked import LINKS, announcing, crossing, leading, routing
from .scenes import JETSTREAM, PLAIN, SECURE, SYSTEM, Scene
from .stage import Stage

pytestmark = pytest.mark.timeout(300)

LINKED: tuple[Scene, ...] = (crossing, announcing, routing, leading)
KINDS = [kind for kind in selected() if not kind.is_reference]
TESTS = Path(__file__).parents[1]
DEPTH = 2
"""Number of callers by which allocations are told apart: 2, because array_grow may not be inlined."""
TEST = "only tests call it"
COMPRESSED = "test_s2transport: no scene has a compressed link"
START = "at the start of a server, which a MemoryError ends"
WITH_REPLICAS = "no scene has a cluster with JetStream: a group stops without memory"
FIRST = "with the first message that a poller has for another one, which mostly comes before calls fail"
FIRST_OVER_LINKS = "with an account's first message over a link, which mostly comes before calls fail"
NOT_FAILED = {
    # not part of a running server
    "core.auth.permission_cache.measure": (2, TEST),
    "core.net.outbound.take": (1, TEST),
    "core.runtime.timers.__cinit__": (1, TEST),
    "core.subjects.interest_queue.__cinit__": (1, TEST),
    "core.subjects.rows.rows_add": (1, TEST),
    "core.subjects.sublist.unsubscribe_all": (1, TEST),
    "jetstream.consumer.acks.write_reply": (1, TEST),
    "jetstream.engine.jsonreq.read_object": (2, TEST),
    "jetstream.engine.jsonreq.unescaped": (1, TEST),
    "store.format.codec.encode_consumer": (2, TEST),
    "store.format.codec.encode_index": (1, TEST),
    "store.index.seqset.seqset_copy": (1, TEST),
    "store.index.wheel.take": (1, TEST),
    # failed elsewhere
    "core.client.replace_connect_info": (1, "a server joins between a client's CONNECT and its first PING"),
    "core.links.route_session.change_account": (1, "only a reload of pinned accounts"),
    "core.links.route_session.set_pinned": (1, "only a reload of pinned accounts"),
    "core.net.s2transport.decode": (1, COMPRESSED),
    "core.net.s2transport.encode": (1, COMPRESSED),
    "core.net.s2transport.make_room": (1, COMPRESSED),
    "core.net.s2transport.s2_make": (1, COMPRESSED),
    "jetstream.consumer.proposals.proposals_room": (1, "no scene has replicas: the entry is refused"),
    "jetstream.consumer.send_queue.outq_take": (1, "no scene has replicas: what is committed leaves later"),
    "jetstream.replica.consumerreplica.note_request": (1, "no scene has replicas: the request is not known"),
    "jetstream.replica.consumerreplica.snapshot": (1, "no scene has replicas: the snapshot is taken later"),
    "jetstream.replica.streamreplica.propose_removals": (
        1,
        "no scene has replicas: the message stays",
    ),
    "jetstream.replica.catchup.send_next": (1, "no scene has replicas: it is asked for again"),
    "jetstream.replica.raftnode.applied_new": (1, WITH_REPLICAS),
    "jetstream.replica.streamops.compress": (1, "no scene has replicas: the message is not compressed"),
    "jetstream.replica.streamops.decode_compressed": (1, WITH_REPLICAS),
    "jetstream.replica.streamreplica.flight_new": (2, "no scene has replicas: the publisher gets an error"),
    "jetstream.replica.streamreplica.leave_confirmation": (2, "no scene has replicas: the origin asks again"),
    "jetstream.replica.streamreplica.leave_range": (2, "no scene has replicas: the copy begins anew"),
    "jetstream.replica.streamreplica.keep_part": (1, WITH_REPLICAS),
    "store.putfile.read_whole": (1, "no scene has a cluster with JetStream: the group does not begin"),
    "core.routing.route.add_last": (1, "test_failing_server: many imports of one subject"),
    # at the start of a server, of a stream or of a consumer, where a MemoryError ends it
    "core.accounts.registry.table_new": (1, START),
    "core.accounts.link_traffic.link_traffic_new": (1, FIRST_OVER_LINKS),
    "core.poller.__cinit__": (1, START),
    "core.routing.remote.make_handoffs": (1, FIRST),
    "jetstream.engine.engine.__cinit__": (1, START),
    "jetstream.stream.sourcing.note_source": (1, "when a stream with sources is recovered"),
    "store.format.codec.consumer_fields": (2, "when a consumer is recovered"),
    # without it, only more time or memory is used
    "core.accounts.departures.depart": (1, "the search is done at once instead"),
    "jetstream.engine.engine.put_back": (1, "consumers whose turn is over run at once instead"),
    "core.tls.tls.settle": (1, "strdup() allocates in libc; the name of the server is not shown then"),
    # only after another allocation has failed
    "jetstream.stream.rollups.replace_before": (1, "a rollup that waited waits again"),
    # once in the life of a process
    "core.routing.remote.signal_after_batch": (1, "more than 64 connections of another poller in a batch"),
    "core.runtime.timers.timers_reserve": (1, "more timers than a power of two, for the first time"),
    "store.format.region.watch": (1, "for the first of many files that are mapped at once"),
}
"""Functions with allocations that none of these tests fails: their number, and the reason."""

_found: dict[str, list[str]] = {}
"""The places of failed calls, by test."""


@pytest.fixture(scope="session", autouse=True)
def compiler() -> None:
    for tool in ("gcc", "addr2line"):
        if not shutil.which(tool):
            pytest.skip(f"no {tool}")


@pytest.mark.parametrize(
    "scenes", [PLAIN, JETSTREAM, SECURE, LINKED], ids=["plain", "jetstream", "secure", "linked"]
)
def test_a_server_goes_on(
    request: pytest.FixtureRequest, kind: Kind, tmp_path: Path, certs: Certificates, scenes: tuple[Scene, ...]
) -> None:
    failing = build(tmp_path, depth=DEPTH)
    sync = "sync_interval: always" if kind.io_threads else "sync_interval: '50ms'"
    trace = "debug: true, trace: true\n" if scenes in (PLAIN, LINKED) else ""
    config = f"{trace}jetstream {{store_dir: '{tmp_path / 'store'}'\n{sync}}}\n{SYSTEM}"
    if scenes is LINKED:
        config = trace + LINKS
    if scenes is SECURE:
        config += (
            f"tls {{{certs.server.tls_block}, ca_file: '{certs.ca.cert_file}', verify: true\n"
            f"pinned_certs: ['{certs.client.pin}']}}\nallow_non_tls: true\n"
        )
    server = Server(kind, tmp_path / "server", config=config, wrapper=failing.wrapper)
    stage = Stage(server, failing, config, client_context(certs, certs.client))
    try:
        for scene in scenes:
            stage.play(scene)
    finally:
        server.kill()
    _found[request.node.name] = stage.calls
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
    """Compare the places of failed calls with the sources. Needs the results of this module's other tests."""
    if len(_found) < 4 * len(KINDS) + 1:
        pytest.skip("not all tests of this module have run")
    try:
        failed = find(call for calls in _found.values() for call in calls)
    except NoSymbols as missing:
        if "CI" in os.environ:
            raise
        pytest.skip(f"built without debug information: {missing}")
    left = {site for site in sites() if site not in failed}
    places = defaultdict(list)
    for site in left:
        places[site.name].append(f"{site.name} ({site.path}:{site.line})")
    unexpected = [where for name, all_ in places.items() if name not in NOT_FAILED for where in all_]
    assert not unexpected, "\n".join(sorted(unexpected))
    numbers = {name: len(all_) for name, all_ in places.items()}
    listed = {
        name: number for name, (number, why) in NOT_FAILED.items() if name in numbers or why is not FIRST
    }
    assert numbers == listed, "the table is out of date"
