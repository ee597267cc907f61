"""JetStream's configurations and requests: well-formed, with any values."""

from __future__ import annotations

from typing import Any

from gnats.go.text import SECOND

from .draw import Draw

STREAMS = ("S0", "S1", "S2", "KV_k")
CONSUMERS = ("C0", "C1", "C2")
TIMES = (
    *("2020-01-01T00:00:00Z", "2030-06-01T12:00:00.5+02:00", "0001-01-01T00:00:00Z"),
    *(
        "2262-04-11T23:47:16.854775807Z",
        "2262-04-12T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "1677-01-01T00:00:00Z",
    ),
)
TIMES_TO_COMPARE = (
    *("2020-01-01T00:00:00Z", "2030-06-01T12:00:00.5+02:00", "0001-01-01T00:00:00Z"),
    "2262-04-11T23:47:16.854775807Z",
)
"""Those of an int64 of nanoseconds, and the zero time: others wrap around in nats-server."""
KEYS = ("a", "b", "a.b", "c.d.e", "x" * 100)


def time(draw: Draw) -> str:
    return draw.choice(TIMES_TO_COMPARE if draw.alone else TIMES)


def prefix(stream: str) -> str:
    return "$KV.k" if stream == "KV_k" else stream.lower()


def subject(draw: Draw, stream: str = "") -> str:
    """Make a subject of a stream, without wildcards."""
    return f"{prefix(stream or draw.choice(STREAMS))}.{draw.choice(KEYS)}"


def filter_of(draw: Draw, stream: str) -> str:
    """Make a filter subject for a consumer of a stream."""
    return f"{prefix(stream)}.{draw.one('>', '>', '*', 'a', 'a.b', '*.b', 'c.>', 'none')}"


def _source(draw: Draw) -> dict[str, Any]:
    stream = draw.choice(STREAMS)
    table: dict[str, object] = {
        "opt_start_seq": Draw.number,
        "opt_start_time": lambda draw: time(draw),
        "filter_subject": lambda draw: filter_of(draw, stream),
    }
    source = {"name": stream} | draw.fields(table, 2)
    if draw.maybe(0.3):
        source["subject_transforms"] = [{"src": f"{prefix(stream)}.>", "dest": "moved.>"}]
        source.pop("filter_subject", None)
    return source


_STREAM: dict[str, object] = {
    "retention": lambda draw: draw.one("limits", "interest", "workqueue"),
    "max_consumers": Draw.number,
    "max_msgs": Draw.number,
    "max_bytes": Draw.number,
    "max_age": Draw.duration,
    "max_msgs_per_subject": Draw.number,
    "max_msg_size": Draw.number,
    "discard": lambda draw: draw.one("old", "new"),
    "discard_new_per_subject": lambda draw: draw.maybe(0.7),
    "storage": lambda draw: draw.one("memory", "file"),
    "num_replicas": lambda draw: draw.one(0, 1, 1, -1, 3),
    "no_ack": lambda draw: draw.maybe(0.3),
    "duplicate_window": Draw.duration,
    "compression": lambda draw: draw.one("none", "s2"),
    "first_seq": Draw.number,
    "subject_transform": lambda draw: {
        "src": draw.one(">", "s0.>", "*.a"),
        "dest": draw.one(">", "t.>", "t.$1"),
    },
    "republish": lambda draw: {
        "src": draw.one(">", "s0.>", "s1.a"),
        "dest": draw.one("again.>", "again.a"),
        "headers_only": draw.maybe(0.3),
    },
    "sealed": lambda draw: draw.maybe(0.1),
    "deny_delete": lambda draw: draw.maybe(0.5),
    "deny_purge": lambda draw: draw.maybe(0.5),
    "allow_rollup_hdrs": lambda draw: draw.maybe(0.8),
    "allow_direct": lambda draw: draw.maybe(0.9),
    "mirror_direct": lambda draw: draw.maybe(0.8),
    "allow_msg_ttl": lambda draw: draw.maybe(0.9),
    "subject_delete_marker_ttl": Draw.duration,
    "allow_msg_counter": lambda draw: draw.maybe(0.8),
    "allow_atomic": lambda draw: draw.maybe(0.9),
    "allow_batched": lambda draw: draw.maybe(0.9),
    "allow_msg_schedules": lambda draw: draw.maybe(0.9),
    "persist_mode": lambda draw: draw.one("default", "async", ""),
    "consumer_limits": lambda draw: {
        "inactive_threshold": draw.duration(),
        "max_ack_pending": draw.number(),
    },
    "metadata": lambda draw: {"k": "v" * draw.small(), "_nats.x": "y"},
    "description": lambda draw: "d" * draw.one(0, 1, 4096, 4097),
    "sources": lambda draw: [_source(draw) for _ in range(draw.randint(1, 2))],
    "subjects": lambda draw: draw.one([">"], ["s0.>", "s1.>"], [], ["$KV.k.>"], ["s0.a", "s0.b"], ["s2.*"]),
}


def stream(draw: Draw, name: str, wild: int) -> dict[str, Any]:
    """Make a StreamConfig, with up to `wild` members that may contradict the others."""
    config: dict[str, Any] = {
        "name": name,
        "subjects": [f"{prefix(name)}.>"],
        "storage": draw.one("memory", "file"),
    }
    if name == "KV_k":
        config |= {
            "max_msgs_per_subject": draw.one(1, 1, 5, 64),
            "allow_rollup_hdrs": True,
            "allow_direct": True,
        }
        config |= {"deny_delete": draw.maybe(0.5), "discard": draw.one("new", "old", "old")}
    if draw.maybe(0.08) and not draw.alone:  # mirrored messages come at any time
        return config | {"mirror": _source(draw), "subjects": []} | draw.fields(_STREAM, wild)
    flags = ["allow_msg_ttl", "allow_atomic", "allow_direct", "allow_batched", "allow_rollup_hdrs"]
    if "discard" not in config:
        flags.append(draw.one("allow_msg_schedules", "allow_msg_schedules", "allow_msg_counter"))
    for flag in flags:
        if draw.maybe(0.6 if flag != "allow_msg_counter" else 0.2):
            config[flag] = True
    if config.get("allow_msg_counter"):
        for flag in ("allow_msg_ttl", "allow_msg_schedules"):
            config.pop(flag, None)
    if draw.maybe(0.3):
        config |= draw.one(
            {"retention": "workqueue"},
            {"retention": "interest"},
            {"max_msgs": draw.randint(1, 20)},
            {"max_bytes": 1 << draw.randint(8, 20)},
            {"max_age": draw.one(1, 2, 3600) * SECOND, "duplicate_window": SECOND},
            {"subject_delete_marker_ttl": SECOND, "allow_msg_ttl": True, "max_age": SECOND}
            | {"duplicate_window": SECOND, "allow_rollup_hdrs": True},
            {"compression": "s2", "storage": "file"},
            {"first_seq": draw.number()},
            {"sources": [_source(draw)]},
        )
    return config | draw.fields(_STREAM, wild)


def _filters(draw: Draw) -> list[str]:
    return [filter_of(draw, draw.choice(STREAMS)) for _ in range(draw.randint(0, 3))]


_CONSUMER: dict[str, object] = {
    "deliver_policy": lambda draw: draw.one("all", "last", "new", "last_per_subject"),
    "ack_wait": Draw.duration,
    "max_deliver": Draw.number,
    "backoff": lambda draw: [draw.duration() for _ in range(draw.randint(0, 3))],
    "filter_subjects": _filters,
    "replay_policy": lambda draw: draw.one("instant", "original"),
    "sample_freq": lambda draw: draw.one("100", "100%", "0", "4294967296", "1%", "x"),
    "max_waiting": Draw.number,
    "max_ack_pending": Draw.number,
    "headers_only": lambda draw: draw.maybe(0.7),
    "max_batch": Draw.number,
    "max_expires": Draw.duration,
    "max_bytes": Draw.number,
    "inactive_threshold": Draw.duration,
    "num_replicas": lambda draw: draw.one(0, 1, 3, -1),
    "mem_storage": lambda draw: draw.maybe(0.7),
    "pause_until": lambda draw: time(draw),
    "rate_limit_bps": Draw.number,
    "opt_start_seq": Draw.number,
    "opt_start_time": lambda draw: time(draw),
    "description": lambda draw: "d" * draw.one(0, 1, 4096, 4097),
    "metadata": lambda draw: {"k": "v"},
    "direct": lambda draw: draw.maybe(0.5),
}


def consumer(draw: Draw, of: str, name: str, wild: int) -> dict[str, Any]:
    """Make a ConsumerConfig, with up to `wild` members that may contradict the others."""
    config: dict[str, Any] = {"name": name, "ack_policy": draw.one("explicit", "explicit", "all", "none")}
    if draw.maybe(0.6):
        config["durable_name"] = name
    if draw.maybe(0.2):
        config["ack_wait"] = SECOND // 2
    if draw.maybe(0.4):
        config["filter_subject"] = filter_of(draw, of)
    start = draw.random()
    if start < 0.15:
        config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": draw.number()}
    elif start < 0.25:
        config |= {"deliver_policy": "by_start_time", "opt_start_time": time(draw)}
    if draw.maybe(0.35):
        config["deliver_subject"] = draw.one("push.a", "push.b", f"push.{name}")
        if draw.maybe(0.3):
            config["deliver_group"] = "q"
        if draw.maybe(0.3):
            config |= {"flow_control": True, "idle_heartbeat": draw.one(1, 5, 3600) * SECOND}
    elif draw.maybe(0.2):
        config["priority_policy"] = draw.one("overflow", "pinned_client", "prioritized", "none")
        config["priority_groups"] = ["g"]
        if draw.maybe(0.3):
            config["priority_timeout"] = draw.duration()
    return config | draw.fields(_CONSUMER, wild)


_PULL: dict[str, object] = {
    "batch": Draw.number,
    "max_bytes": Draw.number,
    "no_wait": lambda draw: draw.maybe(0.6),
    "expires": Draw.duration,
    "idle_heartbeat": lambda draw: draw.one(SECOND, 30 * SECOND, 0, -1),
    "group": lambda draw: draw.one("g", "", "h"),
    "min_pending": Draw.number,
    "min_ack_pending": Draw.number,
    "id": lambda draw: draw.one("", "wrong"),
    "priority": Draw.number,
}


def pull(draw: Draw) -> dict[str, Any]:
    """Make a pull request, for CONSUMER.MSG.NEXT."""
    asked: dict[str, Any] = {"batch": draw.one(1, 1, 2, 10)}
    if draw.maybe(0.5):
        asked["no_wait"] = True
    if draw.maybe(0.5):
        asked["expires"] = draw.one(SECOND // 20, SECOND // 5, SECOND // 2, 30 * SECOND, 3600 * SECOND)
    return asked | draw.fields(_PULL, draw.one(0, 0, 1, 2))


_DIRECT: dict[str, object] = {
    "seq": Draw.number,
    "last_by_subj": lambda draw: subject(draw),
    "next_by_subj": lambda draw: f"{prefix(draw.choice(STREAMS))}.>",
    "batch": Draw.small,
    "max_bytes": Draw.number,
    "start_time": lambda draw: time(draw),
    "multi_last": lambda draw: [f"{prefix(draw.choice(STREAMS))}.>" for _ in range(draw.randint(1, 2))],
    "up_to_seq": Draw.number,
    "up_to_time": lambda draw: time(draw),
    "no_hdr": lambda draw: draw.maybe(0.5),
}


def direct_get(draw: Draw) -> dict[str, Any]:
    return draw.fields(_DIRECT, draw.one(1, 1, 2, 3))


_PURGE: dict[str, object] = {
    "filter": lambda draw: subject(draw) if draw.maybe(0.5) else ">",
    "seq": Draw.number,
    "keep": Draw.number,
}


def purge(draw: Draw) -> dict[str, Any]:
    return draw.fields(_PURGE, 2)


_HEADERS: dict[str, object] = {
    "Nats-Msg-Id": lambda draw: draw.one("m1", "m2", "m" * 300),
    "Nats-Expected-Stream": lambda draw: draw.choice(STREAMS),
    "Nats-Expected-Last-Sequence": lambda draw: str(draw.number()),
    "Nats-Expected-Last-Subject-Sequence": lambda draw: str(draw.number()),
    "Nats-Expected-Last-Subject-Sequence-Subject": lambda draw: subject(draw),
    "Nats-Expected-Last-Msg-Id": lambda draw: draw.one("m1", "m2", ""),
    "Nats-Rollup": lambda draw: draw.one("sub", "all", "none"),
    "Nats-TTL": Draw.seconds,
    "Nats-Incr": lambda draw: str(draw.number()),
    "Nats-Marker-Reason": lambda draw: draw.one("MaxAge", "Purge", "Remove", "x"),
    "KV-Operation": lambda draw: draw.one("DEL", "PURGE"),
    "X-Own": lambda draw: "v" * draw.near_power(10),
    "Nats-Required-Api-Level": lambda draw: str(draw.number()),
    "Nats-Stream-Source": lambda draw: f"S1 {draw.number()} > > s1.a",
}


def headers(draw: Draw) -> list[list[str]]:
    """Make the header lines of a message, as pairs."""
    return [[key, str(value)] for key, value in draw.fields(_HEADERS, draw.one(1, 1, 2, 4)).items()]


LATER = ("@at 2262-01-01T00:00:00Z", "@every 3600s", "0 0 30 2 *", "@every 0s", "@every 9999999h")


def schedule(draw: Draw, of: str, *, later: bool = False) -> list[list[str]]:
    """Make the header of a schedule; with `later`, one that is not due at once."""
    when = draw.one(
        *("@at 2020-01-01T00:00:00Z", "@at 2262-01-01T00:00:00Z", "@every 1s", "@every 3600s", "@hourly"),
        *(
            "0 0 * * * *",
            "0 0 30 2 * *",
            "@every 0s",
            "@at 9999-12-31T23:59:59Z",
            "* * * * * *",
            "@every 9999999h",
        ),
    )
    lines = [
        ["Nats-Schedule", draw.choice(LATER) if later else when],
        ["Nats-Schedule-Target", subject(draw, of)],
    ]
    if draw.maybe(0.3):
        lines.append(["Nats-Schedule-TTL", draw.seconds()])
    if draw.maybe(0.2):
        lines.append(["Nats-Schedule-Source", subject(draw, of)])
    if draw.maybe(0.2):
        lines.append(["Nats-Schedule-Time-Zone", draw.one("Europe/Berlin", "UTC", "No/Where")])
    return lines
