"""Fail malloc() or a system call once at each place of the data plane that calls it.

The connection that needed the call is closed, and the log says so, or it is served all the same. No other
connection is closed. Each remaining connection gets every message, whole and in order. The server goes on.
"""

from __future__ import annotations

import itertools
import json
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.certs import Certificates
from support.failing_server import Call, build
from support.kernel import SocketDiag
from support.servers import Kind, Server
from support.tlswire import TLSConnection, client_context
from support.wire import CRLF, PING, Closed, Connection

pytestmark = pytest.mark.timeout(600)

EXEMPT = (
    "core/runtime/inbox",
    "core/accounts/imports",
    "core/routing/services",
    "core/messages/responses",
    "core/accounts/account",
    "core/accounts/listing",
)
"""Modules whose allocations serve more than one connection, so that a failure may close several."""
CLOSING = {
    Call.MEMORY: "Out of memory - Closing",
    Call.EPOLL_CTL: "Error watching the socket: cannot allocate memory - Closing",
    Call.SENDMSG: "Client connection closed: Write Error",
    Call.RECV: "Client connection closed: Read Error",
    Call.TIMERFD_SETTIME: "nobody is closed",
}
WILDCARDS = [".".join(tokens) for tokens in itertools.product("*a", "*b", "*c", "*d", "*e")][:20]
"""Subjects of service imports that match one request: more than route() collects without allocating."""
IMPORTS = ", ".join(
    f'{{service: {{account: E, subject: "x{i}{".*" * to.count("*")}"}}, to: "{to}"}}'
    for i, to in enumerate(WILDCARDS)
)
CONFIG = f"""
debug: true
max_payload: 2MB
max_pending: 20MB
accounts {{
  A {{
    users: [
      {{user: a, password: p}}
      {{user: limited, password: p, permissions: {{
        publish: {{allow: ["out.>"]}}, subscribe: {{deny: ["secret.>"]}}, allow_responses: true}}}}
    ]
    mappings {{ "mapped.from": "m.mapped" }}
    imports: [{{stream: {{account: E, subject: "st.*"}}, to: "m.{"long" * 80}.st.$1"}}, {IMPORTS}]
  }}
  E {{ users: [{{user: e, password: p}}], exports: [{{stream: "st.*"}}, {{service: ">"}}] }}
}}
"""


CLOSED = (Closed, ConnectionError, ssl.SSLError)


class Role:
    """A connection that the server may close at any time. Its methods then do nothing."""

    def __init__(self, make: Callable[[], Connection], user: str, headers: bool = True) -> None:
        self.gone = False
        self.cid = 0
        self.pinged = False
        self.ops: list[bytes] = []
        self.connection: Connection | None = None
        try:
            self.connection = make()
            self.cid = int(self.connection.info["client_id"])
        except CLOSED:
            self.gone = True
        # One write: the server keeps the bytes behind CONNECT until CONNECT is answered.
        options = {"user": user, "pass": "p", "verbose": False, "headers": headers, "protocol": 1}
        self.say(b"CONNECT %s\r\nPING\r\nSUB first 1\r\nPING\r\n" % json.dumps(options).encode())
        self._read_until_pong()
        self._read_until_pong()

    def say(self, data: bytes) -> None:
        if self.gone or not self.connection:
            return
        try:
            self.gone = not self.connection.send(data)
        except CLOSED:
            self.gone = True

    def _read_until_pong(self) -> None:
        if self.gone or not self.connection:
            return
        try:
            while (op := self.connection.read_op()) != b"PONG\r\n":
                if op == PING:
                    self.pinged = True
                    self.say(b"PONG\r\n")
                elif not op.startswith(b"INFO "):
                    self.ops.append(op)
        except CLOSED:
            self.gone = True

    def fence(self) -> None:
        self.say(PING)
        self._read_until_pong()

    def take(self) -> list[bytes]:
        """Return the operations received since the last call, without PONGs and INFO."""
        ops, self.ops = self.ops, []
        return ops

    def close(self) -> None:
        if self.connection:
            self.connection.close()


def payload(n: int, size: int) -> bytes:
    return (b"%d." % n) * (size // len(b"%d." % n))


def sent(subject: bytes, n: int, size: int, reply: bytes = b"") -> bytes:
    data = payload(n, size)
    return b"PUB %s %s %d\r\n%s\r\n" % (subject, reply, len(data), data)


SIZES = [3, 1000, 3000, 20_000, 70_000, 300_000, 9]
MANY = [1 << 20] * 19 + [900_000]
"""Sizes of messages: enough to fill a socket, and then more than three quarters of max_pending."""
HUGE = bytes(1 << 20)
LONG = b"m." + b"subject." * 60 + b"end"


class Play:
    """The connections of one run, and the scenes that use them."""

    def __init__(
        self, server: Server, context: ssl.SSLContext | None, diag: SocketDiag, stack: ExitStack
    ) -> None:
        """Connect. `stack` closes the connections."""
        self._server = server
        self._diag = diag
        self._stack = stack
        self.roles: list[Role] = []

        def connect() -> Connection:
            return Connection(server.address)

        def secure() -> Connection:
            return TLSConnection(server.address, context) if context else Connection(server.address)

        # Two of each kind, one after the other, so that each of two pollers gets one.
        self.subscribers = [self._role(make, "a") for make in (connect, connect, secure, secure)]
        self.bare = [self._role(connect, "a", headers=False) for _ in range(2)]
        self.publisher = self._role(connect, "a")
        self.secure = self._role(secure, "a")
        self.limited = [self._role(connect, "limited") for _ in range(2)]
        self.exporter = self._role(connect, "e")
        self.slow = [self._role(connect, "a") for _ in range(2)]

    def _role(self, make: Callable[[], Connection], user: str, headers: bool = True) -> Role:
        role = Role(make, user, headers)
        self._stack.callback(role.close)
        self.roles.append(role)
        return role

    def run(self) -> None:
        self.deliver()
        self.split()
        self.limit()
        self.ask()
        self.fall_behind()

    def receive(self, roles: list[Role], publisher: Role, expected: list[bytes]) -> None:
        """Check that all of `roles` get the expected payloads, in order.

        When the publisher was closed, some payloads may be missing.
        """
        publisher.fence()
        for role in roles:
            role.fence()
            got = [body(op) for op in role.take()]
            if role.gone:
                continue
            if publisher.gone:
                rest = iter(expected)
                assert all(one in rest for one in got), [one[:20] for one in got]
            else:
                assert got == expected, ([one[:20] for one in got], [one[:20] for one in expected])

    def deliver(self) -> None:
        """Deliver messages to many, across pollers, with and without headers, mapped and imported."""
        everyone = [*self.subscribers, *self.bare]
        for sid, role in enumerate(everyone):
            role.say(b"SUB m.> %s\r\nSUB m.none%d 7\r\nUNSUB 7 1\r\n" % (b"s" * (1 + 40 * sid), sid))
            role.fence()
            role.take()
        header = b"NATS/1.0\r\nName: value\r\n\r\n"
        for publisher in (self.publisher, self.secure):
            publisher.say(b"".join(sent(b"m.a", n, size) for n, size in enumerate(SIZES)))
            self.receive(everyone, publisher, [payload(n, size) for n, size in enumerate(SIZES)])
            publisher.say(
                b"HPUB %s reply %d %d\r\n%sbody\r\n" % (LONG, len(header), len(header) + 4, header)
                + sent(b"mapped.from", 5, 100)
            )
            self.receive(everyone, publisher, [b"body", payload(5, 100)])
        # An import maps a subject to a long one. Then some subscriptions get their last message.
        self.exporter.say(sent(b"st.one", 6, 50_000))
        self.receive(everyone, self.exporter, [payload(6, 50_000)])
        for sid, role in enumerate(everyone):
            self.publisher.say(2 * sent(b"m.none%d" % sid, 7, 10))
            self.publisher.fence()
            for other in everyone:
                other.fence()
                expected = [payload(7, 10)] * (3 if other is role else 2)
                assert other.gone or self.publisher.gone or [body(op) for op in other.take()] == expected
                other.take()

    def split(self) -> None:
        """Send a line and a payload in several reads."""
        if self.publisher.gone or not self.publisher.connection:
            return
        data = sent(b"m.split", 8, 5000)
        for part in (data[:6], data[6:30], data[30:]):
            self.publisher.say(part)
            self._diag.wait_read(self._server.address, [self.publisher.connection])
        self.receive([*self.subscribers, *self.bare], self.publisher, [payload(8, 5000)])

    def limit(self) -> None:
        """Denied subjects get an -ERR. A client may publish to the reply subject of a request that it got."""
        for role in self.limited:
            role.say(b"SUB in.q 5\r\nSUB secret.x queue 6\r\nPUB denied.x 0\r\n\r\nSUB a..b 7\r\n")
            role.fence()
            errors = role.take()
            assert role.gone or [op.split(b"'")[1][:20] for op in errors] == [
                b"Permissions Violatio",
                b"Permissions Violatio",
                b"Invalid Subject",
            ]
        asking = self.subscribers[0]
        for n, role in enumerate(self.limited):
            self.publisher.say(b"PUB in.q m.answer.%d 2\r\nhi\r\n" % n)
            self.publisher.fence()
            role.fence()
            for other in self.limited:
                other.fence()
                other.take()
            role.say(b"PUB m.answer.%d 3\r\nyes\r\n" % n)
            role.fence()
            asking.fence()
            got = [body(op) for op in asking.take()]
            assert got == [b"yes"] or asking.gone or role.gone or self.publisher.gone

    def fall_behind(self) -> None:
        """Send slow subscribers more than their sockets accept, until the server stalls the publisher."""
        for role in self.slow:
            if role.connection:
                role.connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            role.say(b"SUB slow 9\r\n")
            role.fence()
            role.take()
        for size in MANY:
            self.publisher.say(b"PUB slow %d\r\n%s\r\n" % (size, HUGE[:size]))
        self.publisher.fence()
        for role in self.slow:
            role.fence()
            got = [len(body(op)) for op in role.take()]
            assert got == MANY or role.gone or self.publisher.gone, got

    def ask(self) -> None:
        """Send a request that matches many imported services, none of which has a subscriber.

        Ordinary subscribers get the request.
        """
        for sid, role in enumerate(self.subscribers):
            role.say(b"SUB %s 8\r\n" % (b"a.b.c.d.e" if sid % 2 else b"*.*.*.*.*"))
            role.fence()
            role.take()
        self.publisher.say(b"PUB a.b.c.d.e 2\r\nhi\r\n")
        self.publisher.fence()
        heard = []
        for role in self.subscribers:
            role.fence()
            if not role.gone:
                heard.append([body(op) for op in role.take()])
        # The publisher may have been closed before its request was routed. A routed request reaches all.
        assert heard in ([[b"hi"]] * len(heard), [[]] * len(heard) if self.publisher.gone else None), heard


def body(op: bytes) -> bytes:
    line, _, rest = op.partition(CRLF)
    size = int(line.split(b" ")[-2]) if line.startswith(b"HMSG") else 0
    return rest[size:-2]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("call", Call, ids=lambda call: call.name.lower())
def test_a_call_that_fails_harms_nobody_else(
    kind: Kind,
    tmp_path: Path,
    stack: ExitStack,
    certs: Certificates,
    diag: SocketDiag,
    call: Call,
    secure: bool,
) -> None:
    failing = build(tmp_path, EXEMPT)
    config, context = CONFIG, None
    if secure:
        context = client_context(certs)
        config += f"tls {{cert_file: '{certs.server.cert_file}', key_file: '{certs.server.key_file}'}}\n"
        config += "allow_non_tls: true\n"
    server = Server(kind, tmp_path / "server", config=config, wrapper=failing.wrapper)
    stack.callback(server.kill)

    def bystander() -> Role:
        role = Role(lambda: Connection(server.address, pings=True), "e")
        stack.callback(role.close)
        role.say(b"SUB still.here 2\r\n")
        role.fence()
        assert not role.gone
        return role

    bystanders = [bystander() for _ in range(4)]
    while True:
        failing.fail_next(call)
        with ExitStack() as connections:
            play = Play(server, context, diag, connections)
            play.run()
        where = failing.stop()
        for role in bystanders:
            role.fence()
        # The call for a bystander's first PING may have failed, some time after the bystander connected.
        # No other PING is due soon.
        assert not any(role.gone and role.pinged for role in bystanders), where
        gone = [role for role in play.roles + bystanders if role.gone]
        bystanders = [bystander() if role.gone else role for role in bystanders]
        for role in gone:
            if role.cid:
                server.wait_log(rf"cid:{role.cid} - .*{re.escape(CLOSING[call])}")
        for n, role in enumerate(bystanders):
            role.say(sent(b"still.here", n, 10_000))
            role.fence()
            for other in bystanders:
                other.fence()
                assert [body(op) for op in other.take()] == [payload(n, 10_000)], where
        assert len(gone) <= (1 if where else 0), (where, [role.cid for role in gone])
        if not where:
            break
    assert failing.ways >= {Call.MEMORY: 15, Call.RECV: 2}.get(call, 1)
    server.stop()
