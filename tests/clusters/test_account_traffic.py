"""What accounts count of their messages, and by kind of link: the same in gnats and in nats-server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.clusters import line
from support.launch import launcher
from support.monitor import monitor
from support.reload import attempt
from support.servers import REFERENCE, Kind, Server, until
from support.superclusters import SuperCluster
from support.wire import header

from .conftest import require_all
from .members import ACCOUNTS, Client, few_pairs, named, running
from .test_leafnodes import connected

pytestmark = pytest.mark.timeout(120)

LINKS = ("routes", "gateways", "leafs")
NAMED = header("A: b")
SIZES = [0, 1, 100, 5_000, 70_000, *[16] * 50]


class Two(Protocol):
    """Two servers with a link between them."""

    def __getitem__(self, number: int, /) -> Server: ...


@dataclass(frozen=True)
class Count:
    """Messages and their bytes."""

    msgs: int = 0
    bytes: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.msgs + other.msgs, self.bytes + other.bytes)

    def __sub__(self, other: Count) -> Count:
        return Count(self.msgs - other.msgs, self.bytes - other.bytes)


NONE = Count()


def no_links() -> dict[str, Count]:
    return dict.fromkeys(LINKS, NONE)


@dataclass
class Traffic:
    """The messages that an account has sent or received: in all, and over links."""

    total: Count = NONE
    links: dict[str, Count] = field(default_factory=no_links)

    def __sub__(self, other: Traffic) -> Traffic:
        links = {name: self.links[name] - other.links[name] for name in LINKS}
        return Traffic(self.total - other.total, links)


@dataclass
class Counted:
    """The traffic of an account at one server."""

    received: Traffic
    sent: Traffic

    def __sub__(self, other: Counted) -> Counted:
        return Counted(self.received - other.received, self.sent - other.sent)


def counted(server: Server, account: str) -> Counted:
    """Return what /accstatz says; both members have all kinds of links, in one order."""
    page = monitor(server, "/accstatz?unused=1")["account_statz"]
    (found,) = (each for each in page if each["acc"] == account)

    def traffic(data: dict[str, Any]) -> Traffic:
        assert list(data) == ["msgs", "bytes", "gateways", "routes", "leafs"]
        return Traffic(Count(data["msgs"], data["bytes"]), {name: Count(**data[name]) for name in LINKS})

    return Counted(traffic(found["received"]), traffic(found["sent"]))


@dataclass
class Linked:
    """Two servers, and the member of statistics that counts what goes over the link between them."""

    servers: Two
    link: str

    def traffic(self, *, clients: Count = NONE, link: Count = NONE) -> Traffic:
        """Return the traffic of messages with clients and of messages over the link."""
        return Traffic(clients + link, no_links() | {self.link: link})


@contextmanager
def cluster(directory: Path, kinds: tuple[Kind, Kind]) -> Iterator[Two]:
    with running(directory, kinds, routes=line) as found:
        yield found


@contextmanager
def two_clusters(directory: Path, kinds: tuple[Kind, Kind]) -> Iterator[Two]:
    with launcher(REFERENCE, directory) as launch:
        found = SuperCluster(launch, [(kind,) for kind in kinds], config=ACCOUNTS)
        found.wait_mesh()
        yield found


@contextmanager
def hub_and_spoke(directory: Path, kinds: tuple[Kind, Kind]) -> Iterator[Two]:
    with connected(directory, kinds, accounts="AP") as found:
        yield found


HOW = dict(zip(LINKS, (cluster, two_clusters, hub_and_spoke), strict=True))


@pytest.fixture(scope="module", params=LINKS)
def link(request: pytest.FixtureRequest) -> str:
    link: str = request.param
    return link


@pytest.fixture(scope="module", params=few_pairs(), ids=named)
def linked(
    request: pytest.FixtureRequest, link: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Linked]:
    """The tests of the module share the servers."""
    require_all(request.param)
    with HOW[link](tmp_path_factory.mktemp(link), request.param) as servers:
        yield Linked(servers, link)


@pytest.fixture
def here(linked: Linked, ends: tuple[int, int]) -> Iterator[Client]:
    """The client that publishes."""
    with Client(linked.servers[ends[0]], "p") as client:
        yield client


@pytest.fixture
def there(linked: Linked, ends: tuple[int, int]) -> Iterator[Client]:
    """The client that receives, at the other server."""
    with Client(linked.servers[ends[1]], "p") as client:
        yield client


class Counting:
    """Compares what an account counts at both servers from now on. No message of it may be under way."""

    def __init__(self, here: Server, there: Server, account: str = "P") -> None:
        self.servers = here, there
        self.account = account
        self.before = self._at_rest()

    def _now(self) -> list[Counted]:
        return [counted(server, self.account) for server in self.servers]

    def _at_rest(self) -> list[Counted]:
        """A server may count a message just after it was delivered."""
        last = self._now()

        def rests() -> bool:
            nonlocal last
            before, last = last, self._now()
            return last == before

        until(rests)
        return last

    def _since(self) -> list[Counted]:
        return [now - before for now, before in zip(self._now(), self.before, strict=True)]

    def expect(self, here: Counted, there: Counted) -> None:
        """Wait until both servers have counted this."""
        try:
            until(lambda: self._since() == [here, there])
        except TimeoutError:
            assert self._since() == [here, there]
            raise


def sizes(*payloads: bytes) -> Count:
    return Count(len(payloads), sum(map(len, payloads)))


def receive(client: Client, count: int) -> None:
    for _ in range(count):
        client.next()


@pytest.mark.parametrize("head", [b"", NAMED], ids=["plain", "header"])
@pytest.mark.parametrize("queue", ["", "q"], ids=["each", "group"])
def test_messages(linked: Linked, here: Client, there: Client, queue: str, head: bytes) -> None:
    there.subscribe("traffic.*", queue)
    there.reachable_from(here)
    counting = Counting(here.server, there.server)
    for n, size in enumerate(SIZES):
        here.publish(f"traffic.{n}", b"x" * size, header=head)
    receive(there, len(SIZES))
    count = sizes(*(head + b"x" * size for size in SIZES))
    counting.expect(
        Counted(received=linked.traffic(clients=count), sent=linked.traffic(link=count)),
        Counted(received=linked.traffic(link=count), sent=linked.traffic(clients=count)),
    )


def test_subscribers_at_both_servers(linked: Linked, here: Client, there: Client) -> None:
    """A message goes over a link once; each delivery to a client counts."""
    here.subscribe("both")
    for _ in range(3):
        there.subscribe("both")
    there.reachable_from(here)
    counting = Counting(here.server, there.server)
    here.publish("both", b"abc")
    receive(here, 1)
    receive(there, 3)
    one, three = Count(1, 3), Count(3, 9)
    counting.expect(
        Counted(received=linked.traffic(clients=one), sent=linked.traffic(clients=one, link=one)),
        Counted(received=linked.traffic(link=one), sent=linked.traffic(clients=three)),
    )


def test_messages_of_nobody(linked: Linked, here: Client, there: Client) -> None:
    there.reachable_from(here)
    counting = Counting(here.server, there.server)
    here.publish("nobody", b"abc")
    here.fence()
    counting.expect(
        Counted(received=linked.traffic(clients=Count(1, 3)), sent=linked.traffic()),
        Counted(received=linked.traffic(), sent=linked.traffic()),
    )


def test_requests(linked: Linked, here: Client, there: Client) -> None:
    """What comes back over a gateway under a mapped reply is sent, and received by nobody's count."""
    there.subscribe("ask")
    there.reachable_from(here)
    counting = Counting(here.server, there.server)
    here.subscribe("new.inbox")
    here.publish("ask", b"question", "new.inbox")
    there.publish(there.next().reply, b"answer")
    assert here.next().payload == b"answer"
    asked, answered = sizes(b"question"), sizes(b"answer")
    came = NONE if linked.link == "gateways" else answered
    counting.expect(
        Counted(
            received=linked.traffic(clients=asked, link=came),
            sent=linked.traffic(clients=answered, link=asked),
        ),
        Counted(
            received=linked.traffic(clients=answered, link=asked),
            sent=linked.traffic(clients=asked, link=answered),
        ),
    )


def test_what_another_account_serves_is_its_own(linked: Linked, ends: tuple[int, int]) -> None:
    """A request goes over the link in the account that exports the service, and the answer does."""
    with ExitStack() as stack:
        requester = stack.enter_context(Client(linked.servers[ends[0]], "b"))
        near, far = (stack.enter_context(Client(linked.servers[end], "a")) for end in ends)
        far.subscribe("svc.x")
        far.reachable_from(near)
        exporting = Counting(near.server, far.server, "A")
        importing = Counting(near.server, far.server, "B")
        inbox = requester.ask("ask.x", b"question")
        request = far.next()
        far.publish(request.reply, b"answer")
        assert requester.next_on(inbox).payload == b"answer"
        asked, answered = sizes(request.header + b"question"), sizes(b"answer")
        came = NONE if linked.link == "gateways" else answered
        exporting.expect(
            Counted(received=linked.traffic(link=came), sent=linked.traffic(link=asked)),
            Counted(
                received=linked.traffic(clients=answered, link=asked),
                sent=linked.traffic(clients=asked, link=answered),
            ),
        )
        importing.expect(
            Counted(
                received=linked.traffic(clients=sizes(b"question")), sent=linked.traffic(clients=answered)
            ),
            Counted(received=linked.traffic(), sent=linked.traffic()),
        )


def test_a_reload_keeps_the_counts(linked: Linked, here: Client, there: Client) -> None:
    there.subscribe("kept")
    there.reachable_from(here)
    here.publish("kept", b"abc")
    receive(there, 1)
    counting = Counting(here.server, there.server)
    assert all(each.received.total.msgs for each in counting.before)
    for server in here.server, there.server:
        attempt(server, server.conf.read_text().partition("\nio_threads")[0])
    nothing = Counted(received=linked.traffic(), sent=linked.traffic())
    counting.expect(nothing, nothing)


def test_metrics(linked: Linked, here: Client, there: Client) -> None:
    """gnats shows the same counts to Prometheus."""
    if here.server.kind.is_reference:
        pytest.skip("nats-server has no metrics")
    there.subscribe("measured")
    there.reachable_from(here)
    here.publish("measured", b"abc")
    receive(there, 1)
    Counting(here.server, there.server)
    found = counted(here.server, "P")
    kind = {"routes": "route", "gateways": "gateway", "leafs": "leafnode"}[linked.link]
    values = metrics(here.server)

    def value(name: str, **labels: str) -> float:
        return values[f"gnats_account_{name}_total", frozenset({"account": "P", **labels}.items())]

    for direction, traffic in ("in", found.received), ("out", found.sent):
        over = traffic.links[linked.link]
        assert value("messages", direction=direction) == traffic.total.msgs
        assert value("bytes", direction=direction) == traffic.total.bytes
        assert value("link_messages", kind=kind, direction=direction) == over.msgs
        assert value("link_bytes", kind=kind, direction=direction) == over.bytes


def metrics(server: Server) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the values of /metrics by name and labels."""
    with urlopen(f"http://{server.monitor_host}:{server.monitor_port}/metrics") as response:
        families = text_string_to_metric_families(response.read().decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_events_and_answers_have_the_same_counts(linked: Linked, ends: tuple[int, int]) -> None:
    """As the page has them: the members of all kinds, whether there are such links or not."""
    with Client(linked.servers[ends[0]], "s") as system:
        wanted = {"accounts": ["P"], "include_unused": True}
        answer = system.request("$SYS.REQ.ACCOUNT.PING.STATZ", wanted).json
        (found,) = answer["data"]["account_statz"]
        for way in "sent", "received":
            assert list(found[way]) == ["msgs", "bytes", "gateways", "routes", "leafs"]
