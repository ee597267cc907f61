"""Operator mode: known accounts, their updates, and which clients may stay."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support import jwts
from support.clock import HeldClock
from support.jwts import HOUR, Attempt
from support.operatormode import Hook, Log

from gnats.auth.account_jwt import AccountError, ClaimAccount
from gnats.client.grant import JWTUser
from gnats.connection.closed_state import ClosedState
from gnats.connection.connect_options import ClientOptions
from gnats.errors import OptionError, ServerError
from gnats.jwt import account as acc
from gnats.jwt import claims as jwt
from gnats.jwt.token import encode
from gnats.nkeys.nkeys import KeyPair
from gnats.operator.mode import OperatorMode
from gnats.options.options import Options
from gnats.options.values.accounts import StreamImport
from gnats.options.values.auth import AuthCallout, ResolverOptions, User
from gnats.resolver.base import ResolverError
from gnats.resolver.memory import MemoryResolver

pytestmark = pytest.mark.timeout(60)

OPERATOR = jwts.operator()
OPERATOR_JWT = jwts.operator_jwt(OPERATOR)
MEM = ResolverOptions("mem")


class Resolver(MemoryResolver):
    """Counts requests, and answers when `gate` is open."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(self, account: str) -> str:
        self.fetched.append(account)
        await self.gate.wait()
        return await super().fetch(account)


class World:
    def __init__(self, **options: Any) -> None:
        opts = Options(**{"trusted_operators": (OPERATOR_JWT,), "resolver": MEM} | options)
        self.hook, self.log, self.resolver = Hook(), Log(), Resolver()
        self.mode = OperatorMode(opts, self.resolver, self.hook, self.log)

    async def add(self, key: KeyPair, **nats: Any) -> str:
        token = jwts.account_jwt(key, OPERATOR, **nats)
        await self.resolver.store(key.public_key, token)
        return token

    async def login(self, attempt: Attempt, nonce: str = "n", kind: str = "STANDARD", **more: Any) -> Any:
        attempt.make()
        await self.resolver.store(attempt.account.public_key, attempt.account_jwt)
        options = ClientOptions()
        for name, value in attempt.connect_options(nonce).items():
            setattr(options, name, value)
        return await self.mode.authenticate(options, nonce, "127.0.0.1", kind, **more)

    async def update(self, attempt: Attempt) -> ClaimAccount:
        """Apply the attempt's account claims as they are now."""
        account = await self.mode.lookup_account(attempt.account.public_key)
        token = encode(attempt.account_claims, OPERATOR)
        await self.mode.update_account_with_claim_jwt(account, token)
        return account


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[World]:
    world = World(**options)
    await world.mode.start()
    yield world
    await world.mode.close()


def stream(account: KeyPair) -> tuple[acc.Import, ...]:
    return (acc.Import(subject="s", account=account.public_key, type="stream"),)


async def test_an_account_is_fetched_once_and_built_once() -> None:
    key = jwts.account()
    async with running() as world:
        await world.add(key)
        world.resolver.gate.clear()
        lookups = [asyncio.create_task(world.mode.lookup_account(key.public_key)) for _ in range(5)]
        await asyncio.sleep(0)
        world.resolver.gate.set()
        accounts = await asyncio.gather(*lookups)
        assert all(account is accounts[0] for account in accounts)
        assert await world.mode.lookup_account(key.public_key) is accounts[0]
        assert world.resolver.fetched == [key.public_key]
        assert world.hook.updates == [[key.public_key]]


async def test_a_client_that_goes_away_does_not_take_the_fetch_with_it() -> None:
    key = jwts.account()
    async with running() as world:
        await world.add(key)
        world.resolver.gate.clear()
        gone = asyncio.create_task(world.mode.lookup_account(key.public_key))
        waiting = asyncio.create_task(world.mode.lookup_account(key.public_key))
        await asyncio.sleep(0)
        gone.cancel()
        world.resolver.gate.set()
        assert (await waiting).name == key.public_key
        with pytest.raises(asyncio.CancelledError):
            await gone


async def test_accounts_that_import_from_each_other_are_built_together() -> None:
    keys = [jwts.account() for _ in range(3)]
    async with running() as world:
        for key, other in zip(keys, keys[1:] + keys[:1], strict=True):
            await world.add(key, imports=stream(other))
        await world.mode.lookup_account(keys[0].public_key)
        assert [sorted(names) for names in world.hook.updates] == [sorted(key.public_key for key in keys)]
        await world.mode.lookup_account(keys[2].public_key)
        assert len(world.hook.updates) == 1


async def test_an_account_is_built_again_when_one_that_it_imports_from_appears() -> None:
    importer, exporter = jwts.account(), jwts.account()
    async with running() as world:
        await world.add(importer, imports=stream(exporter))
        account = await world.mode.lookup_account(importer.public_key)
        assert account.incomplete
        assert any("Can't locate account" in line for line in world.log.lines)
        await world.add(exporter)
        await world.mode.lookup_account(exporter.public_key)
        assert world.hook.updates[1:] == [[exporter.public_key, importer.public_key]]
        assert not account.incomplete


LOOKUPS: list[tuple[str, Callable[[KeyPair], str], str]] = [
    ("unknown", lambda _: "", "account missing"),
    ("garbage", lambda _: "garbage", "expected 3 chunks"),
    ("of another", lambda _: jwts.account_jwt(jwts.account(), OPERATOR), "account validation failed"),
    ("not trusted", lambda key: jwts.account_jwt(key, jwts.operator()), "account validation failed"),
    ("a user's", lambda key: jwts.user_jwt(jwts.user(), key), "not account claim"),
]


@pytest.mark.parametrize(("name", "token", "reason"), LOOKUPS, ids=[name for name, _, _ in LOOKUPS])
async def test_an_account_that_is_no_good_is_not_found(
    name: str, token: Callable[[KeyPair], str], reason: str
) -> None:
    key = jwts.account()
    async with running() as world:
        if made := token(key):
            await world.resolver.store(key.public_key, made)
        with pytest.raises(AccountError, match=reason):
            await world.mode.lookup_account(key.public_key)
        assert not world.mode.accounts
        assert not world.hook.updates


async def test_only_accounts_are_fetched() -> None:
    async with running() as world:
        for name in ("", "../x", jwts.user().public_key):
            with pytest.raises(AccountError, match="will only fetch valid account keys"):
                await world.mode.lookup_account(name)
        assert not world.resolver.fetched


async def test_an_expired_account_is_closed_and_comes_back_with_another_jwt() -> None:
    with HeldClock(realtime=1_900_000_000_500_000_000) as clock:
        await see_an_account_expire(clock)


async def see_an_account_expire(clock: HeldClock) -> None:
    async with running() as world:
        attempt = Attempt(OPERATOR)
        attempt.account_claims.exp = attempt.now + 1
        assert (await world.login(attempt)).user
        account = world.mode.accounts[attempt.account.public_key]
        assert not account.is_expired
        clock.move(0.6)
        assert account.is_expired
        with pytest.raises(AccountError, match="account expired"):
            await world.mode.lookup_account(account.name)
        clock.move(5)  # from then on OperatorMode asks the resolver again
        await world.add(attempt.account)
        assert await world.mode.lookup_account(account.name) is account
        assert not account.is_expired


async def test_the_server_is_told_when_an_account_expires(clock: HeldClock) -> None:
    async with running() as world:
        attempt = Attempt(OPERATOR)
        attempt.account_claims.exp = attempt.now + HOUR
        await world.login(attempt)
        await clock.advance(HOUR - 1)
        assert world.hook.expired.empty()
        await clock.advance(1)
        assert world.hook.expired.get_nowait() == attempt.account.public_key


async def test_the_same_jwt_changes_nothing_and_another_one_does() -> None:
    async with running() as world:
        attempt = Attempt(OPERATOR)
        await world.login(attempt)
        account = world.mode.accounts[attempt.account.public_key]
        await world.mode.update_account_with_claim_jwt(account, attempt.account_jwt)
        assert len(world.hook.updates) == 1
        attempt.a.limits.subs = 7
        await world.update(attempt)
        assert account.config().limits.max_subscriptions == 7
        assert len(world.hook.updates) == 2
        with pytest.raises(AccountError):
            await world.mode.update_account_with_claim_jwt(
                account, jwts.account_jwt(jwts.account(), OPERATOR)
            )


async def login(world: World, attempt: Attempt) -> JWTUser:
    result = await world.login(attempt)
    assert result.user is not None, result.text
    user: JWTUser = result.user
    assert world.mode.recheck(user) is None
    return user


async def test_a_user_that_is_revoked_has_to_go() -> None:
    async with running() as world:
        attempt = Attempt(OPERATOR)
        user = await login(world, attempt)
        attempt.a.revocations = {"*": attempt.now - HOUR}
        await world.update(attempt)
        assert world.mode.recheck(user) is None
        attempt.a.revocations = {user.user: attempt.now + HOUR}
        await world.update(attempt)
        eviction = world.mode.recheck(user)
        assert eviction is not None
        assert (eviction.reason, eviction.err) == (ClosedState.REVOCATION, "User Authentication Revoked")


async def test_a_bearer_has_to_go_when_there_are_to_be_none() -> None:
    async with running() as world:
        attempt = Attempt(OPERATOR)
        attempt.u.bearer_token = True
        user = await login(world, attempt)
        attempt.a.limits.disallow_bearer = True
        await world.update(attempt)
        eviction = world.mode.recheck(user)
        assert eviction is not None
        assert eviction.reason == ClosedState.AUTHENTICATION_VIOLATION


async def test_a_user_goes_with_its_signing_key_and_with_its_scope() -> None:
    async with running() as world:
        for change in ("gone", "changed", "same"):
            attempt = Attempt(OPERATOR)
            scope = acc.UserScope()
            key = attempt.signing_key(scope)
            attempt.user_claims.nats = jwt.User(issuer_account=attempt.account.public_key)
            user = await login(world, attempt)
            if change == "gone":
                del attempt.a.signing_keys[key.public_key]
            elif change == "changed":
                scope.template.subs = 3
            else:
                attempt.a.limits.conn = 5
            await world.update(attempt)
            assert (world.mode.recheck(user) is None) == (change == "same")


async def test_limits_are_the_users_own() -> None:
    async with running() as world:
        attempt = Attempt(OPERATOR)
        attempt.u.subs, attempt.u.payload, attempt.u.data = 10, 1000, 77
        attempt.a.limits.payload = 500
        user = await login(world, attempt)
        assert (user.max_subs, user.max_payload, user.max_data) == (10, 1000, 77)


async def test_limits_of_a_scope_count_instead_of_the_users() -> None:
    async with running() as world:
        attempt = Attempt(OPERATOR)
        scope = acc.UserScope()
        scope.template.subs = 4
        attempt.signing_key(scope)
        attempt.user_claims.nats = jwt.User(issuer_account=attempt.account.public_key)
        user = await login(world, attempt)
        assert (user.max_subs, user.max_payload) == (4, -1)
        assert user.signing_key == user.issuer


async def test_a_user_without_permissions_has_those_of_the_account() -> None:
    async with running() as world:
        attempt = Attempt(OPERATOR)
        attempt.a.default_permissions.pub.allow = ("x",)
        user = await login(world, attempt)
        assert user.uses_default_permissions
        assert user.permissions is not None
        assert user.permissions.publish is not None
        assert user.permissions.publish.allow == ("x",)


async def test_a_user_goes_at_the_end_of_its_jwt_or_of_its_time() -> None:
    async with running() as world:
        attempt = Attempt(OPERATOR)
        attempt.user_claims.exp = attempt.now + HOUR
        assert (await login(world, attempt)).expires == attempt.now + HOUR
        assert (await login(world, Attempt(OPERATOR))).expires == 0
        always = Attempt(OPERATOR)
        always.u.times = tuple(
            jwt.TimeRange(start=s, end=e) for s, e in (("00:00:00", "23:59:59"), ("12:00:00", "11:59:59"))
        )
        always.u.times_location = "UTC"
        assert 0 < (await login(world, always)).expires <= time.time() + 24 * HOUR


async def test_only_pinned_accounts_are_served_and_the_system_account() -> None:
    system, pinned, other = jwts.account(), Attempt(OPERATOR), Attempt(OPERATOR)
    preload = {system.public_key: jwts.account_jwt(system, OPERATOR)}
    operator = jwts.operator_jwt(OPERATOR, system_account=system.public_key)
    async with running(
        trusted_operators=(operator,),
        resolver_preload=preload,
        resolver_pinned_accounts=frozenset([pinned.account.public_key]),
    ) as world:
        await login(world, pinned)
        assert "not listed as operator pinned account" in (await world.login(other)).text
        assert world.mode.pinned_failures == 1
        administrator = Attempt(OPERATOR, account=system, account_jwt=preload[system.public_key])
        await login(world, administrator)


async def test_who_brings_no_jwt_has_the_sentinels() -> None:
    attempt = Attempt(OPERATOR)
    attempt.u.bearer_token = True
    attempt.make()
    nobody = ClientOptions()
    async with running(default_sentinel=attempt.user_jwt) as world:
        await world.resolver.store(attempt.account.public_key, attempt.account_jwt)
        result = await world.mode.authenticate(nobody, "n", "127.0.0.1", "STANDARD")
        assert result.user is not None
        assert nobody.jwt == attempt.user_jwt


async def test_mqtt_brings_the_jwt_as_password() -> None:
    async with running() as world:
        attempt = Attempt(OPERATOR)
        attempt.u.bearer_token = True
        attempt.make()
        attempt.connect = {"jwt": "", "password": attempt.user_jwt}
        assert not (await world.login(attempt)).user
        assert (await world.login(attempt, kind="MQTT")).user


async def test_a_proxy_may_be_required() -> None:
    async with running() as world:
        attempt = Attempt(OPERATOR)
        attempt.u.proxy_required = True
        refused = await world.login(attempt)
        assert (refused.reason, refused.text) == (ClosedState.PROXY_REQUIRED, "proxy connection required")
        assert (await world.login(attempt, trusted_proxy=True)).user


async def test_who_is_refused_may_still_be_the_callouts() -> None:
    async with running() as world:
        attempt = Attempt(OPERATOR)
        attempt.a.authorization.auth_users = (jwts.user().public_key,)
        attempt.connect = {"sig": ""}
        refused = await world.login(attempt)
        assert refused.user is None
        assert refused.account.external_auth
        assert refused.claims.sub == attempt.user.public_key


async def test_a_strict_operator_wants_signing_keys_at_both_levels() -> None:
    signing = jwts.operator()
    operator = jwts.operator_jwt(OPERATOR, signing_keys=(signing.public_key,), strict_signing_key_usage=True)
    async with running(trusted_operators=(operator,)) as world:
        assert not (await world.login(Attempt(OPERATOR))).user
        assert not (await world.login(Attempt(OPERATOR, account_signer=signing))).user
        attempt = Attempt(OPERATOR, account_signer=signing)
        attempt.signing_key()
        assert (await world.login(attempt)).user


async def test_a_server_may_trust_keys_without_an_operator() -> None:
    async with running(trusted_operators=(), trusted_keys=(OPERATOR.public_key,)) as world:
        assert (await world.login(Attempt(OPERATOR))).user
        assert not (await world.login(Attempt(jwts.operator()))).user


async def test_tokens_open_exports_until_they_end_or_are_revoked() -> None:
    exporter, importer = Attempt(OPERATOR), jwts.account()
    signing, stranger = exporter.signing_key(), jwts.account()
    exporter.a.exports = (acc.Export(subject="s.>", type="stream", token_req=True),)

    def token(signer: KeyPair = exporter.account, by: str = "", exp: int = 0) -> StreamImport:
        claims = jwt.ActivationClaims(sub=importer.public_key, exp=exp)
        claims.nats = jwt.Activation(subject="s.>", kind="stream", issuer_account=by)
        return StreamImport(exporter.account.public_key, "s.x", token=encode(claims, signer))

    async with running() as world:
        await login(world, exporter)
        name = exporter.account.public_key

        def check(imported: StreamImport) -> int | None:
            return world.mode.check_activation(name, imported, "s.>")

        assert check(token()) == 0
        assert check(token(exp=exporter.now + HOUR)) == exporter.now + HOUR
        assert check(token(exp=exporter.now - HOUR)) is None
        assert check(token(signing, by=name)) == 0
        assert check(token(stranger, by=name)) is None
        assert check(token(by=stranger.public_key)) is None
        assert check(StreamImport(name, "s.x", token="garbage")) is None
        assert check(StreamImport(name, "s.x")) is None
        assert world.mode.check_activation(stranger.public_key, token(), "s.>") is None
        exporter.a.exports[0].revocations = {importer.public_key: exporter.now + HOUR}
        await world.update(exporter)
        assert check(token()) is None


async def test_claims_are_updated_on_request() -> None:
    async with running() as world:
        attempt = Attempt(OPERATOR)
        name = attempt.account.public_key
        token = jwts.account_jwt(attempt.account, OPERATOR)
        assert await world.mode.account_claim_update(name, token.encode()) == {
            "data": {"account": name, "code": 200, "message": "jwt update skipped"}
        }
        await login(world, attempt)
        attempt.a.limits.subs = 9
        token = encode(attempt.account_claims, OPERATOR)
        assert await world.mode.account_claim_update(name, token.encode()) == {
            "data": {"account": name, "code": 200, "message": "jwt updated"}
        }
        assert world.mode.accounts[name].config().limits.max_subscriptions == 9
        other = jwts.account_jwt(jwts.account(), OPERATOR)
        for payload, reason in (
            (b"", "jwt update error - request body is empty"),
            (b"x", "jwt update resulted in error - expected 3 chunks"),
            (other.encode(), "jwt update resulted in error - subject does not match jwt content"),
        ):
            assert await world.mode.account_claim_update(name, payload) == {
                "error": {"account": name, "code": 500, "description": reason}
            }


async def test_an_account_whose_jwt_was_deleted_is_closed_until_there_is_one_again() -> None:
    async with running() as world:
        attempt = Attempt(OPERATOR)
        await login(world, attempt)
        name = attempt.account.public_key
        world.mode.account_removed(name)
        assert world.hook.expired.get_nowait() == name
        assert world.mode.accounts[name].config().limits.max_connections == 0
        assert not (await world.login(attempt)).user
        await world.mode.account_changed(name, attempt.account_jwt)
        await login(world, attempt)


async def test_a_system_account_that_is_not_there_yet_is_replaced_until_it_is() -> None:
    system = jwts.account()
    operator = jwts.operator_jwt(OPERATOR, system_account=system.public_key)
    world = World(trusted_operators=(operator,), resolver=ResolverOptions("full", directory="x"))
    world.resolver.kind = "full"  # type: ignore[misc]
    await world.mode.start()
    assert world.hook.updates == [[system.public_key]]
    assert "Using bootstrapping system account" in world.log.lines
    account = await world.mode.lookup_account(system.public_key)
    administrator = Attempt(OPERATOR, account=system, account_jwt="-")
    assert (await world.login(administrator)).user
    token = await world.add(system)
    async with asyncio.timeout(30):
        while account.token != token:
            world.hook.updated.clear()
            await world.hook.updated.wait()
    await world.mode.close()


async def test_a_system_account_must_be_preloaded_into_memory() -> None:
    system = jwts.account()
    operator = jwts.operator_jwt(OPERATOR, system_account=system.public_key)
    with pytest.raises(ServerError, match="Can't set system account"):
        await World(trusted_operators=(operator,)).mode.start()


async def test_what_is_preloaded_must_be_an_account() -> None:
    key = jwts.account()
    with pytest.raises(ServerError, match="preload account error"):
        await World(resolver_preload={key.public_key: "x"}).mode.start()

    class ReadOnly(MemoryResolver):
        read_only = True

    world = World(resolver_preload={key.public_key: jwts.account_jwt(key, OPERATOR)})
    world.mode.resolver = ReadOnly()
    with pytest.raises(ServerError, match="resolver preloads only available for writeable resolver types"):
        await world.mode.start()


async def test_a_configuration_that_is_read_again_has_other_accounts() -> None:
    kept, gone, new = (jwts.account() for _ in range(3))
    preload = {key.public_key: jwts.account_jwt(key, OPERATOR) for key in (kept, gone)}
    async with running(resolver_preload=preload) as world:
        for name in preload:
            await world.mode.lookup_account(name)
        changed = {
            kept.public_key: jwts.account_jwt(kept, OPERATOR, description="changed"),
            new.public_key: jwts.account_jwt(new, OPERATOR),
        }
        await world.mode.reload(changed)
        assert world.hook.forgotten == [gone.public_key]
        assert set(world.mode.accounts) == {kept.public_key}
        assert world.mode.accounts[kept.public_key].claims.nats.description == "changed"
        assert (await world.mode.lookup_account(new.public_key)).name == new.public_key
        with pytest.raises(ServerError, match="preload account error"):
            await world.mode.reload({gone.public_key: "x"})


async def test_a_resolver_that_cannot_start_is_said() -> None:
    class Broken(MemoryResolver):
        async def start(self) -> None:
            raise ResolverError("nobody home")

    world = World()
    world.mode.resolver = Broken()
    with pytest.raises(ServerError, match="nobody home"):
        await world.mode.start()


def sentinel(**nats: Any) -> str:
    return jwts.user_jwt(jwts.user(), jwts.account(), **nats)


ACCOUNT = jwts.account().public_key
OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"resolver": None}, "operators require an account resolver to be configured"),
    ({"users": [User("u")]}, "operators do not allow users to be configured directly"),
    ({"trusted_keys": (OPERATOR.public_key,)}, "conflicting options"),
    ({"auth_callout": AuthCallout(ACCOUNT)}, "authorization callouts"),
    ({"resolver": ResolverOptions("full", directory="d")}, "system account needs to be specified"),
    ({"resolver_pinned_accounts": frozenset("A")}, "is not a valid public account nkey"),
    ({"trusted_operators": ("x",)}, "error parsing operator JWT"),
    ({"default_sentinel": "x"}, "default sentinel JWT not valid"),
    ({"default_sentinel": sentinel()}, "default sentinel must be a bearer token"),
    ({"default_sentinel": "x", "trusted_operators": ()}, "default sentinel requires operators"),
    ({"trusted_operators": (), "trusted_keys": ("O",)}, "required to be a valid public operator nkey"),
    (
        {"trusted_operators": (jwts.operator_jwt(OPERATOR, system_account=ACCOUNT),), "system_account": "A"},
        "system_account in config and operator JWT must be identical",
    ),
    (
        {"trusted_operators": (jwts.operator_jwt(OPERATOR, assert_server_version="99.0.0"),)},
        "expected major version 99",
    ),
    (
        {"trusted_operators": (jwts.operator_jwt(OPERATOR, assert_server_version="2.999.0"),)},
        "expected minor version 999",
    ),
    (
        {"trusted_operators": (jwts.operator_jwt(OPERATOR, assert_server_version="2"),)},
        "got error instead",
    ),
    (
        {"trusted_operators": (jwts.operator_jwt(OPERATOR, signing_keys=("O",)),)},
        "required to be a valid public operator nkey",
    ),
]


@pytest.mark.parametrize(("options", "reason"), OPTIONS, ids=[reason for _, reason in OPTIONS])
def test_options_that_do_not_go_with_an_operator(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        Options(**{"trusted_operators": (OPERATOR_JWT,), "resolver": MEM} | options).baseline()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"default_sentinel": sentinel(bearer_token=True)},
        {
            "resolver": None,
            "trusted_operators": (jwts.operator_jwt(OPERATOR, account_server_url="http://x"),),
        },
        {"trusted_operators": (jwts.operator_jwt(OPERATOR, assert_server_version="2.15.0"),)},
        {"trusted_operators": (), "resolver": None},
    ],
)
def test_options_that_do(options: dict[str, Any]) -> None:
    Options(**{"trusted_operators": (OPERATOR_JWT,), "resolver": MEM} | options).baseline()
