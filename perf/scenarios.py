"""The scenarios to measure, by name and group.

A Scenario is opened for each kind of server, and measured once a round, servers taking turns. `open` yields a
function that makes one measurement and returns its metrics; results.py describes each metric.
"""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Protocol

from gnats.bench.fleet import Fleet
from gnats.bench.histogram import Histogram
from gnats.bench.loadgen import PubSub
from gnats.bench.probes import Latency, Requests
from gnats.bench.target import Target
from perf.servers import REFERENCE, Kind, Server, affinity

Metrics = dict[str, float]
Measure = Callable[[], Metrics]

SIZES = (16, 128, 1024, 8192, 65536)
RUN_TIMEOUT = 120.0
CALIBRATION_SECONDS = 0.05
BACKGROUND_RATE = 100_000.0  # messages a second of BACKGROUND_SIZE bytes
BACKGROUND_SIZE = 128
MANY_CONNECTIONS = 1000  # from which on memory a connection is reported
MANY_SUBSCRIPTIONS = 10_000
PROBE_INTERVAL = 0.0005  # seconds between two latency probes, on average


@dataclass(frozen=True)
class Settings:
    """Number and duration of the measurements."""

    rounds: int
    seconds: float  # of one throughput measurement
    probes: int  # messages of one latency measurement


@dataclass(frozen=True)
class Scenario:
    """A measurement to make in at most `rounds` rounds.

    With `pollers`, gnats with two threads takes part; with `alone`, the reference is the only nats-server;
    with `awake`, no core halts meanwhile.
    """

    name: str
    group: str
    about: str
    open: Callable[[Kind, Settings], AbstractContextManager[Measure]]
    quick: bool = False
    rounds: int = 99
    pollers: bool = False
    alone: bool = False
    awake: bool = False

    def runs_on(self, kind: Kind) -> bool:
        """Return True if this kind of server takes part."""
        if self.alone and not kind.is_gnats and kind.version != REFERENCE:
            return False
        return self.pollers or kind.key != "gnats-2"


def also_awake(scenario: Scenario) -> Iterator[Scenario]:
    """Yield a scenario, and the same while no core halts."""
    yield scenario
    yield replace(
        scenario, name=f"{scenario.name}/awake", about=f"{scenario.about}; no core halts", awake=True
    )


# Throughput


def calibrate(load: PubSub, seconds: float) -> int:
    """Warm the server up; return the number of messages that take `seconds`."""
    count = 100
    load.run(count, timeout=RUN_TIMEOUT)
    while True:
        result = load.run(count, timeout=RUN_TIMEOUT)
        if result.seconds >= CALIBRATION_SECONDS:
            return max(100, int(count / result.seconds * seconds))
        count *= 4


class HasCPU(Protocol):
    """One server, or several."""

    def cpu_ns(self) -> int:
        """Return the CPU time so far."""


def move(server: HasCPU, load: PubSub, count: int) -> Metrics:
    """Publish `count` messages; return costs per message, published and delivered."""
    cpu = server.cpu_ns()
    result = load.run(count, timeout=RUN_TIMEOUT, settle=False)
    cpu = server.cpu_ns() - cpu
    load.settle(timeout=RUN_TIMEOUT)
    return {
        "cpu_ns": cpu / result.messages,
        "msgs_per_sec": result.messages / result.seconds,
        "bytes_per_sec": result.bytes / result.seconds,
        "generator_busy": result.generator_cpu_seconds / result.seconds,
    }


@contextmanager
def throughput(
    kind: Kind,
    settings: Settings,
    *,
    publishers: int = 1,
    subjects: Callable[[], Sequence[str]] = lambda: ["bench"],
    subscriptions: Callable[[], Sequence[Sequence[str]]] = lambda: (),
    queue: str = "",
    size: int = 16,
    fanout: int | None = None,
    pin_server: bool = False,
    pin_generator: bool = False,
    tls: bool = False,
) -> Iterator[Measure]:
    """Measure the highest rate of messages. Pinned, the server has the first core, the generator the last."""
    cores = sorted(os.sched_getaffinity(0))
    with (
        Server(kind, {cores[0]} if pin_server else None, tls=tls) as server,
        PubSub(
            server.target,
            publishers=publishers,
            subjects=subjects(),
            subscriptions=subscriptions(),
            queue=queue,
            size=size,
            fanout=fanout,
        ) as load,
    ):

        def place() -> AbstractContextManager[None]:
            return affinity({cores[-1]}) if pin_generator else nullcontext()

        def measure() -> Metrics:
            with place():
                return move(server, load, count)

        with place():
            count = calibrate(load, settings.seconds)
        yield measure


def to_all(subscribers: int) -> Callable[[], Sequence[Sequence[str]]]:
    """Return a number of subscribers, all to the one subject."""
    return lambda: [["bench"]] * subscribers


@cache
def distinct(count: int) -> list[str]:
    """Return distinct subjects of one length, in random order."""
    subjects = [f"bench.{number:06d}" for number in range(count)]
    random.Random(count).shuffle(subjects)
    return subjects


def one_for_all(count: int) -> list[list[str]]:
    """Return one subscriber to all subjects of distinct()."""
    return [distinct(count)]


@cache
def wildcard_subjects() -> list[str]:
    """Return 10,648 subjects of four tokens."""
    subjects = [f"w.{a:02d}.{b:02d}.{c:02d}" for a in range(22) for b in range(22) for c in range(22)]
    random.Random(1).shuffle(subjects)
    return subjects


def wildcard_subscriptions() -> list[list[str]]:
    """Return five subscribers with 551 wildcard subscriptions; a subject matches one of every subscriber."""
    numbers = [f"{number:02d}" for number in range(22)]
    return [
        ["w.>"],
        [f"w.{a}.>" for a in numbers],
        [f"w.*.{b}.*" for b in numbers],
        [f"*.*.*.{c}" for c in numbers],
        [f"w.{a}.{b}.*" for a in numbers for b in numbers],
    ]


# Latency


@contextmanager
def background(target: Target) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Prepare a steady load with its own connections and thread; yield a context manager that runs it."""
    with (
        PubSub(target, subjects=["load"], subscriptions=[["load"]], size=BACKGROUND_SIZE) as load,
        ThreadPoolExecutor(1) as threads,
    ):

        @contextmanager
        def running() -> Iterator[None]:
            messages = int(BACKGROUND_RATE * RUN_TIMEOUT)
            done = threads.submit(load.run, messages, rate=BACKGROUND_RATE, timeout=2 * RUN_TIMEOUT)
            try:
                yield
            finally:
                load.stop()
            done.result()

        yield running


def percentiles(latency: Histogram) -> Metrics:
    """Return the reported percentiles of a distribution, in microseconds."""
    return {
        "p50_us": latency.percentile(50) / 1000,
        "p99_us": latency.percentile(99) / 1000,
        "p999_us": latency.percentile(99.9) / 1000,
    }


@contextmanager
def latency(
    kind: Kind, settings: Settings, *, interval: float = PROBE_INTERVAL, loaded: bool = False
) -> Iterator[Measure]:
    """Measure the one-way latency of 16-byte messages."""
    with (
        Server(kind) as server,
        Latency(server.target) as probe,
        background(server.target) if loaded else nullcontext(nullcontext) as load,
    ):

        def measure() -> Metrics:
            with load():
                result = probe.run(settings.probes, interval=interval, timeout=RUN_TIMEOUT)
            return percentiles(result.latency)

        probe.run(settings.probes // 10, interval=interval, timeout=RUN_TIMEOUT)
        yield measure


@contextmanager
def requests(
    kind: Kind, settings: Settings, *, pairs: int = 1, window: int = 1, loaded: bool = False
) -> Iterator[Measure]:
    """Measure requests and replies of 128 bytes; costs are per request with its reply."""
    with (
        Server(kind) as server,
        Requests(server.target, requesters=pairs, responders=pairs, window=window) as load,
        background(server.target) if loaded else nullcontext(nullcontext) as other,
    ):
        count = settings.probes * (10 if window > 1 else 1)

        def measure() -> Metrics:
            with other():
                cpu = server.cpu_ns()
                result = load.run(count, timeout=RUN_TIMEOUT)
                cpu = server.cpu_ns() - cpu
            metrics = percentiles(result.latency) | {"requests_per_sec": count / result.seconds}
            return metrics if loaded else metrics | {"request_cpu_us": cpu / count / 1000}

        load.run(count // 10, timeout=RUN_TIMEOUT)
        yield measure


# Growth: these need a fresh server for every measurement


def resting_bytes(server: Server) -> int:
    """Return the resident bytes of a server after one connection has come and gone."""
    with Fleet(server.target, 1):
        pass
    return server.rss_bytes()


@contextmanager
def idle_memory(kind: Kind, settings: Settings) -> Iterator[Measure]:
    """Measure the memory of a server without work."""

    def measure() -> Metrics:
        with Server(kind) as server:
            return {"rss_mib": resting_bytes(server) / 2**20}

    yield measure


@contextmanager
def connections(kind: Kind, settings: Settings, *, count: int) -> Iterator[Measure]:
    """Open `count` connections; measure the time and memory of each, and 1:1 of 128 bytes beside them."""

    def measure() -> Metrics:
        with Server(kind) as server:
            resting = resting_bytes(server)
            cpu = server.cpu_ns()
            with Fleet(server.target, count, timeout=RUN_TIMEOUT) as fleet:
                metrics = {
                    "connects_per_sec": count / fleet.connect_seconds,
                    "connect_cpu_us": (server.cpu_ns() - cpu) / count / 1000,
                }
                if count >= MANY_CONNECTIONS:
                    metrics["connection_kib"] = (server.rss_bytes() - resting) / count / 1024
                with PubSub(server.target, subscriptions=[["bench"]], size=128) as load:
                    moved = move(server, load, calibrate(load, settings.seconds))
                return metrics | {"beside_cpu_ns": moved["cpu_ns"]}

    yield measure


@contextmanager
def spread(kind: Kind, settings: Settings, *, count: int) -> Iterator[Measure]:
    """Measure 1:1 of 128 bytes to `count` subscribers in turn: every message goes to another connection."""
    subjects = distinct(count)

    def measure() -> Metrics:
        with (
            Server(kind) as server,
            PubSub(
                server.target,
                subjects=subjects,
                subscriptions=[[subject] for subject in subjects],
                fanout=1,
                size=128,
                timeout=RUN_TIMEOUT,
            ) as load,
        ):
            return move(server, load, calibrate(load, settings.seconds))

    yield measure


@contextmanager
def subscriptions(kind: Kind, settings: Settings, *, count: int) -> Iterator[Measure]:
    """Subscribe to `count` subjects, half with wildcards, and publish to subjects that two of them match."""
    subjects, published = crowd(count)

    def measure() -> Metrics:
        with Server(kind) as server:
            resting = resting_bytes(server)
            cpu = server.cpu_ns()
            with PubSub(
                server.target,
                subjects=published,
                subscriptions=[subjects],
                fanout=2,
                size=16,
                timeout=RUN_TIMEOUT,
            ) as load:
                metrics = {
                    "subscribes_per_sec": count / load.subscribe_seconds,
                    "subscribe_cpu_ns": (server.cpu_ns() - cpu) / count,
                }
                if count >= MANY_SUBSCRIPTIONS:
                    metrics["subscription_bytes"] = (server.rss_bytes() - resting) / count
                moved = move(server, load, calibrate(load, settings.seconds))
                return metrics | {
                    "matches_per_sec": moved["msgs_per_sec"] / 3,
                    "match_cpu_ns": moved["cpu_ns"] * 3,
                }

    yield measure


@cache
def crowd(count: int) -> tuple[list[str], list[str]]:
    """Return `count` subscriptions, and subjects to publish to: each matches one literal and one wildcard."""
    shapes = ("m.{0}.>", "m.*.{0}.z", "m.{0}.*.z", "*.{0}.*.z")
    numbers = [f"{number:06d}" for number in range(count // 2)]
    literal = [f"m.{number}.{number}.z" for number in numbers]
    wild = [shapes[i % 4].format(number) for i, number in enumerate(numbers)]
    published = random.Random(count).sample(literal, min(len(literal), 100_000))
    return literal + wild, published


# The list

PATTERNS: dict[str, tuple[str, dict[str, object]]] = {
    "pub": ("publish only", {}),
    "1:1": ("one publisher, one subscriber", {"subscriptions": to_all(1)}),
    "1:5": ("one publisher, five subscribers", {"subscriptions": to_all(5)}),
    "4:4": (
        "four publishers, four subscribers to all of them",
        {"publishers": 4, "subscriptions": to_all(4)},
    ),
    "1:100": ("one publisher, a hundred subscribers", {"subscriptions": to_all(100)}),
    "queue": ("one publisher, a queue group of four", {"subscriptions": to_all(4), "queue": "q"}),
}
QUICK_SIZES = {"pub": (16, 128), "1:1": (16, 128, 8192, 65536), "1:5": (16, 128), "4:4": (16, 128)}
COUNTS = {1: "1", 100: "100", 1000: "1k", 10_000: "10k", 100_000: "100k", 1_000_000: "1M"}


def human_size(size: int) -> str:
    """Format a size as 16B or 8KiB."""
    return f"{size}B" if size < 1024 else f"{size // 1024}KiB"


def _throughput_scenarios() -> Iterator[Scenario]:
    for pattern, (about, load) in PATTERNS.items():
        for size in SIZES:
            yield Scenario(
                f"{pattern}/{human_size(size)}",
                "throughput",
                f"{about}, {human_size(size)}",
                partial(throughput, size=size, **load),  # type: ignore[arg-type]
                quick=size in QUICK_SIZES.get(pattern, (16,)),
            )
    for size in (16, 128):
        yield Scenario(
            f"pinned/1:1/{human_size(size)}",
            "throughput",
            f"1:1, {human_size(size)}, the server on one core, the generator on another",
            partial(throughput, size=size, subscriptions=to_all(1), pin_server=True, pin_generator=True),
            quick=size == 16,
        )
    for name, about, subscribers in (
        ("pub", "four publishers, nobody subscribed", 0),
        ("4:4", "four publishers, four subscribers", 4),
    ):
        yield Scenario(
            f"pollers/{name}/16B",
            "pollers",
            f"{about}, 16B, the generator on the last core",
            partial(throughput, publishers=4, subscriptions=to_all(subscribers), pin_generator=True),
            quick=True,
            pollers=True,
        )


def _tls_scenarios() -> Iterator[Scenario]:
    for size in (128, 8192):
        yield Scenario(
            f"tls/1:1/{human_size(size)}",
            "throughput",
            f"one publisher, one subscriber, both over TLS 1.3, {human_size(size)}",
            partial(throughput, size=size, subscriptions=to_all(1), tls=True),
            quick=size == 128,
        )


def _subject_scenarios() -> Iterator[Scenario]:
    for count in (1, 1000, 100_000):
        yield Scenario(
            f"subjects/{COUNTS[count]}",
            "subjects",
            f"1:1, 16B, {count:,} subjects in turn, a subscription to each",
            partial(
                throughput,
                subjects=partial(distinct, count),
                subscriptions=partial(one_for_all, count),
                fanout=1,
            ),
            quick=count == 1000,
        )
    yield Scenario(
        "wildcards",
        "subjects",
        "16B to 10,648 subjects, each matching 5 of 551 wildcard subscriptions of 5 subscribers",
        partial(throughput, subjects=wildcard_subjects, subscriptions=wildcard_subscriptions),
        quick=True,
    )


def _latency_scenarios() -> Iterator[Scenario]:
    beside = f"beside {BACKGROUND_RATE:,.0f} msgs/s of {BACKGROUND_SIZE}B"
    yield Scenario(
        "latency/idle",
        "latency",
        "one way, 16B, at random moments, nothing else going on",
        latency,
        quick=True,
    )
    yield from also_awake(
        Scenario(
            "latency/turns",
            "latency",
            "one way, 16B, each leaves when the one before has arrived",
            partial(latency, interval=0.0),
            quick=True,
        )
    )
    yield Scenario(
        "latency/load",
        "latency",
        f"one way, 16B, at random moments {beside}",
        partial(latency, loaded=True),
        quick=True,
    )
    yield from also_awake(Scenario("request/1", "requests", "one request at a time", requests, quick=True))
    yield Scenario("request/load", "requests", f"one at a time, {beside}", partial(requests, loaded=True))
    yield Scenario(
        "request/256",
        "requests",
        "4 requesters, 4 responders, 64 in flight each",
        partial(requests, pairs=4, window=64),
    )


def _growth_scenarios() -> Iterator[Scenario]:
    yield Scenario("memory/idle", "memory", "a server without work", idle_memory, quick=True)
    for count in (1, 100, 1000, 10_000):
        yield Scenario(
            f"connections/{COUNTS[count]}",
            "connections",
            f"{count:,} idle connections",
            partial(connections, count=count),
            quick=count in (100, 1000),
            rounds=3,
        )
    for count in (1, 100, 1000, 10_000):
        yield Scenario(
            f"spread/{COUNTS[count]}",
            "connections",
            f"1:1, 128B, to {count:,} subscribers in turn, a subject each",
            partial(spread, count=count),
            quick=count == 1000,
            rounds=3,
        )
    for count in (1000, 10_000, 100_000, 1_000_000):
        yield Scenario(
            f"subscriptions/{COUNTS[count]}",
            "subscriptions",
            f"{count:,} subscriptions, half with wildcards; each publish matches one of either half",
            partial(subscriptions, count=count),
            quick=count in (1000, 100_000),
            rounds=3,
        )


SCENARIOS: list[Scenario] = [
    *_throughput_scenarios(),
    *_tls_scenarios(),
    *_subject_scenarios(),
    *_latency_scenarios(),
    *_growth_scenarios(),
]
