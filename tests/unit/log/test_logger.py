"""The log's lines and files."""

import os
import re
import time
from pathlib import Path

import pytest
from support.clock import HeldClock

from gnats.errors import ServerError
from gnats.log.file import FileLogger
from gnats.log.logger import Logger, SilentLogger
from gnats.options.options import Options
from gnats.server.log import configure_logger

pytestmark = pytest.mark.timeout(60)

STAMP = r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6}"


def test_a_line_has_pid_time_level_and_text() -> None:
    lines: list[bytes] = []
    Logger(lines.append).notice("Server is ready")
    assert re.fullmatch(rf"\[{os.getpid()}\] {STAMP} \[INF\] Server is ready\n", lines[0].decode())


def test_each_level_has_its_label() -> None:
    lines: list[bytes] = []
    log = Logger(lines.append, debug=True, trace=True, logtime=False)
    log.notice("a")
    log.warn("a")
    log.error("a")
    log.fatal("a")
    log.debug("a")
    log.trace("a")
    labels = [line.decode().removeprefix(f"[{os.getpid()}] ") for line in lines]
    assert labels == [f"[{level}] a\n" for level in ("INF", "WRN", "ERR", "FTL", "DBG", "TRC")]


def test_debug_and_trace_lines_need_their_switch() -> None:
    lines: list[bytes] = []
    log = Logger(lines.append)
    log.debug("a")
    log.trace("a")
    assert lines == []
    assert not log.debug_on
    assert not log.trace_on


def test_the_level_is_coloured_on_request() -> None:
    lines: list[bytes] = []
    Logger(lines.append, logtime=False, colors=True).error("a")
    assert lines[0].endswith(b"[\x1b[31mERR\x1b[0m] a\n")


def test_the_time_is_utc_or_local(monkeypatch: pytest.MonkeyPatch) -> None:
    gmtime = time.gmtime
    monkeypatch.setattr(time, "localtime", lambda second: gmtime(second + 3600))
    lines: list[bytes] = []
    with HeldClock(realtime=1_795_223_621_151_393_732):
        Logger(lines.append, utc=True).notice("a")
        Logger(lines.append).notice("a")
    assert b"] 2026/11/21 01:13:41.151393 [" in lines[0]
    assert b"] 2026/11/21 02:13:41.151393 [" in lines[1]


def test_text_that_is_not_unicode_is_written_somehow() -> None:
    lines: list[bytes] = []
    Logger(lines.append).notice("name \udcff")
    assert lines[0].endswith(b"name \\udcff\n")


def test_a_line_that_cannot_be_written_is_dropped() -> None:
    def full(line: bytes) -> None:
        raise OSError(28, "No space left on device")

    Logger(full).notice("a")


def test_a_repeated_statement_is_held_back_for_a_second(clock: HeldClock) -> None:
    log = SilentLogger()
    assert log.allow("maximum connections exceeded")
    assert not log.allow("maximum connections exceeded")
    assert log.allow("another statement")
    clock.move(0.99)
    assert not log.allow("maximum connections exceeded")
    clock.move(0.02)
    assert log.allow("maximum connections exceeded")


def test_held_back_statements_do_not_pile_up(clock: HeldClock) -> None:
    log = SilentLogger()
    for _ in range(3):
        assert all(log.allow(f"statement {number}") for number in range(1024))
        clock.move(2)
    assert len(log._limited) <= 1024


def test_a_file_is_appended_to_and_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("before\n")
    log = FileLogger(str(path), logtime=False)
    log.notice("first")
    path.rename(tmp_path / "server.log.1")
    log.notice("second")
    assert log.reopen()
    log.notice("third")
    log.close()
    prefix = f"[{os.getpid()}] [INF]"
    assert (tmp_path / "server.log.1").read_text() == f"before\n{prefix} first\n{prefix} second\n"
    assert path.read_text() == f"{prefix} third\n"
    assert path.stat().st_mode & 0o777 & ~0o640 == 0


def test_a_file_that_cannot_be_opened_again_leaves_the_old_one_in_use(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    directory.mkdir()
    log = FileLogger(str(directory / "server.log"))
    directory.rename(tmp_path / "moved")
    with pytest.raises(ServerError, match=r"open .*server\.log: no such file or directory"):
        log.reopen()
    log.notice("still here")
    log.close()
    assert "still here" in (tmp_path / "moved" / "server.log").read_text()


def test_lines_after_close_are_dropped(tmp_path: Path) -> None:
    log = FileLogger(str(tmp_path / "server.log"))
    log.close()
    log.close()
    log.notice("late")
    assert (tmp_path / "server.log").read_text() == ""


def test_the_options_choose_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    configure_logger(Options(debug=True, logtime=False)).debug("to stderr")
    log = configure_logger(Options(log_file=str(tmp_path / "a.log"), trace=True))
    log.trace("to the file")
    log.close()
    assert capfd.readouterr().err == f"[{os.getpid()}] [DBG] to stderr\n"
    assert "[TRC] to the file" in (tmp_path / "a.log").read_text()


def test_a_log_in_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="error opening file"):
        configure_logger(Options(log_file=str(tmp_path / "no" / "a.log")))
