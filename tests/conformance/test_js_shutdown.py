"""Pull requests are answered when the server stops."""

from __future__ import annotations

import json

import pytest
from support.caller import Caller, parse
from support.jetstream import API
from support.launch import Launch
from support.servers import Kind, until
from support.wire import Closed

pytestmark = pytest.mark.timeout(60)

CONFIG = "jetstream { store_dir: js }"


def waiting(caller: Caller, consumer: str) -> int:
    return int(caller.request(f"{API}CONSUMER.INFO.S.{consumer}").json["num_waiting"])


def test_pull_requests_end_when_the_server_stops(launch: Launch, kind: Kind) -> None:
    """With what they still had to get. The reference waits 50 ms for its answers to get out."""
    server = launch(config=CONFIG)
    with Caller(server) as caller:
        caller.request(f"{API}STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        for name, storage in (("D", {}), ("E", {"mem_storage": True})):
            config = {"durable_name": name, "ack_policy": "explicit"} | storage
            answer = caller.request(f"{API}CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
            assert "error" not in answer.json
        inboxes = [
            (caller.ask(f"{API}CONSUMER.MSG.NEXT.S.{name}", json.dumps(request).encode()), request)
            for name in "DE"
            for request in (
                {"batch": 3, "expires": 10**11},
                {"batch": 1, "max_bytes": 512, "expires": 10**11},
            )
        ]
        for name in "DE":  # the reference queues requests after the answer to a PING
            until(lambda name=name: waiting(caller, name) == 2)  # type: ignore[misc]
        server.stop()
        told = {}
        try:
            while True:
                op = caller.connection.read_op()
                if op.startswith(b"HMSG "):
                    message = parse(op)
                    assert not message.payload
                    told[message.subject] = message.header
        except Closed:
            pass
        expected = {
            inbox: (
                f"NATS/1.0 409 Server Shutdown\r\nNats-Pending-Messages: {request['batch']}\r\n"
                f"Nats-Pending-Bytes: {request.get('max_bytes', 0)}\r\n\r\n"
            ).encode()
            for inbox, request in inboxes
        }
        # On a slow machine 50 ms are too few.
        assert told == expected or (kind.is_reference and told.items() <= expected.items())
