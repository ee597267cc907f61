"""The monitoring endpoint: its paths and options, and counters equal to the reference's."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from support.launch import Launch
from support.monitor import monitor, wait_connections
from support.servers import REFERENCE, TIMEOUT, Server
from support.wire import Connection

from .cases import HEADERS, QUIET

pytestmark = pytest.mark.timeout(60)

SETTINGS = (
    "version", "proto", "host", "http_host", "max_connections", "ping_interval", "ping_max", "auth_timeout",
    "max_control_line", "max_payload", "max_pending", "write_deadline", "write_timeout",
)  # fmt: skip
COUNTERS = (
    "connections", "total_connections", "in_msgs", "in_bytes", "out_msgs", "out_bytes", "in_client_msgs",
    "in_client_bytes", "out_client_msgs", "out_client_bytes", "slow_consumers", "stale_connections",
    "subscriptions",
)  # fmt: skip


def test_healthz(launch: Launch) -> None:
    server = launch("-m", "-1")
    assert monitor(server, "/healthz") == {"status": "ok"}


def test_answers_are_json(launch: Launch) -> None:
    server = launch("-m", "-1")
    for path in ("/varz", "/healthz"):
        with urlopen(f"http://127.0.0.1:{server.monitor_port}{path}", timeout=TIMEOUT) as response:
            assert response.status == 200
            assert response.headers["Content-Type"] == "application/json"


def test_unknown_path(launch: Launch) -> None:
    server = launch("-m", "-1")
    with pytest.raises(HTTPError) as error:
        monitor(server, "/nosuch")
    assert error.value.code == 404
    error.value.close()


@pytest.mark.parametrize(
    "config",
    [
        "",
        'max_payload: 1000\nmax_connections: 10\nping_interval: "30s"\nping_max: 5\n'
        'write_deadline: "3s"\nwrite_timeout: close',
    ],
)
def test_varz_has_the_settings(launch: Launch, config: str) -> None:
    tested, expected = (launch("-m", "-1", config=config, **other) for other in ({}, {"kind": REFERENCE}))
    varz = monitor(tested, "/varz")
    with Connection(tested.address) as connection:
        assert varz["server_id"] == connection.info["server_id"]
        assert varz["server_name"] == connection.info["server_name"]
    assert varz["port"] == tested.port
    reference = monitor(expected, "/varz")
    assert {key: varz.get(key) for key in SETTINGS} == {key: reference.get(key) for key in SETTINGS}


def test_varz_counts(launch: Launch) -> None:
    """Counts of messages, bytes (payload and headers, no protocol), connections and subscriptions."""
    tested, expected = launch("-m", "-1"), launch("-m", "-1", kind=REFERENCE)
    assert counts(tested) == counts(expected)


def counts(server: Server) -> dict[str, Any]:
    """Return how the counters change during a session, and after its connections have closed."""
    before = monitor(server, "/varz")
    with Connection(server.address) as first, Connection(server.address) as second:
        first.send(HEADERS + b"SUB a 1\r\nSUB a.* 2\r\nSUB b q 3\r\nSUB b q 4\r\n")
        assert first.fence() == []
        second.send(
            HEADERS
            + b"PUB a 5\r\nhello\r\n" * 3
            + b"PUB b 2\r\nhi\r\nPUB nobody 7\r\nnothing\r\nPUB a 0\r\n\r\n"
            b"HPUB a.b 18 20\r\nNATS/1.0\r\nA: 1\r\n\r\nhi\r\n"
        )
        assert second.fence() == []
        assert len(first.fence()) == 6
        first.send(b"UNSUB 1\r\n")
        first.fence()
        during = monitor(server, "/varz")
    after = wait_connections(server, 0)
    return {key: (during[key] - before[key], after[key] - before[key]) for key in COUNTERS}


def test_connection_that_is_refused_counts(launch: Launch) -> None:
    def refused(server: Server) -> tuple[int, int]:
        with Connection(server.address) as first:
            first.send(QUIET)
            first.fence()
            with Connection(server.address) as second:
                second.rest()
            varz = monitor(server, "/varz")
            return varz["connections"], varz["total_connections"]

    tested, expected = (
        launch("-m", "-1", config="max_connections: 1", **other) for other in ({}, {"kind": REFERENCE})
    )
    assert refused(tested) == refused(expected) == (1, 2)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_all_addresses_are_those_of_both_families(launch: Launch) -> None:
    server = launch("-a", "0.0.0.0", "-m", "-1")
    with (
        Connection(("127.0.0.1", server.port)) as old,
        Connection(("::1", server.port), source="::1") as new,
    ):
        assert (old.info["client_ip"], new.info["client_ip"]) == ("127.0.0.1", "::1")
        wait_connections(server, 2)
        with urlopen(f"http://[::1]:{server.monitor_port}/connz", timeout=TIMEOUT) as page:
            connections = json.load(page)["connections"]
        assert [connection["ip"] for connection in connections] == ["127.0.0.1", "::1"]
