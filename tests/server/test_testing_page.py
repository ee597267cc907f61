"""The examples of docs/testing.md, as files of a user: they run, and mypy accepts them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
PYTEST = ["-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider"]


PATIENCE = """
import inspect
from nats.aio.client import Client
from nats.aio.subscription import Subscription

for call in Client.connect, Client.request, Client.flush, Subscription.next_msg:
    names = list(inspect.signature(call).parameters)[-len(call.__defaults__):]
    patient = [30 if name.endswith("timeout") else value for name, value in zip(names, call.__defaults__)]
    call.__defaults__ = tuple(patient)
"""
"""For a busy machine: nats-py waits half a second to two seconds."""
PROGRAM = "import conftest, runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
MYPY = ["-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir=cache", "."]


def run(folder: Path, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, *args],
        cwd=folder,
        env=os.environ | {"MYPYPATH": str(PAGE.parents[1])},  # mypy does not find editable installations
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_examples_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(PATIENCE)
    programs, tests = [], 0
    for number, text in enumerate(EXAMPLES):
        found = len(re.findall(r"^(?:async )?def test_", text, re.MULTILINE))
        path = tmp_path / (f"test_{number}.py" if found else f"program_{number}.py")
        path.write_text(text)
        tests += found
        if not found:
            programs.append(path.name)
    assert f"{tests} passed" in run(tmp_path, *PYTEST)
    assert [run(tmp_path, "-c", PROGRAM, program) for program in programs] == ["b'hello'\n"]


def test_the_examples_have_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    for number, text in enumerate(EXAMPLES):
        (tmp_path / f"example_{number}.py").write_text(text)
    found = run(tmp_path, *MYPY)
    assert found.startswith("Success: no issues found")
