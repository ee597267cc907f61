"""Run the benchmark of the nats CLI (`nats bench`) or of nats.go (`nats-bench`), when one is on PATH."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

STATS = re.compile(r"\bstats: (?P<rate>[\d,]+) msgs/sec ~ (?P<bytes>[\d.]+ [KMGT]?i?B)/sec")
TIMEOUT = 60.0


def find() -> Path | None:
    """Return the path of `nats`, else of `nats-bench`, else None."""
    found = shutil.which("nats") or shutil.which("nats-bench")
    return Path(found) if found else None


def _commands(program: Path, url: str, messages: int, size: int) -> Iterator[list[str]]:
    """Yield the commands: publish only, and one to one where a single command does that."""
    if program.name == "nats-bench":
        common = ["-s", url, "-n", str(messages), "-ms", str(size)]
        yield [str(program), *common, "-np", "1", "-ns", "0", "bench"]
        yield [str(program), *common, "-np", "1", "-ns", "1", "bench"]
        return
    common = ["--server", url, "--msgs", str(messages), "--size", str(size), "--no-progress"]
    usage = subprocess.run(
        [program, "bench", "--help"], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    if "--pub" in usage.stdout + usage.stderr:
        yield [str(program), "bench", "bench", "--pub", "1", *common]
        yield [str(program), "bench", "bench", "--pub", "1", "--sub", "1", *common]
    else:
        yield [str(program), "bench", "pub", "bench", *common]


def run(program: Path, url: str, messages: int = 1_000_000, size: int = 16) -> list[str]:
    """Run the program; return the lines with stats. Raises subprocess.SubprocessError when it fails."""
    lines = []
    for command in _commands(program, url, messages, size):
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True)
        lines += [line.rstrip() for line in done.stdout.splitlines() if STATS.search(line)]
    return lines
