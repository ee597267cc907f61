"""The system account's requests and events beside the reference's, keys in the same order."""

from __future__ import annotations

import base64
import gzip
import json
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from support.caller import Caller, Message
from support.launch import Launch
from support.servers import REFERENCE, Server, until
from support.wire import Closed, Connection

from .differences import MONITOR_EXTRA, MONITOR_MISSING, MONITOR_OTHER

pytestmark = pytest.mark.timeout(60)

CONFIG = """
server_name: "srv<1>"
server_tags: ["a:1", "b"]
server_metadata: {zone: "z&"}
system_account: SYS
accounts {
  SYS { users: [{user: sys, password: pw}] }
  APP {
    users: [
      {user: app, password: pw}
      {user: limited, password: pw, permissions {
        publish: {allow: ["$SYS.>", "x", "y.*"], deny: "z"}
        subscribe: ["_INBOX.>", "q qq"]
        allow_responses: true
      }}
    ]
  }
  OTHER { users: [{user: other, password: pw}] }
}
"""

VOLATILE_NAMES = """
    server_id now start stop last_activity uptime idle rtt port cid mem cpu config_load_time config_digest
    http_port http_req_stats update_time num_inserts num_removes num_subscriptions pending_bytes time seq
    timestamp subscriptions out_bytes out_client_bytes id total
"""
VOLATILE = frozenset((*VOLATILE_NAMES.split(), *MONITOR_OTHER))
OF_THE_PROCESS = frozenset(("memstats", "cmdline"))
UNORDERED = frozenset(("accounts", "account_statz", "exports", "imports", "subscriptions_list"))


# Counters that may or may not include the request that reads them.
COUNTS = frozenset(
    (
        "msgs",
        "bytes",
        "in_msgs",
        "in_bytes",
        "out_msgs",
        "in_client_msgs",
        "in_client_bytes",
        "out_client_msgs",
    )
)


def comparable(value: Any, key: str = "", volatile: frozenset[str] = VOLATILE) -> Any:
    """Replace volatile members by their types; make objects lists of pairs, so that order counts."""
    if key in volatile:
        return type(value).__name__.replace("float", "int")
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if k not in MONITOR_MISSING and k not in MONITOR_EXTRA}
        return [(k, comparable(v, k, volatile)) for k, v in kept.items()]
    if isinstance(value, list):
        items = [comparable(item, "", volatile) for item in value if not of_server(item)]
        return sorted(items, key=str) if key in UNORDERED else items
    return value


def answered(answer: Message) -> Any:
    return comparable(answer.json, volatile=VOLATILE | COUNTS)


def of_server(item: Any) -> bool:
    """Return True for a subscription of the server itself: the ids of these differ."""
    return isinstance(item, dict) and "sid" in item and item["subject"].startswith("$SYS")


@dataclass
class Site:
    """A server with a client of each account."""

    server: Server
    callers: dict[str, Caller]

    @property
    def id(self) -> str:
        identity: str = self.callers["sys"].connection.info["server_id"]
        return identity

    def request(self, user: str, subject: str, body: object = None, header: bytes = b"") -> Message:
        return self.callers[user].request(subject.format(id=self.id), body, header)


def site(server: Server, stack: ExitStack) -> Site:
    users = ("sys", "app", "limited", "other")
    return Site(server, {user: stack.enter_context(Caller(server, user, name=f"<{user}>")) for user in users})


@pytest.fixture(scope="module")
def sites(launch_shared: Launch) -> Iterator[tuple[Site, Site]]:
    with ExitStack() as stack:
        yield (
            site(launch_shared(config=CONFIG), stack),
            site(launch_shared(config=CONFIG, kind=REFERENCE), stack),
        )


# -- requests ----------------------------------------------------------------------------------------------

PAGES = (
    "IDZ", "STATSZ", "VARZ", "SUBSZ", "CONNZ", "ROUTEZ", "GATEWAYZ", "LEAFZ", "ACCOUNTZ", "JSZ", "HEALTHZ",
    "PROFILEZ", "RAFTZ",
)  # fmt: skip
ACCOUNT_PAGES = ("SUBSZ", "CONNZ", "LEAFZ", "JSZ", "INFO", "STATZ")

LISTED = {"subscriptions": True, "account": "OTHER", "test": "_INBOX.caller.a"}

REQUESTS: list[tuple[str, str, object]] = [
    ("sys", "$SYS.REQ.SERVER.PING", None),
    *(("sys", f"$SYS.REQ.SERVER.PING.{page}", None) for page in PAGES),
    *(("sys", f"$SYS.REQ.SERVER.{{id}}.{page}", {"server_name": "srv"}) for page in PAGES),
    *(("sys", f"$SYS.REQ.ACCOUNT.APP.{page}", None) for page in ACCOUNT_PAGES),
    *(("sys", f"$SYS.REQ.ACCOUNT.SYS.{page}", None) for page in ("LEAFZ", "JSZ", "INFO", "STATZ")),
    *(("sys", f"$SYS.REQ.ACCOUNT.NOPE.{page}", None) for page in ACCOUNT_PAGES if page != "STATZ"),
    ("sys", "$SYS.REQ.ACCOUNT.NOPE.STATZ", {"include_unused": True}),
    ("sys", "$SYS.REQ.ACCOUNT.APP.CONNS", None),
    ("sys", "$SYS.REQ.ACCOUNT.APP.CONNS", {"acc": "APP"}),
    ("sys", "$SYS.REQ.ACCOUNT.PING.STATZ", {"accounts": ["APP", "NOPE"]}),
    ("sys", "$SYS.REQ.ACCOUNT.PING.STATZ", {"accounts": ["$G"], "include_unused": True}),
    ("sys", "$SYS.REQ.SERVER.PING.CONNZ", {"acc": "APP", "auth": True, "subscriptions": True, "sort": "cid"}),
    ("sys", "$SYS.REQ.SERVER.PING.CONNZ", {"acc": "APP", "subscriptions_detail": True, "limit": 1}),
    ("sys", "$SYS.REQ.SERVER.PING.CONNZ", {"user": "app", "state": 2, "cid": 0, "offset": 0}),
    ("sys", "$SYS.REQ.SERVER.PING.CONNZ", {"acc": "APP", "filter_subject": "_INBOX.>"}),
    ("sys", "$SYS.REQ.SERVER.PING.CONNZ", {"acc": "APP", "filter_subject": "nobody"}),
    ("sys", "$SYS.REQ.SERVER.PING.CONNZ", {"sort": "nonsense"}),
    ("sys", "$SYS.REQ.SERVER.PING.SUBSZ", LISTED),
    ("sys", "$SYS.REQ.SERVER.PING.SUBSZ", {"test": "no.*"}),
    ("sys", "$SYS.REQ.SERVER.PING.ACCOUNTZ", {"account": "SYS"}),
    ("sys", "$SYS.REQ.SERVER.PING.ACCOUNTZ", {"account": "NOPE"}),
    ("sys", "$SYS.REQ.SERVER.PING.JSZ", {"accounts": True, "config": True}),
    ("sys", "$SYS.REQ.SERVER.PING.RAFTZ", {"account": "APP"}),
    ("sys", "$SYS.REQ.SERVER.PING.HEALTHZ", {"stream": "s"}),
    ("sys", "$SYS.REQ.SERVER.PING.HEALTHZ", {"js-enabled-only": True}),
    ("sys", "$SYS.REQ.SERVER.PING.HEALTHZ", {"stream": "s", "details": True}),
    ("sys", "$SYS.REQ.SERVER.PING.PROFILEZ", {"name": "nonsense"}),
    ("sys", "$SYS.REQ.SERVER.PING.PROFILEZ", {"name": "cpu"}),
    ("sys", "$SYS.REQ.SERVER.PING.PROFILEZ", {"name": "cpu", "duration": 16_000_000_000}),
    ("sys", "$SYS.REQ.SERVER.{id}.RELOAD", None),
    ("sys", "$SYS.REQ.SERVER.{id}.KICK", {"cid": 99999}),
    ("sys", "$SYS.REQ.SERVER.{id}.LDM", {"cid": 99999}),
    *((user, "$SYS.REQ.USER.INFO", None) for user in ("sys", "app", "limited", "other")),
    ("sys", "$SYS.REQ.USER.APP.INFO", None),
    ("app", "$SYS.REQ.ACCOUNT.PING.CONNZ", None),
    ("app", "$SYS.REQ.ACCOUNT.PING.CONNZ", {"acc": "SYS", "subscriptions": True}),
    ("app", "$SYS.REQ.SERVER.PING.CONNZ", None),
    ("app", "$SYS.REQ.ACCOUNT.PING.STATZ", None),
    ("sys", "$SYS.DEBUG.SUBSCRIBERS", b"_INBOX.caller.a"),
    ("sys", "$SYS.DEBUG.SUBSCRIBERS", b"  _INBOX.>  "),
    ("sys", "$SYS.DEBUG.SUBSCRIBERS", b"_INBOX.> q"),
    ("sys", "$SYS.REQ.ACCOUNT.NSUBS", {"acc": "APP", "subject": "_INBOX.caller.x"}),
    ("sys", "$SYS.REQ.ACCOUNT.NSUBS", {"acc": "APP", "subject": "_INBOX.>"}),
    ("sys", "$SYS.REQ.ACCOUNT.NSUBS", {"acc": "APP", "subject": "_INBOX.caller.x", "queue": "cQ=="}),
]  # fmt: skip

FILTERS: list[dict[str, object]] = [
    {"server_name": "srv"},
    {"server_name": "srv<1>", "exact_match": True},
    {"host": "127."},
    {"tags": ["b"]},
    {"tags": ["A:1", "b"]},
]
OTHERS: list[dict[str, object]] = [
    {"server_name": "SRV"},
    {"server_name": "srv", "exact_match": True},
    {"host": "127.", "exact_match": True},
    {"cluster": "c"},
    {"tags": ["b", "c"]},
    {"domain": "d"},
]

BAD_BODIES = [
    b"x", b"[]", b'{"a":', b'{"exact_match":1}', b'{"server_name":"a"} x', b'{"host":1.5}', b'"text"', b" ",
]  # fmt: skip


@pytest.mark.parametrize(
    ("user", "subject", "body"),
    REQUESTS,
    ids=[f"{user}-{subject[5:]}-{body}" for user, subject, body in REQUESTS],
)
def test_answer(sites: tuple[Site, Site], user: str, subject: str, body: object) -> None:
    ours, theirs = (each.request(user, subject, body) for each in sites)
    assert answered(ours) == answered(theirs)
    assert (ours.header, ours.reply) == (theirs.header, theirs.reply)


@pytest.mark.parametrize("body", FILTERS, ids=str)
@pytest.mark.parametrize("page", ["STATSZ", "HEALTHZ"])
def test_request_for_this_server(sites: tuple[Site, Site], page: str, body: object) -> None:
    ours, theirs = (each.request("sys", f"$SYS.REQ.SERVER.PING.{page}", body) for each in sites)
    assert answered(ours) == answered(theirs)


@pytest.mark.parametrize("body", OTHERS, ids=str)
@pytest.mark.parametrize("page", ["STATSZ", "HEALTHZ", "CONNZ", "PROFILEZ"])
def test_request_for_other_servers_is_not_answered(sites: tuple[Site, Site], page: str, body: object) -> None:
    marker = "$SYS.REQ.SERVER.PING" + ("" if page == "STATSZ" else ".VARZ")
    for each in sites:
        assert each.callers["sys"].unanswered(f"$SYS.REQ.SERVER.PING.{page}", body, marker)


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("$SYS.REQ.ACCOUNT.NOPE.STATZ", None),
        ("$SYS.REQ.ACCOUNT.PING.STATZ", {"accounts": ["NOPE"]}),
        ("$SYS.REQ.ACCOUNT.NOPE.CONNS", None),
        ("$SYS.REQ.ACCOUNT.$G.CONNS", None),
        ("$SYS.REQ.ACCOUNT.APP.CONNS", {"acc": "OTHER"}),
        ("$SYS.REQ.ACCOUNT.NSUBS", None),
        ("$SYS.REQ.ACCOUNT.NSUBS", b"x"),
        ("$SYS.REQ.ACCOUNT.NSUBS", {"acc": "NOPE", "subject": ">"}),
        ("$SYS.REQ.SERVER.{id}.KICK", None),
        ("$SYS.REQ.SERVER.{id}.KICK", {"cid": "1"}),
        ("$SYS.REQ.SERVER.{id}.LDM", b"x"),
        ("$SYS.REQ.SERVER.{id}.RELOAD", {"server_name": "another"}),
        ("$SYS.REQ.SERVER.PING.JSZ", {"leader_only": True}),
        ("$SYS.REQ.SERVER.PING.NOSUCH", None),
    ],
)
def test_request_without_an_answer(sites: tuple[Site, Site], subject: str, body: object) -> None:
    for each in sites:
        caller = each.callers["sys"]
        subject = subject.format(id=each.id)
        assert caller.unanswered(subject, b"" if body is None else body, "$SYS.REQ.SERVER.PING.VARZ")


@pytest.mark.parametrize("page", ["STATSZ", "CONNZ", "PROFILEZ", "VARZ"])
@pytest.mark.parametrize("body", BAD_BODIES)
def test_bad_body(sites: tuple[Site, Site], page: str, body: bytes) -> None:
    ours, theirs = (each.request("sys", f"$SYS.REQ.SERVER.PING.{page}", body).json for each in sites)
    assert list(ours) == list(theirs) == ["server", "error"]
    assert ours["error"] == theirs["error"]


def test_bad_option(sites: tuple[Site, Site]) -> None:
    for body in (b'{"limit":"x"}', b'{"cid":-1}', b'{"limit":1.5}', b'{"auth":{}}', b'{"user":[]}'):
        ours, theirs = (each.request("sys", "$SYS.REQ.SERVER.PING.CONNZ", body).json for each in sites)
        assert ours["error"] == theirs["error"]


@pytest.mark.parametrize("name", ["Accept-Encoding", "accept-encoding"])
@pytest.mark.parametrize("value", ["gzip", "GZIP, x", "br", " "])
@pytest.mark.parametrize("body", [b"", b"x"])
def test_compression(sites: tuple[Site, Site], name: str, value: str, body: bytes) -> None:
    header = f"NATS/1.0\r\n{name}: {value}\r\n\r\n".encode()
    ours, theirs = (each.request("sys", "$SYS.REQ.SERVER.PING.HEALTHZ", body, header) for each in sites)
    assert ours.header == theirs.header
    if b"gzip" in ours.header:
        documents = [json.loads(gzip.decompress(answer.payload)) for answer in (ours, theirs)]
    else:
        documents = [ours.json, theirs.json]
    assert comparable(documents[0]) == comparable(documents[1])


@pytest.mark.parametrize("body", [{"name": "cpu", "duration": 1000}, {"name": "heap"}, {"name": "goroutine"}])
def test_profiles(sites: tuple[Site, Site], body: object) -> None:
    for each in sites:
        data = each.request("sys", "$SYS.REQ.SERVER.PING.PROFILEZ", body).json["data"]
        assert list(data) == ["profile", "error"]
        assert data["error"] == ""
        base64.b64decode(data["profile"], validate=True)


def test_process_pages_have_their_keys(sites: tuple[Site, Site]) -> None:
    for each in sites:
        data = each.request("sys", "$SYS.REQ.SERVER.PING.EXPVARZ").json["data"]
        assert set(data) == OF_THE_PROCESS
        queues = each.request("sys", "$SYS.REQ.SERVER.PING.IPQUEUESZ", {"all": True}).json["data"]
        assert all("pending" in queue for queue in queues.values())


def test_request_without_reply_publishes_statsz(sites: tuple[Site, Site]) -> None:
    for each in sites:
        with Caller(each.server, "sys") as caller:
            caller.subscribe(f"$SYS.SERVER.{each.id}.STATSZ")
            for _ in range(2):  # the limit of one a second does not hold for requests
                caller.publish("$SYS.REQ.SERVER.PING")
                message = caller.next_on(f"$SYS.SERVER.{each.id}.STATSZ")
                assert list(message.json) == ["server", "statsz"]


def test_other_accounts_have_no_services(sites: tuple[Site, Site]) -> None:
    for each in sites:
        caller = each.callers["app"]
        for subject in ("$SYS.REQ.SERVER.PING.VARZ", "$SYS.REQ.ACCOUNT.APP.INFO", "$SYS.DEBUG.SUBSCRIBERS"):
            assert caller.unanswered(subject, b"", "$SYS.REQ.USER.INFO")


def test_kick(sites: tuple[Site, Site]) -> None:
    answers = []
    for each in sites:
        caller = Caller(each.server, "app")
        answers.append(comparable(each.request("sys", "$SYS.REQ.SERVER.{id}.KICK", {"cid": caller.cid}).json))
        assert caller.connection.rest() == b""
        caller.connection.close()
    assert answers[0] == answers[1]


def test_lame_duck_info_for_one_client(sites: tuple[Site, Site]) -> None:
    infos = []
    for each in sites:
        with Caller(each.server, "app") as caller:
            answer = each.request("sys", "$SYS.REQ.SERVER.{id}.LDM", {"cid": caller.cid}).json
            infos.append((comparable(answer), re.findall(rb'"ldm":true', caller.connection.read_op())))
    assert infos[0] == infos[1]
    assert infos[0][1] == [b'"ldm":true']


def test_clients_that_take_no_info_are_not_told(sites: tuple[Site, Site]) -> None:
    answers = []
    for each in sites:
        with Caller(each.server, "app", protocol=0) as caller:
            answers.append(each.request("sys", "$SYS.REQ.SERVER.{id}.LDM", {"cid": caller.cid}).json["error"])
    assert answers[0] == answers[1]


# -- events ------------------------------------------------------------------------------------------------


class Watch:
    """A subscriber to the system account's events; it keeps those of later clients in `events`."""

    def __init__(self, each: Site) -> None:
        self._site = each
        self._caller = Caller(each.server, "sys", name="watch")
        self._caller.subscribe("$SYS.ACCOUNT.>")
        self._caller.subscribe("$SYS.SERVER.>")
        self.events: list[Any] = []

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._caller.__exit__()

    def until(self, subject: str) -> None:
        """Keep events up to one on `subject`, without STATSZ and repeated CONNS, which timers send.

        Skip answers to requests: they may come before or after the events that the requests cause. Skip
        events about clients of earlier tests, which have gone.
        """
        while True:
            message = self._caller.next()
            if message.subject.startswith("_INBOX."):
                continue
            about = message.json
            if about.get("client", {}).get("id", self._caller.cid) < self._caller.cid:
                continue
            if message.subject == subject and about.get("conns") == 0:
                continue
            name = message.subject.replace(self._site.id, "ID")
            own = name.startswith("$SYS.ACCOUNT.SYS.")
            if not (own or name.endswith((".STATSZ", ".CONNS"))) or name == subject:
                document = answered(message) if name.endswith("CONNS") else comparable(message.json)
                self.events.append((name, message.reply, message.header, document))
            if name == subject:
                return


def events(each: Site, act: Callable[[Site, Watch], None]) -> list[Any]:
    with Watch(each) as watch:
        act(each, watch)
        return watch.events


def come_and_go(each: Site, watch: Watch) -> None:
    with Caller(each.server, "app", name="x\u2028<&", version="1.2"):
        watch.until("$SYS.ACCOUNT.APP.CONNECT")
    watch.until("$SYS.ACCOUNT.APP.DISCONNECT")


def bad_password(each: Site, watch: Watch) -> None:
    with Connection(each.server.address) as connection:
        connection.send(b'CONNECT {"user":"app","pass":"no","lang":"l","name":"n"}\r\n')
        connection.rest()
    watch.until("$SYS.SERVER.ID.CLIENT.AUTH.ERR")


def no_connect(each: Site, watch: Watch) -> None:
    Connection(each.server.address).close()
    watch.until("$SYS.ACCOUNT.$G.DISCONNECT")


def change_account(each: Site, watch: Watch) -> None:
    with Caller(each.server, "app") as caller:
        watch.until("$SYS.ACCOUNT.APP.CONNECT")
        caller.send(b'CONNECT {"user":"other","pass":"pw","verbose":false}\r\n')
        watch.until("$SYS.ACCOUNT.OTHER.CONNECT")
    watch.until("$SYS.ACCOUNT.OTHER.DISCONNECT")


def protocol_error(each: Site, watch: Watch) -> None:
    with Caller(each.server, "app") as caller:
        caller.publish("x", b"hi")
        caller.fence()
        caller.send(b"NONSENSE\r\n")
        with pytest.raises(Closed):
            caller.connection.read_until(b"never\r\n")
    watch.until("$SYS.ACCOUNT.APP.DISCONNECT")


def kicked(each: Site, watch: Watch) -> None:
    with Caller(each.server, "other") as caller:
        each.request("sys", "$SYS.REQ.SERVER.{id}.KICK", {"cid": caller.cid})
        caller.connection.rest()
    watch.until("$SYS.ACCOUNT.OTHER.DISCONNECT")


EVENTS = [come_and_go, bad_password, no_connect, change_account, protocol_error, kicked]


@pytest.mark.parametrize("act", EVENTS)
def test_events(sites: tuple[Site, Site], act: Callable[[Site, Watch], None]) -> None:
    ours, theirs = (events(each, act) for each in sites)
    assert ours == theirs


def test_numbers_of_connections(sites: tuple[Site, Site]) -> None:
    def act(each: Site, watch: Watch) -> None:
        for subject in ("$SYS.SERVER.ACCOUNT.OTHER.CONNS", "$SYS.ACCOUNT.OTHER.SERVER.CONNS"):
            with Caller(each.server, "other"):
                watch.until(subject)

    ours, theirs = (events(each, act) for each in sites)
    conns = [event for event in ours if event[0].endswith("CONNS")]
    assert conns[0][3] == next(event for event in theirs if event[0].endswith("CONNS"))[3]
    assert [name for name, *_ in conns] == [name for name, *_ in theirs if name.endswith("CONNS")]


def has_come(watch: Caller) -> Any:
    """Return the next event about an account that has connections: those of earlier tests have gone."""
    while not (event := watch.next().json)["conns"]:
        pass
    return event


def test_both_events_about_connections_have_one_id(sites: tuple[Site, Site]) -> None:
    for each in sites:
        with Caller(each.server, "sys") as watch:
            watch.subscribe("$SYS.SERVER.ACCOUNT.OTHER.CONNS")
            watch.subscribe("$SYS.ACCOUNT.OTHER.SERVER.CONNS")
            with Caller(each.server, "other"):
                first, second = has_come(watch), has_come(watch)
            assert (first["id"], first["timestamp"]) == (second["id"], second["timestamp"])
            assert first["server"]["seq"] < second["server"]["seq"]


def test_text_is_escaped_as_for_html(sites: tuple[Site, Site]) -> None:
    for each in sites:
        with Caller(each.server, "sys") as watch:
            watch.subscribe("$SYS.ACCOUNT.APP.CONNECT")
            with Caller(each.server, "app", name="x\u2028<&>\u00e4"):
                payload = watch.next().payload
            assert b'"name":"x\\u2028\\u003c\\u0026\\u003e\xc3\xa4"' in payload


def test_lame_duck_and_shutdown(launch: Launch) -> None:
    """The event comes before the server closes its clients."""

    def last_words(server: Server, signum: int, subject: str) -> Any:
        with Caller(server, "sys") as caller:
            identity = caller.connection.info["server_id"]
            caller.subscribe(f"$SYS.SERVER.*.{subject}")
            server.process.send_signal(signum)
            message = caller.next()
            assert message.subject == f"$SYS.SERVER.{identity}.{subject}"
            return comparable(message.json)

    for signum, subject in ((signal.SIGUSR2, "LAMEDUCK"), (signal.SIGTERM, "SHUTDOWN")):
        config = CONFIG + 'lame_duck_duration: "30s"\nlame_duck_grace_period: "1s"\n'
        servers = [launch(config=config), launch(config=config, kind=REFERENCE)]
        ours, theirs = (last_words(server, signum, subject) for server in servers)
        assert ours == theirs
        for server in servers:
            if signum == signal.SIGTERM:
                until(lambda server=server: server.process.poll() is not None)


# -- configurations ----------------------------------------------------------------------------------------


def test_without_system_account(launch: Launch) -> None:
    config = "no_system_account: true\naccounts { A { users: [{user: a, password: pw}] } }\n"
    for kind in ({}, {"kind": REFERENCE}):
        with Caller(launch(config=config, **kind), "a", no_responders=True) as caller:
            answer = caller.request("$SYS.REQ.USER.INFO")
            assert answer.header.startswith(b"NATS/1.0 503")


def test_default_system_account_serves_the_global_one(launch: Launch) -> None:
    answers = []
    for kind in ({}, {"kind": REFERENCE}):
        with Caller(launch(**kind)) as caller:
            answers.append(comparable(caller.request("$SYS.REQ.USER.INFO").json["data"]))
            answers.append(caller.unanswered("$SYS.REQ.SERVER.PING.VARZ", b"", "$SYS.REQ.USER.INFO"))
    assert answers[:2] == answers[2:]


def test_permissions_hold_in_the_system_account(launch: Launch) -> None:
    config = """
        system_account: S
        accounts { S { users: [{user: s, password: pw, permissions: {
            publish: ["$SYS.REQ.SERVER.PING.IDZ"], subscribe: ["_INBOX.>"]}}] } }
    """
    for kind in ({}, {"kind": REFERENCE}):
        with Caller(launch(config=config, **kind), "s") as caller:
            assert set(caller.request("$SYS.REQ.SERVER.PING.IDZ").json) == {"name", "host", "id"}
            caller.publish("$SYS.REQ.SERVER.PING.VARZ", b"", "_INBOX.caller.x")
            caller.send(b"SUB $SYS.> 77\r\n")
            assert caller.fence() == [
                b"-ERR 'Permissions Violation for Publish to \"$SYS.REQ.SERVER.PING.VARZ\"'\r\n",
                b"-ERR 'Permissions Violation for Subscription to \"$SYS.>\"'\r\n",
            ]


def test_services_reach_accounts_that_a_reload_adds(launch: Launch) -> None:
    old = "system_account: S\naccounts { S { users: [{user: s, password: pw}] } }\n"
    new = old.replace("{ S", "{ A { users: [{user: a, password: pw}] }, S")
    for kind in ({}, {"kind": REFERENCE}):
        server = launch(config=old, **kind)
        with Caller(server, "s") as caller:
            server.conf.write_text(server.conf.read_text().replace(old, new))
            identity = caller.connection.info["server_id"]
            assert "error" not in caller.request(f"$SYS.REQ.SERVER.{identity}.RELOAD").json
        with Caller(server, "a") as caller:
            assert caller.request("$SYS.REQ.USER.INFO").json["data"]["account"] == "A"
            data = caller.request("$SYS.REQ.ACCOUNT.PING.STATZ").json["data"]
            assert [stat["acc"] for stat in data["account_statz"]] == ["A"]


def test_failed_reload_is_told(launch: Launch) -> None:
    answers = []
    for kind in ({}, {"kind": REFERENCE}):
        server = launch(config=CONFIG, **kind)
        with Caller(server, "sys") as caller:
            server.conf.write_text(server.conf.read_text() + "\ncluster_name: 7.5.x y z {\n")
            identity = caller.connection.info["server_id"]
            answer = caller.request(f"$SYS.REQ.SERVER.{identity}.RELOAD").json
            answers.append((list(answer), answer["error"]["code"]))
    assert answers[0] == answers[1] == (["server", "error"], 500)
