"""Run servers out of memory: malloc() of a range of sizes fails while a file exists."""

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
    """Run a server with `wrapper`: between fail() and end(), its malloc() of `sizes` bytes fails.

    `sizes` are the least and the most. The library is built in `directory`; a compiler that fails raises
    CalledProcessError.
    """

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
        """Have allocations fail from now on."""
        self._when.touch()

    def end(self) -> None:
        """Have allocations succeed again."""
        self._when.unlink()
