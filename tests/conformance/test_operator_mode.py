"""Operator mode: the JWTs that clients may log in with, and the effect of new JWTs on open connections."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from interop.test_jwt_reference import CASES, in_order
from support import jwts
from support.jwts import HOUR, Attempt
from support.launch import Launch, start
from support.monitor import monitor
from support.natspy import joined
from support.reload import reload
from support.servers import REFERENCE, Kind, Server, until
from support.trust import Account, Refused, Trust, connect, hears, request, user_info
from support.wire import PING, PONG, VIOLATION, Closed, Connection

from gnats.jwt.account import Export, Import, UserScope, WeightedMapping
from gnats.jwt.claims import ActivationClaims, GenericClaims, Permission, unlimited
from gnats.jwt.decorated import format_user_config
from gnats.jwt.token import encode

pytestmark = pytest.mark.timeout(120)


# -- logging in ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """The attempts of all cases; the reference server and the server under test."""

    attempts: dict[str, Attempt]
    servers: tuple[Server, Server]


@pytest.fixture(scope="module")
def world(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    operator, system = jwts.operator(), jwts.account()
    attempts = {name: Attempt(operator) for name in CASES}
    for name, attempt in attempts.items():
        CASES[name][0](attempt)
        attempt.make()
    tokens = {attempt.account.public_key: attempt.account_jwt for attempt in attempts.values()}
    tokens[system.public_key] = jwts.account_jwt(system, operator)
    config = f"operator: {jwts.operator_jwt(operator, system_account=system.public_key)}\n"
    config += "resolver: MEM\nmax_control_line: 2MB\nresolver_preload {\n"
    config += "".join(f"  {name}: {token}\n" for name, token in tokens.items()) + "}\n"
    with ExitStack() as stack:
        made = []
        for each in (REFERENCE, kind):
            server = start(each, tmp_path_factory.mktemp(each.name), "-D", config=config)
            stack.callback(server.stop)
            made.append(server)
        yield World(attempts, (made[0], made[1]))


def outcome(server: Server, attempt: Attempt) -> object:
    """Log in; return the bytes of a refusal, or the answer to $SYS.REQ.USER.INFO."""
    with Connection(server.address) as connection:
        options = attempt.connect_options(connection.info["nonce"]) | {"verbose": False}
        connection.send(f"CONNECT {json.dumps(options)}\r\nPING\r\n".encode())
        try:
            connection.read_until(PONG)
            connection.send(b"SUB _INBOX.me 1\r\nPUB $SYS.REQ.USER.INFO _INBOX.me 0\r\n\r\n")
            said = connection.fence()
            while not any(op.startswith((b"MSG", b"-ERR")) for op in said):
                said = connection.fence()
        except Closed as closed:
            return closed.args[0]
        answers = [json.loads(op.split(b"\r\n")[1])["data"] for op in said if op.startswith(b"MSG")]
        for answer in answers:
            answer["expires"] = bool(answer.get("expires"))
        return in_order(answers[0]) if answers else said


@pytest.mark.parametrize("name", CASES)
def test_who_is_let_in(world: World, name: str) -> None:
    theirs, ours = (outcome(server, world.attempts[name]) for server in world.servers)
    assert ours == theirs
    assert isinstance(ours, bytes) != CASES[name][1]


def test_info_asks_for_a_signature(world: World) -> None:
    with Connection(world.servers[1].address) as connection:
        assert connection.info["auth_required"] is True
        assert re.fullmatch(r"[\w-]{15}", connection.info["nonce"])


def test_a_second_connect_is_for_another_account(launch: Launch) -> None:
    trust = Trust()
    one, other = trust.account(), trust.account()
    server = launch(config=trust.config(one, other))
    with one.user().connect(server) as connection:
        before = user_info(connection)["account"]
        user = other.user()
        sig = jwts.raw_base64(user.key.sign(connection.info["nonce"].encode()))
        connect_options = json.dumps({"verbose": False, "jwt": user.jwt, "sig": sig})
        connection.send(f"CONNECT {connect_options}\r\n".encode())
        assert (before, user_info(connection)["account"]) == (one.name, other.name)


def test_who_brings_no_jwt_gets_the_default_sentinel(launch: Launch) -> None:
    trust = Trust()
    account = trust.account()
    sentinel = account.user(bearer_token=True)
    server = launch(config=trust.config(account, more=f"default_sentinel: {sentinel.jwt}"))
    for options in ({}, {"user": "someone", "pass": "secret"}, {"jwt": "garbage"}):
        with connect(server, **options) as connection:
            assert user_info(connection)["account"] == account.name


def test_only_pinned_accounts_get_in(launch: Launch) -> None:
    trust = Trust()
    pinned, other = trust.account(), trust.account()
    more = f"resolver_pinned_accounts: [{pinned.name}]"
    server = launch("-m", "-1", config=trust.config(pinned, other, more=more))
    pinned.user().connect(server).close()
    trust.system.user().connect(server).close()
    with pytest.raises(Refused, match="Authorization Violation"):
        other.user().connect(server)
    assert monitor(server, "/varz")["pinned_account_fails"] == 1


def test_trusted_keys_are_enough(launch: Launch) -> None:
    trust = Trust()
    account = trust.account()
    config = f"trusted_keys: {trust.operator.public_key}\nresolver: MEM\n"
    config += f"resolver_preload {{ {account.name}: {account.jwt} }}\n"
    server = launch(config=config)
    account.user().connect(server).close()
    with pytest.raises(Refused, match="Authorization Violation"):
        Trust().account().user().connect(server)


def test_more_connections_than_the_account_may_have(launch: Launch) -> None:
    trust = Trust()
    account = trust.account()
    account.nats.limits.conn = 1
    server = launch(config=trust.config(account))
    with account.user().connect(server), pytest.raises(Refused) as refused:
        account.user().connect(server)
    assert refused.value.args[0] == b"-ERR 'maximum account active connections exceeded'\r\n"


def test_a_user_leaves_when_its_jwt_ends(launch: Launch) -> None:
    trust = Trust()
    account = trust.account()
    server = launch(config=trust.config(account))
    user = account.user()
    user.claims.exp = int(time.time()) + 5
    with user.connect(server) as connection:
        assert connection.rest().endswith(b"-ERR 'User Authentication Expired'\r\n")


def test_an_account_ends_with_its_jwt(launch: Launch) -> None:
    trust = Trust()
    account = trust.account()
    server = launch(config=trust.config(account))
    user = account.user()
    with user.connect(server) as connection:
        account.claims.exp = int(time.time()) + 5
        reload(server, trust.config(account))
        assert connection.rest().endswith(b"-ERR 'Account Authentication Expired'\r\n")
    with pytest.raises(Refused, match="Authorization Violation"):
        user.connect(server)


# -- updated claims --------------------------------------------------------------------------------------

Change = Callable[[Account, list[Any]], None]
CHANGES: dict[str, tuple[Change, list[object]]] = {}


def change(*heard: object) -> Callable[[Change], Change]:
    """Register a change of an account, and the output to its two clients.

    `heard` is for each a list of operations, or all bytes up to the end where the server closes it.
    """

    def add(made: Change) -> Change:
        CHANGES[made.__name__] = made, list(heard)
        return made

    return add


REVOKED = b"-ERR 'User Authentication Revoked'\r\n"


@change([], [])
def nothing(account: Account, users: list[Any]) -> None:
    pass


@change([], [])
def something_else(account: Account, users: list[Any]) -> None:
    account.nats.description = "changed"
    account.nats.revocations = {jwts.user().public_key: int(time.time()) + HOUR}


@change(REVOKED, [])
def one_user_is_revoked(account: Account, users: list[Any]) -> None:
    account.nats.revocations = {users[0].key.public_key: int(time.time()) + HOUR}


@change(REVOKED, REVOKED)
def all_users_are_revoked(account: Account, users: list[Any]) -> None:
    account.nats.revocations = {"*": int(time.time()) + HOUR}


@change([], [])
def users_issued_earlier_are_revoked(account: Account, users: list[Any]) -> None:
    account.nats.revocations = {"*": int(time.time()) - HOUR}


@change([], VIOLATION)
def bearers_are_not_allowed(account: Account, users: list[Any]) -> None:
    account.nats.limits.disallow_bearer = True


@change([], b"-ERR 'maximum account active connections exceeded'\r\n")
def one_connection_is_allowed(account: Account, users: list[Any]) -> None:
    account.nats.limits.conn = 1


@change(b"-ERR 'maximum subscriptions exceeded'\r\n", [])
def one_subscription_is_allowed(account: Account, users: list[Any]) -> None:
    account.nats.limits.subs = 2


@change([], b"")
def the_signing_key_is_gone(account: Account, users: list[Any]) -> None:
    account.nats.signing_keys.clear()


@change([], b"")
def the_scope_is_another(account: Account, users: list[Any]) -> None:
    (scope,) = account.nats.signing_keys.values()
    scope.template.pub = Permission(deny=("x",))


@change([b'-ERR \'Permissions Violation for Subscription to "sub.one" (sid "1")\'\r\n'], [])
def others_are_the_default_permissions(account: Account, users: list[Any]) -> None:
    account.nats.default_permissions.sub = Permission(deny=("sub.one",))


@change(b"-ERR 'Account Authentication Expired'\r\n", b"-ERR 'Account Authentication Expired'\r\n")
def it_ends_soon(account: Account, users: list[Any]) -> None:
    account.claims.exp = int(time.time()) + 5


@pytest.mark.parametrize("name", CHANGES)
def test_other_claims_change_who_is_there(launch: Launch, name: str) -> None:
    """The first client is a user with two subscriptions; the second a bearer user of a scoped signing key."""
    made, heard = CHANGES[name]
    trust = Trust()
    account = trust.account()
    signer = jwts.account()
    template = unlimited()
    template.bearer_token = True
    account.nats.signing_keys = {
        signer.public_key: UserScope(key=signer.public_key, template=template),
    }
    server = launch(config=trust.config(account))
    users = [account.user(), account.user(signer)]
    if name == "bearers_are_not_allowed":
        users[1] = account.user(bearer_token=True)
    with users[0].connect(server) as first, users[1].connect(server, sig="") as second:
        first.send(b"SUB sub.one 1\r\nSUB sub.two 2\r\n")
        second.send(b"SUB sub.three 3\r\n")
        assert hears([first, second]) == [[], []]
        made(account, users)
        answer = trust.push(server, account)
        assert answer == {"data": {"account": account.name, "code": 200, "message": "jwt updated"}}
        for connection, words in zip((first, second), heard, strict=True):
            if isinstance(words, bytes):  # the server closes it; a PING comes first if that takes 2 s
                assert connection.rest().replace(PING, b"") == words
            else:
                assert hears([connection]) == [words]


def test_a_smaller_payload_limit_holds_at_once(launch: Launch) -> None:
    trust = Trust()
    account = trust.account()
    server = launch(config=trust.config(account))
    with account.user(payload=100).connect(server) as own, account.user().connect(server) as other:
        for connection in (own, other):
            connection.send(b"PUB a 60\r\n" + bytes(60) + b"\r\n")
        assert hears([own, other]) == [[], []]
        account.nats.limits.payload = 50
        trust.push(server, account)
        assert hears([own, other]) == [[], []]
        for connection in (own, other):
            connection.send(b"PUB a 60\r\n" + bytes(60) + b"\r\n")
            assert connection.rest().startswith(b"-ERR 'Maximum Payload Violation'\r\n")


def test_mappings_come_and_go(launch: Launch) -> None:
    trust = Trust()
    account = trust.account()
    server = launch(config=trust.config(account))
    with account.user().connect(server) as connection:
        connection.send(b"SUB > 1\r\nPUB a 0\r\n\r\n")
        assert connection.fence() == [b"MSG a 1 0\r\n\r\n"]
        account.nats.mappings = {"a": (WeightedMapping(subject="b"),)}
        trust.push(server, account)
        assert hears([connection]) == [[]]
        connection.send(b"PUB a 0\r\n\r\n")
        assert connection.fence() == [b"MSG b 1 0\r\n\r\n"]


def test_what_is_no_good_changes_nothing(launch: Launch) -> None:
    trust = Trust()
    account, other = trust.account(), trust.account()
    server = launch(config=trust.config(account))
    subject = f"$SYS.REQ.ACCOUNT.{account.name}.CLAIMS.UPDATE"
    forged = encode(account.claims, jwts.operator())
    with account.user().connect(server) as connection:
        for payload, error in (
            ("", "jwt update error - request body is empty"),
            ("nonsense", "jwt update resulted in error - expected 3 chunks"),
            (other.jwt, "jwt update resulted in error - subject does not match jwt content"),
            (forged, "jwt update resulted in error - account validation failed"),
        ):
            answer = trust.ask(server, subject, payload)
            assert answer == {"error": {"account": account.name, "code": 500, "description": error}}
        old = f"$SYS.ACCOUNT.{other.name}.CLAIMS.UPDATE"
        answer = trust.ask(server, old, other.jwt)
        assert answer == {"data": {"account": other.name, "code": 200, "message": "jwt update skipped"}}
        assert hears([connection]) == [[]]


# -- exports and imports ---------------------------------------------------------------------------------


def test_accounts_import_from_each_other(launch: Launch) -> None:
    trust = Trust()
    exporter, importer = trust.account(), trust.account()
    exporter.nats.exports = (Export(subject="s.>", type="stream"), Export(subject="q", type="service"))
    importer.nats.imports = (
        Import(subject="s.>", account=exporter.name, local_subject="from.>", type="stream"),
        Import(subject="q", account=exporter.name, local_subject="ask", type="service"),
    )
    server = launch(config=trust.config(exporter, importer))
    with importer.user().connect(server) as asking, exporter.user().connect(server) as serving:
        asking.send(b"SUB from.> 1\r\n")
        serving.send(b"SUB q 2\r\n")
        assert hears([asking, serving]) == [[], []]
        serving.send(b"PUB s.a 2\r\nhi\r\n")
        assert serving.fence() == []
        assert asking.read_op() == b"MSG from.a 1 2\r\nhi\r\n"
        asking.send(b"SUB r 2\r\nPUB ask r 1\r\n?\r\n")
        question = serving.read_op()
        reply = re.fullmatch(rb"MSG q 2 (\S+) 1\r\n\?\r\n", question)
        assert reply
        serving.send(b"PUB %b 1\r\n!\r\n" % reply[1])
        assert asking.read_op() == b"MSG r 2 1\r\n!\r\n"
        importer.nats.imports = ()
        trust.push(server, importer)
        assert hears([asking, serving]) == [[], []]
        serving.send(b"PUB s.a 2\r\nhi\r\n")
        asking.send(b"PUB ask r 1\r\n?\r\n")
        assert hears([asking, serving]) == [[], []]


def activation(exporter: Account, importer: Account, *, seconds: int = 0) -> str:
    claims = ActivationClaims(sub=importer.name, name="leave")
    claims.nats.subject, claims.nats.kind = "s", "stream"
    claims.exp = int(time.time()) + seconds if seconds else 0
    return encode(claims, exporter.key)


def test_a_private_export_needs_a_token(launch: Launch) -> None:
    trust = Trust()
    exporter, importer, stranger = trust.account(), trust.account(), trust.account()
    exporter.nats.exports = (Export(subject="s", type="stream", token_req=True),)
    for account, token in ((importer, activation(exporter, importer)), (stranger, "")):
        account.nats.imports = (Import(subject="s", account=exporter.name, type="stream", token=token),)
    server = launch(config=trust.config(exporter, importer, stranger))
    with (
        exporter.user().connect(server) as speaker,
        importer.user().connect(server) as friend,
        stranger.user().connect(server) as other,
    ):
        for connection in (friend, other):
            connection.send(b"SUB s 1\r\n")
        assert hears([friend, other]) == [[], []]
        speaker.send(b"PUB s 1\r\nx\r\n")
        speaker.fence()
        assert hears([friend, other]) == [[b"MSG s 1 1\r\nx\r\n"], []]
        exporter.nats.exports[0].revocations = {importer.name: int(time.time()) + HOUR}
        trust.push(server, exporter)
        assert hears([friend, other]) == [[], []]
        speaker.send(b"PUB s 1\r\nx\r\n")
        speaker.fence()
        assert hears([friend, other]) == [[], []]


def test_an_import_ends_with_its_token(launch: Launch) -> None:
    trust = Trust()
    exporter, importer = trust.account(), trust.account()
    exporter.nats.exports = (Export(subject="s", type="stream", token_req=True),)
    token = activation(exporter, importer, seconds=3)
    importer.nats.imports = (Import(subject="s", account=exporter.name, type="stream", token=token),)
    server = launch(config=trust.config(exporter, importer))
    with exporter.user().connect(server) as speaker, importer.user().connect(server) as friend:
        friend.send(b"SUB s 1\r\n")
        assert hears([friend]) == [[]]
        heard = True
        while heard:  # until the token expires
            speaker.send(b"PUB s 1\r\nx\r\n")
            speaker.fence()
            heard = hears([friend]) == [[b"MSG s 1 1\r\nx\r\n"]]


# -- resolvers -------------------------------------------------------------------------------------------


def directory(kind: str, path: Path, *more: str) -> str:
    return f"{{ type: {kind}, dir: '{path}', {', '.join(more)} }}"


def test_a_full_resolver_is_told_of_accounts(launch: Launch, tmp_path: Path) -> None:
    trust = Trust()
    server = launch(config=trust.config(resolver=directory("full", tmp_path / "jwt", "allow_delete: true")))
    account = trust.account()
    assert trust.push(server, account)["data"]["message"] == "jwt updated"
    with account.user().connect(server) as connection:
        account.nats.revocations = {"*": int(time.time()) + HOUR}
        updated = trust.ask(server, "$SYS.REQ.CLAIMS.UPDATE", account.jwt)
        assert updated == {"data": {"account": account.name, "code": 200, "message": "jwt updated"}}
        assert connection.rest() == REVOKED
    account.nats.revocations = {}
    account.nats.description = "again"
    trust.push(server, account)
    listed = trust.ask(server, "$SYS.REQ.CLAIMS.LIST")["data"]
    assert sorted(listed) == sorted([account.name, trust.system.name])
    with trust.system.user().connect(server) as system:
        subject = f"$SYS.REQ.ACCOUNT.{account.name}.CLAIMS.LOOKUP"
        assert request(system, subject).count(b".") == 2
        unknown = f"$SYS.REQ.ACCOUNT.{jwts.account().public_key}.CLAIMS.LOOKUP"
        assert request(system, unknown) == b""
        assert request(system, "$SYS.REQ.CLAIMS.PACK", bytes(32)).count(b"|") == 1
    claims = GenericClaims(sub=trust.operator.public_key, nats={"accounts": [account.name]})
    with account.user().connect(server) as connection:
        answer = trust.ask(server, "$SYS.REQ.CLAIMS.DELETE", encode(claims, trust.operator))
        assert answer == {"data": {"code": 200, "message": "deleted 1 accounts"}}
        assert connection.rest() == b"-ERR 'Account Authentication Expired'\r\n"
    with pytest.raises(Refused, match="Authorization Violation"):
        account.user().connect(server)


def test_a_list_is_in_the_order_of_its_names(launch: Launch, tmp_path: Path) -> None:
    trust = Trust()
    server = launch(config=trust.config(resolver=directory("full", tmp_path / "jwt")))
    with trust.system.user().connect(server) as system:
        assert list(json.loads(request(system, "$SYS.REQ.CLAIMS.LIST"))) == ["data", "server"]


def test_a_full_resolver_keeps_what_it_was_told(launch: Launch, tmp_path: Path) -> None:
    trust = Trust()
    server = launch(config=trust.config(resolver=directory("full", tmp_path / "jwt")))
    account = trust.account()
    trust.push(server, account)
    server.stop()
    server.start_again()
    account.user().connect(server).close()


def test_a_cache_asks_others_through_the_system_account(launch: Launch, tmp_path: Path) -> None:
    trust = Trust()
    account = trust.account()
    server = launch(config=trust.config(resolver=directory("cache", tmp_path / "jwt")))
    with trust.system.user().connect(server) as system:
        system.send(b"SUB $SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP 1\r\n")
        assert hears([system]) == [[]]
        joined: list[str] = []

        def join() -> None:
            with account.user().connect(server) as connection:
                joined.append(user_info(connection)["account"])

        joining = threading.Thread(target=join)
        joining.start()
        question = re.fullmatch(rb"MSG \S+ 1 (\S+) 0\r\n\r\n", system.read_op())
        assert question
        token = account.jwt.encode()
        system.send(b"PUB %b %d\r\n%b\r\n" % (question[1], len(token), token))
        joining.join(30)
        assert joined == [account.name]


class AccountServer:
    """An HTTP server of account JWTs. It answers for the account `held` only when `release` is set."""

    def __init__(self, tokens: dict[str, str], held: str = "") -> None:
        self.release = threading.Event()
        self.asked = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.rpartition("/")[2]
                if held and name == held:
                    outer.asked.set()
                    outer.release.wait(30)
                self.send_response(200 if name in tokens or not name else 404)
                self.end_headers()
                self.wfile.write(tokens.get(name, "").encode())

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._http.server_port}/jwt/v1/accounts/"

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def test_accounts_come_from_a_url(launch: Launch) -> None:
    trust = Trust()
    account = trust.account()
    with AccountServer({each.name: each.jwt for each in (trust.system, account)}) as url:
        server = launch(config=trust.config(resolver=f'URL("{url}")'))
        account.user().connect(server).close()
        with pytest.raises(Refused, match="Authorization Violation"):
            trust.account().user().connect(server)
        account.nats.revocations = {"*": int(time.time()) + HOUR}
        with account.user().connect(server) as connection:
            assert trust.push(server, account)["data"]["message"] == "jwt updated"
            assert connection.rest() == REVOKED


def test_accounts_come_from_the_server_that_the_operator_names(launch: Launch) -> None:
    tokens: dict[str, str] = {}
    with AccountServer(tokens) as url:
        trust = Trust(account_server_url=url.removesuffix("/accounts/"))
        account = trust.account()
        tokens |= {each.name: each.jwt for each in (trust.system, account)}
        server = launch(config=f"operator: {trust.jwt}")
        account.user().connect(server).close()


def test_a_slow_account_server_holds_nobody_else_up(launch: Launch) -> None:
    trust = Trust()
    account, slow = trust.account(), trust.account()
    accounts = AccountServer({each.name: each.jwt for each in (trust.system, account, slow)}, slow.name)
    with accounts as url:
        server = launch(config=trust.config(resolver=f'URL("{url}")'))
        user = slow.user()
        with Connection(server.address) as waiting, Connection(server.address) as leaving:
            for connection in (waiting, leaving):
                sig = jwts.raw_base64(user.key.sign(connection.info["nonce"].encode()))
                options = json.dumps({"verbose": False, "jwt": user.jwt, "sig": sig})
                connection.send(f"CONNECT {options}\r\nPING\r\n".encode())
            assert accounts.asked.wait(30)
            account.user().connect(server).close()
            leaving.close()
            accounts.release.set()
            assert waiting.read_until(PONG)[-1] == PONG
        account.user().connect(server).close()


# -- reload ----------------------------------------------------------------------------------------------


def test_a_reload_takes_over_the_preloaded_accounts(launch: Launch) -> None:
    trust = Trust()
    kept, gone, added = trust.account(), trust.account(), trust.account()
    server = launch(config=trust.config(kept, gone))
    with kept.user().connect(server) as staying, gone.user().connect(server) as leaving:
        io_threads = server.conf.read_text().rpartition("\n\n")[2]
        server.conf.write_text(trust.config(kept, added) + (io_threads if "io_threads" in io_threads else ""))
        server.process.send_signal(signal.SIGHUP)
        server.wait_log("Reloaded server configuration")
        assert leaving.rest() == VIOLATION
        assert hears([staying]) == [[]]
    added.user().connect(server).close()
    with pytest.raises(Refused, match="Authorization Violation"):
        gone.user().connect(server)


# -- monitoring and events -------------------------------------------------------------------------------


def test_monitoring_shows_what_jwts_say(launch: Launch) -> None:
    trust = Trust()
    account = trust.account()
    account.claims.name = "Acme"
    account.nats.tags = ("one",)
    account.nats.revocations = {jwts.user().public_key: 1_700_000_000}
    signer = jwts.account()
    account.nats.signing_keys = {signer.public_key: None}
    user = account.user(signer, subs=-1, data=-1, payload=-1, tags=("red",))
    user.claims.name = "ann"
    server = launch("-m", "-1", config=trust.config(account))
    with user.connect(server, name="here"):
        (seen,) = monitor(server, "/connz?auth=1")["connections"]
        shown = {key: seen.get(key) for key in ("authorized_user", "account", "issuer_key", "tags")}
        assert shown == {
            "authorized_user": user.key.public_key,
            "account": account.name,
            "issuer_key": signer.public_key,
            "tags": ["red"],
        }
        assert seen["name_tag"] == "Acme"
        assert jwts.payload(seen["jwt"])["sub"] == user.key.public_key
        detail = monitor(server, f"/accountz?acc={account.name}")["account_detail"]
        assert jwts.payload(detail["jwt"])["sub"] == account.name
        assert detail["issuer_key"] == trust.operator.public_key
        assert (detail["name_tag"], detail["tags"]) == ("Acme", ["one"])
        assert detail["decoded_jwt"]["sub"] == account.name
        assert (detail["expired"], detail["complete"], detail["client_connections"]) == (False, True, 1)
        assert list(detail["revoked_user"]) == list(account.nats.revocations)
        page = monitor(server, "/varz")
        assert page["trusted_operators_jwt"] == [trust.jwt]
        assert page["trusted_operators_claim"][0]["sub"] == trust.operator.public_key
        assert page["system_account"] == trust.system.name


def test_the_operators_are_announced(launch: Launch) -> None:
    trust = Trust()
    server = launch(config=trust.config())
    issued = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4} \S+"
    lines = (
        "Trusted Operators",
        '  System  : ""',
        '  Operator: "O"',
        f"  Issued  : {issued}",
        "  Expires : Never",
    )
    pattern = "".join(rf"[^\n]*\[INF\] {line}\n" for line in lines)
    assert re.search(pattern, server.log)


def test_a_refusal_is_logged_once(launch: Launch) -> None:
    trust = Trust()
    account = trust.account()
    server = launch("-D", config=trust.config(account))
    with pytest.raises(Refused, match="Authorization Violation"):
        account.user().connect(server, sig="AAAA")
    server.wait_log("Client connection closed: Authentication Failure")
    assert server.log.count("Signature not verified") == 1
    assert server.log.count("authentication error") == 1


@pytest.mark.parametrize("depth", [700, 1100])
def test_a_jwt_that_is_nested_deeply_is_one_that_is_not_valid(launch: Launch, depth: int) -> None:
    trust = Trust()
    server = launch("-m", "-1", config=trust.config())
    nested = '{"nats":{"x":' + "[" * depth + "]" * depth + "}}"
    header = jwts.raw_base64(b'{"typ":"JWT","alg":"ed25519-nkey"}')
    token = ".".join((header, jwts.raw_base64(nested.encode()), "AAAA"))
    with pytest.raises(Refused, match="Authorization Violation"):
        connect(server, jwt=token)
    server.wait_log("authentication error")
    (refused,) = until(lambda: monitor(server, "/connz?state=closed&auth=1")["connections"])
    assert refused["jwt"] == token


async def test_nats_py_with_credentials(launch: Launch, tmp_path: Path) -> None:
    trust = Trust()
    account = trust.account()
    user = account.user(pub=Permission(deny=("no",)))
    creds = tmp_path / "user.creds"
    creds.write_text(format_user_config(user.jwt, user.key))
    server = await asyncio.to_thread(launch, config=trust.config(account))
    async with joined(server.url, user_credentials=str(creds)) as client:
        subscription = await client.subscribe("greet")
        await client.publish("greet", b"hello")
        assert (await subscription.next_msg(30)).data == b"hello"
