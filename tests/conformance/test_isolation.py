"""Accounts are isolated: a client's own Nats-Request-Info header does not let it act for another account."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from support.caller import Caller, Message
from support.launch import Launch
from support.servers import Kind, Server

pytestmark = pytest.mark.timeout(120)

CONFIG = """
server_name: srv
system_account: SYS
jetstream { store_dir: js }
accounts {
  SYS { users: [{user: s, password: pw}]
        exports [{service: "$SYS.DEBUG.SUBSCRIBERS"}] }
  A { jetstream: enabled, users: [{user: a, password: pw}]
      mappings { "alias.>": "$JS.API.>" }
      imports [{service: {account: SYS, subject: "$SYS.DEBUG.SUBSCRIBERS"}}] }
  B { jetstream: enabled, users: [{user: b, password: pw}]
      exports [{service: "$JS.API.STREAM.NAMES", accounts: [D]}
               {service: "svc"}] }
  C { users: [{user: c, password: pw}] }
  D { users: [{user: d, password: pw}]
      imports [{service: {account: B, subject: "$JS.API.STREAM.NAMES"}, to: "names.of.b"}] }
}
"""

INFO = b"Nats-Request-Info: "
CLAIMS = [b'{"acc":"B"}', b'{"acc":"A","svc":"B"}', b"{}", b'{"acc":"SYS"}', b"", b"null"]
BLOCKS = [
    b"NATS/1.0\r\n%b\r\n\r\n",
    b"NATS/1.0\r\nX: y\n%b\r\n\r\n",
    b"NATS/1.0\r\nX: y\n%b\n\r\n\r\n",
    b"NATS/1.0\n%b\n\n",
    b"NATS/1.0\n%b\r\n\r\n",
    b"%b\r\n\r\n",
    b"%b\n\n",
    b"%b",
    b"\n%b\r\n\r\n",
    b"\r\n%b\r\n\r\n",
    b"NATS/1.0\r%b\r\r",
    b"NATS/1.0\r\n\r\n%b\r\n\r\n",
    b"NATS/1.0\r\n%b\r\n",
    b"NATS/1.0\r\n%b\r",
    b"NATS/1.0\r\n%b",
    b"NATS/1.0\r\n%b\0\r\n\r\n",
    b"NATS/1.0\r\n\0%b\r\n\r\n",
    b"NATS/1.0\r\n %b\r\n\r\n",
    b"NATS/1.0\r\nX: y\r\r\n%b\r\n\r\n",
    b"NATS/1.0\r\nNats-Request-InfoX: y\r\n%b\r\n\r\n",
    b"NATS/1.0\r\nX: Nats-Request-Info: y\r\n%b\r\n\r\n",
    b"NATS/1.0\r\n%b\r\n" + INFO + b'{"acc":"B"}\r\n\r\n',
    b"NATS/1.0\r\n%b\r\n" + INFO + b'{"acc":"B"}XX',
    b"NATS/1.0\r\n" + INFO + b'{"acc":\r\n%b\r\n\r\n',
    b"NATS/1.0 100 %b\r\n\r\n",
]
FORGED = [block % (INFO + claim) for block in BLOCKS for claim in CLAIMS] + [
    b'NATS/1.0\r\nnats-request-info: {"acc":"B"}\r\n\r\n',
    b'NATS/1.0\r\nNats-Request-Info:{"acc":"B"}\r\n\r\n',
    b'NATS/1.0\r\nNats-Request-Info :{"acc":"B"}\r\n\r\n',
    b'NATS/1.0\r\nNats-Request-Info:\t {"acc":"B"}\r\n\r\n',
    b"N",
    b"\r\n",
]


NOT_FOUND, NOT_ENABLED, NO_JSON, NOT_EMPTY = 10059, 10039, 10025, 10038


class World:
    """A server, and a client for each of its accounts; accounts A and B have streams OF_A and OF_B."""

    def __init__(self, server: Server, stack: ExitStack) -> None:
        self.server = server
        self.misreads = server.kind.is_reference
        """The reference does not find its own Nats-Request-Info in some of these blocks. It then takes the
        request for the system account's, which has no JetStream here, or does not answer."""
        self.callers = {
            user: stack.enter_context(Caller(server, user, inbox=f"_INBOX.{user}")) for user in "sabcd"
        }

    def __getitem__(self, user: str) -> Caller:
        return self.callers[user]

    def answers(self, user: str, subject: str, payload: bytes, headers: list[bytes]) -> list[Message]:
        """Send a request with each header block and a last good one; return the answers that come."""
        caller = self[user]
        for header in headers:
            caller.ask(subject, payload, header)
        found = []
        last = caller.ask(subject, payload, b"NATS/1.0\r\nLast: 1\r\n\r\n")
        while (message := caller.next()).subject != last:
            found.append(message)
        return [*found, message]

    def own(self, answer: Message, *err_codes: int) -> bool:
        """Return True for an answer with one of these error codes, or with none where none is given.

        A reference that misreads may also answer NOT_ENABLED.
        """
        found = answer.json.get("error", {}).get("err_code", 0)
        return found in (err_codes or (0,)) or (self.misreads and found == NOT_ENABLED)


@pytest.fixture
def world(launch: Launch) -> Iterator[World]:
    with ExitStack() as stack:
        world = World(launch(config=CONFIG), stack)
        for user, name in (("a", "OF_A"), ("b", "OF_B")):
            config = {"name": name, "subjects": [f"{name}.>"]}
            assert "error" not in world[user].request(f"$JS.API.STREAM.CREATE.{name}", config).json
            assert world[user].request(f"{name}.1", b"kept").json["seq"] == 1
        yield world


def streams(world: World, user: str) -> list[str]:
    return list(world[user].request("$JS.API.STREAM.NAMES").json["streams"] or ())


@pytest.mark.parametrize("subject", ["$JS.API.STREAM.NAMES", "alias.STREAM.NAMES"])
def test_who_asks_the_api_is_known_by_the_connection(world: World, subject: str) -> None:
    for answer in world.answers("a", subject, b"", FORGED):
        assert world.own(answer), answer
        assert answer.json.get("streams") in (["OF_A"], None)


def test_an_account_without_jetstream_has_none(world: World) -> None:
    for answer in world.answers("c", "$JS.API.STREAM.NAMES", b"", [b"", *FORGED]):
        assert world.own(answer, NOT_ENABLED), answer


def test_nothing_of_another_account_is_read_or_deleted(world: World) -> None:
    for verb, payload in (
        ("STREAM.INFO.OF_B", b""),
        ("STREAM.MSG.GET.OF_B", b'{"seq":1}'),
        ("STREAM.PURGE.OF_B", b""),
        ("STREAM.DELETE.OF_B", b""),
        ("CONSUMER.CREATE.OF_B.C", b'{"stream_name":"OF_B","config":{"name":"C"}}'),
    ):
        for answer in world.answers("a", f"$JS.API.{verb}", payload, FORGED):
            # The servers take a header block of one or two bytes for the beginning of the payload.
            assert world.own(answer, NOT_FOUND, NO_JSON, NOT_EMPTY), (verb, answer)
    assert streams(world, "a") == ["OF_A"]
    state = world["b"].request("$JS.API.STREAM.INFO.OF_B").json["state"]
    assert (state["messages"], state["consumer_count"]) == (1, 0)


@pytest.mark.parametrize("user", ["a", "c"])
def test_only_the_system_account_purges_accounts(world: World, user: str) -> None:
    caller = world[user]
    for header in [b"", *FORGED]:
        caller.publish("$JS.API.ACCOUNT.PURGE.B", b"", f"_INBOX.{user}.purged", header)
    caller.fence()
    assert streams(world, "b") == ["OF_B"]
    assert world["s"].request("$JS.API.ACCOUNT.PURGE.B").json["initiated"] is True
    assert streams(world, "b") == []


def test_a_user_is_told_about_itself_only(world: World) -> None:
    for user, account in (("a", "A"), ("c", "C")):
        for answer in world.answers(user, "$SYS.REQ.USER.INFO", b"", FORGED):
            found = answer.json
            if "data" in found:  # the reference cannot parse some of the headers that it rewrote itself
                assert (found["data"]["user"], found["data"]["account"]) == (user, account), answer


def test_the_account_that_an_import_leads_through_is_the_one_that_is_meant(world: World) -> None:
    for answer in world.answers("d", "names.of.b", b"", FORGED):
        assert world.own(answer), answer
        assert answer.json.get("streams") in (["OF_B"], None)


def test_subscribers_are_counted_in_the_own_account(world: World) -> None:
    world["b"].subscribe("only.in.b")
    for answer in world.answers("a", "$SYS.DEBUG.SUBSCRIBERS", b"only.in.b", FORGED):
        assert answer.payload in (b"0", b""), answer


def test_the_system_account_asks_for_itself(kind: Kind, world: World) -> None:
    """A header does not make a request of the system account one of another account."""
    if kind.is_reference:
        pytest.skip("the reference believes the header of a system account's client")
    for answer in world.answers("s", "$JS.API.STREAM.NAMES", b"", FORGED):
        assert world.own(answer, NOT_ENABLED), answer
