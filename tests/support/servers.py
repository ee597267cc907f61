"""Find servers, start them on a random loopback port, read their logs, and stop them by pid."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gnats.testing.rest import NotAtRest, ServerProcess, wait_for_rest

from .forks import ForkedProcess, fork
from .process import SANITIZED

T = TypeVar("T")

MATCHED = 20
"""Lines of a log that a pattern to wait for matches at most."""
TIMEOUT = 30.0  # seconds to wait for a start, a stop, or a line of the log
TROUBLE = re.compile(
    r"^(Traceback |Exception |Fatal Python error|Task exception was never retrieved|panic: |fatal error: )"
    r"|was never awaited|Sanitizer",
    re.MULTILINE,
)
LISTENING = re.compile(r"Listening for client connections on (\S+):(\d+)")
READY = re.compile(r"Server is ready")
WEB = re.compile(r"http|monitor|-m|-ms")
"""Matches the configuration or the arguments of every server with a monitoring port, and of some without."""
FORKS = os.environ.get("GNATS_TEST_FORKS", "yes") != "no"
"""Whether gnats servers are forked from a process that has imported them, rather than started as programs."""


class NotInstalled(Exception):
    """The command of a server is not next to this Python."""


@dataclass(frozen=True)
class Kind:
    """A server to test: its console command, and for gnats the number of its I/O threads (else None).

    `ended_by` is the signal after which it ends with status 0. `compresses` says whether it knows of
    compression between servers.
    """

    name: str
    command: str
    io_threads: int | None = None
    ended_by: signal.Signals = signal.SIGTERM
    compresses: bool = True

    @property
    def is_reference(self) -> bool:
        return self.io_threads is None

    def find(self) -> Path:
        """Return the path of the command. Raises NotInstalled."""
        path = Path(sys.executable).parent / self.command
        if not path.exists():
            raise NotInstalled(f"{self.command} is not installed next to {path.with_name('python')}")
        return path

    def run(self, directory: Path, *args: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end in a folder. Raises NotInstalled, subprocess.TimeoutExpired."""
        return subprocess.run(
            [self.find(), *args],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )


REFERENCE = Kind("reference", "nats-server")
KINDS = {
    kind.name: kind
    for kind in (REFERENCE, Kind("gnats-loop", "gnats-server", 0), Kind("gnats-threads", "gnats-server", 2))
}


def selected() -> list[Kind]:
    """Return the kinds named in GNATS_TEST_SERVERS (comma separated), or all. Raises ValueError."""
    names = os.environ.get("GNATS_TEST_SERVERS", ",".join(KINDS)).split(",")
    if unknown := [name for name in names if name not in KINDS]:
        raise ValueError(
            f"GNATS_TEST_SERVERS: no server called {', '.join(unknown)}; known: {', '.join(KINDS)}"
        )
    return [KINDS[name] for name in names]


def reserve_port(holder: object) -> int:
    """Have the system give a port to nobody else while `holder` exists, also while no server listens on it.

    A socket that does not listen does not hinder one that does, where both have SO_REUSEADDR.
    """
    both = socket.has_dualstack_ipv6()
    reserved = socket.socket(socket.AF_INET6 if both else socket.AF_INET)
    weakref.finalize(holder, reserved.close)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if both:
        reserved.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    reserved.bind(("", 0))
    port: int = reserved.getsockname()[1]
    return port


class Server:
    """One running server process."""

    monitor_host = "127.0.0.1"

    def __init__(
        self,
        kind: Kind,
        directory: Path,
        *args: str,
        config: str = "",
        wrapper: Sequence[str] = (),
        ready: bool = True,
    ) -> None:
        """Start the server in `directory`; with `ready`, wait until it logs that it is ready.

        `config` is text in the format of nats-server.conf; `wrapper` is a command to run the server with.
        Raises NotInstalled, or RuntimeError with the log when the process ends before it is ready.
        """
        self.kind = kind
        self.directory = directory
        self.args = args
        self.wrapper = wrapper
        directory.mkdir(parents=True, exist_ok=True)
        self.conf = directory / "server.conf"
        self.conf.write_text(config + ("" if kind.is_reference else f"\nio_threads: {kind.io_threads}\n"))
        self._reserved = reserve_port(self)
        self._start()
        if ready:
            self.wait_ready()

    def _start(self) -> None:
        self._lines: list[str] = []
        self._sizes = [0]
        """The length of the log before each line, and of all of it."""
        self._changed = threading.Condition()
        self._ended = False
        command = self.kind.find()
        args = ["-a", "127.0.0.1", "-p", str(self._reserved), "-c", str(self.conf), *self.args]
        self.process: subprocess.Popen[str] | ForkedProcess
        if (form := self._form()) and (forked := fork(command, form, args, self.directory)):
            self.process = forked
        else:
            self.process = subprocess.Popen(
                [*self.wrapper, command, *args],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        self._reader = threading.Thread(target=self._pump, daemon=True)
        self._reader.start()

    def _form(self) -> str:
        """Return the form of the fork server to use, or "" to start the program."""
        config = self.conf.read_text()
        if self.kind.is_reference or self.wrapper or SANITIZED or not FORKS or "include" in config:
            return ""
        return "web" if WEB.search(" ".join([config, *self.args])) else "lean"

    def wait_ready(self) -> None:
        """Wait until the server logs that it is ready. Raises RuntimeError when it ends or takes TIMEOUT."""
        try:
            host, port_text = self.wait_log(LISTENING).groups()
            self.wait_log(READY)
        except BaseException:
            self.kill()
            raise
        self.host, self.port = host, int(port_text)
        self._at_start = None if self.kind.is_reference else ServerProcess(self._server_pid())

    def _server_pid(self) -> int:
        """Return the pid of the server itself: a wrapper may run it as its child."""
        pid = self.process.pid
        while self.wrapper and (children := _children(pid)):
            pid = children[0]
        return pid

    def wait_for_rest(self) -> None:
        """Return when a gnats server rests, and at once for the reference. Raises NotAtRest with the log."""
        if self._at_start and self.process.poll() is None:
            try:
                wait_for_rest(self._at_start)
            except FileNotFoundError:
                return  # the server has ended: stop() checks its exit code
            except NotAtRest as fault:
                raise NotAtRest(f"{self.kind.name}: {fault}\n{self.log}") from None

    def _pump(self) -> None:
        """Collect the log until the process ends."""
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                with self._changed:
                    self._lines.append(line)
                    self._sizes.append(self._sizes[-1] + len(line))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_log(self, pattern: str | re.Pattern[str], start: int = 0) -> re.Match[str]:
        """Wait for a match of `pattern` in the log at or after offset `start`, and return the first.

        Its own offsets count from the line with `start`. Raises RuntimeError with the log when the process
        ends without one, or after TIMEOUT.
        """
        regex = re.compile(pattern)
        with self._changed:
            line = max(0, bisect_right(self._sizes, start) - 1)
        begin = line  # of the lines to look at: earlier ones have no match, nor the beginning of one

        def search(line: int) -> re.Match[str] | None:
            return regex.search("".join(self._lines[line:]), max(0, start - self._sizes[line]))

        def is_there() -> bool:
            nonlocal begin
            found = search(begin)
            begin = max(line, len(self._lines) - MATCHED)
            return found is not None

        with self._changed:
            self._changed.wait_for(lambda: is_there() or self._ended, TIMEOUT)
            if found := search(line):
                return found
        state = "ended" if self._ended else "runs"
        raise RuntimeError(f"{self.kind.name} {state} without logging {regex.pattern!r}:\n{self.log}")

    @property
    def log(self) -> str:
        """Everything that the process has written to stderr."""
        return "".join(self._lines)

    @property
    def log_size(self) -> int:
        """The length of the log so far."""
        return self._sizes[-1]

    @property
    def lines(self) -> int:
        """How many lines the log has so far."""
        return len(self._lines)

    def log_from(self, line: int) -> str:
        """The log without its first lines."""
        return "".join(self._lines[line:])

    @property
    def url(self) -> str:
        return f"nats://{self.host}:{self.port}"

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def monitor_port(self) -> int:
        """The port of the monitoring endpoint of a server started with `-m`."""
        return int(self.wait_log(r"Starting http monitor on \S+:(\d+)")[1])

    def stop(self, signum: int | None = None, *, rested: bool = True) -> None:
        """Stop the process, by a signal if not by its kind's own.

        Raise AssertionError unless it ends with code 0 and logged no TROUBLE.

        With `rested`, wait first until it rests (gnats only). Raises NotAtRest.
        """
        try:
            if rested:
                self.wait_for_rest()
            if self.process.poll() is None:
                self.process.send_signal(signum or self.kind.ended_by)
            code = self.process.wait(TIMEOUT)
        finally:
            self.kill()
        assert code == 0, f"{self.kind.name} ended with exit code {code}:\n{self.log}"
        assert not TROUBLE.search(self.log), f"{self.kind.name} is in trouble:\n{self.log}"

    def kill(self) -> None:
        """Kill the process if it still runs; afterwards `log` is complete."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(TIMEOUT)
        self._reader.join(TIMEOUT)

    def start_again(self) -> None:
        """Start the stopped server again on the same port."""
        self._start()
        self.wait_ready()


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def until(condition: Callable[[], T | None], patience: float = TIMEOUT) -> T:
    """Call `condition` until its result is true, and return that. Raises TimeoutError after `patience` s.

    For states without an event to wait for, such as the contents of files.
    """
    limit = time.monotonic() + patience
    while not (answer := condition()):
        if time.monotonic() > limit:
            raise TimeoutError(f"{condition} stays {answer!r}")
        time.sleep(0.005)
    return answer
