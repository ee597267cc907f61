"""Run the tests in parts, two more at a time than there are cores: tests and servers wait for each other.

Beside them run WAITING parts of tests that mostly wait for timers of servers, and need little of a core.

    run_tests.py                     all but those that are marked spark, hdfs or browser
    run_tests.py --all               all
    run_tests.py [pytest arguments]  one run of pytest, with these arguments

A part is a slice of a folder of tests, and one run of pytest; a module marked `waits` is a part by itself.
The log of each part stays in build/tests, and is shown when a test fails. At the end come the twenty slowest
tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
LOGS = ROOT / "build" / "tests"
PYTEST = [sys.executable, "-P", "-m", "pytest"]
LEFT_OUT = "not spark and not hdfs and not browser"
SLICES = {
    "faults": 3, "archive": 2, "clusters": 6, "conformance": 8,
    "unit": 4, "stress": 3, "server": 2, "jetstream": 1,
}  # fmt: skip
"""Parts of a folder, in the order in which folders begin; others, after them, are one part each."""
WAITS = re.compile(r"\bmark\.waits\b")
WAITING = 3
"""Parts with tests that mostly wait that run at a time."""
LONGEST = ("test_leafnode_sources", "test_faults", "test_leafnode_faults")
"""Modules that wait, in the order in which they begin; others come after them."""
SLOWEST = 20
DURATION = re.compile(r"^(\d+\.\d+)s (?:call|setup|teardown) +\S.*$", re.MULTILINE)
REASON = re.compile(r"^(?:_{3,} .+ _{3,}|E   .*|\S+: \w+(?:Error|Exception|Timeout)\w*)$", re.MULTILINE)
"""Lines of a log that say which test failed, why, and where."""
REASONS = 25
"""Such lines of a part that are shown at the end, where a log that was cut short still has them."""
NO_TESTS = 5
"""The exit status of pytest when a part has only tests that are left out."""


@dataclass
class Part:
    """Test modules that one run of pytest takes; `status` and `seconds` when it has ended."""

    name: str
    modules: list[Path]
    waits: bool = False
    status: int = 0
    seconds: float = 0.0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def log(self) -> Path:
        return LOGS / f"{self.name}.log"

    def run(self, options: list[str]) -> Part:
        """Run pytest to its end."""
        options = [f"--durations={SLOWEST}", *options, *map(str, self.modules)]
        begun = time.monotonic()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*PYTEST, *options], cwd=ROOT, env=environment(), stdout=log, stderr=subprocess.STDOUT
            )
            self.status = self.process.wait()
        self.seconds = time.monotonic() - begun
        return self

    @property
    def is_good(self) -> bool:
        return self.status == 0 or (self.status == NO_TESTS and "deselected" in self.log.read_text())

    @property
    def result(self) -> str:
        """The last line of pytest's output; the exit status when it printed nothing."""
        lines = self.log.read_text(errors="replace").splitlines()
        return lines[-1].strip("= ") if lines else f"exit status {self.status}"

    @property
    def reasons(self) -> list[str]:
        """The first lines of the log that say what failed."""
        found = [match[0][:300] for match in REASON.finditer(self.log.read_text(errors="replace"))]
        return found[:REASONS]


def environment() -> dict[str, str]:
    """The environment, with a place for compiled modules where it has none: all parts need the same ones."""
    environ = dict(os.environ)
    if environ.pop("PYTHONDONTWRITEBYTECODE", None) is not None:
        environ["PYTHONPYCACHEPREFIX"] = str(LOGS / "bytecode")
    return environ


def _turn(module: Path) -> int:
    """When a module that waits begins."""
    return LONGEST.index(module.stem) if module.stem in LONGEST else len(LONGEST)


def parts() -> Iterator[Part]:
    """Every test module, once: those whose tests wait each by itself, then folders; the longest first."""
    modules = sorted(TESTS.rglob("test_*.py"))
    waiting = [module for module in modules if WAITS.search(module.read_text())]
    for module in sorted(waiting, key=_turn):
        yield Part(f"waits-{module.stem.removeprefix('test_')}", [module], waits=True)
    folders: dict[str, list[Path]] = {name: [] for name in SLICES}
    for module in modules:
        if module not in waiting:
            folders.setdefault(module.relative_to(TESTS).parts[0], []).append(module)
    for folder, found in folders.items():
        count = SLICES.get(folder, 1)
        for index in range(count):
            if piece := found[index::count]:
                yield Part(f"{folder}-{index + 1}" if count > 1 else folder, piece)


def run_all(options: list[str]) -> int:
    """Run every part; the exit status."""
    LOGS.mkdir(parents=True, exist_ok=True)
    queue = list(parts())
    begun = time.monotonic()
    busy, waiting = ThreadPoolExecutor(len(os.sched_getaffinity(0)) + 2), ThreadPoolExecutor(WAITING)
    runs = [(waiting if part.waits else busy).submit(part.run, options) for part in queue]
    try:
        for run in as_completed(runs):
            part = run.result()
            after = time.monotonic() - begun
            print(f"{part.name}: {part.result} ({part.seconds:.0f} s; at {after:.0f} s)", flush=True)
            if not part.is_good:
                print(part.log.read_text(errors="replace"), flush=True)
    except KeyboardInterrupt:
        for pool in busy, waiting:
            pool.shutdown(wait=False, cancel_futures=True)
        for part in queue:
            if part.process and part.process.poll() is None:
                part.process.terminate()
        return 130
    finally:
        for pool in busy, waiting:
            pool.shutdown()
    durations = [match for part in queue for match in DURATION.finditer(part.log.read_text(errors="replace"))]
    durations.sort(key=lambda match: float(match[1]), reverse=True)
    print(f"\nthe slowest {SLOWEST}:")
    for match in durations[:SLOWEST]:
        print(match[0])
    failed = [part for part in queue if not part.is_good]
    for part in failed:
        print(f"\n{part.name}:", *part.reasons, sep="\n")
    verdict = f"{len(failed)} failed: {', '.join(part.name for part in failed)}" if failed else "all passed"
    print(f"\n{len(queue)} parts in {time.monotonic() - begun:.0f} s, {verdict}; their logs are in {LOGS}")
    return 1 if failed else 0


def main(args: list[str]) -> int:
    if args == ["--all"]:
        return run_all([])
    if not args:
        return run_all(["-m", LEFT_OUT])
    return subprocess.call([*PYTEST, *args], cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
