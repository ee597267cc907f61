"""The gnats command itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("command", ["version", "help"])
def test_output_that_nobody_reads_ends_a_command_without_a_word(command: str, buffered: bool) -> None:
    python = [sys.executable, *([] if buffered else ["-u"])]
    with subprocess.Popen(
        [*python, "-m", "gnats.cli", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_an_unknown_command_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gnats.cli", "sub"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "gnats: unknown command 'sub'; gnats help lists the commands\n"
