"""Purges of messages that a consumer waits for acknowledgements of."""

from __future__ import annotations

from typing import Any

import pytest
from support.caller import Caller
from support.launch import Launch

pytestmark = pytest.mark.timeout(60)

HOUR = 3600 * 10**9


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_a_consumer_that_was_held_back_goes_on(launch: Launch, push: bool, storage: str) -> None:
    """Without anything pending, max_ack_pending holds back no longer."""
    server = launch(config="jetstream { store_dir: js }\nping_interval: '1h'")
    with Caller(server) as caller, Caller(server, inbox="_INBOX.consumer") as consumer:
        consumer.subscribe("to")
        stream = {"name": "S", "subjects": ["s.>"], "storage": storage}
        assert "error" not in caller.request("$JS.API.STREAM.CREATE.S", stream).json
        config: dict[str, Any] = {"durable_name": "D", "ack_policy": "explicit", "max_ack_pending": 1}
        config |= {"ack_wait": HOUR} | ({"deliver_subject": "to"} if push else {})
        asked = {"stream_name": "S", "config": config}
        assert "error" not in caller.request("$JS.API.CONSUMER.DURABLE.CREATE.S.D", asked).json
        for number in range(3):
            caller.request("s.x", b"%d" % number)
        if not push:
            consumer.publish("$JS.API.CONSUMER.MSG.NEXT.S.D", b'{"batch":10,"expires":60000000000}', "to")
        assert consumer.next().payload == b"0"
        assert caller.request("$JS.API.STREAM.PURGE.S").json["purged"] == 3
        caller.request("s.x", b"new")
        assert consumer.next().payload == b"new"
