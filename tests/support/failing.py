"""Let chosen system calls of the store fail (failing_calls.c), in this process or in a server."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("failing_calls.c")
KINDS = (
    "write", "sync", "dup", "open", "rename", "unlink", "truncate", "mkdir", "mmap", "malloc", "read",
)  # fmt: skip
"""Kinds of calls, in the order of failing_calls.c."""
ERRORS = {
    "write": (errno.ENOSPC, errno.EIO),
    "sync": (errno.EIO,),
    "dup": (errno.EMFILE,),
    # -EPERM is -1
    "open": (errno.EMFILE, errno.EPERM),
    "rename": (errno.EIO,),
    "unlink": (errno.EIO,),
    "truncate": (errno.EIO,),
    "mkdir": (errno.ENOSPC,),
    "mmap": (errno.ENOMEM,),
    "malloc": (errno.ENOMEM,),
    "read": (errno.EIO,),
}
VARIABLE = "GNATS_FAILING"
SYNCED = ctypes.CFUNCTYPE(None, ctypes.c_int)
CALLED = ctypes.CFUNCTYPE(None, ctypes.c_int)


class _Page(ctypes.Structure):
    _fields_ = [
        ("generation", ctypes.c_int64),
        ("kind", ctypes.c_int64),
        ("left", ctypes.c_int64),
        ("error", ctypes.c_int64),
        ("hits", ctypes.c_int64),
        ("seen", ctypes.c_int64 * len(KINDS)),
        ("synced", SYNCED),
        ("called", CALLED),
    ]


def build(directory: Path) -> Path:
    """Build the library to preload, and return its path. Skips the test where there is no compiler."""
    if not (compiler := shutil.which("gcc") or shutil.which("cc")):
        pytest.skip("no C compiler")
    library = directory / "failing.so"
    command = [compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, SOURCE]
    subprocess.run(command, check=True, timeout=60)
    return library


class Failing:
    """Chooses the call that fails in a process with variables(). `path` is a file that both share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists() or path.stat().st_size < ctypes.sizeof(_Page):
            path.write_bytes(bytes(ctypes.sizeof(_Page)))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), ctypes.sizeof(_Page))
        self._page = _Page.from_buffer(self._memory)

    def variables(self, library: Path) -> dict[str, str]:
        return {"LD_PRELOAD": str(library), VARIABLE: str(self.path), "MALLOC_ARENA_MAX": "2"}

    def arm(self, kind: str, call: int, error: int) -> None:
        """Let the `call`-th call of a kind from now on (the first is 1) fail with errno `error`."""
        self._begin(KINDS.index(kind), call, error)

    def count(self) -> None:
        """Let no call fail, and count the calls from now on."""
        self._begin(-1, 0, 0)

    def disarm(self) -> None:
        """Let no call fail from now on."""
        self._page.kind = -1

    def _begin(self, kind: int, call: int, error: int) -> None:
        page = self._page
        page.kind = -1
        page.left, page.error, page.hits = call, error, 0
        for index in range(len(KINDS)):
            page.seen[index] = 0
        page.kind = kind
        page.generation += 1

    @property
    def hits(self) -> int:
        """Number of calls that have failed since arm()."""
        return int(self._page.hits)

    def seen(self, kind: str) -> int:
        """Return the number of calls of a kind since arm() or count()."""
        return int(self._page.seen[KINDS.index(kind)])

    def on_sync(self, function: Callable[[int], None]) -> None:
        """Call `function` with each descriptor that this process has synced. Not for another process."""
        self._function = SYNCED(function)
        self._page.synced = self._function

    def on_call(self, function: Callable[[str], None] | None) -> None:
        """Call `function` with the kind of each call that may change a directory, before it."""
        self._called = CALLED(lambda kind: function(KINDS[kind])) if function else CALLED()
        self._page.called = self._called


def here() -> Failing:
    """Return the Failing of this process, which must run with variables()."""
    return Failing(Path(os.environ[VARIABLE]))
