"""A leaf node that shares its hub's system account, of every two kinds: who sees what of both servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.caller import Caller
from support.launch import launcher
from support.servers import REFERENCE, Kind, Server, reserve_port, until
from support.wire import header

from .conftest import require_all
from .members import PASSWORD, few_pairs, named
from .test_leafnodes import leafs

pytestmark = pytest.mark.timeout(120)

ACCOUNTS = "\n".join(
    f"{name} {{ {more}\nusers: [ {{ user: {name[0].lower()}, password: p }} ] }}"
    for name, more in (("A", ""), ("B", ""), ("SYS", ""))
)
ACCOUNTS = f"accounts {{\n{ACCOUNTS}\n}}\nsystem_account: SYS\n"
STREAMS = ACCOUNTS.replace("B { ", "B { jetstream: enabled ")
HEADERS = {
    "none": b"",
    "another account": header('Nats-Request-Info: {"acc":"B"}'),
    "twice": header('Nats-Request-Info: {"acc":"B"}', 'Nats-Request-Info: {"acc":"B"}', "X: y"),
    "behind a line feed": header('X: y\nNats-Request-Info: {"acc":"B"}'),
}


@contextmanager
def bound(directory: Path, kinds: tuple[Kind, Kind], remotes: dict[str, str]) -> Iterator[list[Server]]:
    """Run a hub and a leaf node; `remotes` are users of the hub by accounts of the leaf node."""
    require_all(kinds)
    with launcher(REFERENCE, directory) as launch:
        port = reserve_port(launch)
        block = f"leafnodes {{ listen: '127.0.0.1:{port}' }}\njetstream {{ store_dir: js, domain: D }}\n"
        hub = launch("-m", "-1", "-D", config=f"server_name: hub\n{block}{STREAMS}", kind=kinds[0])
        dials = "\n".join(
            f"{{ url: 'nats-leaf://{user}:p@127.0.0.1:{port}', account: {account} }}"
            for account, user in remotes.items()
        )
        block = f"leafnodes {{ reconnect: '0.2s'\nremotes [\n{dials}\n] }}\n"
        leaf = launch("-m", "-1", "-D", config=f"server_name: leaf\n{block}{ACCOUNTS}", kind=kinds[1])
        for server in hub, leaf:
            until(lambda server=server: len(leafs(server)) == len(remotes))  # type: ignore[misc]
        yield [hub, leaf]


@pytest.fixture(scope="module", params=few_pairs(), ids=named)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Server]]:
    with bound(tmp_path_factory.mktemp("shared"), request.param, {"SYS": "s", "A": "a"}) as servers:
        yield servers


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def answers(caller: Caller, subject: str, header: bytes = b"", servers: int = 2) -> list[dict[str, Any]]:
    """Ask until so many servers have answered; return the answers: a server may have sent several."""
    found: list[dict[str, Any]] = []
    inboxes: set[str] = set()

    def enough() -> bool:
        inboxes.add(caller.ask(subject, header=header))
        caller.fence()
        caller.request("$SYS.REQ.USER.INFO")
        found.extend(message.json for message in caller.kept() if message.subject in inboxes)
        caller._waiting.clear()
        return len({each.get("server", each)["name"] for each in found}) >= servers

    until(enough)
    return found


@pytest.mark.parametrize("page", ["IDZ", "VARZ", "CONNZ"])
def test_a_system_user_asks_both(servers: list[Server], stack: ExitStack, page: str) -> None:
    for server in servers:
        caller = stack.enter_context(Caller(server, "s", PASSWORD))
        found = answers(caller, f"$SYS.REQ.SERVER.PING.{page}")
        assert {each.get("server", each)["name"] for each in found} == {"hub", "leaf"}


@pytest.mark.parametrize("forged", HEADERS.values(), ids=HEADERS)
def test_clients_see_their_own_account(servers: list[Server], stack: ExitStack, forged: bytes) -> None:
    """At both servers, whatever header they send: of connections none of another account."""
    others = [stack.enter_context(Caller(server, "b", PASSWORD)).cid for server in servers]
    for server in servers:
        caller = stack.enter_context(Caller(server, "a", PASSWORD))

        def accounts(caller: Caller = caller) -> list[list[str]] | None:
            """Return the accounts of each answer; None: one has none, since its leaf node has just come."""
            found = [
                [account["acc"] for account in each["data"].get("account_statz", ())]
                for each in answers(caller, "$SYS.REQ.ACCOUNT.PING.STATZ", forged)
            ]
            return found if all(found) else None

        assert all(each == ["A"] for each in until(accounts))
        own = ("hub", "leaf")[servers.index(server)], caller.cid
        seen: set[tuple[str, int]] = set()
        while own not in seen:  # a server may answer more than once, and at any time
            for each in answers(caller, "$SYS.REQ.ACCOUNT.PING.CONNZ", forged):
                name = each["server"]["name"]
                seen |= {(name, connection["cid"]) for connection in each["data"]["connections"]}
        assert not seen & {("hub", others[0]), ("leaf", others[1])}


@pytest.mark.parametrize("forged", HEADERS.values(), ids=HEADERS)
def test_clients_do_not_ask_for_the_servers_pages(servers: list[Server], forged: bytes) -> None:
    for server in servers:
        with Caller(server, "a", PASSWORD) as caller:
            for subject in "SERVER.PING.VARZ", "ACCOUNT.B.CONNZ", "ACCOUNT.B.INFO", "SERVER.PING.IDZ":
                inbox = caller.ask(f"$SYS.REQ.{subject}", header=forged)
                caller.request("$SYS.REQ.ACCOUNT.PING.STATZ")
                caller.fence()
                got = [message for message in caller.kept() if message.subject == inbox]
                assert [message.status for message in got] in ([], ["503"])


@pytest.mark.parametrize("kinds", [pair for pair in few_pairs() if not pair[0].is_reference], ids=named)
def test_an_ordinary_account_bound_to_the_system_account(tmp_path: Path, kinds: tuple[Kind, Kind]) -> None:
    """Its clients are system users at the hub, who name no account for its JetStream API."""
    with (
        bound(tmp_path, kinds, {"A": "s"}) as (hub, leaf),
        Caller(hub, "b", PASSWORD) as owner,
        Caller(leaf, "a", PASSWORD) as caller,
    ):
        assert "error" not in owner.request("$JS.API.STREAM.CREATE.S", {"name": "S"}).json
        assert answers(caller, "$SYS.REQ.SERVER.PING.IDZ", servers=1)[0]["name"] == "hub"
        caller.subscribe("inbox")
        for forged in HEADERS.values():
            for request in "STREAM.NAMES", "STREAM.DELETE.S":
                caller.publish(f"$JS.D.API.{request}", b"", "inbox", forged)
            caller.request("$SYS.REQ.SERVER.PING.IDZ")
            assert owner.request("$JS.API.STREAM.INFO.S").json["config"]["name"] == "S"
        caller.request("$SYS.REQ.SERVER.PING.IDZ")
        assert not [m for m in caller.kept() if m.subject == "inbox" and b'"S"' in m.payload]
