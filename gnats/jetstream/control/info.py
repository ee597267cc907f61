"""The description of a stream in responses (StreamInfo in stream.go)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnats.clock import time_ns
from gnats.go.json import Json
from gnats.go.text import rfc3339
from gnats.jetstream.settings.config import ConsumerConfig, StreamConfig
from gnats.jetstream.settings.overlaps import subject_count
from gnats.jetstream.threads import in_thread

if TYPE_CHECKING:
    from gnats.jetstream.control.jetstream import JetStream
    from gnats.jetstream.control.streams import Stream


LONG = 1024
"""From this number of subjects, sources and metadata on, configurations are described in slices."""


def is_long(*configs: StreamConfig | ConsumerConfig) -> bool:
    """Whether a description of the configurations holds up the loop."""
    return sum(map(_length, configs)) >= LONG


def _length(config: StreamConfig | ConsumerConfig) -> int:
    """Return the number of subjects, sources and metadata in a configuration."""
    if isinstance(config, StreamConfig):
        return subject_count(config) + len(config.metadata)
    return len(config.filter_subjects) + len(config.metadata)


def cluster_info(js: JetStream, stream: Stream) -> Json:
    """Return the member `cluster` of the description of a stream."""
    return stream.member.cluster_info() if stream.member else js.cluster_info


def stream_info(
    stream: Stream,
    *,
    domain: str = "",
    details: bool = False,
    dynamic: bool = True,
    cluster: Json | None = None,
) -> Json:
    """Describe a stream as responses do.

    `details` lists the deleted sequences, `dynamic` adds the server's version and API level to the metadata,
    `cluster` is JetStream.cluster_info, or None to leave it out.
    """
    config = _shown_config(stream, dynamic).json()
    return _info(stream, config, stream.origins.sources_info(), domain, details, cluster)


async def stream_info_at_length(
    stream: Stream,
    *,
    domain: str = "",
    details: bool = False,
    dynamic: bool = True,
    cluster: Json | None = None,
) -> Json:
    """Describe a stream as stream_info(), and let the loop do other work meanwhile."""
    config = await in_thread(_shown_config(stream, dynamic).json)
    sources = await stream.origins.sources_info_in_slices()
    return _info(stream, config, sources, domain, details, cluster)


def _shown_config(stream: Stream, dynamic: bool) -> StreamConfig:
    return stream.config.with_dynamic_metadata() if dynamic else stream.config


def _info(
    stream: Stream, config: Json, sources: list[Json], domain: str, details: bool, cluster: Json | None
) -> Json:
    info: Json = {
        "config": config,
        "created": rfc3339(stream.created),
        "state": stream.state(details=details),
    }
    if domain:
        info["domain"] = domain
    if cluster:
        info["cluster"] = cluster
    if mirror := stream.origins.mirror_info():
        info["mirror"] = mirror
    if sources:
        info["sources"] = sources
    info["ts"] = rfc3339(time_ns())
    return info
