"""Waits in a server of this process: when they have ended, its threads wake up only for a cause."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.waits import BATCH_TIMEOUT, Waiter, all_waits, crowd, set_up

from gnats.go.text import SECOND
from gnats.options.values.jetstream import JetStreamOptions
from gnats.options.values.limits import JSLimitOpts
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(300)

QUIET = 1.0  # seconds without a round that count as rest; a spinning server makes many
PATIENCE = 60.0


@dataclass
class Embedded:
    """A server in this process, for Waiter clients."""

    thread: ServerThread

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.thread.port

    def rounds(self) -> list[int]:
        """Return the wake-ups of each poller, and the rounds of JetStream's timers."""
        server = self.thread.server
        assert server.pollers is not None and server.js_engine is not None
        return [poller.stats()["wakeups"] for poller in server.pollers.all] + [
            server.js_engine.stats()["rounds"]
        ]

    def rests(self) -> bool:
        """Return True if the server comes to rest within PATIENCE."""
        deadline = time.monotonic() + PATIENCE
        before = self.rounds()
        while time.monotonic() < deadline:
            time.sleep(QUIET)
            now = self.rounds()
            if now == before:
                return True
            before = now
        return False


@pytest.fixture(params=[0, 2], ids=["loop", "threads"])
def embedded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Embedded]:
    limits = JSLimitOpts(max_batch_timeout=BATCH_TIMEOUT)
    jetstream = JetStreamOptions(enabled=True, store_dir=str(tmp_path), limits=limits)
    with ServerThread(io_threads=request.param, jetstream=jetstream) as running:
        yield Embedded(running)


@pytest.mark.parametrize("others", [0, 300])
def test_a_server_rests_when_all_waits_have_ended(embedded: Embedded, others: int) -> None:
    with Waiter(embedded) as client:
        set_up(client)
        crowd(client, others)
        all_waits(client).end()
        # The server checks unacknowledged messages again and again, as nats-server does.
        for name in ("ackwait", "backoff", "progress", "paused"):
            client.api(f"CONSUMER.DELETE.Q.{name}")
    assert embedded.rests(), embedded.rounds()


@pytest.mark.parametrize("n", [1, 500])
def test_a_server_rests_after_requests_that_were_satisfied(embedded: Embedded, n: int) -> None:
    with Waiter(embedded) as client:
        client.stream("R")
        client.consumer("R", "C", max_waiting=n, max_ack_pending=-1, ack_wait=3600 * SECOND)
        sids = [client.pull("R", "C", batch=1, expires=SECOND) for _ in range(n)]
        client.store_many(["R.a"] * n)
        for sid in sids:
            client.ack_sync(client.next_with(sid))
    time.sleep(1.0)  # past the expiry of the requests
    assert embedded.rests(), embedded.rounds()


def test_acks_of_several_pollers_are_sampled(embedded: Embedded) -> None:
    """Each poller draws its own random numbers; about half of the acks cause a metric."""
    n, clients = 400, 4
    with Waiter(embedded) as watcher:
        watcher.stream("SAMPLE")
        watcher.consumer("SAMPLE", "C", durable_name="C", sample_freq="50%", max_ack_pending=-1)
        watcher.store_many(["SAMPLE.a"] * n * clients)
        metrics = watcher.subscribe("$JS.EVENT.METRIC.CONSUMER.ACK.SAMPLE.C")

        def work(i: int) -> None:
            with Waiter(embedded, inbox=f"_INBOX.worker{i}") as client:
                sid = client.pull("SAMPLE", "C", batch=n, expires=30 * SECOND)
                for message in [client.next_with(sid) for _ in range(n)]:
                    client.ack(message)
                client.fence()

        workers = [threading.Thread(target=work, args=(i,)) for i in range(clients)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        told = sum(watcher.next_with(metrics).sid == metrics for _ in range(n * clients // 4))
        assert told == n * clients // 4
