"""Gateways on the pages of monitoring, in statistics, and in the events of the system account."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.caller import Caller
from support.gatewaypeer import (
    ALL_SUBS_COMPLETE,
    ALL_SUBS_START,
    FakeGateway,
    GatewayListener,
    launch_gateway,
)
from support.launch import Launch
from support.leafpeer import FakeLeaf
from support.monitor import monitor
from support.servers import Server

pytestmark = pytest.mark.timeout(60)

CONFIG = """
server_name: S
leafnodes { listen: '127.0.0.1:-1', compression: off }
accounts {
    A { users [ { user: a, password: p } ] }
    SYS { users [ { user: s, password: p } ] }
}
system_account: SYS
"""
CONNECTION = [
    *("cid", "kind", "ip", "port", "start", "last_activity", "rtt", "uptime", "idle", "pending_bytes"),
    *("in_msgs", "out_msgs", "in_bytes", "out_bytes", "subscriptions", "name"),
]


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeGateway]:
    with FakeGateway() as fake:
        yield fake


@pytest.fixture(scope="module")
def server(launch_shared: Launch, fake: FakeGateway) -> Iterator[Server]:
    """A server with a connection to F, which wants x, and y for a group, and one from F, with a message."""
    with GatewayListener() as listener:
        remotes = {"F": listener.url, "U": "nats://127.0.0.1:1"}
        server = launch_gateway(launch_shared, remotes=remotes, config=CONFIG)
        peer = fake.accept(listener)
        peer.send(fake.command(ALL_SUBS_START, "A") + b"RS+ A x\r\nRS+ A y g 1\r\n")
        peer.send(fake.command(ALL_SUBS_COMPLETE, "A"))
        peer.fence()
        back = fake.dial(server)
        back.take_accounts(3)
        back.message(b"A", b"m", b"hello")
        back.fence()
        yield server


def page(server: Server, query: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the connections to and from other clusters by their names."""
    found = monitor(server, f"/gatewayz{query}")
    return found["outbound_gateways"], found["inbound_gateways"]


def test_the_server_and_its_connections(server: Server, fake: FakeGateway) -> None:
    found = monitor(server, "/gatewayz")
    members = ["server_id", "now", "name", "host", "port", "outbound_gateways", "inbound_gateways"]
    assert list(found) == members
    assert (found["name"], found["host"]) == ("G", "127.0.0.1")
    (name, outbound), (came, (inbound,)) = (
        *found["outbound_gateways"].items(),
        *found["inbound_gateways"].items(),
    )
    assert (name, came) == ("F", "F")
    assert (outbound["configured"], inbound["configured"]) == (True, False)
    for each in outbound["connection"], inbound["connection"]:
        assert list(each) == CONNECTION
        assert (each["kind"], each["name"]) == ("Gateway", fake.id)
    assert (inbound["connection"]["in_msgs"], inbound["connection"]["in_bytes"]) == (1, 5)


def test_one_cluster_is_asked_for(server: Server) -> None:
    assert [list(each) for each in page(server, "?gw_name=F")] == [["F"], ["F"]]
    assert page(server, "?gw_name=U") == (None, {})


def test_accounts(server: Server) -> None:
    outbound, inbound = page(server, "?accs=1")
    told = {"interest_mode": "Interest-Only", "interest_only_threshold": 1000}
    accounts = [{"name": "A", **told, "num_subs": 2, "num_queue_subs": 1}]
    assert outbound["F"]["accounts"] == accounts
    own = sorted(inbound["F"][0]["accounts"], key=lambda account: str(account["name"]))
    assert own == [{"name": name, **told} for name in ("$G", "A", "SYS")]
    outbound, inbound = page(server, "?acc_name=NONE")
    assert "accounts" not in outbound["F"]
    assert "accounts" not in inbound["F"][0]


def test_subscriptions_of_an_account(server: Server) -> None:
    outbound, _ = page(server, "?acc_name=A&subs=detail")
    cid = outbound["F"]["connection"]["cid"]
    (account,) = outbound["F"]["accounts"]
    found = sorted(account["subscriptions_list_detail"], key=lambda sub: str(sub["subject"]))
    common = {"sid": "", "msgs": 0, "cid": cid}
    assert found == [{"subject": "x", **common}, {"subject": "y", "qgroup": "g", **common}]


def test_other_pages(server: Server) -> None:
    varz = monitor(server, "/varz")
    assert varz["gateway"]["port"] == monitor(server, "/gatewayz")["port"]
    assert [remote["name"] for remote in varz["gateway"]["gateways"]] == ["F", "U"]
    assert (varz["connections"], varz["in_msgs"], varz["in_client_msgs"]) == (0, 1, 0)
    assert varz["slow_consumer_stats"]["gateways"] == varz["stale_connection_stats"]["gateways"] == 0
    assert monitor(server, "/connz")["connections"] == []


def test_statistics_and_requests(server: Server) -> None:
    with Caller(server, "s", "p") as caller:
        own_id = monitor(server, "/varz")["server_id"]
        stats = caller.request(f"$SYS.REQ.SERVER.{own_id}.STATSZ").json["statsz"]
        (gateway,) = stats["gateways"]
        assert list(gateway) == ["gwid", "name", "sent", "received", "inbound_connections"]
        assert (gateway["name"], gateway["received"]) == ("F", {"msgs": 1, "bytes": 5})
        assert gateway["inbound_connections"] == 1
        found = caller.request(f"$SYS.REQ.SERVER.{own_id}.GATEWAYZ", b'{"name": "F"}').json
        assert list(found["data"]["outbound_gateways"]) == ["F"]
        assert found["server"]["cluster"] == "G"


def test_clusters_hear_of_accounts_with_leaf_nodes(server: Server, fake: FakeGateway) -> None:
    """So that servers before 2.9 send them no message that nobody wants."""
    with FakeLeaf() as leaf, Caller(server, "s", "p") as caller:
        caller.subscribe("$SYS.ACCOUNT.*.LEAFNODE.CONNECT")
        caller.fence()

        def heard() -> tuple[str, str]:
            message = caller.next()
            assert list(message.json) == ["server", "acc"]
            return message.subject, message.json["acc"]

        expected = ("$SYS.ACCOUNT.A.LEAFNODE.CONNECT", "A")
        leaf.dial(server, user="a", **{"pass": "p"})
        assert heard() == expected
        with FakeGateway("K") as other:
            other.dial(server)
            assert heard() == expected
