"""gnats.testing.ClusterThread, and the fixtures: a cluster in the threads of a test's process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from support.natspy import joined
from support.servers import TIMEOUT

from gnats import ServerError
from gnats.errors import OptionError
from gnats.options.values.auth import User
from gnats.options.values.cluster import ClusterOptions
from gnats.options.values.jetstream import JetStreamOptions
from gnats.options.values.leafnodes import LeafNodeOptions
from gnats.system.ports import port_of, reserve_port
from gnats.testing import ClusterThread, ServerThread

pytestmark = pytest.mark.timeout(120)


def links(server: ServerThread) -> dict[str, int]:
    """Return how many connections a member has to each other one."""

    def count(inner: object) -> dict[str, int]:
        assert inner.cluster  # type: ignore[attr-defined]
        names = [route.remote_name for route in inner.cluster.routes]  # type: ignore[attr-defined]
        return {name: names.count(name) for name in names}

    return server.call(count)


async def publish_and_receive(publisher: Client, subscriber: Client, cluster: ClusterThread) -> bytes:
    """Have one client receive what the other one publishes."""
    subscription = await subscriber.subscribe("a")
    await subscriber.flush(TIMEOUT)  # type: ignore[arg-type]
    await asyncio.to_thread(cluster.wait_for_interest)
    await publisher.publish("a", b"hi")
    return (await subscription.next_msg(TIMEOUT)).data


def test_each_member_is_connected_to_all_others(io_threads: int) -> None:
    before = set(threading.enumerate())
    with ClusterThread(4, name="mine", io_threads=io_threads) as cluster:
        for number, server in enumerate(cluster.servers):
            assert server.call(lambda inner: (inner.name, inner.opts.cluster.name)) == (f"s{number}", "mine")
            assert links(server) == {f"s{other}": 4 for other in range(4) if other != number}
        assert cluster.client_url == cluster.servers[0].client_url
        assert cluster.client_urls == [server.client_url for server in cluster.servers]
        assert len(set(cluster.client_urls)) == len(cluster) == 4
    assert set(threading.enumerate()) == before
    assert cluster.running == []


async def test_a_message_reaches_a_client_of_another_member(io_threads: int) -> None:
    with ClusterThread(io_threads=io_threads) as cluster:
        async with (
            joined(cluster.servers[0].client_url) as subscriber,
            joined(cluster.servers[2].client_url) as publisher,
        ):
            assert await publish_and_receive(publisher, subscriber, cluster) == b"hi"


async def test_interest_is_known_everywhere_after_the_wait(io_threads: int) -> None:
    with ClusterThread(io_threads=io_threads) as cluster:
        async with (
            joined(cluster.servers[0].client_url) as subscriber,
            joined(cluster.servers[1].client_url) as publisher,
        ):
            for number in range(100):
                subscription = await subscriber.subscribe(f"s.{number}")
                await subscriber.flush(TIMEOUT)  # type: ignore[arg-type]
                cluster.wait_for_interest()
                await publisher.publish(f"s.{number}", b"%d" % number)
                assert (await subscription.next_msg(TIMEOUT)).data == b"%d" % number
                await subscription.unsubscribe()


async def test_a_client_survives_the_stop_of_its_member() -> None:
    with ClusterThread() as cluster:
        port = cluster.servers[1].port
        again = asyncio.Event()

        async def reconnected() -> None:
            again.set()

        client = await nats.connect(
            cluster.servers[1].client_url,
            reconnected_cb=reconnected,
            connect_timeout=TIMEOUT,  # type: ignore[arg-type]
            reconnect_time_wait=0,
        )
        try:
            subscription = await client.subscribe("a")
            await client.flush(TIMEOUT)  # type: ignore[arg-type]
            await asyncio.to_thread(cluster.stop, 1)
            assert cluster.running == [0, 2]
            assert links(cluster.servers[0]) == {"s2": 4}
            async with asyncio.timeout(TIMEOUT):
                await again.wait()
            assert client.connected_url
            assert client.connected_url.port != port
            await asyncio.to_thread(cluster.start, 1)
            assert cluster.running == [0, 1, 2]
            assert cluster.servers[1].port == port
            assert links(cluster.servers[1]) == {"s0": 4, "s2": 4}
            await client.flush(TIMEOUT)  # type: ignore[arg-type]
            cluster.wait_for_interest()
            async with joined(cluster.servers[1].client_url) as publisher:
                await publisher.publish("a", b"after")
                assert (await subscription.next_msg(TIMEOUT)).data == b"after"
        finally:
            await client.close()


def test_any_member_may_stop_and_start_again() -> None:
    with ClusterThread(2) as cluster:
        urls = cluster.client_urls
        for member in 0, 1, 0:
            cluster.stop(member)
            assert cluster.client_urls == [urls[1 - member]]
            cluster.start(member)
            assert cluster.client_urls == urls
            assert links(cluster.servers[member]) == {f"s{1 - member}": 4}


def test_a_cluster_stops_and_starts_as_a_whole() -> None:
    cluster = ClusterThread(2)
    with pytest.raises(RuntimeError, match="no server of the cluster runs"):
        assert cluster.client_url
    with pytest.raises(RuntimeError, match="the cluster has no server 0 that was stopped"):
        cluster.start(0)
    cluster.start()
    urls = cluster.client_urls
    cluster.start()
    cluster.stop(1)
    cluster.stop(1)
    cluster.stop()
    cluster.stop()
    assert cluster.running == []
    cluster.start()
    assert len(cluster.client_urls) == len(urls)
    cluster.stop()


def test_options_are_those_of_all_members() -> None:
    with ClusterThread(2, max_payload=1000, cluster=ClusterOptions(pool_size=1)) as cluster:
        for server in cluster.servers:
            assert server.call(lambda inner: inner.opts.max_payload) == 1000
        assert links(cluster.servers[0]) == {"s1": 2}


def hub_of(leaf: ServerThread) -> list[str]:
    """Return the names of the servers to which a leaf node is connected."""

    def names(inner: object) -> list[str]:
        return [leaf.peer_name for leaf in inner.leafs.table]  # type: ignore[attr-defined]

    return leaf.call(names)


def test_leaf_nodes_are_spread_over_the_members(io_threads: int) -> None:
    before = set(threading.enumerate())
    with ClusterThread(2, leafs=3, io_threads=io_threads) as cluster:
        assert [leaf.call(lambda inner: inner.name) for leaf in cluster.leafs] == ["l0", "l1", "l2"]
        assert [hub_of(leaf) for leaf in cluster.leafs] == [["s0"], ["s1"], ["s0"]]
        assert cluster.leaf_urls == [leaf.client_url for leaf in cluster.leafs]
        assert len({*cluster.leaf_urls, *cluster.client_urls}) == 5
        assert (len(cluster), cluster.running, cluster.running_leafs) == (2, [0, 1], [0, 1, 2])
    assert set(threading.enumerate()) == before
    assert cluster.running_leafs == []


async def test_interest_of_leaf_nodes_is_known_everywhere_after_the_wait(io_threads: int) -> None:
    with ClusterThread(2, leafs=2, io_threads=io_threads) as cluster:
        urls = cluster.leaf_urls + cluster.client_urls  # l0 s0, l1 s1
        async with joined(urls[0]) as one, joined(urls[1]) as two, joined(urls[3]) as member:
            for number in range(30):
                for subscriber, publisher in (one, two), (one, member), (member, one):
                    subscription = await subscriber.subscribe(f"s.{number}")
                    await subscriber.flush(TIMEOUT)  # type: ignore[arg-type]
                    cluster.wait_for_interest()
                    await publisher.publish(f"s.{number}", b"%d" % number)
                    assert (await subscription.next_msg(TIMEOUT)).data == b"%d" % number
                    await subscription.unsubscribe()


async def test_a_leaf_node_moves_to_another_member_and_may_stop() -> None:
    with ClusterThread(2, leafs=1) as cluster:
        port = cluster.leafs[0].port
        for hub in 0, 1:
            assert hub_of(cluster.leafs[0]) == [f"s{hub}"]
            cluster.stop(hub)
            assert hub_of(cluster.leafs[0]) == [f"s{1 - hub}"]
            cluster.start(hub)
        cluster.stop_leaf(0)
        cluster.stop_leaf(0)
        assert cluster.running_leafs == []
        assert all(hub_of(server) == [] for server in cluster.servers)
        with pytest.raises(RuntimeError, match="the cluster has no leaf node 1: it has number 0 only"):
            cluster.start_leaf(1)
        cluster.start_leaf(0)
        assert (cluster.running_leafs, cluster.leafs[0].port) == ([0], port)
        async with joined(cluster.leafs[0].client_url) as one, joined(cluster.client_url) as two:
            assert await publish_and_receive(one, two, cluster) == b"hi"


def test_leaf_nodes_need_none_of_the_users() -> None:
    users = (User("a", "secret"),)
    with ClusterThread(1, leafs=1, users=users, max_payload=1000) as cluster:
        assert hub_of(cluster.leafs[0]) == ["s0"]
        assert cluster.leafs[0].call(lambda inner: inner.opts.max_payload) == 1000
    with ClusterThread(1, leafs=1, leafnodes=LeafNodeOptions(username="u", password="p")) as cluster:
        assert hub_of(cluster.leafs[0]) == ["s0"]
    with pytest.raises(ValueError, match="has a username, or no credentials"):
        ClusterThread(1, leafs=1, leafnodes=LeafNodeOptions(users=users))


def test_all_stop_and_start_with_their_leaf_nodes() -> None:
    cluster = ClusterThread(1, leafs=1)
    cluster.start()
    cluster.stop(0)
    assert cluster.running_leafs == [0]  # it waits for the member
    cluster.start(0)
    assert hub_of(cluster.leafs[0]) == ["s0"]
    cluster.stop()
    cluster.start()
    assert hub_of(cluster.leafs[0]) == ["s0"]
    cluster.stop()


def test_a_number_of_leaf_nodes_is_not_negative() -> None:
    with pytest.raises(ValueError, match="a cluster has 0 or more leaf nodes, not -1"):
        ClusterThread(leafs=-1)


@pytest.mark.parametrize("size", [0, -1])
def test_a_cluster_has_a_server(size: int) -> None:
    with pytest.raises(ValueError, match="a cluster has at least one server"):
        ClusterThread(size)


def test_a_single_server_needs_no_routes() -> None:
    with ClusterThread(1) as cluster:
        assert cluster.servers[0].call(lambda inner: inner.cluster) is None
        cluster.wait_for_interest()
    with ClusterThread(1, cluster=ClusterOptions()) as cluster:
        assert links(cluster.servers[0]) == {}
        cluster.wait_for_interest()


async def test_a_single_server_and_its_leaf_nodes_may_have_jetstream(tmp_path: Path) -> None:
    options = JetStreamOptions(enabled=True, store_dir=str(tmp_path))
    with ClusterThread(1, leafs=2, jetstream=options) as cluster:
        for server, name, domain in zip(
            (*cluster.servers, *cluster.leafs), ("s0", "l0", "l1"), ("hub", "l0", "l1"), strict=True
        ):
            found = server.call(lambda inner: inner.opts.jetstream)
            assert (found.store_dir, found.domain) == (str(tmp_path / name), domain)
        async with joined(cluster.leaf_urls[0]) as client:
            await client.jetstream(domain="hub", timeout=TIMEOUT).add_stream(name="S", subjects=["s"])
        cluster.stop(0)
        cluster.start(0)
        async with joined(cluster.client_url) as client:
            info = await client.jetstream(timeout=TIMEOUT).stream_info("S")
            assert info.config.subjects == ["s"]
    with ClusterThread(1, jetstream=JetStreamOptions(enabled=True)) as cluster:
        assert cluster.servers[0].call(lambda inner: inner.opts.jetstream.domain) == ""


@pytest.mark.parametrize("make", [ServerThread, ClusterThread])
def test_a_wrong_value_for_jetstream_is_named(make: type[ServerThread | ClusterThread]) -> None:
    with pytest.raises(OptionError) as raised:
        make(jetstream=True)
    wanted = "JetStreamOptions(enabled=True), of gnats.options.values.jetstream,"
    assert str(raised.value) == f"jetstream takes options such as {wanted} not True"


def test_a_wrong_number_is_named() -> None:
    cluster = ClusterThread(2, leafs=1)
    for number in -1, 2:
        for call in cluster.stop, cluster.start:
            with pytest.raises(RuntimeError, match=f"the cluster has no server {number}: it has 0 to 1"):
                call(number)
        for call in cluster.stop_leaf, cluster.start_leaf:
            with pytest.raises(RuntimeError, match=f"no leaf node {number}: it has number 0 only"):
                call(number)
    with pytest.raises(RuntimeError, match="the cluster has no leaf node 0: it has none"):
        ClusterThread(1).stop_leaf(0)


def test_a_failed_start_leaves_no_server_behind() -> None:
    before = set(threading.enumerate())
    with reserve_port() as reserved, pytest.raises(ServerError, match="address already in use"):
        ClusterThread(2, http_port=port_of(reserved)).start()  # the second member finds it in use
    assert set(threading.enumerate()) == before


async def test_streams_are_served_by_any_member(tmp_path: Path) -> None:
    """From start() on, also after members have been stopped and started again."""
    jetstream = JetStreamOptions(enabled=True, store_dir=str(tmp_path))
    cluster = ClusterThread(3, jetstream=jetstream)
    await asyncio.to_thread(cluster.start)
    try:
        async with (
            joined(cluster.servers[0].client_url) as first,
            joined(cluster.servers[1].client_url) as second,
        ):
            streams = [
                await first.jetstream(timeout=TIMEOUT).add_stream(name=name, subjects=[name])
                for name in ("a", "b")
            ]
            assert all(each.did_create for each in streams)
            await asyncio.to_thread(cluster.wait_for_interest)
            for name in ("a", "b"):
                ack = await second.jetstream(timeout=TIMEOUT).publish(name, b"x")
                assert (ack.stream, ack.seq) == (name, 1)
            names = {each.config.name for each in await second.jetstream(timeout=TIMEOUT).streams_info()}
            assert names == {"a", "b"}
        for number in range(3):
            await asyncio.to_thread(cluster.stop, number)
            await asyncio.to_thread(cluster.start, number)
            async with joined(cluster.servers[number].client_url) as client:
                info = await client.jetstream(timeout=TIMEOUT).stream_info("a")
                assert info.state.messages == 1
    finally:
        await asyncio.to_thread(cluster.stop)


def test_options_are_refused_as_the_server_does() -> None:
    jetstream = JetStreamOptions(enabled=True, extension_hint="x")
    with pytest.raises(OptionError, match="expected 'no_extend'"):
        ClusterThread(2, jetstream=jetstream).start()


def test_the_fixtures_serve_tests_with_and_without_asyncio(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(
        """
import nats

def test_sync(nats_cluster):
    assert len(nats_cluster.servers) == 3
    assert nats_cluster.servers[1].call(lambda server: server.total_clients) == 0

async def test_async(nats_cluster):
    one = await nats.connect(nats_cluster.client_url, connect_timeout=30)
    two = await nats.connect(nats_cluster.servers[2].client_url, connect_timeout=30)
    subscription = await one.subscribe("a")
    await one.flush(30)
    nats_cluster.wait_for_interest()
    await two.publish("a", b"hi")
    assert (await subscription.next_msg(timeout=30)).data == b"hi"
    await one.close()
    await two.close()

def test_factory(nats_cluster_factory):
    one, two = nats_cluster_factory(2, leafs=1, max_payload=77), nats_cluster_factory()
    assert (len(one), len(one.leafs), len(two), len(two.leafs)) == (2, 1, 3, 0)
    assert one.servers[1].call(lambda server: server.opts.max_payload) == 77
"""
    )
    command = [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "test_user.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_runs_without_a_cluster_load_none_of_it() -> None:
    program = """
import sys
import gnats.pytest_plugin
from gnats.testing import ServerThread
with ServerThread():
    pass
loaded = [name for name in sys.modules if name.startswith(("gnats.cluster", "gnats.testing.cluster"))]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)
