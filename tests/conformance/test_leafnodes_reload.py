"""Reload the options of leaf nodes: remotes come, go, and are switched; compression; accounts go."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from support.launch import Launch
from support.leafpeer import (
    FakeLeaf,
    LeafListener,
    accepting,
    launch_accepting,
    launch_soliciting,
    soliciting,
)
from support.monitor import monitor
from support.reload import reload
from support.servers import Server, until

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def listener() -> Iterator[LeafListener]:
    with LeafListener() as listener:
        yield listener


@pytest.fixture
def fake(listener: LeafListener) -> Iterator[FakeLeaf]:
    with FakeLeaf(leafnode_urls=[listener.address]) as fake:
        yield fake


def ended(fake: FakeLeaf, listener: LeafListener, server: Server, config: str) -> None:
    """Check that a reload ends a connection, and that it is not dialled again."""
    peer = fake.serve(listener)
    reload(server, config)
    peer.rest()
    until(lambda: monitor(server, "/leafz")["leafnodes"] == 0)
    assert not listener.pending()


def test_a_remote_is_removed(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    server = launch_soliciting(launch, listener.url)
    with LeafListener() as other, FakeLeaf() as second:
        peer = fake.serve(listener)
        reload(server, soliciting(other.url))
        assert second.serve(other).connect["remote_account"] == "$G"
        peer.rest()
        assert not listener.pending()
    server.wait_log(rf"\[INF\] Reloaded: LeafNode Remote urls=\[\"{re.escape(listener.url)}\"\].* removed\n")


def test_the_first_remote_is_added(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    server = launch("-m", "-1", config="server_name: S")
    remotes = soliciting(listener.url, config="server_name: S").replace("reconnect: '0.2s'", "")
    reload(server, remotes)
    assert fake.serve(listener).connect["name"] == "S"
    until(lambda: monitor(server, "/leafz")["leafnodes"] == 1)


def test_a_remote_is_disabled_and_enabled(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    server = launch_soliciting(launch, listener.url)
    ended(fake, listener, server, soliciting(listener.url, remote="disabled: true"))
    reload(server, soliciting(listener.url))
    fake.serve(listener)


def test_a_remote_is_disabled_while_nobody_listens(launch: Launch, listener: LeafListener) -> None:
    listener.close()
    server = launch_soliciting(launch, listener.url)
    server.wait_log(r"\(attempt 1\)")
    reload(server, soliciting(listener.url, remote="disabled: true"))
    with LeafListener(listener.port) as again:
        assert not again.pending()


def test_other_compression_of_a_remote(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    server = launch_soliciting(launch, listener.url)
    peer = fake.serve(listener, compression="s2_fast")
    reload(server, soliciting(listener.url, remote="compression: s2_fast"))
    peer.rest()
    with listener.take() as peer:
        peer.send(fake.info(compression="s2_fast"))
        assert json.loads(peer.read_op()[5:])["compression"] == "s2_fast"


def test_other_compression_of_accepted_ones(launch: Launch, fake: FakeLeaf) -> None:
    server = launch_accepting(launch)
    peer = fake.dial(server, compress_mode="off")
    reload(server, accepting("compression: s2_fast"))
    peer.rest()
    assert fake.greet(server).info["compression"] == "s2_fast"


def test_a_mapping_comes_and_goes(launch: Launch, fake: FakeLeaf) -> None:
    def config(mappings: str) -> str:
        return accepting(
            "", f"accounts {{ A {{ users [ {{user: a, password: p}} ], mappings {{ {mappings} }} }} }}"
        )

    server = launch_accepting(launch, config=config("foo: bar").partition("}\n")[2])
    peer = fake.dial(server, user="a", **{"pass": "p"})
    assert b"LS+ foo\r\n" in peer.opening
    if server.kind.is_reference:
        pytest.skip("nats-server announces mappings of a reload to new connections only")
    reload(server, config("baz: bar"))
    assert b"LS+ baz\r\n" in peer.until(b"LS- foo")
