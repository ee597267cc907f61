"""A server of which one call of malloc or of the system fails when a test says so; see failing_server.c."""

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
    """What fails, and so numbered in failing_server.c."""

    MEMORY = 1
    EPOLL_CTL = 2
    TIMERFD_SETTIME = 3
    SENDMSG = 4
    RECV = 5


class Control(ctypes.Structure):
    """What the server shares with the test."""

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
    """Calls of the compiled modules of core, store and jetstream, in the process that has `variables`.

    `exempt` ones never fail: "core/runtime/inbox". Calls are told apart by the nearest `depth` callers.
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
        """How many ways to a call have failed so far."""
        return int(self._control.nways)

    def fail_next(self, call: Call, error: int = errno.ENOMEM) -> None:
        """The next call fails that comes along a way on which none has failed yet, and then no other."""
        self._control.error = error
        self._failed = self._control.failed
        self._control.wanted = call

    def stop(self) -> str:
        """Where a call has failed since fail_next(): modules and offsets, the caller first; "" for none."""
        self._control.wanted = 0
        return self._control.where.decode() if self._control.failed != self._failed else ""


def build(directory: Path, exempt: tuple[str, ...] = (), depth: int = 6) -> Failing:
    """Of a server that is run by `wrapper`. Raises CalledProcessError, or FileNotFoundError without gcc."""
    library = directory / "failing.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True, timeout=60)
    return Failing(directory / "control", library, exempt, depth)


def here(depth: int) -> Failing:
    """Of this process, which was started with `variables`."""
    return Failing(Path(os.environ[VARIABLE]), Path(), (), depth)
