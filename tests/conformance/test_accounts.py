"""Accounts of the configuration: isolation and limits."""

from __future__ import annotations

import json

import pytest
from support.accounts import members
from support.launch import Launch
from support.servers import REFERENCE, Kind, Server, until
from support.wire import Closed, Connection

pytestmark = pytest.mark.timeout(120)

CONFIG = """
max_payload: 1000
accounts {
  A { users: [{user: a, password: p}] }
  B { users: [{user: b, password: p}, {user: c, password: p}] }
  L { users: [{user: l, password: p}],
      limits { max_connections: 2, max_subscriptions: 3, max_payload: 100 } }
  W { users: [{user: w, password: p}], limits { max_payload: 2000, max_subs: 1000000 } }
}
"""


@pytest.fixture(scope="module")
def accounts(launch_shared: Launch) -> Server:
    return launch_shared(config=CONFIG)


def test_accounts_do_not_hear_each_other(accounts: Server) -> None:
    with members(accounts, "abc") as (a, b, c):
        for member in (a, b, c):
            member.subscribe(b"s", b">", b"s queue")
        assert a.publish(b"s", b"1").count(b"MSG s ") == 3
        assert b.hear() == c.hear() == b""
        assert (b.publish(b"s", b"2") + c.hear()).count(b"MSG s ") == 5
        assert a.hear() == b""


def test_nobody_responds_from_another_account(accounts: Server) -> None:
    with members(accounts, "ab") as (a, b):
        b.subscribe(b"svc")
        a.subscribe(b"inbox")
        assert a.publish(b"svc", b"", b"inbox").startswith(b"HMSG inbox 1 35 35\r\nNATS/1.0 503")


def test_a_second_connect_may_change_the_account(accounts: Server) -> None:
    with members(accounts, "aab") as (mover, a, b):
        mover.subscribe(b"s")
        mover.say(b'CONNECT {"verbose":false,"pedantic":false,"user":"b","pass":"p"}')
        mover.subscribe(b"s")
        a.publish(b"s", b"1")
        b.publish(b"s", b"2")
        assert mover.hear() == b"MSG s 1 1\r\n2\r\n"


def test_the_connections_of_an_account_are_limited(accounts: Server) -> None:
    with members(accounts, "ll"), Connection(accounts.address) as extra:
        extra.send(b'CONNECT {"verbose":false,"user":"l","pass":"p"}\r\nPING\r\n')
        assert extra.rest() == b"-ERR 'maximum account active connections exceeded'\r\n"

    def two_more() -> bool:
        try:
            with members(accounts, "ll"):
                return True
        except Closed:
            return False  # the account still counts the two that have closed

    until(two_more)


def test_the_subscriptions_of_each_connection_are_limited(accounts: Server) -> None:
    with members(accounts, "l") as (member,):
        member.subscribe(b"a", b"b", b"c")
        assert member.say(b"SUB d 4") == b"-ERR 'maximum subscriptions exceeded'\r\n"
        member.say(b"UNSUB 1")
        assert member.say(b"SUB d 4") == b""


def test_payloads_are_limited(accounts: Server) -> None:
    with members(accounts, "l") as (member,):
        assert member.publish(b"s", b"x" * 100) == b""
        member.connection.send(b"PUB s 101\r\n")
        assert member.connection.rest() == b"-ERR 'Maximum Payload Violation'\r\n"


def test_the_server_limits_an_account(accounts: Server) -> None:
    with members(accounts, "w") as (member,):
        assert member.publish(b"s", b"x" * 1000) == b""
        member.connection.send(b"PUB s 1001\r\n")
        assert member.connection.rest() == b"-ERR 'Maximum Payload Violation'\r\n"


def test_clients_are_told_their_limit(accounts: Server) -> None:
    with Connection(accounts.address) as client:
        assert client.info["max_payload"] == 1000
        client.send(b'CONNECT {"verbose":false,"user":"l","pass":"p","protocol":1}\r\n')
        client.send(b"PING\r\n")
        ops = client.read_until(b"PONG\r\n")
        ops += client.fence()
        (info,) = (op for op in ops if op.startswith(b"INFO "))
        assert json.loads(info[5:])["max_payload"] == 100


def test_a_server_without_a_system_account_runs(launch: Launch) -> None:
    server = launch(config="no_system_account: true\naccounts { A { users: [{user: a, password: p}] } }")
    with members(server, "a") as (member,):
        member.subscribe(b"inbox")
        heard = member.publish(b"$SYS.REQ.USER.INFO", b"", b"inbox")
        assert heard.startswith(b"HMSG inbox 1 50 50\r\nNATS/1.0 503")


def test_clients_learn_who_they_are(accounts: Server) -> None:
    with members(accounts, "a") as (member,):
        member.subscribe(b"inbox")
        member.connection.send(b"PUB $SYS.REQ.USER.INFO inbox 0\r\n\r\n")
        op = next(op for op in iter(member.connection.read_op, b"") if op.startswith(b"MSG inbox "))
        answer = json.loads(op.split(b"\r\n")[1])
        assert answer["data"]["account"] == "A"
        assert answer["data"]["user"] == "a"


def test_the_system_account_may_be_another(launch: Launch) -> None:
    server = launch(
        config="accounts { A { users: [{user: a, password: p}] }, S { users: [{user: s, password: p}] } }"
        "\nsystem_account: S"
    )
    with members(server, "sa") as (system, a):
        system.subscribe(b"$SYS.ACCOUNT.A.DISCONNECT")
        a.connection.close()
        assert system.connection.read_op().startswith(b"MSG $SYS.ACCOUNT.A.DISCONNECT 1 ")


@pytest.mark.parametrize("name", ["A B", "A.B", "A..B", "A.>", "*"])
def test_an_account_may_have_a_name_that_no_subject_has(launch: Launch, kind: Kind, name: str) -> None:
    def errors(server: Server) -> list[str]:
        return [line.partition("[ERR] ")[2] for line in server.log.splitlines() if "[ERR] " in line]

    users = "users: [{user: a, password: p}]"
    config = f'accounts {{ "{name}" {{ {users} }}, B {{ users: [{{user: b, password: p}}] }} }}'
    server = launch(config=config)
    with members(server, "ab") as (a, b):
        a.subscribe(b"s", b"inbox")
        b.subscribe(b"s", b"inbox")
        assert (a.publish(b"s", b"1"), b.hear()) == (b"MSG s 1 1\r\n1\r\n", b"")
        assert b" 503\r\n" in a.publish(b"$SYS.REQ.USER.INFO", b"", b"inbox")
        assert b" 503\r\n" not in b.publish(b"$SYS.REQ.USER.INFO", b"", b"inbox")
    if not kind.is_reference:
        assert errors(server) == errors(launch(config=config, kind=REFERENCE))
