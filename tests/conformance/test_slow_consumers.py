"""Clients that do not read: when the server closes them, what others receive, how producers stall."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count

import pytest
from support.launch import Launch
from support.monitor import monitor, wait_connections
from support.servers import Server
from support.wire import Connection

from .cases import QUIET

pytestmark = pytest.mark.timeout(120)

SIZE = 1000
BATCH = 10  # messages between two fences: far less than the max_pending used here
ENOUGH = 100_000  # messages; more than the buffers of any kernel hold

DETECTED = "Slow Consumer Detected"


def message(number: int) -> bytes:
    return b"MSG slow 1 %d\r\n%0*d\r\n" % (SIZE, SIZE, number)


def publish(publisher: Connection, first: int, number: int = BATCH) -> None:
    """Publish numbered messages; return when the server has handled them."""
    batch = range(first, first + number)
    publisher.send(b"".join(b"PUB slow %d\r\n%0*d\r\n" % (SIZE, SIZE, n) for n in batch))
    publisher.fence()


@pytest.fixture
def connect() -> Iterator[Callable[..., Connection]]:
    """Open connections, and close them at the end of the test: connect(server, subscribe=True)."""
    with ExitStack() as stack:

        def connect(server: Server, *, subscribe: bool = True) -> Connection:
            connection = stack.enter_context(Connection(server.address))
            connection.send(QUIET + (b"SUB slow 1\r\n" if subscribe else b""))
            assert connection.fence() == []
            return connection

        yield connect


def assert_prefix(received: bytes) -> None:
    """Require that `received` is the first messages in order, all whole except perhaps the last."""
    whole = len(message(0))
    for number in range(len(received) // whole + 1):
        part = received[number * whole : (number + 1) * whole]
        assert message(number).startswith(part)


def test_too_much_pending_closes_the_consumer_and_nobody_else(
    launch: Launch, connect: Callable[..., Connection]
) -> None:
    server = launch("-D", "-m", "-1", config="max_pending: 65536\nmax_payload: 32768")
    slow, good, publisher = connect(server), connect(server), connect(server, subscribe=False)
    sent = 0
    while DETECTED not in server.log and sent < ENOUGH:
        publish(publisher, sent)
        assert good.fence() == [message(number) for number in range(sent, sent + BATCH)]
        sent += BATCH
    server.wait_log(r"\[INF\] .* - Slow Consumer Detected: MaxPending of 65536 Exceeded")
    server.wait_log(r"\[DBG\] .* - Client connection closed: Slow Consumer \(Pending Bytes\)")
    received = slow.rest()
    assert_prefix(received)
    assert len(received) < sent * len(message(0))
    publish(publisher, sent)
    assert good.fence() == [message(number) for number in range(sent, sent + BATCH)]
    varz = wait_connections(server, 2)
    assert (varz["slow_consumers"], varz["slow_consumer_stats"]["clients"]) == (1, 1)
    if not server.kind.is_reference:  # the reference may see the end of the slow consumer first
        assert varz["stalled_clients"] > 0, "the producer never stalled"


def test_without_stall_messages_are_dropped_and_nobody_is_closed(
    launch: Launch, connect: Callable[..., Connection]
) -> None:
    """no_fast_producer_stall: a client whose queue is three quarters full misses messages, and stays."""
    server = launch("-m", "-1", config="max_pending: 65536\nmax_payload: 32768\nno_fast_producer_stall: true")
    slow, good, publisher = connect(server), connect(server), connect(server, subscribe=False)
    total = 10_000
    for first in range(0, total, BATCH):
        publish(publisher, first, BATCH)
        assert good.fence() == [message(number) for number in range(first, first + BATCH)]
    got = slow.fence()
    numbers = [int(op.split(b"\r\n")[1]) for op in got]
    assert numbers == sorted(set(numbers))
    assert 0 < len(numbers) < total
    assert got == [message(number) for number in numbers]
    publish(publisher, total, 1)
    assert slow.fence() == good.fence() == [message(total)]
    varz = monitor(server, "/varz")
    assert (varz["slow_consumers"], varz["stalled_clients"], varz["connections"]) == (0, 0, 3)


def test_write_deadline_closes_the_consumer(launch: Launch, connect: Callable[..., Connection]) -> None:
    server = launch("-D", "-m", "-1", config='write_deadline: "300ms"')
    slow, good, publisher = connect(server), connect(server), connect(server, subscribe=False)
    for first in range(0, 20_000, BATCH):
        publish(publisher, first)
        assert good.fence() == [message(number) for number in range(first, first + BATCH)]
    server.wait_log(
        r"\[INF\] .* - Slow Consumer Detected: WriteDeadline of 300ms exceeded "
        r"with \d+ chunks of \d+ total bytes\."
    )
    server.wait_log(r"\[DBG\] .* - Client connection closed: Slow Consumer \(Write Deadline\)")
    assert_prefix(slow.rest())
    publish(publisher, 0, 1)
    assert good.fence() == [message(0)]
    varz = wait_connections(server, 2)
    assert (varz["slow_consumers"], varz["slow_consumer_stats"]["clients"]) == (1, 1)


def fill(publisher: Connection, total: int = 20_000) -> None:
    for first in range(0, total, 1000):
        publish(publisher, first, 1000)


def test_a_consumer_that_reads_slowly_may_be_given_more_time(
    launch: Launch, connect: Callable[..., Connection]
) -> None:
    server = launch("-m", "-1", config='write_deadline: "2s", write_timeout: retry')
    slow, publisher = connect(server), connect(server, subscribe=False)
    fill(publisher)
    server.wait_log(
        r"\[INF\] .* - Slow Consumer Detected: WriteDeadline of 2s exceeded "
        r"with \d+ chunks of \d+ total bytes\."
    )
    assert slow.fence() == [message(number) for number in range(20_000)]
    server.wait_log(
        r"\[INF\] .* - Slow Consumer Recovered: Flush took \d\.\d{3}s with \d+ chunks of \d+ total bytes\."
    )
    varz = monitor(server, "/varz")
    assert (varz["connections"], varz["slow_consumers"], varz["write_timeout"]) == (2, 1, "retry")
    accounts = {each["acc"]: each for each in monitor(server, "/accstatz?unused=1")["account_statz"]}
    assert accounts["$G"]["slow_consumers"] == 1


def test_a_consumer_that_has_stopped_reading_is_given_more_time_once(
    launch: Launch, connect: Callable[..., Connection]
) -> None:
    server = launch("-D", "-m", "-1", config='write_deadline: "300ms", write_timeout: retry')
    slow, publisher = connect(server), connect(server, subscribe=False)
    fill(publisher)
    for state in "Detected", "State":
        server.wait_log(rf"\[INF\] .* - Slow Consumer {state}: WriteDeadline of 300ms exceeded ")
    server.wait_log(r"\[DBG\] .* - Client connection closed: Slow Consumer \(Write Deadline\)")
    assert_prefix(slow.rest())
    varz = wait_connections(server, 1)
    assert varz["slow_consumers"] == varz["slow_consumer_stats"]["clients"] >= 2  # the kernel may take more


def test_a_consumer_that_reads_late_gets_everything(
    server: Server, connect: Callable[..., Connection]
) -> None:
    """The server queues up to max_pending (64 MiB) for a client that does not read."""
    late, publisher = connect(server), connect(server, subscribe=False)
    total = 30_000
    for first in range(0, total, BATCH):
        publish(publisher, first)
    assert late.fence() == [message(number) for number in range(total)]


def test_a_client_that_does_not_read_its_own_messages_is_closed(
    launch: Launch, connect: Callable[..., Connection]
) -> None:
    """The slow client is the producer itself, which must not stall on itself."""
    server = launch(config="max_pending: 65536\nmax_payload: 32768")
    selfish, other = connect(server), connect(server, subscribe=False)
    for number in count():
        if not selfish.send(b"PUB slow %d\r\n%0*d\r\n" % (SIZE, SIZE, number)) or DETECTED in server.log:
            break
        assert number < ENOUGH
    server.wait_log(r"Slow Consumer Detected: MaxPending of 65536 Exceeded")
    assert_prefix(selfish.rest())
    assert other.fence() == []
