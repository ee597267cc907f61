"""Describe the machine that the numbers come from."""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SPIN = """
import os
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while os.getppid() == {parent}:
    for _ in range(1_000_000):
        pass
"""


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def describe() -> dict[str, str | int | float]:
    """Return hardware, kernel and settings that the results depend on."""
    cpu = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s+(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    return {
        "cpu": cpu[1] if cpu else platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(memory[1]) / 2**20, 1) if memory else 0,
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
        "tcp_congestion_control": _read("/proc/sys/net/ipv4/tcp_congestion_control"),
        "load_before": round(os.getloadavg()[0], 2),
    }


@contextmanager
def awake() -> Iterator[None]:
    """Keep all cores from halting: a process of the least priority runs on each."""
    code = _SPIN.format(parent=os.getpid())
    spinning = [subprocess.Popen([sys.executable, "-c", code]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()
