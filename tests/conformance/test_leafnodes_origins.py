"""Interest and messages of a cluster of leaf nodes: what comes back to it, and what routes are told.

Nothing comes back within an account. What an import brings into another account does: the same cluster may
have a connection to each of the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from support.launch import Launch
from support.leafpeer import FakeLeaf, LeafPeer, interest, launch_accepting, messages
from support.routepeer import Fake, RoutePeer
from support.servers import Server, until
from support.wire import CRLF

pytestmark = pytest.mark.timeout(60)

CONFIG = """
server_name: S
cluster { name: C, listen: '127.0.0.1:-1', compression: off, no_advertise: true, pool_size: -1 }
accounts {
    A { users [ { user: a, password: p } ], exports [ { stream: "st.>" }, { service: "svc.*" } ] }
    B { users [ { user: b, password: p } ], imports [
        { stream { account: A, subject: "st.>" }, prefix: from }
        { service { account: A, subject: "svc.*" }, to: "ask.*" } ] }
}
"""
CLUSTERS = {"of a cluster": "X", "of none": ""}


@pytest.fixture(scope="module")
def server(launch_shared: Launch) -> Server:
    return launch_accepting(launch_shared, config=CONFIG)


@dataclass
class Links:
    """Connections to a server: two leaf nodes of account A and one of B, all of one cluster, and a route."""

    cluster: str
    first: LeafPeer
    second: LeafPeer
    other: LeafPeer
    route: RoutePeer
    knows: bool
    """The other end of the route knows the name that stands for no cluster."""

    def told(self, peer: LeafPeer, *lines: bytes) -> None:
        """Check that a leaf node is told these lines of interest, in any order."""
        found: list[bytes] = []

        def enough() -> bool:
            found.extend(line for line in interest(peer.fence()) if b"_R_" not in line)
            return len(found) >= len(lines)

        until(enough)
        assert sorted(found) == sorted(lines)

    def routed(self, *lines: bytes) -> None:
        """Check that the route is told these lines of interest in what clients use, in any order."""
        found: list[bytes] = []

        def enough() -> bool:
            ops = (op.removesuffix(CRLF) for op in self.route.fence())
            found.extend(
                op for op in ops if op[1:3] in (b"S+", b"S-") and b"$" not in op and b"_R_" not in op
            )
            return len(found) >= len(lines)

        until(enough)
        assert sorted(found) == sorted(lines)

    def line(self, rest: bytes, *, shadow: bool = False, begins: bool = True) -> bytes:
        """Return what the route is told of interest that ends with `rest`, such as b"A foo"."""
        sign = b"+" if begins else b"-"
        if self.cluster and not shadow:
            return b"LS%b %b %b" % (sign, self.cluster.encode(), rest)
        return b"LS%b _ %b" % (sign, rest) if self.knows else b"RS%b %b" % (sign, rest)


@pytest.fixture(params=CLUSTERS.values(), ids=CLUSTERS)
def links(request: pytest.FixtureRequest, server: Server) -> Iterator[Links]:
    yield from connect(server, request.param, knows=True)


@pytest.fixture(params=CLUSTERS.values(), ids=CLUSTERS)
def old_links(request: pytest.FixtureRequest, server: Server) -> Iterator[Links]:
    """As `links`, with a route to a server before nats-server 2.15."""
    yield from connect(server, request.param, knows=False)


def connect(server: Server, cluster: str, *, knows: bool) -> Iterator[Links]:
    password = {"pass": "p"}
    with (
        FakeLeaf(cluster=cluster) as one,
        FakeLeaf(cluster=cluster) as two,
        FakeLeaf(cluster=cluster) as three,
        Fake(ln=knows or None) as remote,
    ):
        route = remote.dial(server, connect={"ln": knows or None})
        first = one.dial(server, user="a", remote_account="A", **password)
        second = two.dial(server, user="a", remote_account="A", **password)
        other = three.dial(server, user="b", remote_account="B", **password)
        route.fence()
        yield Links(cluster, first, second, other, route, knows)


def heard(peer: LeafPeer, beginning: bytes) -> bytes:
    """Return the next message that begins so."""
    return peer.await_op(beginning)


def test_within_an_account(links: Links) -> None:
    links.second.subscribe(b"foo", b"grp q 2")
    links.told(links.first, *([] if links.cluster else [b"LS+ foo", b"LS+ grp q 2"]))
    links.routed(links.line(b"A foo"), links.line(b"A grp q 2"))
    links.first.publish(b"foo", b"x")
    links.first.publish(b"grp", b"x", to=b"| q")
    links.first.fence()
    expected = [] if links.cluster else [b"LMSG foo 1\r\nx\r\n", b"LMSG grp | q 1\r\nx\r\n"]
    assert messages(links.second.fence()) == expected
    links.second.unsubscribe(b"foo", b"grp q")
    links.routed(links.line(b"A foo", begins=False), links.line(b"A grp q", begins=False))


def test_a_stream_of_another_account(links: Links) -> None:
    links.other.subscribe(b"from.st.1", b"from.st.2 q 1")
    for leaf in links.first, links.second:
        links.told(leaf, b"LS+ st.1", b"LS+ st.2 q 1")
    links.routed(
        *(links.line(b"B from.st.1"), links.line(b"B from.st.2 q 1")),
        *(links.line(b"A st.1", shadow=True), links.line(b"A st.2 q 1", shadow=True)),
    )
    links.first.publish(b"st.1", b"x")
    links.first.publish(b"st.2", b"y", to=b"| q")
    links.first.fence()
    expected = [b"LMSG from.st.1 1\r\nx\r\n", b"LMSG from.st.2 | q 1\r\ny\r\n"]
    assert messages(links.other.fence()) == expected
    assert messages(links.second.fence()) == []
    links.other.unsubscribe(b"from.st.1", b"from.st.2 q")
    links.told(links.first, b"LS- st.1", b"LS- st.2 q")
    links.routed(
        *(links.line(b"B from.st.1", begins=False), links.line(b"B from.st.2 q", begins=False)),
        links.line(b"A st.1", shadow=True, begins=False),
        links.line(b"A st.2 q", shadow=True, begins=False),
    )


def test_a_route_that_does_not_know_the_name_of_no_cluster(old_links: Links) -> None:
    links = old_links
    links.other.subscribe(b"from.st.1", b"from.st.2 q 1")
    links.second.subscribe(b"foo")
    links.routed(
        *(links.line(b"B from.st.1"), links.line(b"B from.st.2 q 1"), links.line(b"A foo")),
        *(links.line(b"A st.1", shadow=True), links.line(b"A st.2 q 1", shadow=True)),
    )
    links.other.unsubscribe(b"from.st.1")
    links.routed(links.line(b"B from.st.1", begins=False), links.line(b"A st.1", shadow=True, begins=False))


@pytest.mark.parametrize("origin", [b"LMSG X", b"LMSG _", b"LMSG Y", b"RMSG"])
def test_a_message_over_a_route(links: Links, origin: bytes) -> None:
    links.other.subscribe(b"from.st.1")
    links.second.subscribe(b"st.1")
    size = b" 0 1" if origin.startswith(b"L") else b" 1"
    links.route.send(origin + b" A st.1" + size + b"\r\nx\r\n")
    links.route.fence()
    assert messages(links.other.fence()) == [b"LMSG from.st.1 1\r\nx\r\n"]
    back = origin == b"LMSG X" and links.cluster == "X"
    assert messages(links.second.fence()) == ([] if back else [b"LMSG st.1 1\r\nx\r\n"])


def test_a_service_of_another_account(links: Links) -> None:
    links.first.subscribe(b"svc.1")
    links.other.subscribe(b"inbox")
    links.other.publish(b"ask.1", b"ask", to=b"inbox")
    op = heard(links.first, b"HMSG svc.1 ")
    assert b'Nats-Request-Info: {"acc":"B"' in op
    links.first.publish(op.split(b" ")[2], b"answer")
    assert heard(links.other, b"LMSG inbox ") == b"LMSG inbox 6\r\nanswer\r\n"


@pytest.mark.parametrize("verb", [b"RS+", b"LS+ X", b"LS+ _"])
def test_a_service_behind_a_route(links: Links, verb: bytes) -> None:
    """The message is no longer that of the cluster, nor is its answer."""
    links.other.subscribe(b"inbox")
    links.route.send(verb + b" A svc.2\r\n")
    links.route.fence()
    links.other.publish(b"ask.2", b"ask", to=b"inbox")
    op = links.route.await_op(b"HMSG A svc.2 ")
    assert b'Nats-Request-Info: {"acc":"B"' in op
    links.route.send(b"RMSG A %b 6\r\nanswer\r\n" % op.split(b" ")[3])
    assert heard(links.other, b"LMSG inbox ") == b"LMSG inbox 6\r\nanswer\r\n"


@pytest.mark.parametrize(
    ("verb", "told"), [(b"RS", True), (b"LS _", True), (b"LS X", False), (b"LS Y", True)]
)
def test_interest_over_a_route(links: Links, verb: bytes, told: bool) -> None:
    """Messages of the cluster go to the route with its name, whoever wants them."""
    word, _, origin = verb.partition(b" ")
    rest = b" ".join(filter(None, (origin, b"A far")))
    links.route.send(b"%b+ %b\r\n" % (word, rest))
    links.route.fence()
    known = told or not links.cluster
    links.told(links.first, *([b"LS+ far"] if known else []))
    links.first.publish(b"far", b"x")
    form = b"LMSG X A far 0 1\r\nx\r\n" if links.cluster else b"RMSG A far 1\r\nx\r\n"
    assert links.route.await_op(form[:4] + b" ") == form
    links.route.send(b"%b- %b\r\n" % (word, rest))
    links.route.fence()
    links.told(links.first, *([b"LS- far"] if known else []))
