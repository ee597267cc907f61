"""Imports of clients with permissions or without headers, and with reserved subjects."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.accounts import Member, members, plain
from support.launch import Launch
from support.servers import Server

pytestmark = pytest.mark.timeout(120)

CONFIG = """
system_account: SYS
accounts {
  SYS { users: [{user: s, password: p}] }
  A { users: [{user: a, password: p}
              {user: r, password: p, permissions: {publish: "none", subscribe: ">", allow_responses: true}}
              {user: d, password: p, permissions: {subscribe: {deny: "svc"}}}]
      exports [{stream: "s.>"}, {service: "svc"}, {service: "svc.many", response_type: stream}] }
  B { users: [{user: b, password: p}
              {user: n, password: p, permissions: {subscribe: {deny: ["in.s.secret", "s.secret"]}}}
              {user: o, password: p, permissions: {publish: "svc"}}
              {user: q, password: p, permissions: {publish: "ask"}}]
      imports [{stream: {account: A, subject: "s.>"}, prefix: "in"}
               {service: {account: A, subject: "svc"}, to: "ask"}
               {service: {account: A, subject: "svc.many"}, to: "many"}] }
}
"""


@pytest.fixture(scope="module")
def exchange(launch_shared: Launch) -> Server:
    return launch_shared(config=CONFIG)


@pytest.fixture
def ab(exchange: Server) -> Iterator[list[Member]]:
    with members(exchange, "ab") as found:
        yield found


def test_what_is_denied_is_the_subject_as_it_is_seen(exchange: Server) -> None:
    with members(exchange, "an") as (a, n):
        n.subscribe(b"in.>", b"in.s.* q")
        a.publish(b"s.secret", b"1")
        a.publish(b"s.open", b"2")
        assert sorted(n.hear().split(b"MSG ")[1:]) == [b"in.s.open 1 1\r\n2\r\n", b"in.s.open 2 1\r\n2\r\n"]


def test_leave_to_publish_is_for_the_subject_that_is_imported_as(exchange: Server) -> None:
    with members(exchange, "aoq") as (a, o, q):
        a.subscribe(b"svc")
        assert o.publish(b"ask") == b"-ERR 'Permissions Violation for Publish to \"ask\"'\r\n"
        assert a.hear() == b""
        assert q.publish(b"ask") == b""
        assert a.hear().startswith(b"HMSG svc 1 ")


def test_a_responder_may_answer_what_it_was_asked_from_elsewhere(exchange: Server) -> None:
    with members(exchange, "rb") as (r, b):
        r.subscribe(b"svc")
        b.subscribe(b"in")
        b.publish(b"ask", b"", b"in")
        reply = r.hear().split(b" ")[3]
        assert r.publish(reply, b"ok") == b""
        assert b.hear() == b"MSG in 1 2\r\nok\r\n"
        assert b"Permissions Violation for Publish" in r.publish(reply, b"ok")


def test_a_responder_that_is_denied_the_request_is_nobody(exchange: Server) -> None:
    with members(exchange, "db") as (d, b):
        d.subscribe(b"*", b"> q")
        b.subscribe(b"in")
        assert b.publish(b"ask", b"", b"in").startswith(b"HMSG in 1 ")
        assert d.hear() == b""


def test_nobody_answers_for_another_account(ab: list[Member]) -> None:
    a, b = ab
    a.subscribe(b"svc")
    b.subscribe(b"in", b"_R_.>")
    b.publish(b"ask", b"", b"in")
    reply = a.hear().split(b" ")[3]
    assert plain(b.publish(reply, b"forged")) == b"MSG _R_ 2 6\r\nforged\r\n"
    assert a.publish(reply, b"ok") == b""
    assert b.hear() == b"MSG in 1 2\r\nok\r\n"


def test_whoever_listens_to_responses_hears_them(ab: list[Member]) -> None:
    a, b = ab
    a.subscribe(b"svc", b"_R_.>")
    b.subscribe(b"in")
    b.publish(b"ask", b"", b"in")
    reply = a.hear().split(b" ")[3]
    assert plain(a.publish(reply, b"ok")) == b"MSG _R_ 2 2\r\nok\r\n"
    assert b.hear() == b"MSG in 1 2\r\nok\r\n"


@pytest.mark.parametrize("key", [b"Nats-Request-Info", b"nats-request-info", b"NATS-REQUEST-INFO"])
def test_who_asks_cannot_be_forged(ab: list[Member], key: bytes) -> None:
    a, b = ab
    a.subscribe(b"svc")
    header = b"NATS/1.0\r\n" + key + b': {"acc":"SYS"}\r\n' + b"X: y\r\n" + key + b': {"acc":"A"}\r\n\r\n'
    b.say(b"HPUB ask %d %d" % (len(header), len(header) + 1), header + b"x")
    heard = a.hear()
    assert b'Nats-Request-Info: {"acc":"B"' in heard
    assert plain(heard).count(b'"acc":"SYS"') == (key != b"Nats-Request-Info")


def test_headers_are_not_for_who_has_none(exchange: Server) -> None:
    without = ',"headers":false,"no_responders":false'
    with (
        members(exchange, "ab") as (a, b),
        Member(exchange, "a", without) as bare,
        Member(exchange, "b", without) as far,
    ):
        bare.subscribe(b"svc")
        far.subscribe(b"in.>")
        b.publish(b"ask", b"body")
        assert bare.hear() == b"MSG svc 1 4\r\nbody\r\n"
        a.say(b"HPUB s.x r 18 19", b"NATS/1.0\r\nA: b\r\n\r\nx")
        assert far.hear() == b"MSG in.s.x 1 r 1\r\nx\r\n"


def test_a_reply_that_is_an_import_itself(ab: list[Member]) -> None:
    """The reply subject is a service import, so the response is also a request to that service."""
    a, b = ab
    a.subscribe(b"svc", b"svc.many")
    b.subscribe(b"many")
    b.publish(b"ask", b"", b"many")
    reply = a.hear().split(b" ")[3]
    heard = a.publish(reply, b"ok")
    assert b.hear() == b"MSG many 1 2\r\nok\r\n"
    assert plain(heard).startswith(b"HMSG svc.many 2")
    assert a.publish(reply, b"again") == b""


def test_subjects_of_raft_groups_are_for_the_system_account(exchange: Server) -> None:
    with members(exchange, "sb") as (s, b):
        s.subscribe(b"$NRG.x")
        assert s.publish(b"$NRG.x") == b"MSG $NRG.x 1 0\r\n\r\n"
        assert b.publish(b"$NRG.x") == b"-ERR 'Permissions Violation for Publish to \"$NRG.x\"'\r\n"
        assert s.hear() == b""
