"""Checks, defaults and permitted changes of a consumer's configuration (setConsumerConfigDefaults,
checkConsumerCfg and checkNewConsumerConfig in consumer.go)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gnats.core.subjects.subject import has_wildcard, subset_match, valid_subject
from gnats.go.text import MAX_DIGITS, MILLISECOND, SECOND, duration, quote
from gnats.go.times import parse_rfc3339, unix_ns
from gnats.jetstream import errors
from gnats.jetstream.errors import ApiError, invalid_config, pedantic_error
from gnats.jetstream.settings.config import (
    ACK_ALL,
    ACK_EXPLICIT,
    ACK_FLOW_CONTROL,
    ACK_NONE,
    DELIVER_ALL,
    DELIVER_BY_START_SEQUENCE,
    DELIVER_BY_START_TIME,
    DELIVER_LAST,
    DELIVER_LAST_PER_SUBJECT,
    DELIVER_NEW,
    LIMITS,
    PRIORITY_NONE,
    PRIORITY_PINNED,
    WORKQUEUE,
    ConsumerConfig,
    StreamConfig,
)
from gnats.jetstream.settings.overlaps import Overlaps, first_invalid
from gnats.jetstream.settings.stream_rules import (
    MAX_DESCRIPTION_LEN,
    MAX_METADATA_LEN,
    MAX_NAME_LEN,
    metadata_len,
    valid_asset_name,
)
from gnats.options.values.limits import JetStreamAccountLimits, JSLimitOpts

DEFAULT_ACK_WAIT = 30_000_000_000
DEFAULT_MAX_ACK_PENDING = 1000
DEFAULT_MAX_WAITING = 512
DEFAULT_PINNED_TTL = 120_000_000_000
DEFAULT_INACTIVE_THRESHOLD = 5_000_000_000
"""Default inactive threshold of ephemeral consumers, in nanoseconds."""
SOURCE_HEARTBEAT = SECOND
"""Idle heartbeat of the consumers of mirrors and sources, in nanoseconds."""

_SHORTEST_HEARTBEAT = 100_000_000
_GROUP_NAME = re.compile(r"[a-zA-Z0-9/_=-]{1,16}")
_DECIMAL = re.compile(r"[+-]?[0-9]+")

_NOT_NEGATIVE = (
    ("max_batch", "max_batch must not be negative"),
    ("max_expires", "max_expires must not be negative"),
    ("max_bytes", "max_bytes must not be negative"),
    ("idle_heartbeat", "idle_heartbeat must not be negative"),
    ("inactive_threshold", "inactive_threshold must not be negative"),
    ("priority_timeout", "priority_timeout must not be negative"),
)


def with_defaults(
    config: ConsumerConfig,
    stream: StreamConfig,
    server: JSLimitOpts,
    account: JetStreamAccountLimits,
    *,
    pedantic: bool = False,
) -> ConsumerConfig:
    """Fill in defaults for unset and impossible values. Raises ApiError.

    Pedantic mode refuses a value that would have to change.
    """
    config = _without_negatives(config, pedantic)
    new: dict[str, Any] = {}
    if not config.deliver_subject and config.max_waiting == 0:
        new["max_waiting"] = DEFAULT_MAX_WAITING
    if config.ack_wait == 0 and config.ack_policy in (ACK_EXPLICIT, ACK_ALL):
        new["ack_wait"] = DEFAULT_ACK_WAIT
    if config.backoff:
        if pedantic and new.get("ack_wait", config.ack_wait) != config.backoff[0]:
            raise pedantic_error("first backoff value has to equal batch AckWait")
        new["ack_wait"] = config.backoff[0]
    limits = stream.consumer_limits
    if config.max_ack_pending == 0:
        if pedantic and limits.max_ack_pending > 0:
            raise pedantic_error("max_ack_pending must be set if it's configured in stream limits")
        new["max_ack_pending"] = limits.max_ack_pending
    if config.inactive_threshold == 0:
        if pedantic and limits.inactive_threshold > 0:
            raise pedantic_error("inactive_threshold must be set if it's configured in stream limits")
        new["inactive_threshold"] = limits.inactive_threshold
    config = replace(config, **new) if new else config
    new = {}
    if config.max_ack_pending == 0 and config.ack_policy != ACK_NONE:
        most = (DEFAULT_MAX_ACK_PENDING, server.max_ack_pending, account.max_ack_pending)
        new["max_ack_pending"] = min(limit for limit in most if limit > 0)
    if not config.deliver_subject and config.max_batch == 0 and server.max_request_batch > 0:
        if pedantic:
            raise pedantic_error("max_request_batch must be set if it's JetStream limits are set")
        new["max_batch"] = server.max_request_batch
    if config.priority_policy == PRIORITY_PINNED and config.priority_timeout == 0:
        new["priority_timeout"] = DEFAULT_PINNED_TTL
    if config.ack_policy == ACK_FLOW_CONTROL and not pedantic:
        new |= {"flow_control": True, "idle_heartbeat": SOURCE_HEARTBEAT}
    return replace(config, **new) if new else config


def _without_negatives(config: ConsumerConfig, pedantic: bool) -> ConsumerConfig:
    new = {}
    if config.max_deliver == 0 or config.max_deliver < -1:
        if pedantic and config.max_deliver < -1:
            raise pedantic_error("max_deliver must be set to -1")
        new["max_deliver"] = -1
    if config.max_waiting < 0:
        if pedantic:
            raise pedantic_error("max_waiting must not be negative")
        new["max_waiting"] = 0
    if config.max_ack_pending < -1:
        if pedantic:
            raise pedantic_error("max_ack_pending must be set to -1")
        new["max_ack_pending"] = -1
    for name, refusal in _NOT_NEGATIVE:
        if getattr(config, name) < 0:
            if pedantic:
                raise pedantic_error(refusal)
            new[name] = 0
    return replace(config, **new) if new else config  # type: ignore[arg-type]


def check_consumer_cfg(
    config: ConsumerConfig,
    server: JSLimitOpts,
    stream: StreamConfig,
    account: JetStreamAccountLimits,
    *,
    recovering: bool = False,
    overlaps: Overlaps | None = None,
) -> None:
    """Raise ApiError for an invalid configuration (with its defaults); Stopped at shutdown. Any thread."""
    if config.name and not valid_asset_name(config.name):
        raise invalid_config("consumer name can not contain '.', '*', '>', '\\', '/'")
    if config.durable_name and not valid_asset_name(config.durable_name):
        raise invalid_config("consumer durable name can not contain '.', '*', '>', '\\', '/'")
    if 0 < stream.num_replicas < config.num_replicas:
        raise errors.CONSUMER_REPLICAS_EXCEEDS_STREAM()
    if config.num_replicas < 0:
        raise errors.REPLICAS_COUNT_CANNOT_BE_NEGATIVE()
    if stream.retention != LIMITS and not recovering and config.num_replicas not in (0, stream.num_replicas):
        raise errors.CONSUMER_REPLICAS_SHOULD_MATCH_STREAM()
    if any(wait < 0 for wait in config.backoff):
        raise errors.CONSUMER_BACK_OFF_NEGATIVE()
    if config.ack_wait < 0:
        raise errors.CONSUMER_ACK_WAIT_NEGATIVE()
    if config.ack_policy == ACK_FLOW_CONTROL:
        _check_flow_control_acks(config)
    if config.backoff and config.max_deliver != -1 and len(config.backoff) > config.max_deliver:
        raise errors.CONSUMER_MAX_DELIVER_BACKOFF()
    if len(config.description.encode()) > MAX_DESCRIPTION_LEN:
        raise errors.CONSUMER_DESCRIPTION_TOO_LONG(max=MAX_DESCRIPTION_LEN)
    if config.deliver_subject:
        _check_push(config, stream)
    else:
        _check_pull(config, server, stream)
    _check_maxima(config, server, stream, account)
    if config.direct:
        if not config.deliver_subject:
            raise errors.CONSUMER_DIRECT_REQUIRES_PUSH()
        if config.is_durable:
            raise errors.CONSUMER_DIRECT_REQUIRES_EPHEMERAL()
    _check_filters(config, overlaps or Overlaps())
    _check_start(config)
    if config.sample_freq:
        _check_sampling(config.sample_freq.removesuffix("%"))
    if config.flow_control and config.idle_heartbeat == 0:
        raise errors.CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS()
    if config.durable_name and config.name and config.name != config.durable_name:
        raise errors.CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH()
    if metadata_len(config.metadata) > MAX_METADATA_LEN:
        raise errors.CONSUMER_METADATA_LENGTH(limit=f"{MAX_METADATA_LEN // 1024}KB")
    _check_priority(config)


def _check_flow_control_acks(config: ConsumerConfig) -> None:
    if not config.deliver_subject:
        raise errors.CONSUMER_ACK_FC_REQUIRES_PUSH()
    if not config.flow_control:
        raise errors.CONSUMER_ACK_FC_REQUIRES_FC()
    if config.idle_heartbeat != SOURCE_HEARTBEAT:
        raise invalid_config("flow control ack policy heartbeat needs to be 1s")
    if config.max_ack_pending <= 0:
        raise errors.CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING()
    if config.ack_wait != 0 or config.backoff:
        raise errors.CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT()
    if config.max_deliver > 0:
        raise errors.CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER()


def _check_push(config: ConsumerConfig, stream: StreamConfig) -> None:
    if has_wildcard(config.deliver_subject):
        raise errors.CONSUMER_DELIVER_TO_WILDCARDS()
    if not valid_subject(config.deliver_subject):
        raise errors.CONSUMER_INVALID_DELIVER_SUBJECT()
    if any(subset_match(config.deliver_subject, subject) for subject in stream.subjects):
        raise errors.CONSUMER_DELIVER_CYCLE()
    if config.max_waiting != 0:
        raise errors.CONSUMER_PUSH_MAX_WAITING()
    if config.max_ack_pending > 0 and config.ack_policy == ACK_NONE:
        raise errors.CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED()
    if 0 < config.idle_heartbeat < _SHORTEST_HEARTBEAT:
        raise errors.CONSUMER_SMALL_HEARTBEAT()


def _check_pull(config: ConsumerConfig, server: JSLimitOpts, stream: StreamConfig) -> None:
    if config.ack_policy == ACK_NONE and stream.retention == WORKQUEUE:
        raise errors.CONSUMER_PULL_REQUIRES_ACK()
    if config.rate_limit_bps > 0:
        raise errors.CONSUMER_PULL_WITH_RATE_LIMIT()
    if config.idle_heartbeat > 0:
        raise errors.CONSUMER_HB_REQUIRES_PUSH()
    if config.flow_control:
        raise errors.CONSUMER_FC_REQUIRES_PUSH()
    if 0 < config.max_expires < MILLISECOND:
        raise errors.CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL()
    if 0 < server.max_request_batch < config.max_batch:
        raise errors.CONSUMER_MAX_REQUEST_BATCH_EXCEEDED(limit=server.max_request_batch)


def _check_maxima(
    config: ConsumerConfig, server: JSLimitOpts, stream: StreamConfig, account: JetStreamAccountLimits
) -> None:
    limits = stream.consumer_limits
    for most in (server.max_ack_pending, account.max_ack_pending, limits.max_ack_pending):
        if 0 < most < config.max_ack_pending:
            raise errors.CONSUMER_MAX_PENDING_ACK_EXCESS(limit=most)
    if 0 < limits.inactive_threshold < config.inactive_threshold:
        raise errors.CONSUMER_INACTIVE_THRESHOLD_EXCESS(limit=duration(limits.inactive_threshold))


def _check_filters(config: ConsumerConfig, overlaps: Overlaps) -> None:
    if config.filter_subject and config.filter_subjects:
        raise errors.CONSUMER_DUPLICATE_FILTER_SUBJECTS()
    if config.filter_subject and not valid_subject(config.filter_subject):
        raise invalid_config("invalid subject")
    if not all(config.filter_subjects):
        raise errors.CONSUMER_EMPTY_FILTER()
    filters = config.filters
    good = first_invalid(filters)
    if overlaps.has_subset(filters[:good]):
        raise errors.CONSUMER_OVERLAPPING_SUBJECT_FILTERS()
    if good < len(filters):
        raise invalid_config("invalid subject")


def _check_start(config: ConsumerConfig) -> None:
    """Refuse a start sequence or time that the deliver policy lacks, or does not use."""
    policy = config.deliver_policy

    def refuse_extra(start: str, also: str) -> ApiError:
        text = f"consumer delivery policy is deliver {start}, but optional start {also} is also set"
        return errors.CONSUMER_INVALID_POLICY(err=text)

    def refuse_missing(start: str, what: str) -> ApiError:
        text = f"consumer delivery policy is deliver {start}, but optional {what} is not set"
        return errors.CONSUMER_INVALID_POLICY(err=text)

    if policy == DELIVER_BY_START_SEQUENCE:
        if config.opt_start_seq == 0:
            raise refuse_missing("by start sequence", "start sequence")
        if config.opt_start_time:
            raise refuse_extra("by start sequence", "time")
    elif policy == DELIVER_BY_START_TIME:
        if not config.opt_start_time:
            raise refuse_missing("by start time", "start time")
        if config.opt_start_seq != 0:
            raise refuse_extra("by start time", "start sequence")
    elif policy in (DELIVER_ALL, DELIVER_LAST, DELIVER_NEW, DELIVER_LAST_PER_SUBJECT):
        start = policy.replace("_", " ")
        if config.opt_start_seq > 0:
            raise refuse_extra(start, "sequence")
        if config.opt_start_time:
            raise refuse_extra(start, "time")
        if policy == DELIVER_LAST_PER_SUBJECT and not config.filters:
            raise refuse_missing(start, "filter subject")


def _check_sampling(text: str) -> None:
    reason = ""
    if not _DECIMAL.fullmatch(text):
        reason = f"strconv.Atoi: parsing {quote(text)}: invalid syntax"
    elif len(text.lstrip("+-0")) > MAX_DIGITS or not -(1 << 63) <= int(text) < 1 << 63:
        reason = f"strconv.Atoi: parsing {quote(text)}: value out of range"
    elif int(text) < 0:
        reason = "<nil>"
    if reason:
        raise errors.CONSUMER_INVALID_SAMPLING(err=reason)


def is_group_name(name: str) -> bool:
    """Whether a name is valid for a priority group."""
    return _GROUP_NAME.fullmatch(name) is not None


def _check_priority(config: ConsumerConfig) -> None:
    if config.priority_policy == PRIORITY_NONE:
        if config.priority_groups:
            raise errors.CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE()
        if config.priority_timeout > 0:
            raise errors.CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY_NONE()
        return
    if config.deliver_subject:
        raise errors.CONSUMER_PUSH_WITH_PRIORITY_GROUP()
    if not config.priority_groups:
        raise errors.CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP()
    for group in config.priority_groups:
        if not group:
            raise errors.CONSUMER_EMPTY_GROUP_NAME()
        if not is_group_name(group):
            raise errors.CONSUMER_INVALID_GROUP_NAME()


def check_workqueue(config: ConsumerConfig, stream: StreamConfig) -> None:
    """Raise ApiError for a consumer that a work queue cannot have, without regard to its other consumers."""
    if stream.retention != WORKQUEUE or config.direct or config.sourcing:
        return
    if config.ack_policy not in (ACK_EXPLICIT, ACK_FLOW_CONTROL):
        raise errors.CONSUMER_WQ_REQUIRES_EXPLICIT_ACK()
    if config.deliver_policy != DELIVER_ALL:
        raise errors.CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL()


def completed(config: ConsumerConfig) -> ConsumerConfig:
    """Complete a new consumer's configuration: give an ephemeral one an inactive threshold.

    Raises ApiError for a name that is too long.
    """
    if config.is_durable:
        if len(config.durable_name.encode()) > MAX_NAME_LEN:
            raise errors.CONSUMER_NAME_TOO_LONG(max=MAX_NAME_LEN)
        return config
    return ending(config)


def ending(config: ConsumerConfig) -> ConsumerConfig:
    """Set the default inactive threshold when there is none; a stream's limit of it may be below 0."""
    if config.inactive_threshold > 0:
        return config
    return replace(config, inactive_threshold=DEFAULT_INACTIVE_THRESHOLD)


def check_consumer_reset(config: ConsumerConfig, seq: int, seq_from_time: Callable[[int], int]) -> None:
    """Raise ApiError when the deliver policy forbids a consumer to begin anew at `seq`.

    A `seq` of 0 means after the ack floor. `seq_from_time` returns the first sequence stored at or after a
    time in ns since 1970.
    """
    policy, reason = config.deliver_policy, ""
    if not seq:
        return
    if policy == DELIVER_BY_START_SEQUENCE:
        reason = "below start seq" if seq < config.opt_start_seq else ""
    elif policy == DELIVER_BY_START_TIME:
        reason = "below start time" if seq < seq_from_time(unix_ns(config.opt_start_time)) else ""
    elif policy != DELIVER_ALL:
        reason = "not allowed"
    if reason:
        raise errors.CONSUMER_INVALID_RESET(err=reason)


_FIXED: tuple[tuple[str, str], ...] = (
    ("deliver_policy", "deliver policy"),
    ("mem_storage", "storage type"),
    ("direct", "direct"),
    ("sourcing", "sourcing"),
    ("opt_start_seq", "start sequence"),
    ("opt_start_time", "start time"),
    ("ack_policy", "ack policy"),
    ("replay_policy", "replay policy"),
    ("idle_heartbeat", "heart beats"),
    ("flow_control", "flow control"),
)


def check_consumer_update(
    old: ConsumerConfig, new: ConsumerConfig, has_interest: Callable[[str], bool]
) -> None:
    """Raise ApiError for a change that a consumer's configuration does not permit.

    `has_interest` says whether a subject has subscribers. Refusals without a code of their own are a
    CONSUMER_CREATE.
    """
    if old == new:
        return
    for name, what in _FIXED:
        was, will = getattr(old, name), getattr(new, name)
        if name == "opt_start_time" and was and will:
            was, will = parse_rfc3339(was)[0], parse_rfc3339(will)[0]
        if was != will:
            raise errors.CONSUMER_CREATE(err=f"{what} can not be updated")
    if old.deliver_subject != new.deliver_subject:
        if not old.deliver_subject:
            raise errors.CONSUMER_CREATE(err="can not update pull consumer to push based")
        if not new.deliver_subject:
            raise errors.CONSUMER_CREATE(err="can not update push consumer to pull based")
        if has_interest(old.deliver_subject):
            raise errors.CONSUMER_NAME_EXIST()
    if old.max_waiting != new.max_waiting:
        raise errors.CONSUMER_CREATE(err="max waiting can not be updated")
    if new.backoff and new.max_deliver != -1 and len(new.backoff) > new.max_deliver:
        raise errors.CONSUMER_MAX_DELIVER_BACKOFF()
