"""JetStream's scenarios: publishing, keys, and reading through consumers."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from gnats.bench.results import StreamResult
from gnats.bench.streams import Streams
from perf.scenarios import (
    RUN_TIMEOUT,
    Measure,
    Metrics,
    Scenario,
    Settings,
    also_awake,
    human_size,
    percentiles,
)
from perf.servers import Kind, Server

STREAM = "S"
WINDOW = 4096  # publishes that may wait for their ack
KEYS = 1000
STORED = 200_000  # messages in a stream that is read
BACKLOG = 48 * 1024 * 1024  # bytes of them at most: a push consumer without flow control may send all at once
ORDERED = {"flow_control": True, "idle_heartbeat": 5_000_000_000, "max_deliver": 1, "mem_storage": True}


def costs(server: Server, size: int, run: Callable[[], StreamResult]) -> tuple[StreamResult, Metrics]:
    """Run a load; return its result, and the costs of a message."""
    cpu = server.cpu_ns()
    result = run()
    cpu = server.cpu_ns() - cpu
    return result, {
        "cpu_ns": cpu / result.messages,
        "msgs_per_sec": result.messages / result.seconds,
        "bytes_per_sec": result.messages * size / result.seconds,
        "generator_busy": result.generator_cpu_seconds / result.seconds,
    }


def create(client: Streams, storage: str, **more: Any) -> None:
    """Make the stream `S` with the subjects `s.>`."""
    client.api(
        f"STREAM.CREATE.{STREAM}",
        {"name": STREAM, "subjects": ["s.>"], "storage": storage, "num_replicas": 1} | more,
    )


@contextmanager
def publish(
    kind: Kind, settings: Settings, *, storage: str, size: int, window: int = WINDOW, sync: bool = False
) -> Iterator[Measure]:
    """Measure publishes with acks; a window of one measures the latency of each."""
    with (
        Server(kind, jetstream="sync_interval: always" if sync else "") as server,
        Streams(server.target) as client,
    ):

        def measure() -> Metrics:
            create(client, storage)
            result, metrics = costs(
                server, size, lambda: client.publish("s.a", count, size=size, window=window)
            )
            stored = client.api(f"STREAM.INFO.{STREAM}")["state"]["messages"]
            client.api(f"STREAM.DELETE.{STREAM}")
            if stored != count:
                raise RuntimeError(f"{kind.label} stores {stored:,} messages of {count:,}")
            return metrics if window > 1 else percentiles(result.latency)

        count = settings.probes
        if window > 1:
            create(client, storage)
            first = client.publish("s.a", 2000, size=size, window=window)
            client.api(f"STREAM.DELETE.{STREAM}")
            count = max(2000, int(2000 / first.seconds * settings.seconds * 2))
        yield measure


@contextmanager
def keys(kind: Kind, settings: Settings, *, get: bool) -> Iterator[Measure]:
    """Measure puts or gets of a bucket's keys, one at a time."""
    with Server(kind, jetstream="") as server, Streams(server.target) as client:
        create(client, "file", subjects=["$KV.B.>"], max_msgs_per_subject=1, allow_direct=True, discard="new")
        client.publish("$KV.B.k", KEYS, size=128, window=KEYS, subjects=KEYS)
        if get:
            yield lambda: percentiles(
                client.get(STREAM, "$KV.B.k", settings.probes, window=1, subjects=KEYS).latency
            )
        else:
            yield lambda: percentiles(
                client.publish("$KV.B.k", settings.probes, size=128, window=1, subjects=KEYS).latency
            )


@contextmanager
def read(
    kind: Kind, settings: Settings, *, size: int, how: Callable[[Streams, int], StreamResult]
) -> Iterator[Measure]:
    """Measure reading a whole stream through a new consumer."""
    with Server(kind, jetstream="") as server, Streams(server.target) as client:
        create(client, "file")
        count = min(STORED, BACKLOG // size)
        client.publish("s.a", count, size=size, window=WINDOW, timeout=RUN_TIMEOUT)
        yield lambda: costs(server, size, lambda: how(client, count))[1]


def push(config: dict[str, Any], client: Streams, count: int) -> StreamResult:
    """Read through a push consumer."""
    return client.push(STREAM, count, config, timeout=RUN_TIMEOUT)


def pull(batch: int, client: Streams, count: int) -> StreamResult:
    """Read through a pull consumer, and acknowledge each message."""
    return client.pull(STREAM, count, {}, batch=batch, timeout=RUN_TIMEOUT)


def _scenario(
    name: str,
    about: str,
    open: Callable[..., AbstractContextManager[Measure]],
    quick: bool,
    alone: bool = False,
) -> Scenario:
    return Scenario(f"js/{name}", "jetstream", about, open, quick=quick, rounds=5, alone=alone)


def _scenarios() -> Iterator[Scenario]:
    for storage in ("file", "memory"):
        for size in (128, 1024):
            yield _scenario(
                f"pub/{storage}/{human_size(size)}",
                f"publishes to a stream in {storage}, {WINDOW:,} without their ack, {human_size(size)}",
                partial(publish, storage=storage, size=size),
                quick=size == 128,
            )
        yield from also_awake(
            _scenario(
                f"sync/{storage}",
                f"one publish at a time to a stream in {storage}, 128B",
                partial(publish, storage=storage, size=128, window=1),
                quick=True,
            )
        )
    yield _scenario(
        "pub/always",
        f"publishes with sync_interval: always, {WINDOW:,} without their ack, 128B",
        partial(publish, storage="file", size=128, sync=True),
        quick=True,
        alone=True,
    )
    for name, get in (("put", False), ("get", True)):
        yield from also_awake(
            _scenario(
                f"kv/{name}",
                f"one {name} at a time, {KEYS:,} keys of 128B in turn",
                partial(keys, get=get),
                quick=True,
            )
        )
    for size in (128, 1024):
        for name, about, how in (
            ("push", "a push consumer without acks", partial(push, {})),
            ("ordered", "an ordered consumer, with flow control", partial(push, ORDERED)),
            ("pull", "a pull consumer, batches of 500, each message acknowledged", partial(pull, 500)),
        ):
            yield _scenario(
                f"{name}/{human_size(size)}",
                f"{about}, {human_size(size)}",
                partial(read, size=size, how=how),
                quick=size == 128,
            )


STREAM_SCENARIOS = list(_scenarios())
