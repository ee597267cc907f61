"""Kill archive jobs (SIGKILL) at random moments: each next job goes on where the last one ended.

In the end every message is archived once, and no temporary file is left. The tests have a few kills;
`python -m tests.archive.test_kill --kills 1000 --seed 7` has more.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import pytest

from gnats.archive.jobs.engine import Inline
from gnats.archive.jobs.verify import verify
from gnats.archive.target import Target

from .stores import ORDERS, Writing, listed, manifest_of, plain

pytestmark = pytest.mark.timeout(120)

KILLS = 6
ROUNDS = 5
"""Number of rounds of KILLS kills with one stream. A campaign then goes on with a new stream."""
MESSAGES = 2000
TIMEOUT = 60

# A job of many small commits. It prints a line after its imports, so that no kill hits these.
JOB = """
import sys
from gnats.archive import cli
from gnats.archive.jobs import job
job.MIN_TASK = job.MAX_TASK = 8192
job.TASKS_A_ROUND = 2
print("begins", flush=True)
sys.exit(cli.archive_main(sys.argv[1:]))
"""


@dataclass
class Campaign:
    """A growing stream, and jobs that archive it and are killed."""

    orders: Writing
    out: Path
    engine: tuple[str, ...]
    random: random.Random
    span: float = 0.0
    """Seconds that a whole job takes; a kill comes within them."""

    def job(self, kill_after: float | None) -> bool:
        """Run a job and kill it after `kill_after` seconds; return True if the kill ended it.

        None of its processes runs any more when this returns.
        """
        command = [
            sys.executable,
            "-c",
            JOB,
            "--store",
            str(self.orders.root),
            "--out",
            str(self.out),
            "--all",
        ]
        with subprocess.Popen(
            [*command, "--engine", "processes", *self.engine],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begins\n"
            begin = time.monotonic()
            try:
                process.wait(TIMEOUT if kill_after is None else kill_after)
                self.span = time.monotonic() - begin
            except subprocess.TimeoutExpired:
                process.kill()
            # All its processes hold the pipe open: the output ends when the last of them has ended.
            said, _ = process.communicate(timeout=TIMEOUT)
        assert process.returncode in (0, -signal.SIGKILL), said
        return process.returncode != 0

    def kill(self, count: int) -> None:
        """Kill `count` jobs; check after each that the archive has no wrong row."""
        killed = 0
        while killed < count:
            self.orders.publish(MESSAGES)
            if not self.span:
                assert not self.job(None)
                continue
            killed += self.job(self.random.uniform(0, self.span))
            shown = plain(listed(self.out))
            assert shown.items() <= self.orders.rows.items()

    def end(self) -> None:
        """Run two whole jobs, check that the archive is complete, and that nothing is left over.

        The first finishes the work of killed jobs; the second removes old empty directories.
        """
        staging = self.out / ORDERS / "_staging"
        for _ in range(2):
            for path in staging.rglob("*"):
                os.utime(path, (0, 0))
            assert not self.job(None)
        assert plain(listed(self.out)) == self.orders.rows
        assert list(staging.rglob("*")) == []
        done = verify(Target(str(self.out)), manifest_of(self.out), self.orders.source(), Inline())
        assert (done.problems, done.rows) == ([], len(self.orders.rows))


@pytest.mark.parametrize(
    "engine, kills",
    [(("--workers", "1"), KILLS), (("--workers", "2"), KILLS // 2)],
    ids=["inline", "processes"],
)
def test_jobs_that_are_killed(orders: Writing, out: Path, engine: tuple[str, ...], kills: int) -> None:
    campaign = Campaign(orders, out, engine, random.Random(7))
    campaign.kill(kills)
    campaign.end()


def main() -> None:
    """Kill many jobs, and print how many."""
    parser = argparse.ArgumentParser(prog="python -m tests.archive.test_kill", description=main.__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    rand, killed = random.Random(args.seed), 0
    while killed < args.kills:
        with tempfile.TemporaryDirectory(prefix="gnats-kill-") as folder:
            out = Path(folder) / "out"
            campaign = Campaign(Writing(Path(folder) / "store"), out, ("--workers", str(args.workers)), rand)
            for _ in range(min(ROUNDS, ceil((args.kills - killed) / KILLS))):
                count = min(KILLS, args.kills - killed)
                campaign.kill(count)
                campaign.end()
                killed += count
                print(f"{killed} killed, {len(campaign.orders.rows):,} messages", flush=True)


if __name__ == "__main__":
    main()
