"""Scenarios over routes: the publisher is at one server, the subscriber at another."""

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

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
_BLOCK = 'http: "127.0.0.1:-1"\ncluster {{ name: C, listen: "127.0.0.1:-1", compression: off{routes} }}\n'


class Pair:
    """Two servers of one kind in one cluster."""

    def __init__(self, first: Server, second: Server) -> None:
        self.first = first
        self.second = second

    def cpu_ns(self) -> int:
        """Return the CPU time of both."""
        return self.first.cpu_ns() + self.second.cpu_ns()

    @property
    def target(self) -> Target:
        return self.first.target

    def wait_for_interest(self) -> None:
        """Wait until the first server knows of the subscription at the second one."""
        page = f"{self.first.ports['monitoring'][0]}/routez?subs=1"
        deadline = time.monotonic() + KNOWN_SECONDS
        while time.monotonic() < deadline:
            with urllib.request.urlopen(page, timeout=KNOWN_SECONDS) as answer:
                routes = json.load(answer)["routes"]
            subjects = [subject for route in routes for subject in route.get("subscriptions_list") or ()]
            if any("bench" in subject for subject in subjects):
                return
            time.sleep(0.02)
        raise ServerError(f"{self.first.kind.label} hears of no subscription over its routes")


@contextmanager
def pair(kind: Kind) -> Iterator[Pair]:
    """Start two servers of a kind; the second one dials the first."""
    with Server(kind, text=_BLOCK.format(routes="")) as first:
        routes = f", routes: ['{first.ports['cluster'][0].replace('nats://', 'nats-route://')}']"
        with Server(kind, text=_BLOCK.format(routes=routes)) as second:
            yield Pair(first, second)


@contextmanager
def routed(kind: Kind, settings: Settings, *, size: int) -> Iterator[Measure]:
    """Measure the highest rate of messages over a route, and the CPU of both servers."""
    with (
        pair(kind) as servers,
        PubSub(
            servers.target, subscriptions=[["bench"]], size=size, subscribers_at=servers.second.target
        ) as load,
    ):
        servers.wait_for_interest()
        count = calibrate(load, settings.seconds)
        yield lambda: move(servers, load, count)


@contextmanager
def routed_latency(kind: Kind, settings: Settings) -> Iterator[Measure]:
    """Measure the time of single messages over a route."""
    with pair(kind) as servers:
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
    *(
        Scenario(
            f"route/{human_size(size)}",
            "routes",
            f"one publisher and one subscriber at two servers, {human_size(size)}",
            partial(routed, size=size),
            quick=size == 16,
            pollers=False,
        )
        for size in SIZES
    ),
    Scenario("route/latency", "routes", "single messages from one server to another", routed_latency),
]
