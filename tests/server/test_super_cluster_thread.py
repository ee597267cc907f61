"""gnats.testing.SuperClusterThread, and its fixtures: clusters with gateways in a test's process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from support.natspy import joined
from support.servers import TIMEOUT

from gnats import ServerError
from gnats.monitor.pages.linkz import linkz
from gnats.options.values.accounts import AccountConfig
from gnats.options.values.auth import User
from gnats.options.values.gateway import GatewayOptions
from gnats.options.values.jetstream import JetStreamOptions
from gnats.system.ports import port_of, reserve_port
from gnats.testing import ServerThread, SuperClusterThread

pytestmark = pytest.mark.timeout(120)

MANY = 2000


def outbound(server: ServerThread) -> dict[str, str]:
    """Return the server of each other cluster to which a member is connected."""

    def names(inner: object) -> dict[str, str]:
        table = inner.gateways.table  # type: ignore[attr-defined]
        return {gateway.name: gateway.remote_name for gateway in table if gateway.outbound}

    return server.call(names)


def inbound(server: ServerThread) -> set[str]:
    """Return the servers of other clusters that are connected to a member."""

    def names(inner: object) -> set[str]:
        return {gateway.remote_name for gateway in inner.gateways.table.inbound}  # type: ignore[attr-defined]

    return server.call(names)


async def publish_and_receive(publisher: Client, subscriber: Client, wait: SuperClusterThread) -> None:
    """Have one client receive what the other one publishes."""
    subscription = await subscriber.subscribe("a")
    await subscriber.flush(TIMEOUT)  # type: ignore[arg-type]
    await asyncio.to_thread(wait.wait_for_interest)
    await publisher.publish("a", b"hi")
    assert (await subscription.next_msg(TIMEOUT)).data == b"hi"
    await subscription.unsubscribe()


def test_each_server_is_connected_to_each_other_cluster(io_threads: int) -> None:
    before = set(threading.enumerate())
    with SuperClusterThread(3, 2, name="mine", io_threads=io_threads) as joined_clusters:
        names = [f"mine-{number}" for number in range(3)]
        assert len(joined_clusters) == len(joined_clusters.clusters) == 3
        for name, cluster in zip(names, joined_clusters.clusters, strict=True):
            for number, server in enumerate(cluster.servers):
                own = server.call(lambda inner: (inner.name, inner.opts.cluster.name))
                assert own == (f"{name}-s{number}", name)
                assert sorted(outbound(server)) == [other for other in names if other != name]
        urls = [url for cluster in joined_clusters.clusters for url in cluster.client_urls]
        assert joined_clusters.client_urls == urls
        assert joined_clusters.client_url == urls[0]
        assert len(set(urls)) == 6
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize("size", [1, 2])
async def test_interest_is_known_in_all_clusters_after_the_wait(io_threads: int, size: int) -> None:
    with SuperClusterThread(2, size, io_threads=io_threads) as clusters:
        urls = clusters.client_urls
        async with joined(urls[0]) as subscriber, joined(urls[-1]) as publisher:
            for number in range(10):
                for more in range(MANY):  # so the last one is not there at once
                    await subscriber.subscribe(f"more.{number}.{more}")
                subscription = await subscriber.subscribe(f"s.{number}")
                await subscriber.flush(TIMEOUT)  # type: ignore[arg-type]
                clusters.wait_for_interest()
                await publisher.publish(f"s.{number}", b"%d" % number)
                assert (await subscription.next_msg(TIMEOUT)).data == b"%d" % number


async def test_a_request_is_answered_from_another_cluster(io_threads: int) -> None:
    async def answer(message: Msg) -> None:
        await message.respond(b"to " + message.data)

    with SuperClusterThread(2, 2, io_threads=io_threads) as clusters:
        urls = clusters.client_urls
        async with joined(urls[3]) as service, joined(urls[0]) as client:
            await service.subscribe("q", cb=answer)
            await service.flush(TIMEOUT)  # type: ignore[arg-type]
            clusters.clusters[1].wait_for_interest()
            assert (await client.request("q", b"me", TIMEOUT)).data == b"to me"


async def test_a_member_stops_and_starts(io_threads: int) -> None:
    with SuperClusterThread(2, 2, io_threads=io_threads) as clusters:
        one, two = clusters.clusters
        urls = clusters.client_urls
        for number in 0, 1:
            two.stop(number)
            name = f"test-1-s{number}"
            for server in one.servers:
                assert outbound(server) == {"test-1": f"test-1-s{1 - number}"}
                assert name not in inbound(server)
            assert clusters.client_urls == [url for url in urls if url != urls[2 + number]]
            two.start(number)
            assert clusters.client_urls == urls
            assert sorted(outbound(two.servers[number])) == ["test-0"]
            async with joined(urls[2 + number]) as publisher, joined(urls[1]) as subscriber:
                await publish_and_receive(publisher, subscriber, clusters)


async def test_a_cluster_stops_and_starts_as_a_whole(io_threads: int) -> None:
    with SuperClusterThread(2, 2, io_threads=io_threads) as clusters:
        one, two = clusters.clusters
        ports = [server.port for server in two.servers]
        two.stop()
        assert (clusters.client_urls, two.running) == (one.client_urls, [])
        for server in one.servers:
            assert (outbound(server), inbound(server)) == ({}, set())
        async with joined(one.client_urls[0]) as publisher, joined(one.client_urls[1]) as subscriber:
            await publish_and_receive(publisher, subscriber, clusters)
        two.start()
        assert [server.port for server in two.servers] == ports
        assert [sorted(outbound(server)) for server in one.servers] == [["test-1"]] * 2
        async with joined(one.client_urls[0]) as publisher, joined(two.client_urls[1]) as subscriber:
            await publish_and_receive(publisher, subscriber, clusters)


async def test_leaf_nodes_of_all_clusters_reach_each_other(io_threads: int) -> None:
    with SuperClusterThread(2, leafs=1, io_threads=io_threads) as clusters:
        first, second = [cluster.leaf_urls[0] for cluster in clusters.clusters]
        async with joined(first) as one, joined(second) as two, joined(clusters.client_urls[1]) as member:
            for _ in range(20):
                await publish_and_receive(one, two, clusters)
                await publish_and_receive(two, one, clusters)
                await publish_and_receive(member, one, clusters)
                await publish_and_receive(one, member, clusters)
        names = [leaf.call(lambda inner: inner.name) for each in clusters.clusters for leaf in each.leafs]
        assert names == ["test-0-l0", "test-1-l0"]
        clusters.clusters[0].stop_leaf(0)
        clusters.clusters[0].start_leaf(0)
        async with joined(clusters.clusters[0].leaf_urls[0]) as one, joined(second) as two:
            await publish_and_receive(one, two, clusters)


async def test_options_are_those_of_all_servers() -> None:
    gateway = GatewayOptions(username="u", password="p")
    accounts = [AccountConfig("A"), AccountConfig("MINE")]
    users = (User("a", "secret", account="A"),)
    with SuperClusterThread(
        2, leafs=1, gateway=gateway, accounts=accounts, users=users, max_payload=1000, system_account="MINE"
    ) as clusters:
        for cluster in clusters.clusters:
            for server in *cluster.servers, *cluster.leafs:
                found = server.call(lambda inner: (inner.opts.max_payload, inner.opts.system_account))
                assert found == (1000, "MINE")
        assert outbound(clusters.clusters[0].servers[0]) == {"test-1": "test-1-s0"}


async def test_a_stream_is_in_the_cluster_of_its_client(tmp_path: Path) -> None:
    jetstream = JetStreamOptions(enabled=True, store_dir=str(tmp_path))
    clusters = SuperClusterThread(2, 2, jetstream=jetstream)
    await asyncio.to_thread(clusters.start)
    try:
        for number, cluster in enumerate(clusters.clusters):
            async with joined(cluster.client_url) as client:
                made = await client.jetstream(timeout=TIMEOUT).add_stream(name=f"S{number}")
                assert made.cluster
                assert made.cluster.name == f"test-{number}"
    finally:
        await asyncio.to_thread(clusters.stop)


def test_all_stop_and_start_again() -> None:
    clusters = SuperClusterThread(2)
    with pytest.raises(RuntimeError, match="no server of the super-cluster runs"):
        assert clusters.client_url
    clusters.stop()
    clusters.start()
    clusters.start()
    clusters.clusters[0].stop()
    clusters.stop()
    clusters.stop()
    assert [cluster.running for cluster in clusters.clusters] == [[], []]
    clusters.start()
    assert [sorted(outbound(each.servers[0])) for each in clusters.clusters] == [["test-1"], ["test-0"]]
    clusters.stop()


def test_a_cluster_may_start_before_the_others() -> None:
    clusters = SuperClusterThread(2)
    try:
        for cluster in reversed(clusters.clusters):
            cluster.start()
        assert outbound(clusters.clusters[1].servers[0]) == {"test-0": "test-0-s0"}
    finally:
        clusters.stop()


def test_a_failed_start_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    with reserve_port() as reserved:
        clusters = SuperClusterThread(2, http_port=port_of(reserved))
        with pytest.raises(ServerError, match="address already in use"):
            clusters.start()  # the second cluster finds it in use
    assert set(threading.enumerate()) == before
    assert [cluster.running for cluster in clusters.clusters] == [[], []]


@pytest.mark.parametrize("number", [0, -1])
def test_a_super_cluster_has_a_cluster(number: int) -> None:
    with pytest.raises(ValueError, match=f"a super-cluster has at least one cluster, not {number}"):
        SuperClusterThread(number)


def test_linkz_names_the_clusters_of_gateways() -> None:
    with SuperClusterThread(2, 2) as clusters:
        for cluster, other in zip(clusters.clusters, reversed(clusters.clusters), strict=True):
            for server in cluster.servers:
                links: list[dict[str, Any]] = server.call(linkz)["links"]  # type: ignore[assignment]
                names = {link["cluster"] for link in links if link["kind"] == "gateway"}
                assert names == {other.servers[0].call(lambda inner: inner.opts.gateway.name)}
                assert {link["cluster"] for link in links if link["kind"] == "route"} == {""}
                assert {link["last_error"] for link in links} == {""}


def test_a_single_cluster_has_no_other() -> None:
    with SuperClusterThread(1) as clusters:
        assert outbound(clusters.clusters[0].servers[0]) == {}
        clusters.wait_for_interest()


def test_the_fixtures_serve_tests_with_and_without_asyncio(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(
        """
import nats

def test_sync(nats_super_cluster):
    assert [len(cluster) for cluster in nats_super_cluster.clusters] == [2, 2]

async def test_async(nats_super_cluster):
    one, two = [
        await nats.connect(cluster.client_url, connect_timeout=30) for cluster in nats_super_cluster.clusters
    ]
    subscription = await one.subscribe("a")
    await one.flush(30)
    nats_super_cluster.wait_for_interest()
    await two.publish("a", b"hi")
    assert (await subscription.next_msg(timeout=30)).data == b"hi"
    await one.close()
    await two.close()

def test_factory(nats_super_cluster_factory):
    one = nats_super_cluster_factory(3, 1, max_payload=77)
    assert [len(cluster) for cluster in one.clusters] == [1, 1, 1]
    assert one.clusters[2].servers[0].call(lambda server: server.opts.max_payload) == 77
"""
    )
    command = [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "test_user.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_runs_without_a_super_cluster_load_none_of_it() -> None:
    program = """
import sys
import gnats.pytest_plugin
from gnats.testing import ClusterThread
with ClusterThread(2):
    pass
loaded = [name for name in sys.modules if name.startswith(("gnats.gateways", "gnats.testing.super"))]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)
