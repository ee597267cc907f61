"""Costs of streams by the number of messages, subjects, consumers and streams; each needs a fresh server."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic

from gnats.bench.streams import Streams
from perf.scenarios import COUNTS, RUN_TIMEOUT, Measure, Metrics, Scenario, Settings, resting_bytes
from perf.servers import Kind, Server
from perf.streams import STREAM, WINDOW, costs, create

SIZE = 128
LOOKUPS = 20_000
LIMITS = "limits { default_max_consumers: 1000000 }"

Fill = Callable[[Server, Streams, int], Metrics]


def publish_beside(server: Server, client: Streams, settings: Settings, subjects: int = 1) -> float:
    """Return the server's CPU time of a publish, in ns."""
    first = client.publish("s.a", 5000, size=SIZE, window=WINDOW, subjects=subjects)
    count = max(5000, int(5000 / first.seconds * settings.seconds))
    run = partial(client.publish, "s.a", count, size=SIZE, window=WINDOW, subjects=subjects)
    return costs(server, SIZE, run)[1]["cpu_ns"]


@contextmanager
def holding(
    kind: Kind, settings: Settings, *, fill: Fill, count: int, subjects: int = 1
) -> Iterator[Measure]:
    """Fill a fresh server; measure the memory that this takes, and then a publish."""

    def measure() -> Metrics:
        with Server(kind, jetstream=LIMITS) as server:
            resting = resting_bytes(server)
            with Streams(server.target) as client:
                metrics = fill(server, client, count)
                metrics["held_mib"] = (server.rss_bytes() - resting) / 2**20
                metrics["rss_mib"] = server.rss_bytes() / 2**20
                return metrics | {"beside_cpu_ns": publish_beside(server, client, settings, subjects)}

    yield measure


def messages(server: Server, client: Streams, count: int) -> Metrics:
    """Fill a stream with `count` messages of one subject."""
    create(client, "file", allow_direct=True)
    client.publish("s.a", count, size=SIZE, window=WINDOW, timeout=RUN_TIMEOUT)
    return lookups(server, client, 1)


def subjects(server: Server, client: Streams, count: int) -> Metrics:
    """Fill a bucket with `count` keys."""
    create(client, "file", allow_direct=True, max_msgs_per_subject=1)
    client.publish("s.a", count, size=SIZE, window=WINDOW, subjects=count, timeout=RUN_TIMEOUT)
    return lookups(server, client, count)


def lookups(server: Server, client: Streams, subjects: int) -> Metrics:
    """Get the last message of each subject in turn, with direct gets."""
    run = partial(client.get, STREAM, "s.a", LOOKUPS, window=WINDOW, subjects=subjects)
    return {"get_cpu_ns": costs(server, 0, run)[1]["cpu_ns"]}


def made(count: int, make: Callable[[int], object]) -> Metrics:
    """Call make(number) `count` times; return the calls a second."""
    start = monotonic()
    for number in range(count):
        make(number)
    return {"creates_per_sec": count / (monotonic() - start)}


def consumers(server: Server, client: Streams, count: int) -> Metrics:
    """Make a stream with `count` pull consumers, each with a subject of its own."""
    create(client, "file")

    def make(number: int) -> None:
        config = {"durable_name": f"c{number}", "ack_policy": "explicit", "filter_subject": f"s.of.{number}"}
        body = {"stream_name": STREAM, "config": config}
        client.api(f"CONSUMER.CREATE.{STREAM}.c{number}.s.of.{number}", body)

    return made(count, make)


def streams(server: Server, client: Streams, count: int) -> Metrics:
    """Make `count` streams with a message each, and one more."""

    def make(number: int) -> None:
        name = f"S{number}"
        client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "storage": "file"})
        client.publish(f"{name}.a", 1, size=SIZE, window=1)

    metrics = made(count, make)
    create(client, "file")
    return metrics


def _scenarios() -> Iterator[Scenario]:
    about = {
        "stored": "{:,} messages of 128B in a stream",
        "keys": "{:,} keys of 128B in a bucket",
        "consumers": "{:,} pull consumers of a stream, a subject each",
        "streams": "{:,} streams with a message each",
    }
    counts: dict[str, tuple[Fill, tuple[int, ...]]] = {
        "stored": (messages, (1000, 100_000, 1_000_000)),
        "keys": (subjects, (1000, 10_000, 100_000, 1_000_000)),
        "consumers": (consumers, (100, 1000, 10_000)),
        "streams": (streams, (1, 100, 1000)),
    }
    for name, (fill, steps) in counts.items():
        for count in steps:
            yield Scenario(
                f"js/{name}/{COUNTS[count]}",
                f"js/{name}",
                about[name].format(count),
                partial(holding, fill=fill, count=count, subjects=count if name == "keys" else 1),
                rounds=3,
                alone=True,
            )


HOLDING_SCENARIOS = list(_scenarios())
