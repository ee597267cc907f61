"""The event of a server that may not connect: its user or password for routes or gateways is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from support.caller import Caller
from support.clusters import launch_routed
from support.launch import Launch
from support.servers import Server
from support.wire import Connection, connect_op

pytestmark = pytest.mark.timeout(60)

GUARD = "authorization { user: u, password: right }"
CONFIG = f"""
server_name: S
system_account: SYS
accounts {{ SYS {{ users: [ {{ user: s, password: pw }} ] }} }}
gateway {{ name: C, listen: '127.0.0.1:-1', {GUARD} }}
"""
PORTS = {
    "Router": r"Listening for route connections on ([\d.]+):(\d+)",
    "Gateway": r"Address for gateway \"C\" is ([\d.]+):(\d+)",
}
CLIENT = ["start", "host", "id", "acc", "user", "name", "stop", "kind"]
EVENT = ["type", "id", "timestamp", "server", "client", "sent", "received", "reason"]


@pytest.fixture(scope="module")
def server(launch_shared: Launch) -> Server:
    return launch_routed(launch_shared, config=CONFIG, cluster=GUARD)


@pytest.fixture
def operator(server: Server) -> Iterator[Caller]:
    with Caller(server, "s") as caller:
        caller.subscribe("$SYS.SERVER.*.CLIENT.AUTH.ERR")
        yield caller


@pytest.mark.parametrize("link", PORTS)
def test_a_refused_peer_is_an_event(server: Server, operator: Caller, link: str) -> None:
    host, port = server.wait_log(re.compile(PORTS[link])).groups()
    peer = Connection((host, int(port)))
    try:
        peer.send(connect_op("u", "wrong", name="PEER", gateway="X"))
        assert peer.read_op() == b"-ERR 'Authorization Violation'\r\n"
    finally:
        peer.close()
    event = operator.next().json
    assert list(event) == EVENT
    assert event["type"] == "io.nats.server.advisory.v1.client_disconnect"
    client = event["client"]
    assert list(client) == CLIENT
    assert (client["acc"], client["user"], client["name"], client["kind"]) == ("N/A", "u", "PEER", link)
    assert event["sent"] == event["received"] == {"msgs": 0, "bytes": 0}
    assert event["reason"] == "Authentication Failure"
