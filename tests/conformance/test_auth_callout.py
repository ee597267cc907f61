"""Auth callouts: the request to the service, its possible answers, and their effect on the client."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from nats.aio.msg import Msg
from support import jwts
from support.callouts import (
    SUBJECT,
    Answering,
    Change,
    Delegation,
    Service,
    Silence,
    configured,
    delegated,
    enter,
    with_password,
)
from support.certs import Certificates
from support.jwts import HOUR
from support.launch import Launch
from support.monitor import wait_connections
from support.natspy import joined
from support.servers import Server
from support.tlswire import TLSConnection, client_context
from support.trust import Refused, Trust, connect, hears
from support.wire import VIOLATION, Connection

from gnats.jwt.account import ExternalAuthorization
from gnats.jwt.claims import Permission, TimeRange
from gnats.jwt.decorated import format_user_config
from gnats.jwt.token import encode
from gnats.nkeys.nkeys import CurveKeyPair, KeyPair, Prefix

pytestmark = pytest.mark.timeout(120)

REFUSED = "Authorization Violation"


# -- requests --------------------------------------------------------------------------------------------


async def test_the_request_says_who_asks_and_for_whom(launch: Launch) -> None:
    async with configured(launch, more='server_name: S1\nserver_tags: ["a", "b"]') as (server, service):
        options = {"user": "me", "pass": "pw", "auth_token": "t", "name": "n", "lang": "l", "version": "1.2"}
        await enter(server, **options, protocol=1, nkey="", jwt="ignored")
        (request,) = service.requests
        asked = request["nats"]
        identity = asked["server_id"].pop("id")
        assert re.fullmatch("N[A-Z2-7]{55}", identity)
        assert request["iss"] == identity
        assert (request["aud"], request["sub"]) == ("nats-authorization-request", service.signer.public_key)
        assert request["exp"] - request["iat"] in (9, 10, 11)
        assert asked["server_id"] == {
            "name": "S1",
            "host": "127.0.0.1",
            "version": "2.15.1",
            "tags": ["a", "b"],
        }
        assert re.fullmatch("U[A-Z2-7]{55}", asked["user_nkey"])
        assert asked["client_info"].pop("id") > 0
        assert asked["client_info"] == {
            "host": "127.0.0.1",
            "user": "me",
            "name": "n",
            "kind": "Client",
            "type": "nats",
        }
        assert asked["connect_opts"] == options | {"protocol": 1}
        assert (asked["type"], asked["version"]) == ("authorization_request", 2)
        assert "client_tls" not in asked


async def test_each_request_has_a_key_of_its_own(launch: Launch) -> None:
    async with configured(launch) as (server, service):
        await enter(server, user="a")
        await enter(server, user="a")
        first, second = (request["nats"]["user_nkey"] for request in service.requests)
        assert first != second


async def test_a_signature_is_passed_on_with_its_nonce(launch: Launch) -> None:
    key = jwts.user()
    more = f"OWN {{ users: [ {{ nkey: {jwts.user().public_key} }} ] }}"
    async with configured(launch, accounts=more) as (server, service):

        def sign() -> str:
            with Connection(server.address) as connection:
                nonce: str = connection.info["nonce"]
                sig = jwts.raw_base64(key.sign(nonce.encode()))
                options = json.dumps({"verbose": False, "nkey": key.public_key, "sig": sig})
                connection.send(f"CONNECT {options}\r\n".encode())
                connection.fence()
                return nonce

        nonce = await asyncio.to_thread(sign)
        asked = service.requests[0]["nats"]
        assert asked["client_info"]["nonce"] == nonce
        assert asked["connect_opts"]["nkey"] == asked["client_info"]["user"] == key.public_key
        assert asked["connect_opts"]["sig"]


async def test_the_request_has_the_clients_certificate(launch: Launch, certs: Certificates) -> None:
    tls = f'tls {{ {certs.server.tls_block}, ca_file: "{certs.ca.cert_file}", verify: true, timeout: 5 }}'
    signer = jwts.account()
    config = f"""
        accounts {{ AUTH {{ users: [ {{ user: auth, password: pwd }} ] }}, APP {{}} }}
        {tls}
        authorization {{ timeout: "10s", auth_callout {{
          issuer: {signer.public_key}, account: AUTH, auth_users: [ auth ] }} }}
    """
    server = await asyncio.to_thread(launch, config=config)
    context = client_context(certs, certs.client)

    def come() -> None:
        with TLSConnection(server.address, client_context(certs, certs.client)) as connection:
            connection.send(b'CONNECT {"verbose":false,"user":"x"}\r\n')
            connection.fence()

    options = {"tls": context, "tls_hostname": "localhost"}
    async with joined(server.url, **with_password("auth"), **options) as client:
        service = Service(client, signer)
        await service.start()
        await asyncio.to_thread(come)
    shown = service.requests[0]["nats"]["client_tls"]
    assert shown["version"] == "1.3"
    assert shown["cipher"].startswith("TLS_")
    (chain,) = shown["verified_chains"]
    assert chain[0] == certs.client.cert_file.read_text()
    assert "certs" not in shown


# -- answers ---------------------------------------------------------------------------------------------

GOOD: dict[str, tuple[Change, dict[str, Any]]] = {}
BAD: dict[str, tuple[Change, str]] = {}


def good(**info: Any) -> Callable[[Change], Change]:
    """Register an answer that admits the client; `info` is what USER.INFO then answers."""

    def add(change: Change) -> Change:
        GOOD[change.__name__] = change, info
        return change

    return add


def bad(text: str) -> Callable[[Change], Change]:
    """Register an answer that refuses the client; `text` is a pattern of the reason in log and advisories."""

    def add(change: Change) -> Change:
        BAD[change.__name__] = change, text
        return change

    return add


@good(user="me", account="APP")
def plain(answering: Answering) -> None:
    pass


@good(user="ann", account="APP")
def with_a_name(answering: Answering) -> None:
    answering.user.name = "ann"


@good(user="me", account="OTHER")
def in_another_account(answering: Answering) -> None:
    answering.user.aud = "OTHER"


@good(
    user="me",
    account="APP",
    permissions={"publish": {"allow": ["$SYS.REQ.USER.INFO", "a.>"]}, "subscribe": {"deny": ["b"]}},
)
def with_permissions(answering: Answering) -> None:
    answering.user.nats.pub = Permission(allow=("a.>", "$SYS.REQ.USER.INFO"))
    answering.user.nats.sub = Permission(deny=("b",))


@good(user="me", account="AUTH", permissions={"publish": {"deny": [SUBJECT]}, "subscribe": {}})
def in_the_account_of_the_service(answering: Answering) -> None:
    answering.user.aud = "AUTH"


@good(user="me", account="APP")
def with_a_connection_type_that_is_not_its_own(answering: Answering) -> None:
    answering.user.nats.allowed_connection_types = ("WEBSOCKET",)


@bad("Auth callout signing key is unknown")
def signed_by_somebody_else(answering: Answering) -> None:
    answering.user_signer, answering.signer = answering.signer, jwts.account()


@bad("Auth callout signing key is unknown")
def signed_by_somebody_else_in_the_name_of_the_issuer(answering: Answering) -> None:
    answering.response.nats.issuer_account = answering.signer.public_key
    answering.user_signer, answering.signer = answering.signer, jwts.account()


@bad('Auth callout violation: "no reason supplied" on account "AUTH"')
def nothing_at_all(answering: Answering) -> None:
    answering.raw = b""


@bad("Expected 3 chunks")
def nonsense(answering: Answering) -> None:
    answering.raw = b"nonsense"


@bad("Not an authorization request claim")
def the_users_jwt_itself(answering: Answering) -> None:
    answering.raw = encode(answering.user, answering.signer).encode()


@bad("Auth callout service returned an error: go away")
def an_error(answering: Answering) -> None:
    answering.response.nats.error = "go away"


@bad("Auth callout violation: auth callout response is not for expected user")
def for_another_user(answering: Answering) -> None:
    answering.response.sub = jwts.user().public_key


@bad("Auth callout violation: auth callout response is not for server")
def for_another_server(answering: Answering) -> None:
    answering.response.aud = KeyPair.create(Prefix.SERVER).public_key


@bad('Expected authorized user of "U\\w+" but got "U\\w+" on account "AUTH"')
def a_jwt_of_another_user(answering: Answering) -> None:
    answering.user.sub = jwts.user().public_key


@bad('Wrong issuer for auth callout response on account "AUTH", expected "A\\w+" got "A\\w+"')
def a_jwt_of_another_issuer(answering: Answering) -> None:
    answering.user_signer = jwts.account()


@bad('Error non operator mode account "AUTH": attempted to use issuer_account')
def with_an_issuer_account(answering: Answering) -> None:
    answering.user.nats.issuer_account = answering.signer.public_key


@bad('No valid account "NONE" for auth callout response on account "AUTH": account missing')
def in_no_account(answering: Answering) -> None:
    answering.user.aud = "NONE"


@bad("Error validating user JWT: claim is expired")
def a_jwt_that_has_expired(answering: Answering) -> None:
    answering.user.exp = int(time.time()) - HOUR


@bad("Error validating user JWT: .+")
def with_bad_permissions(answering: Answering) -> None:
    answering.user.nats.pub = Permission(allow=("a..b",))


@bad('Authorized user on account "AUTH" using invalid connection type')
def with_an_unknown_connection_type(answering: Answering) -> None:
    answering.user.nats.allowed_connection_types = ("PIGEON",)


@bad('Authorized user on account "AUTH" outside of valid connect times')
def at_another_time(answering: Answering) -> None:
    hour = (time.gmtime().tm_hour + 12) % 24
    answering.user.nats.times = (TimeRange(start=f"{hour:02}:00:00", end=f"{hour:02}:30:00"),)
    answering.user.nats.times_location = "UTC"


@bad("Proxy connection required")
def that_wants_a_proxy(answering: Answering) -> None:
    answering.user.nats.proxy_required = True


@bad("Not user claim")
def a_jwt_of_an_account(answering: Answering) -> None:
    answering.response.nats.jwt = jwts.account_jwt(answering.signer, answering.signer)


async def test_answers_that_let_a_client_in(launch: Launch) -> None:
    async with configured(launch) as (server, service):
        for name, (change, expected) in GOOD.items():
            service.answer = change
            info = await enter(server, user="me")
            assert info.pop("account_name") == expected["account"]
            if "permissions" in info:
                info["permissions"]["publish"].get("allow", []).sort()
            assert info == expected, name


async def test_answers_that_do_not(launch: Launch) -> None:
    """The client learns only that it is refused; the log and the advisories have the reason."""
    async with (
        configured(launch) as (server, service),
        joined(server.url, **with_password("sys")) as system,
    ):
        told = await service.client.subscribe("$SYS.ACCOUNT.CLIENT.AUTH.ERR")
        events = await system.subscribe("$SYS.SERVER.*.CLIENT.AUTH.ERR")
        await system.flush()
        await service.client.flush()
        for name, (change, text) in BAD.items():
            service.answer = change
            logged = len(server.log)
            with pytest.raises(Refused) as refused:
                await enter(server, user="me", name=name)
            assert refused.value.args[0] == VIOLATION, name
            await asyncio.to_thread(server.wait_log, rf"\[WRN\] {text}\n", logged)
            event = json.loads((await told.next_msg(30)).data)
            assert re.fullmatch(text, event["reason"]), name
            assert (event["type"], event["client"]["acc"]) == (
                "io.nats.server.advisory.v1.client_disconnect",
                "AUTH",
            )
            assert (event["client"]["user"], event["client"]["name"]) == ("me", name)
            seen = json.loads((await events.next_msg(30)).data)
            while seen["client"]["name"] != name:  # the reference may send an event twice
                seen = json.loads((await events.next_msg(30)).data)
            assert seen["client"]["acc"] == "$G"


async def test_a_service_that_is_silent_is_waited_for_as_long_as_a_login_may_take(launch: Launch) -> None:
    async with configured(launch, "-D", timeout_seconds="2s") as (server, service):
        told = await service.client.subscribe("$SYS.ACCOUNT.CLIENT.AUTH.ERR")

        def silent(answering: Answering) -> None:
            raise Silence

        service.answer = silent
        with pytest.raises(Refused, match=REFUSED):
            await enter(server, user="me")
        text = 'Authorization callout response not received in time on account "AUTH"'
        await asyncio.to_thread(server.wait_log, text)
        assert json.loads((await told.next_msg(30)).data)["reason"] == ""
        service.answer = plain
        await enter(server, user="me")


async def test_without_a_service_nobody_gets_in(launch: Launch) -> None:
    async with configured(launch, timeout_seconds="2s") as (server, service):
        await service.stop()
        with pytest.raises(Refused, match=REFUSED):
            await enter(server, user="me")


async def test_a_user_leaves_when_its_jwt_ends(launch: Launch) -> None:
    def soon(answering: Answering) -> None:
        answering.user.exp = int(time.time()) + 5

    async with configured(launch) as (server, service):
        service.answer = soon

        def stay() -> bytes:
            with connect(server, user="me") as connection:
                return connection.rest()

        assert (await asyncio.to_thread(stay)).endswith(b"-ERR 'User Authentication Expired'\r\n")


async def test_permissions_hold(launch: Launch) -> None:
    async with configured(launch) as (server, service):
        service.answer = with_permissions

        def try_it() -> list[bytes]:
            with connect(server, user="me") as connection:
                connection.send(b"SUB b 1\r\nPUB c 0\r\n\r\nPUB a.x 0\r\n\r\n")
                return connection.fence()

        assert await asyncio.to_thread(try_it) == [
            b"-ERR 'Permissions Violation for Subscription to \"b\"'\r\n",
            b"-ERR 'Permissions Violation for Publish to \"c\"'\r\n",
        ]


async def test_users_of_the_service_are_not_asked_about_and_may_not_ask(launch: Launch) -> None:
    async with configured(launch) as (server, service):
        info = await enter(server, user="auth", **{"pass": "pwd"})
        assert (info["account"], info["permissions"]["publish"]) == ("AUTH", {"deny": [SUBJECT]})
        with pytest.raises(Refused, match=REFUSED):
            await enter(server, user="auth", **{"pass": "wrong"})
        assert service.requests == []


async def test_a_user_of_the_configuration_is_the_services_business_too(launch: Launch) -> None:
    async with configured(launch) as (server, service):
        service.answer = in_another_account
        info = await enter(server, user="app", **{"pass": "pwd"})
        assert info["account"] == "OTHER"
        service.answer = an_error
        with pytest.raises(Refused, match=REFUSED):
            await enter(server, user="app", **{"pass": "pwd"})


async def test_accounts_that_are_not_delegated_stay_as_they_are(launch: Launch) -> None:
    async with configured(launch, callout=", allowed_accounts: [ APP ]") as (server, service):
        service.answer = with_a_name
        other = await enter(server, user="other", **{"pass": "pwd"})
        assert (other["user"], other["account"]) == ("other", "OTHER")
        assert service.requests == []
        app = await enter(server, user="app", **{"pass": "pwd"})
        assert app["user"] == "ann"


async def test_many_clients_at_once(launch: Launch) -> None:
    """All clients wait for the service at the same time; it answers the last one first."""
    number = 50
    async with configured(launch) as (server, service):
        waiting: list[Msg] = []
        ready = asyncio.Event()

        async def collect(msg: Msg) -> None:
            waiting.append(msg)
            if len(waiting) == number:
                ready.set()

        await service.stop()
        await service.client.subscribe(SUBJECT, cb=collect)
        await service.client.flush()
        with_all = asyncio.gather(*(enter_by_loop(server, f"u{n}") for n in range(number)))
        await ready.wait()
        for msg in reversed(waiting):
            request = jwts.payload(msg.data.decode())["nats"]
            answering = Answering(request, service.signer)
            answering.user.name = request["connect_opts"]["user"] + "!"
            await msg.respond(answering.make())
        assert await with_all == [f"u{n}!" for n in range(number)]


async def enter_by_loop(server: Server, user: str) -> str:
    async with joined(server.url, user=user, password="x") as client:
        answer = await client.request("$SYS.REQ.USER.INFO", timeout=30)
    name: str = json.loads(answer.data)["data"]["user"]
    return name


async def test_a_client_that_leaves_meanwhile_is_dropped(launch: Launch) -> None:
    async with configured(launch, "-m", "-1") as (server, service):
        asked, answer_now = asyncio.Event(), asyncio.Event()
        held: list[Msg] = []

        async def hold(msg: Msg) -> None:
            held.append(msg)
            asked.set()
            await answer_now.wait()
            await msg.respond(Answering(jwts.payload(msg.data.decode())["nats"], service.signer).make())

        await service.stop()
        await service.client.subscribe(SUBJECT, cb=hold)
        await service.client.flush()
        reader, writer = await asyncio.open_connection(*server.address)
        await reader.readline()
        writer.write(b'CONNECT {"verbose":false,"user":"gone"}\r\n')
        await asked.wait()
        writer.close()
        await writer.wait_closed()
        answer_now.set()
        await asyncio.to_thread(wait_connections, server, 1)


async def test_a_reload_asks_again(launch: Launch) -> None:
    """A reload closes clients that the service admitted, and they may connect again; the service stays."""
    async with configured(launch) as (server, service):
        service.answer = with_a_name
        connection = await asyncio.to_thread(connect, server, user="me")
        with connection:
            text = await asyncio.to_thread(server.conf.read_text)
            changed = text.replace("user: other, password: pwd", "user: other, password: changed")
            await asyncio.to_thread(server.conf.write_text, changed)
            server.process.send_signal(signal.SIGHUP)
            assert await asyncio.to_thread(connection.rest) == b""
        await asyncio.to_thread(server.wait_log, "Reloaded server configuration")
        await service.client.flush()
        assert (await enter(server, user="me"))["user"] == "ann"


# -- sealed ----------------------------------------------------------------------------------------------


async def test_requests_and_answers_may_be_sealed(launch: Launch) -> None:
    async with configured(launch, xkey=CurveKeyPair.create()) as (server, service):
        service.answer = with_a_name
        assert (await enter(server, user="me"))["user"] == "ann"
        assert service.requests[0]["nats"]["server_id"]["xkey"].startswith("X")
        service.sealed = False  # plain answers are allowed too
        assert (await enter(server, user="me"))["user"] == "ann"


async def test_what_cannot_be_opened_is_refused(launch: Launch) -> None:
    async with configured(launch, xkey=CurveKeyPair.create()) as (server, service):
        service.sealed = False

        def garbage(answering: Answering) -> None:
            answering.raw = b"xkv1" + bytes(100)

        service.answer = garbage
        with pytest.raises(Refused, match=REFUSED):
            await enter(server, user="me")
        text = r'Error decrypting auth callout response on account "AUTH": .+'
        await asyncio.to_thread(server.wait_log, text)


# -- operator mode ---------------------------------------------------------------------------------------


async def come(world: Delegation, **options: Any) -> dict[str, Any]:
    return await enter(world.server, jwt=world.sentinel.jwt, user="me", **{"pass": "pw"}, **options)


async def test_operator_mode_places_users_in_accounts(launch: Launch) -> None:
    async with delegated(launch) as world:
        world.service.answer = lambda answering: setattr(answering, "user_signer", world.app.key)
        info = await come(world)
        assert (info["user"], info["account"]) == ("me", world.app.name)
        (request,) = world.service.requests
        assert request["sub"] == world.auth.name
        asked = request["nats"]
        assert jwts.payload(asked["connect_opts"]["jwt"])["sub"] == world.sentinel.key.public_key
        assert asked["client_info"]["name_tag"] == "sentinel"

        def stays(answering: Answering) -> None:
            pass

        world.service.answer = stays
        info = await come(world)
        assert info["account"] == world.auth.name
        assert info["permissions"]["publish"] == {"deny": [SUBJECT]}


async def test_operator_mode_with_scoped_keys(launch: Launch) -> None:
    async with delegated(launch) as world:

        def by_scope(answering: Answering) -> None:
            answering.user.name = "ann"
            answering.user.nats = type(answering.user.nats)(issuer_account=world.app.name)
            answering.user_signer = world.scoped

        world.service.answer = by_scope
        info = await come(world)
        assert (info["user"], info["account"]) == ("ann", world.app.name)
        assert sorted(info["permissions"]["publish"]["allow"]) == ["$SYS.REQ.USER.INFO", "by.ann"]

        def with_permissions(answering: Answering) -> None:
            by_scope(answering)
            answering.user.nats.pub = Permission(allow=("more",))

        world.service.answer = with_permissions
        with pytest.raises(Refused):
            await come(world)
        text = "User JWT is not valid: scoped users require no permissions or limits set"
        await asyncio.to_thread(world.server.wait_log, text)


@pytest.mark.parametrize("allowed", ["app", "*"])
async def test_operator_mode_keeps_to_the_allowed_accounts(launch: Launch, allowed: str) -> None:
    async with delegated(launch, allowed=allowed) as world:
        world.service.answer = lambda answering: setattr(answering, "user_signer", world.other.key)
        if allowed == "*":
            assert (await come(world))["account"] == world.other.name
            return
        with pytest.raises(Refused):
            await come(world)
        text = r'Account "A\w+" not permitted as valid account option for auth callout for account "A\w+"'
        await asyncio.to_thread(world.server.wait_log, text)


@pytest.mark.parametrize("named", ["", "auth", "app"])
@pytest.mark.parametrize("signer", ["auth", "signing key", "app", "stranger"])
async def test_operator_mode_wants_to_know_who_answers(launch: Launch, signer: str, named: str) -> None:
    """The issuer must be a key of the service's account, and issuer_account that account or empty."""
    async with delegated(launch) as world:
        keys = {
            "auth": world.auth.key,
            "signing key": world.signing_key,
            "app": world.app.key,
            "stranger": jwts.account(),
        }
        names = {"": "", "auth": world.auth.name, "app": world.app.name}

        def answer(answering: Answering) -> None:
            answering.user_signer, answering.signer = world.app.key, keys[signer]
            answering.response.nats.issuer_account = names[named]

        world.service.answer = answer
        if signer in ("auth", "signing key") and named != "app":
            assert (await come(world))["account"] == world.app.name
            return
        with pytest.raises(Refused):
            await come(world)
        text = "Auth callout signing key is unknown"
        if named == "app":
            text = r'Auth callout response issuer account "A\w+" is not the callout account'
        await asyncio.to_thread(world.server.wait_log, text)


async def test_operator_mode_sealed(launch: Launch) -> None:
    async with delegated(launch, xkey=CurveKeyPair.create()) as world:
        world.service.answer = lambda answering: setattr(answering, "user_signer", world.app.key)
        assert (await come(world))["account"] == world.app.name


async def test_operator_mode_with_a_default_sentinel(launch: Launch) -> None:
    trust = Trust()
    auth = trust.account()
    serving = auth.user()
    sentinel = auth.user(bearer_token=True)
    auth.nats.authorization = ExternalAuthorization(auth_users=(serving.key.public_key,))
    config = trust.config(auth, more=f"default_sentinel: {sentinel.jwt}")
    server = await asyncio.to_thread(launch, config=config)
    creds = server.directory / "service.creds"
    await asyncio.to_thread(creds.write_text, format_user_config(serving.jwt, serving.key))
    async with joined(server.url, user_credentials=str(creds)) as client:
        service = Service(client, auth.key)
        service.answer = with_a_name
        await service.start()
        assert (await enter(server, user="someone"))["user"] == "ann"


async def test_operator_mode_revokes_users_of_the_callout(launch: Launch) -> None:
    async with delegated(launch) as world:
        world.service.answer = lambda answering: setattr(answering, "user_signer", world.app.key)

        def stay() -> Connection:
            return connect(world.server, jwt=world.sentinel.jwt, user="me")

        connection = await asyncio.to_thread(stay)
        with connection:
            world.app.nats.revocations = {"*": int(time.time()) + HOUR}
            await asyncio.to_thread(world.trust.push, world.server, world.app)
            heard = await asyncio.to_thread(connection.rest)
            assert heard == b"-ERR 'User Authentication Revoked'\r\n"


async def test_operator_mode_refuses_what_the_service_refuses(launch: Launch) -> None:
    async with delegated(launch) as world:
        told = await world.service.client.subscribe("$SYS.ACCOUNT.CLIENT.AUTH.ERR")
        await world.service.client.flush()
        world.service.answer = an_error
        with pytest.raises(Refused, match=REFUSED):
            await come(world)
        reason = json.loads((await told.next_msg(30)).data)["reason"]
        assert reason == "Auth callout service returned an error: go away"


async def test_limits_of_the_target_account_hold(launch: Launch) -> None:
    async with delegated(launch) as world:
        world.service.answer = lambda answering: setattr(answering, "user_signer", world.app.key)
        world.app.nats.limits.conn = 1
        with await asyncio.to_thread(world.app.user().connect, world.server):
            await asyncio.to_thread(world.trust.push, world.server, world.app)
            with pytest.raises(Refused) as refused:
                await come(world)
        assert refused.value.args[0].startswith(b"-ERR 'maximum account active connections exceeded'\r\n")


def test_hears_nothing_of_callouts(launch: Launch) -> None:
    """A server without a callout sends no requests."""
    server = launch()
    with connect(server) as listener:
        listener.send(f"SUB {SUBJECT} 1\r\n".encode())
        assert hears([listener]) == [[]]
        connect(server, user="x").close()
        assert hears([listener]) == [[]]
