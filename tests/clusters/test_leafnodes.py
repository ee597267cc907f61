"""A hub and a spoke of every two kinds: clients of one have what clients of the other publish."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.launch import Launch, launcher
from support.monitor import monitor
from support.servers import REFERENCE, Kind, Server, reserve_port, until
from support.wire import header

from .conftest import require_all
from .members import ACCOUNTS, OLD, Client, named, pairs

pytestmark = pytest.mark.timeout(120)

NAMED = header("A: b")
PAIRS = pairs()
NEWER = [pair for pair in PAIRS if OLD not in pair]
MANY = 200


class Pair:
    """A hub that listens for leaf nodes, and a spoke that dials it; both keep their ports.

    `remote` are further lines of the spoke's remotes, one for each of `accounts`. `block` and `hub_block` are
    further lines of the leafnodes blocks.
    """

    def __init__(
        self,
        launch: Launch,
        kinds: tuple[Kind, Kind],
        *,
        accounts: str = "A",
        remote: str = "",
        block: str = "",
        hub_block: str = "",
        host: str = "127.0.0.1",
        wait: bool = True,
    ) -> None:
        self.port = reserve_port(self)
        self.hub_config = (
            f"server_name: hub\nleafnodes {{ listen: '127.0.0.1:{self.port}'\n{hub_block}\n}}\n{ACCOUNTS}"
        )
        remotes = "\n".join(
            f"{{ url: {json.dumps(f'nats-leaf://{name.lower()}:p@{host}:{self.port}')}\n"
            f"account: {name}\n{remote}\n}}"
            for name in accounts
        )
        reconnect = "1" if kinds[1] is OLD else "'0.2s'"  # OLD takes only seconds
        leafnodes = f"reconnect: {reconnect}\nremotes [ {remotes} ]\n{block}"
        self.spoke_config = f"server_name: spoke\nleafnodes {{ {leafnodes}\n}}\n{ACCOUNTS}"
        self.count = len(accounts)
        self.hub: Server = launch("-m", "-1", "-D", config=self.hub_config, kind=kinds[0])
        self.spoke: Server = launch("-m", "-1", "-D", config=self.spoke_config, kind=kinds[1])
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until both sides have all connections."""
        for server in self.hub, self.spoke:
            until(lambda server=server: len(leafs(server)) == self.count)  # type: ignore[misc]

    def __getitem__(self, number: int) -> Server:
        return (self.hub, self.spoke)[number]


def leafs(server: Server) -> list[dict[str, Any]]:
    """Return the entries of /leafz."""
    found: list[dict[str, Any]] = monitor(server, "/leafz?subs=1").get("leafs") or []
    return found


@contextmanager
def connected(directory: Path, kinds: tuple[Kind, Kind], **how: Any) -> Iterator[Pair]:
    require_all(kinds)
    with launcher(REFERENCE, directory) as launch:
        yield Pair(launch, kinds, **how)


@pytest.fixture(scope="module", params=PAIRS, ids=named)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A hub and a spoke that the tests of this module share."""
    with connected(tmp_path_factory.mktemp("leaf"), request.param) as pair:
        yield pair


@pytest.fixture
def clients(both: Pair, ends: tuple[int, int]) -> Iterator[tuple[Client, Client]]:
    """A publisher and a subscriber of one account at different servers."""
    with Client(both[ends[0]]) as publisher, Client(both[ends[1]]) as subscriber:
        yield publisher, subscriber


def test_messages_arrive_once_and_in_order(clients: tuple[Client, Client]) -> None:
    publisher, subscriber = clients
    subscriber.subscribe("order.*")
    subscriber.reachable_from(publisher)
    sizes = [0, 1, 100, 5_000, 70_000, 900_000, *range(MANY)]
    for n, size in enumerate(sizes):
        publisher.publish(f"order.{n}", b"x" * size)
    heard = subscriber.heard(publisher)
    assert [(m.subject, len(m.payload), m.reply) for m in heard] == [
        (f"order.{n}", size, "") for n, size in enumerate(sizes)
    ]


def test_headers_and_replies(both: Pair, ends: tuple[int, int], clients: tuple[Client, Client]) -> None:
    publisher, subscriber = clients
    with Client(both[ends[1]], headers=False) as plain:
        for each in subscriber, plain:
            each.subscribe("h")
            each.reachable_from(publisher)
        publisher.publish("h", b"body", "re", NAMED)
        assert [(m.header, m.payload, m.reply) for m in subscriber.heard(publisher)] == [
            (NAMED, b"body", "re")
        ]
        assert [(m.header, m.payload) for m in plain.heard(publisher)] == [(b"", b"body")]


def test_requests_are_answered(clients: tuple[Client, Client]) -> None:
    requester, responder = clients
    responder.subscribe("work.*")
    responder.reachable_from(requester)
    for n in range(20):
        inbox = requester.ask(f"work.{n}", b"%d" % n)
        request = responder.next_on(f"work.{n}")
        responder.publish(request.reply, request.payload * 2)
        assert requester.next_on(inbox).payload == b"%d" % n * 2


def test_a_member_of_a_group_hears(both: Pair, clients: tuple[Client, Client]) -> None:
    """Members at both ends: each message goes to one of them."""
    publisher, subscriber = clients
    with Client(subscriber.server) as second, Client(publisher.server) as beside:
        members = subscriber, second, beside
        for member in members:
            member.subscribe("q.>", "group")
            member.reachable_from(publisher)
        for n in range(MANY):
            publisher.publish(f"q.{n}")
        heard = [message.subject for member in members for message in member.heard(publisher)]
        assert sorted(heard) == sorted(f"q.{n}" for n in range(MANY))


def test_another_account_hears_nothing(clients: tuple[Client, Client]) -> None:
    publisher, subscriber = clients
    with Client(subscriber.server, "b") as other, Client(other.server, "b") as beside:
        other.subscribe("private")
        subscriber.subscribe("private")
        subscriber.reachable_from(publisher)
        other.reachable_from(beside)
        publisher.publish("private", b"x")
        assert subscriber.payloads(publisher) == [b"x"]
        assert other.payloads(beside) == []


def test_interest_ends(both: Pair, clients: tuple[Client, Client]) -> None:
    publisher, subscriber = clients
    sid = subscriber.subscribe("once.only")
    subscriber.reachable_from(publisher)

    def known() -> bool:
        return any("once.only" in leaf.get("subscriptions_list", ()) for leaf in leafs(publisher.server))

    until(known)
    subscriber.send(f"UNSUB {sid}\r\n".encode())
    until(lambda: not known())


def test_leafz_on_both_sides(both: Pair) -> None:
    kinds = both.hub.kind, both.spoke.kind
    for number, name in enumerate(("spoke", "hub")):
        (leaf,) = leafs(both[number])
        assert leaf["account"] == "A"
        if kinds[number] is OLD:  # its page has no more
            continue
        assert (leaf["name"], leaf["is_spoke"]) == (name, number == 1)
        # Each side has the level of its own round trip time.
        assert leaf["compression"].startswith("not supported" if OLD in kinds else "s2_")


def exchange(pair: Pair, user: str = "a") -> None:
    """Send a message each way."""
    for ends in (0, 1), (1, 0):
        with Client(pair[ends[0]], user) as publisher, Client(pair[ends[1]], user) as subscriber:
            subscriber.subscribe("hello")
            subscriber.reachable_from(publisher)
            publisher.publish("hello", b"x")
            assert subscriber.payloads(publisher) == [b"x"]


SETTINGS = {
    "two accounts": {"accounts": "AB"},
    "hub is dialling": {"remote": "hub: true"},
    "no compression": {"remote": "compression: off", "hub_block": "compression: off"},
    "compression": {"remote": "compression: s2_fast", "hub_block": "compression: s2_better"},
}


@pytest.mark.parametrize("how", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("kinds", PAIRS, ids=named)
def test_settings(tmp_path: Path, kinds: tuple[Kind, Kind], how: dict[str, str]) -> None:
    if OLD in kinds and "compression" in str(how):
        pytest.skip("nats-server before 2.10 does not know compression")
    with connected(tmp_path, kinds, **how) as pair:
        for account in how.get("accounts", "A"):
            exchange(pair, account.lower())


@pytest.mark.parametrize("killed", [0, 1], ids=["hub", "spoke"])
@pytest.mark.parametrize("kinds", PAIRS, ids=named)
def test_a_server_is_killed_and_starts_again(tmp_path: Path, kinds: tuple[Kind, Kind], killed: int) -> None:
    with connected(tmp_path, kinds) as pair:
        pair[killed].kill()
        until(lambda: not leafs(pair[1 - killed]))
        pair[killed].start_again()
        pair.wait()
        exchange(pair)


@pytest.mark.parametrize("kinds", PAIRS, ids=named)
def test_spokes_hear_of_each_other_through_the_hub(tmp_path: Path, kinds: tuple[Kind, Kind]) -> None:
    require_all(kinds)
    with launcher(REFERENCE, tmp_path) as launch, ExitStack() as stack:
        pair = Pair(launch, kinds)
        config = pair.spoke_config.replace("server_name: spoke", "server_name: second")
        second: Server = launch("-m", "-1", config=config, kind=kinds[1])
        until(lambda: len(leafs(pair.hub)) == 2 and len(leafs(second)) == 1)
        publisher = stack.enter_context(Client(pair.spoke))
        subscriber = stack.enter_context(Client(second))
        subscriber.subscribe("over.there")
        subscriber.reachable_from(publisher)
        publisher.publish("over.there", b"x")
        assert subscriber.payloads(publisher) == [b"x"]
