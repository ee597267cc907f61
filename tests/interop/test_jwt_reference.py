"""JWTs made by gnats, at the reference server: both admit the same users, with the same permissions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support import jwts
from support.jwts import HOUR, Attempt
from support.launch import start
from support.natspy import joined
from support.operatormode import Hook, Log
from support.servers import REFERENCE, Server
from support.wire import PONG, Closed, Connection

from gnats.auth.user_jwt import Authentication
from gnats.connection.connect_options import ClientOptions
from gnats.jwt.account import UserScope
from gnats.jwt.claims import (
    Permission,
    ResponsePermission,
    TimeRange,
    unlimited,
)
from gnats.jwt.decorated import format_user_config
from gnats.operator.mode import OperatorMode
from gnats.options.options import Options
from gnats.options.values.auth import Permissions, ResolverOptions, SubjectPermission
from gnats.resolver.memory import MemoryResolver

pytestmark = pytest.mark.timeout(120)

CASES: dict[str, tuple[Callable[[Attempt], None], bool]] = {}


def case(accepted: bool) -> Callable[[Callable[[Attempt], None]], Callable[[Attempt], None]]:
    """Register a change of an Attempt, and whether servers must admit it."""

    def add(change: Callable[[Attempt], None]) -> Callable[[Attempt], None]:
        CASES[change.__name__] = change, accepted
        return change

    return add


ASK = "$SYS.REQ.USER.INFO"
HEAR = "_INBOX.>"
MAY_NOT_ASK = {"allowed_nothing_by_an_empty_list", "template_that_comes_to_nothing"}
OF_THE_ACCOUNT = {"no_connections_left"}
"""Refused by the account's limits, once the user is known."""


def scope(**template: Any) -> UserScope:
    limits = unlimited()
    for name, value in template.items():
        setattr(limits, name, value)
    return UserScope(template=limits)


def scoped(attempt: Attempt, template: UserScope) -> None:
    attempt.signing_key(template)
    attempt.user_claims.nats = type(attempt.u)(issuer_account=attempt.u.issuer_account, tags=attempt.u.tags)


def clock(at: datetime) -> str:
    return at.strftime("%H:%M:%S")


@case(True)
def plain(_: Attempt) -> None:
    pass


@case(False)
def no_jwt(attempt: Attempt) -> None:
    attempt.connect = {"jwt": None}


@case(False)
def garbage_for_a_jwt(attempt: Attempt) -> None:
    attempt.connect = {"jwt": "eyJ0.eyJ1.c2ln"}


@case(False)
def account_jwt_for_a_user_jwt(attempt: Attempt) -> None:
    attempt.make()
    attempt.user_jwt = attempt.account_jwt


@case(False)
def no_signature(attempt: Attempt) -> None:
    attempt.connect = {"sig": None}


@case(False)
def signature_of_another_user(attempt: Attempt) -> None:
    attempt.nonce_signer = jwts.user()


@case(False)
def signature_not_base64(attempt: Attempt) -> None:
    attempt.connect = {"sig": "!!!"}


@case(False)
def signature_too_short(attempt: Attempt) -> None:
    attempt.connect = {"sig": "AAAA"}


@case(False)
def jwt_tampered_with(attempt: Attempt) -> None:
    attempt.make()
    head, body, signature = attempt.user_jwt.split(".")
    members = jwts.payload(attempt.user_jwt) | {"name": "Eve"}
    attempt.user_jwt = f"{head}.{jwts.raw_base64(json.dumps(members).encode())}.{signature}"
    assert body not in attempt.user_jwt


@case(False)
def user_expired(attempt: Attempt) -> None:
    attempt.user_claims.exp = attempt.now - HOUR


@case(True)
def user_expires_later(attempt: Attempt) -> None:
    attempt.user_claims.exp = attempt.now + HOUR


@case(False)
def user_not_yet_valid(attempt: Attempt) -> None:
    attempt.user_claims.nbf = attempt.now + HOUR


@case(True)
def user_valid_since(attempt: Attempt) -> None:
    attempt.user_claims.nbf = attempt.now - HOUR


@case(False)
def account_expired(attempt: Attempt) -> None:
    attempt.account_claims.exp = attempt.now - HOUR


@case(True)
def account_expires_later(attempt: Attempt) -> None:
    attempt.account_claims.exp = attempt.now + HOUR


@case(False)
def account_not_yet_valid(attempt: Attempt) -> None:
    attempt.account_claims.nbf = attempt.now + HOUR


@case(False)
def account_of_another_operator(attempt: Attempt) -> None:
    attempt.account_signer = jwts.operator()


@case(False)
def account_signed_by_itself(attempt: Attempt) -> None:
    attempt.account_signer = attempt.account


@case(False)
def account_unknown(attempt: Attempt) -> None:
    attempt.user_signer = jwts.account()


@case(False)
def user_of_a_key_that_is_no_signing_key(attempt: Attempt) -> None:
    attempt.u.issuer_account = attempt.account.public_key
    attempt.user_signer = jwts.account()


@case(True)
def user_of_a_signing_key(attempt: Attempt) -> None:
    attempt.signing_key()


@case(False)
def user_of_a_signing_key_that_does_not_say_so(attempt: Attempt) -> None:
    attempt.signing_key()
    attempt.u.issuer_account = ""


@case(True)
def user_of_the_account_that_names_it_too(attempt: Attempt) -> None:
    attempt.u.issuer_account = attempt.account.public_key


@case(False)
def issuer_account_that_is_no_account(attempt: Attempt) -> None:
    attempt.u.issuer_account = attempt.user.public_key


@case(False)
def user_revoked(attempt: Attempt) -> None:
    attempt.a.revocations = {attempt.user.public_key: attempt.now + HOUR}


@case(True)
def user_revoked_before_it_was_issued(attempt: Attempt) -> None:
    attempt.a.revocations = {attempt.user.public_key: attempt.now - HOUR}


@case(False)
def all_users_revoked(attempt: Attempt) -> None:
    attempt.a.revocations = {"*": attempt.now + HOUR}


@case(True)
def another_user_revoked(attempt: Attempt) -> None:
    attempt.a.revocations = {jwts.user().public_key: attempt.now + HOUR}


@case(True)
def bearer_without_signature(attempt: Attempt) -> None:
    attempt.u.bearer_token = True
    attempt.connect = {"sig": None}


@case(False)
def bearer_where_not_allowed(attempt: Attempt) -> None:
    attempt.u.bearer_token = True
    attempt.a.limits.disallow_bearer = True


@case(True)
def no_bearer_where_not_allowed(attempt: Attempt) -> None:
    attempt.a.limits.disallow_bearer = True


@case(True)
def connection_type_allowed(attempt: Attempt) -> None:
    attempt.u.allowed_connection_types = ("standard", "MQTT")


@case(False)
def connection_type_not_allowed(attempt: Attempt) -> None:
    attempt.u.allowed_connection_types = ("WEBSOCKET",)


@case(False)
def connection_type_unknown(attempt: Attempt) -> None:
    attempt.u.allowed_connection_types = ("CARRIER_PIGEON",)


@case(True)
def connection_type_unknown_among_others(attempt: Attempt) -> None:
    attempt.u.allowed_connection_types = ("CARRIER_PIGEON", "STANDARD")


@case(True)
def source_allowed(attempt: Attempt) -> None:
    attempt.u.src = ("192.0.2.0/24", "127.0.0.0/8")


@case(False)
def source_not_allowed(attempt: Attempt) -> None:
    attempt.u.src = ("192.0.2.0/24", "2001:db8::/32")


@case(False)
def source_that_is_no_network(attempt: Attempt) -> None:
    attempt.u.src = ("127.0.0.1",)


@case(True)
def sources_in_one_string(attempt: Attempt) -> None:
    attempt.make()
    members = jwts.payload(attempt.user_jwt)
    members["nats"]["src"] = "192.0.2.0/24, 127.0.0.0/8"
    attempt.user_jwt = jwts.sign(members, attempt.account)


@case(True)
def time_of_day_allowed(attempt: Attempt) -> None:
    now = datetime.now(UTC)
    attempt.u.times = (TimeRange(start=clock(now - timedelta(hours=2)), end=clock(now + timedelta(hours=2))),)
    attempt.u.times_location = "UTC"


@case(False)
def time_of_day_not_allowed(attempt: Attempt) -> None:
    now = datetime.now(UTC)
    attempt.u.times = (TimeRange(start=clock(now + timedelta(hours=2)), end=clock(now + timedelta(hours=4))),)
    attempt.u.times_location = "UTC"


@case(False)
def time_that_is_none(attempt: Attempt) -> None:
    attempt.u.times = (TimeRange(start="25:00:00", end="26:00:00"),)


@case(False)
def time_zone_that_is_none(attempt: Attempt) -> None:
    attempt.u.times_location = "Mars/Olympus"


@case(True)
def permissions(attempt: Attempt) -> None:
    attempt.u.pub = Permission(allow=(ASK, "a", "b.>"), deny=("b.c",))
    attempt.u.sub = Permission(allow=(HEAR, "x q", "y.*"), deny=("y.z",))


@case(True)
def permission_to_answer(attempt: Attempt) -> None:
    attempt.u.resp = ResponsePermission(max=3, ttl=7_000_000_000)
    attempt.u.pub = Permission(allow=(ASK,))


@case(True)
def permission_to_answer_by_default(attempt: Attempt) -> None:
    attempt.u.resp = ResponsePermission()
    attempt.u.pub = Permission(allow=(ASK,), deny=("never",))


@case(True)
def default_permissions(attempt: Attempt) -> None:
    attempt.a.default_permissions.pub = Permission(allow=(ASK, "public.>"))


@case(True)
def own_permissions_before_default_ones(attempt: Attempt) -> None:
    attempt.a.default_permissions.pub = Permission(allow=(ASK, "public.>"))
    attempt.u.sub = Permission(deny=("secret",))


@case(False)
def publish_permission_with_a_queue(attempt: Attempt) -> None:
    attempt.u.pub = Permission(allow=("a q",))


@case(False)
def permission_with_an_empty_token(attempt: Attempt) -> None:
    attempt.u.sub = Permission(allow=("a..b",))


@case(True)
def allowed_nothing_by_an_empty_list(attempt: Attempt) -> None:
    attempt.make()
    members = jwts.payload(attempt.user_jwt)
    members["nats"]["pub"] = {"allow": [], "deny": ["x"]}
    attempt.user_jwt = jwts.sign(members, attempt.account)


@case(True)
def scoped_user(attempt: Attempt) -> None:
    scoped(attempt, scope(pub=Permission(allow=(ASK, "scoped.>"))))


@case(False)
def scoped_user_with_permissions(attempt: Attempt) -> None:
    attempt.signing_key(scope())
    attempt.u.pub = Permission(allow=("mine",))


@case(False)
def scoped_user_with_no_limits_set(attempt: Attempt) -> None:
    attempt.signing_key(scope())  # limits of -1 count as set


@case(False)
def scoped_user_with_an_empty_list(attempt: Attempt) -> None:
    scoped(attempt, scope())
    attempt.make()
    assert attempt.user_signer
    members = jwts.payload(attempt.user_jwt)
    members["nats"]["src"] = []
    attempt.user_jwt = jwts.sign(members, attempt.user_signer)


@case(True)
def scoped_bearer(attempt: Attempt) -> None:
    scoped(attempt, scope(bearer_token=True))
    attempt.connect = {"sig": None}


@case(False)
def scoped_connection_type(attempt: Attempt) -> None:
    scoped(attempt, scope(allowed_connection_types=("WEBSOCKET",)))


@case(False)
def scoped_source(attempt: Attempt) -> None:
    scoped(attempt, scope(src=("192.0.2.0/24",)))


@case(True)
def template(attempt: Attempt) -> None:
    attempt.u.tags = ("team:red", "team:blue", "zone:7")
    attempt.a.tags = ("region:eu",)
    scoped(
        attempt,
        scope(
            pub=Permission(
                allow=(
                    "u.{{name()}}.{{subject()}}",
                    "a.{{account-name()}}.{{account-subject()}}",
                    "t.{{tag(team)}}.{{tag(zone)}}.{{account-tag(region)}}",
                    "{{ NAME() }}.{{tag(TEAM)}}",
                    "gone.{{tag(none)}}",
                    "plain",
                    ASK,
                )
            ),
            sub=Permission(deny=("no.{{tag(team)}}.>",)),
        ),
    )


@case(True)
def template_that_comes_to_nothing(attempt: Attempt) -> None:
    scoped(attempt, scope(pub=Permission(allow=("x.{{tag(none)}}",)), sub=Permission(allow=("{{name()}}",))))
    attempt.user_claims.name = "not a subject"


@case(False)
def template_that_denies_nothing(attempt: Attempt) -> None:
    scoped(attempt, scope(pub=Permission(deny=("x.{{tag(none)}}",))))


@case(False)
def template_with_an_unknown_function(attempt: Attempt) -> None:
    scoped(attempt, scope(pub=Permission(allow=("x.{{shoe-size()}}",))))


@case(False)
def template_with_too_many_subjects(attempt: Attempt) -> None:
    attempt.u.tags = tuple(f"t:{number}" for number in range(70))
    scoped(attempt, scope(pub=Permission(allow=("{{tag(t)}}.{{tag(t)}}",))))


@case(True)
def template_with_as_many_subjects_as_may_be(attempt: Attempt) -> None:
    attempt.u.tags = tuple(f"t:{number}" for number in range(8))
    scoped(attempt, scope(pub=Permission(allow=("{{tag(t)}}.{{tag(t)}}", ASK))))


@case(True)
def template_function_in_capitals(attempt: Attempt) -> None:
    attempt.u.tags = ("t:1",)
    scoped(attempt, scope(pub=Permission(allow=("{{TAG(t)}}", ASK))))


@case(False)
def proxy_required(attempt: Attempt) -> None:
    attempt.u.proxy_required = True


@case(False)
def no_connections_left(attempt: Attempt) -> None:
    attempt.account_claims.nats.limits.conn = 0


@case(False)
def token_too_large(attempt: Attempt) -> None:
    attempt.make()
    attempt.user_jwt = attempt.user_jwt + "A" * (1 << 20)


@case(False)
def algorithm_unknown(attempt: Attempt) -> None:
    attempt.make()
    members = jwts.payload(attempt.user_jwt)
    attempt.user_jwt = jwts.sign(members, attempt.account, header={"typ": "JWT", "alg": "none"})


@case(True)
def header_in_other_letters(attempt: Attempt) -> None:
    attempt.make()
    members = jwts.payload(attempt.user_jwt)
    attempt.user_jwt = jwts.sign(members, attempt.account, header={"typ": "jwt", "alg": "ED25519-NKEY"})


@case(False)
def version_from_the_future(attempt: Attempt) -> None:
    attempt.make()
    members = jwts.payload(attempt.user_jwt)
    members["nats"]["version"] = 3
    attempt.user_jwt = jwts.sign(members, attempt.account)


@case(False)
def version_missing(attempt: Attempt) -> None:
    attempt.make()
    members = jwts.payload(attempt.user_jwt)
    del members["nats"]["version"]
    attempt.user_jwt = jwts.sign(members, attempt.account)


@case(False)
def field_of_another_type(attempt: Attempt) -> None:
    attempt.make()
    members = jwts.payload(attempt.user_jwt)
    members["nats"]["subs"] = "many"
    attempt.user_jwt = jwts.sign(members, attempt.account)


@case(True)
def fields_in_other_letters_and_unknown_ones(attempt: Attempt) -> None:
    attempt.make()
    members = jwts.payload(attempt.user_jwt)
    members["nats"]["PUB"] = {"ALLOW": [ASK, "shouted"]}
    del members["nats"]["pub"]
    members["nats"]["shoe_size"] = 43
    attempt.user_jwt = jwts.sign(members, attempt.account)


def version_1(attempt: Attempt, kind: str, **nats: Any) -> dict[str, Any]:
    who, signer = (attempt.user, attempt.account) if kind == "user" else (attempt.account, attempt.operator)
    return {
        "jti": "X",
        "iat": attempt.now,
        "iss": signer.public_key,
        "name": kind,
        "sub": who.public_key,
        "type": kind,
        "nats": nats,
    }


@case(True)
def user_of_version_1(attempt: Attempt) -> None:
    members = version_1(attempt, "user", pub={"allow": ["one", ASK]})
    attempt.user_jwt = jwts.sign(members, attempt.account, version=1)


@case(False)
def user_of_version_1_signed_as_of_version_2(attempt: Attempt) -> None:
    attempt.user_jwt = jwts.sign(version_1(attempt, "user"), attempt.account)


@case(True)
def user_of_version_1_and_a_signing_key(attempt: Attempt) -> None:
    key = attempt.signing_key()
    members = version_1(attempt, "user")
    members |= {"iss": key.public_key, "issuer_account": attempt.account.public_key}
    attempt.user_jwt = jwts.sign(members, key, version=1)


@case(False)
def scoped_user_of_version_1(attempt: Attempt) -> None:
    key = attempt.signing_key(scope())
    members = version_1(attempt, "user")
    members |= {"iss": key.public_key, "issuer_account": attempt.account.public_key}
    attempt.user_jwt = jwts.sign(members, key, version=1)


@case(True)
def account_of_version_1(attempt: Attempt) -> None:
    key = jwts.account()
    limits = {"subs": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "data": -1, "payload": -1}
    members = version_1(attempt, "account", limits=limits, signing_keys=[key.public_key])
    attempt.account_jwt = jwts.sign(members, attempt.operator, version=1)
    attempt.u.issuer_account = attempt.account.public_key
    attempt.user_signer = key


@case(False)
def account_with_an_invalid_export(attempt: Attempt) -> None:
    attempt.make()
    members = jwts.payload(attempt.account_jwt)
    members["nats"]["exports"] = [{"subject": "a..b", "type": "stream"}]
    attempt.account_jwt = jwts.sign(members, attempt.operator)


@case(False)
def account_with_more_exports_than_allowed(attempt: Attempt) -> None:
    attempt.make()
    members = jwts.payload(attempt.account_jwt)
    members["nats"]["exports"] = [{"subject": "a", "type": "stream"}]
    members["nats"]["limits"]["exports"] = 0
    attempt.account_jwt = jwts.sign(members, attempt.operator)


@case(False)
def account_with_an_invalid_signing_key(attempt: Attempt) -> None:
    attempt.a.signing_keys[attempt.user.public_key] = None


@case(True)
def account_with_an_import_of_an_unknown_account(attempt: Attempt) -> None:
    attempt.make()
    members = jwts.payload(attempt.account_jwt)
    members["nats"]["imports"] = [{"subject": "a", "type": "stream", "account": jwts.account().public_key}]
    attempt.account_jwt = jwts.sign(members, attempt.operator)


@case(False)
def account_with_a_faulty_mapping(attempt: Attempt) -> None:
    attempt.make()
    members = jwts.payload(attempt.account_jwt)
    members["nats"]["mappings"] = {"a": [{"subject": "b", "weight": 60}, {"subject": "c", "weight": 60}]}
    attempt.account_jwt = jwts.sign(members, attempt.operator)


@case(False)
def jwt_under_the_name_of_another_account(attempt: Attempt) -> None:
    attempt.account_jwt = jwts.account_jwt(jwts.account(), attempt.operator)


@dataclass(frozen=True)
class World:
    """The attempts of all cases, and a reference server that knows their accounts."""

    attempts: dict[str, Attempt]
    options: Options
    server: Server


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    operator = jwts.operator()
    system = jwts.account()
    attempts = {name: Attempt(operator) for name in CASES}
    for name, attempt in attempts.items():
        CASES[name][0](attempt)
        attempt.make()
    preload = {attempt.account.public_key: attempt.account_jwt for attempt in attempts.values()}
    preload[system.public_key] = jwts.account_jwt(system, operator)
    operator_jwt = jwts.operator_jwt(operator, system_account=system.public_key)
    config = f"operator: {operator_jwt}\nresolver: MEM\nmax_control_line: 2MB\nresolver_preload {{\n"
    config += "".join(f"  {name}: {token}\n" for name, token in preload.items()) + "}\n"
    server = start(REFERENCE, tmp_path_factory.mktemp("jwt"), "-D", config=config)
    options = Options(
        trusted_operators=(operator_jwt,), resolver=ResolverOptions("mem"), resolver_preload=preload
    )
    yield World(attempts, options, server)
    server.stop()


def ask_reference(world: World, attempt: Attempt) -> tuple[bool, dict[str, Any]]:
    """Log in at the reference; return whether it admits the user, and its $SYS.REQ.USER.INFO."""
    with Connection(world.server.address) as connection:
        options = attempt.connect_options(connection.info["nonce"]) | {"verbose": False}
        connection.send(f"CONNECT {json.dumps(options)}\r\nPING\r\n".encode())
        try:
            if PONG not in connection.read_until(PONG):
                return False, {}
        except Closed as closed:
            assert b"-ERR '" in closed.args[0]
            return False, {}
        return True, user_info(connection)


def user_info(connection: Connection) -> dict[str, Any]:
    """Return $SYS.REQ.USER.INFO, or {} when permissions do not allow the request."""
    connection.send(b"SUB _INBOX.me 1\r\nPUB $SYS.REQ.USER.INFO _INBOX.me 0\r\n\r\n")
    for op in connection.fence() + connection.fence():
        if op.startswith(b"-ERR"):
            return {}
        if op.startswith(b"MSG"):
            data: dict[str, Any] = json.loads(op.split(b"\r\n")[1])["data"]
            return data
    return user_info(connection)


async def ask_ours(world: World, attempt: Attempt) -> Authentication:
    mode = OperatorMode(world.options, MemoryResolver(), Hook(), Log())
    await mode.start()
    options = ClientOptions()
    options.merge(json.dumps(attempt.connect_options("nonce")).encode())
    answer = await mode.authenticate(options, "nonce", "127.0.0.1", "STANDARD")
    await mode.close()
    return answer


@pytest.mark.parametrize("name", CASES)
async def test_who_is_let_in(world: World, name: str) -> None:
    attempt, accepted = world.attempts[name], CASES[name][1]
    logged = len(world.server.log)
    by_reference, info = ask_reference(world, attempt)
    assert by_reference == accepted
    ours = await ask_ours(world, attempt)
    if ours.user is None:
        assert not accepted, ours.text
        reason = (
            ours.text.split(": [")[0] if "no longer valid" not in ours.text else "User JWT no longer valid"
        )
        world.server.wait_log(re.escape(reason), logged)
        return
    assert accepted or name in OF_THE_ACCOUNT, ours.text
    assert bool(info) == (accepted and name not in MAY_NOT_ASK)
    if info:
        assert info["user"] == ours.user.user == attempt.user.public_key
        assert info["account"] == ours.user.account == attempt.account.public_key
        assert in_order(info.get("permissions")) == as_json(ours.user.permissions)
        assert bool(info.get("expires")) == bool(ours.user.expires)


def as_json(permissions: Permissions | None) -> dict[str, Any] | None:
    """Return permissions in the form of $SYS.REQ.USER.INFO."""
    if permissions is None:
        return None
    found: dict[str, Any] = {}
    for name, part in (("publish", permissions.publish), ("subscribe", permissions.subscribe)):
        found[name] = subjects(part or SubjectPermission())
    if permissions.response is not None:
        found["responses"] = {
            "max": permissions.response.max_msgs,
            "ttl": round(permissions.response.expires * 1e9),
        }
    return found


def in_order(value: Any) -> Any:
    """Sort the lists of a JSON value: the server gives subjects in the order of a trie."""
    if isinstance(value, dict):
        return {name: in_order(item) for name, item in value.items()}
    return sorted(value) if isinstance(value, list) else value


def subjects(part: SubjectPermission) -> dict[str, Any]:
    found = {"allow": sorted(part.allow or ()), "deny": sorted(part.deny)}
    return {name: value for name, value in found.items() if value}


async def test_a_client_with_our_credentials_talks(world: World, tmp_path: Path) -> None:
    attempt = world.attempts["plain"]
    creds = tmp_path / "ann.creds"
    creds.write_text(format_user_config(attempt.user_jwt, attempt.user))
    async with joined(world.server.url, user_credentials=str(creds)) as client:
        subscription = await client.subscribe("greet")
        await client.publish("greet", b"hello")
        assert (await subscription.next_msg(30)).data == b"hello"
