"""Messages of a server's clients on their way to a peer: their form, groups, order, services, mappings."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from support import routepairs
from support.accounts import Member
from support.clusters import launch_routed
from support.launch import Launch
from support.routepairs import BLOCK, CONFIG, FORMS, Pair
from support.routepeer import Fake, messages
from support.servers import Server
from support.wire import header

from .cases import params

pytestmark = pytest.mark.timeout(60)

HEADER = header("A: 1")
MANY = 400


@pytest.fixture(scope="module")
def server(launch_shared: Launch) -> Server:
    return launch_routed(launch_shared, "-D", config=CONFIG, cluster=BLOCK)


@pytest.fixture
def fake() -> Iterator[Fake]:
    with Fake() as fake:
        yield fake


@pytest.fixture(params=FORMS)
def pair(server: Server, fake: Fake, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with routepairs.pair(server, fake, request.param) as pair:
        yield pair


@pytest.fixture
def pooled(server: Server, fake: Fake) -> Iterator[Pair]:
    with routepairs.pair(server, fake, "pool") as pair:
        yield pair


def forwarded(pair: Pair, *sent: bytes) -> list[bytes]:
    """Have the client send lines; return the messages that the peer gets."""
    pair.client.say(*sent)
    return messages(pair.after())


# What the client sends, and the verb, arguments and body that a peer with RS+ foo gets.
FORMS_SENT: dict[str, tuple[bytes, bytes, bytes]] = {
    "plain": (b"PUB foo 2\r\nhi", b"RMSG", b"foo 2\r\nhi"),
    "empty": (b"PUB foo 0\r\n", b"RMSG", b"foo 0\r\n"),
    "reply": (b"PUB foo inbox 2\r\nhi", b"RMSG", b"foo inbox 2\r\nhi"),
    "header": (b"HPUB foo 18 20\r\n%bhi" % HEADER, b"HMSG", b"foo 18 20\r\n%bhi" % HEADER),
    "header and reply": (
        b"HPUB foo inbox 18 18\r\n%b" % HEADER,
        b"HMSG",
        b"foo inbox 18 18\r\n%b" % HEADER,
    ),
    "blanks": (b"pub  foo\tinbox   002\r\nhi", b"RMSG", b"foo inbox 002\r\nhi"),
}


@pytest.mark.parametrize(("sent", "verb", "expected"), params(FORMS_SENT))
def test_forms(pair: Pair, sent: bytes, verb: bytes, expected: bytes) -> None:
    pair.peer.tell(b"RS+", pair.account, b"foo")
    assert forwarded(pair, sent) == [pair.line(verb, expected)]


# The same with RS+ foo g 1.
FORMS_OF_GROUPS: dict[str, tuple[bytes, bytes, bytes]] = {
    "plain": (b"PUB foo 2\r\nhi", b"RMSG", b"foo | g 2\r\nhi"),
    "reply": (b"PUB foo inbox 2\r\nhi", b"RMSG", b"foo + inbox g 2\r\nhi"),
    "header": (b"HPUB foo 18 20\r\n%bhi" % HEADER, b"HMSG", b"foo | g 18 20\r\n%bhi" % HEADER),
    "header and reply": (
        b"HPUB foo inbox 18 18\r\n%b" % HEADER,
        b"HMSG",
        b"foo + inbox g 18 18\r\n%b" % HEADER,
    ),
}


@pytest.mark.parametrize("plain", [False, True], ids=["group", "group and plain"])
@pytest.mark.parametrize(("sent", "verb", "expected"), params(FORMS_OF_GROUPS))
def test_forms_of_groups(pair: Pair, sent: bytes, verb: bytes, expected: bytes, plain: bool) -> None:
    pair.peer.tell(b"RS+", pair.account, b"foo g 1", *[b"foo"] * plain)
    assert forwarded(pair, sent) == [pair.line(verb, expected)]


def test_one_message_for_all_that_matches(pair: Pair) -> None:
    pair.peer.tell(b"RS+", pair.account, b"foo.bar", b"foo.*", b"foo.>", b"foo.* g 2", b"foo.bar h 1", b">")
    (message,) = forwarded(pair, b"PUB foo.bar inbox 2\r\nhi")
    words = message.removesuffix(b" 2\r\nhi\r\n").split(b" ")
    assert sorted(words[-2:]) == [b"g", b"h"]
    assert b" ".join(words[:-2]) == pair.line(b"RMSG", b"foo.bar + inbox").removesuffix(b"\r\n")


def test_no_interest_no_message(pair: Pair) -> None:
    pair.peer.tell(b"RS+", pair.account, b"foo", b"foo g 1", b"bar")
    pair.peer.tell(b"RS-", pair.account, b"foo", b"foo g")
    assert forwarded(pair, b"PUB foo 2\r\nhi", b"PUB bar.x 2\r\nhi") == []


def test_to_several_peers(server: Server, pair: Pair) -> None:
    form = "pinned" if pair.account == b"P" else "pool"
    with Fake() as second, Fake() as third:
        others = [routepairs.route(server, fake, form)[0] for fake in (second, third)]
        for peer in pair.peer, *others:
            peer.tell(b"RS+", pair.account, b"foo")
        others[1].tell(b"RS+", pair.account, b"foo g 1")
        pair.client.say(b"PUB foo 2\r\nhi")
        client = pair.client.connection
        got = [messages(peer.after(client, pair.account)) for peer in (pair.peer, *others)]
        assert got[0] == [pair.line(b"RMSG", b"foo 2\r\nhi")]
        assert got[1] == [others[0].line(b"RMSG", pair.account, b"foo 2\r\nhi")]
        assert got[2] == [others[1].line(b"RMSG", pair.account, b"foo | g 2\r\nhi")]


def test_in_order(pair: Pair) -> None:
    pair.peer.tell(b"RS+", pair.account, b"foo", b"bar g 1")
    sent = [
        b"%b %b" % (b"foo inbox" if number % 3 else b"bar", b"%d\r\n%06d" % (6, number))
        for number in range(1000)
    ]
    got = forwarded(pair, *(b"PUB " + line for line in sent))
    assert [int(message.split(b"\r\n")[1]) for message in got] == list(range(1000))


def test_a_large_message(pair: Pair) -> None:
    pair.peer.tell(b"RS+", pair.account, b"foo")
    payload = b"x" * (1 << 20)
    lines = (b"PUB foo 1\r\na", b"PUB foo %d\r\n%b" % (len(payload), payload), b"PUB foo 1\r\nb")
    assert forwarded(pair, *lines) == [
        pair.line(b"RMSG", b"foo 1\r\na"),
        pair.line(b"RMSG", b"foo %d\r\n%b" % (len(payload), payload)),
        pair.line(b"RMSG", b"foo 1\r\nb"),
    ]


@pytest.mark.parametrize("where", ["CONNECT", "INFO"])
def test_a_peer_without_headers(server: Server, fake: Fake, where: str) -> None:
    """INFO counts: it comes last."""
    changes = {"headers": None}
    peer = fake.dial(
        server,
        connect=changes if where == "CONNECT" else {},
        **(changes if where == "INFO" else {}),
    )
    peer.tell(b"RS+", b"A", b"foo")
    with Member(server, "a") as client:
        client.say(b"HPUB foo inbox 18 20\r\n%bhi" % HEADER)
        got = messages(peer.after(client.connection, b"A"))
    with_header = b"HMSG A foo inbox 18 20\r\n%bhi\r\n" % HEADER
    assert got == [with_header if where == "CONNECT" else b"RMSG A foo inbox 2\r\nhi\r\n"]


def test_a_group_of_weight_0(pooled: Pair) -> None:
    """It gets nothing, while there is another member."""
    pooled.peer.tell(b"RS+", b"A", b"foo g 0")
    pooled.client.say(b"SUB foo g 1")
    heard = pooled.client.say(*[b"PUB foo 1\r\nx"] * 50)
    assert heard == b"MSG foo 1 1\r\nx\r\n" * 50
    assert messages(pooled.after()) == []


def share(pair: Pair, number: int = MANY) -> tuple[int, int]:
    """Publish; return how many messages the client has got, and how many the peer."""
    ours = pair.client.say(*[b"PUB foo 1\r\nx"] * number).count(b"MSG ")
    theirs = messages(pair.after())
    assert set(theirs) <= {pair.line(b"RMSG", b"foo | g 1\r\nx")}
    return ours, len(theirs)


def test_a_group_of_the_peer_alone(pair: Pair) -> None:
    pair.peer.tell(b"RS+", pair.account, b"foo g 1")
    assert share(pair, 20) == (0, 20)


def test_members_share_by_weight(pair: Pair) -> None:
    """Each message goes to one member: of four, three are the peer's. Bounds are nine deviations wide."""
    pair.peer.tell(b"RS+", pair.account, b"foo g 3")
    pair.client.say(b"SUB foo g 1")
    ours, theirs = share(pair)
    assert ours + theirs == MANY
    assert MANY / 20 < ours < MANY * 9 / 20


def test_a_new_weight_counts(pair: Pair) -> None:
    pair.peer.tell(b"RS+", pair.account, b"foo g 30")
    pair.peer.tell(b"RS+", pair.account, b"foo g 1")
    pair.client.say(b"SUB foo g 1", b"SUB foo g 2", b"SUB foo g 3")
    ours, theirs = share(pair)
    assert ours + theirs == MANY
    assert MANY / 20 < theirs < MANY * 9 / 20


def test_peers_share_by_weight(server: Server, pooled: Pair) -> None:
    with Fake() as other:
        beside = other.pooled(server, b"A")
        pooled.peer.tell(b"RS+", b"A", b"foo g 1")
        beside.tell(b"RS+", b"A", b"foo g 3")
        ours, theirs = share(pooled)
        others = len(messages(beside.after(pooled.client.connection, b"A")))
    assert (ours, theirs + others) == (0, MANY)
    assert MANY / 20 < theirs < MANY * 9 / 20


def test_a_group_that_the_peer_left(server: Server, pooled: Pair) -> None:
    pooled.client.say(b"SUB foo g 1")
    with Fake() as other:
        beside = other.pooled(server, b"A")
        beside.tell(b"RS+", b"A", b"foo g 1000000")
        beside.tell(b"RS-", b"A", b"foo g")
        assert share(pooled, 50) == (50, 0)


def test_plain_subscribers_here_and_there_get_all(pair: Pair) -> None:
    pair.client.say(b"SUB foo 1", b"SUB foo g 2")
    pair.peer.tell(b"RS+", pair.account, b"foo")
    assert pair.client.say(b"PUB foo 1\r\nx") == b"MSG foo 1 1\r\nx\r\nMSG foo 2 1\r\nx\r\n"
    assert messages(pair.after()) == [pair.line(b"RMSG", b"foo 1\r\nx")]


def test_echo_is_the_publishers_matter(server: Server, pair: Pair) -> None:
    pair.peer.tell(b"RS+", pair.account, b"foo")
    with Member(server, pair.account.decode().lower(), ',"echo":false') as quiet:
        assert quiet.say(b"SUB foo 1", b"PUB foo 1\r\nx") == b""
        ops = pair.peer.after(quiet.connection, pair.account)
        assert messages(ops) == [pair.line(b"RMSG", b"foo 1\r\nx")]
        quiet.say(b"UNSUB 1")


def test_interest_of_a_peer_is_a_responder(pair: Pair) -> None:
    pair.client.say(b"SUB inbox 1")
    assert b"NATS/1.0 503\r\n" in pair.client.say(b"PUB foo inbox 1\r\nx")
    pair.peer.tell(b"RS+", pair.account, b"foo g 1")
    assert pair.client.say(b"PUB foo inbox 1\r\nx") == b""
    pair.peer.tell(b"RS-", pair.account, b"foo g")
    assert b"NATS/1.0 503\r\n" in pair.client.say(b"PUB foo inbox 1\r\nx")


def test_a_mapping_applies_before(pooled: Pair) -> None:
    pooled.peer.tell(b"RS+", b"A", b"mapped.*", b"map.*")
    assert forwarded(pooled, b"PUB map.x 2\r\nhi") == [b"RMSG A mapped.x 2\r\nhi\r\n"]


@pytest.fixture
def importer(server: Server) -> Iterator[Member]:
    with Member(server, "b") as client:
        yield client
        routepairs.unsubscribe(client)


def test_a_service_at_the_peer(pooled: Pair, importer: Member) -> None:
    """Interest in the response comes first; the request leaves in the exporter's account."""
    pooled.peer.tell(b"RS+", b"A", b"svc")
    importer.say(b"SUB inbox 1", b"PUB svc inbox 2\r\nhi")
    request = pooled.peer.await_op(b"HMSG A svc ")
    line, _, body = request.partition(b"\r\n")
    _, _, _, reply, header_size, _ = line.split(b" ")
    prefix = b".".join(reply.split(b".")[:2])
    assert prefix.startswith(b"_R_.")
    assert b"RS+ A %b.>\r\n" % prefix in pooled.peer.seen
    head, payload = body[: int(header_size)], body[int(header_size) :]
    first, info, *rest = head.split(b"\r\n")
    assert (first, rest, payload) == (b"NATS/1.0", [b"", b""], b"hi\r\n")
    name, _, value = info.partition(b": ")
    assert (name, json.loads(value)["acc"]) == (b"Nats-Request-Info", "B")
    pooled.peer.message(b"A", reply, b"done", header=HEADER)
    pooled.peer.fence()
    assert importer.hear() == b"HMSG inbox 1 18 22\r\n%bdone\r\n" % HEADER


def test_a_service_at_the_peer_without_reply(pooled: Pair, importer: Member) -> None:
    pooled.peer.tell(b"RS+", b"A", b"svc g 1")
    importer.say(b"PUB svc 2\r\nhi")
    request = pooled.peer.await_op(b"HMSG A svc ")
    assert request.startswith(b"HMSG A svc | g ")
    assert request.endswith(b"\r\n\r\nhi\r\n")


def test_a_service_nowhere(importer: Member) -> None:
    importer.say(b"SUB inbox 1")
    assert b"NATS/1.0 503\r\n" in importer.say(b"PUB svc inbox 2\r\nhi")


def test_what_a_subscriber_of_an_import_gets_is_not_sent_on(pooled: Pair, importer: Member) -> None:
    """The stream's message is sent in its own account; the importer's subscription is here."""
    importer.say(b"SUB in.st.x 1")
    pooled.peer.tell(b"RS+", b"A", b"st.x")
    pooled.peer.tell(b"RS+", b"B", b"in.st.x")
    assert forwarded(pooled, b"PUB st.x 2\r\nhi") == [b"RMSG A st.x 2\r\nhi\r\n"]
    assert importer.hear() == b"MSG in.st.x 1 2\r\nhi\r\n"


def test_messages_of_the_peer_do_not_come_back(pair: Pair) -> None:
    pair.peer.tell(b"RS+", pair.account, b"foo", b">")
    pair.client.say(b"SUB foo 1")
    pair.peer.message(pair.account, b"foo", b"hi")
    pair.peer.fence()
    assert pair.client.hear() == b"MSG foo 1 2\r\nhi\r\n"
    assert [op for op in messages(pair.after()) if b"foo" in op] == []
