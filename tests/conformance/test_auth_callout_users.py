"""Only clients that prove to be a user of the callout service skip the callout, whatever names they give."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from support import jwts
from support.callouts import Answering, Change, Service, delegated, with_password
from support.launch import Launch
from support.natspy import joined
from support.servers import Server
from support.trust import Refused, connect, user_info

from gnats.nkeys.nkeys import KeyPair

pytestmark = pytest.mark.timeout(120)

PLACED = "placed"
"""The user whose grant the service's answers contain, whatever user a request is about."""
ASKED, REFUSED_UNASKED = "asked", "refused"
DENIED = {"deny": ["$SYS.REQ.USER.AUTH"]}


@dataclass
class Configured:
    """A configuration with a callout and static users; the callout's account is signed with `signer`."""

    text: str
    signer: KeyPair
    auth_users: frozenset[str]
    accounts: dict[str, str]
    """The account of each user, by its name or key."""
    no_auth_user: str = ""
    websocket_only: frozenset[str] = frozenset()


KEYS = {name: jwts.user() for name in ("AUTH", "APP", "GHOST")}
PUBLIC = {name: key.public_key for name, key in KEYS.items()}
ACCOUNTS = {"auth": "AUTH", "sys": "AUTH", "app": "APP", PUBLIC["AUTH"]: "AUTH", PUBLIC["APP"]: "APP"}


def with_accounts(
    *, nkeys: bool = True, no_auth_user: str = "", allowed: str = "", websocket: tuple[str, ...] = ()
) -> Configured:
    def user(name: str) -> str:
        only = ", allowed_connection_types: [WEBSOCKET]" if name in websocket else ""
        return (
            f"{{ nkey: {name}{only} }}"
            if name.startswith("U")
            else f"{{ user: {name}, password: pwd{only} }}"
        )

    known = {name: account for name, account in ACCOUNTS.items() if nkeys or not name.startswith("U")}
    signer = jwts.account()
    auth_users = frozenset(("auth", "sys", PUBLIC["AUTH"]))
    accounts = "\n".join(
        f"{each} {{ users: [{', '.join(user(name) for name, account in known.items() if account == each)}] }}"
        for each in ("AUTH", "APP")
    )
    text = f"""
        accounts {{ {accounts} }}
        {f"no_auth_user: {no_auth_user}" if no_auth_user else ""}
        authorization {{
          timeout: "10s"
          auth_callout {{
            issuer: {signer.public_key}, account: AUTH, auth_users: [ {", ".join(auth_users)} ]
            {f"allowed_accounts: [ {allowed} ]" if allowed else ""}
          }}
        }}
    """
    return Configured(text, signer, auth_users, known, no_auth_user, frozenset(websocket))


def with_a_single_user() -> Configured:
    signer = jwts.account()
    text = f"""
        authorization {{
          timeout: "10s", user: auth, password: pwd
          auth_callout {{
            issuer: {signer.public_key}, account: "$G", auth_users: [ auth, {PUBLIC["AUTH"]} ]
          }}
        }}
    """
    return Configured(text, signer, frozenset(("auth", PUBLIC["AUTH"])), {"auth": "$G"})


CONFIGURATIONS = {
    "users-and-nkeys": with_accounts(),
    "users": with_accounts(nkeys=False),
    "single-user": with_a_single_user(),
    "no-auth-user": with_accounts(no_auth_user="app"),
    "no-auth-user-of-the-service": with_accounts(no_auth_user="auth"),
    "no-auth-nkey-of-the-service": with_accounts(no_auth_user=PUBLIC["AUTH"]),
    "allowed-accounts": with_accounts(allowed="APP"),
    "connection-types": with_accounts(websocket=("sys", "app", PUBLIC["AUTH"])),
}
SIGNED, UNSIGNED, BADLY = "signed", "unsigned", "badly signed"


@dataclass(frozen=True)
class Claim:
    """The credentials in a client's CONNECT; `signature` says how it signs the nonce."""

    user: str
    password: str
    nkey: str
    signature: str
    token: str

    def options(self) -> dict[str, Any]:
        named = {"user": self.user, "pass": self.password, "nkey": self.nkey, "auth_token": self.token}
        return {name: value for name, value in named.items() if value}

    @property
    def key(self) -> KeyPair | None:
        if self.signature == BADLY:
            return KEYS["GHOST"]
        return (
            next((key for key in KEYS.values() if key.public_key == self.nkey), None)
            if self.signature
            else None
        )


def claims(configured: Configured) -> Iterator[Claim]:
    signatures = (SIGNED, "", BADLY) if any(name.startswith("U") for name in configured.accounts) else ("",)
    nkeys = [("", ""), ("auth", ""), ("app", "")]
    nkeys += [(PUBLIC[name], signature) for name in ("AUTH", "APP", "GHOST") for signature in signatures]
    users = ("", "auth", "sys", "app", "ghost", PUBLIC["AUTH"])
    for user, password, (nkey, signature) in product(users, ("", "pwd", "bad"), nkeys):
        yield Claim(user, password, nkey, signature, "")
        if not user:  # the token counts only where there is no user
            yield Claim(user, password, nkey, signature, "t")


def expected(configured: Configured, claim: Claim) -> str:
    """Return the account of a client that needs no callout, or ASKED, or REFUSED_UNASKED."""
    nkeys = {name for name in configured.accounts if name.startswith("U")}
    user, password, nkey = claim.user, claim.password, claim.nkey
    nothing = not (user or password or claim.token)
    if nkeys and nothing and not nkey and configured.no_auth_user in nkeys:
        nkey = configured.no_auth_user
    if nkeys and nkey:
        selected = nkey if nkey in nkeys else ""
        proven = claim.signature == SIGNED or nkey == configured.no_auth_user
    else:
        if nothing and configured.no_auth_user and configured.no_auth_user not in nkeys:
            user, password = configured.no_auth_user, "pwd"
        selected = user if user in configured.accounts and user not in nkeys else ""
        proven = password == "pwd"
    if selected not in configured.auth_users:
        return ASKED
    return (
        configured.accounts[selected]
        if proven and selected not in configured.websocket_only
        else REFUSED_UNASKED
    )


def try_all(server: Server, service: Service, tries: list[Claim]) -> list[str]:
    """Connect with each claim; return the outcomes as `expected` does."""

    def attempt(claim: Claim) -> str:
        before = len(service.requests)
        try:
            with connect(server, claim.key, **claim.options()) as connection:
                info = user_info(connection)
        except Refused:
            assert len(service.requests) == before
            return REFUSED_UNASKED
        if len(service.requests) == before:
            return str(info["account"])
        assert info["user"] == PLACED
        return ASKED

    return [attempt(claim) for claim in tries]


def placing(account: str) -> Change:
    def answer(answering: Answering) -> None:
        answering.user.name, answering.user.aud = PLACED, account

    return answer


@pytest.mark.parametrize("name", CONFIGURATIONS)
async def test_only_who_proves_to_be_a_user_of_the_service_is_let_in_unasked(
    launch: Launch, name: str
) -> None:
    configured = CONFIGURATIONS[name]
    server = await asyncio.to_thread(launch, config=configured.text)
    async with joined(server.url, **with_password("auth")) as client:
        service = Service(client, configured.signer)
        service.answer = placing("$G" if name == "single-user" else "APP")
        await service.start()
        tries = list(claims(configured))
        found = await asyncio.to_thread(try_all, server, service, tries)
        wrong = [
            (claim, outcome, right)
            for claim, outcome in zip(tries, found, strict=True)
            if outcome != (right := expected(configured, claim))
        ]
        assert not wrong, f"{len(wrong)} of {len(tries)}, the first: {wrong[:3]}"
        assert {ASKED, REFUSED_UNASKED} <= set(found)


@pytest.mark.parametrize("allowed", [False, True])
async def test_users_of_the_services_account_may_ask_it_where_it_is_not_delegated(
    launch: Launch, allowed: bool
) -> None:
    configured = with_accounts(allowed="APP" if allowed else "")
    server = await asyncio.to_thread(launch, config=configured.text)

    def publishes() -> object:
        with connect(server, user="auth", **{"pass": "pwd"}) as connection:
            return user_info(connection).get("permissions", {}).get("publish")

    assert await asyncio.to_thread(publishes) == (None if allowed else DENIED)


async def test_operator_mode_goes_by_the_jwt(launch: Launch) -> None:
    """Only the JWT of the service's user needs no callout, whatever user and nkey CONNECT names."""
    async with delegated(launch) as world:
        plain, ghost = world.auth.user(), jwts.user().public_key

        def answer(answering: Answering) -> None:
            answering.user.name = PLACED
            answering.user_signer = world.app.key

        world.service.answer = answer
        keys = {"": "", "plain": plain.key.public_key, "auth": world.serving.key.public_key, "ghost": ghost}

        def attempt(serving: bool, nkey: str, user: str) -> tuple[str, bool]:
            who = world.serving if serving else plain
            before = len(world.service.requests)
            named = {"nkey": keys[nkey], "user": keys[user]}
            with who.connect(
                world.server, **{name: value for name, value in named.items() if value}
            ) as client:
                account = user_info(client)["account"]
            return account, len(world.service.requests) > before

        for nkey, user in product(keys, keys):
            assert await asyncio.to_thread(attempt, True, nkey, user) == (world.auth.name, False), (
                nkey,
                user,
            )
            assert await asyncio.to_thread(attempt, False, nkey, user) == (world.app.name, True), (nkey, user)
