"""Accounts that a reload removes are freed, with everything that belonged to them."""

import asyncio
import gc
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from support.process import resident

from gnats import Options, Server
from gnats.accounts.account import Account
from gnats.options.values.accounts import (
    AccountConfig,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
)
from gnats.options.values.auth import User
from gnats.options.values.jetstream import JetStreamOptions
from gnats.options.values.limits import UNLIMITED

from .conftest import Connect, Start
from .peer import Peer

pytestmark = pytest.mark.timeout(120)

EXPORTS = (ServiceExport("svc.*"), StreamExport("feed.>"))


def pair(number: int) -> list[AccountConfig]:
    """Return an account with exports, and one that imports all of them."""
    server, client = f"SERVER{number}", f"CLIENT{number}"
    imports = (ServiceImport(server, "svc.*"), StreamImport(server, "feed.>", prefix="theirs"))
    return [AccountConfig(server, exports=EXPORTS), AccountConfig(client, imports=imports)]


def options(opts: Options, numbers: Iterable[int]) -> Options:
    accounts = [account for number in numbers for account in pair(number)]
    users = [User(account.name, "pw", account=account.name) for account in accounts]
    return replace(opts, accounts=accounts, users=users)


def accounts() -> set[str]:
    """Return the names of all Account objects alive in this process."""
    gc.collect()
    return {each.name for each in gc.get_objects() if isinstance(each, Account)}


async def only_these_live(server: Server, before: set[str]) -> None:
    """Return when no accounts are alive but the server's and those of `before`.

    The server keeps its last closed connection, and with it an account.
    """
    async with asyncio.timeout(60):
        while accounts() - before - set(server.accounts):
            visitor = await Peer.connect(server.port)  # its end replaces the last closed connection
            await visitor.connected()
            await visitor.close()
            await asyncio.sleep(0.05)  # no event says that an account is freed


async def join(connect: Connect, server: Server, name: str) -> Peer:
    peer = await connect(server)
    await peer.connected(user=name, **{"pass": "pw"})
    return peer


async def test_accounts_go_with_their_exports_imports_requests_and_clients(
    start: Start, connect: Connect
) -> None:
    before = accounts()
    server = await start(max_closed_clients=1)
    for round_ in range(3):
        await server.reload(options(server.opts, range(10 * round_, 10 * round_ + 5)))
        number = 10 * round_
        asks = await join(connect, server, f"CLIENT{number}")
        serves = await join(connect, server, f"SERVER{number}")
        leaves = await join(connect, server, f"CLIENT{number + 1}")
        await asks.ask(b"SUB theirs.> 1\r\nSUB reply 2\r\n")
        await leaves.ask(b"SUB theirs.> 1\r\nSUB reply 2\r\n")
        await serves.ask(b"SUB svc.* 1\r\n")
        await asks.ask(b"PUB svc.a reply 2\r\nhi\r\n")  # never answered
        await leaves.close()
    await server.reload(options(server.opts, ()))
    await only_these_live(server, before)
    assert len(server.accounts) == 2


async def test_an_account_that_comes_back_is_the_same_and_works(start: Start, connect: Connect) -> None:
    server = await start()
    await server.reload(options(server.opts, [1]))
    was = server.lookup_account("SERVER1")
    await server.reload(options(server.opts, [2]))
    await server.reload(options(server.opts, [1]))
    assert server.lookup_account("SERVER1") is was
    del was
    asks, serves = await join(connect, server, "CLIENT1"), await join(connect, server, "SERVER1")
    await serves.ask(b"SUB svc.a 1\r\n")
    await asks.ask(b"SUB theirs.> 1\r\n")
    await asks.ask(b"PUB svc.a 2\r\nhi\r\n")
    assert await serves.line() == b"MSG svc.a 1 2"
    assert await serves.line() == b"hi"
    await serves.ask(b"PUB feed.x 2\r\nho\r\n")
    assert await asks.line() == b"MSG theirs.feed.x 1 2"


async def test_streams_of_a_removed_account_do_not_keep_it(
    start: Start, connect: Connect, tmp_path: Path
) -> None:
    before = accounts()
    jetstream = JetStreamOptions(enabled=True, store_dir=str(tmp_path))
    server = await start(max_closed_clients=1, jetstream=jetstream)
    user = User("js", "pw", account="JS")
    with_it = replace(server.opts, accounts=[AccountConfig("JS", jetstream=UNLIMITED)], users=[user])
    await server.reload(with_it)
    peer = await join(connect, server, "js")
    config = json.dumps({"name": "S", "subjects": ["s"]}).encode()
    await peer.ask(b"SUB reply 1\r\n")
    peer.send(b"PUB $JS.API.STREAM.CREATE.S reply %d\r\n%b\r\n" % (len(config), config))
    assert (await peer.line()).startswith(b"MSG reply 1 ")
    assert b'"created"' in await peer.line()
    await server.reload(replace(server.opts, accounts=[], users=[]))
    await only_these_live(server, before)


async def test_many_reloads_with_new_names_take_no_memory(start: Start) -> None:
    before = accounts()
    server = await start(max_closed_clients=1)

    async def rounds(first: int, last: int) -> None:
        for number in range(first, last):
            await server.reload(options(server.opts, range(100 * number, 100 * number + 50)))
        await server.reload(options(server.opts, ()))
        await only_these_live(server, before)

    await rounds(0, 20)
    warm = resident()
    for times in range(1, 4):
        await rounds(20 * times, 20 * times + 20)  # 2,000 accounts of at least 4 KiB
    assert resident() - warm < 8 << 20
