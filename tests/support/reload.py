"""Reload the configuration of a server process, and read from its log what it says."""

from __future__ import annotations

import re
import signal

from .servers import Server

_DONE = re.compile(r"Reloaded server configuration.*\n|Failed to reload server configuration: .*\n")
_SAID = re.compile(r"\] ((?:Reload(?:ed)?:|Failed to reload|Closed \d+ connections to fall) ?.*)")

FAILED = "Failed to reload server configuration: "
ALWAYS = ("Reloaded: authorization users", "Reloaded: accounts")
"""Lines that the reference logs at each reload, and gnats only when these options have changed."""


def reload(server: Server, config: str) -> list[str]:
    """Reload with another configuration; return the log's lines about changes. The reload must succeed."""
    said = attempt(server, config)
    assert not said or not said[-1].startswith(FAILED), said
    return said


def refused(server: Server, config: str) -> str:
    """Reload with a configuration that the server must refuse; return its reason, the only line logged."""
    (said,) = attempt(server, config)
    assert said.startswith(FAILED), said
    return said.removeprefix(FAILED)


def attempt(server: Server, config: str) -> list[str]:
    start, line = server.log_size, server.lines
    hang_up(server, config)
    server.wait_log(_DONE, start)
    return _SAID.findall(server.log_from(line))


def hang_up(server: Server, config: str) -> None:
    """Write the server's configuration and send SIGHUP; do not wait for the reload."""
    threads = "" if server.kind.is_reference else f"\nio_threads: {server.kind.io_threads}\n"
    server.conf.write_text(config + threads)
    server.process.send_signal(signal.SIGHUP)


def without_always(said: list[str]) -> list[str]:
    return [line for line in said if line not in ALWAYS]
