"""CONNECT and INFO: the control plane's calls to the data plane, and its log lines."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest

from gnats.accounts.account import TRAFFIC, Account
from gnats.accounts.accounts import Accounts
from gnats.auth.authenticator import Authenticator
from gnats.auth.connect import Connector, remove_secrets_from_trace
from gnats.client.grant import Grant
from gnats.client.session import Session
from gnats.connection.closed_state import ClosedState
from gnats.log.logger import Logger
from gnats.options.options import Options

pytestmark = pytest.mark.timeout(60)


class Client:
    """Records calls to the data plane's client."""

    cid = 7

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def accept_connect(self, sublist: object, **options: object) -> None:
        self.calls.append(("accept_connect", options))

    def snapshot(self) -> dict[str, int]:
        return dict.fromkeys(TRAFFIC, 0)

    def resume(self) -> None:
        self.calls.append(("resume", None))

    def close_connection(self, reason: ClosedState, err: str | None = None) -> None:
        self.calls.append(("close", (reason, err)))


class Info:
    """INFO's fields as JSON, without the unchanged ones."""

    def line(self, **changes: object) -> bytes:
        return json.dumps(changes).encode()


class Server:
    """The part of a server that CONNECT needs."""

    def __init__(self, opts: Options | None = None, *, trace: bool = False) -> None:
        opts = opts or Options()
        self.lines: list[str] = []
        self.log = Logger(lambda line: self.lines.append(line.decode()), logtime=False, trace=trace)
        self.tasks: list[asyncio.Task[None]] = []
        self.auth = Authenticator(opts, self.log)
        self.connector = Connector(
            self.auth,
            Info(),  # type: ignore[arg-type]
            Accounts(Options()),
            self.log,
            options=lambda: opts,
            events=lambda: None,
            spawn=self.spawn,
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]

    @property
    def logged(self) -> list[str]:
        return [line.split("] ", 1)[1].rstrip("\n") for line in self.lines]


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def session(client: Client) -> Session:
    return Session(client, "127.0.0.1", 5000, Account("$G"))  # type: ignore[arg-type]


def connect(server: Server, session: Session, *args: str) -> None:
    for arg in args:
        server.connector.process_connect(session, arg.encode())


def test_a_client_goes_on_with_what_it_asked_for(client: Client, session: Session) -> None:
    connect(
        Server(),
        session,
        '{"verbose":false,"pedantic":false,"echo":false,"headers":true,"no_responders":true,"protocol":1}',
    )
    ((name, options),) = client.calls
    assert name == "accept_connect"
    assert json.loads(options.pop("connect_info")) == {
        "client_id": 7,
        "client_ip": "127.0.0.1",
        "connect_info": True,
        "remote_account": "$G",
        "acc_is_sys": False,
        "max_payload": 1 << 20,
    }
    assert options == {
        "echo": False,
        "verbose": False,
        "pedantic": False,
        "headers": True,
        "no_responders": True,
        "protocol": 1,
        "greeting": b"",
        "permissions": None,
        "max_subs": -1,
        "max_payload": 1 << 20,
    }


def test_the_defaults_are_verbose_pedantic_and_echo(client: Client, session: Session) -> None:
    connect(Server(), session, "{}")
    ((_, options),) = client.calls
    wanted = ("echo", "verbose", "pedantic", "headers", "no_responders", "protocol")
    assert [options[name] for name in wanted] == [True, True, True, False, False, 0]
    assert options["greeting"] == b"+OK\r\n"


def test_a_second_connect_changes_only_what_it_names(client: Client, session: Session) -> None:
    connect(Server(), session, '{"verbose":false,"protocol":1}', '{"echo":false}')
    options = client.calls[1][1]
    assert (options["verbose"], options["echo"], options["protocol"]) == (False, False, 1)


def test_headers_need_both_sides(client: Client, session: Session) -> None:
    connect(Server(Options(no_header_support=True)), session, '{"headers":true}')
    assert client.calls[0][1]["headers"] is False


@pytest.mark.parametrize(
    ("arg", "opts", "reason", "err", "line"),
    [
        (
            '{"protocol":2}',
            Options(),
            ClosedState.BAD_CLIENT_PROTOCOL_VERSION,
            "invalid client protocol",
            "invalid client protocol",
        ),
        (
            '{"protocol":-1}',
            Options(),
            ClosedState.BAD_CLIENT_PROTOCOL_VERSION,
            "invalid client protocol",
            "invalid client protocol",
        ),
        (
            '{"no_responders":true}',
            Options(),
            ClosedState.NO_RESPONDERS_REQUIRES_HEADERS,
            "no responders requires headers support",
            "no responders requires headers support",
        ),
        (
            '{"no_responders":true,"headers":true}',
            Options(no_header_support=True),
            ClosedState.NO_RESPONDERS_REQUIRES_HEADERS,
            "no responders requires headers support",
            "no responders requires headers support",
        ),
        (
            '{"account":"A"}',
            Options(),
            ClosedState.AUTHENTICATION_VIOLATION,
            "Authorization Violation",
            "authentication error",
        ),
        (
            '{"new_account":true}',
            Options(),
            ClosedState.AUTHENTICATION_VIOLATION,
            "Authorization Violation",
            "authentication error",
        ),
        (
            '{"user":"al","pass":"x"}',
            Options(username="bob", password="pw"),
            ClosedState.AUTHENTICATION_VIOLATION,
            "Authorization Violation",
            'authentication error - User "al"',
        ),
        (
            '{"auth_token":"secret"}',
            Options(authorization="tok"),
            ClosedState.AUTHENTICATION_VIOLATION,
            "Authorization Violation",
            'authentication error - Token "[REDACTED]"',
        ),
        (
            '{"nkey":"UABC"}',
            Options(authorization="tok"),
            ClosedState.AUTHENTICATION_VIOLATION,
            "Authorization Violation",
            'authentication error - Nkey "UABC"',
        ),
        (
            '{"verbose":1}',
            Options(),
            ClosedState.PROTOCOL_VIOLATION,
            None,
            "json: cannot unmarshal number into Go struct field ClientOpts.verbose of type bool",
        ),
    ],
)
def test_a_client_is_refused(
    client: Client,
    session: Session,
    arg: str,
    opts: Options,
    reason: ClosedState,
    err: str | None,
    line: str,
) -> None:
    server = Server(opts)
    connect(server, session, arg)
    assert client.calls == [("close", (reason, err))]
    assert server.logged == [f"[ERR] 127.0.0.1:5000 - cid:7 - {line}"]


@pytest.mark.parametrize(
    ("arg", "names"),
    [
        ("{}", ""),
        ('{"name":"n"}', ' - "n"'),
        ('{"lang":"go","name":"n"}', ' - "go:n"'),
        ('{"version":"1.2","lang":"go","name":"n"}', ' - "v1.2:go:n"'),
        ('{"version":"1.2","name":"n"}', ' - "v1.2:n"'),
        ('{"user":"bob"}', ' - "$G/user:bob"'),
        ('{"lang":"go","auth_token":"t"}', ' - "go" - "$G/token"'),
        ('{"name":"a\\"b\\n","nkey":"UA"}', ' - "a\\"b\\n" - "$G/nkey:UA"'),
        ('{"name":"%s"}', ' - "%s"'),
    ],
)
def test_the_log_names_a_client_by_what_it_said(session: Session, arg: str, names: str) -> None:
    connect(Server(), session, arg)
    assert str(session) == f"127.0.0.1:5000 - cid:7{names}"


def test_the_first_connect_names_a_client_for_good(session: Session) -> None:
    connect(Server(), session, '{"name":"first"}', '{"name":"second"}')
    assert str(session) == '127.0.0.1:5000 - cid:7 - "first"'


def test_an_ipv6_client_is_bracketed_in_the_log() -> None:
    assert str(Session(Client(), "::1", 5000, Account("$G"))) == "[::1]:5000 - cid:7"  # type: ignore[arg-type]


def test_a_trace_shows_connect_and_answer_without_secrets(session: Session) -> None:
    server = Server(trace=True)
    connect(server, session, '{"user":"u","pass":"p"}', '{"protocol":9}')
    named = '127.0.0.1:5000 - cid:7 - "$G/user:u"'
    assert server.logged == [
        '[TRC] 127.0.0.1:5000 - cid:7 - <<- [CONNECT {"user":"u","pass":"[REDACTED]"}]',
        f"[TRC] {named} - ->> [OK]",
        f'[TRC] {named} - <<- [CONNECT {{"protocol":9}}]',
        f"[TRC] {named} - ->> [-ERR invalid client protocol]",
        f"[ERR] {named} - invalid client protocol",
    ]


@pytest.mark.parametrize(
    ("connect", "shown"),
    [
        ('{"pass":"s3","user":"u"}', '{"pass":"[REDACTED]","user":"u"}'),
        ('{"PASS" : "s3"}', '{"PASS" : "[REDACTED]"}'),
        ('{"password":"s3"}', '{"password":"[REDACTED]"}'),
        ('{"auth_token":"s3"}', '{"auth_token":"[REDACTED]"}'),
        ('{"nkey":"s3","sig":"s3","proxy_sig":"s3"}', None),
        ('{"pass":"s\\"3 s3"}', '{"pass":"[REDACTED]"}'),
        ('{"pass":"s3', '{"pass":"[REDACTED]"'),
        ('{"pass":s3}', '{"pass":"[REDACTED]"}'),
        ('{"signal":"x","user":"pass"}', '{"signal":"x","user":"pass"}'),
    ],
)
def test_secrets_are_redacted(connect: str, shown: str | None) -> None:
    found = remove_secrets_from_trace(connect)
    assert "s3" not in found
    if shown is not None:
        assert found == shown


async def test_a_decision_that_fails_ends_the_connection(client: Client, session: Session) -> None:
    async def fail() -> Grant:
        raise RuntimeError("nobody has thought of that")

    server = Server()
    server.auth.check = lambda session: fail()  # type: ignore[method-assign]
    connect(server, session, "{}")
    (deciding,) = server.tasks
    await asyncio.wait([deciding])
    await asyncio.sleep(0)  # run its callbacks
    reason = ClosedState.AUTHENTICATION_VIOLATION
    assert client.calls == [("close", (reason, "Authorization Violation"))]
    assert "nobody has thought of that" in server.logged[0]


def test_a_client_that_sends_info_goes_on(client: Client, session: Session) -> None:
    Server().connector.process_info(session, b'{"server_id":"x","port":1}')
    assert client.calls == [("resume", None)]


@pytest.mark.parametrize("arg", [b"x", b"[]", b'{"port":"1"}', b'{"connect_urls":"a"}'])
def test_a_client_whose_info_is_none_is_closed(client: Client, session: Session, arg: bytes) -> None:
    server = Server()
    server.connector.process_info(session, arg)
    assert client.calls == [("close", (ClosedState.PROTOCOL_VIOLATION, None))]
    assert server.logged[0].startswith("[ERR] 127.0.0.1:5000 - cid:7 - ")


def test_repeated_refusals_of_unnamed_clients_are_logged_once() -> None:
    server = Server()
    for port in (1, 2):
        session = Session(Client(), "::1", port, Account("$G"))  # type: ignore[arg-type]
        session.rate_limit(server.log, "ERR", "maximum connections exceeded")
    assert server.logged == ["[ERR] [::1]:1 - cid:7 - maximum connections exceeded"]


def test_a_rate_limited_line_of_a_known_client_names_account_and_user(session: Session) -> None:
    server = Server()
    connect(server, session, '{"user":"bob"}')
    session.rate_limit(server.log, "DBG", "some trouble")
    assert server.logged == [f"[DBG] {session} - some trouble - Account:$G - user:bob"]
