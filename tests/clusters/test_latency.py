"""Latency of services whose requester and responder are at different servers: one report of two halves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.clusters import Cluster, line
from support.launch import Launch
from support.monitor import monitor
from support.servers import Kind, Server, until
from support.superclusters import SuperCluster
from support.wire import header

from .conftest import require_all
from .members import Client, member_kinds, named

pytestmark = pytest.mark.timeout(60)

CONFIG = """
accounts {
  SYS { users: [ { user: s, password: p } ] }
  A {
    users: [ { user: a, password: p } ]
    exports: [
      { service: "svc", latency: "lat.svc" }
      { service: "asked", latency: { subject: "lat.asked", sampling: headers } }
    ]
  }
  B {
    users: [ { user: b, password: p } ]
    imports: [ { service: { account: A, subject: "svc" } }, { service: { account: A, subject: "asked" } } ]
  }
}
system_account: SYS
"""
SPAN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
FIELDS = [
    *("type", "id", "timestamp", "status", "requestor", "responder", "start", "service", "system", "total")
]
PAIRS = [(first, second) for first in member_kinds() for second in member_kinds()]


@pytest.fixture(params=["route", "gateway"])
def servers(
    request: pytest.FixtureRequest, launch_members: Launch, kinds: tuple[Kind, Kind]
) -> Iterator[list[Server]]:
    """Two servers of one cluster, or of two."""
    require_all(kinds)
    if request.param == "gateway":
        clusters = SuperCluster(launch_members, [[kind] for kind in kinds], config=CONFIG)
        clusters.wait_mesh()
        yield [clusters[0], clusters[1]]
    else:
        cluster = Cluster(launch_members, kinds, config=CONFIG, routes=line)
        cluster.wait_mesh(None)
        yield cluster.servers


@pytest.mark.parametrize("kinds", PAIRS, ids=named)
def test_both_halves_are_one_report(servers: list[Server], kinds: tuple[Kind, Kind]) -> None:
    first, second = servers
    with Client(first, "a") as responder, Client(second, "b") as requester, Client(second, "a") as watcher:
        responder.subscribe("svc")
        responder.subscribe("asked")
        watcher.subscribe("lat.*")
        responder.reachable_from(watcher)
        until(lambda: is_measured(responder, requester, watcher))
        found = report(watcher, "svc")
        assert list(found) == FIELDS
        assert found["status"] == 200
        assert found["requestor"]["acc"] == "B"
        who = found["responder"]
        assert (who["acc"], who["user"], who["kind"], who["host"]) == ("A", "a", "Client", "127.0.0.1")
        assert who["server"] == name_of(first)
        assert found["service"] >= 0 and found["system"] >= 0
        assert found["total"] >= found["service"] + found["system"]
        ask(responder, requester, "asked", header(f"Traceparent: {SPAN}"))
        traced = report(watcher, "asked")
        assert traced["header"] == {"Traceparent": [SPAN]}
        assert traced["responder"]["server"] == name_of(first)


def ask(responder: Client, requester: Client, subject: str, block: bytes = b"") -> None:
    """Ask, and answer, from one server to the other."""
    inbox = requester.ask(subject, b"?", block)
    asked = responder.next()
    assert asked.reply.endswith(".T")
    responder.publish(asked.reply, b"!")
    assert requester.next_on(inbox).payload == b"!"


def report(watcher: Client, subject: str) -> dict[str, Any]:
    """Return the next report about a service."""
    while (message := watcher.next()).subject != f"lat.{subject}":
        pass
    found: dict[str, Any] = json.loads(message.payload)
    return found


def is_measured(responder: Client, requester: Client, watcher: Client) -> bool:
    """Ask; return whether there is a report: not before the system accounts know each other's interest."""
    ask(responder, requester, "svc")
    watcher.fence()
    return any(message.subject == "lat.svc" for message in watcher.kept())


def name_of(server: Server) -> str:
    name: str = monitor(server, "/varz")["server_name"]
    return name
