"""What is told of streams and consumers (StreamInfo in stream.go, ConsumerInfo in consumer.go)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnats.clock import time_ns
from gnats.gofmt import rfc3339
from gnats.gojson import Json

if TYPE_CHECKING:
    from gnats.jetstream.consumers import Consumer
    from gnats.jetstream.streams import Stream


def stream_info(
    stream: Stream, *, domain: str = "", details: bool = False, dynamic: bool = True, leader: str = ""
) -> Json:
    """A stream as responses have it; `details`: with every deleted sequence, `dynamic`: with the server's
    version in the metadata."""
    config = stream.config.with_dynamic_metadata() if dynamic else stream.config
    info: Json = {
        "config": config.json(),
        "created": rfc3339(stream.created),
        "state": stream.state(details=details),
    }
    if domain:
        info["domain"] = domain
    if leader:
        info["cluster"] = {"leader": leader}
    if mirror := stream.origins.mirror_info():
        info["mirror"] = mirror
    if sources := stream.origins.sources_info():
        info["sources"] = sources
    info["ts"] = rfc3339(time_ns())
    return info


def consumer_info(consumer: Consumer, *, dynamic: bool = True) -> Json:
    """A consumer as responses have it."""
    config = consumer.config.with_dynamic_metadata() if dynamic else consumer.config
    numbers = consumer.numbers()
    info: Json = {
        "stream_name": consumer.stream.name,
        "name": consumer.name,
        "created": rfc3339(consumer.created),
        "config": config.json(),
        "delivered": _sequences(numbers, "delivered"),
        "ack_floor": _sequences(numbers, "ack_floor"),
        "num_ack_pending": numbers["num_ack_pending"],
        "num_redelivered": 0 if config.max_deliver == 1 else numbers["num_redelivered"],
        "num_waiting": numbers["num_waiting"],
        "num_pending": numbers["num_pending"],
    }
    if numbers.get("push_bound"):
        info["push_bound"] = True
    if remaining := consumer.pause_remaining():
        info |= {"paused": True, "pause_remaining": remaining}
    info["ts"] = rfc3339(time_ns())
    if config.priority_groups:
        info["priority_groups"] = [consumer.priority_group(numbers)]
    return info


def _sequences(numbers: Json, which: str) -> Json:
    found = {
        "consumer_seq": numbers[f"{which}_consumer"],
        "stream_seq": numbers[f"{which}_stream"],
    }
    if last := numbers.get(f"{which}_last"):
        found["last_active"] = rfc3339(last)
    return found
