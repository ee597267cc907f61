"""What the load generator reports."""

from dataclasses import dataclass

from gnats.bench.histogram import Histogram


class LoadError(Exception):
    """A run that did not do what was asked: the server refused, closed, was too slow, or miscounted."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One connection's part of a run."""

    messages: int
    bytes: int  # payloads
    seconds: float


@dataclass(frozen=True, slots=True)
class PubSubResult:
    """Exact counts: a run fails when the server delivers one message more or less than it should."""

    published: int
    delivered: int
    bytes: int  # payloads, published and delivered
    seconds: float  # from the first write until the last delivery and the PONG behind the last publish
    publishers: list[Sample]
    subscribers: list[Sample]
    generator_cpu_seconds: float  # of the generator's thread: near `seconds` means that it was the bottleneck

    @property
    def messages(self) -> int:
        """Messages the server moved: published and delivered."""
        return self.published + self.delivered


@dataclass(frozen=True, slots=True)
class RequestResult:
    """Latency is from a request's write until its reply's read."""

    requests: int
    bytes: int  # payloads of the requests
    seconds: float
    latency: Histogram
    requesters: list[Sample]
    generator_cpu_seconds: float


@dataclass(frozen=True, slots=True)
class LatencyResult:
    """Latency is one-way: from the publisher's write until the subscriber's read, on one clock."""

    messages: int
    seconds: float
    latency: Histogram


@dataclass(frozen=True, slots=True)
class StreamResult:
    """Messages that were published and acknowledged, or read from a stream."""

    messages: int
    bytes: int  # payloads that were read
    seconds: float
    latency: Histogram  # of publishes: from the write to the ack
    generator_cpu_seconds: float
