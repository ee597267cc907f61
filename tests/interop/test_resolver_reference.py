"""Directories of JWTs: gnats and the reference read each other's, and answer requests alike."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from support import jwts
from support.launch import start
from support.natspy import joined
from support.operatormode import Hook, Log
from support.servers import REFERENCE, Server

from gnats.jwt.account import AccountClaims
from gnats.jwt.claims import GenericClaims, UserClaims
from gnats.jwt.decorated import format_user_config
from gnats.jwt.token import encode
from gnats.nkeys.nkeys import KeyPair
from gnats.operator.mode import OperatorMode
from gnats.options.options import Options
from gnats.options.values.auth import ResolverOptions
from gnats.resolver.base import NoOtherServers
from gnats.resolver.directory import DirectoryResolver
from gnats.resolver.dirstore import DirStore

pytestmark = pytest.mark.timeout(120)

KINDS = ["full", "cache"]


class World:
    """An operator with a system account and its user, and a directory for each server."""

    def __init__(self, directory: Path, kind: str, *, strict: bool = False) -> None:
        self.kind = kind
        self.directory = directory
        self.operator, self.signing = jwts.operator(), jwts.operator()
        self.system, self.administrator = jwts.account(), jwts.user()
        self.system_signing = jwts.account()
        self.system_nats = {"signing_keys": {self.system_signing.public_key: None}}
        self.operator_jwt = jwts.operator_jwt(
            self.operator,
            system_account=self.system.public_key,
            signing_keys=(self.signing.public_key,),
            strict_signing_key_usage=strict,
        )
        self.system_jwt = jwts.account_jwt(self.system, self.signing, **self.system_nats)
        self.theirs, self.ours = directory / "theirs", directory / "ours"

    def start(self) -> Server:
        more = "allow_delete: true" if self.kind == "full" else ""
        resolver = f"{{ type: {self.kind}, dir: '{self.theirs}', {more} }}"
        config = f"operator: {self.operator_jwt}\nresolver: {resolver}\n"
        config += f"resolver_preload {{ {self.system.public_key}: {self.system_jwt} }}\n"
        return start(REFERENCE, self.directory / "server", config=config)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Connect as the system account's user to a reference server."""
        creds = self.directory / "admin.creds"
        claims = UserClaims.new(self.administrator.public_key)
        claims.nats.issuer_account = self.system.public_key
        token = encode(claims, self.system_signing)
        await asyncio.to_thread(creds.write_text, format_user_config(token, self.administrator))
        server = await asyncio.to_thread(self.start)
        try:
            async with joined(server.url, user_credentials=str(creds)) as client:
                yield client
        finally:
            await asyncio.to_thread(server.stop)

    @asynccontextmanager
    async def resolver(self) -> AsyncIterator[DirectoryResolver]:
        """Run gnats's resolver, with an OperatorMode as its host."""
        options = ResolverOptions(self.kind, directory=str(self.ours), allow_delete=self.kind == "full")
        resolver = DirectoryResolver(options, Log(), NoOtherServers())
        opts = Options(
            trusted_operators=(self.operator_jwt,),
            resolver=options,
            resolver_preload={self.system.public_key: self.system_jwt},
        )
        mode = OperatorMode(opts, resolver, Hook(), Log())
        resolver.host = mode
        await mode.start()
        yield resolver
        await mode.close()


async def ask(client: Client, subject: str, payload: bytes = b"") -> dict[str, Any]:
    reply: dict[str, Any] = json.loads((await client.request(subject, payload, timeout=30)).data)
    del reply["server"]
    return reply


async def test_a_directory_of_ours_is_the_references_and_the_other_way_round(tmp_path: Path) -> None:
    world = World(tmp_path, "full")
    accounts = [jwts.account() for _ in range(3)]
    store = DirStore(str(world.theirs))
    for account in accounts:
        store.save(account.public_key, jwts.account_jwt(account, world.operator))
    async with world.client() as client:
        again = DirStore(str(world.theirs))  # the reference has added its system account
        assert len(again) == 4
        same = await client.request("$SYS.REQ.CLAIMS.PACK", again.hash, timeout=30)
        assert same.data == b""
        listed = (await ask(client, "$SYS.REQ.CLAIMS.LIST"))["data"]
        assert sorted(listed) == sorted(each.partition("|")[0] for each in again.pack())
        packs = await packs_of(client)
    empty = DirStore(str(world.ours))
    for pack in packs:
        empty.merge(pack.decode())
    assert empty.hash == again.hash


async def packs_of(client: Client) -> list[bytes]:
    """Return the packs that the reference sends to a server without accounts."""
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    await client.publish("$SYS.REQ.CLAIMS.PACK", bytes(32), reply=inbox)
    packs = []
    while data := (await subscription.next_msg(30)).data:
        packs.append(data)
    return packs


def requests(world: World) -> list[tuple[str, str, bytes]]:
    """Return (name, account, payload) of updates, deletions and look-ups, good and bad."""
    good, other, system = jwts.account(), jwts.account(), world.system

    def account(key: KeyPair, signer: KeyPair, **nats: Any) -> bytes:
        return jwts.account_jwt(key, signer, **nats).encode()

    def deletion(signer: KeyPair, *accounts: object, sub: str = "") -> bytes:
        claims = GenericClaims(sub=sub or signer.public_key, nats={"accounts": list(accounts)})
        return encode(claims, signer).encode()

    expired = AccountClaims.new(other.public_key)
    expired.exp = 1
    name = good.public_key
    return [
        ("update", "", account(good, world.operator)),
        ("update", "", account(good, world.signing, cluster_traffic="x")),
        ("update", "", account(system, world.signing, description="changed", **world.system_nats)),
        ("update", "", account(system, world.operator, description="again", **world.system_nats)),
        ("update", "", b"nonsense"),
        ("update", "", b""),
        ("update", "", jwts.user_jwt(jwts.user(), good).encode()),
        ("update", "", jwts.resign(jwts.account_jwt(good, world.operator), good).encode()),
        ("update", "", encode(expired, world.operator).encode()),
        ("update", name, account(good, world.signing, description="2")),
        ("update", name, account(good, world.signing, cluster_traffic="x")),
        ("update", system.public_key, account(good, world.signing)),
        ("update", system.public_key, account(system, world.signing, description="3", **world.system_nats)),
        ("update", system.public_key, account(system, world.signing, cluster_traffic="x")),
        ("update", system.public_key, b"nonsense"),
        ("lookup", name, b""),
        ("lookup", jwts.account().public_key, b""),
        ("delete", "", deletion(good, name)),
        ("delete", "", deletion(world.operator, name, sub=name)),
        ("delete", "", deletion(world.operator, "x")),
        ("delete", "", deletion(world.operator, system.public_key)),
        ("delete", "", encode(GenericClaims(sub=world.operator.public_key), world.operator).encode()),
        ("delete", "", b"nonsense"),
        ("delete", "", deletion(world.signing, name)),
        ("delete", "", deletion(world.operator, other.public_key, jwts.account().public_key)),
        ("list", "", b""),
    ]


@pytest.mark.parametrize("strict", [False, True], ids=["lax", "strict"])
@pytest.mark.parametrize("kind", KINDS)
async def test_requests_are_answered_alike(tmp_path: Path, kind: str, strict: bool) -> None:
    world = World(tmp_path, kind, strict=strict)
    async with world.client() as client, world.resolver() as resolver:
        for what, account, payload in requests(world):
            if what == "lookup":
                if world.kind == "full":
                    subject = f"$SYS.REQ.ACCOUNT.{account}.CLAIMS.LOOKUP"
                    assert resolver.lookup(account) == (await client.request(subject, timeout=30)).data
                continue
            if what == "update" and account:
                subject = f"$SYS.REQ.ACCOUNT.{account}.CLAIMS.UPDATE"
                ours = await resolver.account_update(account, payload)
            elif what == "update":
                subject, ours = "$SYS.REQ.CLAIMS.UPDATE", await resolver.update(payload)
            elif what == "delete":
                subject, ours = "$SYS.REQ.CLAIMS.DELETE", resolver.delete_accounts(payload)
            else:
                subject, ours = "$SYS.REQ.CLAIMS.LIST", await resolver.list_accounts()
            assert spoken(ours) == spoken(await ask(client, subject, payload)), (what, account)
        theirs = await asyncio.to_thread(DirStore, str(world.theirs))
        assert theirs.hash == resolver.files.hash
    assert await asyncio.to_thread(names, world.ours) == await asyncio.to_thread(names, world.theirs)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def spoken(reply: dict[str, Any]) -> object:
    """Return a reply with lists of accounts sorted."""
    if isinstance(reply.get("data"), list):
        return sorted(reply["data"])
    return reply
