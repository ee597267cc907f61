"""Counter streams that add up the counters of their sources, as the reference's do."""

from __future__ import annotations

import re
import time
from base64 import b64decode
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.caller import Caller
from support.jetstream import API
from support.launch import Launch
from support.servers import Server
from support.wire import header

pytestmark = pytest.mark.timeout(120)

_names = count(1)
Line = tuple[str, list[str], str]
"""Subject, header lines, payload."""


class Counters:
    """Counter streams of one test, with unique names and subjects."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.prefix = f"C{next(_names)}"
        self._watches: dict[str, str] = {}

    def create(self, name: str, action: str = "CREATE", **members: Any) -> Any:
        config = {"allow_msg_counter": True, "subjects": [f"{name.lower()}.>"], **members}
        config["subjects"] = [f"{self.prefix}.{subject}" for subject in config["subjects"]]
        full = f"{self.prefix}{name}"
        answer = self.caller.request(f"{API}STREAM.{action}.{full}", {"name": full, **config}).json
        assert "error" not in answer, answer
        if full not in self._watches:
            self._watches[full] = f"watch.{full}.{time.monotonic_ns()}"
            sid = self.caller.subscribe(self._watches[full])
            consumer = {"deliver_subject": self._watches[full], "ack_policy": "none"}
            self.caller.request(f"{API}CONSUMER.CREATE.{full}", {"stream_name": full, "config": consumer})
            self._watches[full] = sid
        return answer

    def source(self, name: str, destination: str = "", subject: str = "*") -> dict[str, Any]:
        """Make the configuration of a source; `destination` is the one subject to add all its counters to."""
        made: dict[str, Any] = {"name": f"{self.prefix}{name}"}
        if destination:
            source = f"{self.prefix}.{name.lower()}.{subject}"
            made["subject_transforms"] = [{"src": source, "dest": f"{self.prefix}.{destination}"}]
        return made

    def add(self, subject: str, amount: str, *lines: str) -> Any:
        return self.caller.request(
            f"{self.prefix}.{subject}", b"", header(f"Nats-Incr: {amount}", *lines)
        ).json

    def wait(self, name: str, messages: int) -> list[Line]:
        """Wait for the next `messages` messages of a stream; return them."""
        sid = self._watches[f"{self.prefix}{name}"]
        found, others = [], []
        while len(found) < messages:
            message = self.caller.next()
            (found if message.sid == sid else others).append(message)
        self.caller._waiting[:0] = others
        return [self.shown(each.subject, each.header, each.payload) for each in found]

    def shown(self, subject: str, block: bytes, payload: bytes) -> Line:
        text = re.sub(rb"(Nats-Stream-Source: (?:[^ ]+ ){5})\w{8}\r", rb"\1identity\r", block).decode()
        lines = text.replace(self.prefix, "C").split("\r\n")[1:-2]
        return subject.replace(self.prefix, "C"), lines, payload.decode()

    def get(self, name: str, seq: int) -> Line:
        message = self.caller.request(f"{API}STREAM.MSG.GET.{self.prefix}{name}", {"seq": seq}).json[
            "message"
        ]
        return self.shown(
            message["subject"], b64decode(message.get("hdrs", "")), b64decode(message.get("data", ""))
        )


@pytest.fixture(scope="module")
def server(launch_shared: Launch, tmp_path_factory: pytest.TempPathFactory) -> Server:
    directory = tmp_path_factory.mktemp("counters")
    return launch_shared(config=f"jetstream {{ store_dir: '{directory}' }}")


@pytest.fixture
def counters(server: Server) -> Iterator[Counters]:
    with Caller(server) as caller:
        yield Counters(caller)


def line(sources: str, increment: str, origin: str) -> list[str]:
    return [f"Nats-Incr: {increment}", f"Nats-Stream-Source: {origin}", f"Nats-Counter-Sources: {sources}"]


def test_a_counter_is_the_sum_of_those_of_its_sources(counters: Counters) -> None:
    counters.create("A")
    counters.create("B")
    counters.create(
        "SUM", sources=[counters.source("A", "sum"), counters.source("B", "sum")], subjects=["sum"]
    )
    total = []
    for subject, amount in (("a.x", "1"), ("b.y", "+20"), ("a.x", "-3"), ("a.z", "100")):
        counters.add(subject, amount)
        total += counters.wait("SUM", 1)
    a, b = "CA {} C.a.* C.sum C.a.{} identity", "CB {} C.b.* C.sum C.b.{} identity"
    assert total == [
        ("C.sum", line('{"CA":{"C.a.x":"1"}}', "1", a.format(1, "x")), '{"val":"1"}'),
        ("C.sum", line('{"CA":{"C.a.x":"1"},"CB":{"C.b.y":"20"}}', "20", b.format(1, "y")), '{"val":"21"}'),
        ("C.sum", line('{"CA":{"C.a.x":"-2"},"CB":{"C.b.y":"20"}}', "-3", a.format(2, "x")), '{"val":"18"}'),
        (
            "C.sum",
            line('{"CA":{"C.a.x":"-2","C.a.z":"100"},"CB":{"C.b.y":"20"}}', "100", a.format(3, "z")),
            '{"val":"118"}',
        ),
    ]
    # A message published to the stream itself counts too, and keeps the sums of the sources.
    assert counters.add("sum", "5", "A: b")["val"] == "123"
    kept = 'Nats-Counter-Sources: {"CA":{"C.a.x":"-2","C.a.z":"100"},"CB":{"C.b.y":"20"}}'
    assert counters.wait("SUM", 1) == [("C.sum", ["Nats-Incr: 5", "A: b", kept], '{"val":"123"}')]
    counters.add("b.y", "2")
    (last,) = counters.wait("SUM", 1)
    assert last[1][-1] == kept.replace('"20"', '"22"')
    assert last[2] == '{"val":"125"}'


def test_what_an_origin_does_not_have_any_more_counts(counters: Counters) -> None:
    counters.create("A", max_msgs_per_subject=1)
    for _ in range(5):
        counters.add("a.x", "10")
    counters.create("SUM", sources=[counters.source("A")], subjects=["own"])
    origin = "CA 5 > > C.a.x identity"
    assert counters.wait("SUM", 1) == [("C.a.x", line('{"CA":{"C.a.x":"50"}}', "50", origin), '{"val":"50"}')]


def test_an_origin_that_begins_anew_takes_back_what_it_had(counters: Counters) -> None:
    counters.create("A")
    counters.create("SUM", sources=[counters.source("A", "sum")], subjects=["sum"])
    counters.add("sum", "1000")
    counters.add("a.x", "10")
    counters.wait("SUM", 2)
    counters.caller.request(f"{API}STREAM.PURGE.{counters.prefix}A", {})
    counters.add("a.x", "3")
    (last,) = counters.wait("SUM", 1)
    assert last[1][0] == "Nats-Incr: -7"
    assert last[2] == '{"val":"1003"}'


def test_sums_of_sums(counters: Counters) -> None:
    counters.create("A")
    counters.create("MID", sources=[counters.source("A", "mid.x")], subjects=["mid.>"])
    counters.create("TOP", sources=[counters.source("MID", "top")], subjects=["top"])
    counters.add("a.1", "7")
    counters.add("a.2", "8")
    counters.wait("MID", 2)
    counters.add("mid.x", "100")
    last = counters.wait("TOP", 3)[-1]
    assert last[2] == '{"val":"115"}'
    # Each level keeps the sums of its own sources only.
    assert last[1] == [
        "Nats-Incr: 100",
        'Nats-Counter-Sources: {"CMID":{"C.mid.x":"115"}}',
        "Nats-Stream-Source: CMID 3 C.mid.* C.top C.mid.x identity",
    ]


def test_a_source_that_left_and_came_back_is_not_counted_twice(counters: Counters) -> None:
    counters.create("A")
    with_source = {"sources": [counters.source("A", "sum")], "subjects": ["sum"]}
    counters.create("SUM", **with_source)
    counters.add("a.x", "10")
    counters.wait("SUM", 1)
    counters.create("SUM", action="UPDATE", subjects=["sum"])
    counters.add("a.x", "5")
    counters.add("sum", "1")
    assert counters.wait("SUM", 1)[0][2] == '{"val":"11"}'
    counters.create("SUM", action="UPDATE", **with_source)
    found = counters.wait("SUM", 1)
    while found[-1][2] != '{"val":"16"}':  # nats-server may store the first message again
        assert found[-1][1][0] in ("Nats-Incr: 0", "Nats-Incr: -5"), found
        found += counters.wait("SUM", 1)


def test_without_counting_messages_are_stored_as_they_are(counters: Counters) -> None:
    counters.create("A")
    counters.create("COPY", sources=[counters.source("A")], subjects=["own"], allow_msg_counter=False)
    counters.create("MIRROR", mirror={"name": f"{counters.prefix}A"}, subjects=[], allow_msg_counter=False)
    counters.add("a.x", "+1", "A: b")
    (copy,) = counters.wait("COPY", 1)
    assert copy == (
        "C.a.x",
        ["Nats-Incr: +1", "A: b", "Nats-Stream-Source: CA 1 > > C.a.x identity"],
        '{"val":"1"}',
    )
    assert counters.wait("MIRROR", 1) == [("C.a.x", ["Nats-Incr: +1", "A: b"], '{"val":"1"}')]


@pytest.mark.parametrize(
    ("published", "kept"),
    [
        ('{"CA":null}', '{"CA":{"C.a.x":"5"}}'),
        ("null", '{"CA":{"C.a.x":"5"}}'),
        ('{"CA":{}}', '{"CA":{"C.a.x":"5"}}'),
        (
            '{"z":{"b":"2","a":"1"},"k":null,"e":{}}',
            '{"CA":{"C.a.x":"5"},"e":{},"k":null,"z":{"a":"1","b":"2"}}',
        ),
        ('{"CA":{"C.a.x":"3"}}', '{"CA":{"C.a.x":"5"}}'),
        ('{"CA":{"C.a.x":"3"},"CA":{"other":"9"}}', '{"CA":{"C.a.x":"5","other":"9"}}'),
        ('{"CA":{"C.a.x":"3","C.a.x":"4"}}', '{"CA":{"C.a.x":"5"}}'),
        ('{"CA":{"C.a.x":null}}', '{"CA":{"C.a.x":"5"}}'),
        ('{"CA":{"C.a.x":"x"}}', '{"CA":{"C.a.x":"5"}}'),
        ('{"\\u00e9<":{"\\n":"\\ud83d\\ude00"}}', '{"CA":{"C.a.x":"5"},"é\\u003c":{"\\n":"😀"}}'),
    ],
)  # fmt: skip
def test_sources_that_a_publisher_has_written(counters: Counters, published: str, kept: str) -> None:
    counters.create("A")
    counters.create("SUM", subjects=["sum"])
    text = published.replace('"CA"', f'"{counters.prefix}A"').replace("C.a.x", f"{counters.prefix}.a.x")
    answer = counters.add("sum", "100", f"Nats-Counter-Sources:  {text}", "A: b")
    assert answer["val"] == "100"
    counters.wait("SUM", 1)
    counters.add("a.x", "5")
    counters.create("SUM", action="UPDATE", subjects=["sum"], sources=[counters.source("A", "sum")])
    (last,) = counters.wait("SUM", 1)
    assert last[1][-1] == f"Nats-Counter-Sources: {kept}"
    before = 3 if '"3"' in published and "other" not in published else 0
    before = 4 if '"4"' in published else before
    assert last[2] == f'{{"val":"{105 - before}"}}'


def test_sources_are_written_where_they_were(counters: Counters) -> None:
    counters.create("SUM", subjects=["sum"])
    counters.add("sum", "1", 'Nats-Counter-Sources: {"z":{"b":"1"},"a":{}}')
    assert counters.add("sum", "1", "Nats-Counter-Sources:   x", "A: b")["val"] == "2"
    assert counters.add("sum", "1", "A: b")["val"] == "3"
    kept = 'Nats-Counter-Sources: {"a":{},"z":{"b":"1"}}'
    assert [each[1] for each in counters.wait("SUM", 3)] == [
        ["Nats-Incr: 1", 'Nats-Counter-Sources: {"z":{"b":"1"},"a":{}}'],
        ["Nats-Incr: 1", kept, "A: b"],
        ["Nats-Incr: 1", "A: b", kept],
    ]


@pytest.mark.parametrize(
    "text", ["x", "{", "[]", '{"a":1}', '{"a":{"b":1}}', '{"a":{"b":"1"}', '{"a":"b"}', '{"a":{}} x']
)
def test_sources_that_are_none_break_a_counter(counters: Counters, text: str) -> None:
    counters.create("SUM", subjects=["sum"])
    assert counters.add("sum", "1", f"Nats-Counter-Sources: {text}")["val"] == "1"
    assert counters.add("sum", "1")["error"]["err_code"] == 10172


def test_sums_go_on_after_a_restart(launch: Launch, tmp_path: Path) -> None:
    server = launch(config=f"jetstream {{ store_dir: '{tmp_path}' }}")
    with Caller(server) as caller:
        counters = Counters(caller)
        counters.create("A")
        counters.create("SUM", subjects=["sum"], sources=[counters.source("A", "sum")])
        counters.add("a.x", "10")
        counters.wait("SUM", 1)
    server.stop()
    server.start_again()
    with Caller(server) as caller:
        counters.caller = caller
        counters._watches.clear()
        counters.add("a.x", "5")
        counters.create("SUM", action="UPDATE", subjects=["sum"], sources=[counters.source("A", "sum")])
        assert counters.wait("SUM", 2)[-1][2] == '{"val":"15"}'
        assert counters.get("SUM", 2)[1][0] == "Nats-Incr: 5"
