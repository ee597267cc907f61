"""Whoever waits is woken, although a call on the way to that fails once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from support.caller import Caller
from support.failing_server import Call, Failing, build
from support.faults import create
from support.servers import Kind, Server
from support.wire import Closed

pytestmark = pytest.mark.timeout(120)

SOURCES = Path(__file__).parents[2] / "cython_src" / "gnats"
QUIET = 3
"""Rounds in which nothing has failed, after which nothing will."""


def all_but(*modules: str) -> tuple[str, ...]:
    """Return the modules of the data plane but these."""
    paths = [path for folder in ("core", "store", "jetstream") for path in (SOURCES / folder).rglob("*.pyx")]
    return tuple({str(path.relative_to(SOURCES).with_suffix("")) for path in paths} - set(modules))


@contextmanager
def running(kind: Kind, tmp_path: Path, failing: Failing, config: str) -> Iterator[Server]:
    server = Server(kind, tmp_path / "server", config=config, wrapper=failing.wrapper)
    try:
        yield server
        server.stop()
    finally:
        server.kill()


def jetstream(tmp_path: Path) -> str:
    return f"jetstream {{store_dir: '{tmp_path / 'store'}'\nsync_interval: always}}"


def test_a_consumer_gets_what_was_synced_without_memory(kind: Kind, tmp_path: Path) -> None:
    """The poller finds no memory to hand a stream to the sync thread, or to list a consumer afterwards."""
    waiting = [f"jetstream/engine/{name}" for name in ("groupcommit", "barrier", "engine")]
    failing = build(tmp_path, all_but(*waiting), depth=2)
    with running(kind, tmp_path, failing, jetstream(tmp_path)) as server, Caller(server) as caller:
        create(caller, "S", storage="file")
        caller.subscribe("to")
        config = {"durable_name": "C", "deliver_subject": "to", "ack_policy": "none"}
        made = caller.request(
            "$JS.API.CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config}
        ).json
        assert "error" not in made, made
        ways: list[str] = []
        quiet = 0
        while quiet < QUIET:
            failing.fail_next(Call.MEMORY)
            caller.publish("S.a")  # nothing follows that would wake the consumer
            assert caller.next().subject == "S.a", ways
            where = failing.stop()
            ways += [where] if where else []
            quiet = 0 if where else quiet + 1
        assert any(way.startswith("jetstream/engine/groupcommit") for way in ways), ways
        assert caller.request("S.a").json["seq"] > len(ways)


def test_a_request_expires_although_the_timer_could_not_be_set(kind: Kind, tmp_path: Path) -> None:
    failing = build(tmp_path, ("core/batch",), depth=3)
    with running(kind, tmp_path, failing, jetstream(tmp_path)) as server, Caller(server) as caller:
        create(caller, "S", storage="memory")
        config = {"durable_name": "C", "ack_policy": "explicit"}
        made = caller.request(
            "$JS.API.CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config}
        ).json
        assert "error" not in made, made
        ways: list[str] = []
        quiet = 0
        while quiet < QUIET:
            failing.fail_next(Call.TIMERFD_SETTIME)
            answer = caller.request("$JS.API.CONSUMER.MSG.NEXT.S.C", {"batch": 1, "expires": 50_000_000})
            assert answer.status.startswith("408"), (answer, ways)
            where = failing.stop()
            ways += [where] if where else []
            quiet = 0 if where else quiet + 1
        assert ways


def test_a_service_is_watched_although_an_event_could_not_be_made(kind: Kind, tmp_path: Path) -> None:
    """The next request has the control plane watch the responses of both."""
    failing = build(
        tmp_path, all_but("core/runtime/inbox", "core/routing/serviceimports", "core/routing/route"), depth=3
    )
    config = """
    accounts {
      A {
        users: [{user: a, password: pw}]
        exports: [{service: "do", threshold: "50ms", latency: {sampling: 100, subject: "lat"}}]
      }
      B {users: [{user: b, password: pw}], imports: [{service: {account: A, subject: "do"}}]}
    }
    """
    with ExitStack() as stack:
        server = stack.enter_context(running(kind, tmp_path, failing, config))
        service = stack.enter_context(Caller(server, "a"))
        service.subscribe("do")
        service.subscribe("lat")

        def ask(number: int) -> str:
            """Send a request, one of whose calls fails; return which."""
            requester = stack.enter_context(Caller(server, "b", inbox=f"_INBOX.b{number}"))
            failing.fail_next(Call.MEMORY)
            with suppress(Closed):  # the server could not make the request's header
                requester.publish("do", reply=f"_INBOX.b{number}.1")
                requester.fence()
            return failing.stop()

        number = 0
        while not (where := ask(number)).startswith("core/runtime/inbox"):
            assert where, "the event did not fail"
            number += 1
        while ask(number):
            number += 1
        lost = 0
        while lost < 2:  # or the connection times out
            message = service.next()
            lost += message.subject == "lat" and message.json["status"] == 504
