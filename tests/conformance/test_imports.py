"""Streams and services of other accounts: messages to subscribers, requests and their responses."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from support.accounts import Member, members, plain, replies
from support.launch import Launch
from support.monitor import monitor
from support.servers import REFERENCE, Server, until

pytestmark = pytest.mark.timeout(120)

USERS = "users: [{{user: {0}, password: p}}, {{user: {0}2, password: p}}]"
CONFIG = f"""
accounts {{
  A {{ {USERS.format("a")}
      exports [
        {{ stream: "s.>" }}, {{ stream: "lit" }}, {{ stream: "private", accounts: [C] }}
        {{ stream: "for.*.only", account_token_position: 2 }}
        {{ service: "svc" }}, {{ service: "svc.*" }}, {{ service: "whole.>" }}
        {{ service: "quiet", accounts: [B] }}
        {{ service: "streamed", response_type: stream }}, {{ service: "chunked", response: chunked }}
        {{ service: "slow", threshold: "200ms" }}
        {{ service: "slow.stream", response: stream, threshold: "30s" }}
      ]
      mappings {{ "svc.mapped": "svc.elsewhere" }}
  }}
  B {{ {USERS.format("b")}
      exports [ {{ service: "need.svc" }}, {{ stream: "again.>" }} ]
      imports [
        {{ stream: {{ account: A, subject: "s.>" }}, prefix: "from.a" }}
        {{ stream: {{ account: A, subject: "lit" }}, to: "mine" }}
        {{ stream: {{ account: A, subject: "for.B.only" }} }}
        {{ service: {{ account: A, subject: "svc" }}, to: "need.svc" }}
        {{ service: {{ account: A, subject: "svc.*" }}, to: "ask.$1", share: true }}
        {{ service: {{ account: A, subject: "whole.>" }} }}
        {{ service: {{ account: A, subject: "quiet" }} }}
        {{ service: {{ account: A, subject: "streamed" }} }}
        {{ service: {{ account: A, subject: "chunked" }} }}
        {{ service: {{ account: A, subject: "slow" }} }}
        {{ service: {{ account: A, subject: "slow.stream" }} }}
        {{ service: {{ account: D, subject: "twice" }} }}, {{ service: {{ account: E, subject: "twice" }} }}
      ]
  }}
  C {{ {USERS.format("c")}
      imports [
        {{ stream: {{ account: A, subject: "s.*.x" }}, to: "c.$1" }}
        {{ stream: {{ account: A, subject: "private" }} }}
        {{ service: {{ account: B, subject: "need.svc" }}, to: "chained" }}
      ]
  }}
  D {{ {USERS.format("d")}, exports [ {{ service: "twice" }} ] }}
  E {{ {USERS.format("e")}, exports [ {{ service: "twice" }} ] }}
}}
"""


@pytest.fixture(scope="module")
def exchange(launch_shared: Launch) -> Server:
    return launch_shared(config=CONFIG)


@pytest.fixture
def abc(exchange: Server) -> Iterator[list[Member]]:
    with members(exchange, "abc") as found:
        yield found


# -- streams -------------------------------------------------------------------------------------------------

# B's subscription, the subjects that A publishes, and the subjects that B receives them with.
STREAMS = {
    "all of it": (b"from.a.s.>", [b"s.x", b"s.x.y"], [b"from.a.s.x", b"from.a.s.x.y"]),
    "more than it": (b">", [b"s.x", b"lit", b"other"], [b"from.a.s.x", b"mine"]),
    "a part of it": (b"from.a.s.*.y", [b"s.x", b"s.x.y"], [b"from.a.s.x.y"]),
    "one subject of it": (b"from.a.s.x", [b"s.x", b"s.y"], [b"from.a.s.x"]),
    "what crosses it": (b"*.a.*.x", [b"s.x", b"s.y", b"s.x.x"], [b"from.a.s.x"]),
    "its end open": (b"*.a.>", [b"s.x", b"s.x.y"], [b"from.a.s.x", b"from.a.s.x.y"]),
    "a literal one": (b"mine", [b"lit"], [b"mine"]),
    "a literal one by a wildcard": (b"*", [b"lit"], [b"mine"]),
    "its subject in the other account": (b"lit", [b"lit"], []),
    "nothing of it": (b"from.b.>", [b"s.x"], []),
    "what is for the account": (b"for.B.only", [b"for.B.only"], [b"for.B.only"]),
}


@pytest.mark.parametrize(("subject", "published", "heard"), STREAMS.values(), ids=STREAMS.keys())
@pytest.mark.parametrize("queue", [b"", b" q"], ids=["plain", "queue"])
def test_a_subscription_hears(
    abc: list[Member], subject: bytes, queue: bytes, published: list[bytes], heard: list[bytes]
) -> None:
    a, b, _ = abc
    b.subscribe(subject + queue)
    for each in published:
        a.publish(each, b"x", b"r")
    assert b.hear() == b"".join(b"MSG %b 1 r 1\r\nx\r\n" % each for each in heard)


def test_the_subject_may_be_turned_round(abc: list[Member]) -> None:
    a, _, c = abc
    c.subscribe(b"c.*", b"c.q", b"c.other", b"c.* q")
    a.publish(b"s.q.x", b"1")
    heard = c.hear()
    assert sorted(re.findall(rb"MSG (\S+) (\d)", heard)) == [(b"c.q", b"1"), (b"c.q", b"2"), (b"c.q", b"4")]


def test_headers_come_along(abc: list[Member]) -> None:
    a, b, _ = abc
    b.subscribe(b"mine")
    a.say(b"HPUB lit 18 19", b"NATS/1.0\r\nA: b\r\n\r\nx")
    assert b.hear() == b"HMSG mine 1 18 19\r\nNATS/1.0\r\nA: b\r\n\r\nx\r\n"


def test_the_exporter_hears_its_own_as_ever(abc: list[Member]) -> None:
    a, b, _ = abc
    a.subscribe(b"lit", b"*")
    b.subscribe(b"mine")
    assert sorted(re.findall(rb"MSG (\S+) (\d)", a.publish(b"lit"))) == [(b"lit", b"1"), (b"lit", b"2")]
    assert b.hear() == b"MSG mine 1 0\r\n\r\n"


def test_an_unsubscribed_stream_is_silent(abc: list[Member]) -> None:
    a, b, _ = abc
    b.subscribe(b"mine", b"from.>")
    b.say(b"UNSUB 1")
    a.publish(b"lit")
    a.publish(b"s.x")
    assert b.hear() == b"MSG from.a.s.x 2 0\r\n\r\n"
    b.say(b"UNSUB 2")
    a.publish(b"s.x")
    assert b.hear() == b""


def test_a_private_stream_is_for_those_it_names(abc: list[Member]) -> None:
    a, b, c = abc
    b.subscribe(b"private")
    c.subscribe(b"private")
    a.publish(b"private")
    assert b.hear() == b""
    assert c.hear() == b"MSG private 1 0\r\n\r\n"


def test_a_queue_group_spans_the_accounts(exchange: Server) -> None:
    """Members in the exporting and the importing account share a group, each with its own subject."""
    with members(exchange, "aaab") as (publisher, a, a2, b):
        a.subscribe(b"lit q")
        a2.subscribe(b"* q")
        b.subscribe(b"mine q")
        publisher.say(*[b"PUB lit 0\r\n"] * 300)
        counts = [member.hear().count(b"MSG ") for member in (a, a2, b)]
        assert sum(counts) == 300
        assert all(40 < count < 160 for count in counts)


def test_a_limit_is_not_for_what_is_imported(abc: list[Member]) -> None:
    """nats-server's auto-unsubscribe counts only messages published in the subscriber's own account."""
    a, b, _ = abc
    b.subscribe(b"mine")
    b.say(b"UNSUB 1 2")
    a.say(*[b"PUB lit 0\r\n"] * 3)
    assert b.hear().count(b"MSG mine") == 3
    b.say(*[b"PUB mine 0\r\n"] * 3)
    a.say(*[b"PUB lit 0\r\n"] * 3)
    b.hear()
    a.say(b"PUB lit 0\r\n")
    assert b.hear() == b""


def test_what_a_service_gets_does_not_leave_as_a_stream(exchange: Server) -> None:
    """A request that a service import brings into an account does not reach that account's stream exports."""
    with members(exchange, "abc") as (a, b, c):
        a.subscribe(b"svc.s")
        b.subscribe(b"from.>")
        b.publish(b"ask.s", b"x")
        assert a.hear().startswith(b"HMSG svc.s 1 ")
        assert b.hear() == c.hear() == b""


# -- services ------------------------------------------------------------------------------------------------

INFO = b'NATS/1.0\r\nNats-Request-Info: {"acc":"B","rtt":0}\r\n\r\n'


def asked(requester: Member, subject: bytes, payload: bytes = b"?") -> None:
    """Have a client subscribe to "inbox" with sid 9 and send a request with that reply subject."""
    requester.say(b"SUB inbox 9")
    requester.publish(subject, payload, b"inbox")


def test_a_request_is_answered(abc: list[Member]) -> None:
    a, b, _ = abc
    a.subscribe(b"svc")
    asked(b, b"need.svc", b"how?")
    request = a.hear()
    assert plain(request) == b"HMSG svc 1 _R_\r\n" + INFO + b"how?\r\n"
    (reply,) = replies(request)
    assert a.publish(reply, b"so") == b""
    assert b.hear() == b"MSG inbox 9 2\r\nso\r\n"


def test_a_singleton_is_answered_once(abc: list[Member]) -> None:
    a, b, _ = abc
    a.subscribe(b"svc")
    asked(b, b"need.svc")
    (reply,) = replies(a.hear())
    a.publish(reply, b"1")
    a.publish(reply, b"2")
    assert b.hear() == b"MSG inbox 9 1\r\n1\r\n"


def test_who_answers_too_late_is_not_told(abc: list[Member]) -> None:
    a, b, _ = abc
    a.subscribe(b"svc", b"box")
    asked(b, b"need.svc")
    (reply,) = replies(a.hear())
    a.publish(reply, b"1", b"box")
    b.hear()
    assert a.publish(reply, b"2", b"box") == b""
    assert b.hear() == b""


@pytest.mark.parametrize("service", [b"streamed", b"chunked"])
def test_a_stream_of_answers_ends_with_an_empty_one(abc: list[Member], service: bytes) -> None:
    a, b, _ = abc
    a.subscribe(service)
    asked(b, service)
    (reply,) = replies(a.hear())
    for answer in (b"1", b"2", b"", b"3"):
        a.publish(reply, answer)
    assert b.hear() == b"MSG inbox 9 1\r\n1\r\nMSG inbox 9 1\r\n2\r\nMSG inbox 9 0\r\n\r\n"


def test_answers_end_when_the_requester_has_gone(abc: list[Member]) -> None:
    a, b, _ = abc
    a.subscribe(b"streamed")
    asked(b, b"streamed")
    (reply,) = replies(a.hear())
    a.publish(reply, b"1")
    b.say(b"UNSUB 9")
    b.say(b"SUB inbox 9")  # too late: the server has forgotten the response
    a.publish(reply, b"2")
    assert b.hear() == b""


def test_answers_go_on_while_the_requester_listens_somehow(abc: list[Member]) -> None:
    a, b, _ = abc
    a.subscribe(b"streamed")
    b.say(b"SUB inb* 8", b"SUB * 7")
    asked(b, b"streamed")
    (reply,) = replies(a.hear())
    b.say(b"UNSUB 9")
    b.hear()
    a.publish(reply, b"1")
    assert b.hear() == b"MSG inbox 7 1\r\n1\r\n"


def test_answers_to_a_wildcard_inbox_end_with_it(exchange: Server) -> None:
    with members(exchange, "ab") as (a, b):
        a.subscribe(b"streamed")
        b.say(b"SUB _INBOX.x.* 1")
        b.publish(b"streamed", b"", b"_INBOX.x.1")
        b.publish(b"streamed", b"", b"_INBOX.x.2")
        first, second = replies(a.hear())
        a.publish(second, b"2")
        assert b.hear() == b"MSG _INBOX.x.2 1 1\r\n2\r\n"
        b.say(b"UNSUB 1", b"SUB _INBOX.> 2")
        a.publish(first, b"1")
        a.publish(second, b"2")
        assert b.hear() == b""


def test_answers_are_not_waited_for_longer_than_the_threshold(abc: list[Member]) -> None:
    a, b, _ = abc
    a.subscribe(b"slow")

    def is_dropped() -> bool:
        asked(b, b"slow")
        (reply,) = replies(a.hear())
        time.sleep(0.3)  # past the threshold: no event says that the server has seen it pass
        a.publish(reply, b"late")
        return b.hear() == b""

    until(is_dropped)


def test_a_response_may_have_many_answers_in_its_threshold(abc: list[Member]) -> None:
    a, b, _ = abc
    a.subscribe(b"slow.stream")
    asked(b, b"slow.stream")
    (reply,) = replies(a.hear())
    for number in b"1", b"2", b"3":
        a.publish(reply, number)
    assert b.hear() == b"".join(b"MSG inbox 9 1\r\n%b\r\n" % number for number in (b"1", b"2", b"3"))


def test_a_request_needs_no_reply(abc: list[Member]) -> None:
    a, b, _ = abc
    a.subscribe(b"svc")
    b.publish(b"need.svc", b"x")
    assert plain(a.hear()) == b"HMSG svc 1\r\n" + INFO + b"x\r\n"


def test_nobody_serves(abc: list[Member]) -> None:
    _, b, _ = abc
    b.say(b"SUB inbox 9")
    expected = b"HMSG inbox 9 40 40\r\nNATS/1.0 503\r\nNats-Subject: need.svc\r\n\r\n\r\n"
    assert b.publish(b"need.svc", b"?", b"inbox") == expected


def test_wildcards_are_carried_over_and_details_shared(exchange: Server) -> None:
    named = ',"name":"me","lang":"py","version":"1.2"'
    with members(exchange, "a") as (a,), Member(exchange, "b", named) as b:
        a.subscribe(b"svc.*")
        b.publish(b"ask.that", b"x")
        assert plain(a.hear()) == (
            b"HMSG svc.that 1\r\nNATS/1.0\r\nNats-Request-Info: "
            b'{"start":"","host":"127.0.0.1","id":0,"acc":"B","user":"b","name":"me","lang":"py","ver":"1.2",'
            b'"rtt":0,"server":"","kind":"Client","client_type":"nats"}\r\n\r\nx\r\n'
        )


def test_all_that_is_below_a_subject(abc: list[Member]) -> None:
    a, b, _ = abc
    a.subscribe(b"whole.>")
    b.publish(b"whole.a.b", b"x")
    assert plain(a.hear()) == b"HMSG whole.a.b 1\r\n" + INFO + b"x\r\n"


def test_the_exporter_maps_requests(abc: list[Member]) -> None:
    a, b, _ = abc
    a.subscribe(b"svc.mapped", b"svc.elsewhere")
    b.publish(b"ask.mapped", b"x")
    assert a.hear().startswith(b"HMSG svc.elsewhere 2 ")


def test_the_header_of_a_request_is_kept(abc: list[Member]) -> None:
    a, b, _ = abc
    a.subscribe(b"svc")
    header = b'NATS/1.0\r\nA: b\r\nNats-Request-Info: {"acc":"X"}\r\nNats-Request-Info: y\r\nC: d\r\n\r\n'
    b.say(b"HPUB need.svc %d %d" % (len(header), len(header) + 1), header + b"x")
    expected = INFO.replace(b"NATS/1.0\r\n", b"NATS/1.0\r\nA: b\r\nC: d\r\n")
    assert plain(a.hear()) == b"HMSG svc 1\r\n" + expected + b"x\r\n"


def test_large_requests_and_answers(abc: list[Member]) -> None:
    a, b, _ = abc
    a.subscribe(b"svc")
    asked(b, b"need.svc", b"q" * 300_000)
    request = a.hear()
    assert request.endswith(b"}\r\n\r\n" + b"q" * 300_000 + b"\r\n")
    a.publish(replies(request)[0], b"r" * 300_000)
    assert b.hear() == b"MSG inbox 9 300000\r\n" + b"r" * 300_000 + b"\r\n"


def test_a_chain_of_imports(abc: list[Member]) -> None:
    a, b, c = abc
    a.subscribe(b"svc")
    b.subscribe(b"need.svc")
    asked(c, b"chained")
    request = a.hear()
    info = b'NATS/1.0\r\nNats-Request-Info: {"acc":"C","svc":"B","rtt":0}\r\n\r\n'
    assert plain(request) == b"HMSG svc 1 _R_\r\n" + info + b"?\r\n"
    assert plain(b.hear()) == (
        b'HMSG need.svc 1 _R_\r\nNATS/1.0\r\nNats-Request-Info: {"acc":"C","rtt":0}\r\n\r\n?\r\n'
    )
    a.publish(replies(request)[0], b"through")
    assert c.hear() == b"MSG inbox 9 7\r\nthrough\r\n"


def test_a_service_of_two_accounts(exchange: Server) -> None:
    with members(exchange, "bde") as (b, d, e):
        d.subscribe(b"twice")
        e.subscribe(b"twice")
        asked(b, b"twice")
        for server in (d, e):
            server.publish(replies(server.hear())[0], b"me")
        assert b.hear() == b"MSG inbox 9 2\r\nme\r\n" * 2


def test_servers_share_requests_in_a_queue_group(exchange: Server) -> None:
    with members(exchange, "aab") as (one, two, b):
        one.subscribe(b"svc workers")
        two.subscribe(b"svc workers")
        b.say(*[b"PUB need.svc 0\r\n"] * 200)
        counts = [member.hear().count(b"HMSG svc ") for member in (one, two)]
        assert sum(counts) == 200
        assert all(count > 40 for count in counts)


def test_the_responder_may_ask_back(abc: list[Member]) -> None:
    a, b, _ = abc
    a.subscribe(b"svc", b"back")
    asked(b, b"need.svc")
    a.publish(replies(a.hear())[0], b"which?", b"back")
    heard = b.hear()
    assert plain(heard) == b"MSG inbox 9 _R_ 6\r\nwhich?\r\n"
    b.publish(replies(heard)[0], b"this")
    assert a.hear() == b"MSG back 2 4\r\nthis\r\n"


def test_an_account_that_hears_its_own_requests(abc: list[Member]) -> None:
    """The request reaches subscribers of its own account, too."""
    a, b, _ = abc
    a.subscribe(b"svc")
    b.subscribe(b"need.svc")
    assert b.publish(b"need.svc", b"x") == b"MSG need.svc 1 1\r\nx\r\n"
    assert plain(a.hear()) == b"HMSG svc 1\r\n" + INFO + b"x\r\n"


def test_a_requester_without_headers(exchange: Server) -> None:
    without = ',"headers":false,"no_responders":false'
    with members(exchange, "a") as (a,), Member(exchange, "b", without) as old:
        a.subscribe(b"svc")
        asked(old, b"need.svc")
        request = a.hear()
        assert plain(request) == b"HMSG svc 1 _R_\r\n" + INFO + b"?\r\n"
        (reply,) = replies(request)
        a.say(b"HPUB %b 18 20" % reply, b"NATS/1.0\r\nA: b\r\n\r\nok")
        assert old.hear() == b"MSG inbox 9 2\r\nok\r\n"


@pytest.mark.parametrize("subject", [b"_R_.x", b"_R_.abcdef.ghijkl", b"$JS.ACK.x"])
def test_reply_subjects_of_the_server_are_not_for_clients(abc: list[Member], subject: bytes) -> None:
    _, b, _ = abc
    error = b"-ERR 'Permissions Violation for Publish with Reply of \"%b\"'\r\n" % subject
    assert b.publish(b"need.svc", b"", subject) == error


def test_a_pedantic_publisher_is_served(exchange: Server) -> None:
    with members(exchange, "a") as (a,), Member(exchange, "b", ',"pedantic":true') as b:
        a.subscribe(b"svc")
        b.publish(b"need.svc", b"x")
        assert plain(a.hear()) == b"HMSG svc 1\r\n" + INFO + b"x\r\n"


def test_imports_are_logged(launch: Launch) -> None:
    server = launch("-D", config=CONFIG)
    with members(server, "b") as (b,):
        b.subscribe(b"from.a.s.x")
        server.wait_log(r'Creating import subscription on "s\.x" from account "A"')


CYCLES = {
    "services": """
accounts {
  A { exports [ { service: a } ], imports [ { service: { account: B, subject: b }, to: a } ] }
  B { exports [ { service: b } ], imports [ { service: { account: A, subject: a }, to: b } ] }
}""",
    "streams": """
accounts {
  A { exports [ { stream: "s.>" } ], imports [ { stream: { account: B, subject: "s.b" } } ] }
  B { exports [ { stream: "s.>" } ], imports [ { stream: { account: A, subject: "s.>" } } ] }
}""",
}


@pytest.mark.parametrize("config", CYCLES.values(), ids=CYCLES.keys())
def test_a_cycle_is_refused(launch: Launch, config: str) -> None:
    with pytest.raises(RuntimeError, match="import forms a cycle"):
        launch(config=config)


def test_a_second_connect_leaves_the_imports_behind(exchange: Server) -> None:
    with members(exchange, "ab") as (a, mover):
        mover.subscribe(b"mine")
        mover.say(b'CONNECT {"verbose":false,"pedantic":false,"user":"a","pass":"p"}')
        mover.subscribe(b"mine")
        a.publish(b"lit", b"x")
        assert mover.hear() == b""


def test_the_monitor_lists_what_imports_subscribe_to(launch: Launch) -> None:
    """Import subscriptions of clients have the client's cid, those of accounts a cid that no client has."""

    def listing(server: Server, path: str) -> list[tuple[object, ...]]:
        with members(server, "b") as (b,):
            b.subscribe(b"mine", b"from.a.s.q", b"own")
            page = monitor(server, path)
            assert page["total"] == len(page["subscriptions_list"])
            clients = {b.connection.info["client_id"]}
            return sorted(
                (each["account"], each["subject"], each["cid"] in clients, each["cid"] > 0)
                for each in page["subscriptions_list"]
                if not each["subject"].startswith("$SYS.")
            )

    ours, theirs = launch("-m", "-1", config=CONFIG), launch("-m", "-1", config=CONFIG, kind=REFERENCE)
    for path in ("/subsz?subs=1", "/subsz?subs=1&acc=A", "/subsz?subs=1&acc=B", "/subsz?subs=1&test=s.q"):
        assert listing(ours, path) == listing(theirs, path)


def test_a_client_that_goes_takes_its_imports_with_it(launch: Launch) -> None:
    """The monitor counts as many subscriptions of the exporting account as before."""
    server = launch("-m", "-1", config=CONFIG)

    def count() -> int:
        total: int = monitor(server, "/subsz?acc=A")["num_subscriptions"]
        return total

    before = count()
    with members(server, "b") as (b,):
        b.subscribe(b"mine", b"from.>")
        assert count() > before
    until(lambda: count() == before)
