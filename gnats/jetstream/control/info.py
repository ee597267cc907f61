"""The description of a stream in responses (StreamInfo in stream.go)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnats.clock import time_ns
from gnats.go.json import Json
from gnats.go.text import rfc3339

if TYPE_CHECKING:
    from gnats.jetstream.control.streams import Stream


def stream_info(
    stream: Stream, *, domain: str = "", details: bool = False, dynamic: bool = True, leader: str = ""
) -> Json:
    """Describe a stream as responses do.

    `details` lists the deleted sequences, `dynamic` adds the server's version and API level to the metadata,
    `leader` adds a cluster with that leader.
    """
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
