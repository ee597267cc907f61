"""Where gnats is meant to differ from the reference server, and why. All that is not named is the same."""

from __future__ import annotations

# Fields of INFO that the reference has and gnats need not have.
INFO_MISSING = {
    "git_commit": "the commit of nats-server; gnats has its own version instead",
    "go": "gnats is not written in Go",
    "xkey": "a key for encrypted auth callouts, which gnats announces only when it offers them",
}

# Fields of INFO that gnats has and the reference has not.
INFO_EXTRA = {
    "gnats": "the version of gnats; `version` names the nats-server whose behaviour it has",
}

# What the command line does otherwise.
COMMAND_LINE = {
    "a bad flag": (
        "gnats says in one line what is wrong and exits with 1; "
        "the reference prints its usage and exits with 0"
    ),
}

# What clients may see otherwise. No test compares these.
PROTOCOL = {
    "a pedantic client's bad subject": (
        "the reference says 'Invalid Publish Subject' twice when the payload comes "
        "in a later read; gnats says it once"
    ),
    "permissions of a single user": (
        "the reference reads permissions beside `user` and `password` and does not apply them; gnats does"
    ),
    "CR inside an argument": (
        "whether the reference drops it, keeps it or takes away the last byte of the argument "
        "depends on how the input is cut into reads"
    ),
}

# Keys of monitoring pages that only the reference has, only gnats has, and keys whose values differ.
MONITOR_MISSING = {
    "git_commit": "the commit of nats-server",
}
MONITOR_EXTRA = {
    "gnats": "the version of gnats",
}
MONITOR_OTHER = {
    "go": "what runs the server",
    "gomaxprocs": "how many threads serve connections",
    "num_cache": "results are cached by pollers, not by accounts",
    "cache_hit_rate": "see num_cache",
    "num_matches": "a cache of the reference's connections is in front of the one that is counted",
    "avg_fanout": "of all look-ups so far; the reference's is of what its cache holds",
    "max_fanout": "see avg_fanout",
}

# What the system account does otherwise. No test compares these.
SYSTEM_ACCOUNT = {
    "snappy": "gnats answers uncompressed who accepts nothing else, and says so (Content-Encoding: identity)",
    "profiles": "PROFILEZ gives cpu, heap and goroutine as text, and has no others",
    "events for nobody": "gnats does not make them: the server's seq counts what was sent",
    "trace of a message over max_payload": "none; the reference makes one if the header came in time",
}

# What monitoring answers otherwise. No test compares these.
MONITOR = {
    "closed connections of $G": (
        "the reference does not find them when it is asked for the account $G; gnats does"
    ),
    "callback": "2.15 ignores it, 2.9 makes a script of any text, gnats of the name of a function",
    "queues": "the names of /ipqueuesz are those of queues that gnats has",
}

# Requests to JetStream at the ends of their ranges (test_js_ends). Of these it is compared only that both
# accept or both refuse: the last names of a path, or a verb and a field, and which values (None: all).
_BROKEN_TEXTS = (b'"a\xffb"', b'"\\ud800"')
JETSTREAM_WORDS: tuple[tuple[tuple[str, ...], tuple[bytes, ...] | None], ...] = (
    # a refusal quotes the JSON as it came; gnats quotes what it has read
    *(
        ((name,), _BROKEN_TEXTS)
        for name in (
            "retention", "discard", "storage", "compression", "persist_mode",
            "ack_policy", "deliver_policy", "replay_policy", "priority_policy", "action",
        )
    ),
    (("Nats-Rollup",), (b"\xff",)),
    # a placement that says nothing is none, also with an empty list of tags
    (("placement", "tags"), (b"[]",)),
    # the reference looks at the size of a header first
    *(((name,), (b"y" * 70_000,)) for name in (
        "Nats-Expected-Stream", "Nats-Expected-Last-Sequence", "Nats-Expected-Last-Msg-Id", "Nats-Rollup",
        "Nats-Expected-Last-Subject-Sequence", "Nats-Incr", "Nats-Schedule",
        "Nats-Expected-Last-Subject-Sequence-Subject",
    )),
)  # fmt: skip
# Where the answers differ.
JETSTREAM_OTHERWISE: tuple[tuple[tuple[str, ...], tuple[bytes, ...] | None], ...] = (
    # a time that no int64 of nanoseconds holds is another one in the reference, and the last one in gnats
    *(((name,), (b'"9999-12-31T23:59:59.999999999Z"',)) for name in ("opt_start_time", "start_time")),
    # the reference cannot store a time of a year below 0, gnats keeps it as it came
    (("pause_until",), (b'"0000-01-01T00:00:00+23:59"',)),
    # twice an idle heartbeat, which is compared with what the request may take, is negative in the reference
    (
        ("NEXT", "idle_heartbeat"),
        (b"4611686018427387904", b"8000000000000000000", b"9223372036854775807"),
    ),
    # a request for a nanosecond: gnats looks for a message before it looks at the time
    (("NEXT", "expires"), (b"1",)),
    # gnats refuses what would bring sequences to their end
    *(
        ((verb, name), (
            b"4611686018427387904",
            b"8000000000000000000", b"9223372036854775807", b"9223372036854775808", b"18446744073709551615",
        ))
        for verb, name in (("STREAM.PURGE.S", "seq"), ("STREAM", "first_seq"), ("CONSUMER.RESET.S.C", "seq"))
    ),
)  # fmt: skip

# Values in configuration files at the ends of their ranges that only one of both takes: (key, value).
CONFIG_ENDS: frozenset[tuple[str, str]] = frozenset()
