"""The system account over a route: what the server announces, hears of other servers, and answers them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.caller import Caller
from support.clusters import launch_routed
from support.launch import Launch
from support.monitor import monitor
from support.reload import reload
from support.routepeer import Fake
from support.servers import Kind, Server, until
from support.wire import CRLF, Closed, parse_info

from gnats.nkeys.identity import server_hash

pytestmark = pytest.mark.timeout(60)

SYSTEM = b"SYS"
CONFIG = """
server_name: S
system_account: SYS
accounts {
  SYS { users: [ { user: sys, password: pw } ] }
  A { users: [ { user: a, password: pw } ], limits { max_connections: 3 } }
}
"""
PAGES = (
    "IDZ", "STATSZ", "VARZ", "SUBSZ", "CONNZ", "ROUTEZ", "GATEWAYZ", "LEAFZ", "ACCOUNTZ", "JSZ", "HEALTHZ",
    "PROFILEZ", "EXPVARZ", "IPQUEUESZ", "RAFTZ",
)  # fmt: skip
ACCOUNT_PAGES = ("SUBSZ", "CONNZ", "LEAFZ", "JSZ", "INFO", "STATZ", "CONNS")
ANNOUNCED = {
    "_INBOX_.{id}", "_INBOX.{hash}.*", "LATENCY.M2.{hash}",
    "REQ.SERVER.PING", "REQ.ACCOUNT.NSUBS", "REQ.ACCOUNT.PING.STATZ",
    "SERVER.*.STATSZ", "SERVER.*.SHUTDOWN", "SERVER.*.LAMEDUCK", "SERVER.ACCOUNT.*.CONNS",
    *(f"REQ.SERVER.PING.{page}" for page in PAGES),
    *(f"REQ.SERVER.{{id}}.{what}" for what in (*PAGES, "RELOAD", "KICK", "LDM")),
    *(f"REQ.ACCOUNT.*.{page}" for page in ACCOUNT_PAGES),
}  # fmt: skip
"""What all servers announce, without `$SYS.`."""
REFERENCE_ANNOUNCES = {
    "ACCOUNT.*.CLAIMS.UPDATE",
    "REQ.ACCOUNT.*.CLAIMS.UPDATE",
    "ACCOUNT.*.LEAFNODE.CONNECT",
}
"""What gnats has only in operator mode, or cannot serve yet."""
GNATS_ANNOUNCES = {"DEBUG.SUBSCRIBERS", "REQ.USER.*.INFO"}
"""What nats-server keeps to itself. gnats ignores such requests when another server's clients send them."""


EXCEEDED = b"-ERR 'maximum account active connections exceeded'"


class Other:
    """Another server: a fake peer's connection for the system account, and the events that it sends."""

    def __init__(self, fake: Fake, server: Server) -> None:
        self.fake = fake
        self.peer = fake.pinned(server, SYSTEM)
        self.seq = 0
        self.answers = 0

    @property
    def server_id(self) -> str:
        """The id of the server under test."""
        server_id: str = self.peer.info["server_id"]
        return server_id

    def info(self, **changes: Any) -> dict[str, Any]:
        """Describe the fake server as in its events, with the next sequence number."""
        self.seq += 1
        time = "2026-01-01T00:00:00Z"
        known = {"name": self.fake.name, "host": "127.0.0.1", "id": self.fake.id, "ver": "2.15.1"}
        return known | {"jetstream": False, "flags": 0, "seq": self.seq, "time": time} | changes

    def say(self, subject: str, body: object) -> None:
        """Publish a JSON document; bytes are sent as they are."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.peer.message(SYSTEM, subject.encode(), payload)

    def statsz(self, **changes: Any) -> None:
        """Say that the fake server lives."""
        self.say(f"$SYS.SERVER.{self.fake.id}.STATSZ", {"server": self.info(**changes), "statsz": {}})

    def conns(self, account: str, number: int, subject: str = "$SYS.SERVER.ACCOUNT.{}.CONNS") -> None:
        """Say how many clients of an account the fake server has."""
        event = {"type": "io.nats.server.advisory.v1.account_connections", "id": "X", "timestamp": None}
        event |= {"server": self.info(), "acc": account, "conns": number, "total_conns": number}
        self.say(subject.format(account), event)

    def wants(self, *subjects: bytes) -> None:
        """Subscribe to subjects."""
        self.peer.tell(b"RS+", SYSTEM, *subjects)

    def hear(self, begins: str, fits: Callable[[Any], bool] = lambda body: True) -> Any:
        """Return the JSON of the next message whose subject begins so, and that fits."""
        found: Any = None

        def wanted(op: bytes) -> bool:
            nonlocal found
            line, _, payload = op.partition(CRLF)
            if not line.startswith((f"RMSG {begins}".encode(), f"HMSG {begins}".encode())):
                return False
            found = json.loads(payload[payload.index(b"{") :] if b"{" in payload else payload)
            return fits(found)

        self.peer.await_op(wanted)
        return found

    def ask(self, subject: str, body: object = b"") -> str:
        """Send a request; return the subject of its answer."""
        self.answers += 1
        inbox = f"answer.{self.answers}"
        if self.answers == 1:
            self.wants(b"answer.*")
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.peer.message(SYSTEM, subject.encode(), payload, to=inbox.encode())
        return inbox

    def request(self, subject: str, body: object = b"") -> Any:
        """Send a request, and return the JSON of its answer."""
        return self.hear(f"{self.ask(subject, body)} ")

    def active_servers(self) -> int:
        """Ask the server how many servers it knows, after all that came over this connection before.

        nats-server answers requests for statistics apart from what it hears, the others in order.
        """
        self.request("$SYS.REQ.SERVER.PING.IDZ")
        number: int = self.request("$SYS.REQ.SERVER.PING.STATSZ")["statsz"]["active_servers"]
        return number


@pytest.fixture(scope="module")
def server(launch_shared: Launch) -> Server:
    return launch_routed(launch_shared, "-DV", config=CONFIG)


@pytest.fixture
def fresh(launch: Launch) -> Server:
    """A server that knows no other yet."""
    return launch_routed(launch, "-DV", config=CONFIG)


@pytest.fixture
def other(server: Server) -> Iterator[Other]:
    with Fake() as fake:
        other = Other(fake, server)
        yield other
        other.say(f"$SYS.SERVER.{fake.id}.SHUTDOWN", other.info())
        other.active_servers()


# -- what the server announces -----------------------------------------------------------------------------


def test_subscriptions_are_announced(server: Server, other: Other, kind: Kind) -> None:
    also = REFERENCE_ANNOUNCES if kind.is_reference else GNATS_ANNOUNCES
    names = {"id": other.server_id, "hash": server_hash("S")}
    expected = {f"RS+ $SYS.{each}".format(**names).encode() for each in ANNOUNCED | also}
    told: set[bytes] = set()
    while not expected <= told:
        told |= set(other.peer.interest(other.peer.opening, SYSTEM))
        other.peer.opening = [other.peer.read_op()] if not expected <= told else []
    assert told == expected


# -- servers that come and go ------------------------------------------------------------------------------


def test_another_server_is_known_from_its_statistics_on(fresh: Server) -> None:
    with Fake() as fake:
        other = Other(fake, fresh)
        assert other.active_servers() == 1
        other.statsz()
        assert other.active_servers() == 2
        other.say("$SYS.SERVER.NOPE.SHUTDOWN", other.info())
        assert other.active_servers() == 2
        other.say(f"$SYS.SERVER.{fake.id}.SHUTDOWN", other.info())
        assert other.active_servers() == 1


def test_a_new_server_is_answered_with_statistics(server: Server, other: Other) -> None:
    mine = f"$SYS.SERVER.{other.server_id}.STATSZ "
    other.wants(b"$SYS.SERVER.*.STATSZ")
    other.statsz()
    said = other.hear(mine, lambda body: body["statsz"]["active_servers"] == 2)
    assert said["server"]["name"] == "S"
    assert said["statsz"]["routes"][0]["name"] == other.fake.name


@pytest.mark.parametrize("what", ["SHUTDOWN", "LAMEDUCK"])
def test_a_server_that_goes_is_forgotten(other: Other, what: str) -> None:
    other.statsz()
    assert other.active_servers() == 2
    other.say(f"$SYS.SERVER.{other.fake.id}.{what}", other.info())
    assert other.active_servers() == 1
    other.statsz()  # a server in lame duck mode goes on
    assert other.active_servers() == 2


def test_each_server_counts_once(server: Server, other: Other) -> None:
    with Fake() as second:
        another = Other(second, server)
        for each in (other, another, other):
            each.statsz()
            each.active_servers()
        assert other.active_servers() == 3
        other.say(f"$SYS.SERVER.{second.id}.SHUTDOWN", another.info())
        assert other.active_servers() == 2


def test_the_route_may_end_before_the_server_is_gone(server: Server, other: Other) -> None:
    with Fake() as second:
        another = Other(second, server)
        another.statsz()
        another.active_servers()
    assert other.active_servers() == 2
    other.say(f"$SYS.SERVER.{second.id}.SHUTDOWN", other.info())
    assert other.active_servers() == 1


def test_events_come_in_order(server: Server, other: Other) -> None:
    other.statsz(seq=7)
    other.statsz(seq=7)
    text = re.escape(f'Received out of order remote server update from: "{other.fake.id}"')
    server.wait_log(rf"\[ERR\] {text}")
    assert other.active_servers() == 2


def test_the_server_is_not_another_one(server: Server, other: Other) -> None:
    other.statsz(id=other.server_id)
    assert other.active_servers() == 1


@pytest.mark.parametrize(
    ("subject", "body", "line"),
    [
        ("SERVER.X.STATSZ", b"", "DBG] Received empty server info for remote server update"),
        ("SERVER.X.STATSZ", b"{", "DBG] Received bad server info for remote server update"),
        ("SERVER.X.STATSZ", b'{"server":1}', "DBG] Received bad server info for remote server update"),
        (
            "SERVER.X.SHUTDOWN",
            b"",
            'ERR] Remote server sent invalid (empty) shutdown message to "$SYS.SERVER.X.SHUTDOWN"',
        ),
        ("SERVER.X.LAMEDUCK", b"[]", "DBG] Received bad server info for remote server shutdown"),
        ("SERVER.ACCOUNT.A.CONNS", b"", "ERR] SYSTEM - No message body provided"),
        (
            "SERVER.ACCOUNT.A.CONNS",
            b"{",
            "ERR] SYSTEM - Error unmarshalling account connection event message: unexpected end of JSON",
        ),
        (
            "SERVER.ACCOUNT.A.CONNS",
            b'{"server":{"id":"ME"},"acc":"A"}',
            "ERR] SYSTEM - Processing our own account connection event message: ignored",
        ),
    ],
)
def test_odd_events(server: Server, other: Other, subject: str, body: bytes, line: str) -> None:
    other.say(f"$SYS.{subject}", body.replace(b"ME", other.server_id.encode()))
    server.wait_log(re.escape(line))
    assert other.active_servers() == 1


# -- clients on several servers ----------------------------------------------------------------------------


def clients(server: Server) -> int:
    """Return the number of the server's clients of A."""
    number: int = monitor(server, "/connz?auth=1&acc=A")["num_connections"]
    return number


def test_an_accounts_clients_are_announced(server: Server, other: Other) -> None:
    other.wants(b"$SYS.SERVER.ACCOUNT.*.CONNS", b"$SYS.ACCOUNT.*.SERVER.CONNS")
    for number in (1, 2):
        client = Caller(server, "a")
        old, new = other.hear("$SYS.SERVER.ACCOUNT.A.CONNS "), other.hear("$SYS.ACCOUNT.A.SERVER.CONNS ")
        for event in (old, new):
            assert (event["acc"], event["conns"], event["total_conns"]) == ("A", 1, 1), number
            assert event["server"]["id"] == other.server_id
        client.connection.close()
        assert other.hear("$SYS.SERVER.ACCOUNT.A.CONNS ")["conns"] == 0
        other.hear("$SYS.ACCOUNT.A.SERVER.CONNS ")


def test_an_accounts_clients_are_asked_for(server: Server, other: Other) -> None:
    with Caller(server, "a"):
        event = other.request("$SYS.REQ.ACCOUNT.A.CONNS", {"server": other.info(), "acc": "A"})
        assert (event["acc"], event["conns"], event["server"]["name"]) == ("A", 1, "S")
    until(lambda: clients(server) == 0)
    inbox = other.ask("$SYS.REQ.ACCOUNT.A.CONNS", {"acc": "A"})
    other.active_servers()
    assert not [op for op in other.peer.seen if f"RMSG {inbox} ".encode() in op]


@pytest.mark.parametrize("subject", ["$SYS.SERVER.ACCOUNT.{}.CONNS", "inbox"])
def test_the_limit_counts_the_clients_of_all_servers(server: Server, other: Other, subject: str) -> None:
    other.conns("A", 2, f"$SYS._INBOX_.{other.server_id}" if subject == "inbox" else subject)
    assert other.active_servers() == 2
    with Caller(server, "a") as first:
        with pytest.raises(Closed) as refused:
            Caller(server, "a")
        assert EXCEEDED in refused.value.args[0]
        other.conns("A", 1)
        other.active_servers()
        with Caller(server, "a"):
            first.fence()
            other.conns("A", 0)
            other.active_servers()
            with Caller(server, "a"):
                assert clients(server) == 3
    until(lambda: clients(server) == 0)


def test_clients_beyond_the_limit_are_closed(server: Server, other: Other) -> None:
    with (
        Caller(server, "a") as first,
        Caller(server, "a", inbox="_I.2") as second,
        Caller(server, "a") as third,
    ):
        other.conns("A", 2)
        for late in (second, third):
            assert EXCEEDED in late.connection.rest()
        first.fence()
        other.conns("A", 99)
        assert EXCEEDED in first.connection.rest()
    until(lambda: clients(server) == 0)


def test_a_server_that_goes_takes_its_clients(server: Server, other: Other) -> None:
    other.conns("A", 3)
    other.active_servers()
    with pytest.raises(Closed):
        Caller(server, "a")
    other.say(f"$SYS.SERVER.{other.fake.id}.SHUTDOWN", other.info())
    assert other.active_servers() == 1
    with Caller(server, "a"):
        pass
    until(lambda: clients(server) == 0)


def test_events_of_unknown_accounts_are_ignored(server: Server, other: Other) -> None:
    other.conns("NOPE", 3)
    assert other.active_servers() == 1


def test_a_new_account_is_asked_for(launch: Launch) -> None:
    server = launch_routed(launch, "-DV", config=CONFIG)
    with Fake() as fake:
        other = Other(fake, server)
        other.wants(b"$SYS.REQ.ACCOUNT.*.CONNS")
        text = server.conf.read_text().partition("\nio_threads")[0]
        reload(server, text.replace("A {", "B { users: [ { user: b, password: pw } ] }\nA {"))
        request = other.hear("$SYS.REQ.ACCOUNT.B.CONNS ")
        assert (request["acc"], request["server"]["id"]) == ("B", other.server_id)


# -- subscribers on several servers ------------------------------------------------------------------------


def test_subscribers_are_counted_for_another_server(server: Server, other: Other) -> None:
    subject = "$SYS.REQ.ACCOUNT.NSUBS"
    with Caller(server, "a") as client:
        client.subscribe("foo.x")
        client.subscribe("foo.x")
        client.subscribe("foo.*", "g")
        assert other.request(subject, {"acc": "A", "subject": "foo.x"}) == 3
        assert other.request(subject, {"acc": "A", "subject": "foo.>"}) == 3
        queue = base64.b64encode(b"g").decode()
        assert other.request(subject, {"acc": "A", "subject": "foo.x", "queue": queue}) == 1
        assert other.request(subject, {"acc": "A", "subject": "none"}) == 0


def test_subscribers_of_all_servers_are_summed(server: Server, other: Other) -> None:
    other.conns("SYS", 2)
    other.wants(b"$SYS.REQ.ACCOUNT.NSUBS")
    with Caller(server, "sys") as client:
        client.subscribe("foo.*")
        inbox = client.ask("$SYS.DEBUG.SUBSCRIBERS", b"foo.*")
        op = other.peer.await_op(b"RMSG $SYS.REQ.ACCOUNT.NSUBS ")
        line, _, payload = op.partition(CRLF)
        reply = line.split()[2]
        assert re.fullmatch(rf"\$SYS\._INBOX\.{server_hash('S')}\.\w+".encode(), reply)
        assert json.loads(payload) == {"acc": "SYS", "subject": "foo.*"}
        other.peer.message(SYSTEM, reply, b"4")
        assert client.next_on(inbox).payload == b"5"


def test_a_server_that_does_not_answer_is_not_counted(server: Server, other: Other) -> None:
    other.conns("SYS", 2)
    other.active_servers()
    with Caller(server, "sys") as client:
        client.subscribe("foo")
        assert client.request("$SYS.DEBUG.SUBSCRIBERS", b"foo").payload == b"1"
        other.conns("SYS", 0)
        other.active_servers()
        assert client.request("$SYS.DEBUG.SUBSCRIBERS", b"foo").payload == b"1"


# -- requests ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ("IDZ", "STATSZ")])
def test_pages_are_answered_over_a_route(server: Server, other: Other, page: str) -> None:
    for whom in ("PING", other.server_id):
        answer = other.request(f"$SYS.REQ.SERVER.{whom}.{page}", {"server_name": "S"})
        assert answer["server"]["id"] == other.server_id
        assert "error" not in answer


def test_the_smallest_pages_are_answered_over_a_route(server: Server, other: Other) -> None:
    for whom in ("PING", other.server_id):
        assert other.request(f"$SYS.REQ.SERVER.{whom}.IDZ")["id"] == other.server_id
        assert other.request(f"$SYS.REQ.SERVER.{whom}.STATSZ")["server"]["id"] == other.server_id


@pytest.mark.parametrize("page", [page for page in ACCOUNT_PAGES if page != "CONNS"])
def test_pages_of_accounts_are_answered_over_a_route(server: Server, other: Other, page: str) -> None:
    with Caller(server, "a"):
        answer = other.request(f"$SYS.REQ.ACCOUNT.A.{page}")
        assert answer["server"]["id"] == other.server_id
        assert answer.get("error", {}).get("description") == (
            "jetstream not enabled" if page == "JSZ" else None
        )


def test_a_filter_leaves_the_server_out(server: Server, other: Other) -> None:
    inbox = other.ask("$SYS.REQ.SERVER.PING.VARZ", {"server_name": "another"})
    other.active_servers()
    assert not [op for op in other.peer.seen if f"RMSG {inbox} ".encode() in op]


def test_a_client_is_closed_over_a_route(server: Server, other: Other) -> None:
    with Caller(server, "a") as client:
        answer = other.request(f"$SYS.REQ.SERVER.{other.server_id}.KICK", {"cid": client.cid})
        assert "error" not in answer
        with pytest.raises(Closed):
            client.next()
        gone = {"code": 500, "description": "no such client or leafnode id"}
        # Its socket is closed before the server forgets it.
        kick = f"$SYS.REQ.SERVER.{other.server_id}.KICK"
        until(lambda: other.request(kick, {"cid": client.cid}).get("error") == gone)


def test_a_client_is_sent_away_over_a_route(server: Server, other: Other) -> None:
    with Caller(server, "a") as client:
        answer = other.request(f"$SYS.REQ.SERVER.{other.server_id}.LDM", {"cid": client.cid})
        assert "error" not in answer
        while not (op := client.connection.read_op()).startswith(b"INFO "):
            pass
        assert parse_info(op)["ldm"] is True


def test_only_own_clients_may_ask_for_subscribers(server: Server, other: Other) -> None:
    inbox = other.ask("$SYS.DEBUG.SUBSCRIBERS", b"foo")
    other.active_servers()
    assert not [op for op in other.peer.seen if f"RMSG {inbox} ".encode() in op]


def test_only_own_clients_may_ask_for_their_user(server: Server, other: Other, kind: Kind) -> None:
    inbox = other.ask("$SYS.REQ.USER.A.INFO")
    other.active_servers()
    said = [op for op in other.peer.seen if f"RMSG {inbox} ".encode() in op]
    assert all(b'"data":{"user":"","account":""}' in op for op in said)
    assert bool(said) == kind.is_reference
