"""Scenarios over links: the publisher is at one server, the subscriber at another."""

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from gnats.bench.loadgen import PubSub
from gnats.bench.probes import Latency
from gnats.bench.target import Target
from perf.scenarios import (
    RUN_TIMEOUT,
    Measure,
    Metrics,
    Scenario,
    Settings,
    calibrate,
    human_size,
    move,
    percentiles,
)
from perf.servers import Kind, Server, ServerError

SIZES = (16, 128, 8192)
KNOWN_SECONDS = 15.0
_MONITORED = 'http: "127.0.0.1:-1"\n'
_CLUSTER = _MONITORED + 'cluster {{ name: C, listen: "127.0.0.1:-1", compression: off{routes} }}\n'
_HUB = _MONITORED + 'leafnodes { listen: "127.0.0.1:-1", compression: off }\n'
_GATEWAY = _MONITORED + 'gateway {{ name: {name}, listen: "127.0.0.1:-1"{gateways} }}\n'
_LEAF = _MONITORED + "leafnodes {{ remotes: [{{ url: '{url}', compression: off }}] }}\n"


class Pair:
    """Two servers of one kind with a link between them: "route", "leaf" or "gateway"."""

    def __init__(self, first: Server, second: Server, link: str) -> None:
        self.first = first
        self.second = second
        self.link = link

    def cpu_ns(self) -> int:
        """Return the CPU time of both."""
        return self.first.cpu_ns() + self.second.cpu_ns()

    @property
    def target(self) -> Target:
        return self.first.target

    def wait_for_interest(self) -> None:
        """Wait until the first server knows of the subscription at the second one."""
        deadline = time.monotonic() + KNOWN_SECONDS
        while time.monotonic() < deadline:
            if any("bench" in subject for subject in self._subjects()):
                return
            time.sleep(0.02)
        raise ServerError(f"{self.first.kind.label} hears of no subscription over its links")

    def _subjects(self) -> list[str]:
        """Return the subjects that the second server has told the first one of."""
        if self.link == "gateway":
            clusters = ask(self.first, "gatewayz?accs=1&subs=1").get("outbound_gateways") or {}
            told = [account for cluster in clusters.values() for account in cluster.get("accounts") or ()]
        elif self.link == "leaf":
            told = ask(self.first, "leafz?subs=1")["leafs"] or []
        else:
            told = ask(self.first, "routez?subs=1")["routes"] or []
        return [subject for each in told for subject in each.get("subscriptions_list") or ()]


def ask(server: Server, page: str) -> dict[str, Any]:
    """Return a monitoring page."""
    url = f"{server.ports['monitoring'][0]}/{page}"
    with urllib.request.urlopen(url, timeout=KNOWN_SECONDS) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


@contextmanager
def pair(kind: Kind, link: str) -> Iterator[Pair]:
    """Start two servers of a kind; the second one dials the first. See Pair for `link`."""
    if link == "leaf":
        with Server(kind, text=_HUB) as hub:
            port = ask(hub, "varz")["leaf"]["port"]  # the ports file does not have it
            with Server(kind, text=_LEAF.format(url=f"nats-leaf://127.0.0.1:{port}")) as leaf:
                yield Pair(hub, leaf, link)
        return
    if link == "gateway":
        with Server(kind, text=_GATEWAY.format(name="A", gateways="")) as first:
            port = ask(first, "varz")["gateway"]["port"]
            other = f", gateways: [{{ name: A, url: 'nats://127.0.0.1:{port}' }}]"
            with Server(kind, text=_GATEWAY.format(name="B", gateways=other)) as second:
                yield Pair(first, second, link)
        return
    with Server(kind, text=_CLUSTER.format(routes="")) as first:
        routes = f", routes: ['{first.ports['cluster'][0].replace('nats://', 'nats-route://')}']"
        with Server(kind, text=_CLUSTER.format(routes=routes)) as second:
            yield Pair(first, second, link)


@contextmanager
def linked(kind: Kind, settings: Settings, *, link: str, size: int) -> Iterator[Measure]:
    """Measure the highest rate of messages over a link, and the CPU of both servers."""
    with (
        pair(kind, link) as servers,
        PubSub(
            servers.target, subscriptions=[["bench"]], size=size, subscribers_at=servers.second.target
        ) as load,
    ):
        servers.wait_for_interest()
        count = calibrate(load, settings.seconds)
        yield lambda: move(servers, load, count)


@contextmanager
def linked_latency(kind: Kind, settings: Settings, *, link: str) -> Iterator[Measure]:
    """Measure the time of single messages over a link."""
    with pair(kind, link) as servers:
        probe = Latency(servers.target, subscriber_at=servers.second.target)
        try:
            servers.wait_for_interest()
            probe.run(200, timeout=RUN_TIMEOUT)

            def measure() -> Metrics:
                return percentiles(probe.run(settings.probes, timeout=RUN_TIMEOUT).latency)

            yield measure
        finally:
            probe.close()


CLUSTER_SCENARIOS: list[Scenario] = [
    scenario
    for link, group, where in (
        ("route", "routes", "at two servers of a cluster"),
        ("leaf", "leaf nodes", "at a hub and at its leaf node"),
        ("gateway", "gateways", "in two clusters"),
    )
    for scenario in (
        *(
            Scenario(
                f"{link}/{human_size(size)}",
                group,
                f"one publisher and one subscriber {where}, {human_size(size)}",
                partial(linked, link=link, size=size),
                quick=size == 16,
                pollers=False,
            )
            for size in SIZES
        ),
        Scenario(f"{link}/latency", group, f"single messages {where}", partial(linked_latency, link=link)),
    )
]
