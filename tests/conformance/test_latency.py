"""Latency measurements of services: when the server sends them, to which account, with which contents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.accounts import Member, members, replies
from support.launch import Launch
from support.servers import Server

pytestmark = pytest.mark.timeout(120)

CONFIG = """
accounts {
  A { users: [{user: a, password: p}]
      exports [
        { service: "svc", latency: "lat.svc" }
        { service: "slow", threshold: "200ms", latency: "lat.slow" }
        { service: "asked", latency: { subject: "lat.asked", sampling: headers } }
        { service: "some", latency: { subject: "lat.some", sampling: "50%" } }
      ]
  }
  B { users: [{user: b, password: p}]
      imports [
        { service: { account: A, subject: "svc" } }
        { service: { account: A, subject: "slow" } }
        { service: { account: A, subject: "asked" }, share: true }
        { service: { account: A, subject: "some" } }
      ]
  }
}
"""
TRACED = b"NATS/1.0\r\nTraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\nX: y\r\n\r\n"


@pytest.fixture(scope="module")
def measured(launch_shared: Launch) -> Server:
    return launch_shared(config=CONFIG)


@pytest.fixture
def three(measured: Server) -> Iterator[tuple[Member, Member, Member]]:
    """Three clients: the responder, the requester, and a subscriber to the measurements."""
    with members(measured, "aba") as (server, client, watcher):
        watcher.subscribe(b"lat.>")
        client.say(b"SUB inbox 1")
        yield server, client, watcher


def measurement(watcher: Member) -> tuple[bytes, dict[str, Any]]:
    """Wait for the next measurement; return its MSG line and its JSON."""
    op = watcher.connection.read_op()
    while not op.startswith(b"MSG lat."):
        op = watcher.connection.read_op()
    line, payload, _ = op.split(b"\r\n")
    return line, json.loads(payload)


REPORT = ["type", "id", "timestamp", "status", "requestor", "start", "service", "system", "total"]
FAILED = [*REPORT[:4], "description", *REPORT[4:]]


def assert_failed(report: dict[str, Any], status: int, description: str) -> None:
    assert list(report) == FAILED
    assert (report["status"], report["description"]) == (status, description)
    assert list(report["requestor"]) == ["acc", "rtt"]
    assert report["service"] == report["system"] == report["total"] == 0


def test_an_answered_request_is_measured(three: tuple[Member, Member, Member]) -> None:
    server, client, watcher = three
    server.subscribe(b"svc")
    client.publish(b"svc", b"", b"inbox")
    (reply,) = replies(server.hear())
    assert reply.endswith(b".T")
    server.publish(reply, b"ok")
    line, report = measurement(watcher)
    assert line.startswith(b"MSG lat.svc 1  ")
    assert report["type"] == "io.nats.server.metric.v1.service_latency"
    assert list(report) == [*REPORT[:5], "responder", *REPORT[5:]]
    assert report["status"] == 200
    assert report["requestor"]["acc"] == "B"
    assert list(report["responder"]) == [
        *("start", "host", "id", "acc", "user", "rtt", "server", "kind", "client_type")
    ]

    assert report["total"] >= report["requestor"]["rtt"] + report["system"]
    assert client.hear() == b"MSG inbox 1 2\r\nok\r\n"


def test_an_unanswered_request_is_measured(three: tuple[Member, Member, Member]) -> None:
    server, client, watcher = three
    server.subscribe(b"slow")
    client.publish(b"slow", b"", b"inbox")
    line, report = measurement(watcher)
    assert line.startswith(b"MSG lat.slow 1 ")
    assert_failed(report, 504, "Service Timeout")


def test_a_request_to_nobody_is_measured(three: tuple[Member, Member, Member]) -> None:
    _, client, watcher = three
    client.publish(b"svc", b"", b"inbox")
    assert_failed(measurement(watcher)[1], 503, "Service Unavailable")


def test_a_request_that_wants_no_answer_is_measured(three: tuple[Member, Member, Member]) -> None:
    server, client, watcher = three
    server.subscribe(b"svc")
    client.publish(b"svc")
    assert_failed(measurement(watcher)[1], 400, "Bad Request")


def test_a_requester_that_has_gone_is_measured(three: tuple[Member, Member, Member]) -> None:
    server, client, watcher = three
    server.subscribe(b"svc")
    client.publish(b"svc", b"", b"inbox")
    client.say(b"UNSUB 1")
    assert_failed(measurement(watcher)[1], 408, "Request Timeout")


def test_a_header_asks_for_the_measurement(three: tuple[Member, Member, Member]) -> None:
    server, client, watcher = three
    server.subscribe(b"asked")
    client.publish(b"asked", b"", b"inbox")
    (reply,) = replies(server.hear())
    assert not reply.endswith(b".T")
    server.publish(reply)
    client.say(b"HPUB asked inbox %d %d" % (len(TRACED), len(TRACED)), TRACED)
    (reply,) = replies(server.hear())
    server.publish(reply)
    _, report = measurement(watcher)
    assert list(report) == [*REPORT[:5], "responder", "header", *REPORT[5:]]
    assert report["header"] == {"Traceparent": ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]}
    assert report["requestor"]["user"] == "b"
    assert report["requestor"]["server"] == report["responder"]["server"]


def test_a_part_of_the_requests_is_measured(three: tuple[Member, Member, Member]) -> None:
    server, client, _ = three
    server.subscribe(b"some")
    client.say(*[b"PUB some inbox 0\r\n"] * 1000)
    made = replies(server.hear())
    assert len(made) == 1000
    assert 350 < sum(reply.endswith(b".T") for reply in made) < 650  # nine standard deviations
