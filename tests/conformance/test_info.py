"""INFO: the greeting of every connection, and the INFO after CONNECT (connect_info)."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from typing import Any

import pytest
from support.exchange import ask
from support.kernel import SocketDiag
from support.launch import Launch
from support.servers import REFERENCE, Server
from support.wire import PONG, Connection, parse_info

from .differences import INFO_EXTRA, INFO_MISSING

pytestmark = pytest.mark.timeout(60)


# Fields whose values differ between any two servers; git_commit, go and xkey depend on the build.
VOLATILE = {"server_id", "server_name", "port", "client_id", "nonce", "git_commit", "go", "xkey"}

SETTINGS: dict[str, tuple[tuple[str, ...], str]] = {
    "defaults": ((), ""),
    "name": (("-n", "me"), ""),
    "token": (("--auth", "secret"), ""),
    "user and password": (("--user", "me", "--pass", "secret"), ""),
    "maximum payload": ((), "max_payload: 1000"),
    "maximum control line": ((), "max_control_line: 512"),
}


def info_of(op: bytes) -> list[tuple[str, Any]]:
    """Return the fields of an INFO in order, without those that may be missing; volatile values are None."""
    info = json.loads(op[5:], object_pairs_hook=list)
    allowed = INFO_MISSING.keys() | INFO_EXTRA.keys()
    return [(key, None if key in VOLATILE else value) for key, value in info if key not in allowed]


@pytest.mark.parametrize(("args", "config"), SETTINGS.values(), ids=SETTINGS)
def test_greeting_has_the_fields_of_the_reference_in_their_order(
    launch: Launch, args: tuple[str, ...], config: str
) -> None:
    with (
        Connection(launch(*args, config=config).address) as tested,
        Connection(launch(*args, config=config, kind=REFERENCE).address) as reference,
    ):
        assert info_of(tested.greeting) == info_of(reference.greeting)


def test_only_named_fields_differ(server: Server, reference: Server) -> None:
    with Connection(server.address) as tested, Connection(reference.address) as expected:
        assert expected.info.keys() - tested.info.keys() <= INFO_MISSING.keys()
        assert tested.info.keys() - expected.info.keys() <= INFO_EXTRA.keys()


def test_line_ends_with_a_blank(server: Server) -> None:
    with Connection(server.address) as connection:
        assert re.fullmatch(rb"INFO \{[^\r\n]*\} \r\n", connection.greeting)


def test_values(server: Server) -> None:
    with Connection(server.address) as first, Connection(server.address) as second:
        assert re.fullmatch("N[A-Z2-7]{55}", first.info["server_id"])
        assert first.info["server_name"] == first.info["server_id"] == second.info["server_id"]
        assert (first.info["host"], first.info["port"]) == server.address
        assert first.info["client_ip"] == "127.0.0.1"
        assert 0 < first.info["client_id"] < second.info["client_id"]


def test_no_two_servers_have_the_same_id(server: Server, reference: Server) -> None:
    with Connection(server.address) as tested, Connection(reference.address) as expected:
        assert tested.info["server_id"] != expected.info["server_id"]


def test_name_of_the_command_line(launch: Launch) -> None:
    with Connection(launch("-n", "me").address) as connection:
        assert connection.info["server_name"] == "me"


def test_first_ping_tells_a_client_of_protocol_1_about_its_account(server: Server, reference: Server) -> None:
    def connect_info(server: Server) -> tuple[dict[str, Any], bytes]:
        with Connection(server.address) as connection:
            connection.send(b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
            assert connection.read_op() == PONG
            second = connection.read_op()
            greeting, info = connection.info, parse_info(second)
            assert info == greeting | {"connect_info": True, "remote_account": "$G"}
            return info, second

    tested, op = connect_info(server)
    _, expected = connect_info(reference)
    assert info_of(op) == info_of(expected)
    assert tested["remote_account"] == "$G"


def test_many_connections_are_greeted_with_ids_of_their_own(server: Server, diag: SocketDiag) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(server.address)) for _ in range(100)]
        assert len({connection.info["client_id"] for connection in connections}) == 100
    assert ask(server, [[b""]], diag) == [PONG]
