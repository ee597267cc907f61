"""Messages that come over a route: which clients of the server get them, and in which form."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support import routepairs
from support.accounts import Member
from support.clusters import launch_routed
from support.launch import Launch
from support.routepairs import BLOCK, CONFIG, FORMS, Pair
from support.routepeer import Fake, RoutePeer, messages
from support.servers import Server
from support.wire import Connection, header

from .cases import params

pytestmark = pytest.mark.timeout(60)

HEADER = header("A: 1")
ACK = b"$JS.ACK.S.C.1.2.3.1700000000000000000.0"
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


def heard(pair: Pair, *sent: bytes) -> bytes:
    """Have the peer send bytes; return what the client receives."""
    pair.peer.send(b"".join(sent))
    pair.peer.fence()
    return pair.client.hear()


# The arguments and the body of a message, and what a client with SUB foo.bar 1 and SUB foo.* g 2 gets of it.
FORWARDED: dict[str, tuple[bytes, bytes, bytes]] = {
    "plain": (b"RMSG", b"foo.bar 2\r\nhi\r\n", b"MSG foo.bar 1 2\r\nhi\r\n"),
    "empty": (b"RMSG", b"foo.bar 0\r\n\r\n", b"MSG foo.bar 1 0\r\n\r\n"),
    "reply": (b"RMSG", b"foo.bar inbox 2\r\nhi\r\n", b"MSG foo.bar 1 inbox 2\r\nhi\r\n"),
    "group": (
        b"RMSG",
        b"foo.bar | g 2\r\nhi\r\n",
        b"MSG foo.bar 1 2\r\nhi\r\nMSG foo.bar 2 2\r\nhi\r\n",
    ),
    "group and reply": (
        b"RMSG",
        b"foo.bar + inbox g 2\r\nhi\r\n",
        b"MSG foo.bar 1 inbox 2\r\nhi\r\nMSG foo.bar 2 inbox 2\r\nhi\r\n",
    ),
    "other group": (b"RMSG", b"foo.bar | h 2\r\nhi\r\n", b"MSG foo.bar 1 2\r\nhi\r\n"),
    "several groups": (
        b"RMSG",
        b"foo.bar | h g i 2\r\nhi\r\n",
        b"MSG foo.bar 1 2\r\nhi\r\nMSG foo.bar 2 2\r\nhi\r\n",
    ),
    "group alone": (b"RMSG", b"foo.baz | g 2\r\nhi\r\n", b"MSG foo.baz 2 2\r\nhi\r\n"),
    "group not named": (b"RMSG", b"foo.baz 2\r\nhi\r\n", b""),
    "header": (
        b"HMSG",
        b"foo.bar 18 20\r\n%bhi\r\n" % HEADER,
        b"HMSG foo.bar 1 18 20\r\n%bhi\r\n" % HEADER,
    ),
    "header and reply": (
        b"HMSG",
        b"foo.bar inbox 18 18\r\n%b\r\n" % HEADER,
        b"HMSG foo.bar 1 inbox 18 18\r\n%b\r\n" % HEADER,
    ),
    "header and group": (
        b"HMSG",
        b"foo.baz | g 18 20\r\n%bhi\r\n" % HEADER,
        b"HMSG foo.baz 2 18 20\r\n%bhi\r\n" % HEADER,
    ),
    "header, group and reply": (
        b"HMSG",
        b"foo.baz + inbox h g 18 20\r\n%bhi\r\n" % HEADER,
        b"HMSG foo.baz 2 inbox 18 20\r\n%bhi\r\n" % HEADER,
    ),
    "empty header": (b"HMSG", b"foo.bar 0 2\r\nhi\r\n", b"MSG foo.bar 1 2\r\nhi\r\n"),
    "no interest": (b"RMSG", b"nobody inbox 2\r\nhi\r\n", b""),
    "small letters, tabs": (b"rmsg", b"foo.bar\tinbox  2\r\nhi\r\n", b"MSG foo.bar 1 inbox 2\r\nhi\r\n"),
}


@pytest.mark.parametrize(("verb", "sent", "expected"), params(FORWARDED))
def test_forms(pair: Pair, verb: bytes, sent: bytes, expected: bytes) -> None:
    pair.client.say(b"SUB foo.bar 1", b"SUB foo.* g 2")
    assert heard(pair, pair.line(verb, sent).removesuffix(b"\r\n")) == expected


def test_from_a_leaf(pooled: Pair) -> None:
    pooled.client.say(b"SUB foo 1")
    assert heard(pooled, b"LMSG origin A foo 0 2\r\nhi\r\n") == b"MSG foo 1 2\r\nhi\r\n"


def test_byte_by_byte(pooled: Pair) -> None:
    pooled.client.say(b"SUB foo.bar 1", b"SUB foo.* g 2")
    sent = b"HMSG A foo.bar + inbox h g 18 20\r\n%bhi\r\nRMSG A foo.bar 2\r\nhi\r\n" % HEADER
    for byte in sent:
        pooled.peer.send(b"%c" % byte)
    pooled.peer.fence()
    assert pooled.client.hear() == (
        b"HMSG foo.bar 1 inbox 18 20\r\n%bhi\r\nHMSG foo.bar 2 inbox 18 20\r\n%bhi\r\n" % (HEADER, HEADER)
        + b"MSG foo.bar 1 2\r\nhi\r\n"
    )


def test_a_client_without_headers(server: Server, pooled: Pair) -> None:
    with Member(server, "a", ',"headers":false,"no_responders":false') as client:
        client.say(b"SUB foo 1")
        pooled.peer.message(b"A", b"foo", b"hi", header=HEADER)
        pooled.peer.fence()
        assert client.hear() == b"MSG foo 1 2\r\nhi\r\n"


def test_a_payload_is_not_limited(pooled: Pair) -> None:
    payload = b"x" * (3 << 20)
    pooled.client.say(b"SUB foo 1")
    pooled.peer.message(b"A", b"foo", payload)
    pooled.peer.fence()
    assert pooled.client.hear() == b"MSG foo 1 %d\r\n%b\r\n" % (len(payload), payload)


def test_all_subscribers_get_it_in_order(server: Server, pair: Pair) -> None:
    user = pair.account.decode().lower()
    with Member(server, user) as second, Member(server, user, ',"echo":false') as third:
        for client in pair.client, second, third:
            client.say(b"SUB foo.* 1")
        sent = [b"foo.%d 4\r\n%04d\r\n" % (n % 7, n) for n in range(MANY)]
        pair.peer.send(b"".join(pair.line(b"RMSG", line).removesuffix(b"\r\n") for line in sent))
        pair.peer.fence()
        expected = b"".join(b"MSG foo.%d 1 4\r\n%04d\r\n" % (n % 7, n) for n in range(MANY))
        assert [client.hear() for client in (pair.client, second, third)] == [expected] * 3


def test_members_of_a_group_share(server: Server, pair: Pair) -> None:
    with Member(server, pair.account.decode().lower()) as other:
        pair.client.say(b"SUB foo g 1")
        other.say(b"SUB foo.> g 1", b"SUB * g 2")
        pair.peer.send(pair.line(b"RMSG", b"foo | g 1\r\nx") * MANY)
        pair.peer.fence()
        ours, theirs = (client.hear().count(b"MSG foo ") for client in (pair.client, other))
        assert ours + theirs == MANY
        assert min(ours, theirs) > MANY / 5


def test_local_members_come_first(server: Server, pooled: Pair) -> None:
    """Remote members of the group get nothing, however many there are."""
    with Fake() as other:
        beside = other.pooled(server, b"A")
        for peer in pooled.peer, beside:
            peer.tell(b"RS+", b"A", b"foo g 9")
        pooled.client.say(b"SUB foo g 1")
        pooled.peer.send(b"RMSG A foo | g 1\r\nx\r\n" * 50)
        pooled.peer.fence()
        assert pooled.client.hear().count(b"MSG foo 1 1\r\nx\r\n") == 50
        assert [*messages(pooled.after()), *messages(beside.after(pooled.client.connection, b"A"))] == []


def test_no_message_goes_on_to_a_route(server: Server, pooled: Pair) -> None:
    with Fake() as other:
        beside = other.pooled(server, b"A")
        for peer in pooled.peer, beside:
            peer.tell(b"RS+", b"A", b"foo", b"foo g 1")
        pooled.peer.message(b"A", b"foo", b"hi")
        pooled.peer.message(b"A", b"foo", b"hi", to=b"| h")
        pooled.peer.fence()
        assert [*messages(pooled.after()), *messages(beside.after(pooled.client.connection, b"A"))] == []


def test_a_group_without_local_members_is_asked_elsewhere(server: Server, pooled: Pair) -> None:
    """The member may have left: then the message goes on to another route, or back."""
    pooled.peer.tell(b"RS+", b"A", b"foo g 1")
    pooled.peer.message(b"A", b"foo", b"hi", to=b"+ inbox h g")
    assert pooled.peer.until(b"RMSG ")[-1] == b"RMSG A foo + inbox g 2\r\nhi\r\n"
    pooled.peer.tell(b"RS-", b"A", b"foo g")
    with Fake() as other:
        beside = other.pooled(server, b"A")
        beside.tell(b"RS+", b"A", b"foo g 1")
        pooled.peer.message(b"A", b"foo", b"hi", to=b"| g")
        assert beside.await_op(b"RMSG ") == b"RMSG A foo | g 2\r\nhi\r\n"


def test_a_peer_is_not_told_of_no_responders(pooled: Pair) -> None:
    pooled.peer.tell(b"RS+", b"A", b"inbox")
    pooled.peer.message(b"A", b"nobody", b"hi", to=b"inbox")
    assert messages(pooled.peer.fence()) == []


def test_mappings_are_the_publishers_matter(pooled: Pair) -> None:
    pooled.client.say(b"SUB map.x 1", b"SUB mapped.x 2")
    assert heard(pooled, b"RMSG A map.x 2\r\nhi\r\n") == b"MSG map.x 1 2\r\nhi\r\n"


def test_an_unknown_account(server: Server, pooled: Pair) -> None:
    pooled.client.say(b"SUB foo 1")
    assert heard(pooled, b"RMSG NOPE foo 2\r\nhi\r\nRMSG A foo 2\r\nho\r\n") == b"MSG foo 1 2\r\nho\r\n"
    pooled.peer.wait_logged(server, 'DBG Unknown account "NOPE" for routed message on subject: "foo"')


@pytest.fixture
def importer(server: Server) -> Iterator[Member]:
    with Member(server, "b") as client:
        yield client
        routepairs.unsubscribe(client)


def test_an_imported_stream(pooled: Pair, importer: Member) -> None:
    pooled.client.say(b"SUB st.x 1")
    importer.say(b"SUB in.st.x 1", b"SUB in.> 2", b"SUB in.st.* g 3")
    assert heard(pooled, b"RMSG A st.x inbox 2\r\nhi\r\n") == b"MSG st.x 1 inbox 2\r\nhi\r\n"
    got = importer.hear()
    assert sorted(got.split(b"MSG ")[1:]) == [b"in.st.x 1 inbox 2\r\nhi\r\n", b"in.st.x 2 inbox 2\r\nhi\r\n"]
    assert heard(pooled, b"RMSG A st.y | g 2\r\nhi\r\n") == b""
    got = importer.hear()
    assert sorted(got.split(b"MSG ")[1:]) == [b"in.st.y 2 2\r\nhi\r\n", b"in.st.y 3 2\r\nhi\r\n"]


def test_a_service_is_not_imported_for_a_peer(server: Server, pooled: Pair) -> None:
    pooled.client.say(b"SUB svc 1")
    with Fake() as other:
        peer = other.pooled(server, b"B")
        peer.send(b"RMSG B svc inbox 2\r\nhi\r\n")
        peer.fence()
        assert pooled.client.hear() == b""


@pytest.mark.parametrize("form", ["no pool", "pinned"])
def test_the_system_account(server: Server, fake: Fake, form: str) -> None:
    peer: RoutePeer = fake.dial(server) if form == "no pool" else fake.pinned(server, b"SYS")
    with Member(server, "s") as client:
        client.say(b"SUB $SYS.SERVER.*.STATSZ 1")
        peer.message(b"SYS", b"$SYS.SERVER.X.STATSZ", b"{}")
        peer.fence()
        assert b"MSG $SYS.SERVER.X.STATSZ 1 2\r\n{}\r\n" in client.hear()


# Replies of JetStream's deliveries, and what the client with SUB deliver 1 sees as subject and reply.
ACKS: dict[str, tuple[bytes, bytes, bytes]] = {
    "remapped": (ACK + b"@stored.x", b"stored.x", b" " + ACK),
    "long form": (
        b"$JS.ACK.d.h.S.C.1.2.3.1700000000000000000.0.r@stored.x",
        b"stored.x",
        b" $JS.ACK.d.h.S.C.1.2.3.1700000000000000000.0.r",
    ),
    "an @ in a name": (
        b"$JS.ACK.S@x.C@y.1.2.3.17.0@stored@x",
        b"stored@x",
        b" $JS.ACK.S@x.C@y.1.2.3.17.0",
    ),
    "too few dots": (b"$JS.ACK.S.C.1.2.3.17@stored.x", b"deliver", b" $JS.ACK.S.C.1.2.3.17@stored.x"),
    "nothing behind": (ACK + b"@", b"deliver", b" " + ACK + b"@"),
    "no @": (ACK, b"deliver", b" " + ACK),
    "another subject": (b"$JS.ACX.S.C.1.2.3.4.0@stored.x", b"deliver", b" $JS.ACX.S.C.1.2.3.4.0@stored.x"),
}


@pytest.mark.parametrize(("reply", "subject", "shown"), params(ACKS))
def test_deliveries_of_streams(pair: Pair, reply: bytes, subject: bytes, shown: bytes) -> None:
    pair.client.say(b"SUB deliver 1", b"SUB deliver g 2", b"SUB stored.x 3")
    expected = b"MSG %b 1%b 2\r\nhi\r\n" % (subject, shown)
    assert heard(pair, pair.line(b"RMSG", b"deliver %b 2\r\nhi" % reply)) == expected
    grouped = pair.line(b"HMSG", b"deliver + %b g 18 20\r\n%bhi" % (reply, HEADER))
    assert heard(pair, grouped) == b"".join(
        b"HMSG %b %d%b 18 20\r\n%bhi\r\n" % (subject, sid, shown, HEADER) for sid in (1, 2)
    )


# What no route may send: the arguments, and the error in the log.
REFUSED: dict[str, tuple[bytes, str]] = {
    "too little": (b"RMSG A 1\r\n", "processRoutedMsgArgs Parse Error: '[A 1]'"),
    "negative size": (b"RMSG A foo -1\r\n", "processRoutedMsgArgs Bad or Missing Size: '[A foo -1]'"),
    "no size": (b"RMSG A foo x\r\n", "processRoutedMsgArgs Bad or Missing Size: '[A foo x]'"),
    "reply and group": (
        b"RMSG A foo inbox g 0\r\n\r\n",
        "processRoutedMsgArgs Bad or Missing Reply Indicator: 'inbox'",
    ),
    "wrong mark": (
        b"RMSG A foo x inbox g 0\r\n\r\n",
        "processRoutedMsgArgs Bad or Missing Reply Indicator: 'x'",
    ),
    "header, too little": (b"HMSG A foo 1\r\n", "processRoutedHeaderMsgArgs Parse Error: '[A foo 1]'"),
    "no header size": (
        b"HMSG A foo x 3\r\nabc\r\n",
        "processRoutedHeaderMsgArgs Bad or Missing Header Size: 'A foo x 3'",
    ),
    "header longer than all": (
        b"HMSG A foo 5 3\r\nabc\r\n",
        "processRoutedHeaderMsgArgs Header Size larger then TotalSize: 'A foo 5 3'",
    ),
    "leaf, too little": (
        b"LMSG o A foo 1\r\n",
        "processRoutedOriginClusterMsgArgs Parse Error: '[o A foo 1]'",
    ),
}


@pytest.mark.parametrize(("sent", "log"), params(REFUSED))
def test_refused(server: Server, fake: Fake, sent: bytes, log: str) -> None:
    peer = fake.pooled(server, b"A")
    peer.send(sent)
    assert peer.rest() == []
    peer.wait_logged(server, f"ERR {log}")
    peer.wait_logged(server, f"INF Router connection closed: Protocol Violation - Remote: {fake.name}")


def test_a_payload_longer_than_told(server: Server, fake: Fake) -> None:
    peer = fake.pooled(server, b"A")
    peer.send(b"RMSG A foo 3\r\nabcdef\r\n")
    assert peer.rest() == [b"-ERR 'Unknown Protocol Operation'\r\n"]


def test_a_client_gets_what_came_before_the_route_closed(server: Server, pooled: Pair) -> None:
    pooled.client.say(b"SUB foo 1")
    pooled.peer.send(b"RMSG A foo 2\r\nhi\r\n" * 100 + b"FOO\r\n")
    assert pooled.peer.rest()[-1] == b"-ERR 'Unknown Protocol Operation'\r\n"
    assert pooled.client.hear() == b"MSG foo 1 2\r\nhi\r\n" * 100


def test_responses_of_the_peer_reach_the_requester(server: Server, pooled: Pair, importer: Member) -> None:
    """The service is at the peer, the requester of another account here."""
    pooled.peer.tell(b"RS+", b"A", b"svc")
    importer.say(b"SUB inbox 1", b"PUB svc inbox 2", b"hi")
    request = pooled.peer.await_op(b"HMSG A svc ")
    reply = request.split(b" ")[3]
    pooled.peer.message(b"A", reply, b"done")
    pooled.peer.fence()
    assert importer.hear() == b"MSG inbox 1 4\r\ndone\r\n"


def test_verbs_of_clients_have_no_account(server: Server, pooled: Pair) -> None:
    """PUB is read on a route, and its message belongs to no account."""
    pooled.client.say(b"SUB foo 1")
    with Fake() as other:
        peer = other.pooled(server, b"A")
        peer.send(b"PUB foo 2\r\nhi\r\n")
        assert peer.fence() == []
    assert pooled.client.hear() == b""


def test_a_connection_that_left_gets_nothing(server: Server, pooled: Pair) -> None:
    with Connection(server.address) as client:
        client.send(b'CONNECT {"verbose":false,"user":"a","pass":"p"}\r\nSUB foo 1\r\n')
        client.fence()
    pooled.client.say(b"SUB foo 1")
    assert heard(pooled, b"RMSG A foo 2\r\nhi\r\n") == b"MSG foo 1 2\r\nhi\r\n"
