"""The log's file: growth, rotation, removal of old files."""

import os
import re
from pathlib import Path

import pytest

from gnats.log.file import FileLogger
from gnats.options.options import Options
from gnats.server.log import configure_logger

pytestmark = pytest.mark.timeout(60)

PREFIX = f"[{os.getpid()}]"
STAMP = r"\d{4}\.\d\d\.\d\d\.\d\d\.\d\d\.\d\d\.\d{9}"


def backups(path: Path) -> list[Path]:
    return sorted(entry for entry in path.parent.iterdir() if entry != path)


def test_a_file_over_the_limit_is_renamed_and_another_one_begun(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    log = FileLogger(str(path), size_limit=200, logtime=False)
    log.notice("x" * 100)
    assert backups(path) == []
    log.notice("y" * 100)
    log.notice("after")
    (old,) = backups(path)
    assert re.fullmatch(rf"a\.log\.{STAMP}", old.name)
    assert old.read_text() == f"{PREFIX} [INF] {'x' * 100}\n{PREFIX} [INF] {'y' * 100}\n"
    assert path.read_text() == f'{PREFIX} [INF] Rotated log, backup saved as "{old}"\n{PREFIX} [INF] after\n'
    log.close()


def test_a_file_that_is_too_long_at_a_start_is_rotated_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("x" * 100 + "\n")
    FileLogger(str(path), size_limit=50, logtime=False).close()
    (old,) = backups(path)
    assert old.read_text() == "x" * 100 + f"\n{PREFIX} [INF] Rotating logfile...\n"
    assert path.read_text().startswith(f"{PREFIX} [INF] Rotated log, backup saved as ")


def test_only_so_many_files_are_kept_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    others = [
        tmp_path / name
        for name in (
            "a.log.1",
            "a.log.2024.01.02.03.04.05.000000001.gz",
            "ba.log.2024.01.02.03.04.05.000000001",
        )
    ]
    for other in others:
        other.touch()
    log = FileLogger(str(path), size_limit=200, max_num=3, logtime=False)
    for number in range(6):
        log.notice(f"{number}" * 200)
    kept = [old for old in backups(path) if old not in others]
    assert [old.read_text()[-2] for old in kept] == ["4", "5"]
    assert len(re.findall(r'\[INF\] Purged log file "a\.log\.[\d.]+"\n', path.read_text())) == 1
    assert all(other.exists() for other in others)
    log.close()


def test_without_a_number_all_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    log = FileLogger(str(path), size_limit=100, logtime=False)
    for _ in range(5):
        log.notice("x" * 100)
    assert len(backups(path)) == 5
    log.close()


def test_opened_again_it_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    log = FileLogger(str(path), size_limit=300, logtime=False)
    log.notice("x" * 200)
    path.rename(tmp_path / "moved")
    log.reopen()
    log.notice("y" * 200)
    assert backups(path) == [tmp_path / "moved"]
    log.notice("z" * 200)
    assert len(backups(path)) == 2
    log.close()


def test_a_file_that_cannot_be_renamed_goes_on_growing(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    directory.mkdir()
    path = directory / "a.log"
    log = FileLogger(str(path), size_limit=1000, logtime=False)
    directory.rename(tmp_path / "moved")
    log.notice("x" * 1000)
    log.notice("still here")
    moved = tmp_path / "moved" / "a.log"
    lines = moved.read_text().splitlines()
    assert lines[1].startswith(f"{PREFIX} [ERR] Unable to rotate logfile (no such file or directory)")
    assert lines[2:] == [f"{PREFIX} [INF] still here"]
    log.close()


def test_the_options_set_limit_and_number(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    log = configure_logger(Options(log_file=str(path), log_size_limit=50, log_max_num=2))
    for _ in range(4):
        log.notice("x" * 50)
    assert len(backups(path)) == 1
    log.close()
