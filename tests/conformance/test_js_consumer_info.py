"""CONSUMER.INFO of consumers that have delivered nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.caller import Caller
from support.servers import Server

pytestmark = pytest.mark.timeout(60)

# The stream has messages 2 to 5, with subjects S.1, S.2, S.0 and S.1. For each consumer: its configuration,
# its first sequence, and its number of pending messages.
STARTS: dict[str, tuple[dict[str, Any], int, int]] = {
    "all": ({}, 2, 4),
    "none": ({"ack_policy": "none"}, 2, 4),
    "filtered": ({"filter_subject": "S.2"}, 2, 1),
    "new": ({"deliver_policy": "new"}, 6, 0),
    "last": ({"deliver_policy": "last"}, 5, 1),
    "each": ({"deliver_policy": "last_per_subject", "filter_subject": "S.>"}, 3, 3),
    "third": ({"deliver_policy": "by_start_sequence", "opt_start_seq": 3}, 3, 3),
    "ninth": ({"deliver_policy": "by_start_sequence", "opt_start_seq": 9}, 9, 0),
    "pushed": ({"deliver_subject": "to.nobody"}, 2, 4),
    "volatile": ({"mem_storage": True}, 2, 4),
    "paused": ({"pause_until": "2090-01-01T00:00:00Z"}, 2, 4),
}
NOTHING = {"num_ack_pending": 0, "num_redelivered": 0, "num_waiting": 0}


def api(caller: Caller, subject: str, body: Any = b"") -> dict[str, Any]:
    answer: dict[str, Any] = caller.request(f"$JS.API.{subject}", body).json
    assert "error" not in answer, answer
    return answer


def check(info: dict[str, Any], start: int, pending: int) -> None:
    at = {"consumer_seq": 0, "stream_seq": start - 1}
    assert {name: info[name] for name in NOTHING} == NOTHING
    assert (info["delivered"], info["ack_floor"], info["num_pending"]) == (at, at, pending)
    assert info["ts"] >= info["created"]


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_new_consumer(launch: Callable[..., Server], tmp_path: Path, storage: str) -> None:
    server = launch("-js", "-sd", str(tmp_path / "js"))
    config = {"name": "S", "subjects": ["S.>"], "storage": storage, "max_msgs": 4}
    with Caller(server) as caller:
        api(caller, "STREAM.CREATE.S", config)
        api(caller, "STREAM.CREATE.E", config | {"name": "E", "subjects": ["E.>"]})
        for number in range(5):
            caller.request(f"S.{number % 3}", b"x")
        for name, (own, start, pending) in STARTS.items():
            config = {"durable_name": name, "ack_policy": "explicit", **own}
            made = api(caller, f"CONSUMER.DURABLE.CREATE.S.{name}", {"stream_name": "S", "config": config})
            check(made, start, pending)
            check(api(caller, f"CONSUMER.INFO.S.{name}"), start, pending)
        config = {"durable_name": "later", "ack_policy": "explicit", **STARTS["ninth"][0]}
        check(api(caller, "CONSUMER.DURABLE.CREATE.E.later", {"stream_name": "E", "config": config}), 9, 0)
    if storage == "memory":
        return
    server.stop()
    server.start_again()
    with Caller(server) as caller:
        check(api(caller, "CONSUMER.INFO.E.later"), 9, 0)
        for name, (own, start, pending) in STARTS.items():
            # After a restart nats-server lets "ninth" begin behind the last message.
            if not own.get("mem_storage") and not (server.kind.is_reference and name == "ninth"):
                check(api(caller, f"CONSUMER.INFO.S.{name}"), start, pending)
