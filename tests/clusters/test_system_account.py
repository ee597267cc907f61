"""The system account of a cluster of different servers: requests to all, limits of accounts, JWTs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.caller import Caller, Message
from support.clusters import Cluster
from support.launch import Launch
from support.monitor import monitor
from support.servers import REFERENCE, Kind, Server, until
from support.trust import Account, Refused, Trust, user_info
from support.wire import Closed

pytestmark = pytest.mark.timeout(120)

CONFIG = """
system_account: SYS
accounts {
  SYS { users: [ { user: sys, password: pw } ], exports: [ { service: "$SYS.DEBUG.SUBSCRIBERS" } ] }
  A {
    users: [ { user: a, password: pw } ], limits { max_connections: 3 }
    imports: [ { service: { account: SYS, subject: "$SYS.DEBUG.SUBSCRIBERS" } } ]
  }
  B { users: [ { user: b, password: pw } ] }
}
"""
PAGES = (
    "STATSZ", "VARZ", "SUBSZ", "CONNZ", "ROUTEZ", "GATEWAYZ", "LEAFZ", "ACCOUNTZ", "JSZ", "HEALTHZ",
    "PROFILEZ", "EXPVARZ", "IPQUEUESZ", "RAFTZ",
)  # fmt: skip
ACCOUNT_PAGES = ("SUBSZ", "CONNZ", "LEAFZ", "JSZ", "INFO", "STATZ")
EVERYBODY = ["s0", "s1", "s2"]


@pytest.fixture(scope="module")
def cluster(kind: Kind, launch_shared: Launch) -> Cluster:
    """Two servers of the kind under test, and nats-server between them."""
    cluster = Cluster(launch_shared, [kind, REFERENCE, kind], config=CONFIG)
    cluster.wait_mesh()
    until(lambda: all(active_servers(server) == 3 for server in cluster.servers))
    return cluster


@pytest.fixture(scope="module")
def callers(cluster: Cluster) -> Iterator[list[Caller]]:
    """A client of the system account at each server."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(Caller(server, "sys", inbox=f"_INBOX.sys{number}"))
            for number, server in enumerate(cluster.servers)
        ]


def id_of(server: Server) -> str:
    server_id: str = monitor(server, "/varz")["server_id"]
    return server_id


def active_servers(server: Server) -> int:
    """Return how many servers a server knows."""
    with Caller(server, "sys", inbox="_INBOX.active") as caller:
        answer = caller.request(f"$SYS.REQ.SERVER.{id_of(server)}.STATSZ")
        number: int = answer.json["statsz"]["active_servers"]
        return number


def answers(caller: Caller, subject: str, count: int, body: object = None) -> list[Message]:
    """Send a request, and return its first answers, by the names of the servers."""
    inbox = caller.ask(subject, json.dumps(body).encode() if body else b"")
    found = [caller.next_on(inbox) for _ in range(count)]
    return sorted(found, key=lambda answer: str(answer.json["server"]["name"]))


def names(found: list[Message]) -> list[str]:
    return [answer.json["server"]["name"] for answer in found]


def nothing_more(caller: Caller) -> bool:
    """Whether no further answers have come; asks all servers once more, in case that they are late."""
    answers(caller, "$SYS.REQ.SERVER.PING.VARZ", 3)
    caller.fence()
    return not caller.kept()


# -- requests to all ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_answered_by_all(callers: list[Caller], page: str) -> None:
    for caller in callers:
        found = answers(caller, f"$SYS.REQ.SERVER.PING.{page}", 3)
        assert names(found) == EVERYBODY
        assert all(answer.json["server"]["cluster"] == "C" for answer in found)
        assert nothing_more(caller)


def test_ids_are_answered_by_all(callers: list[Caller]) -> None:
    for caller in callers:
        inbox = caller.ask("$SYS.REQ.SERVER.PING.IDZ")
        assert sorted(caller.next_on(inbox).json["name"] for _ in range(3)) == EVERYBODY


def test_a_filter_chooses_servers(callers: list[Caller]) -> None:
    for caller in callers:
        for name in EVERYBODY:
            (answer,) = answers(caller, "$SYS.REQ.SERVER.PING.VARZ", 1, {"server_name": name})
            assert answer.json["data"]["server_name"] == name
        assert nothing_more(caller)


@pytest.mark.parametrize("page", ACCOUNT_PAGES)
def test_a_page_of_an_account_is_answered_by_all(cluster: Cluster, callers: list[Caller], page: str) -> None:
    with ExitStack() as stack:
        for server in cluster.servers:
            stack.enter_context(Caller(server, "b"))
        for caller in callers:
            assert names(answers(caller, f"$SYS.REQ.ACCOUNT.B.{page}", 3)) == EVERYBODY
            assert nothing_more(caller)


@pytest.mark.parametrize("page", ["CONNZ", "STATZ"])
def test_an_account_asks_all_servers_about_itself(cluster: Cluster, page: str) -> None:
    with ExitStack() as stack:
        clients = [
            stack.enter_context(Caller(server, "b", inbox=f"_INBOX.b{number}"))
            for number, server in enumerate(cluster.servers)
        ]
        for client in clients:
            found = answers(client, f"$SYS.REQ.ACCOUNT.PING.{page}", 3)
            assert names(found) == EVERYBODY
            assert all(answer.json["data"] for answer in found)


def test_a_user_is_described_once(cluster: Cluster, callers: list[Caller]) -> None:
    for number, server in enumerate(cluster.servers):
        with Caller(server, "b", inbox=f"_INBOX.b{number}") as client:
            (answer,) = answers(client, "$SYS.REQ.USER.INFO", 1)
            assert names([answer]) == [f"s{number}"]
            assert answer.json["data"]["user"] == "b"
            answers(callers[number], "$SYS.REQ.SERVER.PING.VARZ", 3)
            client.fence()
            assert not client.kept()


# -- requests about one server's clients -------------------------------------------------------------------


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("what", ["KICK", "LDM"])
def test_a_client_of_another_server_is_sent_away(
    cluster: Cluster, callers: list[Caller], at: int, what: str
) -> None:
    with Caller(cluster[at], "b") as client:
        subject = f"$SYS.REQ.SERVER.{id_of(cluster[at])}.{what}"
        (answer,) = answers(callers[at - 1], subject, 1, {"cid": client.cid})
        assert "error" not in answer.json
        if what == "KICK":
            with pytest.raises(Closed):
                client.next()
        else:
            while not (op := client.connection.read_op()).startswith(b"INFO "):
                pass
            assert b'"ldm":true' in op


def test_a_servers_configuration_is_read_again(cluster: Cluster, callers: list[Caller]) -> None:
    for at, server in enumerate(cluster.servers):
        start = len(server.log)
        (answer,) = answers(callers[at - 1], f"$SYS.REQ.SERVER.{id_of(server)}.RELOAD", 1)
        assert "error" not in answer.json
        server.wait_log("Reloaded server configuration", start)


# -- accounts on several servers ---------------------------------------------------------------------------


def refused(server: Server) -> bool:
    """Whether a server refuses another client of A."""
    try:
        with Caller(server, "a", inbox="_INBOX.probe"):
            return False
    except Closed as closed:
        assert b"maximum account active connections exceeded" in closed.args[0]
        return True


def counts(client: Caller, subject: str, number: int) -> None:
    """Wait until a client's server, and those that it asks, have so many subscribers of a subject."""
    until(lambda: client.request("$SYS.DEBUG.SUBSCRIBERS", subject.encode()).payload == b"%d" % number)


def test_an_accounts_limit_is_for_the_cluster(cluster: Cluster) -> None:
    with ExitStack() as stack:
        clients = [
            stack.enter_context(Caller(server, "a", inbox=f"_INBOX.a{number}"))
            for number, server in enumerate(cluster.servers)
        ]
        for client in clients:
            client.subscribe("held")
        for client in clients:  # a server asks those of which it knows that they have clients of the account
            counts(client, "held", 3)
        assert all(refused(server) for server in cluster.servers)
    for server in cluster.servers:
        until(lambda server=server: not refused(server))  # type: ignore[misc]


def test_subscribers_of_all_servers_are_counted(cluster: Cluster, callers: list[Caller]) -> None:
    with ExitStack() as stack:
        for number, server in enumerate(cluster.servers):
            client = stack.enter_context(Caller(server, "sys", inbox=f"_INBOX.sub{number}"))
            client.subscribe("counted.*")
        for caller in callers:
            counts(caller, "counted.x", 3)
            counts(caller, "counted.>", 3)


def test_servers_that_go_are_forgotten(kind: Kind, launch: Launch) -> None:
    cluster = Cluster(launch, [kind, REFERENCE, kind], config=CONFIG)
    cluster.wait_mesh()
    until(lambda: all(active_servers(server) == 3 for server in cluster.servers))
    for left in (1, 0):
        cluster.stop(left + 1)
        until(lambda left=left: all(active_servers(cluster[at]) == left + 1 for at in range(left + 1)))  # type: ignore[misc]


# -- JWTs --------------------------------------------------------------------------------------------------


@pytest.fixture
def operated(kind: Kind, launch: Launch, tmp_path: Path) -> Iterator[tuple[Trust, Cluster]]:
    """The kind under test and nats-server, with a directory of JWTs each."""
    trust = Trust()

    def config(number: int) -> str:
        directory = tmp_path / f"jwt{number}"
        return trust.config(resolver=f"{{ type: full, dir: '{directory}', interval: '1h', timeout: '5s' }}")

    block = f"compression: off\naccounts: [{trust.system.name}]"
    cluster = Cluster(launch, [kind, REFERENCE], config=config, block=block)
    cluster.wait_mesh()
    yield trust, cluster


def logs_in(server: Server, account: Account) -> bool:
    """Whether a user of the account may connect to a server."""
    try:
        with account.user().connect(server) as connection:
            return bool(user_info(connection)["account"] == account.name)
    except (Refused, AssertionError):  # user_info() raises it for an -ERR, which may come behind the PONG
        return False


@pytest.mark.parametrize("at", [0, 1])
def test_a_pushed_jwt_reaches_all_servers(operated: tuple[Trust, Cluster], tmp_path: Path, at: int) -> None:
    trust, cluster = operated
    account = trust.account()
    assert trust.push(cluster[at], account)["data"]["code"] == 200
    for number in (0, 1):
        path = tmp_path / f"jwt{number}" / f"{account.name}.jwt"
        # nats-server writes in place: the file may be there and not yet whole.
        until(lambda path=path: path.exists() and path.stat().st_size == len(account.jwt))  # type: ignore[misc]
        # nats-server was seen to refuse a login right behind the file.
        until(lambda number=number: logs_in(cluster[number], account))  # type: ignore[misc]
    account.nats.limits.conn = 0
    trust.push(cluster[1 - at], account)
    for server in cluster.servers:
        until(lambda server=server: not logs_in(server, account))  # type: ignore[misc]


@pytest.mark.parametrize("at", [0, 1])
def test_a_jwt_is_fetched_from_another_server(
    operated: tuple[Trust, Cluster], tmp_path: Path, at: int
) -> None:
    trust, cluster = operated
    account = trust.account()
    cluster.stop(at)
    trust.push(cluster[1 - at], account)
    cluster.start_again(at)
    cluster.wait_mesh()
    assert not (tmp_path / f"jwt{at}" / f"{account.name}.jwt").exists()
    until(lambda: logs_in(cluster[at], account))
    assert (tmp_path / f"jwt{at}" / f"{account.name}.jwt").exists()
