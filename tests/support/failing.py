"""Calls of the store that fail when a test says so (failing_calls.c), in this process or in a server."""

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
"""In the order of failing_calls.c."""
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


class _Page(ctypes.Structure):
    _fields_ = [
        ("generation", ctypes.c_int64),
        ("kind", ctypes.c_int64),
        ("left", ctypes.c_int64),
        ("error", ctypes.c_int64),
        ("hits", ctypes.c_int64),
        ("seen", ctypes.c_int64 * len(KINDS)),
        ("synced", SYNCED),
    ]


def build(directory: Path) -> Path:
    """The library to preload. Skips the test where there is no compiler."""
    if not (compiler := shutil.which("gcc") or shutil.which("cc")):
        pytest.skip("no C compiler")
    library = directory / "failing.so"
    command = [compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, SOURCE]
    subprocess.run(command, check=True, timeout=60)
    return library


class Failing:
    """What is to fail in the process that has the library and `path` (variables())."""

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
        """Have the `call`-th call from now on of a kind fail; the first is 1."""
        self._begin(KINDS.index(kind), call, error)

    def count(self) -> None:
        """Have none fail, and count them."""
        self._begin(-1, 0, 0)

    def disarm(self) -> None:
        """Have none fail from now on."""
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
        """Calls that have failed since arm()."""
        return int(self._page.hits)

    def seen(self, kind: str) -> int:
        """Calls of a kind since arm() or count()."""
        return int(self._page.seen[KINDS.index(kind)])

    def on_sync(self, function: Callable[[int], None]) -> None:
        """Have a function called with the descriptor of what was synced: of this very process only."""
        self._function = SYNCED(function)
        self._page.synced = self._function


def here() -> Failing:
    """Of this process, which was started with variables()."""
    return Failing(Path(os.environ[VARIABLE]))
