"""Push consumers: delivery subjects, heartbeats, flow control; where consumers begin."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from support.js import Js
from support.servers import until

from gnats.go.text import SECOND

pytestmark = pytest.mark.timeout(60)


def test_messages_come_as_they_are_stored(js: Js, name: str) -> None:
    js.create_stream(name, subjects=[f"{name}.>"])
    js.publish(f"{name}.a")
    with js.peer() as peer:
        peer.sub(f"to.{name}")
        js.create_consumer(name, "C", ack_policy="none", deliver_subject=f"to.{name}")
        message = peer.msg()
        assert (message.subject, message.ack) == (f"{name}.a", (1, 1, 1, 0))
        js.publish(f"{name}.b")
        assert peer.msg().ack == (1, 2, 2, 0)
        assert js.consumer_info(name, "C")["push_bound"] is True


def test_it_waits_for_somebody_to_listen(js: Js, name: str) -> None:
    js.create_stream(name, subjects=[f"{name}.>"])
    js.create_consumer(name, "C", ack_policy="explicit", durable_name="C", deliver_subject=f"to.{name}")
    js.publish(*[f"{name}.a"] * 3)
    assert js.consumer_info(name, "C")["push_bound"] is False
    with js.peer() as peer:
        sid = peer.sub(f"to.{name}")
        assert [each.ack[1] for each in peer.msgs(3)] == [1, 2, 3]
        peer.unsub(sid)
        js.publish(f"{name}.a")
        until(lambda: not js.consumer_info(name, "C")["push_bound"])
        info = js.consumer_info(name, "C")
        assert (info["push_bound"], info["num_pending"], info["num_ack_pending"]) == (False, 1, 3)
        peer.sub(f"to.{name}")
        assert peer.msg().ack[1] == 4


def test_a_queue_group_shares(js: Js, name: str) -> None:
    js.create_stream(name, subjects=[f"{name}.>"])
    js.create_consumer(
        name, "C", ack_policy="none", durable_name="C", deliver_subject=f"to.{name}", deliver_group="g"
    )
    js.publish(*[f"{name}.a"] * 20)
    with js.peer() as alone, js.peer() as peer:
        alone.sub(f"to.{name}")
        assert alone.nothing()
        assert js.consumer_info(name, "C")["push_bound"] is False
        peer.sub(f"to.{name}", "g")
        assert [each.ack[1] for each in peer.msgs(20)] == list(range(1, 21))


def test_idle_heartbeats(js: Js, name: str) -> None:
    js.create_stream(name, subjects=[f"{name}.>"])
    with js.peer() as peer:
        peer.sub(f"to.{name}")
        js.create_consumer(
            name, "C", ack_policy="none", deliver_subject=f"to.{name}", idle_heartbeat=SECOND // 10
        )
        beat = peer.msg()
        assert (beat.subject, beat.status) == (f"to.{name}", "100 Idle Heartbeat")
        assert beat.headers == {"Nats-Last-Consumer": "0", "Nats-Last-Stream": "0"}
        js.publish(f"{name}.a", f"{name}.b")
        seqs: list[int] = []
        while len(seqs) < 2:
            message = peer.msg()
            if not message.status:
                seqs.append(message.ack[1])
        beat = peer.msg()
        assert seqs == [1, 2]
        assert beat.status == "100 Idle Heartbeat"
        assert beat.headers == {"Nats-Last-Consumer": "2", "Nats-Last-Stream": "2"}


def test_flow_control(js: Js, name: str) -> None:
    """The window is 2 MiB; a request comes at half of it, stalled heartbeats until it is answered."""
    js.create_stream(name, subjects=[f"{name}.>"])
    js.publish(*[f"{name}.a"] * 60, data=b"x" * 100_000)
    with js.peer() as peer:
        peer.sub(f"to.{name}")
        js.create_consumer(
            name,
            "C",
            ack_policy="none",
            deliver_subject=f"to.{name}",
            flow_control=True,
            idle_heartbeat=SECOND // 5,
        )
        got = 0
        request = None
        while True:
            message = peer.msg()
            if message.status == "100 FlowControl Request":
                assert request is None
                request = message.reply
                assert request.startswith(f"$JS.FC.{name}.C.")
                assert got == 11  # the first message over half the window
            elif "Nats-Consumer-Stalled" in message.headers:
                break
            elif not message.status:  # a heartbeat may come on a slow machine
                got += 1
        assert message.headers["Nats-Consumer-Stalled"] == request
        assert got == 21  # the first message over the window
        assert request
        peer.pub("$JS.FC.wrong.C.abcd")
        peer.pub(request)
        while got < 60:
            message = peer.msg()
            if message.status == "100 FlowControl Request":
                peer.pub(message.reply)
            elif not message.status:
                got += 1
    assert js.consumer_info(name, "C")["delivered"] == (60, 60)


@pytest.mark.parametrize(
    ("config", "seqs"),
    [
        ({"deliver_policy": "all"}, [1, 2, 3, 4, 5, 6]),
        ({"deliver_policy": "last"}, [6]),
        ({"deliver_policy": "last", "filter_subject": "N.a"}, [5]),
        ({"deliver_policy": "new"}, []),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 4}, [4, 5, 6]),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 4, "filter_subject": "N.a"}, [5]),
        ({"deliver_policy": "last_per_subject", "filter_subject": "N.*"}, [3, 5, 6]),
        ({"deliver_policy": "last_per_subject", "filter_subjects": ["N.a", "N.b"]}, [5, 6]),
        ({"filter_subjects": ["N.a", "N.c"]}, [1, 3, 5]),
        ({"deliver_policy": "by_start_time", "opt_start_time": "2000-01-01T00:00:00Z"}, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_where_it_begins(js: Js, name: str, config: dict[str, object], seqs: list[int]) -> None:
    def named(value: object) -> object:
        if isinstance(value, list):
            return [named(each) for each in value]
        return value.replace("N.", f"{name}.") if isinstance(value, str) and value.startswith("N.") else value

    config = {key: named(value) for key, value in config.items()}
    js.create_stream(name, subjects=[f"{name}.>"])
    js.publish(*[f"{name}.{each}" for each in "abcbab"])
    js.create_consumer(name, "C", ack_policy="explicit", **config)
    info = js.consumer_info(name, "C")
    assert info["num_pending"] == len(seqs)
    js.publish(*[f"{name}.{each}" for each in "abc"])
    wanted = str(config.get("filter_subject", config.get("filter_subjects", f"{name}.*")))
    more = [seq for seq, each in enumerate("abc", 7) if f"{name}.{each}" in wanted or "*" in wanted]
    with js.peer() as peer:
        inbox = peer.inbox()
        peer.pub(f"$JS.API.CONSUMER.MSG.NEXT.{name}.C", b'{"batch":100,"no_wait":true}', inbox)
        got = []
        while not (message := peer.msg()).status:
            got.append(message.ack)
    assert [each[1] for each in got] == seqs + more
    assert [each[2] for each in got] == list(range(1, len(got) + 1))
    assert [each[3] for each in got] == list(range(len(got) - 1, -1, -1))


def test_it_begins_at_a_time(js: Js, name: str) -> None:
    js.create_stream(name, subjects=[f"{name}.>"])
    js.publish(f"{name}.a", f"{name}.b")
    time.sleep(0.05)  # so that the messages' times differ
    start = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    time.sleep(0.05)
    js.publish(f"{name}.a", f"{name}.b")
    js.create_consumer(name, "C", ack_policy="explicit", deliver_policy="by_start_time", opt_start_time=start)
    with js.peer() as peer:
        assert peer.request(f"$JS.API.CONSUMER.MSG.NEXT.{name}.C").ack == (1, 3, 1, 1)


def test_a_reset(js: Js, name: str) -> None:
    js.create_stream(name, subjects=[f"{name}.>"])
    js.create_consumer(name, "C", ack_policy="explicit")
    js.publish(*[f"{name}.a"] * 5)
    with js.peer() as peer:
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{name}.C"
        first = peer.request(subject)
        peer.request(first.reply)
        peer.request(subject)
        peer.request(subject)
        assert js.reset(name, "C") == 2
        info = js.consumer_info(name, "C")
        assert (info["delivered"], info["ack_floor"], info["num_pending"]) == ((0, 1), (0, 1), 4)
        assert peer.request(subject).ack == (1, 2, 1, 3)
        assert js.reset(name, "C", 4) == 4
        assert peer.request(subject).ack == (1, 4, 1, 1)


def test_a_new_deliver_subject(js: Js, name: str) -> None:
    js.create_stream(name, subjects=[f"{name}.>"])
    config = {"durable_name": "C", "ack_policy": "explicit"}
    with js.peer() as peer:
        sid = peer.sub(f"to.{name}")
        peer.sub(f"other.{name}")
        js.create_consumer(name, "C", **config, deliver_subject=f"to.{name}")
        js.publish(f"{name}.a")
        assert peer.msg().sid == "1"
        peer.unsub(sid)
        js.update_consumer(name, "C", **config, deliver_subject=f"other.{name}")
        message = peer.msg()
        assert (message.sid, message.ack) == ("2", (2, 1, 2, 0))


def test_other_filters(js: Js, name: str) -> None:
    js.create_stream(name, subjects=[f"{name}.>"])
    js.create_consumer(name, "C", durable_name="C", ack_policy="explicit", filter_subject=f"{name}.a")
    js.publish(*[f"{name}.{each}" for each in "abab"])
    with js.peer() as peer:
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{name}.C"
        assert peer.request(subject).ack == (1, 1, 1, 1)
        js.update_consumer(name, "C", durable_name="C", ack_policy="explicit", filter_subject=f"{name}.b")
        assert js.consumer_info(name, "C")["num_pending"] == 2
        assert peer.request(subject).ack == (1, 2, 2, 1)
