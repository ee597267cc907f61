"""JetStream's advisories and metrics beside the reference's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from support.caller import Caller
from support.jetstream import Asker, comparable
from support.launch import Launch
from support.servers import REFERENCE, Kind

pytestmark = pytest.mark.timeout(60)

CONFIG = "server_name: srv, jetstream { store_dir: js, domain: hub }"
EVENTS = "$JS.EVENT."
OF_THE_CLIENT = frozenset(("rtt", "start", "id", "ack_time"))


class Listener:
    """A client that subscribes to all JetStream events of its account."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        caller.subscribe(EVENTS + ">")

    def take(self, count: int) -> list[Any]:
        """Return the next `count` events, sorted by subject."""
        found = []
        while len(found) < count:
            message = self.caller.next()
            if not message.subject.startswith(EVENTS):  # an answer to a request
                continue
            event = message.json
            if "response" in event:
                event["response"] = comparable(json.loads(event["response"]))
            for name in OF_THE_CLIENT & event.keys():
                event[name] = type(event[name]).__name__
            for name in OF_THE_CLIENT & event.get("client", {}).keys():
                event["client"][name] = type(event["client"][name]).__name__
            found.append((message.subject, comparable(event)))
        return sorted(found, key=lambda each: each[0])


@pytest.fixture
def both(kind: Kind, launch: Launch) -> Iterator[tuple[Asker, list[Listener]]]:
    with ExitStack() as stack:
        servers = [launch(config=CONFIG, kind=REFERENCE)]
        if not kind.is_reference:
            servers.append(launch(config=CONFIG))
        asker = Asker(*(stack.enter_context(Caller(server)) for server in servers))
        yield asker, [Listener(stack.enter_context(Caller(server))) for server in servers]


def test_what_happens_to_streams_and_consumers(kind: Kind, both: tuple[Asker, list[Listener]]) -> None:
    asker, listeners = both

    def told(*subjects: str) -> None:
        first, *others = [listener.take(len(subjects)) for listener in listeners]
        assert [subject for subject, _ in first] == [EVENTS + subject for subject in subjects]
        for other in others:
            assert other == first

    api = asker.api
    api("INFO")
    told("ADVISORY.API")
    config = {"name": "S", "subjects": ["s.>"], "storage": "memory"}
    api("STREAM.CREATE.S", config)
    told("ADVISORY.API", "ADVISORY.STREAM.CREATED.S")
    api("STREAM.UPDATE.S", config | {"max_msgs": 100})
    told("ADVISORY.API", "ADVISORY.STREAM.UPDATED.S")
    api("STREAM.UPDATE.S", config | {"max_age": -1})
    told("ADVISORY.API")
    for number in range(3):
        asker.ask(f"s.{number}", b"hello")
    consumer = {"durable_name": "C", "name": "C", "ack_policy": "explicit", "sample_freq": "100"}
    api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": consumer})
    told("ADVISORY.API", "ADVISORY.CONSUMER.CREATED.S.C")
    api("CONSUMER.PAUSE.S.C", {"pause_until": "2100-01-01T00:00:00Z"})
    told("ADVISORY.API", "ADVISORY.CONSUMER.PAUSE.S.C")
    api("CONSUMER.PAUSE.S.C")
    told("ADVISORY.API", "ADVISORY.CONSUMER.PAUSE.S.C")
    for ack, event in (
        (b"+ACK", "METRIC.CONSUMER.ACK.S.C"),
        (b"+TERM because", "ADVISORY.CONSUMER.MSG_TERMINATED.S.C"),
        (b"-NAK", "ADVISORY.CONSUMER.MSG_NAKED.S.C"),
    ):
        for caller in asker.callers:
            caller.ask("$JS.API.CONSUMER.MSG.NEXT.S.C", b"1")
            caller.publish(caller.next().reply, ack)
        told(event)
    api("CONSUMER.DELETE.S.C")
    told("ADVISORY.API", "ADVISORY.CONSUMER.DELETED.S.C")
    api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {"name": "C"}})
    told("ADVISORY.API", "ADVISORY.CONSUMER.CREATED.S.C")
    api("STREAM.DELETE.S")
    if not kind.is_reference:
        del listeners[0]  # the reference's stream may end before it sends its advisories
        told("ADVISORY.API", "ADVISORY.CONSUMER.DELETED.S.C", "ADVISORY.STREAM.DELETED.S")
