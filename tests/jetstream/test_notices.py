"""Notices of consumers to the control plane, and their saved states (gnats only)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.caller import Message
from support.js import NativeJs, Peer
from support.servers import selected, until

from gnats.go.text import SECOND
from gnats.jetstream.consumer.consumerstate import ConsumerEvent

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(
    scope="module", params=[kind for kind in selected() if not kind.is_reference], ids=lambda kind: kind.name
)
def js(request: pytest.FixtureRequest) -> Iterator[NativeJs]:
    js = NativeJs(request.param.io_threads)
    yield js
    js.close()


def pull(peer: Peer, stream: str, n: int = 1) -> list[Message]:
    body = json.dumps({"batch": n, "expires": 30 * SECOND}).encode()
    peer.pub(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.C", body, peer.inbox())
    return peer.msgs(n)


def noticed(js: NativeJs, stream: str, event: ConsumerEvent) -> tuple[int, int, int, int, bytes]:
    """Wait for a notice of an event from a consumer of a stream; return the first."""

    def find() -> tuple[int, int, int, int, bytes] | None:
        for consumer, what, notice in js.notices:
            if what == event and consumer.stream.name == stream:  # type: ignore[attr-defined]
                return notice
        return None

    return until(find)


def setup(js: NativeJs, name: str, n: int, storage: str = "memory", **config: Any) -> None:
    js.create_stream(name, storage=storage)
    js.create_consumer(name, "C", **{"ack_policy": "explicit", "durable_name": "C"} | config)
    js.publish(*[name] * n)


def test_acks_are_sampled(js: NativeJs, name: str) -> None:
    setup(js, name, 1, sample_freq="100%")
    with js.peer() as peer:
        peer.request(pull(peer, name)[0].reply)
    sseq, dseq, deliveries, ack_time, text = noticed(js, name, ConsumerEvent.CONSUMER_ACKED)
    assert (sseq, dseq, deliveries, text) == (1, 1, 1, b"")
    assert 0 < ack_time < 10 * SECOND


def test_naks_and_terms(js: NativeJs, name: str) -> None:
    setup(js, name, 2, ack_wait=60 * SECOND)
    with js.peer() as peer:
        first, second = pull(peer, name, 2)
        peer.pub(first.reply, b"-NAK nonsense")
        peer.pub(second.reply, b"+TERM  the reason ")
        peer.flush()
    assert noticed(js, name, ConsumerEvent.CONSUMER_NAKED) == (1, 1, 1, 0, b"")
    assert noticed(js, name, ConsumerEvent.CONSUMER_BAD_NAK) == (1, 1, 1, 0, b"nonsense")
    assert noticed(js, name, ConsumerEvent.CONSUMER_TERMINATED) == (2, 2, 1, 0, b"the reason")


def test_what_was_delivered_too_often(js: NativeJs, name: str) -> None:
    setup(js, name, 1, max_deliver=1, ack_wait=SECOND // 10)
    with js.peer() as peer:
        pull(peer, name)
        assert noticed(js, name, ConsumerEvent.CONSUMER_MAX_DELIVERIES)[2] == 1


def test_acks_of_what_the_stream_does_not_have(js: NativeJs, name: str) -> None:
    setup(js, name, 1)
    with js.peer() as peer:
        peer.pub(f"$JS.ACK.{name}.C.1.7.7.0.0")
        peer.flush()
    assert noticed(js, name, ConsumerEvent.CONSUMER_ACK_BEYOND)[0] == 7


def test_pins(js: NativeJs, name: str) -> None:
    setup(js, name, 2, priority_groups=["A"], priority_policy="pinned_client", priority_timeout=60 * SECOND)
    with js.peer() as peer:
        pin = peer.request(f"$JS.API.CONSUMER.MSG.NEXT.{name}.C", b'{"group":"A"}').headers["Nats-Pin-Id"]
        assert noticed(js, name, ConsumerEvent.CONSUMER_PINNED)[4].decode() == pin
        consumer = js.consumers[name, "C"]
        assert js.call(lambda _: consumer.info())["pin"] == pin
        assert js.call(lambda _: consumer.unpin()) is True
        assert js.call(lambda _: consumer.unpin()) is False
        assert js.call(lambda _: consumer.info())["pin"] is None


def test_a_pause_that_is_over(js: NativeJs, name: str) -> None:
    setup(js, name, 0, pause_until="2000-01-01T00:00:00Z")
    assert js.call(lambda _: js.consumers[name, "C"].info())["paused"] is False


# -- work that does not end ----------------------------------------------------------------------------


def test_messages_that_wait_to_be_delivered_again_are_left_alone(js: NativeJs, name: str) -> None:
    """Without a pull request no timer fires for them, however short the ack wait is."""
    timers = js.call(lambda _: js.engine.stats()["timers"])
    setup(js, name, 3, ack_wait=1)
    with js.peer() as peer:
        pull(peer, name, 3)
        until(lambda: js.call(lambda _: js.engine.stats()["timers"]) == timers)
        assert [each.ack[:2] for each in pull(peer, name, 3)] == [(2, 1), (2, 2), (2, 3)]


def test_expiry_keeps_up_with_publishers(js: NativeJs, name: str) -> None:
    """Expiry removes 40,000 old messages in few rounds of the engine's timer."""
    js.create_stream(name, max_age=SECOND, duplicate_window=SECOND)
    stream, rounds = js.streams[name], js.call(lambda _: js.engine.stats()["rounds"])

    def store(_: object) -> None:
        for _ in range(40_000):
            stream.store.store_msg(name.encode(), ts=time.time_ns() - 2 * SECOND)
        stream.look_for_expired()

    js.call(store)
    until(lambda: js.messages(name) == 0)
    assert js.call(lambda _: js.engine.stats()["rounds"]) - rounds < 20


# -- state ---------------------------------------------------------------------------------------------


def again(js: NativeJs, name: str, **config: Any) -> None:
    """Close the consumer, and make another one from its state."""
    consumer = js.consumers.pop((name, "C"))
    state = js.call(lambda _: (consumer.state(), consumer.close())[0])
    js.create_consumer(name, "C", state=state, **{"ack_policy": "explicit", "durable_name": "C"} | config)


def test_a_consumer_goes_on_where_it_was(js: NativeJs, name: str) -> None:
    setup(js, name, 6)
    with js.peer() as peer:
        messages = pull(peer, name, 4)
        peer.request(messages[0].reply)
        peer.request(messages[2].reply)
        before = js.consumer_info(name, "C")
        again(js, name)
        assert js.consumer_info(name, "C") == before
        assert before["ack_floor"] == (1, 1)
        assert pull(peer, name)[0].ack == (1, 5, 5, 1)
        # Messages delivered before can still be acknowledged.
        peer.request(messages[1].reply)
        assert js.consumer_info(name, "C")["ack_floor"] == (3, 3)


@pytest.mark.parametrize("flow_control", [False, True])
@pytest.mark.parametrize("sseq", [2, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("dseq", [1000, (1 << 63) + 5, (1 << 64) - 1])
def test_no_ack_takes_floors_beyond_what_was_delivered(
    js: NativeJs, name: str, flow_control: bool, sseq: int, dseq: int
) -> None:
    """An ack with made-up sequences does not move an ack-all consumer's floor; its state stays readable."""
    push = {"deliver_subject": f"{name}.d", "flow_control": True, "idle_heartbeat": SECOND}
    with js.peer() as peer:
        if flow_control:
            peer.sub(f"{name}.d")
        setup(js, name, 3, ack_policy="all", **(push if flow_control else {}))
        _ = peer.msgs(3) if flow_control else pull(peer, name, 3)
        peer.pub(f"$JS.ACK.{name}.C.1.{sseq}.{dseq}.1.0")
        peer.flush()
    known = sseq == 2
    info = js.consumer_info(name, "C")
    assert (info["ack_floor"], info["num_ack_pending"]) == (((3, 2), 1) if known else ((0, 0), 3))
    again(js, name, ack_policy="all", **(push if flow_control else {}))
    after = js.consumer_info(name, "C")
    assert (after["delivered"], after["ack_floor"]) == ((3, 3), info["ack_floor"])
    assert after["num_ack_pending"] == info["num_ack_pending"]


def test_what_is_pending_below_a_later_delivery_is_remembered(js: NativeJs, name: str) -> None:
    """Ack-all of message 2, which is the fifth delivery: message 3, the third delivery, stays pending."""
    setup(js, name, 3, ack_policy="all", ack_wait=SECOND // 5)
    with js.peer() as peer:
        pull(peer, name, 3)
        second = pull(peer, name, 3)[1]
        assert second.ack[:3] == (2, 2, 5)
        peer.request(second.reply)
    again(js, name, ack_policy="all", ack_wait=SECOND // 5)
    with js.peer() as peer:
        assert pull(peer, name)[0].ack[:2] == (3, 3)


def test_redeliveries_are_remembered(js: NativeJs, name: str) -> None:
    setup(js, name, 2, ack_wait=SECOND // 5)
    with js.peer() as peer:
        pull(peer, name, 2)
        assert [each.ack[0] for each in pull(peer, name, 2)] == [2, 2]
        again(js, name, ack_wait=SECOND // 5)
        assert js.consumer_info(name, "C")["num_redelivered"] == 2
        assert [each.ack[:3] for each in pull(peer, name, 2)] == [(3, 1, 5), (3, 2, 6)]


def test_a_stream_that_has_lost_its_end(js: NativeJs, name: str) -> None:
    """A consumer whose state is ahead of the stream waits for no lost message, and misses no new one."""
    setup(js, name, 5)
    with js.peer() as peer:
        messages = pull(peer, name, 5)
        for message in messages[:2]:
            peer.request(message.reply)
        consumer = js.consumers[name, "C"]
        state = js.call(lambda _: consumer.state())
        js.create_stream(f"{name}x", subjects=[f"{name}x"])
        js.publish(*[f"{name}x"] * 3)
        js.create_consumer(f"{name}x", "C", state=state, ack_policy="explicit", durable_name="C")
        info = js.consumer_info(f"{name}x", "C")
        assert (info["delivered"], info["ack_floor"], info["num_ack_pending"]) == ((3, 3), (2, 2), 1)
        js.publish(f"{name}x")
        assert pull(peer, f"{name}x")[0].ack == (1, 4, 4, 0)


@pytest.mark.parametrize("state", [b"", b"\x16", b"\x16\x02", b"\x16\x03\x00\x00\x00\x00\x00", b"x" * 100])
def test_a_state_that_is_none(js: NativeJs, name: str, state: bytes) -> None:
    js.create_stream(name)
    with pytest.raises(ValueError, match="cannot be read"):
        js.create_consumer(name, "C", state=state, ack_policy="explicit")


def dirty(js: NativeJs, name: str) -> int:
    """Count the notices that a state needs writing."""
    js.call(lambda _: None)  # the loop has handled all earlier events
    return sum(what == ConsumerEvent.CONSUMER_DIRTY and of.stream.name == name for of, what, _ in js.notices)  # type: ignore[attr-defined]


def test_the_control_plane_is_told_of_changes_once(js: NativeJs, name: str, tmp_path: Path) -> None:
    js.directory = tmp_path
    setup(js, name, 3, storage="file")
    js.directory = None
    consumer = js.consumers[name, "C"]
    assert dirty(js, name) == 0
    with js.peer() as peer:
        messages = pull(peer, name, 3)
        assert consumer.is_dirty
        until(lambda: dirty(js, name) == 1)
        js.call(lambda _: consumer.state())
        assert not consumer.is_dirty
        peer.request(messages[0].reply)
        until(lambda: dirty(js, name) == 2)


def test_in_memory_nothing_is_to_be_written(js: NativeJs, name: str) -> None:
    setup(js, name, 3)
    with js.peer() as peer:
        pull(peer, name, 3)
    assert dirty(js, name) == 0
