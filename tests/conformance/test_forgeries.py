"""Reply subjects, headers and names with which a client tries to cause requests that it may not send."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from support.caller import Caller
from support.jetstream import Asker
from support.launch import Launch
from support.servers import REFERENCE, Kind, Server

pytestmark = pytest.mark.timeout(120)

CONFIG = """
server_name: srv
system_account: SYS
jetstream { store_dir: js }
accounts {
  SYS { users: [{user: s, password: pw}, {user: little, password: pw, permissions: {publish: [
          "$SYS.REQ.USER.INFO", "$SYS.REQ.SERVER.PING.>", "$JS.API.INFO", "$JS.API.STREAM.NAMES"]}}]
        imports [{service: {account: A, subject: "a.svc"}}] }
  A { jetstream: enabled, users: [{user: a, password: pw}]
      exports [{service: "a.svc"}]
      imports [{service: {account: B, subject: "svc"}}
               {service: {account: B, subject: "shared"}, share: true}] }
  B { jetstream: enabled, users: [{user: b, password: pw}]
      exports [{service: "svc"}, {service: "shared"}] }
}
"""
TARGETS = [
    "$JS.API.STREAM.DELETE.OF_B",
    "$JS.API.STREAM.PURGE.OF_B",
    "$JS.API.ACCOUNT.PURGE.B",
    "$SYS.REQ.CLAIMS.DELETE",
]
OWN = ["$JS.API.STREAM.DELETE.OF_A", "$JS.API.STREAM.PURGE.OF_A"]
"""Requests that the requester may not send itself."""


STREAMS = (("a", "OF_A"), ("b", "OF_B"))


@pytest.fixture(scope="module")
def server(launch_shared: Launch) -> Server:
    """A server whose accounts A and B have a stream each, OF_A and OF_B, with one message.

    The fixture `users` checks after each test that both are as they were.
    """
    server = launch_shared(config=CONFIG)
    for user, name in STREAMS:
        with Caller(server, user) as caller:
            stream = {"name": name, "subjects": [f"{name}.>"]}
            assert "error" not in caller.request(f"$JS.API.STREAM.CREATE.{name}", stream).json
            assert caller.request(f"{name}.1", b"").json["seq"] == 1
    return server


@pytest.fixture
def users(server: Server) -> Iterator[dict[str, Caller]]:
    """A client of each account."""
    with ExitStack() as stack:
        users = {user: stack.enter_context(Caller(server, user, inbox=f"_INBOX.{user}")) for user in "abs"}
        yield users
        for user, name in STREAMS:
            for verb in ("NAMES", f"INFO.{name}"):  # one for each queue of the API, as a fence
                answer = users[user].request(f"$JS.API.STREAM.{verb}").json
                assert answer.get("streams", [name]) == [name]
                assert answer.get("state", {"messages": 1})["messages"] == 1


INFO = b"NATS/1.0\r\nNats-Request-Info: %b\r\n\r\n"
HEADERS = [b"", INFO % b'{"acc":"B"}', INFO % b"{}"]


@pytest.mark.parametrize("target", [*TARGETS, *OWN])
@pytest.mark.parametrize("header", HEADERS)
def test_a_responder_is_not_made_to_ask(users: dict[str, Caller], target: str, header: bytes) -> None:
    """The reply subject names a service of the requester's account; the response does not reach it."""
    a, b = users["a"], users["b"]
    b.subscribe("svc")
    a.publish("svc", b"", target)
    a.fence()
    b.publish(b.next_on("svc").reply, b"", header=header)
    b.fence()


@pytest.mark.parametrize("target", [*TARGETS, *OWN])
@pytest.mark.parametrize("service", ["$SYS.REQ.USER.INFO", "$SYS.REQ.ACCOUNT.PING.CONNZ", "$JS.API.INFO"])
def test_the_server_is_not_made_to_ask(users: dict[str, Caller], service: str, target: str) -> None:
    users["a"].publish(service, b"", target)
    users["a"].fence()
    users["a"].request(service)


@pytest.mark.parametrize("target", TARGETS[2:])
def test_whoever_answers_the_system_account_is_not_of_it(users: dict[str, Caller], target: str) -> None:
    s, a = users["s"], users["a"]
    a.subscribe("a.svc")
    s.publish("a.svc", b"", target)
    s.fence()
    a.publish(a.next_on("a.svc").reply, b"")
    a.fence()


@pytest.mark.parametrize("target", TARGETS)
def test_traces_and_consumers_ask_for_their_own_account(users: dict[str, Caller], target: str) -> None:
    a = users["a"]
    for more in ("", "Nats-Trace-Only: 1\r\n"):
        header = f"NATS/1.0\r\nNats-Trace-Dest: {target}\r\n{more}\r\n".encode()
        a.publish("foo", header=header)
        a.publish("OF_B.1", header=header)
    config = {"name": "c", "deliver_subject": target}
    a.request("$JS.API.CONSUMER.CREATE.OF_A.c", {"stream_name": "OF_A", "config": config})
    a.request("$JS.API.CONSUMER.DELETE.OF_A.c")


def test_acknowledgements_are_an_accounts_own(users: dict[str, Caller]) -> None:
    a, b = users["a"], users["b"]
    config = {"name": "c", "ack_policy": "explicit"}
    assert (
        "error"
        not in b.request("$JS.API.CONSUMER.CREATE.OF_B.c", {"stream_name": "OF_B", "config": config}).json
    )
    b.ask("$JS.API.CONSUMER.MSG.NEXT.OF_B.c", b"1")
    reply = b.next_on("OF_B.1").reply
    for payload in (b"", b"+ACK", b"+TERM", b"-NAK", b"+NXT"):
        a.publish(reply, payload)
    b.subscribe("svc")
    for reserved in (reply, "_R_.abcdef.ghijkl", "$GR.x.y"):
        a.publish("svc", b"", reserved)
    assert all(b"Permissions Violation for Publish with Reply of" in op for op in a.fence())
    numbers = b.request("$JS.API.CONSUMER.INFO.OF_B.c").json
    assert (numbers["num_ack_pending"], numbers["num_redelivered"]) == (1, 0)
    for wrong in ("0.0.0.0.0", "1.99.1.0.0", "1.18446744073709551615.1.0.0", "1.-1.1.0.0", "1.x.1.0.0", "1"):
        b.publish(f"$JS.ACK.OF_B.c.{wrong}", b"+ACK")
    numbers = b.request("$JS.API.CONSUMER.INFO.OF_B.c").json
    assert numbers["num_ack_pending"] == 1


def test_an_account_sees_its_own_pages(users: dict[str, Caller]) -> None:
    a = users["a"]
    for page in ("CONNZ", "STATZ"):
        for body in ({"acc": "B"}, {"account": "B", "auth": True}, {"accounts": ["B"]}, {"user": "b"}):
            answer = a.request(f"$SYS.REQ.ACCOUNT.PING.{page}", body)
            assert b'"B"' not in answer.payload, answer
            assert b'"b"' not in answer.payload, answer


@pytest.mark.parametrize("page", ["$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ"])
def test_an_account_sees_its_own_connections(server: Server, users: dict[str, Caller], page: str) -> None:
    """Also by number: connection ids can be guessed."""
    a = users["a"]
    details = {"auth": True, "subscriptions_detail": True, "subscriptions": True}
    with Caller(server, "b", inbox="_INBOX.gone") as gone:
        closed = gone.cid
    for state in (0, 1, 2):
        for cid in (users["b"].cid, users["s"].cid, closed):
            answer = a.request(page, details | {"cid": cid, "state": state})
            assert not answer.json["data"].get("connections"), answer
    (own,) = a.request(page, details | {"cid": a.cid}).json["data"]["connections"]
    assert own["authorized_user"] == "a"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "service",
    ["$SYS.REQ.USER.INFO", "$SYS.REQ.SERVER.PING.IDZ", "$JS.API.INFO", "$JS.API.STREAM.NAMES"],
)
def test_the_server_does_not_ask_itself(
    server: Server, users: dict[str, Caller], service: str, target: str
) -> None:
    """A user of the system account may not publish to the reply subject, so the answer does nothing there."""
    with Caller(server, "little", inbox="_INBOX.little") as little:
        little.publish(service, b"", target)
        little.fence()
        users["s"].request("$SYS.REQ.SERVER.PING.IDZ")


def test_a_name_is_no_more_than_a_name(server: Server, users: dict[str, Caller]) -> None:
    """A name with JSON or header lines in it does not change Nats-Request-Info."""
    b = users["b"]
    b.subscribe("shared")
    for name in ('","acc":"B', "\r\nNats-Request-Info: {}", "\0", "\ud800", '\\","svc":"B'):
        with Caller(server, "a", inbox="_INBOX.x", name=name, lang=name) as x:
            x.publish("shared")
            x.fence()
            heard = b.next_on("shared").header
            assert heard.count(b"Nats-Request-Info") == 1 + 2 * name.count("Nats-Request-Info")
            assert heard.count(b"\r\n") == 3
            assert b'"acc":"A"' in heard
            assert x.request("$SYS.REQ.USER.INFO").json["data"]["account"] == "A"
            assert x.request("$JS.API.STREAM.NAMES").json["streams"] == ["OF_A"]


@pytest.fixture
def both(kind: Kind, launch: Launch) -> Iterator[Asker]:
    """The reference and the server that is tested."""
    if kind.is_reference:
        pytest.skip("compares another server with the reference")
    with ExitStack() as stack:
        servers = [launch(config="server_name: srv, jetstream { store_dir: js }", kind=REFERENCE)]
        servers.append(launch(config="server_name: srv, jetstream { store_dir: js }"))
        yield Asker(*(stack.enter_context(Caller(server)) for server in servers))


def test_where_a_message_is_from_is_not_for_clients_to_say(both: Asker) -> None:
    stream = {"name": "S", "subjects": ["s"], "allow_atomic": True, "allow_batched": True}
    both.ask("$JS.API.STREAM.CREATE.S", stream)
    for value in (b"S 1 > > s", b"x", b"", b" "):
        forged = b"Nats-Stream-Source: %b\r\n" % value
        both.ask("s", b"x", b"NATS/1.0\r\n%b\r\n" % forged)
        both.ask("s", b"x", b"NATS/1.0\r\nX: y\n%b\r\n" % forged)
        batch = b"Nats-Batch-Id: 1\r\nNats-Batch-Sequence: 1\r\nNats-Batch-Commit: 1\r\n"
        both.ask("s", b"x", b"NATS/1.0\r\n%b%b\r\n" % (batch, forged))
    both.ask("$JS.API.STREAM.INFO.S")


def test_headers_behind_a_bare_line_feed_are_no_headers(both: Asker) -> None:
    """Ingest, storing and recovery agree where a header line begins."""
    stream = {"name": "S", "subjects": ["s.>"], "allow_rollup_hdrs": True}
    stream |= {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True}
    both.ask("$JS.API.STREAM.CREATE.S", stream)
    both.ask("$JS.API.STREAM.CREATE.T", {"name": "T", "subjects": ["t.>"], "allow_msg_ttl": True})
    for line in (b"Nats-Rollup: sub", b"Nats-Msg-Id: 1", b"Nats-Expected-Last-Sequence: 9", b"Nats-TTL: x"):
        for block in (b"X: y\n%b\r\n", b"%b\r\n", b"X: %b\r\n", b"X: y\r\r\n%b\r\n", b"\0\r\n%b\r\n"):
            for prefix in "st":
                both.ask(f"{prefix}.1", b"x", b"NATS/1.0\r\n%b\r\n" % (block % line))
                both.ask(f"{prefix}.1", b"x", block % line)
    for name in "ST":
        both.ask(f"$JS.API.STREAM.INFO.{name}")
