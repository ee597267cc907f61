"""The JetStream API in a cluster answers as nats-server's does: whatever is asked, wherever the stream is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.caller import Caller
from support.clusters import Cluster
from support.launch import launcher
from support.servers import REFERENCE, Kind, selected, until

from .conftest import require_all

pytestmark = pytest.mark.timeout(180)

CONFIG = """
accounts {
  $SYS: { users: [{ user: sys, password: pw }] }
  A: { jetstream: { max_streams: 5, max_consumers: 4, max_file: 10000 }, users: [{ user: a, password: pw }] }
}
"""
SIZE = 3
WITHIN = 5.0
"""Seconds after which a request counts as unanswered."""
TIME = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z")
ZERO = "0001-01-01T00:00:00Z"
FOREVER = "2100-01-01T00:00:00Z"


def stream(name: str, member: int, **more: Any) -> tuple[str, Any]:
    """Return the request for a stream of a member."""
    config = {"name": name, "subjects": [f"{name}.>"], "placement": {"tags": [f"n{member}"]}}
    return f"STREAM.CREATE.{name}", config | more


def consumer(of: str, name: str, action: str = "", **config: Any) -> tuple[str, Any]:
    config = {"ack_policy": "explicit", "inactive_threshold": 3600 * 10**9} | config
    body = {"stream_name": of, "config": config | ({"name": name} if name else {}), "action": action}
    return f"CONSUMER.CREATE.{of}.{name}".removesuffix("."), body


MADE = [
    *(stream(f"S{member}", member) for member in range(SIZE)),
    *(consumer(f"S{member}", "C", max_deliver=5) for member in range(SIZE)),
    consumer("S1", "D", durable_name="D", deliver_subject="to"),
    stream("WORK", 2, retention="workqueue", max_consumers=2, max_bytes=100, storage="memory"),
    consumer("WORK", "all", durable_name="all", filter_subject="WORK.a"),
]
"""Requests that make the streams and consumers, at all members."""
ASKED: list[tuple[str, Any]] = [
    ("INFO", None),
    *((f"STREAM.INFO.{name}", None) for name in ("S0", "S1", "S2", "WORK", "NONE")),
    *((f"CONSUMER.INFO.{name}.C", None) for name in ("S0", "S1", "S2", "WORK", "NONE")),
    ("STREAM.NAMES", None),
    ("STREAM.NAMES", {"subject": "S1.x"}),
    ("STREAM.NAMES", {"subject": "none"}),
    ("STREAM.NAMES", {"offset": 9}),
    ("STREAM.NAMES", {"offset": 2}),
    ("STREAM.NAMES", {"offset": "x"}),
    ("STREAM.LIST", None),
    ("STREAM.LIST", {"subject": "*.a"}),
    ("STREAM.LIST", {"subject": "none"}),
    ("STREAM.LIST", {"offset": 2}),
    ("STREAM.LIST", {"offset": 9}),
    *((f"CONSUMER.NAMES.{name}", None) for name in ("S0", "S1", "NONE")),
    ("CONSUMER.NAMES.S1", {"offset": 1}),
    ("CONSUMER.NAMES.S1", {"offset": 9}),
    *((f"CONSUMER.LIST.{name}", None) for name in ("S1", "S2", "WORK", "NONE")),
    ("CONSUMER.LIST.S1", {"offset": 1}),
    ("CONSUMER.LIST.S1", {"offset": 9}),
    stream("S1", 1, description="another"),
    stream("NEW", 0, subjects=["S2.x"]),
    stream("NEW", 0, placement={"tags": ["none"]}),
    stream("NEW", 0, placement={"tags": ["!all"]}),
    stream("NEW", 0, placement={"cluster": "none"}),
    stream("NEW", 0, max_bytes=20000, max_consumers=9),
    stream("NEW", 0, max_bytes=20000),
    stream("NEW", 0, sealed=True),
    stream("NEW", 0, mirror={"name": "S1"}),
    stream("NEW", 0, storage="none"),
    ("STREAM.CREATE.NEW", {"name": "OTHER"}),
    ("STREAM.CREATE.NEW", b"{"),
    stream("NEW", 0, subjects=["NEW"], max_bytes=200, duplicate_window=10**9, discard="new"),
    stream("SIXTH", 0),
    stream("SIXTH", 0, subjects=["S2.x"]),
    ("INFO", None),
    ("STREAM.UPDATE.NONE", {"name": "NONE"}),
    ("STREAM.UPDATE.S1", {"name": "S2"}),
    ("STREAM.UPDATE.S1", stream("S1", 1, storage="memory")[1]),
    ("STREAM.UPDATE.S1", stream("S1", 1, subjects=["S2.>"])[1]),
    ("STREAM.UPDATE.S1", stream("S1", 1, max_bytes=20000)[1]),
    ("STREAM.UPDATE.S1", stream("S1", 1, placement={"tags": ["none"]})[1]),
    ("STREAM.UPDATE.S1", stream("S1", 1, retention="workqueue")[1]),
    ("STREAM.UPDATE.S0", stream("S0", 0, consumer_limits={"inactive_threshold": 10**9})[1]),
    ("STREAM.UPDATE.S2", stream("S2", 2, subjects=["S2.>", "more.>"], max_msgs=5)[1]),
    ("STREAM.UPDATE.S2", stream("S2", 2, retention="interest")[1]),
    ("STREAM.DELETE.NONE", None),
    ("STREAM.DELETE.S1", {"a": 1}),
    ("STREAM.PURGE.S1", None),
    ("STREAM.PURGE.NONE", None),
    ("STREAM.MSG.GET.S2", {"seq": 1}),
    ("STREAM.MSG.GET.NONE", {"seq": 1}),
    ("STREAM.MSG.DELETE.S2", {"seq": 1}),
    ("STREAM.MSG.DELETE.NONE", {"seq": 1}),
    ("STREAM.LEADER.STEPDOWN.S2", None),
    ("STREAM.LEADER.STEPDOWN.NONE", None),
    ("STREAM.CANCEL_MOVE.S2", None),
    ("STREAM.CANCEL_MOVE.NONE", None),
    ("STREAM.PEER.REMOVE.NONE", {"peer": "s0"}),
    consumer("NONE", "C"),
    consumer("S1", "C", max_deliver=5),
    consumer("S1", "C", "create", max_deliver=5),
    consumer("S1", "C", "create", max_deliver=5, description="x"),
    consumer("S1", "C", ack_policy="none"),
    consumer("S1", "C", max_deliver=6, description="x"),
    consumer("S1", "E", "update"),
    consumer("S1", "E", "create"),
    consumer("S1", "F", "other"),
    consumer("S1", "F", filter_subject="none"),
    consumer("S1", "F", deliver_policy="last_per_subject"),
    consumer("S1", "F"),
    consumer("S1", "G"),
    consumer("S1", "ephemeral", durable_name="other"),
    ("CONSUMER.CREATE.S1.E", {"stream_name": "S2", "config": {}}),
    ("CONSUMER.DURABLE.CREATE.S0.X", {"stream_name": "S0", "config": {}}),
    ("CONSUMER.DURABLE.CREATE.S0.X", {"stream_name": "S0", "config": {"durable_name": "X"}}),
    ("CONSUMER.CREATE.S0", {"stream_name": "S0", "config": {"durable_name": "X"}}),
    consumer("WORK", "other", ack_policy="none"),
    consumer("WORK", "other"),
    consumer("WORK", "other", filter_subject="WORK.*"),
    consumer("WORK", "other", filter_subject="WORK.b"),
    consumer("WORK", "third", filter_subject="WORK.c"),
    ("CONSUMER.PAUSE.S1.C", {"pause_until": FOREVER}),
    ("CONSUMER.INFO.S1.D", None),
    ("CONSUMER.PAUSE.S1.C", None),
    ("CONSUMER.PAUSE.S1.NONE", None),
    ("CONSUMER.PAUSE.NONE.C", None),
    ("CONSUMER.UNPIN.S1.NONE", {"group": "g"}),
    ("CONSUMER.UNPIN.S1.C", {"group": "g"}),
    ("CONSUMER.LEADER.STEPDOWN.S1.NONE", None),
    ("CONSUMER.LEADER.STEPDOWN.NONE.C", None),
    ("CONSUMER.DELETE.S1.NONE", None),
    ("CONSUMER.DELETE.NONE.C", None),
    ("CONSUMER.DELETE.S1.C", {"a": 1}),
    ("CONSUMER.DELETE.S1.C", None),
    ("CONSUMER.DELETE.S1.C", None),
    ("CONSUMER.NAMES.S1", None),
    ("STREAM.DELETE.S1", None),
    ("STREAM.INFO.S1", None),
    ("STREAM.NAMES", None),
]


def normalized(value: Any) -> Any:
    """Return an answer without what differs from run to run: times, random names, counts of requests."""
    if isinstance(value, dict):
        found = {name: normalized(each) for name, each in value.items() if name != "pause_remaining"}
        if "api" in found:
            found["api"] = {"level": found["api"]["level"]}
        return found
    if isinstance(value, list):
        return [normalized(each) for each in value]
    if isinstance(value, str) and value not in (ZERO, FOREVER):
        return TIME.sub("a time", value)
    return value


Ask = Callable[[str, object], Any]


class Members:
    """A cluster with JetStream, each member with a tag."""

    def __init__(self, cluster: Cluster, kind: Kind) -> None:
        self.cluster = cluster
        self.kind = kind

    def ask(self, api: str, body: object = None, member: int = 0) -> Any:
        """Send a request; return the answer, None if there is none."""
        with Caller(self.cluster[member], "a") as caller:
            caller.connection.sock.settimeout(WITHIN)
            try:
                return json.loads(caller.request(f"$JS.API.{api}", body).payload)
            except TimeoutError:
                return None

    def sure(self, api: str, body: object = None, member: int = 0) -> Any:
        """Send a request until it is answered."""

        def answer() -> Any:
            found = self.ask(api, body, member)
            return found if found and found.get("error", {}).get("code") != 503 else None

        return until(answer, 60)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Kind], Members]]:
    """Start a cluster of a kind, with its streams and consumers."""
    launchers = []

    def run(kind: Kind) -> Members:
        require_all((kind,))
        directory = tmp_path_factory.mktemp("js")
        launchers.append(launcher(REFERENCE, directory))
        cluster = Cluster(
            launchers[-1].__enter__(),
            (kind,) * SIZE,
            config=lambda number: (
                f"jetstream {{ store_dir: '{directory / str(number)}' }}"
                f"\nserver_tags: [n{number}, all]\n{CONFIG}"
            ),
        )
        cluster.wait_mesh()
        members = Members(cluster, kind)
        assert "error" not in members.sure("INFO")
        for request in MADE:
            made = members.sure(*request)
            assert "error" not in made, (request, made)
        return members

    yield run
    for each in launchers:
        each.__exit__(None, None, None)


@pytest.fixture(scope="module")
def expected(running: Callable[[Kind], Members]) -> list[Any]:
    """The answers of nats-server."""
    members = running(REFERENCE)
    return [normalized(members.sure(*request, member=at % SIZE)) for at, request in enumerate(ASKED)]


@pytest.fixture(
    scope="module", params=[kind for kind in selected() if not kind.is_reference], ids=lambda kind: kind.name
)
def members(request: pytest.FixtureRequest, running: Callable[[Kind], Members]) -> Members:
    return running(request.param)


def test_each_request_has_the_answer_of_nats_server(members: Members, expected: list[Any]) -> None:
    different = []
    for at, (request, wanted) in enumerate(zip(ASKED, expected, strict=True)):
        found = normalized(members.sure(*request, member=at % SIZE))
        if found != wanted:
            different.append((request, wanted, found))
    assert not different, "\n".join(map(str, different))


def test_what_is_not_built_is_refused(members: Members) -> None:
    for api, body in [
        ("STREAM.UPDATE.S2", stream("S2", 0)[1]),
        ("STREAM.PEER.REMOVE.S2", {"peer": "s2"}),
        ("STREAM.RESTORE.NEW", {"config": {"name": "NEW"}, "state": {}}),
    ]:
        answer = members.ask(api, body)
        assert answer["error"]["err_code"] == 10036, (api, answer)
