"""Reloading a server that runs as a process of its own."""

from __future__ import annotations

import re
import signal

from .servers import Server

_DONE = re.compile(r"Reloaded server configuration.*\n|Failed to reload server configuration: .*\n")
_SAID = re.compile(r"\] ((?:Reload(?:ed)?:|Failed to reload|Closed \d+ connections to fall) ?.*)")

FAILED = "Failed to reload server configuration: "
ALWAYS = ("Reloaded: authorization users", "Reloaded: accounts")
"""The reference says this at each reload, gnats when it is so."""


def reload(server: Server, config: str) -> list[str]:
    """Gives the server another configuration, and returns what its log says about what has changed."""
    said = attempt(server, config)
    assert not said or not said[-1].startswith(FAILED), said
    return said


def refused(server: Server, config: str) -> str:
    """Gives the server a configuration that it cannot take, and returns why, after which nothing is said."""
    (said,) = attempt(server, config)
    assert said.startswith(FAILED), said
    return said.removeprefix(FAILED)


def attempt(server: Server, config: str) -> list[str]:
    start = len(server.log)
    hang_up(server, config)
    server.wait_log(_DONE, start)
    return _SAID.findall(server.log[start:])


def hang_up(server: Server, config: str) -> None:
    """Writes the server's configuration and sends it the signal."""
    threads = "" if server.kind.is_reference else f"\nio_threads: {server.kind.io_threads}\n"
    server.conf.write_text(config + threads)
    server.process.send_signal(signal.SIGHUP)


def without_always(said: list[str]) -> list[str]:
    return [line for line in said if line not in ALWAYS]
