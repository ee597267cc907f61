"""Let chosen calls of malloc or of the system fail in a server (failing_server.c)."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import subprocess
from enum import IntEnum
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
VARIABLE = "GNATS_FAILING"


class Call(IntEnum):
    """Functions that can fail, with the numbers of failing_server.c."""

    MEMORY = 1
    EPOLL_CTL = 2
    TIMERFD_SETTIME = 3
    SENDMSG = 4
    RECV = 5


class Control(ctypes.Structure):
    """The memory that the server shares with the test."""

    _fields_ = (
        ("wanted", ctypes.c_uint32),
        ("failed", ctypes.c_uint32),
        ("error", ctypes.c_int32),
        ("nways", ctypes.c_uint32),
        ("depth", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("ways", ctypes.c_uint64 * 4096),
        ("where", ctypes.c_char * 1024),
    )


class Failing:
    """Lets calls of compiled modules fail in a process that runs with `variables` or `wrapper`.

    Calls of the modules `exempt` ("core/runtime/inbox") never fail. A *way* to a call is its nearest `depth`
    callers in core, store and jetstream.
    """

    def __init__(self, path: Path, library: Path, exempt: tuple[str, ...], depth: int) -> None:
        with path.open("a+b") as file:
            file.truncate(ctypes.sizeof(Control))
            self._memory = mmap.mmap(file.fileno(), ctypes.sizeof(Control))
        self._control = Control.from_buffer(self._memory)
        self._control.depth = depth
        self.variables = {
            "LD_PRELOAD": str(library),
            VARIABLE: str(path),
            "GNATS_FAILING_EXEMPT": f",{','.join(exempt)},",
        }
        self.wrapper = ("env", *(f"{name}={value}" for name, value in self.variables.items()))

    @property
    def ways(self) -> int:
        """Number of ways to a call that have failed so far."""
        return int(self._control.nways)

    def fail_next(self, call: Call, error: int = errno.ENOMEM) -> None:
        """Let the next call fail whose way is new, with errno `error`, and no call after it."""
        self._control.error = error
        self._failed = self._control.failed
        self._control.wanted = call

    def stop(self) -> str:
        """Let no call fail any more. Return the way of the call that failed since fail_next(), "" for none.

        A way is modules and offsets in them, the nearest caller first.
        """
        self._control.wanted = 0
        return self._control.where.decode() if self._control.failed != self._failed else ""


def build(directory: Path, exempt: tuple[str, ...] = (), depth: int = 6) -> Failing:
    """Build the library; return a Failing for a server that is run by its `wrapper`.

    Raises CalledProcessError, or FileNotFoundError without gcc.
    """
    library = directory / "failing.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True, timeout=60)
    return Failing(directory / "control", library, exempt, depth)


def here(depth: int) -> Failing:
    """Return the Failing of this process, which must run with `variables`."""
    return Failing(Path(os.environ[VARIABLE]), Path(), (), depth)
