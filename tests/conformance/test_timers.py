"""The server's own PINGs, and connections that do not answer them."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest
from support.launch import Launch
from support.servers import Server
from support.wire import PING, PONG, Connection

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


def test_who_answers_stays_until_it_stops(hasty: Server) -> None:
    with Connection(hasty.address, pings=True) as silent, Connection(hasty.address, pings=True) as connection:
        connection.send(QUIET)
        for _ in range(4):
            assert connection.read_op() == PING
            connection.send(PONG)
        assert silent.rest() == UNANSWERED
        assert connection.rest() == UNANSWERED


def test_messages_are_delivered_between_pings(hasty: Server) -> None:
    with (
        Connection(hasty.address, pings=True) as subscriber,
        Connection(hasty.address, pings=True) as publisher,
    ):
        subscriber.send(QUIET + b"SUB timers 1\r\n")
        assert subscriber.read_op() == PING
        subscriber.send(PONG)
        publisher.send(QUIET + b"PUB timers 2\r\nhi\r\n")
        assert subscriber.read_op() == b"MSG timers 1 2\r\nhi\r\n"
        assert subscriber.read_op() == PING


def test_who_is_active_is_pinged_less_often(hasty: Server) -> None:
    with Connection(hasty.address, pings=True) as idle, Connection(hasty.address, pings=True) as active:
        idle.send(QUIET)
        active.send(QUIET)
        assert active.read_op() == PING  # the first PING measures the round trip of active clients too
        active.send(PONG)
        idle.sock.settimeout(0.05)
        to_idle = to_active = 0
        while to_idle < 4:
            to_active += active.fence().count(PING)
            active.send(PONG)
            if _read_ping(idle):
                to_idle += 1
                idle.send(PONG)
        assert to_active < to_idle


def _read_ping(connection: Connection) -> bool:
    """Return True if a PING comes within the socket's timeout."""
    try:
        return connection.read_op() == PING
    except TimeoutError:
        return False


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
        inside = [stack.enter_context(Connection(server.address)) for _ in range(100)]
        for _ in range(100):
            Connection(server.address).close()
        before = time.monotonic()
        silent = [stack.enter_context(Connection(server.address)) for _ in range(20)]
        for connection in inside:
            connection.send(b'CONNECT {"verbose":false,"user":"u","pass":"p"}\r\n')
            connection.fence()
        assert {connection.rest() for connection in silent} == {b"-ERR 'Authentication Timeout'\r\n"}
        assert time.monotonic() - before >= 4
        for connection in inside:
            connection.fence()
