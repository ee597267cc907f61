"""Fails when Cython has a performance hint for the data plane: a function that takes the GIL where none was
meant to."""

import os
import subprocess
import sys
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "cython_src"
PLANES = "core", "store", "raft", "jetstream", "archive"
PARALLEL = os.cpu_count() or 1
OPTIONS = "-3", "-X", "show_performance_hints=True"


def main() -> int:
    """Cythonizes the modules of the data plane that have changed; 1 when there is a hint.

    A module has changed when it, a declaration of any module, or Cython is another one than when there was no
    hint.
    """
    scratch = ROOT / "build" / "hints"
    scratch.mkdir(parents=True, exist_ok=True)
    common = sha256(f"{version('cython')} {OPTIONS}".encode())
    for path in sorted(SRC.rglob("*.px[di]")):
        common.update(path.read_bytes())
    modules = sorted(path for plane in PLANES for path in (SRC / "gnats" / plane).rglob("*.pyx"))
    stamps = {}
    for path in modules:
        digest = common.copy()
        digest.update(path.read_bytes())
        stamps[path] = scratch / f"{path.stem}-{digest.hexdigest()}"
    changed = [path for path, stamp in stamps.items() if not stamp.exists()]
    command = [sys.executable, "-m", "cython", "-I", str(SRC), *OPTIONS, "-o", str(scratch)]
    runs = [
        subprocess.Popen(
            [*command, *map(str, changed[first::PARALLEL])],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for first in range(min(PARALLEL, len(changed)))
    ]
    said = "".join(run.communicate()[0] for run in runs)
    if any(run.returncode for run in runs) or "hint:" in said:
        print(said)
        return 1
    for old in scratch.iterdir():
        old.unlink()
    for stamp in stamps.values():
        stamp.touch()
    print(f"{len(modules)} modules, no hints")
    return 0


if __name__ == "__main__":
    sys.exit(main())
