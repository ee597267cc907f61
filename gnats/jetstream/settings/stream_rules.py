"""Checks, defaults and permitted changes of a stream's configuration (checkStreamCfg and configUpdateCheck in
stream.go)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from gnats.core.subjects.subject import (
    collide,
    has_wildcard,
    subset_match,
    valid_publish_subject,
    valid_subject,
)
from gnats.core.subjects.subjecttrie import SubjectTrie
from gnats.core.subjects.transform import SubjectTransform, validate_mapping
from gnats.go.text import SECOND, duration, quote
from gnats.jetstream import errors
from gnats.jetstream.errors import ApiError, Kind, invalid_config, pedantic_error
from gnats.jetstream.settings.config import (
    ASYNC,
    FILE,
    LIMITS,
    NEW,
    WORKQUEUE,
    Placement,
    RePublish,
    StreamConfig,
    StreamConsumerSource,
    StreamSource,
    SubjectTransformConfig,
)
from gnats.jetstream.settings.overlaps import MANY, Overlaps
from gnats.jetstream.settings.reservations import max_bytes_limits
from gnats.options.values.limits import JetStreamAccountLimits, JSLimitOpts

MAX_NAME_LEN = 255
MAX_DESCRIPTION_LEN = 4 * 1024
MAX_METADATA_LEN = 128 * 1024
"""Most bytes of all keys and values together."""
MAX_REPLICAS = 5
DEFAULT_DUPLICATE_WINDOW = 120_000_000_000
API_PREFIX = "$JS.API"

_SHORTEST = 100_000_000
_NOT_IN_NAMES = re.compile(r"[ \t\r\n\f.*>\\/]")
_PRIVATE = ("$JS.>", "$JSC.>", "$NRG.>")
_UNLIMITED = ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_msg_size", "max_consumers")

Lookup = Callable[[str], StreamConfig | None]
"""Returns the configuration of a stream of the same account, None for an unknown one."""


def valid_asset_name(name: str) -> bool:
    """Whether a name is valid for a stream or consumer (isValidAssetName in jetstream.go)."""
    return name != "" and not _NOT_IN_NAMES.search(name)


def metadata_len(metadata: dict[str, str]) -> int:
    """Return the bytes of all keys and values."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items())


def check_stream_cfg(
    config: StreamConfig,
    server: JSLimitOpts,
    account: JetStreamAccountLimits | None,
    lookup: Lookup,
    *,
    pedantic: bool = False,
    overlaps: Overlaps | None = None,
) -> StreamConfig:
    """Check a configuration, and fill in defaults for unset values. `account`: the limits for such a stream.

    Pedantic mode refuses a value that would have to change. Any thread. Raises ApiError, Stopped.
    """
    overlaps = overlaps or Overlaps()
    _check_names(config)
    cfg = _with_defaults(config, pedantic)
    cfg = _with_duplicate_window(cfg, server, pedantic)
    cfg = _check_features(cfg, pedantic)
    known = _Known(lookup, overlaps)
    if cfg.mirror:
        cfg = replace(cfg, mirror_direct=_check_mirror(cfg, cfg.mirror, known, pedantic))
    _check_sources(cfg, known)
    known.check_prefixes()
    _check_cycles(cfg, known)
    if not cfg.subjects and not cfg.mirror and not cfg.sources:
        cfg = replace(cfg, subjects=(cfg.name,))
    _check_subjects(cfg, overlaps)
    required, most = max_bytes_limits(account, cfg) if account else (False, 0)
    if required and cfg.max_bytes <= 0:
        raise errors.STREAM_MAX_BYTES_REQUIRED()
    if 0 < most < cfg.max_bytes:
        raise errors.STREAM_MAX_STREAM_BYTES_EXCEEDED()
    if transform := cfg.subject_transform:
        _check_transform(
            transform, errors.STREAM_TRANSFORM_INVALID_SOURCE, errors.STREAM_TRANSFORM_INVALID_DESTINATION
        )
    if cfg.republish:
        cfg = replace(cfg, republish=_check_republish(cfg, cfg.republish, pedantic))
    if cfg.placement == Placement():
        cfg = replace(cfg, placement=None)
    if cfg.placement and cfg.placement.preferred:
        raise invalid_config("preferred server not permitted in placement")
    return cfg


def _check_names(config: StreamConfig) -> None:
    if not valid_asset_name(config.name):
        raise invalid_config("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    if len(config.name.encode()) > MAX_NAME_LEN:
        raise invalid_config(f"stream name is too long, maximum allowed is {MAX_NAME_LEN}")
    if len(config.description.encode()) > MAX_DESCRIPTION_LEN:
        raise invalid_config(f"stream description is too long, maximum allowed is {MAX_DESCRIPTION_LEN}")
    if metadata_len(config.metadata) > MAX_METADATA_LEN:
        raise invalid_config(f"stream metadata exceeds maximum size of {MAX_METADATA_LEN} bytes")


def _with_defaults(config: StreamConfig, pedantic: bool) -> StreamConfig:
    cfg = replace(config, storage=config.storage or FILE, num_replicas=config.num_replicas or 1)
    if cfg.num_replicas > MAX_REPLICAS:
        raise invalid_config(f"maximum replicas is {MAX_REPLICAS}")
    if cfg.num_replicas < 0:
        raise errors.REPLICAS_COUNT_CANNOT_BE_NEGATIVE()
    unlimited = {}
    for name in _UNLIMITED:
        value = getattr(cfg, name)
        if pedantic and value < -1:
            raise pedantic_error(f"{name} must be set to -1")
        if value <= 0:
            unlimited[name] = -1
    cfg = replace(cfg, **unlimited)  # type: ignore[arg-type]
    if cfg.max_age < 0:
        raise invalid_config("max age can not be negative")
    if 0 < cfg.max_age < _SHORTEST:
        raise invalid_config("max age needs to be >= 100ms")
    return cfg


def _with_duplicate_window(cfg: StreamConfig, server: JSLimitOpts, pedantic: bool) -> StreamConfig:
    most = server.max_duplicate_window
    if cfg.duplicate_window == 0 and not cfg.mirror and not cfg.sources:
        window = DEFAULT_DUPLICATE_WINDOW
        if 0 < most < window:
            if pedantic:
                raise pedantic_error("duplicate window limits are higher than current limits")
            window = most
        if 0 < cfg.max_age < window:
            if pedantic:
                raise pedantic_error("duplicate window cannot be bigger than max age")
            window = cfg.max_age
        cfg = replace(cfg, duplicate_window=window)
    window = cfg.duplicate_window
    if window < 0:
        raise invalid_config("duplicates window can not be negative")
    if 0 < cfg.max_age < window:
        raise invalid_config("duplicates window can not be larger then max age")
    if 0 < most < window:
        raise invalid_config(f"duplicates window can not be larger then server limit of {duration(most)}")
    if 0 < window < _SHORTEST:
        raise invalid_config("duplicates window needs to be >= 100ms")
    return cfg


def _check_features(cfg: StreamConfig, pedantic: bool) -> StreamConfig:
    if cfg.deny_purge and cfg.allow_rollup_hdrs:
        raise invalid_config("roll-ups require the purge permission")
    if cfg.allow_msg_counter:
        if cfg.discard == NEW:
            raise invalid_config("counter stream cannot use discard new")
        if cfg.allow_msg_ttl:
            raise invalid_config("counter stream cannot use message TTLs")
        if cfg.allow_msg_schedules:
            raise invalid_config("counter stream cannot use message schedules")
        if cfg.retention != LIMITS:
            raise invalid_config("counter stream can only use limits retention")
    _check_discard_new_per_subject(cfg)
    if cfg.subject_delete_marker_ttl < 0:
        raise invalid_config("subject delete marker TTL must not be negative")
    if cfg.subject_delete_marker_ttl > 0:
        if cfg.subject_delete_marker_ttl < SECOND:
            raise invalid_config("subject delete marker TTL must be at least 1 second")
        if not cfg.allow_msg_ttl:
            if pedantic:
                raise invalid_config("subject delete marker cannot be set if message TTLs are disabled")
            cfg = replace(cfg, allow_msg_ttl=True)
        if not cfg.allow_rollup_hdrs:
            if pedantic:
                raise invalid_config("subject delete marker cannot be set if roll-ups are disabled")
            cfg = replace(cfg, allow_rollup_hdrs=True, deny_purge=False)
    if cfg.allow_msg_schedules:
        if cfg.discard == NEW:
            raise invalid_config("message scheduling cannot use discard new")
        if not cfg.allow_rollup_hdrs:
            if pedantic:
                raise invalid_config("message scheduling cannot be set if roll-ups are disabled")
            cfg = replace(cfg, allow_rollup_hdrs=True, deny_purge=False)
    if cfg.persist_mode == ASYNC:
        if cfg.storage != FILE:
            raise invalid_config("async persist mode is only supported on file storage")
        if cfg.num_replicas > 1:
            raise invalid_config("async persist mode is not supported on replicated streams")
        if cfg.allow_atomic:
            raise invalid_config("async persist mode is not supported with atomic batch publish")
    return cfg


def _check_discard_new_per_subject(cfg: StreamConfig) -> None:
    if cfg.discard_new_per_subject:
        if cfg.discard != NEW:
            raise invalid_config("discard new per subject requires discard new policy to be set")
        if cfg.max_msgs_per_subject <= 0:
            raise invalid_config("discard new per subject requires max msgs per subject > 0")


# -- mirrors and sources ---------------------------------------------------------------------------------


class _Known:
    """The origins of a stream, as far as they are streams of the same account."""

    def __init__(self, lookup: Lookup, overlaps: Overlaps) -> None:
        self.lookup = lookup
        self.overlaps = overlaps
        self._origins: dict[str, StreamConfig] = {}
        self._tries: dict[str, SubjectTrie] = {}
        self._deliver_prefixes: dict[str, None] = {}
        self._api_prefixes: dict[str, None] = {}

    def note(self, cfg: StreamConfig, source: StreamSource, too_small: Kind) -> StreamConfig | None:
        """Note an origin; return its configuration, None when it is external or unknown.

        Raises `too_small` when its messages may be larger than the stream allows.
        """
        if source.external:
            if source.external.deliver:
                self._deliver_prefixes[source.external.deliver] = None
            if source.external.api:
                self._api_prefixes[source.external.api] = None
            return None
        origin = self.lookup(source.name)
        if origin:
            self._origins[source.name] = origin
            if 0 < cfg.max_msg_size < origin.max_msg_size:
                raise too_small()
        return origin

    def check_prefixes(self) -> None:
        by_token = self._by_first_token() if self._deliver_prefixes else {}
        for prefix in self._deliver_prefixes:
            if not valid_publish_subject(prefix):
                raise errors.STREAM_INVALID_EXTERNAL_DELIVERY_SUBJ(prefix=prefix)
            self.overlaps.check()
            first = prefix.partition(".")[0]
            for _, subject in sorted(pair for token in (first, "*", ">") for pair in by_token.get(token, ())):
                if collide(subject, f"{prefix}.{subject}"):
                    raise errors.STREAM_EXTERNAL_DEL_PREFIX_OVERLAPS(prefix=prefix, subject=subject)
        for prefix in self._api_prefixes:
            if not valid_publish_subject(prefix):
                raise invalid_config(
                    f"stream external api prefix {quote(prefix)} must be a valid subject without wildcards"
                )
            if collide(prefix, API_PREFIX):
                raise errors.STREAM_EXTERNAL_API_OVERLAP(prefix=prefix, subject=API_PREFIX)

    def _by_first_token(self) -> dict[str, list[tuple[int, str]]]:
        """Return the origins' subjects with their index, by first token."""
        found: dict[str, list[tuple[int, str]]] = {}
        every = (subject for origin in self._origins.values() for subject in origin.subjects)
        for at, subject in enumerate(every):
            found.setdefault(subject.partition(".")[0], []).append((at, subject))
        return found

    def touches(self, cfg: StreamConfig, wanted: str) -> bool:
        """Whether a stream's subjects overlap with a filter."""
        if len(cfg.subjects) < MANY:
            return any(collide(subject, wanted) for subject in cfg.subjects)
        trie = self._tries.get(cfg.name)
        if trie is None:
            trie = self._tries[cfg.name] = self.overlaps.trie(cfg.subjects)
        return trie.collides_with(self.overlaps.trie([wanted]))


def _check_durable(source: StreamSource, consumer: StreamConsumerSource, refusal: Kind) -> None:
    subject = consumer.deliver_subject
    if (
        not valid_asset_name(consumer.name)
        or has_wildcard(subject)
        or not valid_subject(subject)
        or source.opt_start_seq
        or source.opt_start_time
        or source.filter_subject
    ):
        raise refusal()


def _check_transform(transform: SubjectTransformConfig, bad_source: Kind, bad_destination: Kind) -> None:
    if transform.src and not valid_subject(transform.src):
        raise bad_source(err=f"invalid subject {transform.src}")
    try:
        validate_mapping(transform.src, transform.dest)
    except ValueError as exc:
        raise bad_destination(err=exc) from None


def _sources_of(transforms: Sequence[SubjectTransformConfig]) -> list[str]:
    return [each.src for each in transforms if each.src]


def _check_mirror(cfg: StreamConfig, mirror: StreamSource, known: _Known, pedantic: bool) -> bool:
    """Check a mirror; return whether it answers direct gets, which its origin decides."""
    refusals = (
        (cfg.first_seq, errors.MIRROR_WITH_FIRST_SEQ),
        (cfg.subjects, errors.MIRROR_WITH_SUBJECTS),
        (cfg.sources, errors.MIRROR_WITH_SOURCES),
        (cfg.allow_msg_counter, errors.MIRROR_WITH_COUNTERS),
        (cfg.allow_atomic, errors.MIRROR_WITH_ATOMIC_PUBLISH),
        (cfg.allow_batched, errors.MIRROR_WITH_BATCH_PUBLISH),
        (cfg.allow_msg_schedules, errors.MIRROR_WITH_MSG_SCHEDULES),
    )
    for said, refusal in refusals:
        if said:
            raise refusal()
    if mirror.consumer:
        _check_durable(mirror, mirror.consumer, errors.MIRROR_DURABLE_CONSUMER_CFG_INVALID)
    if mirror.filter_subject and mirror.subject_transforms:
        raise errors.MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED()
    if cfg.subject_delete_marker_ttl > 0:
        raise invalid_config("subject delete markers forbidden on mirrors")
    for transform in mirror.subject_transforms:
        _check_transform(
            transform, errors.MIRROR_INVALID_SUBJECT_FILTER, errors.MIRROR_INVALID_TRANSFORM_DESTINATION
        )
    if known.overlaps.has_collision(_sources_of(mirror.subject_transforms)):
        raise errors.MIRROR_OVERLAPPING_SUBJECT_FILTERS()
    if not mirror.external and not valid_asset_name(mirror.name):
        raise errors.MIRROR_INVALID_STREAM_NAME()
    origin = known.note(cfg, mirror, errors.MIRROR_MAX_MESSAGE_SIZE_TOO_BIG)
    if origin is None:
        return cfg.mirror_direct
    if pedantic and cfg.mirror_direct != origin.allow_direct:
        raise pedantic_error("origin stream has direct get set, mirror has it disabled")
    return origin.allow_direct


def _check_sources(cfg: StreamConfig, known: _Known) -> None:
    if cfg.sources and cfg.allow_msg_schedules:
        raise errors.SOURCE_WITH_MSG_SCHEDULES()
    names: set[str] = set()
    consumers: set[str] = set()
    for source in cfg.sources:
        if source is None or not valid_asset_name(source.name):
            raise errors.SOURCE_INVALID_STREAM_NAME()
        if source.index_name() in names:
            raise errors.SOURCE_DUPLICATE_DETECTED()
        names.add(source.index_name())
        if source.filter_subject and source.subject_transforms:
            raise errors.SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED()
        for transform in source.subject_transforms:
            _check_transform(
                transform, errors.SOURCE_INVALID_SUBJECT_FILTER, errors.SOURCE_INVALID_TRANSFORM_DESTINATION
            )
        if known.overlaps.has_subset(_sources_of(source.subject_transforms)):
            raise errors.SOURCE_OVERLAPPING_SUBJECT_FILTERS()
        if source.consumer:
            _check_durable(source, source.consumer, errors.SOURCE_DURABLE_CONSUMER_CFG_INVALID)
            if source.consumer_index_name() in consumers:
                raise errors.SOURCE_DURABLE_CONSUMER_DUPLICATE_DETECTED()
            consumers.add(source.consumer_index_name())
        known.note(cfg, source, errors.SOURCE_MAX_MESSAGE_SIZE_TOO_BIG)


def _check_cycles(config: StreamConfig, known: _Known) -> None:
    """Refuse a circle of streams that copy messages from each other, if filters let messages go round.

    Visits streams by distance. A stream that occurs more than once at the same distance is examined at its
    first and last occurrence only: those in between find nothing else.
    """
    level: list[StreamConfig] = [config]
    visited: set[str] = set()
    while level:
        following: list[StreamConfig] = []
        last = {cfg.name: at for at, cfg in enumerate(level)}
        seen: set[str] = set()
        for at, cfg in enumerate(level):
            if cfg.name in seen and last[cfg.name] != at:
                continue
            seen.add(cfg.name)
            visited.add(cfg.name)
            known.overlaps.check()
            following += _origins_to_visit(cfg, visited, known)
        level = following


def _origins_to_visit(cfg: StreamConfig, visited: set[str], known: _Known) -> list[StreamConfig]:
    found = []
    for source in cfg.sources:
        if source is None or source.external:
            continue
        if source.name in visited:
            if not source.filter_subject or known.touches(cfg, source.filter_subject):
                raise invalid_config("detected cycle")
        elif origin := known.lookup(source.name):
            found.append(origin)
    if cfg.mirror and not cfg.mirror.external:
        if cfg.mirror.name in visited:
            raise invalid_config("detected cycle")
        if origin := known.lookup(cfg.mirror.name):
            found.append(origin)
    return found


# -- subjects --------------------------------------------------------------------------------------------


def _check_subjects(cfg: StreamConfig, overlaps: Overlaps) -> None:
    seen: set[str] = set()
    refusal, good = None, 0
    for good, subject in enumerate(cfg.subjects, 1):
        if refusal := _refusal_of_subject(cfg, subject, seen):
            good -= 1
            break
        seen.add(subject)
    # The first refusal in the order of the subjects counts; a subject's own fault comes before its overlap.
    pair = overlaps.first_collision(cfg.subjects)
    if pair and pair[0] < good:
        subject, other = cfg.subjects[pair[0]], cfg.subjects[pair[1]]
        raise invalid_config(f"subject {quote(subject)} overlaps with {quote(other)}")
    if refusal:
        raise refusal


def _refusal_of_subject(cfg: StreamConfig, subject: str, seen: set[str]) -> ApiError | None:
    if not valid_subject(subject):
        return invalid_config("invalid subject")
    if subject in seen:
        return invalid_config("duplicate subjects detected")
    if subject == ">":
        if not cfg.no_ack:
            return invalid_config("capturing all subjects requires no-ack to be true")
        if cfg.num_replicas != 1:
            return invalid_config("capturing all subjects requires replicas of 1")
    if not cfg.no_ack and subject[0] in "$*>":
        if any(collide(subject, private) for private in _PRIVATE) and not subset_match(
            subject, "$JS.EVENT.>"
        ):
            return invalid_config("subjects that overlap with jetstream api require no-ack to be true")
        if collide(subject, "$SYS.>") and not subset_match(subject, "$SYS.ACCOUNT.>"):
            return invalid_config("subjects that overlap with system api require no-ack to be true")
    return None


def _check_republish(cfg: StreamConfig, republish: RePublish, pedantic: bool) -> RePublish:
    if not republish.src:
        if pedantic:
            raise pedantic_error("republish source can not be empty")
        republish = replace(republish, src=">")
    transform = cfg.subject_transform
    if (republish.src, republish.dest) == (">", ">") and transform and cfg.subjects == (transform.src,):
        if pedantic:
            raise pedantic_error("implicit republish based on subject transform")
        republish = replace(republish, src=transform.dest, dest=transform.dest)
    if any(collide(republish.dest, subject) for subject in cfg.subjects):
        raise invalid_config("stream configuration for republish destination forms a cycle")
    try:
        if republish.dest:  # without a destination, nothing is republished
            SubjectTransform(republish.src, republish.dest)
    except ValueError:
        raise invalid_config(
            f"stream configuration for republish with transform from '{republish.src}' to"
            f" '{republish.dest}' not valid"
        ) from None
    return republish


# -- changes ---------------------------------------------------------------------------------------------


def check_stream_update(old: StreamConfig, new: StreamConfig) -> StreamConfig:
    """Check a change to a configuration that check_stream_cfg() has passed; return it (configUpdateCheck).

    A sealed stream gets the settings that go with it. Does not check limits. Raises ApiError for a change
    that is not permitted.
    """
    if new.name != old.name:
        raise invalid_config("stream configuration name must match original")
    if new.num_replicas > 1 and new.num_replicas != old.num_replicas:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
    if new.storage != old.storage:
        raise invalid_config("stream configuration update can not change storage type")
    if new.retention != old.retention and WORKQUEUE in (old.retention, new.retention):
        raise invalid_config("stream configuration update can not change retention policy to/from workqueue")
    if old.sealed and not new.sealed:
        raise invalid_config("stream configuration update can not unseal a sealed stream")
    if old.deny_delete and not new.deny_delete:
        raise invalid_config("stream configuration update can not cancel deny message deletes")
    if old.deny_purge and not new.deny_purge:
        raise invalid_config("stream configuration update can not cancel deny purge")
    if new.mirror and new.mirror != old.mirror:
        raise errors.STREAM_MIRROR_NOT_UPDATABLE()
    if old.allow_msg_ttl and not new.allow_msg_ttl:
        raise invalid_config("message TTL status can not be disabled")
    if new.allow_msg_counter != old.allow_msg_counter:
        raise invalid_config("stream configuration update can not change message counter setting")
    if old.allow_msg_schedules and not new.allow_msg_schedules:
        raise invalid_config("message schedules can not be disabled")
    if old.persist_mode != new.persist_mode:
        raise invalid_config("stream configuration update can not change persist mode")
    if not new.sealed:
        return new
    return replace(new, max_age=0, discard=NEW, deny_delete=True, deny_purge=True, allow_rollup_hdrs=False)


def check_stream_create(config: StreamConfig) -> None:
    """Raise ApiError for settings that only an existing stream may have."""
    if config.sealed:
        raise invalid_config("stream configuration for create can not be sealed")
    if config.mirror_direct and not config.mirror:
        raise invalid_config("stream has no mirror but does have mirror direct")


def check_filters(cfg: StreamConfig) -> None:
    """Raise ApiError for invalid filters of a mirror or source: after other checks, as in nats-server."""
    for source, what in [(cfg.mirror, "mirror"), *((source, "source") for source in cfg.sources)]:
        if source is None or source.subject_transforms:
            continue
        subject, colon = source.filter_subject, ":" if what == "source" else ""
        if subject and not valid_subject(subject):
            raise errors.STREAM_CREATE(
                err=f"subject filter '{subject}' for the {what}{colon} invalid subject"
            )
