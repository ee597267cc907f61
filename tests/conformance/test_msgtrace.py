"""Message tracing beside the reference's: the sender's trace, and the messages to subscribers."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from support.caller import Caller, Message
from support.launch import Launch
from support.servers import REFERENCE, Server
from support.wire import Connection

pytestmark = pytest.mark.timeout(60)

CONFIG = """
system_account: SYS
accounts {
  SYS { users: [{user: sys, password: pw}] }
  A {
    users: [
      {user: a, password: pw}
      {user: limited, password: pw, permissions {
        publish: {deny: ["secret", "dest.no"]}
        subscribe: {allow: ["in.*", "_INBOX.>", "dest"], deny: "in.no"}
      }}
    ]
    mappings { before: after }
    exports: [
      {stream: "s.>"}
      {service: "svc.>", allow_trace: true}
      {service: "quiet"}
    ]
  }
  B {
    users: [{user: b, password: pw}]
    imports: [
      {stream: {account: A, subject: "s.>"}, to: "from.s.>", allow_trace: true}
      {service: {account: A, subject: "svc.one"}, to: "one"}
      {service: {account: A, subject: "quiet"}}
    ]
  }
  C {
    users: [{user: c, password: pw}]
    imports: [{stream: {account: A, subject: "s.>"}, prefix: "c"}]
    msg_trace: {dest: "traces", sampling: 100}
  }
}
"""

MEMBERS = ("a", "limited", "b", "c")
SAMPLED = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def headers(**fields: str) -> bytes:
    lines = (f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return ("NATS/1.0\r\n" + "".join(lines) + "\r\n").encode()


def comparable(value: Any, key: str = "") -> Any:
    """Replace values that differ from run to run; make objects lists of pairs, so that order counts."""
    if key in ("id", "seq", "time", "ts", "cid") or (
        key == "name" and isinstance(value, str) and len(value) > 40
    ):
        return type(value).__name__
    if isinstance(value, dict):
        return [(k, comparable(v, k)) for k, v in value.items()]
    return [comparable(item) for item in value] if isinstance(value, list) else value


def delivered(message: Message) -> tuple[Any, ...]:
    """Return subject, reply, header and payload of a delivered message, without random parts."""
    text = message.header.decode()
    text = re.sub(r'"(rtt|id)":\d+', r'"\1":0', re.sub(r"_R_\.\w+\.\w+", "_R_", text))
    text = re.sub(r'"server":"[^"]*"', "", text)
    reply = re.sub(r"_R_\.\w+\.\w+", "_R_", message.reply)
    return message.subject, reply, re.sub(r',"rtt":0|"rtt":0,?', "", text), message.payload


class Site:
    """A server with a named client of each user."""

    def __init__(self, server: Server, stack: ExitStack) -> None:
        self.server = server
        self.users = {user: stack.enter_context(Caller(server, user, name=f"<{user}>")) for user in MEMBERS}

    def run(self, act: Callable[[Site], list[Any]]) -> list[Any]:
        return act(self)


@pytest.fixture
def sites(launch_shared: Launch, shared: tuple[Server, Server]) -> Iterator[tuple[Site, Site]]:
    with ExitStack() as stack:
        yield Site(shared[0], stack), Site(shared[1], stack)


@pytest.fixture(scope="module")
def shared(launch_shared: Launch) -> tuple[Server, Server]:
    return launch_shared(config=CONFIG), launch_shared(config=CONFIG, kind=REFERENCE)


def same(sites: tuple[Site, Site], act: Callable[[Site], list[Any]]) -> list[Any]:
    ours, theirs = (act(site) for site in sites)
    assert ours == theirs
    return theirs


def trace(
    site: Site, user: str, subject: str, *, reply: str = "", dest: str = "dest", **more: str
) -> list[Any]:
    """Publish a message with a trace destination; return the trace (JSON, header, reply) and other output."""
    caller = site.users[user]
    caller.subscribe("dest")
    caller.publish(subject, b"payload", reply, headers(Nats_Trace_Dest=dest, **more))
    told = caller.fence()
    message = caller.next_on("dest")
    return [comparable(message.json), message.header, message.reply, told]


@pytest.mark.parametrize("only", ["", "true", "1", "ON", "no"])
def test_deliveries_and_their_ends(sites: tuple[Site, Site], only: str) -> None:
    """Subscribers, queue groups, a denied subject, a wildcard; Nats-Trace-Only delivers to none of them."""

    def act(site: Site) -> list[Any]:
        site.users["a"].subscribe("in.no")
        site.users["a"].subscribe("in.no", "q")
        site.users["limited"].subscribe("in.*")
        more = {"Nats_Trace_Only": only} if only else {}
        found = trace(site, "a", "in.no", Other="x", **more)
        events = dict(found[0])["events"]
        found[0] = [events[0], *sorted(events[1:], key=str)]
        site.users["limited"].fence()
        for user in ("a", "limited"):
            site.users[user].publish("marker")
        site.users["a"].subscribe("end")
        site.users["a"].publish("end")
        while (message := site.users["a"].next()).subject != "end":
            found.append(delivered(message))
        return found

    assert len(same(sites, act)) == (4 if only in ("true", "1", "ON") else 6)


def test_nobody_is_there(sites: tuple[Site, Site]) -> None:
    same(sites, lambda site: trace(site, "a", "nobody"))


def test_no_echo(sites: tuple[Site, Site]) -> None:
    def act(site: Site) -> list[Any]:
        with Caller(site.server, "a", echo=False, name="deaf") as caller:
            caller.subscribe("x")
            site.users["a"].subscribe("dest")
            caller.publish("x", b"p", "", headers(Nats_Trace_Dest="dest"))
            return [comparable(site.users["a"].next_on("dest").json)]

    same(sites, act)


def test_mapped_subject(sites: tuple[Site, Site]) -> None:
    def act(site: Site) -> list[Any]:
        site.users["a"].subscribe("after")
        return [*trace(site, "a", "before"), delivered(site.users["a"].next_on("after"))]

    events = dict(same(sites, act)[0])["events"]
    assert [dict(event)["type"] for event in events] == ["in", "sm", "eg"]


@pytest.mark.parametrize(
    ("subject", "reply"), [("secret", ""), ("in.x", "_R_.a.b"), ("$NRG.x", ""), ("secret", "in.x")]
)
def test_refused_message(sites: tuple[Site, Site], subject: str, reply: str) -> None:
    found = same(sites, lambda site: trace(site, "limited", subject, reply=reply))
    assert "error" in dict(dict(found[0])["events"][0])


@pytest.mark.parametrize("only", ["true", "false"])
@pytest.mark.parametrize("user", ["b", "c"])
def test_stream_import(sites: tuple[Site, Site], user: str, only: str) -> None:
    """The trace has the importing account's events where the import allows it."""

    def act(site: Site) -> list[Any]:
        listener = site.users[user]
        listener.subscribe(">")
        found = trace(site, "a", "s.x", Nats_Trace_Only=only)
        listener.publish("end")
        while (message := listener.next()).subject != "end":
            found.append(delivered(message))
        return found

    found = same(sites, act)
    kinds = [dict(event)["type"] for event in dict(found[0])["events"]]
    assert kinds == (["in", "se", "eg"] if user == "b" else ["in", "se"])
    assert len(found) == (4 if only == "true" else 5)


@pytest.mark.parametrize("only", ["true", "false"])
@pytest.mark.parametrize("reply", ["", "_INBOX.answers"])
@pytest.mark.parametrize(("subject", "served"), [("one", "svc.one"), ("quiet", "quiet")])
def test_service_import(sites: tuple[Site, Site], subject: str, served: str, reply: str, only: str) -> None:
    """The trace has the exporting account's events where the export allows it."""

    def act(site: Site) -> list[Any]:
        server = site.users["a"]
        server.subscribe(served)
        found = trace(site, "b", subject, reply=reply, Nats_Trace_Only=only, Other="kept")
        server.publish("x.end")
        server.subscribe("x.end")
        server.publish("x.end")
        while (message := server.next()).subject != "x.end":
            found.append(delivered(message))
        return found

    found = same(sites, act)
    kinds = [dict(event)["type"] for event in dict(found[0])["events"]]
    assert kinds == (["in", "si", "eg"] if subject == "one" else ["in", "si"])


def test_response_that_is_traced(sites: tuple[Site, Site]) -> None:
    def act(site: Site) -> list[Any]:
        server, asker = site.users["a"], site.users["b"]
        server.subscribe("svc.one")
        server.subscribe("dest")
        inbox = asker.ask("one")
        request = server.next_on("svc.one")
        server.publish(request.reply, b"answer", "", headers(Nats_Trace_Dest="dest"))
        event = comparable(server.next_on("dest").json)
        return [re.sub(r"_R_\.\w+\.\w+", "_R_", str(event)), delivered(asker.next_on(inbox))]

    same(sites, act)


def test_destination_that_may_not_be_published_to(sites: tuple[Site, Site]) -> None:
    """The server drops the message."""

    def act(site: Site) -> list[Any]:
        listener, sender = site.users["a"], site.users["limited"]
        listener.subscribe("in.>")
        listener.subscribe("dest.no")
        sender.publish("in.x", b"p", "", headers(Nats_Trace_Dest="dest.no"))
        sender.publish("in.end")
        return [sender.fence(), listener.next().subject]

    assert same(sites, act)[1] == "in.end"


@pytest.mark.parametrize(
    ("fields", "goes"),
    [
        ({"Nats_Trace_Dest": "not..valid"}, True),
        ({"Nats_Trace_Dest": "not.*", "Nats_Trace_Only": "true"}, False),
        ({"Nats_Trace_Dest": "trace disabled"}, True),
        ({"Nats_Trace_Dest": "dest", "Nats_Trace_Origin_Account": "A"}, True),
        ({"Nats_Trace_Dest": "dest", "Nats_Trace_Origin_Account": "A", "Nats_Trace_Only": "1"}, False),
        ({"Nats_Trace_Only": "true"}, True),
        ({"nats_trace_dest": "dest"}, True),
        ({"Nats_Trace_Dest": " "}, True),
        ({"traceparent": SAMPLED}, True),
    ],
)
def test_headers_that_do_not_trace(sites: tuple[Site, Site], fields: dict[str, str], goes: bool) -> None:
    def act(site: Site) -> list[Any]:
        caller = site.users["a"]
        caller.subscribe("dest")
        caller.subscribe("x")
        caller.publish("x", b"p", "", headers(**fields))
        caller.publish("x", b"end")
        found = [caller.fence()]
        while not found[-1] or found[-1][-1] != b"end":
            found.append(delivered(caller.next()))
        return found

    assert len(same(sites, act)) == (3 if goes else 2)


@pytest.mark.parametrize(
    ("value", "traced"),
    [
        (SAMPLED, True),
        (SAMPLED[:-1] + "0", False),
        (SAMPLED[:-2] + "zz", False),
        (SAMPLED[:-2] + "81", False),
        ("", False),
    ],
)
def test_traceparent(sites: tuple[Site, Site], value: str, traced: bool) -> None:
    """A sampled traceparent sends a trace to the account's trace_dest."""

    def act(site: Site) -> list[Any]:
        caller = site.users["c"]
        caller.subscribe("traces")
        caller.subscribe("end")
        caller.publish("x", b"p", "", headers(TraceParent=value, Other="a"))
        caller.fence()
        if traced:
            return [comparable(caller.next_on("traces").json)]
        caller.request("$SYS.REQ.USER.INFO")  # its answer would come after a trace
        caller.publish("end")
        return [caller.next().subject]

    same(sites, act)


def test_compressed(sites: tuple[Site, Site]) -> None:
    def act(site: Site) -> list[Any]:
        caller = site.users["a"]
        caller.subscribe("dest")
        caller.publish("x", b"p", "", headers(Nats_Trace_Dest="dest", Accept_Encoding="gzip"))
        message = caller.next_on("dest")
        return [message.header, comparable(json.loads(gzip.decompress(message.payload)))]

    same(sites, act)


def test_values_of_the_header(sites: tuple[Site, Site]) -> None:
    """Repeated names, empty values, blanks and bytes beyond ASCII; sorted by name."""

    def act(site: Site) -> list[Any]:
        caller = site.users["a"]
        caller.subscribe("dest")
        lines = b"NATS/1.0\r\nB:  2 \r\nA: 1\r\nB:\t3\r\nEmpty:\r\na: \xc3\xa4<\xff\r\n"
        lines += b"Nats-Trace-Dest:dest\r\n\r\n"
        caller.publish("x", b"p", "", lines)
        return [comparable(caller.next_on("dest").json)]

    same(sites, act)


@pytest.mark.parametrize("rest", ["x", ""], ids=["whole header", "its first line"])
def test_a_message_over_max_payload(launch: Launch, rest: str) -> None:
    """The server closes the sender, and sends a trace if the part of the header read so far asks for one."""

    def act(server: Server) -> list[Any]:
        with Caller(server, "a") as listener, Connection(server.address) as sender:
            listener.subscribe("dest")
            header = headers(Nats_Trace_Dest="dest", Other="x")
            sent = header + b"x" if rest else header[: header.index(b"Other")]
            sender.send(
                b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"user":"a","pass":"pw"}\r\n'
            )
            assert sender.fence() == []
            sender.send(b"HPUB subject %d 2000000\r\n%b" % (len(header), sent))
            assert sender.rest() == b"-ERR 'Maximum Payload Violation'\r\n"
            message = listener.next_on("dest")
            return [comparable(message.json), message.header, message.reply]

    ours, theirs = (act(launch(config=CONFIG, **other)) for other in ({}, {"kind": REFERENCE}))
    assert ours == theirs
