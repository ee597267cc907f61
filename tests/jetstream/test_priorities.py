"""Priority groups: overflow, pinned clients, priorities."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.js import Js, Peer

from gnats.go.text import SECOND

pytestmark = pytest.mark.timeout(60)


def ask(peer: Peer, name: str, inbox: str, **request: Any) -> None:
    body = {"batch": 1, "expires": 30 * SECOND} | request
    peer.pub(f"$JS.API.CONSUMER.MSG.NEXT.{name}.C", json.dumps(body).encode(), inbox)
    peer.flush()


def setup(js: Js, name: str, policy: str, n: int = 0, **config: Any) -> None:
    js.create_stream(name)
    js.create_consumer(
        name, "C", ack_policy="explicit", priority_groups=["A"], priority_policy=policy, **config
    )
    js.publish(*[name] * n)


@pytest.mark.parametrize("policy", ["overflow", "pinned_client", "prioritized"])
def test_the_group_must_be_named(js: Js, name: str, policy: str) -> None:
    setup(js, name, policy)
    with js.peer() as peer:
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{name}.C"
        assert peer.request(subject, b"{}").status == "400 Bad Request - Priority Group missing"
        assert peer.request(subject, b'{"group":"B"}').status == "400 Bad Request - Invalid Priority Group"
        assert peer.request(subject, b'{"group":"A","no_wait":true}').status == "404 No Messages"
        assert peer.request(subject, b'{"group":"\\u0041","no_wait":true}').status == "404 No Messages"


def test_overflow_by_what_is_pending(js: Js, name: str) -> None:
    setup(js, name, "overflow", 3)
    with js.peer() as peer:
        few, many = peer.inbox(), peer.inbox()
        ask(peer, name, many, group="A", min_pending=5)
        ask(peer, name, few, group="A", min_pending=2)
        assert peer.msg().sid == "1"
        ask(peer, name, few, group="A", min_pending=3)
        assert peer.nothing()
        js.publish(*[name] * 4)
        assert sorted((each.sid, each.status) for each in peer.msgs(2)) == [("1", ""), ("2", "")]


def test_overflow_by_what_is_not_acknowledged(js: Js, name: str) -> None:
    setup(js, name, "overflow", 4)
    with js.peer() as peer:
        plain, overflow = peer.inbox(), peer.inbox()
        ask(peer, name, overflow, group="A", min_ack_pending=2)
        assert peer.nothing()
        ask(peer, name, plain, group="A", batch=2)
        assert [each.sid for each in peer.msgs(3)] == ["1", "1", "2"]


def test_a_pinned_client(js: Js, name: str) -> None:
    setup(js, name, "pinned_client", 4, priority_timeout=60 * SECOND)
    with js.peer() as peer:
        first, second = peer.inbox(), peer.inbox()
        ask(peer, name, first, group="A")
        message = peer.msg()
        pin = message.headers["Nats-Pin-Id"]
        assert len(pin) == 22
        # A request of another client waits.
        ask(peer, name, second, group="A")
        assert peer.nothing()
        ask(peer, name, first, group="A", id=pin)
        assert (peer.msg().sid, message.headers) == ("1", {"Nats-Pin-Id": pin})
        ask(peer, name, second, group="A", id="somebody else")
        assert peer.msg().status == "423 Nats-Pin-Id mismatch"


def test_a_pin_ends(js: Js, name: str) -> None:
    setup(js, name, "pinned_client", 4, priority_timeout=3 * SECOND)
    with js.peer() as peer:
        first, second = peer.inbox(), peer.inbox()
        ask(peer, name, first, group="A")
        pin = peer.msg().headers["Nats-Pin-Id"]
        ask(peer, name, second, group="A")
        message = peer.msg()
        assert message.sid == "2"
        other = message.headers["Nats-Pin-Id"]
        assert other != pin
        ask(peer, name, first, group="A", id=pin)
        assert peer.msg().status == "423 Nats-Pin-Id mismatch"


def test_priorities(js: Js, name: str) -> None:
    setup(js, name, "prioritized")
    with js.peer() as peer:
        low, high, low_too = peer.inbox(), peer.inbox(), peer.inbox()
        ask(peer, name, low, group="A", priority=5, batch=2)
        ask(peer, name, high, group="A", priority=1, batch=2)
        ask(peer, name, low_too, group="A", priority=5, batch=1)
        js.publish(*[name] * 5)
        assert [each.sid for each in peer.msgs(5)] == ["2", "2", "1", "3", "1"]
