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
