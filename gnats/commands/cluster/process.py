"""The process of a member: its start, its log, its messages about links, its end."""

import asyncio
import codecs
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from gnats.commands.systemd import CLUSTERS, HUBS, LINKED

_CHUNK = 1 << 16
_LONGEST_MESSAGE = 1 << 16
_PR_SET_PDEATHSIG = 1
_LEFT_OUT = ("WATCHDOG_USEC", "WATCHDOG_PID")
"""Variables of a service manager: a member has none but this command."""

_prctl = ctypes.CDLL(None, use_errno=True).prctl


class MemberProcess:
    """A gnats-server in a process of its own, which ends with this one.

    It reports to a socket in `folder`, as to a service manager. `show` is called with lines of its log,
    `changed` when `ready`, `linked`, `hubs` or `clusters` have changed.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        show: Callable[[str, Sequence[str]], object],
        changed: Callable[[], object],
    ) -> None:
        self.name = name
        self.ready = False
        """It accepts clients."""
        self.linked: frozenset[str] = frozenset()
        """The other members to which it has all connections."""
        self.hubs: frozenset[str] = frozenset()
        """Of a leaf node: the members to which it is connected."""
        self.clusters: frozenset[str] = frozenset()
        """The other clusters to which it is connected."""
        self._show = show
        self._changed = changed
        self._address = folder / f"{name}.notify"
        self._socket: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, conf: Path) -> None:
        """Start the server. Raises OSError."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(str(self._address))
        asyncio.get_running_loop().add_reader(self._socket, self._read_messages)
        environ = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "gnats.main",
            "-c",
            str(conf),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environ | {"NOTIFY_SOCKET": str(self._address)},
            start_new_session=True,  # a Ctrl-C is for this process, which stops the members
            preexec_fn=_end_with_parent(os.getpid()),
        )

    async def follow(self) -> int:
        """Show the log until the server has ended; return its exit code, negative for a signal."""
        assert self._process and self._process.stdout
        decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        rest = ""
        while chunk := await self._process.stdout.read(_CHUNK):
            *lines, rest = (rest + decode(chunk)).split("\n")
            if lines:
                self._show(self.name, lines)
        if rest:
            self._show(self.name, [rest])
        return await self._process.wait()

    def send_signal(self, signum: signal.Signals) -> None:
        """Send a signal to the server, unless it has ended."""
        if self._process and self._process.returncode is None:
            self._process.send_signal(signum)

    def close(self) -> None:
        """Close the socket. The server must have ended."""
        if self._socket:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _read_messages(self) -> None:
        assert self._socket
        while True:
            try:
                message = self._socket.recv(_LONGEST_MESSAGE).decode(errors="replace")
            except BlockingIOError:
                return
            for line in message.split("\n"):
                name, _, value = line.partition("=")
                if name == "READY":
                    self.ready = True
                elif name == LINKED:
                    self.linked = frozenset(value.split())
                elif name == HUBS:
                    self.hubs = frozenset(value.split())
                elif name == CLUSTERS:
                    self.clusters = frozenset(value.split())
            self._changed()


def _end_with_parent(parent: int) -> Callable[[], None]:
    """Return what the child calls before it runs the server, so that it ends when its parent does."""

    def in_child() -> None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent has ended before
            os._exit(1)

    return in_child
