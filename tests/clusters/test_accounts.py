"""Accounts that a reload adds to one member of a cluster, or removes from it: interest stays right."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.caller import Caller
from support.clusters import Cluster, line
from support.launch import Launch
from support.reload import hang_up
from support.servers import Kind, Server, until

from .members import member_kinds, named

pytestmark = pytest.mark.timeout(60)

ONE = "accounts { A { users: [{ user: a, password: pw }] } }"
BOTH = "accounts { A { users: [{ user: a, password: pw }] }, B { users: [{ user: b, password: pw }] } }"
PAIRS = [(first, second) for first in member_kinds() for second in member_kinds() if not second.is_reference]


def started(launch_members: Launch, kinds: Sequence[Kind], *configs: str) -> Cluster:
    cluster = Cluster(
        launch_members, kinds, config=lambda number: configs[number], block="compression: off", routes=line
    )
    cluster.wait_mesh(None)
    return cluster


def reload(server: Server, old: str, new: str) -> None:
    start = len(server.log)
    hang_up(server, server.conf.read_text().replace(old, new))
    until(lambda: "Reloaded server configuration" in server.log[start:])


def known(cluster: Cluster, number: int) -> set[str]:
    """Return the subjects of account B that a member knows of."""
    found: set[str] = set()
    for route in cluster.routes(number, "?subs=detail"):
        details = route.get("subscriptions_list_detail") or []
        found |= {each["subject"] for each in details if each["sid"].startswith("R B ")}
    return found


@pytest.mark.parametrize("kinds", PAIRS, ids=named)
def test_interest_that_came_before_the_account(launch_members: Launch, kinds: tuple[Kind, Kind]) -> None:
    """nats-server forgets it: it would be known after the next connection."""
    cluster = started(launch_members, kinds, BOTH, ONE)
    with Caller(cluster[0], "b", inbox="_INBOX.0") as subscriber:
        before = subscriber.subscribe("before.*")
        undone = subscriber.subscribe("undone")
        subscriber.send(f"UNSUB {undone}\r\n".encode())
        subscriber.fence()
        reload(cluster[1], ONE, BOTH)
        until(lambda: "before.*" in known(cluster, 1))
        with Caller(cluster[1], "b", inbox="_INBOX.1") as publisher:
            publisher.publish("undone", b"1")
            publisher.publish("before.x", b"2")
            assert subscriber.next().payload == b"2"
        subscriber.send(f"UNSUB {before}\r\n".encode())
        until(lambda: "before.*" not in known(cluster, 1))


@pytest.mark.parametrize(
    "kinds", [pair for pair in PAIRS if not any(kind.is_reference for kind in pair)], ids=named
)
def test_interest_goes_with_the_account(launch_members: Launch, kinds: tuple[Kind, Kind]) -> None:
    cluster = started(launch_members, kinds, BOTH, BOTH)
    with Caller(cluster[0], "b", inbox="_INBOX.0") as subscriber:
        subscriber.subscribe("gone.*")
        until(lambda: "gone.*" in known(cluster, 1))
        reload(cluster[0], BOTH, ONE)
        until(lambda: not known(cluster, 1))
