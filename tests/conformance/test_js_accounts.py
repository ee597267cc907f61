"""JetStream of several accounts beside the reference: limits, domains, monitoring, the system account."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from support.caller import Caller
from support.jetstream import Asker, comparable
from support.launch import Launch
from support.servers import REFERENCE, Kind, Server

pytestmark = pytest.mark.timeout(60)

CONFIG = """
server_name: srv
http: "127.0.0.1:-1"
jetstream {
  store_dir: js, max_mem: 100M, max_file: 1G, domain: hub, unique_tag: " AZ "
  limits {
    max_ack_pending: 500, duplicate_window: "1m", max_request_batch: 50, max_ha_assets: 3
    default_max_consumers: 20
    batch { max_inflight_per_stream: 4, max_inflight_total: 5, max_msgs: 6, timeout: "7s" }
  }
}
accounts {
  A {
    jetstream {
      max_mem: 1M, max_store: 10M, max_streams: 2, max_consumers: 3
      disk_max_stream_bytes: 5000000, max_ack_pending: 400
    }
    users: [{user: a, password: pw}]
  }
  B { jetstream: enabled, users: [{user: b, password: pw}] }
  C { users: [{user: c, password: pw}] }
  D { jetstream { max_bytes_required: true }, users: [{user: d, password: pw}] }
  SYS { users: [{user: sys, password: pw}] }
}
system_account: SYS
"""


@dataclass
class World:
    """The servers, and by user an Asker that asks all of them."""

    servers: list[Server]
    askers: dict[str, Asker]

    def __getitem__(self, user: str) -> Asker:
        return self.askers[user]


@pytest.fixture
def world(kind: Kind, launch: Launch) -> Iterator[World]:
    """The reference and the server under test, with a client of each account."""
    with ExitStack() as stack:
        servers = [launch(config=CONFIG, kind=REFERENCE)]
        if not kind.is_reference:
            servers.append(launch(config=CONFIG))
        yield World(
            servers,
            {
                user: Asker(*(stack.enter_context(Caller(server, user)) for server in servers))
                for user in ("a", "b", "c", "d", "sys")
            },
        )


def test_who_has_jetstream_and_how_much(world: World) -> None:
    for user in ("a", "b", "c", "d", "sys"):
        world[user].api("INFO")
    for user in ("a", "b", "c", "d"):
        world[user].api("STREAM.NAMES")
        world[user].ask("$JS.hub.API.INFO")
        world[user].ask("$JS.hub.API.STREAM.NAMES")
        world[user].api("STREAM.CREATE.S", {"name": "S", "subjects": ["x"], "max_bytes": 4_000_000})
        world[user].ask("x", b"hello") if user != "c" else None
        world[user].api("INFO")
    world["sys"].api("STREAM.NAMES")
    world["sys"].ask("$JS.hub.API.INFO")


def test_limits_of_an_account(world: World) -> None:
    api = world["a"].api

    def stream(name: str, verb: str = "CREATE", **more: object) -> None:
        api(f"STREAM.{verb}.{name}", {"name": name, "subjects": [name]} | more)

    stream("S", max_bytes=4_000_000)
    stream("T", max_bytes=6_000_000)
    stream("T", max_bytes=5_000_000, max_consumers=4)
    stream("T", max_bytes=4_500_000)
    stream("U")
    api("STREAM.DELETE.T")
    stream("T", max_bytes=900_000, storage="memory")
    stream("T", "UPDATE", max_bytes=1_100_000, storage="memory")
    stream("T", "UPDATE", max_bytes=1_000_000, storage="memory")
    for number in range(4):
        config = {"name": f"C{number}", "ack_policy": "explicit"}
        api(f"CONSUMER.CREATE.S.C{number}", {"stream_name": "S", "config": config})
    for excess in ({"max_ack_pending": 450}, {"max_ack_pending": 1000}, {"max_batch": 60}):
        config = {"name": "C0", "ack_policy": "explicit"} | excess
        api("CONSUMER.CREATE.S.C0", {"stream_name": "S", "config": config})
    for _ in range(3):
        world["a"].ask("T", b"z" * 400_000)
    api("INFO")
    for name in ("C1", "C2"):  # the reference's error names one of several consumers, in any order
        api(f"CONSUMER.DELETE.S.{name}")
    stream("S", "UPDATE", consumer_limits={"max_ack_pending": 10})
    stream("S", "UPDATE", consumer_limits={"inactive_threshold": 1})


def test_limits_of_the_server(world: World) -> None:
    api = world["b"].api
    stream = {"name": "S", "storage": "memory"}
    api("STREAM.CREATE.S", stream | {"max_bytes": 1 << 40})
    api("STREAM.CREATE.S", stream | {"duplicate_window": 120_000_000_000})
    api("STREAM.CREATE.S", stream)
    for number in range(21):
        config = {"name": f"C{number}"}
        api(f"CONSUMER.CREATE.S.C{number}", {"stream_name": "S", "config": config})


PAGES = """
    jsz jsz?accounts=1 jsz?streams=1&config=1 jsz?consumers=1&acc=A jsz?consumers=1&config=1 jsz?acc=none
    jsz?raft=1&streams=1 jsz?leader-only=1 jsz?limit=1&accounts=1 jsz?offset=1&accounts=1
    varz accountz?acc=A accountz?acc=C healthz healthz?js-enabled-only=1 healthz?js-server-only=1
    healthz?account=A healthz?account=none healthz?account=A&stream=S healthz?account=A&stream=none
    healthz?account=A&stream=S&consumer=C healthz?account=A&stream=S&consumer=none
    healthz?account=none&details=1 healthz?account=A&stream=none&details=1
    healthz?account=A&stream=S&consumer=none&details=1 healthz?details=1 healthz?stream=S healthz?consumer=C
"""


def page(server: Server, path: str) -> tuple[int, Any]:
    """Return the status and the JSON of a page; of varz and accountz only JetStream's part."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.monitor_port}/{path}") as answer:
            status, document = answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as exc:
        status, document = exc.code, json.loads(exc.read())
    if path == "varz":
        document = document["jetstream"]
    elif path.startswith("accountz"):
        document = document["account_detail"]["jetstream_enabled"]
    return status, comparable(document)


def test_the_monitoring_pages(world: World) -> None:
    for user in ("a", "b"):
        world[user].api("STREAM.CREATE.S", {"name": "S", "subjects": ["x"], "max_bytes": 1_000_000})
        world[user].ask("x", b"hello")
    config = {"name": "C", "ack_policy": "explicit"}
    world["a"].api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    for path in PAGES.split():
        first, *others = [page(server, path) for server in world.servers]
        for other in others:
            assert other == first, path


def test_requests_in_the_system_account(world: World) -> None:
    world["a"].api("STREAM.CREATE.S", {"name": "S", "subjects": ["x"]})
    world["a"].ask("x", b"hello")
    pages = ("ACCOUNT.A.JSZ", "ACCOUNT.C.JSZ", "ACCOUNT.none.JSZ", "SERVER.PING.JSZ", "SERVER.PING.HEALTHZ")
    for subject in pages:
        answers = [caller.request(f"$SYS.REQ.{subject}").json for caller in world["sys"].callers]
        for answer in answers:
            answer["server"].pop("seq")
        first, *others = [comparable(answer) for answer in answers]
        for other in others:
            assert other == first, subject
    world["sys"].api("ACCOUNT.PURGE.none")
    world["sys"].api("ACCOUNT.PURGE.A")
    world["a"].api("STREAM.NAMES")
    world["a"].api("INFO")
    info = [caller.connection.info for caller in world["a"].callers]
    assert [(each["jetstream"], each["domain"], each["api_lvl"]) for each in info] == [
        (True, "hub", 5)
    ] * len(info)
