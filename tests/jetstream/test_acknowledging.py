"""Acknowledgements: floors, redelivery, back-off, and messages that they remove from the stream."""

from __future__ import annotations

import json

import pytest
from support.caller import Message
from support.js import Js, Peer
from support.servers import until

from gnats.go.text import SECOND

pytestmark = pytest.mark.timeout(60)


def pull(peer: Peer, stream: str, n: int = 1, consumer: str = "C") -> list[Message]:
    peer.pub(
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}",
        json.dumps({"batch": n, "expires": 30 * SECOND}).encode(),
        peer.inbox(),
    )
    return peer.msgs(n)


def setup(js: Js, name: str, n: int, **config: object) -> None:
    js.create_stream(name, subjects=[f"{name}.>"])
    js.create_consumer(name, "C", **{"ack_policy": "explicit"} | config)
    js.publish(*[f"{name}.x"] * n)


def floors(js: Js, name: str) -> tuple[object, ...]:
    info = js.consumer_info(name, "C")
    return info["ack_floor"], info["num_ack_pending"], info["num_redelivered"]


def test_the_floor_follows_the_acks(js: Js, name: str) -> None:
    setup(js, name, 5)
    with js.peer() as peer:
        messages = pull(peer, name, 5)
        for n, expected in ((2, (0, 4)), (1, (2, 3)), (5, (2, 2)), (3, (3, 1)), (4, (5, 0))):
            assert peer.request(messages[n - 1].reply, b"+ACK").payload == b""
            floor, left = expected
            assert floors(js, name) == ((floor, floor), left, 0)


def test_gaps_of_other_subjects_count_for_the_stream_only(js: Js, name: str) -> None:
    js.create_stream(name, subjects=[f"{name}.>"])
    js.create_consumer(name, "C", ack_policy="explicit", filter_subject=f"{name}.a")
    js.publish(*[f"{name}.{each}" for each in "abbabbba"])
    with js.peer() as peer:
        messages = pull(peer, name, 3)
        assert [each.ack for each in messages] == [(1, 1, 1, 2), (1, 4, 2, 1), (1, 8, 3, 0)]
        peer.request(messages[0].reply)
        assert js.consumer_info(name, "C")["ack_floor"] == (1, 3)
        peer.request(messages[1].reply)
        assert js.consumer_info(name, "C")["ack_floor"] == (2, 7)
        peer.request(messages[2].reply)
        assert js.consumer_info(name, "C")["ack_floor"] == (3, 8)


def test_ack_all(js: Js, name: str) -> None:
    setup(js, name, 5, ack_policy="all")
    with js.peer() as peer:
        messages = pull(peer, name, 5)
        peer.request(messages[2].reply)
        assert floors(js, name) == ((3, 3), 2, 0)
        peer.request(messages[1].reply)
        assert floors(js, name) == ((3, 3), 2, 0)
        peer.request(messages[4].reply)
        assert floors(js, name) == ((5, 5), 0, 0)


def test_ack_none_needs_no_acks(js: Js, name: str) -> None:
    setup(js, name, 3, ack_policy="none")
    with js.peer() as peer:
        pull(peer, name, 3)
    assert floors(js, name) == ((3, 3), 0, 0)


def test_nak_delivers_again_at_once(js: Js, name: str) -> None:
    setup(js, name, 2)
    with js.peer() as peer:
        first, _ = pull(peer, name, 2)
        peer.pub(first.reply, b"-NAK")
        (again,) = pull(peer, name)
        assert (again.subject, again.ack) == (first.subject, (2, 1, 3, 0))
        assert floors(js, name) == ((0, 0), 2, 1)
        peer.request(again.reply)
        assert floors(js, name) == ((1, 1), 1, 0)


def test_term_ends_it(js: Js, name: str) -> None:
    setup(js, name, 1)
    with js.peer() as peer:
        (message,) = pull(peer, name)
        assert peer.request(message.reply, b"+TERM for a reason").payload == b""
    assert floors(js, name) == ((1, 1), 0, 0)


def test_next_asks_for_more(js: Js, name: str) -> None:
    setup(js, name, 4)
    with js.peer() as peer:
        (message,) = pull(peer, name)
        inbox = peer.inbox()
        peer.pub(message.reply, b"+NXT", inbox)
        message = peer.msg()
        assert message.ack[1] == 2
        peer.pub(message.reply, b'+NXT {"batch":2}', inbox)
        assert [each.ack[1] for each in peer.msgs(2)] == [3, 4]
    assert floors(js, name) == ((2, 2), 2, 0)


def test_max_ack_pending_stops_delivery(js: Js, name: str) -> None:
    setup(js, name, 5, max_ack_pending=2)
    with js.peer() as peer:
        peer.pub(f"$JS.API.CONSUMER.MSG.NEXT.{name}.C", b'{"batch":5,"expires":30000000000}', peer.inbox())
        one, two = peer.msgs(2)
        assert peer.nothing()
        peer.pub(two.reply)
        three = peer.msg()
        assert three.ack == (1, 3, 3, 2)
        peer.pub(one.reply)
        peer.pub(three.reply)
        assert [each.ack[1] for each in peer.msgs(2)] == [4, 5]


def test_acks_of_what_was_not_delivered_are_ignored(js: Js, name: str) -> None:
    setup(js, name, 3)
    with js.peer() as peer:
        pull(peer, name)
        peer.pub(f"$JS.ACK.{name}.C.1.3.3.0.0")
        peer.pub(f"$JS.ACK.{name}.C.1.99.99.0.0")
        peer.pub(f"$JS.ACK.{name}.C.x.y.z.0.0")
        peer.pub(f"$JS.ACK.{name}.C.1.1.99.0.0", b"-NAK")
        peer.flush()
    assert floors(js, name) == ((0, 0), 1, 0)


def test_a_second_ack_changes_nothing(js: Js, name: str) -> None:
    setup(js, name, 2)
    with js.peer() as peer:
        one, _ = pull(peer, name, 2)
        peer.request(one.reply)
        peer.request(one.reply)
        peer.request(one.reply, b"-NAK")
    assert floors(js, name) == ((1, 1), 1, 0)


def test_messages_that_are_deleted_are_not_waited_for(js: Js, name: str) -> None:
    setup(js, name, 4)
    with js.peer() as peer:
        pull(peer, name, 3)
        js.delete_msg(name, 1)
        js.delete_msg(name, 4)
        until(lambda: js.consumer_info(name, "C")["num_ack_pending"] == 2)
        info = js.consumer_info(name, "C")
        assert (info["ack_floor"], info["num_ack_pending"], info["num_pending"]) == ((1, 1), 2, 0)


def test_a_purge_ends_what_is_pending(js: Js, name: str) -> None:
    setup(js, name, 5)
    with js.peer() as peer:
        pull(peer, name, 3)
        js.purge(name)
        info = js.consumer_info(name, "C")
        assert (info["ack_floor"], info["num_ack_pending"], info["num_pending"]) == ((3, 5), 0, 0)
        js.publish(f"{name}.x")
        assert pull(peer, name)[0].ack == (1, 6, 4, 0)


def test_a_purge_of_one_filter_leaves_the_messages_of_the_others(js: Js, name: str) -> None:
    js.create_stream(name, subjects=[f"{name}.>"])
    filters = [f"{name}.a", f"{name}.b"]
    js.create_consumer(name, "C", ack_policy="explicit", filter_subjects=filters)
    js.publish(*filters * 3)
    with js.peer() as peer:
        pull(peer, name, 2)
        js.purge(name, filter=filters[0])
        info = js.consumer_info(name, "C")
        assert (info["ack_floor"], info["num_ack_pending"], info["num_pending"]) == ((1, 1), 1, 2)
        assert [message.ack for message in pull(peer, name, 2)] == [(1, 4, 3, 1), (1, 6, 4, 0)]


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
def test_the_stream_forgets_what_was_acknowledged(js: Js, name: str, retention: str) -> None:
    js.create_stream(name, subjects=[f"{name}.>"], retention=retention)
    js.create_consumer(name, "C", ack_policy="explicit")
    js.publish(*[f"{name}.x"] * 3)
    with js.peer() as peer:
        messages = pull(peer, name, 3)
        assert js.messages(name) == 3
        peer.request(messages[1].reply)
        assert js.messages(name) == 2
        peer.request(messages[0].reply)
        peer.request(messages[2].reply)
        assert js.messages(name) == 0


def test_interest_of_two_consumers(js: Js, name: str) -> None:
    js.create_stream(name, subjects=[f"{name}.>"], retention="interest")
    js.create_consumer(name, "C", ack_policy="explicit")
    js.create_consumer(name, "D", ack_policy="all", filter_subject=f"{name}.x")
    js.publish(f"{name}.x", f"{name}.y", f"{name}.x")
    with js.peer() as peer:
        messages = pull(peer, name, 3)
        for message in messages:
            peer.request(message.reply)
        assert js.messages(name) == 2
        _, last = pull(peer, name, 2, "D")
        peer.request(last.reply)
        assert js.messages(name) == 0


def test_deleting_the_last_consumer_that_is_interested(js: Js, name: str) -> None:
    js.create_stream(name, subjects=[f"{name}.>"], retention="interest")
    js.create_consumer(name, "C", ack_policy="explicit")
    js.create_consumer(name, "D", ack_policy="explicit")
    js.publish(*[f"{name}.x"] * 3)
    with js.peer() as peer:
        peer.request(pull(peer, name, 3)[1].reply)
        assert js.messages(name) == 3
        js.delete_consumer(name, "D")
        assert js.messages(name) == 2


def test_ack_none_with_interest_retention(js: Js, name: str) -> None:
    js.create_stream(name, subjects=[f"{name}.>"], retention="interest")
    js.create_consumer(name, "C", ack_policy="none")
    js.publish(*[f"{name}.x"] * 3)
    with js.peer() as peer:
        pull(peer, name, 3)
        until(lambda: js.messages(name) == 0)
