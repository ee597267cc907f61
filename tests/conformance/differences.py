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
