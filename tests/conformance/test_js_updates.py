"""Updates of a stream that remove messages: consumers, the account's usage and retention follow at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.caller import Caller
from support.launch import Launch
from support.servers import until

pytestmark = pytest.mark.timeout(120)

CONFIG = """
server_name: srv
jetstream { store_dir: js }
accounts { A { jetstream: { max_file: 100K, max_mem: 100K }, users: [{user: a, password: pw}] } }
no_auth_user: a
"""
FILTERS = {
    "all": {},
    "two": {"filter_subjects": ["s.0", "s.1"]},
    "one": {"filter_subject": "s.2"},
}
LIMITS: list[dict[str, int]] = [{"max_msgs_per_subject": 1}, {"max_msgs": 3}, {"max_bytes": 150}]


@pytest.fixture(scope="module")
def caller(launch_shared: Launch) -> Iterator[Caller]:
    with Caller(launch_shared(config=CONFIG)) as caller:
        yield caller


def ask(caller: Caller, subject: str, body: Any = b"") -> Any:
    answer = caller.request(f"$JS.API.{subject}", body).json
    assert "error" not in answer, answer
    return answer


@pytest.fixture
def stream(caller: Caller, storage: str) -> Iterator[dict[str, Any]]:
    """A stream S with twelve messages of three subjects, and three consumers."""
    config = {"name": "S", "subjects": ["s.>"], "storage": storage}
    # nats-server may still be removing the files of the S before.
    until(lambda: "error" not in caller.request("$JS.API.STREAM.CREATE.S", config).json)
    for n in range(12):
        assert "seq" in caller.request(f"s.{n % 3}", b"x" * 10).json
    for name, filters in FILTERS.items():
        consumer = {"durable_name": name, "ack_policy": "explicit", "max_ack_pending": 2} | filters
        consumer["ack_wait"] = 3600 * 10**9
        ask(caller, f"CONSUMER.DURABLE.CREATE.S.{name}", {"stream_name": "S", "config": consumer})
    yield config
    ask(caller, "STREAM.DELETE.S")


def waiting(caller: Caller) -> dict[str, int]:
    """Count the stream's messages by consumer, as their filters select them."""
    subjects = ask(caller, "STREAM.INFO.S", {"subjects_filter": ">"})["state"]["subjects"]
    return {
        "all": sum(subjects.values()),
        "two": subjects.get("s.0", 0) + subjects.get("s.1", 0),
        "one": subjects.get("s.2", 0),
    }


def fetch(caller: Caller, name: str, count: int) -> int:
    """Return the number of messages that a request without a wait gets."""
    body = json.dumps({"batch": count, "no_wait": True}).encode()
    inbox = caller.ask(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", body)
    found = 0
    while found < count and caller.next().subject != inbox:  # a status ends it
        found += 1
    return found


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("limits", LIMITS, ids=[next(iter(each)) for each in LIMITS])
def test_consumers_count_what_lower_limits_leave(
    caller: Caller, stream: dict[str, Any], limits: dict[str, int]
) -> None:
    ask(caller, "STREAM.UPDATE.S", stream | limits)
    expected = waiting(caller)
    assert sum(expected.values()) < 24
    for name, count in expected.items():
        until(lambda name=name, count=count: info(caller, name)["num_pending"] == count)
        assert fetch(caller, name, 2) == min(count, 2)
    usage = ask(caller, "INFO")
    assert usage["storage"] + usage["memory"] == ask(caller, "STREAM.INFO.S")["state"]["bytes"]


def info(caller: Caller, name: str) -> Any:
    return ask(caller, f"CONSUMER.INFO.S.{name}")


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_removed_messages_are_no_longer_pending(caller: Caller, stream: dict[str, Any]) -> None:
    """A consumer whose pending messages are all gone delivers again, before any of them is acknowledged."""
    for name in FILTERS:
        assert fetch(caller, name, 2) == 2
    ask(caller, "STREAM.UPDATE.S", stream | {"max_msgs": 3})
    for name in FILTERS:
        until(lambda name=name: info(caller, name)["num_ack_pending"] == 0)
    assert fetch(caller, "all", 2) == 2


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_stream_that_turns_to_interest_drops_the_acknowledged(
    caller: Caller, stream: dict[str, Any]
) -> None:
    ask(caller, "CONSUMER.DELETE.S.all")
    ask(caller, "CONSUMER.DELETE.S.two")
    caller.ask("$JS.API.CONSUMER.MSG.NEXT.S.one", b"1")
    caller.request(caller.next().reply, b"+ACK")
    ask(caller, "STREAM.UPDATE.S", stream | {"retention": "interest"})
    until(lambda: waiting(caller) == {"all": 11, "two": 8, "one": 3})


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_without_a_consumer_there_is_no_interest(caller: Caller, stream: dict[str, Any]) -> None:
    for name in FILTERS:
        ask(caller, f"CONSUMER.DELETE.S.{name}")
    ask(caller, "STREAM.UPDATE.S", stream | {"retention": "interest"})
    until(lambda: ask(caller, "STREAM.INFO.S")["state"]["messages"] == 0)
