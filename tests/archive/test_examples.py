"""The archive's example files work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .stores import Writing, archive, no_java

pytestmark = pytest.mark.timeout(400)
ROOT = Path(__file__).parents[2]


@pytest.mark.spark
@pytest.mark.skipif(no_java(), reason="Java is not installed (Debian package default-jre-headless)")
def test_three_questions(orders: Writing, out: Path, tmp_path: Path) -> None:
    orders.publish(700, step=10**9)
    orders.remove(5, 6, 7)
    archive(orders, out)
    image = tmp_path / "plot.png"

    def ask(stream: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, ROOT / "docs" / "examples" / "archive_questions.py", out, stream, image],
            env=os.environ | {"PYSPARK_PYTHON": sys.executable, "MPLCONFIGDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=170,
        )

    done = ask("ORDERS")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "orders.1                              100 messages" in done.stdout
    assert "13 minutes, at most 60 messages in one" in done.stdout
    assert "sequences 1 to 700: 697 messages, 3 missing" in done.stdout
    assert image.read_bytes()[:4] == b"\x89PNG"
    unknown = ask("OTHER")
    assert unknown.returncode == 1
    assert unknown.stderr.splitlines()[-1] == f"{out} has no messages of a stream OTHER"


def test_the_units_are_some(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed (Debian package systemd)")
    units = []
    for name in ("gnats-archive.service", "gnats-archive.timer"):
        text = (ROOT / "deploy" / name).read_text()
        (tmp_path / name).write_text(text.replace("/opt/gnats/bin/", f"{Path(sys.executable).parent}/"))
        units.append(str(tmp_path / name))
    line = [program, "verify", "--no-pager", "--man=no", *units]
    done = subprocess.run(line, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
