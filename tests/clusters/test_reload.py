"""Reloads of both members of a cluster under load: messages come once, interest is equal afterwards."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from support.caller import Caller
from support.clusters import Cluster, line
from support.launch import Launch
from support.reload import FAILED, hang_up
from support.servers import Kind, Server, selected, until

pytestmark = pytest.mark.timeout(180)

ACCOUNTS = """
accounts {
  A { users: [{ user: a, password: pw }] }
  B { users: [{ user: b, password: pw }] }
}
"""
USERS = {"a": "A", "b": "B"}
BATCH = 50
CHANGES = {
    "larger pools": ("pool_size: 2", "pool_size: 5"),
    "smaller pools": ("pool_size: 5", "pool_size: 1"),
    "no pools": ("pool_size: 3", "pool_size: -1"),
    "pools": ("pool_size: -1", "pool_size: 3"),
    "a pinned account": ("", "accounts: [A]"),
    "an account that returns to the pool": ("accounts: [A]", ""),
    "another pinned account": ("accounts: [A]", "accounts: [B]"),
    "fewer permissions": ("", "permissions { import: ['load.>', 'more.>'], export: ['load.>', 'more.>'] }"),
    "more permissions": ("permissions { import: 'load.>', export: 'load.>' }", ""),
    "pings": ("ping_interval: '20s'", "ping_interval: '1s'"),
}
PAIRS = [
    pair for pair in itertools.product(selected(), repeat=2) if not all(kind.is_reference for kind in pair)
] or [(kind, kind) for kind in selected()]


def named(pair: tuple[Kind, Kind]) -> str:
    return "+".join(kind.name for kind in pair)


class End:
    """A client that publishes numbers and hears those of the other members' clients of its account."""

    def __init__(self, cluster: Cluster, number: int, user: str) -> None:
        self.number, self.account = number, USERS[user]
        self.client = Caller(cluster[number], user, inbox=f"_INBOX.{number}.{user}")
        self.client.subscribe("load.>")
        self.client.subscribe("load.*", "group")
        self.client.subscribe(f"more.{number}")
        self.wanted = ["load.>", "load.* group", f"more.{number}"]
        self.sent = 0
        self.changing = ""

    def publish(self, count: int = BATCH) -> None:
        """Publish messages, and change a subscription."""
        for _ in range(count):
            self.sent += 1
            self.client.publish(f"load.{self.number}", f"{self.number}.{self.sent}".encode())
        if self.changing:
            self.client.send(f"UNSUB {self.changing}\r\n".encode())
            self.wanted.pop()
        subject = f"more.{self.number}.{self.sent}"
        self.changing = self.client.subscribe(subject)
        self.wanted.append(subject)

    def heard(self) -> Counter[bytes]:
        """Return how often each message came to the subscription that no group shares."""
        return Counter(message.payload for message in self.client.kept() if message.sid == "2")


@pytest.fixture(params=PAIRS, ids=named)
def pair(request: pytest.FixtureRequest) -> tuple[Kind, Kind]:
    found: tuple[Kind, Kind] = request.param
    return found


@pytest.fixture(params=CHANGES.values(), ids=CHANGES)
def change(request: pytest.FixtureRequest) -> tuple[str, str]:
    found: tuple[str, str] = request.param
    return found


def known(cluster: Cluster, number: int, remote: int, account: str) -> list[str]:
    """Return the interest of a member's clients as another one knows it, each connection's by itself."""
    found = []
    for route in cluster.routes(number, "?subs=detail"):
        if route["remote_name"] != f"s{remote}":
            continue
        for entry in route.get("subscriptions_list_detail") or []:
            prefix = "R " if route.get("account") == account else f"R {account} "
            subject = entry["sid"].removeprefix(prefix)
            if entry["sid"].startswith(prefix) and subject.startswith(("load.", "more.")):
                found.append(subject)
    return found


def equal(cluster: Cluster, ends: list[End]) -> bool:
    return all(
        sorted(known(cluster, 1 - end.number, end.number, end.account)) == sorted(end.wanted) for end in ends
    )


def reload_under_load(server: Server, change: tuple[str, str], publish: Callable[[], None]) -> None:
    """Reload a member while clients publish, and let them go on for a while."""
    text = re.sub(r"\nio_threads: \d+\n", "\n", server.conf.read_text())
    start = len(server.log)
    hang_up(server, text.replace("# before\n" + change[0], "# after\n" + change[1]))
    while "Reloaded server configuration" not in server.log[start:]:
        publish()
        assert FAILED not in server.log[start:]
    assert "Reloaded: cluster" in server.log[start:]
    for _ in range(3):
        publish()


@pytest.fixture
def cluster(launch_members: Launch, pair: tuple[Kind, Kind], change: tuple[str, str]) -> Iterator[Cluster]:
    cluster = Cluster(
        launch_members, pair, config=ACCOUNTS, block=f"compression: off\n# before\n{change[0]}\n", routes=line
    )
    cluster.wait_mesh(None)
    yield cluster


def test_under_load(cluster: Cluster, change: tuple[str, str]) -> None:
    with ExitStack() as clients:
        ends = [End(cluster, number, user) for number in range(2) for user in USERS]
        for end in ends:
            clients.enter_context(end.client)

        def publish() -> None:
            for end in ends:
                end.publish()

        permitted = "load.>" not in change[0]
        until(lambda: equal(cluster, ends) or not permitted)
        for number in 0, 1:
            reload_under_load(cluster[number], change, publish)
        until(lambda: equal(cluster, ends))
        before = [end.sent for end in ends]
        publish()
        for end, other in itertools.product(ends, ends):
            if end.account != other.account or end is other:
                continue
            last = f"{other.number}.{other.sent}".encode()
            until(lambda end=end, last=last: end.client.fence() is not None and end.heard()[last])  # type: ignore[misc]
        for end in ends:
            heard = end.heard()
            assert not [payload for payload, times in heard.items() if times > 1]
            for other, sent in zip(ends, before, strict=True):
                if other.account == end.account:
                    numbers = range(sent + 1, other.sent + 1)
                    assert all(heard[f"{other.number}.{n}".encode()] for n in numbers)
