"""Pull consumers: requests, their messages and statuses."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from support.caller import Message
from support.js import Js, NativeJs, Peer

from gnats.go.text import SECOND

pytestmark = pytest.mark.timeout(60)


def ask(peer: Peer, stream: str, consumer: str, inbox: str, **request: Any) -> None:
    peer.pub(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", json.dumps(request).encode(), inbox)


def status(message: Message) -> tuple[str, dict[str, str]]:
    assert not message.payload
    return message.status, message.headers


def test_messages_come_in_order_and_say_where_they_are(js: Js, name: str) -> None:
    js.create_stream(name, subjects=[f"{name}.>"])
    js.create_consumer(name, "C", ack_policy="explicit")
    js.publish(f"{name}.a", f"{name}.b", f"{name}.c", data=b"hello")
    with js.peer() as peer:
        inbox = peer.inbox()
        ask(peer, name, "C", inbox, batch=5, expires=SECOND * 30)
        for seq, message in enumerate(peer.msgs(3), 1):
            assert message.subject == f"{name}.{'abc'[seq - 1]}"
            assert message.payload == b"hello"
            assert message.reply.startswith(f"$JS.ACK.{name}.C.1.{seq}.{seq}.")
            assert message.ack == (1, seq, seq, 3 - seq)
        js.publish(f"{name}.d")
        assert peer.msg().ack == (1, 4, 4, 0)
    info = js.consumer_info(name, "C")
    assert (info["delivered"], info["ack_floor"]) == ((4, 4), (0, 0))
    assert (info["num_ack_pending"], info["num_pending"]) == (4, 0)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b'{"no_wait":true,"batch":1}', ("404 No Messages", {})),
        (
            b'{"batch":1,"expires":1000000}',
            ("408 Request Timeout", {"Nats-Pending-Messages": "1", "Nats-Pending-Bytes": "0"}),
        ),
        (
            b'{"batch":7,"max_bytes":512,"expires":1000000}',
            ("408 Request Timeout", {"Nats-Pending-Messages": "7", "Nats-Pending-Bytes": "512"}),
        ),
        (
            b'{"batch":1,"expires":-1}',
            ("408 Request Timeout", {"Nats-Pending-Messages": "1", "Nats-Pending-Bytes": "0"}),
        ),
        (b'{"batch":1', ("400 Bad Request - unexpected end of JSON input", {})),
        (b'{"batch":x}', ("400 Bad Request - invalid character 'x' looking for beginning of value", {})),
        (
            b'{"batch":1,"idle_heartbeat":10,"expires":19}',
            ("400 Bad Request - heartbeat value too large", {}),
        ),
        (b'{"group":"g","min_pending":5}', ("400 Bad Request - Not a Overflow Priority consumer", {})),
        (b'{"id":"x"}', ("400 Bad Request - Not a Pinned Client Priority consumer", {})),
        (b'{"priority":10}', ("400 Bad Request - Priority must be between 0 and 9", {})),
        (b'{"priority":-1}', ("400 Bad Request - Priority must be between 0 and 9", {})),
    ],
)
def test_requests_that_end_without_messages(js: Js, name: str, request_: bytes, answer: Any) -> None:
    js.create_stream(name)
    js.create_consumer(name, "C", ack_policy="explicit")
    with js.peer() as peer:
        got = peer.request(f"$JS.API.CONSUMER.MSG.NEXT.{name}.C", request_)
        assert status(got) == answer


@pytest.mark.parametrize(
    "member",
    [
        "expires",
        "batch",
        "max_bytes",
        "no_wait",
        "idle_heartbeat",
        "group",
        "min_pending",
        "min_ack_pending",
        "id",
        "priority",
    ],
)
def test_members_of_the_wrong_type(js: Js, name: str, member: str) -> None:
    js.create_stream(name)
    js.create_consumer(name, "C", ack_policy="explicit")
    types = {
        "expires": "time.Duration",
        "idle_heartbeat": "time.Duration",
        "no_wait": "bool",
        "group": "string",
        "id": "string",
        "min_pending": "int64",
        "min_ack_pending": "int64",
    }
    with js.peer() as peer:
        got = peer.request(f"$JS.API.CONSUMER.MSG.NEXT.{name}.C", b'{"%s":[]}' % member.encode())
        assert got.status == (
            "400 Bad Request - json: cannot unmarshal array into Go struct field "
            f".{member} of type {types.get(member, 'int')}"
        )


def test_limits_of_requests(js: Js, name: str) -> None:
    js.create_stream(name)
    js.create_consumer(
        name, "C", ack_policy="explicit", max_batch=10, max_expires=90 * SECOND, max_bytes=1000, max_waiting=1
    )
    with js.peer() as peer:
        inbox = peer.inbox()
        for request, answer in (
            ({"batch": 11}, "409 Exceeded MaxRequestBatch of 10"),
            ({"batch": 1, "expires": 91 * SECOND}, "409 Exceeded MaxRequestExpires of 1m30s"),
            ({"batch": 1, "max_bytes": 1001}, "409 Exceeded MaxRequestMaxBytes of 1000"),
        ):
            ask(peer, name, "C", inbox, **request)
            assert status(peer.msg()) == (answer, {})
        ask(peer, name, "C", inbox, batch=1, expires=60 * SECOND)
        ask(peer, name, "C", inbox, batch=1, expires=60 * SECOND)
        assert status(peer.msg()) == ("409 Exceeded MaxWaiting", {})
        ask(peer, name, "C", inbox, batch=1, expires=60 * SECOND, idle_heartbeat=30 * SECOND)
        assert js.consumer_info(name, "C")["num_waiting"] == 1
        assert peer.nothing()


def test_an_api_level_that_does_not_exist(js: Js, name: str) -> None:
    js.create_stream(name)
    js.create_consumer(name, "C", ack_policy="explicit")
    with js.peer() as peer:
        header = b"NATS/1.0\r\nNats-Required-Api-Level: 1000\r\n\r\n"
        assert (
            peer.request(f"$JS.API.CONSUMER.MSG.NEXT.{name}.C", b"1", header).status
            == "412 Required Api Level"
        )


def test_push_consumers_take_no_requests(js: Js, name: str) -> None:
    js.create_stream(name)
    js.create_consumer(name, "C", ack_policy="explicit", deliver_subject=f"{name}.deliver")
    with js.peer() as peer:
        got = peer.request(f"$JS.API.CONSUMER.MSG.NEXT.{name}.C")
        assert status(got) == ("409 Consumer is push based", {})


def test_one_message_without_a_body_and_a_number(js: Js, name: str) -> None:
    js.create_stream(name)
    js.create_consumer(name, "C", ack_policy="explicit")
    js.publish(*[name] * 6)
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{name}.C"
    with js.peer() as peer:
        inbox = peer.inbox()
        for body, n in ((b"", 1), (b"3", 3), (b"nonsense", 1)):
            peer.pub(subject, body, inbox)
            assert len(peer.msgs(n)) == n
            assert peer.nothing()


def test_no_wait_takes_what_there_is(js: Js, name: str) -> None:
    js.create_stream(name)
    js.create_consumer(name, "C", ack_policy="explicit")
    js.publish(*[name] * 3)
    with js.peer() as peer:
        inbox = peer.inbox()
        ask(peer, name, "C", inbox, batch=10, no_wait=True)
        assert [each.ack[1] for each in peer.msgs(3)] == [1, 2, 3]
        assert status(peer.msg()) == ("404 No Messages", {})
        # With an expiry it waits for the first message, and for no other.
        ask(peer, name, "C", inbox, batch=10, no_wait=True, expires=60 * SECOND)
        assert peer.nothing()
        js.publish(name)
        assert peer.msg().ack[1] == 4
        assert status(peer.msg()) == ("404 No Messages", {})


def test_no_wait_at_the_limit_of_acks_ends_with_its_first_timer(js: Js, name: str) -> None:
    """A request that had messages ends instead of sending its first heartbeat; one that had none waits on."""
    js.create_stream(name)
    js.create_consumer(name, "C", ack_policy="explicit", max_ack_pending=2)
    js.publish(*[name] * 4)
    with js.peer() as peer:
        inbox = peer.inbox()
        ask(peer, name, "C", inbox, batch=10, no_wait=True, expires=60 * SECOND, idle_heartbeat=SECOND // 10)
        first, second = peer.msgs(2)
        assert status(peer.msg()) == ("404 No Messages", {})
        for message in (first, second):
            peer.pub(message.reply, b"+ACK", inbox)
            assert not peer.msg().payload
        assert peer.nothing()
        # A request without a message waits on.
        ask(peer, name, "C", inbox, batch=2, expires=60 * SECOND)
        held = peer.msgs(2)
        ask(peer, name, "C", inbox, batch=10, no_wait=True, expires=60 * SECOND, idle_heartbeat=SECOND // 10)
        assert peer.msg().status == "100 Idle Heartbeat"
        js.publish(name)
        peer.pub(held[0].reply, b"+ACK")
        while (message := peer.msg()).status:
            assert message.status == "100 Idle Heartbeat"
        assert message.ack[2] == 5


def test_no_wait_behind_others(js: Js, name: str) -> None:
    """A no_wait request ends when earlier requests ask for more messages than there are."""
    js.create_stream(name)
    js.create_consumer(name, "C", ack_policy="explicit", max_ack_pending=1)
    js.publish(*[name] * 3)
    with js.peer() as peer:
        inbox = peer.inbox()
        ask(peer, name, "C", inbox, batch=5, expires=60 * SECOND)
        assert peer.msg().ack[1] == 1
        ask(peer, name, "C", inbox, batch=1, no_wait=True)
        assert status(peer.msg()) == ("408 Requests Pending", {})


def test_no_wait_behind_very_many_others(js: Js, name: str) -> None:
    """A search through all waiting requests for each of them would take minutes."""
    n = 150_000 if not js.is_reference else 100
    js.create_stream(name)
    js.create_consumer(name, "C", ack_policy="explicit", max_waiting=n, max_ack_pending=1)
    js.publish(*[name] * 3)
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{name}.C"
    with js.peer() as peer:
        ask(peer, name, "C", peer.inbox(), batch=1)
        assert peer.msg().ack[1] == 1
        inbox = peer.inbox()
        peer.send(f"PUB {subject} {inbox} 1\r\n1\r\n".encode() * n)
        peer.flush()
        body = b'{"batch":1,"no_wait":true}'
        peer.send((f"PUB {subject} {inbox} {len(body)}\r\n".encode() + body + b"\r\n") * 3000)
        assert {status(each)[0] for each in peer.msgs(3000)} == {"408 Requests Pending"}


def test_max_bytes(js: Js, name: str) -> None:
    js.create_stream(name, subjects=[name])
    js.create_consumer(name, "C", ack_policy="explicit")
    js.publish(*[name] * 4, data=b"x" * 100)
    with js.peer() as peer:
        inbox = peer.inbox()
        ask(peer, name, "C", inbox, batch=10, max_bytes=50, expires=60 * SECOND)
        assert status(peer.msg()) == (
            "409 Message Size Exceeds MaxBytes",
            {"Nats-Pending-Messages": "10", "Nats-Pending-Bytes": "50"},
        )
        ask(peer, name, "C", inbox, batch=10, max_bytes=350, expires=60 * SECOND)
        first, second, end = peer.msgs(3)
        used = sum(len(each.subject) + len(each.reply) + len(each.payload) for each in (first, second))
        assert (first.ack[1], second.ack[1]) == (1, 2)
        assert status(end) == (
            "409 Message Size Exceeds MaxBytes",
            {"Nats-Pending-Messages": "8", "Nats-Pending-Bytes": str(350 - used)},
        )
        ask(peer, name, "C", inbox, batch=1, max_bytes=1000, expires=60 * SECOND)
        last, end = peer.msgs(2)
        used = len(last.subject) + len(last.reply) + len(last.payload)
        assert status(end) == (
            "409 Batch Completed",
            {"Nats-Pending-Messages": "0", "Nats-Pending-Bytes": str(1000 - used)},
        )


def test_requests_take_turns(js: Js, name: str) -> None:
    js.create_stream(name)
    js.create_consumer(name, "C", ack_policy="explicit")
    with js.peer() as peer:
        one, two = peer.inbox(), peer.inbox()
        ask(peer, name, "C", one, batch=2, expires=60 * SECOND)
        ask(peer, name, "C", two, batch=3, expires=60 * SECOND)
        peer.flush()
        js.publish(*[name] * 5)
        sids = [each.sid for each in peer.msgs(5)]
        assert sids == ["1", "2", "1", "2", "2"]
        assert js.consumer_info(name, "C")["num_waiting"] == 0


def test_who_has_gone_gets_nothing(js: Js, name: str) -> None:
    js.create_stream(name)
    js.create_consumer(name, "C", ack_policy="explicit")
    with js.peer() as gone, js.peer() as peer:
        ask(gone, name, "C", gone.inbox(), batch=2, expires=60 * SECOND)
        gone.unsub("1")
        ask(peer, name, "C", peer.inbox(), batch=1, expires=60 * SECOND)
        peer.flush()
        js.publish(name, name)
        assert peer.msg().ack == (1, 1, 1, 1) or peer  # one of the two may be stored already
        info = js.consumer_info(name, "C")
        assert (info["num_waiting"], info["num_ack_pending"], info["num_pending"]) == (0, 1, 1)


def test_heartbeats_of_a_request(js: Js, name: str) -> None:
    js.create_stream(name)
    js.create_consumer(name, "C", ack_policy="explicit")
    js.publish(name)
    with js.peer() as peer:
        inbox = peer.inbox()
        ask(peer, name, "C", inbox, batch=5, expires=60 * SECOND, idle_heartbeat=SECOND // 10)
        assert peer.msg().ack[1] == 1
        for beat in peer.msgs(2):
            assert beat.status == "100 Idle Heartbeat"
            assert beat.headers == {"Nats-Last-Consumer": "1", "Nats-Last-Stream": "1"}


def test_heartbeats_of_tiny_intervals_are_not_more_than_anybody_can_want(js: Js, name: str) -> None:
    js.create_stream(name)
    js.create_consumer(name, "C", ack_policy="explicit")
    with js.peer() as peer:
        begun = time.monotonic()
        ask(peer, name, "C", peer.inbox(), batch=1, expires=60 * SECOND, idle_heartbeat=1)
        assert {each.status for each in peer.msgs(20)} == {"100 Idle Heartbeat"}
        if isinstance(js, NativeJs):
            assert time.monotonic() - begun >= 0.15


def test_headers_only(js: Js, name: str) -> None:
    js.create_stream(name)
    js.create_consumer(name, "C", ack_policy="explicit", headers_only=True)
    js.publish(name, data=b"12345")
    js.publish(name, data=b"", header=b"NATS/1.0\r\nA: b\r\n\r\n")
    with js.peer() as peer:
        ask(peer, name, "C", peer.inbox(), batch=2)
        one, two = peer.msgs(2)
        assert (one.header, one.payload) == (b"NATS/1.0\r\nNats-Msg-Size: 5\r\n\r\n", b"")
        assert (two.header, two.payload) == (b"NATS/1.0\r\nA: b\r\nNats-Msg-Size: 0\r\n\r\n", b"")


def test_headers_come_as_they_were(js: Js, name: str) -> None:
    js.create_stream(name)
    js.create_consumer(name, "C", ack_policy="none")
    header = b"NATS/1.0\r\nA: b\r\nC:d\r\n\r\n"
    js.publish(name, data=b"payload", header=header)
    with js.peer() as peer:
        message = peer.request(f"$JS.API.CONSUMER.MSG.NEXT.{name}.C")
        assert (message.header, message.payload) == (header, b"payload")


def test_deleted_consumers_say_so(js: Js, name: str) -> None:
    js.create_stream(name)
    js.create_consumer(name, "C", ack_policy="explicit")
    with js.peer() as peer:
        ask(peer, name, "C", peer.inbox(), batch=1, expires=60 * SECOND)
        peer.flush()
        js.delete_consumer(name, "C")
        assert status(peer.msg()) == ("409 Consumer Deleted", {})


@pytest.mark.parametrize("n", [1000, 5000])
def test_many_messages(js: Js, name: str, n: int) -> None:
    js.create_stream(name)
    js.create_consumer(name, "C", ack_policy="none")
    with js.peer() as peer:
        inbox = peer.inbox()
        ask(peer, name, "C", inbox, batch=n, expires=60 * SECOND)
        for _ in range(n):
            peer.pub(name, b"some payload")
        assert [each.ack[1:3] for each in peer.msgs(n)] == [(seq, seq) for seq in range(1, n + 1)]
