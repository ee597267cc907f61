"""Scenarios over links: the publisher is at one server, the subscriber at another."""

import json
import random
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from gnats.bench.loadgen import PubSub
from gnats.bench.probes import Latency, Requests
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
_CLUSTER = _MONITORED + 'cluster {{ name: C, listen: "127.0.0.1:-1", compression: {compression}{routes} }}\n'
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


def link_port(server: Server, link: str) -> int:
    """Return the port on which a server accepts links."""
    if link == "route":
        return Target.parse(server.ports["cluster"][0]).port
    found: int = ask(server, "varz")[link]["port"]  # the ports file does not have it
    return found


def configure(link: str, port: int = 0, compression: str = "off") -> str:
    """Return the configuration of a server that accepts a link, or of one that dials `port`."""
    if link == "leaf":
        return _LEAF.format(url=f"nats-leaf://127.0.0.1:{port}") if port else _HUB
    if link == "gateway":
        other = f", gateways: [{{ name: A, url: 'nats://127.0.0.1:{port}' }}]" if port else ""
        return _GATEWAY.format(name="B" if port else "A", gateways=other)
    routes = f", routes: ['nats-route://127.0.0.1:{port}']" if port else ""
    return _CLUSTER.format(compression=compression, routes=routes)


@contextmanager
def pair(kind: Kind, link: str, compression: str = "off") -> Iterator[Pair]:
    """Start two servers of a kind; the second one dials the first. See Pair for `link`.

    `compression` is that of a route.
    """
    with (
        Server(kind, text=configure(link, 0, compression)) as first,
        Server(kind, text=configure(link, link_port(first, link), compression)) as second,
    ):
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


def documents(size: int) -> list[bytes]:
    """Return JSON documents of `size` bytes, 4 MiB in all: words and names repeat, numbers do not."""
    rng = random.Random(size)
    words = ("active", "pending", "closed", "Berlin", "Lisbon", "Osaka", "standard", "express", "refund")
    found = []
    for number in range(4 * 2**20 // size):
        fields = [f'{{"id":{rng.getrandbits(40)},"time":"2026-11-27T{number % 24:02}:{number % 60:02}:11Z"']
        while sum(map(len, fields)) < size:
            fields.append(
                f',"{rng.choice(words)}":{{"status":"{rng.choice(words)}","value":{rng.random() * 1000:.3f},'
                f'"city":"{rng.choice(words)}","count":{rng.randrange(10_000)}}}'
            )
        found.append("".join(fields)[: size - 1].encode() + b"}")
    return found


@contextmanager
def compressed(kind: Kind, settings: Settings, *, size: int) -> Iterator[Measure]:
    """Measure as `linked` a route with S2, with payloads that are like JSON."""
    with (
        pair(kind, "route", "s2_fast") as servers,
        PubSub(
            servers.target,
            payloads=documents(size),
            subscriptions=[["bench"]],
            size=size,
            subscribers_at=servers.second.target,
        ) as load,
    ):
        servers.wait_for_interest()
        count = calibrate(load, settings.seconds)
        yield lambda: move(servers, load, count)


@contextmanager
def linked_requests(
    kind: Kind, settings: Settings, *, link: str, fresh: bool = False, window: int = 1
) -> Iterator[Measure]:
    """Measure requests over a link; with `fresh` each has a subscription of its own for its reply."""
    with (
        pair(kind, link) as servers,
        Requests(servers.target, window=window, fresh=fresh, responders_at=servers.second.target) as load,
    ):
        servers.wait_for_interest()
        count = settings.probes * (10 if window > 1 else 1)

        def measure() -> Metrics:
            cpu = servers.cpu_ns()
            result = load.run(count, timeout=RUN_TIMEOUT)
            cpu = servers.cpu_ns() - cpu
            return percentiles(result.latency) | {
                "requests_per_sec": count / result.seconds,
                "request_cpu_us": cpu / count / 1000,
            }

        load.run(count // 10, timeout=RUN_TIMEOUT)
        yield measure


def _request_scenarios(link: str, group: str, where: str) -> Iterator[Scenario]:
    for name, about, fresh, window in (
        ("1", "one request at a time", False, 1),
        ("fresh/1", "one request at a time, a subscription for each reply", True, 1),
        ("fresh/64", "64 requests in flight, a subscription for each reply", True, 64),
    ):
        yield Scenario(
            f"{link}/request/{name}",
            group,
            f"{about}, requester and responder {where}",
            partial(linked_requests, link=link, fresh=fresh, window=window),
        )


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
        *(
            Scenario(
                f"{link}/s2_fast/{human_size(size)}",
                group,
                f"JSON documents of {human_size(size)} over a route that compresses",
                partial(compressed, size=size),
            )
            for size in SIZES[1:]
            if link == "route"
        ),
        *_request_scenarios(link, group, where),
    )
]
