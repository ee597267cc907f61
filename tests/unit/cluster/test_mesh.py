"""Waiting for connections to all other servers, and for their interest."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gnats.cluster.mesh import linked_names, send_mark, wait_for_mark, wait_for_mesh
from gnats.cluster.routes import Routes

from .fakes import info, route, session

pytestmark = pytest.mark.timeout(60)


class Cluster:
    """As much of a cluster as is waited for; pools have one place, and no account has a connection."""

    def __init__(self) -> None:
        self.routes = Routes(1, ())
        self.watchers: set[Any] = set()
        self.info = SimpleNamespace(line=lambda **fields: b"%r" % fields)

    def tell(self) -> None:
        for watcher in list(self.watchers):
            watcher()


async def settle(task: asyncio.Task[None]) -> bool:
    """Let a task run until it waits; return whether it has ended."""
    for _ in range(5):
        await asyncio.sleep(0)
    return task.done()


async def test_a_mesh_has_just_the_wanted_servers() -> None:
    cluster: Any = Cluster()
    waiting = asyncio.create_task(wait_for_mesh(cluster, ["R", "Q"]))
    to = {remote: route(remote) for remote in ("R", "OLD", "Q")}
    for remote, made in to.items():
        assert not await settle(waiting)
        cluster.routes.add(made, info(remote, route_pool_size=1))
        cluster.tell()
    assert not await settle(waiting)
    cluster.routes.remove(to["OLD"])
    cluster.tell()
    await waiting
    assert not cluster.watchers
    assert linked_names(cluster) == ["q", "r"]


async def test_a_wait_that_is_cancelled_is_forgotten() -> None:
    cluster: Any = Cluster()
    waiting = asyncio.create_task(wait_for_mesh(cluster, ["R"]))
    assert not await settle(waiting)
    assert cluster.watchers
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not cluster.watchers


async def test_a_mark_is_waited_for_from_all_servers() -> None:
    cluster: Any = Cluster()
    made = [route(remote) for remote in ("R", "Q")]
    for each in made:
        cluster.routes.add(each, info(each.remote_id, route_pool_size=1))
    send_mark(cluster, "m")
    assert [session(each).called("send") for each in made] == [[b"{'nonce': 'm'}"]] * 2
    waiting = asyncio.create_task(wait_for_mark(cluster, "m"))
    for each in made:
        assert not await settle(waiting)
        each.mark = "m"
        cluster.tell()
    await waiting
