"""Streams and services of other accounts, where the two ends are at different servers of every two kinds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from support.caller import Message
from support.clusters import Cluster
from support.servers import until
from support.wire import header

from .members import OLD, Client

pytestmark = pytest.mark.timeout(120)

Ends = tuple[Client, Client]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def ab(pair: Cluster, ends: tuple[int, int], stack: ExitStack) -> Ends:
    """A client of account A, which exports, at the first end; one of B, which imports, at the second."""
    return stack.enter_context(Client(pair[ends[0]], "a")), stack.enter_context(Client(pair[ends[1]], "b"))


@pytest.fixture
def beside(ab: Ends, stack: ExitStack) -> Ends:
    """Further clients: of A at B's server, and of B at A's."""
    a, b = ab
    return stack.enter_context(Client(b.server, "a")), stack.enter_context(Client(a.server, "b"))


def serve(client: Client, beside: Client, subject: str, queue: str = "") -> None:
    """Have a client subscribe to a service; wait until the server of `beside`, of its account, knows."""
    client.subscribe(subject, queue)
    client.reachable_from(beside)


# -- services ------------------------------------------------------------------------------------------------


def shown(request: Message) -> str:
    """Return the Nats-Request-Info of a request up to its varying part."""
    return request.headers["Nats-Request-Info"].partition(',"rtt"')[0]


def test_a_request_is_answered(ab: Ends, beside: Ends) -> None:
    a, b = ab
    serve(a, beside[0], "svc.x")
    inbox = b.ask("ask.x", b"how?", header("A: b"))
    request = a.next()
    assert (request.subject, request.payload) == ("svc.x", b"how?")
    assert (request.headers["A"], shown(request)) == ("b", '{"acc":"B"')
    assert request.reply.startswith("_R_.")
    a.publish(request.reply, b"so", "", header("C: d"))
    answer = b.next_on(inbox)
    assert (answer.payload, answer.header, answer.reply) == (b"so", header("C: d"), "")


def test_only_the_first_answer_counts(ab: Ends, beside: Ends) -> None:
    """Both of the account's clients have got the request.

    nats-server may pass on two that come at the same time: the second one waits until the first has arrived.
    """
    a, b = ab
    serve(a, beside[0], "svc.first")
    serve(beside[0], a, "svc.first")
    inbox = b.ask("ask.first", b"?")
    first, second = (client.next() for client in (a, beside[0]))
    a.publish(first.reply, b"me")
    a.publish(first.reply, b"again")
    if b.server.kind.is_reference:
        assert b.next().payload == b"me"
    beside[0].publish(second.reply, b"me")
    beside[0].fence()
    if not b.server.kind.is_reference:
        assert b.next_on(inbox).payload == b"me"
    last = b.ask("ask.first", b"?")
    for client in a, beside[0]:
        client.publish(client.next().reply, b"late")
    assert b.next().subject == last


def test_a_stream_of_answers(ab: Ends, beside: Ends) -> None:
    """An empty one ends it."""
    a, b = ab
    serve(a, beside[0], "many.x")
    inbox = b.ask("many.x", b"?")
    request = a.next()
    for n in range(200):
        a.publish(request.reply, b"%d" % n)
    a.publish(request.reply, b"")
    a.publish(request.reply, b"late")
    last = b.ask("many.x", b"last")
    a.publish(a.next().reply, b"end")
    heard = []
    while not heard or heard[-1].subject != last:
        heard.append(b.next())
    assert [m.payload for m in heard if m.subject == inbox] == [b"%d" % n for n in range(200)] + [b""]


def test_nobody_serves(ab: Ends, beside: Ends) -> None:
    a, b = ab
    if b.server.kind is OLD:
        pytest.skip("nats-server 2.9 does not tell who asks over an import that nobody serves")
    b.wait_alone("ask.nobody")
    sid = a.subscribe("svc.nobody")
    a.reachable_from(beside[0])
    inbox = b.ask("ask.nobody", b"?")
    a.publish(a.next().reply, b"me")
    assert b.next_on(inbox).payload == b"me"
    a.send(f"UNSUB {sid}\r\n".encode())
    b.wait_alone("ask.nobody")


def test_a_request_without_reply(ab: Ends, beside: Ends) -> None:
    a, b = ab
    serve(a, beside[0], "svc.quiet")
    b.publish("ask.quiet", b"x")
    request = a.next()
    assert (request.subject, request.payload, request.reply) == ("svc.quiet", b"x", "")
    assert shown(request) == '{"acc":"B"'


def test_a_chain_of_imports(ab: Ends, beside: Ends, stack: ExitStack) -> None:
    """The client of B at the exporter's server sees nothing: the chain is at the requester's."""
    a, b = ab
    c = stack.enter_context(Client(b.server, "c"))
    serve(a, beside[0], "svc.chain")
    inbox = c.ask("chain.chain", b"?")
    request = a.next()
    assert request.payload == b"?"
    a.publish(request.reply, b"through")
    assert c.next_on(inbox).payload == b"through"


def test_a_group_serves(ab: Ends, beside: Ends) -> None:
    """Its members are at both servers; each request is for one of them."""
    a, b = ab
    serve(a, beside[0], "group.x", "workers")
    serve(beside[0], a, "group.x", "workers")
    inboxes = [b.ask("group.x", b"%d" % n) for n in range(300)]
    b.fence()
    counts = []
    for worker in ab[0], beside[0]:
        requests = worker.heard(beside[0])
        counts.append(len(requests))
        for request in requests:
            worker.publish(request.reply, request.payload)
    assert sum(counts) == 300
    assert min(counts) > 50
    answers = {}
    for _ in inboxes:
        answer = b.next()
        answers[answer.subject] = answer.payload
    assert answers == {inbox: b"%d" % n for n, inbox in enumerate(inboxes)}


def test_large_requests_and_answers(ab: Ends, beside: Ends) -> None:
    a, b = ab
    serve(a, beside[0], "svc.large")
    inbox = b.ask("ask.large", b"q" * 300_000)
    request = a.next()
    assert request.payload == b"q" * 300_000
    a.publish(request.reply, b"r" * 300_000)
    assert b.next_on(inbox).payload == b"r" * 300_000


def test_the_responder_asks_back(ab: Ends, beside: Ends) -> None:
    a, b = ab
    serve(a, beside[0], "svc.back")
    a.subscribe("back")
    a.reachable_from(beside[0])
    inbox = b.ask("ask.back", b"?")
    a.publish(a.next().reply, b"which?", "back")
    question = b.next_on(inbox)
    assert question.payload == b"which?"
    b.publish(question.reply, b"this")
    answer = a.next()
    assert (answer.subject, answer.payload) == ("back", b"this")


# -- streams -------------------------------------------------------------------------------------------------


def test_a_stream_is_heard(ab: Ends, beside: Ends) -> None:
    """Subscriptions of both accounts at the same server, and a group of both, which has one member there."""
    a, b = ab
    sids = {b.subscribe("from.st.x"): "from.st.x", b.subscribe("from.>"): "from.st.x"}
    b.subscribe("from.st.*", "g")
    b.subscribe("st.x")
    beside[0].subscribe("st.*")
    beside[0].reachable_from(a)
    wait_imported(a, b, 2)
    for n in range(100):
        a.publish("st.x", b"%d" % n, "re", header("A: b"))
    heard = [b.next() for _ in range(300)]
    for sid, subject in sids.items():
        mine = [message for message in heard if message.sid == sid]
        assert [(m.subject, m.payload, m.reply) for m in mine] == [
            (subject, b"%d" % n, "re") for n in range(100)
        ]
        assert {m.header for m in mine} == {header("A: b")}
    plain = [payload for payload in beside[0].payloads(a) if payload != b"probe"]
    assert plain == [b"%d" % n for n in range(100)]


def wait_imported(a: Client, b: Client, copies: int) -> None:
    """Wait until what A publishes reaches B's subscriptions, of which `copies` hear it; take what came."""

    def arrived() -> bool:
        a.publish("st.probe", b"probe")
        a.fence()
        b.fence()
        return bool(b.kept())

    until(arrived)
    a.publish("st.last", b"probe")
    while copies:
        copies -= b.next().subject == "from.st.last"


def test_a_stream_ends_with_its_subscription(ab: Ends, beside: Ends) -> None:
    a, b = ab
    sid = b.subscribe("from.st.end")
    b.subscribe("from.st.last")
    b.subscribe("from.st.probe")
    wait_imported(a, b, 1)
    a.publish("st.end", b"1")
    assert b.next().payload == b"1"
    b.send(f"UNSUB {sid}\r\n".encode())
    b.fence()
    a.publish("st.end", b"2")
    a.publish("st.last", b"3")
    assert b.next().payload == b"3"
    a.wait_alone("st.end")
