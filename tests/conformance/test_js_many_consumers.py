"""Streams with so many consumers that an index finds the interested ones: delivery, overlap of filters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.caller import Caller, Message
from support.servers import Server, until

pytestmark = pytest.mark.timeout(60)
MANY = 30
NOT_UNIQUE, UNFILTERED, TOO_MANY = 10100, 10099, 10026


@pytest.fixture(scope="module")
def caller(
    launch_shared: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Caller]:
    with Caller(launch_shared("-js", "-sd", str(tmp_path_factory.mktemp("js")))) as caller:
        yield caller


def api(caller: Caller, subject: str, body: Any = b"") -> Any:
    return caller.request(f"$JS.API.{subject}", body).json


def stream(caller: Caller, name: str, **config: Any) -> None:
    made = api(caller, f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config})
    assert "error" not in made


def create(caller: Caller, stream: str, name: str, *filters: str, **config: Any) -> int:
    """Create a consumer; return the error code, 0 for none."""
    config = {"durable_name": name, "ack_policy": "explicit", "filter_subjects": list(filters), **config}
    body = {"stream_name": stream, "config": config}
    answer = api(caller, f"CONSUMER.DURABLE.CREATE.{stream}.{name}", body)
    return int(answer.get("error", {}).get("err_code", 0))


def pull(caller: Caller, stream: str, name: str) -> Message:
    caller.ask(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", b"1")
    return caller.next()


def pending(caller: Caller, stream: str) -> dict[str, int]:
    listed = api(caller, f"CONSUMER.LIST.{stream}")["consumers"]
    return {each["name"]: each["num_pending"] for each in listed if each["num_pending"]}


def wait_pending(caller: Caller, stream: str, expected: dict[str, int]) -> None:
    """Wait until the consumers of `stream` have these numbers of pending messages.

    nats-server acknowledges a message before its consumers know of it.
    """
    until(lambda: pending(caller, stream) == expected)


def test_each_gets_its_own(caller: Caller) -> None:
    stream(caller, "A")
    for number in range(MANY):
        assert create(caller, "A", f"c{number}", f"A.{number}", f"A.{number}.more.>") == 0
    assert create(caller, "A", "wild", "A.*.more.*") == 0
    assert create(caller, "A", "all") == 0
    for subject in ("A.7", "A.7.more.x", "A.7.more.x.y", "A.8.less", "A.nobody"):
        caller.request(subject, b"x")
    wait_pending(caller, "A", {"c7": 3, "wild": 1, "all": 5})
    assert api(caller, "STREAM.PURGE.A", {"filter": "A.7.more.x"})["purged"] == 1
    assert api(caller, "STREAM.MSG.DELETE.A", {"seq": 1})["success"]
    wait_pending(caller, "A", {"c7": 1, "all": 3})
    message = pull(caller, "A", "all")
    assert message.subject == "A.7.more.x.y"
    assert create(caller, "A", "c7", "A.nobody") == 0
    caller.request("A.7", b"x")
    caller.request("A.nobody", b"x")
    wait_pending(caller, "A", {"c7": 2, "all": 4})
    assert api(caller, "CONSUMER.DELETE.A.all")["success"]
    caller.request("A.nobody", b"x")
    wait_pending(caller, "A", {"c7": 3})


def test_filters_of_a_work_queue_are_apart(caller: Caller) -> None:
    stream(caller, "W", retention="workqueue")
    for number in range(MANY):
        assert create(caller, "W", f"c{number}", f"W.{number}.>") == 0
    assert create(caller, "W", "x") == UNFILTERED
    for filters in (("W.3.a",), ("W.new", "W.4.*"), ("W.*.z",), ("W.>",), ("*.5.a",)):
        assert create(caller, "W", "x", *filters) == NOT_UNIQUE
    assert create(caller, "W", "y", "W.other") == 0
    assert create(caller, "W", "c3", "W.3.b") == 0
    assert create(caller, "W", "z", "W.3.a") == 0
    assert create(caller, "W", "z", "W.4.b") == NOT_UNIQUE
    assert api(caller, "CONSUMER.DELETE.W.c4")["success"]
    assert create(caller, "W", "z", "W.4.b") == 0


def test_a_limit_counts_those_that_are_there(caller: Caller) -> None:
    stream(caller, "L", max_consumers=MANY)
    for number in range(MANY):
        assert create(caller, "L", f"c{number}") == 0
    assert create(caller, "L", "more") == TOO_MANY
    assert api(caller, "STREAM.INFO.L")["state"]["consumer_count"] == MANY
    assert api(caller, "CONSUMER.DELETE.L.c0")["success"]
    assert create(caller, "L", "more") == 0
    assert create(caller, "L", "c1") == 0
    assert create(caller, "L", "again") == TOO_MANY
    assert api(caller, "STREAM.INFO.L")["state"]["consumer_count"] == MANY


def test_a_message_of_interest_goes_when_its_last_consumer_has_it(caller: Caller) -> None:
    stream(caller, "I", retention="interest")
    for number in range(MANY):
        assert create(caller, "I", f"c{number}", f"I.{number}") == 0
    assert create(caller, "I", "all", "I.>") == 0
    for subject in ("I.1", "I.2"):
        caller.request(subject, b"x")
    assert api(caller, "CONSUMER.DELETE.I.c2")["success"]
    for name, left in (("all", 2), ("c1", 1), ("all", 0)):
        message = pull(caller, "I", name)
        caller.request(message.reply, b"+ACK")
        assert api(caller, "STREAM.INFO.I")["state"]["messages"] == left
    assert api(caller, "CONSUMER.DELETE.I.all")["success"]
    caller.request("I.2", b"x")
    assert api(caller, "STREAM.INFO.I")["state"]["messages"] == 0
