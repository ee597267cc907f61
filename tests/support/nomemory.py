"""Servers that get no memory: allocations of a range of sizes fail while a file is there."""

import subprocess
from pathlib import Path

_SOURCE = r"""
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
static size_t least, most;
static const char *when;

__attribute__((constructor)) static void begin(void)
{
    least = strtoul(getenv("NO_MEMORY_FROM"), NULL, 10);
    most = strtoul(getenv("NO_MEMORY_TO"), NULL, 10);
    when = getenv("NO_MEMORY_WHEN");
}

void *malloc(size_t size)
{
    if (when && size >= least && size <= most && access(when, F_OK) == 0) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_malloc(size);
}
"""


class NoMemory:
    """A server with this `wrapper` gets no memory of `sizes` (the least and the most) after fail()."""

    def __init__(self, directory: Path, sizes: tuple[int, int]) -> None:
        self._when = directory / "no-memory"
        source, library = directory / "nomemory.c", directory / "nomemory.so"
        source.write_text(_SOURCE)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True, timeout=60)
        self.wrapper = (
            "env",
            f"LD_PRELOAD={library}",
            f"NO_MEMORY_FROM={sizes[0]}",
            f"NO_MEMORY_TO={sizes[1]}",
            f"NO_MEMORY_WHEN={self._when}",
        )

    def fail(self) -> None:
        """From now on."""
        self._when.touch()

    def end(self) -> None:
        """There is memory again."""
        self._when.unlink()
