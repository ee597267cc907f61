"""Interest between servers: RS+ and RS- for the subscriptions of clients, and those that a peer sends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support import routepairs
from support.accounts import Member, members
from support.clusters import launch_routed
from support.launch import Launch
from support.monitor import monitor
from support.routepairs import BLOCK, CONFIG, FORMS, Pair, route, unsubscribe
from support.routepeer import GLOBAL, POOL, SYSTEM, Fake, RoutePeer, pool_index
from support.servers import Server, until
from support.wire import HELLO, Connection

from .cases import UNKNOWN, params

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def server(launch_shared: Launch) -> Server:
    return launch_routed(launch_shared, "-D", config=CONFIG, cluster=BLOCK)


@pytest.fixture(scope="module")
def simple(launch_shared: Launch) -> Server:
    """A server with the global account."""
    return launch_routed(launch_shared, "-D")


@pytest.fixture
def fake() -> Iterator[Fake]:
    with Fake() as fake:
        yield fake


@pytest.fixture(params=FORMS)
def pair(server: Server, fake: Fake, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with routepairs.pair(server, fake, request.param) as pair:
        yield pair


def test_a_subscription(pair: Pair) -> None:
    assert pair.told(b"SUB foo 1") == [b"RS+ foo"]
    assert pair.told(b"UNSUB 1") == [b"RS- foo"]


def test_wildcards(pair: Pair) -> None:
    assert pair.told(b"SUB foo.* 1") == [b"RS+ foo.*"]
    assert pair.told(b"SUB > 2") == [b"RS+ >"]
    assert pair.told(b"SUB foo.a 3") == [b"RS+ foo.a"]
    assert pair.told(b"UNSUB 2") == [b"RS- >"]


def test_only_the_first_and_the_last_of_a_subject_count(pair: Pair) -> None:
    assert pair.told(b"SUB foo 1") == [b"RS+ foo"]
    assert pair.told(b"SUB foo 2") == []
    assert pair.told(b"UNSUB 1") == []
    assert pair.told(b"UNSUB 2") == [b"RS- foo"]


def test_a_groups_weight_is_its_number_of_members(pair: Pair) -> None:
    assert pair.told(b"SUB foo.* g 1") == [b"RS+ foo.* g 1"]
    assert pair.told(b"SUB foo.* g 2") == [b"RS+ foo.* g 2"]
    assert pair.told(b"SUB foo.* h 3") == [b"RS+ foo.* h 1"]
    assert pair.told(b"SUB foo.* 4") == [b"RS+ foo.*"]
    assert pair.told(b"UNSUB 1") == [b"RS+ foo.* g 1"]
    assert pair.told(b"UNSUB 2") == [b"RS- foo.* g"]
    assert pair.told(b"UNSUB 4") == [b"RS- foo.*"]
    assert pair.told(b"UNSUB 3") == [b"RS- foo.* h"]


def test_members_on_several_connections(server: Server, pair: Pair) -> None:
    with Member(server, pair.account.decode().lower()) as other:
        assert pair.told(b"SUB foo g 1") == [b"RS+ foo g 1"]
        other.say(b"SUB foo g 1")
        assert pair.told() == [b"RS+ foo g 2"]
    assert pair.peer.interest(pair.peer.until(b"RS+ "), pair.account) == [b"RS+ foo g 1"]


def test_a_maximum_ends_with_its_last_message(pair: Pair) -> None:
    assert pair.told(b"SUB foo 1", b"UNSUB 1 2") == [b"RS+ foo"]
    assert pair.told(b"PUB foo 0", b"") == []
    assert pair.told(b"PUB foo 0", b"") == [b"RS- foo"]
    assert pair.told(b"SUB foo g 2", b"UNSUB 2 1") == [b"RS+ foo g 1"]
    assert pair.told(b"PUB foo 0", b"") == [b"RS- foo g"]


def test_a_maximum_counts_messages_of_the_peer(pair: Pair) -> None:
    assert pair.told(b"SUB foo 1", b"UNSUB 1 2") == [b"RS+ foo"]
    for _ in range(2):
        pair.peer.message(pair.account, b"foo", b"x")
    assert pair.peer.interest(pair.peer.until(b"RS- "), pair.account) == [b"RS- foo"]
    assert pair.client.hear() == b"MSG foo 1 1\r\nx\r\n" * 2


def test_a_client_that_leaves(server: Server, pair: Pair) -> None:
    with Member(server, pair.account.decode().lower()) as leaving:
        leaving.say(b"SUB foo 1", b"SUB foo.> 2", b"SUB foo g 3", b"SUB bar 4")
        pair.told(b"SUB bar 1")
    gone = {b"RS- foo", b"RS- foo.>", b"RS- foo g"}
    said: list[bytes] = []
    while len(said) < len(gone):
        said += pair.peer.interest(pair.peer.until(b"RS"), pair.account)
    assert (set(said), pair.told()) == (gone, [])


def test_interest_precedes_the_message(pair: Pair) -> None:
    pair.peer.tell(b"RS+", pair.account, b"request")
    pair.client.say(b"SUB inbox.7 1", b"PUB request inbox.7 2", b"hi")
    ops = pair.peer.after(pair.client.connection, pair.account)
    assert ops == [
        pair.peer.line(b"RS+", pair.account, b"inbox.7"),
        pair.peer.line(b"RMSG", pair.account, b"request inbox.7 2") + b"hi\r\n",
    ]


def test_a_new_route_hears_of_all_there_is(server: Server, pair: Pair) -> None:
    pair.client.say(b"SUB foo 1", b"SUB foo 2", b"SUB foo.* g 3", b"SUB foo.* g 4", b"SUB foo.* h 5")
    form = "pinned" if pair.account == b"P" else "pool"
    with Fake() as other:
        peer, account = route(server, other, form)
        ops = peer.opening + peer.after(pair.client.connection, account)
        lines = sorted(peer.interest(ops, account))
    assert lines == [b"RS+ foo", b"RS+ foo.* g 2", b"RS+ foo.* h 1"]


NAMES = b"ABCGP"


def test_a_pool_tells_of_an_account_on_its_connection_only(launch: Launch, fake: Fake) -> None:
    """An account of each index, and one that is pinned; a route without pool gets them all."""
    users = "\n".join(
        f"{name} {{ users: [ {{ user: {name.lower()}, password: p }} ] }}" for name in NAMES.decode()
    )
    server = launch_routed(launch, cluster=BLOCK, config=f"accounts {{ {users} }}")
    peers = [fake.dial(server, route_pool_size=POOL, route_pool_idx=n or None) for n in range(POOL)]
    peers.append(fake.pinned(server, b"P"))
    expected: list[set[bytes]] = [set() for _ in peers]
    with Fake() as plain, members(server, NAMES.lower().decode()) as clients:
        single = plain.dial(server)
        for name, client in zip(NAMES, clients, strict=True):
            account = b"%c" % name
            client.say(b"SUB foo.%b 1" % account)
            at = POOL if account == b"P" else pool_index(account)
            expected[at].add(peers[at].line(b"RS+", account, b"foo." + account))
            heard = {op for op in single.after(client.connection, account) if not op.startswith(b"RS+ $SYS")}
            assert heard == {b"RS+ %b foo.%b\r\n" % (account, account)}
        assert all(expected), expected
        for peer, lines in zip(peers, expected, strict=True):
            for line in lines:
                account = line.split(b".")[1].strip()
                ops = peer.after(clients[NAMES.index(account)].connection, account)
                peer.opening += ops
            assert {op for op in peer.opening if op.startswith(b"RS+ ")} == lines


def test_the_system_account_has_its_connection(simple: Server, fake: Fake) -> None:
    system = fake.pinned(simple)
    if not any(op.startswith(b"RS+ $SYS.REQ.") for op in system.opening):
        system.until(b"RS+ $SYS.REQ.")
    pooled = fake.dial(simple, route_pool_size=POOL)
    assert not [op for op in pooled.opening + pooled.fence() if b"$SYS" in op]


@pytest.fixture
def imports(server: Server, fake: Fake) -> Iterator[tuple[RoutePeer, Member, Member]]:
    """A route of all accounts, a client of A, and one of B, which imports a stream and a service from A."""
    with Member(server, "a") as exporter, Member(server, "b") as importer:
        yield fake.dial(server), exporter, importer
        unsubscribe(exporter)
        unsubscribe(importer)


def told(peer: RoutePeer, client: Member, account: bytes, *lines: bytes) -> list[bytes]:
    """As Pair.told, of the accounts A and B."""
    client.say(*lines)
    ops = peer.after(client.connection, account)
    return [op.removesuffix(b"\r\n") for op in ops if op[4:6] in (b"A ", b"B ")]


def test_an_imported_stream_is_told_in_both_accounts(imports: tuple[RoutePeer, Member, Member]) -> None:
    peer, _, importer = imports
    for subscription, shadow in (b"in.st.x", b"st.x"), (b"in.>", b"st.>"), (b"in.st.y g", b"st.y g"):
        weight = b" 1" if b" g" in shadow else b""
        assert set(told(peer, importer, b"B", b"SUB %b 1" % subscription)) == {
            b"RS+ A %b%b" % (shadow, weight),
            b"RS+ B %b%b" % (subscription, weight),
        }
        assert set(told(peer, importer, b"B", b"UNSUB 1")) == {b"RS- A " + shadow, b"RS- B " + subscription}


def test_a_service_is_told_where_it_is(imports: tuple[RoutePeer, Member, Member]) -> None:
    peer, exporter, importer = imports
    assert told(peer, exporter, b"A", b"SUB svc 1") == [b"RS+ A svc"]
    assert told(peer, importer, b"B", b"SUB svc 1") == [b"RS+ B svc"]


# What a peer may send, and what the server logs of it. The route stays open.
ALLOWED: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "weight 0": (b"RS+ $G foo q 0\r\n", ()),
    "negative weight": (b"RS+ $G foo q -1\r\n", ()),
    "no number as weight": (b"RS+ $G foo q x\r\n", ()),
    "huge weight": (b"RS+ $G foo q 99999999999\r\n", ()),
    "twice": (b"RS+ $G foo\r\n" * 2, ()),
    "nothing to end": (b"RS- $G foo\r\nRS- $G foo q\r\n", ()),
    "small letters, tabs": (b"rs+\t$G\t foo  q   1\r\nrs- $G foo q\r\n", ()),
    "line feed alone": (b"RS+ $G foo\n", ()),
    "for a leaf": (b"LS+ origin $G foo\r\nLS+ origin $G foo q 1\r\nLS- origin $G foo\r\n", ()),
    "unknown account": (b"RS+ NOPE foo\r\n", ('ERR Unknown account "NOPE" for remote subject "foo"',)),
    "unknown account's end": (b"RS- NOPE foo\r\n", ('DBG Unknown account "NOPE" for subject "foo"',)),
    "A+": (b"A+ $G\r\nA- $G\r\n", ()),
    "SUB": (b"SUB foo 1\r\n", ()),
    "UNSUB": (b"UNSUB $G foo\r\n", ()),
    "+OK": (b"+OK\r\n", ()),
    "PONG": (b"PONG\r\n", ()),
    "long line": (b"RS+ $G %b\r\n" % (b"x" * 60_000), ()),
}


@pytest.mark.parametrize(("sent", "log"), params(ALLOWED))
def test_allowed(simple: Server, fake: Fake, sent: bytes, log: tuple[str, ...]) -> None:
    peer = fake.pooled(simple)
    peer.send(sent)
    assert peer.fence() == []
    for line in log:
        peer.wait_logged(simple, line)
    assert not [line for line in peer.logged(simple) if line.startswith("ERR") and line not in log]


@pytest.mark.parametrize("subject", [b"foo..bar", b".", b"foo.>.bar", b"foo."])
def test_an_invalid_subject(simple: Server, fake: Fake, subject: bytes) -> None:
    peer = fake.pooled(simple)
    assert peer.tell(b"RS+", GLOBAL, subject) == [b"-ERR 'Invalid Subscription'\r\n"]
    peer.wait_logged(simple, "ERR Could not insert subscription: sublist: invalid subject")
    assert peer.fence() == []


# What closes the route: the answer, and the beginning of the error in the log.
REFUSED: dict[str, tuple[bytes, bytes, str]] = {
    "no weight": (b"RS+ $G foo q\r\n", b"", "processRemoteSub Parse Error: 'R $G foo q'"),
    "no subject": (b"RS+ $G\r\n", b"", "processRemoteSub Parse Error: 'R $G'"),
    "too much": (b"RS+ $G foo q 1 2\r\n", b"", "processRemoteSub Parse Error: 'R $G foo q 1 2'"),
    "no arguments": (b"RS+\r\n", UNKNOWN, "Router parser ERROR, state="),
    "RS- with a weight": (b"RS- $G foo q 1\r\n", b"", "processRemoteUnsub parse error: '$G foo q 1'"),
    "RS- alone": (b"RS-\r\n", UNKNOWN, "Router parser ERROR, state="),
    "LS+ without origin": (b"LS+ $G foo\r\n", b"", "processRemoteSub Parse Error: 'L $G foo'"),
    "LS- without account": (b"LS- foo\r\n", b"", "processRemoteUnsub parse error: 'foo'"),
    "UNSUB of a sid": (b"UNSUB 1\r\n", b"", "processRemoteUnsub parse error: '1'"),
    "MSG": (b"MSG foo 1 0\r\n\r\n", UNKNOWN, "Router parser ERROR, state=0, i=0: proto='"),
    "unknown verb": (b"FOO\r\n", UNKNOWN, "Router parser ERROR, state=0, i=0: proto='"),
    "too long a line": (
        b"RS+ $G %b\r\n" % (b"x" * 1_100_000),
        b"-ERR 'maximum control line exceeded'\r\n",
        "maximum control line exceeded",
    ),
}


@pytest.mark.parametrize(("sent", "answer", "log"), params(REFUSED))
def test_refused(simple: Server, fake: Fake, sent: bytes, answer: bytes, log: str) -> None:
    peer = fake.pooled(simple)
    peer.send(sent)
    assert b"".join(peer.rest()) == answer
    peer.wait_logged(simple, f"ERR {log}", begins=True)
    reason = "Maximum Control Line Exceeded" if "maximum" in log else "Protocol Violation"
    peer.wait_logged(simple, f"INF Router connection closed: {reason} - Remote: {fake.name}")


def subjects(server: Server, fake: Fake) -> list[str]:
    """Return the subscriptions of a peer with one connection, as /routez writes them."""
    (route,) = (
        route for route in monitor(server, "/routez?subs=detail")["routes"] if route["remote_id"] == fake.id
    )
    return sorted(entry["sid"] for entry in route.get("subscriptions_list_detail", []))


def test_a_subscription_of_the_peer_is_kept_once(simple: Server, fake: Fake) -> None:
    peer = fake.pooled(simple)
    peer.tell(b"RS+", GLOBAL, b"foo", b"foo", b"foo g 1", b"foo g 2", b"foo h 1", b"bar")
    assert subjects(simple, fake) == ["R $G bar", "R $G foo", "R $G foo g", "R $G foo h"]
    peer.tell(b"RS-", GLOBAL, b"foo", b"foo g", b"other")
    assert subjects(simple, fake) == ["R $G bar", "R $G foo h"]
    peer.tell(b"UNSUB", GLOBAL, b"bar")
    assert subjects(simple, fake) == ["R $G foo h"]


def test_the_interest_of_an_unknown_account_is_not_told_on(simple: Server, fake: Fake) -> None:
    fake.pooled(simple).tell(b"RS+", b"NOPE", b"foo")
    assert subjects(simple, fake) == []


def test_interest_of_a_peer_is_not_told_to_others(simple: Server, fake: Fake) -> None:
    peer = fake.pooled(simple)
    with Fake() as other, Connection(simple.address) as client:
        client.send(HELLO)
        client.fence()
        beside = other.pooled(simple)
        peer.tell(b"RS+", GLOBAL, b"foo", b"foo g 1")
        assert not [line for line in beside.interest(beside.after(client)) if b"foo" in line]


PERMISSIONS = """permissions {
  import { allow: ["a.>", q], deny: ["a.no"] }
  export { allow: ["c.>", "mark.>"], deny: ["c.no"] }
}"""


@pytest.fixture
def permitted(launch: Launch) -> Server:
    return launch_routed(launch, "-D", cluster=PERMISSIONS)


def test_only_allowed_imports_are_told(permitted: Server, fake: Fake) -> None:
    peer = fake.dial(permitted)
    with Connection(permitted.address) as client:
        client.send(HELLO)
        for wanted in b"a.x", b"a.*", b"a.>", b"a.x g", b"q g", b"$MQTT.x":
            client.send(b"SUB %b 1\r\n" % wanted)
            weight = b" 1" if b" g" in wanted else b""
            assert peer.interest(peer.after(client)) == [b"RS+ %b%b" % (wanted, weight)]
            client.send(b"UNSUB 1\r\n")
            assert peer.interest(peer.after(client)) == [b"RS- " + wanted]
        for secret in b"a.no", b"a.no g", b"a", b"z", b"z g", b">", b"*.x", b"$JS.x", b"_R_.x", b"$SYS.x":
            client.send(b"SUB %b 1\r\nUNSUB 1\r\n" % secret)
            assert peer.interest(peer.after(client)) == []
    assert peer.interest(peer.seen, SYSTEM) == []


def test_only_allowed_exports_are_heard(permitted: Server, fake: Fake) -> None:
    peer = fake.dial(permitted)
    peer.tell(b"RS+", GLOBAL, b"c.x", b"c.x g 1", b"c.*", b"c.>", b"$MQTT.x")
    for secret in b"c.no", b"z", b"z g 1", b"c", b">", b"*.x", b"_R_.x":
        peer.tell(b"RS+", GLOBAL, secret)
        subject = secret.partition(b" ")[0].decode()
        peer.wait_logged(permitted, f'DBG Can not export "{subject}", ignoring remote subscription request')
    with Connection(permitted.address) as client:
        client.send(HELLO + b"".join(b"PUB %b 0\r\n\r\n" % s for s in (b"c.no", b"z", b"c", b"c.y", b"a.x")))
        assert peer.after(client) == [b"RMSG $G c.y 0\r\n\r\n"]


def test_messages_of_a_peer_need_no_permission(permitted: Server, fake: Fake) -> None:
    peer = fake.dial(permitted)
    with Connection(permitted.address) as client:
        client.send(HELLO + b"SUB z 1\r\nSUB a.no 2\r\n")
        client.fence()
        peer.message(GLOBAL, b"z", b"hi")
        peer.message(GLOBAL, b"a.no", b"hi")
        peer.fence()
        assert client.fence() == [b"MSG z 1 2\r\nhi\r\n", b"MSG a.no 2 2\r\nhi\r\n"]


def test_a_new_weight_is_followed_by_another(pair: Pair) -> None:
    """The peer learns the last weight, however many it learns on the way."""
    lines = pair.told(*(b"SUB foo g %d" % sid for sid in range(20)))
    assert lines[-1] == b"RS+ foo g 20"
    lines = pair.told(*(b"UNSUB %d" % sid for sid in range(19)))
    assert lines[-1] == b"RS+ foo g 1"
    assert pair.told(b"UNSUB 19") == [b"RS- foo g"]


def test_the_end_of_a_route_ends_its_interest(simple: Server, fake: Fake) -> None:
    peer = fake.pooled(simple)
    peer.tell(b"RS+", GLOBAL, b"foo")
    with Connection(simple.address) as client:
        client.send(HELLO + b"SUB inbox 1\r\nPUB foo inbox 0\r\n\r\n")
        assert client.fence() == []
        peer.send(b"FOO\r\n")
        assert peer.rest()[-1] == UNKNOWN

        def refused() -> bool:
            client.send(b"PUB foo inbox 0\r\n\r\n")
            return b"NATS/1.0 503" in b"".join(client.fence())

        until(refused)
