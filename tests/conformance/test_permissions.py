"""Permissions: subjects that clients may publish, subscribe to and receive, and the errors of refusals."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.exchange import OPEN, TOKEN, new_word, talk
from support.launch import Launch
from support.servers import Kind, Server
from support.wire import Connection

from gnats.core.auth.permissions import compile_permissions
from gnats.log.logger import Logger
from gnats.options.values.auth import Permissions, ResponsePermission, SubjectPermission
from gnats.testing import ServerThread

from .cases import OK, params

pytestmark = pytest.mark.timeout(60)

PASSWORD = "s3cret"


def pub(*allow: str, deny: tuple[str, ...] = (), **others: Any) -> Permissions:
    return Permissions(publish=SubjectPermission(allow, deny), **others)


def sub(*allow: str, deny: tuple[str, ...] = ()) -> Permissions:
    return Permissions(subscribe=SubjectPermission(allow or None, deny))


SETS = {
    "puballow": pub("ok.>", "one", "mid.*.end"),
    "pubdeny": Permissions(publish=SubjectPermission(None, ("no.>", "not", "mid.*.end"))),
    "pubboth": pub("all.>", deny=("all.secret", "all.*.secret")),
    "suballow": sub("ok.>", "one", "mid.*.end", "star.*"),
    "subdeny": sub(deny=("no.>", "not", "mid.*.end", "evt.*.secret", "evt.*.*.top")),
    "subboth": sub("all.>", deny=("all.secret", "all.*.secret")),
    "queues": sub("plain", "bar v1", "baz.* v1.*", "baz.* prod", "mix", "mix v1", "any >", "lit *.x"),
    "noqueues": sub(deny=("foo q1", "bar.* dev.*", "evt.* q1", "> blocked")),
    "once": pub("req.>", response=ResponsePermission()),
    "twice": pub("req.>", response=ResponsePermission(max_msgs=2)),
    "always": pub("req.>", response=ResponsePermission(max_msgs=-1, expires=-1)),
    "never": pub("req.>", response=ResponsePermission(max_msgs=-1, expires=1e-9)),
    "answers": Permissions(
        publish=SubjectPermission(None, ("deny.>", "*.in.>")), response=ResponsePermission(max_msgs=1)
    ),
    "denied": pub("req.>", deny=("*.in.>",), response=ResponsePermission()),
}


def connect(name: str, **options: Any) -> bytes:
    what = {"verbose": False, "pedantic": False, "user": name, "pass": PASSWORD} | options
    return b"CONNECT %s\r\n" % json.dumps(what).encode()


def configuration(sets: dict[str, Permissions]) -> str:
    """Return a configuration with a user for each set of permissions."""
    users = []
    for name, permissions in sets.items():
        said: dict[str, Any] = {}
        for key, subjects in (("publish", permissions.publish), ("subscribe", permissions.subscribe)):
            if subjects is not None:
                said[key] = {} if subjects.allow is None else {"allow": subjects.allow}
                said[key] |= {"deny": subjects.deny} if subjects.deny else {}
        if answers := permissions.response:
            expires = f"{round(answers.expires * 1e9)}ns"
            said["allow_responses"] = {"max": answers.max_msgs, "expires": expires}
        users.append({"user": name, "password": PASSWORD, "permissions": said})
    return f"authorization: {json.dumps({'users': users})}\n"


@dataclass
class Target:
    """A server with a user `name`, which has the permissions under test."""

    name: str
    server: Server | ServerThread
    lines: list[str] = field(default_factory=list)

    @property
    def address(self) -> tuple[str, int]:
        return self.server.address if isinstance(self.server, Server) else ("127.0.0.1", self.server.port)

    @property
    def log(self) -> str:
        return self.server.log if isinstance(self.server, Server) else "".join(self.lines)

    def change(self, permissions: Permissions) -> None:
        """Change the user's permissions; return when they hold for its connections."""
        if isinstance(self.server, Server):
            self.server.conf.write_text(configuration({self.name: permissions}))
            start = len(self.server.log)
            self.server.process.send_signal(signal.SIGHUP)
            self.server.wait_log(r"Reloaded server configuration", start)
            return
        compiled = compile_permissions(permissions)
        for client in self.server.call(lambda s: [session.client for session in s.clients.values()]):
            assert client is not None
            self.server.call(lambda _, client=client: client.set_permissions(compiled))


def embedded(kind: Kind, name: str, permissions: Permissions) -> Target:
    lines: list[str] = []
    target = ServerThread(
        io_threads=kind.io_threads,
        username=name,
        password=PASSWORD,
        permissions=permissions,
        log=Logger(lambda line: lines.append(line.decode())),
    )
    target.start()
    return Target(name, target, lines)


@pytest.fixture(scope="module")
def targets(kind: Kind, launch_shared: Launch) -> Iterator[Callable[[str], Target]]:
    """targets(name): a server with the user of that set of permissions, for all tests of the module."""
    started: dict[str, Target] = {}

    def find(name: str) -> Target:
        if kind.is_reference:
            if "" not in started:
                started[""] = Target("", launch_shared(config=configuration(SETS)))
            return started[""]
        if name not in started:
            started[name] = embedded(kind, name, SETS[name])
        return started[name]

    yield find
    for target in started.values():
        if isinstance(target.server, ServerThread):
            target.server.stop()


@pytest.fixture
def target(kind: Kind, launch: Launch) -> Iterator[Callable[[Permissions], Target]]:
    """target(permissions): a server of the test's own."""
    started: list[Target] = []

    def start(permissions: Permissions) -> Target:
        if kind.is_reference:
            return Target("me", launch(config=configuration({"me": permissions})))
        started.append(embedded(kind, "me", permissions))
        return started[-1]

    yield start
    for target in started:
        assert isinstance(target.server, ServerThread)
        target.server.stop()


def no_pub(subject: bytes) -> bytes:
    return b"-ERR 'Permissions Violation for Publish to \"%s\"'\r\n" % subject


def no_sub(subject: bytes, queue: bytes = b"", sid: bytes = b"") -> bytes:
    using = b' using queue "%s"' % queue if queue else b""
    number = b' (sid "%s")' % sid if sid else b""
    return b"-ERR 'Permissions Violation for Subscription to \"%s\"%s%s'\r\n" % (subject, using, number)


def put(subject: bytes, payload: bytes = b"x", reply: bytes = b"") -> bytes:
    return b"PUB %s %s%d\r\n%s\r\n" % (subject, reply and reply + b" ", len(payload), payload)


def msg(subject: bytes, sid: bytes = b"1", payload: bytes = b"x", reply: bytes = b"") -> bytes:
    return b"MSG %s %s %s%d\r\n%s\r\n" % (subject, sid, reply and reply + b" ", len(payload), payload)


INVALID = b"-ERR 'Invalid Subject'\r\n"
T = TOKEN

# One connection: its user, the bytes that it sends, the answer.
ALONE = {
    "publish, allowed": ("puballow", put(b"one") + put(b"ok.a") + put(b"mid.x.end"), b""),
    "publish, not listed": ("puballow", put(b"two"), no_pub(b"two")),
    "publish, not listed, twice": ("puballow", put(b"two") * 2, no_pub(b"two") * 2),
    "publish, shorter than a full wildcard": ("puballow", put(b"ok"), no_pub(b"ok")),
    "publish, more tokens": ("puballow", put(b"one.a"), no_pub(b"one.a")),
    "publish, a wildcard in the middle": ("puballow", put(b"mid.a.b.end"), no_pub(b"mid.a.b.end")),
    "publish, wildcards are words": ("puballow", put(b"ok.*") + put(b"mid.>.end") + put(b">"), no_pub(b">")),
    "publish, empty tokens": ("puballow", put(b"ok..a") + put(b".one"), no_pub(b"ok..a") + no_pub(b".one")),
    "publish, between others": (
        "puballow",
        b"SUB ok.zzzz 1\r\n" + put(b"ok.zzzz") + put(b"two") + put(b"ok.zzzz", b"yy"),
        msg(b"ok.zzzz") + no_pub(b"two") + msg(b"ok.zzzz", payload=b"yy"),
    ),
    "publish, quotes": ("puballow", put(b'a"b\\c'), no_pub(b'a\\"b\\\\c')),
    "publish, beyond ASCII": (
        "puballow",
        put("sn\u00f8.\u2603".encode()),
        no_pub("sn\u00f8.\u2603".encode()),
    ),
    "publish, no UTF-8": ("puballow", put(b"a\xffb"), no_pub(b"a\\xffb")),
    "publish, a long subject": ("puballow", put(b"x." * 300 + b"y"), no_pub(b"x." * 300 + b"y")),
    "publish, with headers": (
        "puballow",
        connect("puballow", headers=True) + b"HPUB two 12 13\r\nNATS/1.0\r\n\r\nx\r\n",
        no_pub(b"two"),
    ),
    "publish, denied": ("pubdeny", put(b"not") + put(b"no.a.b"), no_pub(b"not") + no_pub(b"no.a.b")),
    "publish, beside what is denied": (
        "pubdeny",
        put(b"no") + put(b"nota") + put(b"mid.end") + put(b"x"),
        b"",
    ),
    "publish, denied by a wildcard": ("pubdeny", put(b"mid.*.end"), no_pub(b"mid.*.end")),
    "publish, an empty token is not denied": ("pubdeny", put(b"no..a"), b""),
    "publish, allowed and denied": (
        "pubboth",
        put(b"all.a") + put(b"all.secret") + put(b"all.a.secret") + put(b"all.a.b.secret"),
        no_pub(b"all.secret") + no_pub(b"all.a.secret"),
    ),
    "publish, no subscription is needed": ("suballow", put(b"anything"), b""),
    "publish, a reserved subject": (
        "pubdeny",
        put(b"_GR_.x.y.z") + put(b"$NRG.x"),
        no_pub(b"_GR_.x.y.z") + no_pub(b"$NRG.x"),
    ),
    "publish, a reserved reply": (
        "puballow",
        put(b"one", reply=b"_R_.a") + put(b"two", reply=b"_R_.a"),
        b"-ERR 'Permissions Violation for Publish with Reply of \"_R_.a\"'\r\n" + no_pub(b"two"),
    ),
    "subscribe, allowed": (
        "suballow",
        b"SUB one 1\r\nSUB ok.a 2\r\nSUB ok.> 3\r\nSUB mid.*.end 4\r\nSUB star.* q 5\r\n",
        b"",
    ),
    "subscribe, not listed": ("suballow", b"SUB two 1\r\n", no_sub(b"two")),
    "subscribe, not listed, with a queue": ("suballow", b"SUB two q 1\r\n", no_sub(b"two", b"q")),
    "subscribe, wider than allowed": (
        "suballow",
        b"SUB > 1\r\nSUB ok 2\r\nSUB mid.> 3\r\n",
        no_sub(b">") + no_sub(b"ok") + no_sub(b"mid.>"),
    ),
    "subscribe, a full wildcard where a partial one is allowed": (
        "suballow",
        b"SUB star.> 1\r\nSUB star.*.* 2\r\n",
        no_sub(b"star.*.*"),
    ),
    "subscribe, empty token": (
        "suballow",
        b"SUB ok..a 1\r\nSUB ok. 2\r\n",
        no_sub(b"ok..a") + no_sub(b"ok."),
    ),
    "subscribe, something after the full wildcard": ("suballow", b"SUB ok.>.a 1\r\n", INVALID),
    "subscribe, a number again": ("suballow", b"SUB one 1\r\nSUB two 1\r\n", no_sub(b"two")),
    "subscribe, refused is not subscribed": (
        "suballow",
        b"SUB two.zzzz 1\r\nUNSUB 1\r\n" + put(b"two.zzzz"),
        no_sub(b"two.zzzz"),
    ),
    "subscribe, denied": (
        "subdeny",
        b"SUB not 1\r\nSUB no.a 2\r\nSUB no.> 3\r\nSUB no.* q 4\r\n",
        no_sub(b"not") + no_sub(b"no.a") + no_sub(b"no.>") + no_sub(b"no.*", b"q"),
    ),
    "subscribe, wider than denied": (
        "subdeny",
        b"SUB > 1\r\nSUB * 2\r\nSUB mid.> 3\r\nSUB mid.*.* 4\r\n",
        b"",
    ),
    "subscribe, a full wildcard where a partial one is denied": (
        "subdeny",
        b"SUB mid.>.end 1\r\n",
        no_sub(b"mid.>.end"),
    ),
    "subscribe, not valid and not denied": ("subdeny", b"SUB a..b 1\r\n", INVALID),
    "subscribe, allowed and denied": (
        "subboth",
        b"SUB all.a 1\r\nSUB all.secret 2\r\nSUB all.a.secret 3\r\nSUB other 4\r\n",
        no_sub(b"all.secret") + no_sub(b"all.a.secret") + no_sub(b"other"),
    ),
    "subscribe, system group": ("suballow", b"SUB one _sys_ 1\r\n", no_sub(b"one", b"_sys_")),
    "queue, any where none is named": ("queues", b"SUB plain 1\r\nSUB plain q 2\r\n", b""),
    "queue, only the one that is named": (
        "queues",
        b"SUB bar 1\r\nSUB bar v1 2\r\nSUB bar v2 3\r\n",
        no_sub(b"bar") + no_sub(b"bar", b"v2"),
    ),
    "queue, by wildcard": (
        "queues",
        b"SUB baz.a v1.x 1\r\nSUB baz.a v1 2\r\nSUB baz.* v1.* 3\r\n",
        no_sub(b"baz.a", b"v1"),
    ),
    "queue, one of two": (
        "queues",
        b"SUB baz.a prod 1\r\nSUB baz.a dev 2\r\nSUB baz.a 3\r\n",
        no_sub(b"baz.a", b"dev") + no_sub(b"baz.a"),
    ),
    "queue, plain and one that is named": (
        "queues",
        b"SUB mix 1\r\nSUB mix v1 2\r\nSUB mix v2 3\r\n",
        no_sub(b"mix", b"v2"),
    ),
    "queue, all of them": ("queues", b"SUB any a.b.c 1\r\nSUB any 2\r\n", no_sub(b"any")),
    "queue, a wildcard's tokens": (
        "queues",
        b"SUB lit a.x 1\r\nSUB lit x 2\r\nSUB lit *.x 3\r\nSUB lit a.b.x 4\r\n",
        no_sub(b"lit", b"x") + no_sub(b"lit", b"a.b.x"),
    ),
    "queue denied": ("noqueues", b"SUB foo 1\r\nSUB foo q1 2\r\nSUB foo q2 3\r\n", no_sub(b"foo", b"q1")),
    "queue denied by wildcard": (
        "noqueues",
        b"SUB bar.a dev.x 1\r\nSUB bar.a prod.x 2\r\nSUB bar.> dev.y 3\r\n",
        no_sub(b"bar.a", b"dev.x") + no_sub(b"bar.>", b"dev.y"),
    ),
    "queue denied everywhere": (
        "noqueues",
        b"SUB x.y.z blocked 1\r\nSUB > blocked 2\r\nSUB > 3\r\n",
        no_sub(b"x.y.z", b"blocked") + no_sub(b">", b"blocked"),
    ),
    "deliveries, what is denied is left out": (
        "subdeny",
        b"SUB evt.zzzz.* 1\r\n" + put(b"evt.zzzz.open") + put(b"evt.zzzz.secret") + put(b"evt.zzzz.shut"),
        msg(b"evt.zzzz.open") + msg(b"evt.zzzz.shut"),
    ),
    "deliveries, of two subscriptions": (
        "subdeny",
        b"SUB evt.zzzz.> 1\r\nSUB evt.zzzz.a.* 2\r\nSUB evt.zzzz.a.b 3\r\n"
        + put(b"evt.zzzz.a.top")
        + put(b"evt.zzzz.secret")
        + put(b"evt.zzzz.a.secret"),
        [msg(b"evt.zzzz.a.secret"), msg(b"evt.zzzz.a.secret", b"2")],
    ),
    "deliveries, do not count when left out": (
        "subdeny",
        b"SUB evt.zzzz.* 1\r\nUNSUB 1 2\r\n"
        + put(b"evt.zzzz.secret") * 3
        + put(b"evt.zzzz.a")
        + put(b"evt.zzzz.b")
        + put(b"evt.zzzz.c"),
        msg(b"evt.zzzz.a") + msg(b"evt.zzzz.b"),
    ),
    "deliveries, a queue's": (
        "subdeny",
        b"SUB evt.zzzz.* q 1\r\n" + put(b"evt.zzzz.secret") + put(b"evt.zzzz.a"),
        msg(b"evt.zzzz.a"),
    ),
    "deliveries, denied to a queue only": (
        "noqueues",
        b"SUB evt.> q1 1\r\nSUB evt.* 2\r\nSUB evt.> q2 3\r\n" + put(b"evt.zzzz"),
        no_sub(b"evt.>", b"q1") + msg(b"evt.zzzz", b"2") + msg(b"evt.zzzz", b"3"),
    ),
    "deliveries, denied to a wide queue": (
        "noqueues",
        b"SUB *.zzzz q1 1\r\n" + put(b"evt.zzzz") + put(b"tve.zzzz"),
        msg(b"tve.zzzz"),
    ),
    "deliveries, nobody is left": (
        "subdeny",
        connect("subdeny", headers=True, no_responders=True)
        + b"SUB in.zzzz 1\r\nSUB evt.zzzz.* 2\r\n"
        + put(b"evt.zzzz.secret", reply=b"in.zzzz"),
        b"HMSG in.zzzz 1 47 47\r\nNATS/1.0 503\r\nNats-Subject: evt.zzzz.secret\r\n\r\n\r\n",
    ),
    "no responders, when refused": (
        "puballow",
        connect("puballow", headers=True, no_responders=True)
        + b"SUB in.zzzz 1\r\n"
        + put(b"two", reply=b"in.zzzz"),
        no_pub(b"two"),
    ),
    "verbose": (
        "puballow",
        connect("puballow", verbose=True) + put(b"one") + put(b"two") + b"SUB a 1\r\n",
        OK + OK + no_pub(b"two") + OK,
    ),
    "verbose, subscribe": (
        "suballow",
        connect("suballow", verbose=True) + b"SUB one 1\r\nSUB two 2\r\n",
        OK + OK + no_sub(b"two"),
    ),
    "pedantic": (
        "puballow",
        connect("puballow", pedantic=True) + put(b"two.*"),
        b"-ERR 'Invalid Publish Subject'\r\n" + no_pub(b"two.*"),
    ),
    "responses, without having been asked": ("once", put(b"in.zzzz"), no_pub(b"in.zzzz")),
    "responses, once": (
        "once",
        b"SUB req.zzzz 1\r\n" + put(b"req.zzzz", reply=b"in.zzzz") + put(b"in.zzzz") + put(b"in.zzzz"),
        msg(b"req.zzzz", reply=b"in.zzzz") + no_pub(b"in.zzzz"),
    ),
    "responses, to what may be published anyway": (
        "once",
        b"SUB req.zzzz 1\r\n" + put(b"req.zzzz", reply=b"req.in") + put(b"req.in") * 2,
        msg(b"req.zzzz", reply=b"req.in"),
    ),
    "responses, twice": (
        "twice",
        b"SUB req.zzzz 1\r\n" + put(b"req.zzzz", reply=b"in.zzzz") + put(b"in.zzzz") * 3,
        msg(b"req.zzzz", reply=b"in.zzzz") + no_pub(b"in.zzzz"),
    ),
    "responses, asked twice with the same reply": (
        "twice",
        b"SUB req.zzzz 1\r\n" + put(b"req.zzzz", reply=b"in.zzzz") * 2 + put(b"in.zzzz") * 2,
        msg(b"req.zzzz", reply=b"in.zzzz") * 2 + no_pub(b"in.zzzz"),
    ),
    "responses, asked three times with the same reply": (
        "twice",
        b"SUB req.zzzz 1\r\n" + put(b"req.zzzz", reply=b"in.zzzz") * 4 + put(b"in.zzzz") * 3,
        msg(b"req.zzzz", reply=b"in.zzzz") * 4 + no_pub(b"in.zzzz"),
    ),
    "responses, delivered to two subscriptions": (
        "once",
        b"SUB req.zzzz 1\r\nSUB req.*.> 2\r\nSUB req.zzzz.* 3\r\n"
        + put(b"req.zzzz.a", reply=b"in.zzzz")
        + put(b"in.zzzz")
        + put(b"in.zzzz"),
        [
            msg(b"req.zzzz.a", b"2", reply=b"in.zzzz"),
            msg(b"req.zzzz.a", b"3", reply=b"in.zzzz"),
            no_pub(b"in.zzzz") * 2,
        ],
    ),
    "responses, any number": (
        "always",
        b"SUB req.zzzz 1\r\n" + put(b"req.zzzz", reply=b"in.zzzz") + put(b"in.zzzz") * 50,
        msg(b"req.zzzz", reply=b"in.zzzz"),
    ),
    "responses, denied subjects too": (
        "denied",
        b"SUB req.zzzz 1\r\n" + put(b"req.zzzz", reply=b"zzzz.in.a") + put(b"zzzz.in.a") * 2,
        msg(b"req.zzzz", reply=b"zzzz.in.a") + no_pub(b"zzzz.in.a"),
    ),
    "responses, turn off what no list allows": ("answers", put(b"open.a"), no_pub(b"open.a")),
}

# Conversations: the user, steps of (connection, bytes to send), the answers.
TOGETHER = {
    "a message goes to whoever may have it": (
        "subdeny",
        [
            ("wide", b"SUB evt.zzzz.* 1\r\n"),
            ("exact", b"SUB evt.zzzz.a 1\r\n"),
            ("pub", put(b"evt.zzzz.a") + put(b"evt.zzzz.secret")),
        ],
        {"wide": msg(b"evt.zzzz.a"), "exact": msg(b"evt.zzzz.a"), "pub": b""},
    ),
    "a request and its response": (
        "once",
        [
            ("service", b"SUB req.zzzz 1\r\n"),
            ("client", b"SUB in.zzzz 9\r\n" + put(b"req.zzzz", reply=b"in.zzzz")),
            ("service", put(b"in.zzzz", b"answer") + put(b"in.zzzz", b"again")),
        ],
        {
            "service": msg(b"req.zzzz", reply=b"in.zzzz") + no_pub(b"in.zzzz"),
            "client": msg(b"in.zzzz", b"9", b"answer"),
        },
    ),
    "only who was asked may respond": (
        "once",
        [
            ("service", b"SUB req.zzzz 1\r\n"),
            ("other", b"SUB req.other.zzzz 1\r\n"),
            ("client", b"SUB in.zzzz 9\r\n" + put(b"req.zzzz", reply=b"in.zzzz")),
            ("other", put(b"in.zzzz", b"false")),
            ("client", put(b"in.zzzz", b"false")),
            ("service", put(b"in.zzzz", b"true")),
        ],
        {
            "service": msg(b"req.zzzz", reply=b"in.zzzz"),
            "other": no_pub(b"in.zzzz"),
            "client": no_pub(b"in.zzzz") + msg(b"in.zzzz", b"9", b"true"),
        },
    ),
    "responses to many requests": (
        "twice",
        [
            ("service", b"SUB req.zzzz 1\r\n"),
            ("client", b"SUB in.zzzz.* 9\r\n"),
            *(("client", put(b"req.zzzz", reply=b"in.zzzz.%d" % n)) for n in range(20)),
            *(("service", put(b"in.zzzz.%d" % n) * 3) for n in range(19, -1, -1)),
        ],
        {
            "service": b"".join(msg(b"req.zzzz", reply=b"in.zzzz.%d" % n) for n in range(20))
            + b"".join(no_pub(b"in.zzzz.%d" % n) for n in range(19, -1, -1)),
            "client": b"".join(msg(b"in.zzzz.%d" % n, b"9") * 2 for n in range(19, -1, -1)),
        },
    ),
    "responses that come too late": (
        "never",
        [
            ("service", b"SUB req.zzzz 1\r\n"),
            ("client", put(b"req.zzzz", reply=b"in.zzzz")),
            ("service", put(b"in.zzzz")),
        ],
        {"service": msg(b"req.zzzz", reply=b"in.zzzz") + no_pub(b"in.zzzz"), "client": b""},
    ),
    "a response to a denied subject": (
        "denied",
        [
            ("service", b"SUB req.zzzz 1\r\n"),
            ("client", put(b"req.zzzz", reply=b"zzzz.in.a")),
            ("service", put(b"zzzz.in.a") * 2),
        ],
        {"service": msg(b"req.zzzz", reply=b"zzzz.in.a") + no_pub(b"zzzz.in.a"), "client": b""},
    ),
    "a second CONNECT forgets what may be answered": (
        "once",
        [
            ("service", b"SUB req.zzzz 1\r\n"),
            ("client", put(b"req.zzzz", reply=b"in.zzzz")),
            ("service", connect("once") + put(b"in.zzzz")),
        ],
        {"service": msg(b"req.zzzz", reply=b"in.zzzz") + no_pub(b"in.zzzz"), "client": b""},
    ),
    "a member of a group that may not have a message is passed over": (
        "noqueues",
        [
            ("out", b"SUB *.zzzz q1 1\r\n"),
            ("in", b"SUB x.zzzz q1 1\r\nSUB evt.* q2 2\r\n"),
            ("pub", put(b"evt.zzzz") * 10),
        ],
        {"out": b"", "in": msg(b"evt.zzzz", b"2") * 10, "pub": b""},
    ),
}


@pytest.mark.parametrize(("name", "sent", "answer"), params(ALONE))
def test_one_connection(
    targets: Callable[[str], Target], name: str, sent: bytes, answer: bytes | list[bytes]
) -> None:
    """A list as an answer stands for its parts in any order."""
    got = talk(targets(name), [("a", connect(name) + sent if b"CONNECT" not in sent else sent)])["a"]  # type: ignore[arg-type]
    if isinstance(answer, bytes):
        assert got == answer + OPEN
    else:
        assert sorted(got.splitlines()) == sorted((b"".join(answer) + OPEN).splitlines())


@pytest.mark.parametrize(("name", "steps", "answers"), params(TOGETHER))
def test_several_connections(
    targets: Callable[[str], Target], name: str, steps: list[tuple[str, bytes]], answers: dict[str, bytes]
) -> None:
    seen: set[str] = set()
    script = []
    for who, data in steps:
        script.append((who, data if who in seen else connect(name) + data))
        seen.add(who)
    wanted = {who: answer + OPEN for who, answer in answers.items()}
    assert talk(targets(name), script) == wanted  # type: ignore[arg-type]


def test_refusals_are_logged(target: Callable[[Permissions], Target]) -> None:
    me = target(Permissions(SubjectPermission(("one",)), SubjectPermission(("one",))))
    with Connection(me.address) as c:
        c.send(connect("me") + put(b'tw"o') + b"SUB two 7\r\nSUB two q 8\r\n")
        c.fence()
    until_logged(me, 'Publish Violation - Subject "tw\\"o"')
    until_logged(me, 'Subscription Violation - Subject "two", SID 7')
    until_logged(me, 'Subscription Violation - Subject "two", Queue: "q", SID 8')


def until_logged(target: Target, text: str) -> None:
    from support.servers import until

    until(lambda: text in target.log)


CHANGES: dict[str, tuple[Permissions, Permissions, bytes, bytes]] = {
    "nothing that is used": (sub("a", "b"), sub("a"), b"SUB a 1\r\n", b""),
    "a subscription": (sub("a", "b"), sub("a"), b"SUB a 1\r\nSUB b 2\r\n", no_sub(b"b", sid=b"2")),
    "a queue subscription": (
        sub("a", "b"),
        sub("a"),
        b"SUB a q 1\r\nSUB b q 2\r\n",
        no_sub(b"b", b"q", b"2"),
    ),
    "a queue": (sub("a"), sub("a v1"), b"SUB a v1 1\r\nSUB a v2 2\r\n", no_sub(b"a", b"v2", b"2")),
    "what is denied now": (
        sub("a.>"),
        sub("a.>", deny=("a.b",)),
        b"SUB a.b 1\r\nSUB a.* 2\r\n",
        no_sub(b"a.b", sid=b"1"),
    ),
    "everything": (Permissions(), sub(deny=(">",)), b"SUB a.b x\r\n", no_sub(b"a.b", sid=b"x")),
}


@pytest.mark.parametrize(("before", "after", "sent", "answer"), params(CHANGES))
def test_subscriptions_end_with_their_permission(
    target: Callable[[Permissions], Target],
    before: Permissions,
    after: Permissions,
    sent: bytes,
    answer: bytes,
) -> None:
    me = target(before)
    with Connection(me.address) as c:
        c.send(connect("me") + sent)
        assert c.fence() == []
        me.change(after)
        assert b"".join(c.fence() + c.fence()).replace(b"PING\r\n", b"") == answer
        for line in answer.splitlines():
            text = line.decode().removeprefix("-ERR 'Permissions Violation for Subscription to ")[:-1]
            until_logged(me, f'Removed sub {text} for User "me" - not authorized')
        assert me.log.count("Removed sub") == len(answer.splitlines())


def test_a_change_holds_for_what_is_published_and_delivered(target: Callable[[Permissions], Target]) -> None:
    me = target(Permissions())
    word = new_word()
    with Connection(me.address) as c:
        c.send(connect("me") + b"SUB a.> 1\r\n" + put(b"a.b") + put(b"a.c"))
        assert b"".join(c.fence()) == msg(b"a.b") + msg(b"a.c")
        me.change(Permissions(SubjectPermission(None, ("x",)), SubjectPermission(None, ("a.b",))))
        c.fence()
        c.send(put(b"a.b") + put(b"x") + put(b"a." + word))
        assert b"".join(c.fence()) == no_pub(b"x") + msg(b"a." + word)
        me.change(Permissions(SubjectPermission(("a.b",))))
        c.fence()
        c.send(put(b"a.b") + put(b"x"))
        assert b"".join(c.fence()) == msg(b"a.b") + no_pub(b"x")
