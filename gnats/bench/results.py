"""The results of the load generator."""

from dataclasses import dataclass

from gnats.bench.histogram import Histogram


class LoadError(Exception):
    """A run failed: the server refused, closed, was too slow, or delivered a wrong number of messages."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One connection's part of a run."""

    messages: int
    bytes: int  # payloads
    seconds: float


@dataclass(frozen=True, slots=True)
class PubSubResult:
    """Counts are exact: a run fails when the server delivers one message too many or too few."""

    published: int
    delivered: int
    bytes: int  # payloads, published and delivered
    seconds: float  # from the first write to the last delivery and the PONG after the last publish
    publishers: list[Sample]
    subscribers: list[Sample]
    generator_cpu_seconds: float  # of the generator's thread: near `seconds` means that it was the bottleneck

    @property
    def messages(self) -> int:
        """The messages that the server moved: published and delivered."""
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
    """Messages published to a stream and acknowledged, or read from it."""

    messages: int
    bytes: int  # payloads that were read
    seconds: float
    latency: Histogram  # of publishes: from the write to the ack
    generator_cpu_seconds: float
