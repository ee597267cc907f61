"""Monitoring pages are made while connections and subscriptions come and go."""

import random
import threading

import pytest
from support.peer import several
from support.process import SANITIZED
from support.stress import settle

from gnats.monitor.pages.accountz import account_statz
from gnats.monitor.pages.connz import connz
from gnats.monitor.pages.options import ALL, AccountStatzOptions, ConnzOptions, SubszOptions
from gnats.monitor.pages.subsz import subsz
from gnats.server.server import Server
from gnats.testing import ServerThread

from .test_stress import SCALE

pytestmark = pytest.mark.timeout(300 * SCALE)


def look(server: Server) -> None:
    """Make every page that reads pollers' data, and check that it is consistent."""
    page = connz(server, ConnzOptions(state=ALL, subscriptions_detail=True, sort="msgs_to"))
    infos = page["connections"]
    assert isinstance(infos, list)
    for info in infos:
        for sub in info.get("subscriptions_list_detail", ()):
            assert sub["subject"].startswith("s.") and sub["sid"].isdigit()
    for options in (SubszOptions(subscriptions=True), SubszOptions(subscriptions=True, test="s.1")):
        page = subsz(server, options)
        details = page.get("subscriptions_list", [])
        assert isinstance(details, list)
        assert all(sub["subject"].startswith(("s.", "$SYS.")) for sub in details)
    account_statz(server, AccountStatzOptions())
    assert server.pollers
    for poller in server.pollers.all:
        assert poller.stats()["cache_entries"] >= 0 and poller.state_now()["timers"] >= 0


def test_pages_of_connections_that_come_and_go(server: ServerThread) -> None:
    rounds = (20 if SANITIZED else 150) * SCALE
    port = server.port
    done = threading.Event()
    failed: list[BaseException] = []

    def watch() -> None:
        try:
            while not done.is_set():
                server.call(look)
        except BaseException as exc:  # noqa: BLE001 - raised by the test
            failed.append(exc)

    watcher = threading.Thread(target=watch)
    watcher.start()
    rng = random.Random(1)
    sent = 0
    try:
        for number in range(rounds):
            with several(rng.randrange(1, 6), port) as peers:
                for peer in peers:
                    for sid in range(rng.randrange(40)):
                        peer.send(
                            b"SUB s.%d %d\r\nUNSUB %d %d\r\n" % (sid % 7, sid, sid, rng.randrange(1, 9))
                        )
                    # The server caches a result when its subject comes again.
                    peer.send(b"PUB s.1 1\r\nx\r\n" * 3 + b"PUB s.%d.1 1\r\nx\r\n" % number * 2)
                    sent += 5
                for peer in peers:
                    peer.fence()
                    peer.reset() if rng.random() < 0.3 else peer.close()
    finally:
        done.set()
        watcher.join()
    if failed:
        raise failed[0]
    settle(server)
    server.call(look)
    (stat,) = server.call(
        lambda running: account_statz(running, AccountStatzOptions(("$G",), include_unused=True))
    )["account_statz"]  # type: ignore[misc]
    assert stat["received"]["msgs"] == sent
