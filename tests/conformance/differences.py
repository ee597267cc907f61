"""The differences of docs/status.md that the comparing tests allow. All else must be the same."""

from __future__ import annotations

# Fields of INFO that the reference has and gnats may lack.
INFO_MISSING = {
    "git_commit": "the commit of nats-server; gnats has its own version instead",
    "go": "gnats is not written in Go",
    "xkey": "a key for encrypted auth callouts, which gnats announces only when it offers them",
}

# Fields of INFO that only gnats has.
INFO_EXTRA = {
    "group_passing": "whether the server knows messages that are passed on to queue groups alone",
    "interest_digests": "whether the server compares digests of interest, over routes and gateways",
    "gnats": "the version of gnats; `version` names the nats-server whose behaviour it has",
}

# Fields of a leaf node's CONNECT that only gnats has.
CONNECT_EXTRA = {"group_passing": INFO_EXTRA["group_passing"]}

# Keys of monitoring pages that only the reference has, only gnats has, and keys whose values differ.
MONITOR_MISSING = {
    "git_commit": "the commit of nats-server",
}
MONITOR_EXTRA = {
    "gnats": "the version of gnats",
}
MONITOR_OTHER = {
    "go": "the runtime's version",
    "gomaxprocs": "the number of threads that serve connections",
    "num_cache": "pollers cache results, not accounts",
    "cache_hit_rate": "see num_cache",
    "num_matches": "the reference's connections have a cache in front of the one that counts",
    "avg_fanout": "of all look-ups since the start; the reference's is of the entries of its cache",
    "max_fanout": "see avg_fanout",
}

# Requests to JetStream with values at the ends of their ranges (test_js_ends) of which the test requires only
# that both servers accept or both refuse. An entry is the end of a path (or a verb and a field), and values;
# None is all values.
_BROKEN_TEXTS = (b'"a\xffb"', b'"\\ud800"')
JETSTREAM_WORDS: tuple[tuple[tuple[str, ...], tuple[bytes, ...] | None], ...] = (
    # The reference's error quotes the JSON as received, gnats's the parsed text.
    *(
        ((name,), _BROKEN_TEXTS)
        for name in (
            "retention", "discard", "storage", "compression", "persist_mode",
            "ack_policy", "deliver_policy", "replay_policy", "priority_policy", "action",
        )
    ),
    (("Nats-Rollup",), (b"\xff",)),
    # For gnats a placement with an empty list of tags is no placement.
    (("placement", "tags"), (b"[]",)),
    # The reference checks the size of the header first.
    *(((name,), (b"y" * 70_000,)) for name in (
        "Nats-Expected-Stream", "Nats-Expected-Last-Sequence", "Nats-Expected-Last-Msg-Id", "Nats-Rollup",
        "Nats-Expected-Last-Subject-Sequence", "Nats-Incr", "Nats-Schedule",
        "Nats-Expected-Last-Subject-Sequence-Subject",
    )),
)  # fmt: skip
# Such requests that gnats answers otherwise on purpose; the tests skip them.
JETSTREAM_OTHERWISE: tuple[tuple[tuple[str, ...], tuple[bytes, ...] | None], ...] = (
    # A time beyond int64 nanoseconds wraps around in the reference; gnats takes the last possible one.
    *(((name,), (b'"9999-12-31T23:59:59.999999999Z"',)) for name in ("opt_start_time", "start_time")),
    # The reference loses a consumer that begins at the last sequence when it starts again; gnats keeps it.
    (("opt_start_seq",), (b"18446744073709551615",)),
    # The reference cannot store a time before the year 0; gnats keeps the text.
    (("pause_until",), (b'"0000-01-01T00:00:00+23:59"',)),
    # The check of two idle heartbeats against the request's expiry overflows in the reference.
    (
        ("NEXT", "idle_heartbeat"),
        (b"4611686018427387904", b"8000000000000000000", b"9223372036854775807"),
    ),
    # A request that expires after 1 ns: gnats looks for a message before it looks at the time.
    (("NEXT", "expires"), (b"1",)),
    # gnats refuses requests that would exhaust the sequences.
    *(
        ((verb, name), (
            b"4611686018427387904",
            b"8000000000000000000", b"9223372036854775807", b"9223372036854775808", b"18446744073709551615",
        ))
        for verb, name in (("STREAM.PURGE.S", "seq"), ("STREAM", "first_seq"), ("CONSUMER.RESET.S.C", "seq"))
    ),
)  # fmt: skip
