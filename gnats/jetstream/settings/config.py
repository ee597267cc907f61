"""Configurations of streams and consumers (StreamConfig in stream.go, ConsumerConfig in consumer.go).

Attributes have the JSON's names. Durations are nanoseconds, times RFC 3339 with "" for none, sizes bytes.
Checks and defaults are in stream_rules and consumer_rules.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from gnats.go.json import Custom, JSONError, ListOf, MapOf, Named
from gnats.go.structs import TIME, Document, always, many, omitempty, one, one_of, strings
from gnats.go.times import ZERO_TIME
from gnats.nkeys.identity import server_hash
from gnats.version import JS_API_LEVEL, NATS_VERSION

REQUIRED_LEVEL_KEY = "_nats.req.level"
VERSION_KEY = "_nats.ver"
LEVEL_KEY = "_nats.level"

LIMITS, INTEREST, WORKQUEUE = "limits", "interest", "workqueue"
FILE, MEMORY = "file", "memory"
OLD, NEW = "old", "new"
S2 = "s2"
ACK_NONE, ACK_ALL, ACK_EXPLICIT, ACK_FLOW_CONTROL = "none", "all", "explicit", "flow_control"
DELIVER_ALL, DELIVER_LAST, DELIVER_NEW = "all", "last", "new"
DELIVER_BY_START_SEQUENCE, DELIVER_BY_START_TIME = "by_start_sequence", "by_start_time"
DELIVER_LAST_PER_SUBJECT = "last_per_subject"
REPLAY_ORIGINAL = "original"
PRIORITY_NONE, PRIORITY_OVERFLOW = "none", "overflow"
PRIORITY_PINNED, PRIORITY_PRIORITIZED = "pinned_client", "prioritized"
ASYNC = "async"

_UNKNOWN_POLICY = "unknown priority policy: {raw}"


def _read_compression(value: object) -> object:
    if not isinstance(value, str):
        if value is None:
            raise JSONError("unknown compression algorithm")
        kinds: dict[type, str] = {bool: "bool", list: "array", dict: "object"}
        raise JSONError(
            f"json: cannot unmarshal {kinds.get(type(value), 'number')} into Go value of type string"
        )
    if value not in ("none", S2):
        raise JSONError("unknown compression algorithm")
    return value


def _read_discard(value: object) -> object:
    known = isinstance(value, str) and value.lower() in (OLD, NEW)
    return _DISCARD.read(value.lower() if known and isinstance(value, str) else value)


_DISCARD = one_of(OLD, NEW)
_METADATA = MapOf("string")


def _metadata(found: dict[str, str | None]) -> dict[str, str]:
    return {key: value or "" for key, value in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement(Document):
    cluster: str = omitempty("string", "")
    tags: tuple[str, ...] = strings()
    preferred: str = omitempty("string", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectTransformConfig(Document):
    src: str = always("string", "")
    dest: str = always("string", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RePublish(Document):
    src: str = omitempty("string", "")
    dest: str = always("string", "")
    headers_only: bool = omitempty("bool", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalStream(Document):
    api: str = always("string", "")
    deliver: str = always("string", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConsumerSource(Document):
    name: str = omitempty("string", "")
    deliver_subject: str = omitempty("string", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSource(Document):
    """The origin of a mirror, or one of a stream's sources."""

    name: str = always("string", "")
    opt_start_seq: int = omitempty("uint64", 0)
    opt_start_time: str = omitempty(TIME, "")
    filter_subject: str = omitempty("string", "")
    subject_transforms: tuple[SubjectTransformConfig, ...] = many(SubjectTransformConfig)
    external: ExternalStream | None = one(ExternalStream)
    consumer: StreamConsumerSource | None = one(StreamConsumerSource)

    def index_name(self) -> str:
        """Return a name that is unique among the sources of a stream (composeIName in stream.go)."""
        name = self.header_name()
        if self.consumer:
            name += ":C=" + server_hash(self.consumer.name)
        if not self.subject_transforms:
            return f"{name} {self.filter_subject or '>'} >"
        sources = "\f".join(each.src or ">" for each in self.subject_transforms)
        return f"{name} {sources} " + "\f".join(each.dest or ">" for each in self.subject_transforms)

    def consumer_index_name(self) -> str:
        """Return a name for the durable consumer that this source names (composeCName in stream.go)."""
        return f"{self.header_name()} {self.consumer.name if self.consumer else ''}"

    def header_name(self) -> str:
        """Return the origin's name, with a hash of the API prefix of an external one.

        The index name begins with it.
        """
        return f"{self.name}:{server_hash(self.external.api)}" if self.external else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConsumerLimits(Document):
    inactive_threshold: int = omitempty("duration", 0)
    max_ack_pending: int = omitempty("int", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig(Document):
    name: str = always("string", "")
    description: str = omitempty("string", "")
    subjects: tuple[str, ...] = strings()
    retention: str = always(one_of(LIMITS, INTEREST, WORKQUEUE), LIMITS)
    max_consumers: int = always("int", 0)
    max_msgs: int = always("int64", 0)
    max_bytes: int = always("int64", 0)
    max_age: int = always("duration", 0)
    max_msgs_per_subject: int = always("int64", 0)
    max_msg_size: int = omitempty("int32", 0)
    discard: str = always(Custom(_read_discard), OLD)
    storage: str = always(one_of(MEMORY, FILE), "")
    num_replicas: int = always("int", 0)
    no_ack: bool = omitempty("bool", False)
    duplicate_window: int = omitempty("duration", 0)
    placement: Placement | None = one(Placement)
    mirror: StreamSource | None = one(StreamSource)
    sources: tuple[StreamSource | None, ...] = many(StreamSource, pointers=True)
    compression: str = always(Custom(_read_compression), "none")
    first_seq: int = omitempty("uint64", 0)
    subject_transform: SubjectTransformConfig | None = one(SubjectTransformConfig)
    republish: RePublish | None = one(RePublish)
    allow_direct: bool = always("bool", False)
    mirror_direct: bool = always("bool", False)
    discard_new_per_subject: bool = omitempty("bool", False)
    sealed: bool = always("bool", False)
    deny_delete: bool = always("bool", False)
    deny_purge: bool = always("bool", False)
    allow_rollup_hdrs: bool = always("bool", False)
    consumer_limits: StreamConsumerLimits = always(
        Named("StreamConsumerLimits", StreamConsumerLimits.schema()),
        StreamConsumerLimits(),
        StreamConsumerLimits.from_members,
    )
    allow_msg_ttl: bool = always("bool", False)
    subject_delete_marker_ttl: int = omitempty("duration", 0)
    allow_msg_counter: bool = omitempty("bool", False)
    allow_atomic: bool = omitempty("bool", False)
    allow_msg_schedules: bool = omitempty("bool", False)
    persist_mode: str = omitempty(one_of("default", ASYNC, **{"": "default"}), "default")
    allow_batched: bool = omitempty("bool", False)
    metadata: dict[str, str] = omitempty(_METADATA, {}, _metadata)

    def json(self) -> dict[str, object]:
        members = Document.json(self)
        if self.persist_mode == "default":
            del members["persist_mode"]
        return members

    def with_static_metadata(self) -> Self:
        """Add the required API level to the metadata, to be stored (setStaticStreamMetadata)."""
        level = 0
        if self.allow_msg_ttl or self.subject_delete_marker_ttl > 0:
            level = 1
        if (
            self.allow_msg_counter
            or self.allow_atomic
            or self.allow_msg_schedules
            or self.persist_mode == ASYNC
        ):
            level = 2
        if self.allow_batched:
            level = 4
        return dataclasses.replace(self, metadata=_static(self.metadata, level))

    def with_dynamic_metadata(self) -> Self:
        """Add the server's version and API level to the metadata (setDynamicStreamMetadata)."""
        return dataclasses.replace(self, metadata=_dynamic(self.metadata))

    def with_metadata_of(self, other: Mapping[str, str]) -> Self:
        """Take the required API level of `other`, and drop keys of responses, for comparisons."""
        return dataclasses.replace(self, metadata=_copied(self.metadata, other))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(Document):
    durable_name: str = omitempty("string", "")
    name: str = omitempty("string", "")
    description: str = omitempty("string", "")
    deliver_policy: str = always(
        one_of(
            DELIVER_ALL,
            DELIVER_LAST,
            DELIVER_LAST_PER_SUBJECT,
            DELIVER_NEW,
            DELIVER_BY_START_SEQUENCE,
            DELIVER_BY_START_TIME,
            undefined=DELIVER_ALL,
        ),
        DELIVER_ALL,
    )
    opt_start_seq: int = omitempty("uint64", 0)
    opt_start_time: str = omitempty(TIME, "")
    ack_policy: str = always(one_of(ACK_NONE, ACK_ALL, ACK_EXPLICIT, ACK_FLOW_CONTROL), ACK_NONE)
    ack_wait: int = omitempty("duration", 0)
    max_deliver: int = omitempty("int", 0)
    backoff: tuple[int, ...] = omitempty(
        ListOf("duration"), (), lambda found: tuple(each or 0 for each in found)
    )
    filter_subject: str = omitempty("string", "")
    filter_subjects: tuple[str, ...] = strings()
    replay_policy: str = always(one_of("instant", REPLAY_ORIGINAL), "instant")
    rate_limit_bps: int = omitempty("uint64", 0)
    sample_freq: str = omitempty("string", "")
    max_waiting: int = omitempty("int", 0)
    max_ack_pending: int = omitempty("int", 0)
    flow_control: bool = omitempty("bool", False)
    headers_only: bool = omitempty("bool", False)
    max_batch: int = omitempty("int", 0)
    max_expires: int = omitempty("duration", 0)
    max_bytes: int = omitempty("int", 0)
    deliver_subject: str = omitempty("string", "")
    deliver_group: str = omitempty("string", "")
    idle_heartbeat: int = omitempty("duration", 0)
    inactive_threshold: int = omitempty("duration", 0)
    num_replicas: int = always("int", 0)
    mem_storage: bool = omitempty("bool", False)
    direct: bool = omitempty("bool", False)
    sourcing: bool = omitempty("bool", False)
    metadata: dict[str, str] = omitempty(_METADATA, {}, _metadata)
    pause_until: str = omitempty(TIME, "")
    priority_groups: tuple[str, ...] = strings()
    priority_policy: str = omitempty(
        one_of(
            PRIORITY_OVERFLOW,
            PRIORITY_PINNED,
            PRIORITY_PRIORITIZED,
            PRIORITY_NONE,
            refusal=_UNKNOWN_POLICY,
        ),
        PRIORITY_NONE,
    )
    priority_timeout: int = omitempty("duration", 0)

    def json(self) -> dict[str, object]:
        members = Document.json(self)
        if self.priority_policy == PRIORITY_NONE:
            del members["priority_policy"]
        return members

    @property
    def is_durable(self) -> bool:
        return self.durable_name != ""

    @property
    def filters(self) -> tuple[str, ...]:
        """The subjects to deliver; empty: all of the stream's (gatherSubjectFilters in consumer.go)."""
        return ((self.filter_subject,) if self.filter_subject else ()) + self.filter_subjects

    def replicas(self, stream: StreamConfig) -> int:
        """Return the number of the consumer's replicas in that stream."""
        if self.num_replicas == 0 or self.num_replicas > stream.num_replicas:
            if not self.is_durable and stream.retention == LIMITS and self.num_replicas == 0:
                return 1
            return stream.num_replicas
        return self.num_replicas

    def with_static_metadata(self) -> Self:
        """Add the required API level to the metadata, to be stored (setStaticConsumerMetadata)."""
        level = 0
        if (
            self.pause_until not in ("", ZERO_TIME)
            or self.priority_policy != PRIORITY_NONE
            or self.priority_timeout
        ):
            level = 1
        if self.priority_groups:
            level = 1
        if self.ack_policy == ACK_FLOW_CONTROL:
            level = 4
        return dataclasses.replace(self, metadata=_static(self.metadata, level))

    def with_dynamic_metadata(self) -> Self:
        """Add the server's version and API level to the metadata (setDynamicConsumerMetadata)."""
        return dataclasses.replace(self, metadata=_dynamic(self.metadata))

    def with_metadata_of(self, other: Mapping[str, str]) -> Self:
        """Take the required API level of `other`, and drop keys of responses, for comparisons."""
        return dataclasses.replace(self, metadata=_copied(self.metadata, other))


def _static(metadata: Mapping[str, str], level: int) -> dict[str, str]:
    return _user(metadata) | {REQUIRED_LEVEL_KEY: str(level)}


def _dynamic(metadata: Mapping[str, str]) -> dict[str, str]:
    return {**metadata, VERSION_KEY: NATS_VERSION, LEVEL_KEY: str(JS_API_LEVEL)}


def _copied(metadata: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    copied = {key: value for key, value in _user(metadata).items() if key != REQUIRED_LEVEL_KEY}
    if REQUIRED_LEVEL_KEY in other:
        copied[REQUIRED_LEVEL_KEY] = other[REQUIRED_LEVEL_KEY]
    return copied


def _user(metadata: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in metadata.items() if key not in (VERSION_KEY, LEVEL_KEY)}


def supports_required_level(metadata: Mapping[str, str]) -> bool:
    """Whether this server has the API level that the metadata requires (supportsRequiredApiLevel)."""
    level = metadata.get(REQUIRED_LEVEL_KEY, "")
    try:
        return not level or int(level) <= JS_API_LEVEL
    except ValueError:
        return False
