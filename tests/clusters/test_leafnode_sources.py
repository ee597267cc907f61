"""Mirrors and sources of streams on the other side of a leaf node: pairs of all kinds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.servers import Kind, until
from support.wire import header

from .domains import Domains, answers, api, domains
from .members import Client, few_pairs, named

pytestmark = [pytest.mark.timeout(180), pytest.mark.waits]
MIXED = [kinds for kinds in few_pairs() if len({kind.is_reference for kind in kinds}) == 2]
"""Pairs of gnats and nats-server: those for tests that wait for 30 s, as both servers do for an answer."""
NAMES = ("hub", "leaf")
WAYS = ((0, 1), (1, 0))
"""Pairs of the server of a copy, and of that of its origin."""
MANY = 50


class Copies:
    """An origin at each server, and there a mirror and a stream with sources, of that of the other server."""

    def __init__(self, directory: Path, kinds: tuple[Kind, Kind], stack: ExitStack, deliver: str) -> None:
        self.pair: Domains = stack.enter_context(domains(directory, kinds))
        self.clients: list[Client] = []
        self._stack = stack
        self.connect()
        self.published = [0, 0]
        for here, there in WAYS:
            until(lambda here=here, there=there: answers(self.clients[here], f"$JS.{NAMES[there]}.API.INFO"))  # type: ignore[misc]
            self.make(here, "ORIGIN", subjects=[f"{NAMES[here]}.>"])
        for here, there in WAYS:  # a copy without an origin would try again only after 12 s
            external = {"api": f"$JS.{NAMES[there]}.API", "deliver": deliver}
            origin = {"name": "ORIGIN", "external": external}
            self.make(here, "MIRROR", mirror=origin, mirror_direct=True)
            transforms = [{"src": f"{NAMES[there]}.kept.*", "dest": "copied.{{wildcard(1)}}"}]
            self.make(
                here,
                "SOURCES",
                sources=[origin | {"subject_transforms": transforms}, {"name": "ORIGIN"}],
            )

    def connect(self) -> None:
        """Connect a client to each server; those before may have been disconnected."""
        self.clients = [self._stack.enter_context(Client(server)) for server in self.pair.servers]

    def make(self, here: int, name: str, **config: Any) -> None:
        api(self.clients[here], f"$JS.API.STREAM.CREATE.{name}", {"name": name} | config)

    def publish(self) -> None:
        """Store messages at both servers, half of them for the sources."""
        for here, client in enumerate(self.clients):
            for _ in range(MANY):
                n = self.published[here] = self.published[here] + 1
                kind = "kept" if n % 2 else "other"
                answer = client.request(f"{NAMES[here]}.{kind}.{n}", b"%d" % n, header("A: b")).json
                assert (answer["stream"], answer["seq"]) == ("ORIGIN", n)

    def wait(self) -> None:
        """Wait until all copies are complete; check that nothing is missing or doubled."""
        for here, there in WAYS:
            until(lambda here=here, there=there: self._has(here, "MIRROR", self.published[there]), 60)  # type: ignore[misc]
            wanted = sum(self.published) - self.published[there] // 2
            until(lambda here=here, wanted=wanted: self._has(here, "SOURCES", wanted), 60)  # type: ignore[misc]
            mirrored = self.read(here, "MIRROR")
            assert [(n, payload) for n, _, payload in mirrored] == [
                (n, b"%d" % n) for n in range(1, self.published[there] + 1)
            ]
            assert {subject.split(".")[0] for _, subject, _ in mirrored} == {NAMES[there]}
            sourced = self.read(here, "SOURCES")
            copied = [subject for _, subject, _ in sourced if subject.startswith("copied.")]
            assert copied == [f"copied.{n}" for n in range(1, self.published[there] + 1, 2)]
            own = [int(payload) for _, subject, payload in sourced if not subject.startswith("copied.")]
            assert own == list(range(1, self.published[here] + 1))

    def _has(self, here: int, stream: str, count: int) -> bool:
        state: Any = api(self.clients[here], f"$JS.API.STREAM.INFO.{stream}")["state"]
        assert state["messages"] <= count
        return bool(state["messages"] == count)

    def read(self, here: int, stream: str) -> list[tuple[int, str, bytes]]:
        """Return the sequences, subjects and payloads of all messages."""
        client, found = self.clients[here], []
        api(client, f"$JS.API.STREAM.UPDATE.{stream}", self._direct(here, stream))
        inbox = client.ask(f"$JS.API.DIRECT.GET.{stream}", json.dumps({"seq": 1, "batch": 10_000}).encode())
        while (message := client.next_on(inbox)).status != "204 EOB":
            headers = message.headers
            assert headers["A"] == "b"
            found.append((int(headers["Nats-Sequence"]), headers["Nats-Subject"], message.payload))
        return found

    def _direct(self, here: int, stream: str) -> Any:
        info: Any = api(self.clients[here], f"$JS.API.STREAM.INFO.{stream}")
        return info["config"] | {"allow_direct": True}


@pytest.fixture(params=["", "delivered"], ids=["", "a prefix"])
def copies(request: pytest.FixtureRequest, kinds: tuple[Kind, Kind], tmp_path: Path) -> Iterator[Copies]:
    with ExitStack() as stack:
        yield Copies(tmp_path, kinds, stack, request.param)


@pytest.mark.parametrize("kinds", few_pairs(), ids=named)
def test_copies_catch_up_after_a_cut(copies: Copies) -> None:
    copies.publish()
    copies.wait()
    copies.pair.cut()
    copies.publish()
    copies.pair.mend()
    copies.publish()
    copies.wait()


@pytest.mark.parametrize("kinds", MIXED, ids=named)
@pytest.mark.parametrize("copies", [""], indirect=True)
@pytest.mark.parametrize("killed", [0, 1], ids=NAMES)
def test_copies_catch_up_after_a_crash(copies: Copies, killed: int) -> None:
    copies.publish()
    copies.wait()
    server = copies.pair[killed]
    server.kill()
    server.start_again()
    copies.pair.wait()
    copies.connect()
    copies.publish()
    copies.wait()


@pytest.mark.parametrize("kinds", MIXED, ids=named)
@pytest.mark.parametrize("copies", [""], indirect=True)
def test_a_copy_is_made_while_the_link_is_cut(copies: Copies) -> None:
    """It finds its origin once there is a link."""
    copies.publish()
    copies.pair.cut()
    for here, there in WAYS:
        origin = {"name": "ORIGIN", "external": {"api": f"$JS.{NAMES[there]}.API", "deliver": ""}}
        copies.make(here, "LATE", mirror=origin, mirror_direct=True)
    copies.pair.mend()
    for here, there in WAYS:
        until(
            lambda here=here, there=there: copies._has(here, "LATE", copies.published[there]),  # type: ignore[misc]
            60,
        )
