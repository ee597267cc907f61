"""Fork gnats servers from a process that has imported them; see `forkserver`."""

from __future__ import annotations

import array
import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

PROGRAM = Path(__file__).with_name("forkserver.py")
CHANGES_NOTHING = frozenset(("PYTEST_CURRENT_TEST",))
"""Environment variables that pytest sets for each test; servers do not read them."""


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in CHANGES_NOTHING}


class ForkServer:
    """A process that has imported a server. `form` is "lean" or "web"; see `forkserver`."""

    def __init__(self, command: Path, form: str) -> None:
        self.environ = environment()
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen([sys.executable, PROGRAM, command, form], stdin=theirs)
        atexit.register(self.close)

    def ask(self, request: Mapping[str, Any], descriptors: tuple[int, ...] = ()) -> int:
        """Send a request, return the answer. Raises RuntimeError when the fork server has ended."""
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        try:
            with self._lock:
                self._socket.sendmsg([json.dumps(request).encode()], [rights] if descriptors else [])
                number: int = json.loads(self._socket.recv(64))
        except (OSError, ValueError) as fault:
            raise RuntimeError(f"the fork server has ended: {self._process.wait()}") from fault
        return number

    def close(self) -> None:
        """End the fork server, which kills the servers that it forked and that still run."""
        self._socket.close()
        self._process.wait()


class ForkedProcess:
    """A forked server, with the part of subprocess.Popen's interface that tests use. `stderr` is its log."""

    def __init__(self, fork_server: ForkServer, args: list[str], cwd: Path) -> None:
        self._fork_server = fork_server
        self.returncode: int | None = None
        reading, writing = os.pipe()
        nothing = os.open(os.devnull, os.O_RDWR)
        try:
            request = {"do": "run", "args": args, "cwd": str(cwd)}
            self.pid = fork_server.ask(request, (nothing, nothing, writing))
            self._pidfd = os.pidfd_open(self.pid)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
            os.close(nothing)
        self.stderr: IO[str] | None = os.fdopen(reading, errors="replace")
        self._changing = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code (negative: the number of a signal), or None while the process runs."""
        return self._end(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait up to `timeout` seconds and return the exit code. Raises subprocess.TimeoutExpired."""
        code = self._end(None if timeout is None else timeout * 1000)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired("gnats-server", timeout)
        return code

    def _end(self, milliseconds: float | None) -> int | None:
        if self.returncode is None:
            with self._changing:
                if self._pidfd < 0:  # another thread has seen the end
                    return self.returncode
                watch = select.poll()
                watch.register(self._pidfd, select.POLLIN)
                if watch.poll(milliseconds):
                    status = self._fork_server.ask({"do": "reap", "pid": self.pid})
                    self.returncode = os.waitstatus_to_exitcode(status)
                    os.close(self._pidfd)
                    self._pidfd = -1
        return self.returncode

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._pidfd, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


_running: dict[tuple[Path, str], ForkServer] = {}
_starting = threading.Lock()


def fork(command: Path, form: str, args: list[str], cwd: Path) -> ForkedProcess | None:
    """Fork a server. Return None when the environment has changed since the fork server started.

    A forked server would have the old environment, so the caller must start the program.
    """
    with _starting:
        if (key := (command, form)) not in _running:
            _running[key] = ForkServer(command, form)
        fork_server = _running[key]
    if environment() != fork_server.environ:
        return None
    return ForkedProcess(fork_server, args, cwd)
