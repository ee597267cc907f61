"""The server's own PINGs, and connections that do not answer them."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest
from support.launch import Launch
from support.servers import Server
from support.wire import PING, PONG, Connection, connect_op

from .cases import QUIET

pytestmark = [pytest.mark.timeout(60), pytest.mark.waits]

STALE = b"-ERR 'Stale Connection'\r\n"
UNANSWERED = PING * 2 + STALE

SILENT = {
    "without connect": b"",
    "with connect": QUIET,
    "other verbs are no answer": QUIET + b"SUB a 1\r\n+OK\r\nINFO {}\r\nPUB b 0\r\n\r\n",
    "an answer in advance does not count": QUIET + PONG * 3,
    "half a line": QUIET + b"PON",
}


@pytest.fixture(scope="module")
def hasty(launch_shared: Launch) -> Server:
    """A server that pings every 400 ms and closes a client after two unanswered pings."""
    return launch_shared("-D", config='ping_interval: "400ms"\nping_max: 2')


def test_who_does_not_answer_is_closed_after_ping_max(hasty: Server) -> None:
    with ExitStack() as stack:
        silent = {name: stack.enter_context(Connection(hasty.address)) for name in SILENT}
        for name, connection in silent.items():
            connection.send(SILENT[name])
        assert {name: c.rest() for name, c in silent.items()} == dict.fromkeys(SILENT, UNANSWERED)
    hasty.wait_log(r"\[DBG\] .* - Stale Client Connection - Closing")
    hasty.wait_log(r"\[DBG\] .* - Client connection closed: Stale Connection")


def test_first_ping_comes_soon_after_connect(server: Server) -> None:
    """The first PING measures the round trip; it does not wait for the interval of two minutes."""
    with Connection(server.address, pings=True) as connection:
        connection.send(QUIET)
        assert connection.read_op() == PING
        connection.send(PONG)
        assert connection.fence() == []


def test_who_does_not_log_in_is_closed_beside_others_that_do(launch: Launch) -> None:
    """A hundred clients that logged in and a hundred that left do not disturb the timers of silent ones."""
    server = launch(config='authorization { user: u, password: p, timeout: 4 }\nping_interval: "2400h"')
    with ExitStack() as stack:
        inside = []
        for _ in range(100):
            connection = stack.enter_context(Connection(server.address))
            connection.send(connect_op("u", "p"))
            connection.fence()
            inside.append(connection)
            Connection(server.address).close()
        before = time.monotonic()
        silent = [stack.enter_context(Connection(server.address)) for _ in range(20)]
        assert {connection.rest() for connection in silent} == {b"-ERR 'Authentication Timeout'\r\n"}
        assert time.monotonic() - before >= 4
        for connection in inside:
            connection.fence()
