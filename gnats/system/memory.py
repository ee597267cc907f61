"""The process's memory as the kernel, malloc and Python report it."""

import ctypes
import gc
import sys
from pathlib import Path

# struct mallinfo2: all are size_t
_MALLINFO2 = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)
_MEANINGS = {
    "arena": "bytes of the heap",
    "hblkhd": "bytes mapped for large blocks",
    "uordblks": "bytes in use",
    "fordblks": "bytes free",
    "keepcost": "bytes free at the top",
}


class _MallInfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _MALLINFO2]


def memory_report() -> str:
    """Return a readable report."""
    parts = ["# kernel (/proc/self/smaps_rollup)", *_rollup(), "", "# malloc"]
    parts += [f"{_MEANINGS[name]}: {value}" for name, value in malloc_info().items() if name in _MEANINGS]
    parts += ["", "# Python", f"blocks allocated: {sys.getallocatedblocks()}"]
    parts += [
        f"objects watched by the collector: {len(gc.get_objects())}",
        f"frozen: {gc.get_freeze_count()}",
    ]
    for generation, stats in enumerate(gc.get_stats()):
        parts.append(f"generation {generation}: " + ", ".join(f"{name} {n}" for name, n in stats.items()))
    return "\n".join(parts) + "\n"


def malloc_info() -> dict[str, int]:
    """Return the fields of glibc's mallinfo2(3); empty with another C library."""
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function is None:
        return {}
    function.restype = _MallInfo2
    info = function()
    return {name: getattr(info, name) for name in _MALLINFO2}


def _rollup() -> list[str]:
    try:
        return Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    except OSError as exc:
        return [f"not available: {exc.strerror}"]
