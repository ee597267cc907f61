"""Fails when Cython has a performance hint for the data plane: a function that takes the GIL where none was
meant to."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "cython_src"
PLANES = "core", "store", "jetstream", "archive"
PARALLEL = os.cpu_count() or 1


def main() -> int:
    """Cythonizes every module of the data plane into a scratch folder; 1 when there is a hint."""
    scratch = ROOT / "build" / "hints"
    scratch.mkdir(parents=True, exist_ok=True)
    modules = sorted(path for plane in PLANES for path in (SRC / "gnats" / plane).rglob("*.pyx"))
    command = [sys.executable, "-m", "cython", "-3", "-I", str(SRC), "-X", "show_performance_hints=True"]
    runs = [
        subprocess.Popen(
            [*command, "-o", str(scratch), *map(str, modules[first::PARALLEL])],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for first in range(PARALLEL)
    ]
    said = "".join(run.communicate()[0] for run in runs)
    if any(run.returncode for run in runs) or "hint:" in said:
        print(said)
        return 1
    print(f"{len(modules)} modules, no hints")
    return 0


if __name__ == "__main__":
    sys.exit(main())
