"""A service that answers auth callouts, and servers with a callout in configuration or operator mode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from gnats.jwt.account import ExternalAuthorization, UserScope
from gnats.jwt.claims import AuthorizationResponseClaims, Permission, UserClaims, unlimited
from gnats.jwt.decorated import format_user_config
from gnats.jwt.token import encode
from gnats.nkeys.nkeys import CurveKeyPair, KeyPair

from . import jwts
from .launch import Launch
from .natspy import joined
from .servers import Server
from .trust import Account, Trust, User, connect, user_info

SUBJECT = "$SYS.REQ.USER.AUTH"


@dataclass
class Answering:
    """The answer to one request; a test changes the parts that it is about."""

    request: dict[str, Any]
    """The request's `nats` part."""
    signer: KeyPair
    user: UserClaims = field(init=False)
    response: AuthorizationResponseClaims = field(init=False)
    user_signer: KeyPair | None = None
    raw: bytes | None = None
    """Bytes to answer in place of the JWT made from `response`."""

    def __post_init__(self) -> None:
        self.user = UserClaims.new(self.request["user_nkey"])
        self.user.aud = "APP"
        self.response = AuthorizationResponseClaims(
            sub=self.request["user_nkey"], aud=self.request["server_id"]["id"]
        )

    def make(self) -> bytes:
        if self.raw is not None:
            return self.raw
        if not self.response.nats.error:
            self.response.nats.jwt = self.response.nats.jwt or encode(
                self.user, self.user_signer or self.signer
            )
        return encode(self.response, self.signer).encode()


Change = Callable[[Answering], None]


class Service:
    """A callout service. `answer` changes an Answering before it is sent, or raises Silence to send none.

    `requests` keeps the claims of each request. With an `xkey` requests are decrypted, and answers encrypted
    while `sealed` is True.
    """

    def __init__(self, client: Client, signer: KeyPair, xkey: CurveKeyPair | None = None) -> None:
        self.client = client
        self.signer = signer
        self.xkey = xkey
        self.answer: Change = lambda answering: None
        self.requests: list[dict[str, Any]] = []
        self.sealed = True

    async def start(self) -> None:
        self._subscription = await self.client.subscribe(SUBJECT, cb=self._serve)
        await self.client.flush()

    async def stop(self) -> None:
        await self._subscription.unsubscribe()
        await self.client.flush()

    async def _serve(self, msg: Msg) -> None:
        data, xkey = msg.data, ""
        if self.xkey:
            assert msg.headers
            xkey = msg.headers["Nats-Server-Xkey"]
            data = self.xkey.open(data, xkey)
        claims = jwts.payload(data.decode())
        self.requests.append(claims)
        answering = Answering(claims["nats"], self.signer)
        try:
            self.answer(answering)
        except Silence:
            return
        reply = answering.make()
        if self.xkey and self.sealed:
            reply = self.xkey.seal(reply, xkey)
        await msg.respond(reply)


class Silence(Exception):
    """Raised by Service.answer: send no answer."""


def with_password(name: str) -> dict[str, str]:
    return {"user": name, "password": "pwd"}


@asynccontextmanager
async def configured(
    launch: Launch,
    *flags: str,
    callout: str = "",
    accounts: str = "",
    more: str = "",
    timeout_seconds: str = "10s",
    xkey: CurveKeyPair | None = None,
) -> AsyncIterator[tuple[Server, Service]]:
    """Start a server with a callout in its configuration, and the service, connected as user `auth`.

    `callout`, `accounts` and `more` are configuration text for auth_callout, accounts and the top level.
    """
    signer = jwts.account()
    sealed = f", xkey: {xkey.public_key}" if xkey else ""
    config = f"""
        accounts {{
          AUTH {{ users: [ {{ user: auth, password: pwd }} ] }}
          APP {{ users: [ {{ user: app, password: pwd }} ] }}
          OTHER {{ users: [ {{ user: other, password: pwd }} ] }}
          SYS {{ users: [ {{ user: sys, password: pwd }} ] }}
          {accounts}
        }}
        system_account: SYS
        {more}
        authorization {{
          timeout: "{timeout_seconds}"
          auth_callout {{
            issuer: {signer.public_key}, account: AUTH, auth_users: [ auth, sys ]{sealed} {callout}
          }}
        }}
    """
    server = await asyncio.to_thread(launch, *flags, config=config)
    async with joined(server.url, **with_password("auth")) as client:
        service = Service(client, signer, xkey)
        await service.start()
        yield server, service


async def enter(server: Server, **options: Any) -> dict[str, Any]:
    """Connect with these members of CONNECT; return the server's $SYS.REQ.USER.INFO. Raises Refused."""

    def ask() -> dict[str, Any]:
        with connect(server, **options) as connection:
            return user_info(connection)

    return await asyncio.to_thread(ask)


@dataclass
class Delegation:
    """An operator-mode server whose account `auth` has a callout; the callout may place users in `app`.

    It may place users in `other` only where every account is allowed.
    """

    trust: Trust
    auth: Account
    app: Account
    other: Account
    scoped: KeyPair
    """A signing key of `app` with a scope: its users may publish to "by.NAME"."""
    signing_key: KeyPair
    """A signing key of `auth`."""
    sentinel: User
    serving: User
    """The user of the service: the only one of `auth` that needs no callout."""
    server: Server
    service: Service


@asynccontextmanager
async def delegated(
    launch: Launch, *, allowed: str = "app", xkey: CurveKeyPair | None = None
) -> AsyncIterator[Delegation]:
    trust = Trust()
    auth, app, other = (trust.account() for _ in range(3))
    serving = auth.user()
    sentinel = auth.user(bearer_token=True, pub=Permission(deny=(">",)), sub=Permission(deny=(">",)))
    sentinel.claims.name = "sentinel"
    auth.nats.authorization = ExternalAuthorization(
        auth_users=(serving.key.public_key,),
        allowed_accounts=("*",) if allowed == "*" else (app.name,),
        xkey=xkey.public_key if xkey else "",
    )
    scoped, signing = jwts.account(), jwts.account()
    auth.nats.signing_keys = {signing.public_key: None}
    template = unlimited()
    template.pub = Permission(allow=("$SYS.REQ.USER.INFO", "by.{{name()}}"))
    app.nats.signing_keys = {scoped.public_key: UserScope(key=scoped.public_key, template=template)}
    config = trust.config(auth, app, other, more='authorization { timeout: "10s" }')
    server = await asyncio.to_thread(launch, "-D", config=config)
    creds = server.directory / "service.creds"
    await asyncio.to_thread(creds.write_text, format_user_config(serving.jwt, serving.key))
    async with joined(server.url, user_credentials=str(creds)) as client:
        service = Service(client, auth.key, xkey)
        await service.start()
        yield Delegation(trust, auth, app, other, scoped, signing, sentinel, serving, server, service)
