"""Configurations of streams and consumers, good and bad, to request from servers."""

from __future__ import annotations

import itertools
from typing import Any

from gnats.go.text import SECOND

NAMES = ["", "a b", "a.b", "a*", "a>", "a/b", "a\\b", "\u00e4", "x" * 255, "x" * 256, "a\tb"]

_NUMBERS = (-2, -1, 0, 1, 5)
_SOURCE: dict[str, list[Any]] = {
    "name": ["", "bad.name", "OTHER", "ORIGIN"],
    "opt_start_seq": [5],
    "opt_start_time": ["2020-01-01T00:00:00Z", "2020-01-01T01:00:00.500+02:00"],
    "filter_subject": ["o.x", "o..x", "o.>"],
    "subject_transforms": [
        [{"src": "o.>", "dest": "p.>"}],
        [{"src": "o.*", "dest": "p.$1"}, {"src": "o.>", "dest": "q.>"}],
        [{"src": "o.*", "dest": "p.{{wildcard(2)}}"}],
        [{"src": "o..", "dest": "p"}],
        [{"src": "", "dest": "p.>"}],
        [{"src": "o.a", "dest": ""}, {"src": "o.b", "dest": ""}],
        [{"src": "o.a", "dest": "x.{{nothing(1)}}"}],
    ],
    "external": [
        {"api": "$JS.hub.API", "deliver": "deliver.here"},
        {"api": "", "deliver": ""},
        {"api": "$JS.API", "deliver": ""},
        {"api": "$JS.*.API", "deliver": ""},
        {"api": "x", "deliver": "d.>"},
    ],
    "consumer": [
        {"name": "c", "deliver_subject": "d"},
        {"name": "", "deliver_subject": "d"},
        {"name": "c", "deliver_subject": ""},
        {"name": "c", "deliver_subject": "d.*"},
    ],
}


def _sources() -> list[dict[str, Any]]:
    base = {"name": "ORIGIN"}
    found = [base | {field: value} for field, values in _SOURCE.items() for value in values]
    return [
        base,
        *found,
        base | {"filter_subject": "o.x", "subject_transforms": [{"src": "o.>", "dest": "p.>"}]},
        base | {"consumer": {"name": "c", "deliver_subject": "d"}, "opt_start_seq": 3},
        base | {"consumer": {"name": "c", "deliver_subject": "d"}, "filter_subject": "o.x"},
    ]


STREAM_FIELDS: dict[str, list[Any]] = {
    "description": ["text", "d" * 4096, "d" * 4097],
    "subjects": [
        [],
        ["a.>"],
        ["a", "a"],
        ["a.*", "a.b"],
        ["a..b"],
        [">"],
        ["$JS.x"],
        ["$JS.EVENT.>"],
        ["$SYS.x"],
        ["$SYS.ACCOUNT.>"],
        ["$KV.b.>"],
        ["*"],
        ["a b"],
        ["*.x"],
        [""],
        ["o.x"],
        ["_INBOX.>"],
    ],
    "retention": ["limits", "interest", "workqueue"],
    "max_consumers": _NUMBERS,
    "max_msgs": _NUMBERS,
    "max_bytes": (*_NUMBERS, 1 << 62),
    "max_age": (-1, 0, 1, 99_999_999, 100_000_000, SECOND),
    "max_msgs_per_subject": _NUMBERS,
    "max_msg_size": (*_NUMBERS, 1 << 20),
    "discard": ["old", "new", "NEW"],
    "storage": ["file", "memory"],
    "num_replicas": (-1, 0, 1, 3, 5, 6),
    "no_ack": [True],
    "duplicate_window": (-1, 0, 1, 100_000_000, SECOND, 3600 * SECOND),
    "placement": [{}, {"cluster": "c"}, {"tags": ["a"]}, {"preferred": "p"}],
    "mirror": _sources(),
    "sources": [
        *([source] for source in _sources()),
        [None],
        [{"name": "ORIGIN"}, {"name": "ORIGIN"}],
        [{"name": "ORIGIN"}, {"name": "ORIGIN", "filter_subject": "o.x"}],
        [
            {"name": "ORIGIN", "consumer": {"name": "c", "deliver_subject": "d"}},
            {
                "name": "ORIGIN",
                "consumer": {"name": "c", "deliver_subject": "d"},
                "subject_transforms": [{"src": "o.>", "dest": "p.>"}],
            },
        ],
        [{"name": "TESTED"}],
    ],
    "compression": ["none", "s2"],
    "first_seq": [0, 10],
    "subject_transform": [
        {"src": "", "dest": "t.>"},
        {"src": "a.*", "dest": "t.$1"},
        {"src": "a..", "dest": "t"},
        {"src": "a.*", "dest": "t.{{wildcard(5)}}"},
        {"src": "TESTED", "dest": "t.TESTED"},
    ],
    "republish": [
        {"src": "", "dest": "r.>"},
        {"src": "a.*", "dest": "r.$1", "headers_only": True},
        {"src": ">", "dest": ">"},
        {"src": "a.*", "dest": "r.$2"},
        {"dest": "TESTED"},
        {"src": "a..", "dest": "r"},
    ],
    "allow_direct": [True],
    "mirror_direct": [True],
    "discard_new_per_subject": [True],
    "sealed": [True],
    "deny_delete": [True],
    "deny_purge": [True],
    "allow_rollup_hdrs": [True],
    "consumer_limits": [{}, {"inactive_threshold": SECOND, "max_ack_pending": 10}],
    "allow_msg_ttl": [True],
    "subject_delete_marker_ttl": (-1, 1, SECOND),
    "allow_msg_counter": [True],
    "allow_atomic": [True],
    "allow_msg_schedules": [True],
    "persist_mode": ["", "default", "async"],
    "allow_batched": [True],
    "metadata": [{"a": "b"}, {"_nats.ver": "1", "_nats.req.level": "7"}, {"k": "v" * (128 * 1024)}],
}

_TOGETHER: tuple[tuple[str, ...], ...] = (
    ("subjects", "no_ack"),
    ("subjects", "republish"),
    ("mirror", "subjects"),
    ("mirror", "first_seq"),
    ("mirror", "allow_msg_counter"),
    ("mirror", "mirror_direct"),
    ("mirror", "max_msg_size"),
    ("mirror", "subject_delete_marker_ttl"),
    ("sources", "allow_msg_schedules"),
    ("sources", "max_msg_size"),
    ("max_age", "duplicate_window"),
    ("deny_purge", "allow_rollup_hdrs"),
    ("allow_msg_counter", "discard"),
    ("allow_msg_counter", "retention"),
    ("allow_msg_counter", "allow_msg_ttl"),
    ("allow_msg_counter", "allow_msg_schedules"),
    ("allow_msg_schedules", "discard"),
    ("discard_new_per_subject", "discard", "max_msgs_per_subject"),
    ("persist_mode", "storage"),
    ("persist_mode", "allow_atomic"),
    ("subject_transform", "republish"),
    ("subject_delete_marker_ttl", "deny_purge"),
)


def stream_configs() -> list[dict[str, Any]]:
    """Return configurations of a stream TESTED, for a server with a stream ORIGIN.

    ORIGIN has the subjects o.> and a max_msg_size of 1000 bytes.
    """
    base = {"name": "TESTED"}
    found = [{"name": name} for name in NAMES]
    found += [base | {field: value} for field, values in STREAM_FIELDS.items() for value in values]
    for fields in _TOGETHER:
        for values in itertools.product(*(STREAM_FIELDS[field] for field in fields)):
            found.append(base | dict(zip(fields, values, strict=True)))
    return found


CONSUMER_FIELDS: dict[str, list[Any]] = {
    "name": [*NAMES, "other"],
    "durable_name": [*NAMES, "other"],
    "description": ["text", "d" * 4097],
    "deliver_policy": [
        "all",
        "last",
        "new",
        "by_start_sequence",
        "by_start_time",
        "last_per_subject",
        "undefined",
    ],
    "opt_start_seq": [7],
    "opt_start_time": ["2020-01-01T00:00:00Z"],
    "ack_policy": ["none", "all", "explicit", "flow_control"],
    "ack_wait": (-1, 0, 1, SECOND),
    "max_deliver": (*_NUMBERS, 10),
    "backoff": [[], [SECOND], [SECOND, 2 * SECOND, 3 * SECOND], [-1]],
    "filter_subject": ["t.x", "t..x", "t.*", "nothing"],
    "filter_subjects": [["t.a", "t.b"], ["t.*", "t.a"], [""], ["t..a"], ["t.a", "t.a"], ["t.>"]],
    "replay_policy": ["instant", "original"],
    "rate_limit_bps": [0, 1024],
    "sample_freq": ["100%", "50", "-1", "x", "", "1%%", "99999999999999999999", "9" * 5000],
    "max_waiting": (*_NUMBERS, 512),
    "max_ack_pending": (*_NUMBERS, 100_000),
    "flow_control": [True],
    "headers_only": [True],
    "max_batch": (-1, 0, 10),
    "max_expires": (-1, 1, 1_000_000, SECOND),
    "max_bytes": (-1, 0, 100),
    "deliver_subject": ["d", "d.*", "d..x", "t.x", "d x"],
    "deliver_group": ["g"],
    "idle_heartbeat": (-1, 1, 100_000_000, SECOND),
    "inactive_threshold": (-1, 0, SECOND),
    "num_replicas": (-1, 0, 1, 2),
    "mem_storage": [True],
    "direct": [True],
    "metadata": [{"a": "b"}, {"_nats.ver": "1"}, {"k": "v" * (128 * 1024)}],
    "pause_until": ["2100-01-01T00:00:00+01:00", "0001-01-01T00:00:00Z"],
    "priority_groups": [["g"], [""], ["bad name"], ["a", "b"], ["x" * 17]],
    "priority_policy": ["none", "overflow", "pinned_client", "prioritized"],
    "priority_timeout": (-1, 0, SECOND),
}

_CONSUMER_TOGETHER: tuple[tuple[str, ...], ...] = (
    ("deliver_policy", "opt_start_seq"),
    ("deliver_policy", "opt_start_time"),
    ("deliver_policy", "filter_subject"),
    ("deliver_subject", "ack_policy"),
    ("deliver_subject", "ack_policy", "max_ack_pending"),
    ("deliver_subject", "idle_heartbeat", "flow_control"),
    ("deliver_subject", "max_waiting"),
    ("deliver_subject", "priority_policy", "priority_groups"),
    ("ack_policy", "ack_wait", "backoff"),
    ("max_deliver", "backoff"),
    ("priority_policy", "priority_groups"),
    ("priority_policy", "priority_timeout"),
    ("filter_subject", "filter_subjects"),
    ("durable_name", "name"),
    ("direct", "deliver_subject"),
)


def consumer_configs() -> list[dict[str, Any]]:
    """Return configurations of a consumer, for a stream with the subjects t.>."""
    found: list[dict[str, Any]] = [{}]
    found += [{field: value} for field, values in CONSUMER_FIELDS.items() for value in values]
    for fields in _CONSUMER_TOGETHER:
        for values in itertools.product(*(CONSUMER_FIELDS[field] for field in fields)):
            found.append(dict(zip(fields, values, strict=True)))
    return found
