"""tools/run_tests.py: which modules make a part, and which parts run beside each other."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).parents[3]
TIMEOUT = 30.0


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("run_tests", ROOT / "tools" / "run_tests.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "run_tests", module)  # dataclasses look there
        spec.loader.exec_module(module)
        yield module


def test_each_module_is_in_one_part(tool: Any) -> None:
    parts = list(tool.parts())
    modules = [module for part in parts for module in part.modules]
    assert sorted(modules) == sorted((ROOT / "tests").rglob("test_*.py"))
    assert len({part.name for part in parts}) == len(parts)


def test_modules_that_wait_are_parts_by_themselves_the_longest_first(tool: Any) -> None:
    waiting = [part for part in tool.parts() if part.waits]
    assert [len(part.modules) for part in waiting] == [1] * len(waiting)
    names = [part.modules[0].stem for part in waiting]
    assert tuple(names[: len(tool.LONGEST)]) == tool.LONGEST
    assert "test_soak" in names


def test_parts_that_wait_take_no_place_of_others(
    tool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    waited = threading.Event()

    class Part(tool.Part):  # type: ignore[misc]
        def run(self, options: list[str]) -> Part:
            self.log.write_text("1 passed")
            if self.waits:
                waited.set()
            else:
                assert waited.wait(TIMEOUT)
            return self

    count = len(os.sched_getaffinity(0)) + 2
    busy = [Part(f"busy-{number}", []) for number in range(count)]
    monkeypatch.setattr(tool, "LOGS", tmp_path)
    monkeypatch.setattr(tool, "parts", lambda: iter([*busy, Part("waits", [], waits=True)]))
    assert tool.run_all([]) == 0
    assert f"{count + 1} parts in" in capsys.readouterr().out


def test_a_part_that_fails_is_shown(
    tool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = tmp_path / "test_it.py"
    test.write_text("def test_one():\n    assert 1 == 2\n\ndef test_two():\n    pass\n")
    monkeypatch.setattr(tool, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "parts", lambda: iter([tool.Part("bad", [test]), tool.Part("good", [test])]))
    run = tool.Part.run

    def choose(part: Any, options: list[str]) -> Any:
        return run(part, [*options, "-k", "one" if part.name == "bad" else "two"])

    monkeypatch.setattr(tool.Part, "run", choose)
    assert tool.run_all([]) == 1
    out = capsys.readouterr().out
    assert "1 failed: bad;" in out
    assert "assert 1 == 2" in out
    at_the_end = out.rpartition("the slowest")[2]
    assert re.search(r"bad:\n_+ test_one _+\nE +assert 1 == 2\n.*test_it\.py:2: AssertionError", at_the_end)
