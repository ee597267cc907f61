"""Clusters as hubs and as spokes, circles of leaf nodes, isolated ones: every member hears once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.clusters import Cluster
from support.launch import Launch, launcher
from support.servers import REFERENCE, Kind, Server, reserve_port, selected, until
from support.wire import publish_op

from .conftest import require_all
from .members import ACCOUNTS, Client, few_pairs, named, rows
from .test_leafnodes import leafs

pytestmark = pytest.mark.timeout(120)
HUB = "hub: true"
PASSED = 50_000
"""Messages to a group whose member comes and goes."""
THREE = pytest.mark.parametrize("kinds", rows(3, 6), ids=named)


def leaf_block(port: int, remotes: Sequence[int] = (), more: str = "", remote: str = "") -> str:
    """Return a leafnodes block that listens on a port, unless that is 0, and dials others for account A.

    `more` are further lines of the block, `remote` of each remote.
    """
    listen = f"listen: '127.0.0.1:{port}'" if port else ""
    dials = "\n".join(
        f"{{ url: {json.dumps(f'nats-leaf://a:p@127.0.0.1:{each}')}, account: A\n{remote}\n}}"
        for each in remotes
    )
    return f"leafnodes {{ {listen}\nreconnect: '0.2s'\nremotes [ {dials} ]\n{more}\n}}\n"


def clustered(launch: Launch, kinds: Sequence[Kind], name: str, block: Callable[[int], str]) -> Cluster:
    cluster = Cluster(launch, kinds, name=name, config=lambda number: block(number) + ACCOUNTS)
    cluster.wait_mesh(None)
    return cluster


def alone(launch: Launch, kind: Kind, name: str, block: str) -> Server:
    server: Server = launch("-m", "-1", "-D", config=f"server_name: {name}\n{block}{ACCOUNTS}", kind=kind)
    return server


def all_hear_once(servers: Sequence[Server]) -> None:
    """Publish at each server, with a subscriber at each one and a queue group over all of them."""
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(server)) for server in servers]
        members = [stack.enter_context(Client(server)) for server in servers]
        for client in clients:
            client.subscribe("all.*")
        for member in members:
            member.subscribe("all.*", "group")
        for client in (*clients, *members):
            client.reachable_from(*clients)
        for number, client in enumerate(clients):
            for n in range(20):
                client.publish(f"all.{number}-{n}")
        wanted = sorted(f"all.{number}-{n}" for number in range(len(servers)) for n in range(20))
        for client in clients:
            assert sorted(message.subject for message in client.heard(*clients)) == wanted
        grouped = []
        for member in members:
            grouped += [message.subject for message in member.heard(*clients)]
        assert sorted(grouped) == wanted


@THREE
def test_a_spoke_of_a_cluster(tmp_path: Path, kinds: tuple[Kind, ...]) -> None:
    """When its hub is killed, it goes to the other one, of which it was told."""
    require_all(kinds)
    with launcher(REFERENCE, tmp_path) as launch:
        ports = [reserve_port(launch) for _ in range(2)]
        hubs = clustered(launch, kinds[:2], "H", lambda number: leaf_block(ports[number]))
        spoke = alone(launch, kinds[2], "spoke", leaf_block(0, ports[:1]))
        until(lambda: len(leafs(hubs[0])) == len(leafs(spoke)) == 1)
        all_hear_once([*hubs.servers, spoke])
        hubs[0].kill()
        until(lambda: len(leafs(hubs[1])) == 1)
        with Client(hubs[1]) as publisher, Client(spoke) as subscriber:
            subscriber.subscribe("still")
            subscriber.reachable_from(publisher)
            publisher.publish("still", b"here")
            assert subscriber.payloads(publisher) == [b"here"]
        hubs[0].start_again()


@THREE
def test_a_cluster_of_spokes(tmp_path: Path, kinds: tuple[Kind, ...]) -> None:
    """Each has a connection to the hub, and no message comes twice."""
    require_all(kinds)
    with launcher(REFERENCE, tmp_path) as launch:
        port = reserve_port(launch)
        hub = alone(launch, kinds[0], "hub", leaf_block(port))
        spokes = clustered(launch, kinds[1:], "S", lambda _: leaf_block(0, [port]))
        until(lambda: len(leafs(hub)) == 2)
        all_hear_once([hub, *spokes.servers])


def test_what_is_passed_on_to_a_group_comes_once_to_other_subscribers(tmp_path: Path) -> None:
    """A group's member comes and goes at one server of a cluster; another is behind another's leaf node.

    What was meant for the former goes on to the latter.
    """
    own = [kind for kind in selected() if not kind.is_reference]
    if not own:
        pytest.skip("nats-server's plain subscribers get it twice")
    kinds = [own[number % len(own)] for number in range(4)]
    payloads = [b"%d" % number for number in range(PASSED)]
    with launcher(REFERENCE, tmp_path) as launch, ExitStack() as stack:
        port = reserve_port(launch)
        hubs = clustered(launch, kinds[:3], "H", lambda number: leaf_block(port if number == 2 else 0))
        spoke = alone(launch, kinds[3], "spoke", leaf_block(0, [port]))
        until(lambda: len(leafs(hubs[2])) == len(leafs(spoke)) == 1)
        publisher, gone, plain, near, member = (
            stack.enter_context(Client(server)) for server in (hubs[1], hubs[0], spoke, hubs[2], spoke)
        )
        plain.subscribe("foo")
        near.subscribe("foo")
        member.subscribe("foo", "g")
        for client in (gone, plain, near, member):
            client.reachable_from(publisher)

        def publish() -> None:
            for at in range(0, PASSED, 100):
                publisher.send(b"".join(publish_op("foo", payload) for payload in payloads[at : at + 100]))
                publisher.fence()

        publishing = threading.Thread(target=publish)
        publishing.start()
        while publishing.is_alive():
            sid = gone.subscribe("foo", "g")
            gone.send(f"UNSUB {sid}\r\n".encode())
        publishing.join()
        assert plain.payloads(publisher) == near.payloads(publisher) == payloads
        assert sorted(gone.payloads(publisher) + member.payloads(publisher)) == sorted(payloads)


@THREE
def test_a_chain(tmp_path: Path, kinds: tuple[Kind, ...]) -> None:
    require_all(kinds)
    with launcher(REFERENCE, tmp_path) as launch:
        ports = [reserve_port(launch) for _ in range(2)]
        first = alone(launch, kinds[0], "first", leaf_block(ports[0]))
        second = alone(launch, kinds[1], "second", leaf_block(ports[1], ports[:1]))
        third = alone(launch, kinds[2], "third", leaf_block(0, ports[1:]))
        until(lambda: len(leafs(second)) == 2)
        all_hear_once([first, second, third])


@THREE
def test_a_circle_is_noticed(tmp_path: Path, kinds: tuple[Kind, ...]) -> None:
    require_all(kinds)
    with launcher(REFERENCE, tmp_path) as launch:
        ports = [reserve_port(launch) for _ in range(3)]
        servers = [
            alone(launch, kind, f"s{number}", leaf_block(ports[number], [ports[number - 1]]))
            for number, kind in enumerate(kinds)
        ]
        until(lambda: any("Loop detected for leafnode account=" in server.log for server in servers))


HUBS = {"neither": ("", ""), "the first": (HUB, ""), "the second": ("", HUB), "both": (HUB, HUB)}
"""Which of two servers that dial each other is the hub of the connection that it dials."""


@pytest.mark.parametrize("hubs", HUBS.values(), ids=HUBS)
@pytest.mark.parametrize("kinds", few_pairs(), ids=named)
def test_two_servers_that_dial_each_other(
    tmp_path: Path, kinds: tuple[Kind, Kind], hubs: tuple[str, str]
) -> None:
    """One connection stays, whoever was first: no message comes twice."""
    require_all(kinds)
    if any(hubs) and all(kind.is_reference for kind in kinds):
        pytest.skip("each message comes twice between two nats-servers, if both connections have one hub")
    with launcher(REFERENCE, tmp_path) as launch:
        ports = [reserve_port(launch) for _ in range(2)]
        first, second = (
            alone(launch, kind, f"s{n}", leaf_block(ports[n], [ports[1 - n]], remote=hubs[n]))
            for n, kind in enumerate(kinds)
        )
        until(lambda: all("Loop detected for leafnode account=" in server.log for server in (first, second)))
        until(lambda: len(leafs(first)) == len(leafs(second)) == 1)
        all_hear_once([first, second])
        second.kill()
        until(lambda: not leafs(first))
        second.start_again()
        until(lambda: len(leafs(first)) == len(leafs(second)) == 1)
        all_hear_once([first, second])


@THREE
def test_isolated_spokes(tmp_path: Path, kinds: tuple[Kind, ...]) -> None:
    """The hub tells neither of them what the other one wants; it hears them, and they hear it."""
    require_all(kinds)
    with launcher(REFERENCE, tmp_path) as launch:
        port = reserve_port(launch)
        hub = alone(launch, kinds[0], "hub", leaf_block(port, more="isolate_leafnode_interest: true"))
        spokes = [alone(launch, kind, f"s{n}", leaf_block(0, [port])) for n, kind in enumerate(kinds[1:])]
        until(lambda: len(leafs(hub)) == 2)
        assert {leaf["is_isolated"] for leaf in leafs(hub)} == {True}
        with Client(hub) as central, Client(spokes[0]) as one, Client(spokes[1]) as other:
            central.subscribe("up")
            other.subscribe("down")
            central.reachable_from(one)
            other.reachable_from(central)
            one.publish("down", b"1")
            one.publish("up", b"1")
            assert central.payloads(one) == [b"1"]
            central.publish("down", b"0")
            assert other.payloads(central) == [b"0"]
