"""Logging to syslog."""

import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnats.errors import ServerError
from gnats.log import syslog
from gnats.log.syslog import SyslogLogger
from gnats.options.options import Options
from gnats.server.log import configure_logger

pytestmark = pytest.mark.timeout(60)

TAG = f"gnats-server[{os.getpid()}]"
REMOTE_STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)"


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/gnats-server"])


@pytest.fixture
def udp() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(30)
        yield sock


def port_of(sock: socket.socket) -> int:
    port: int = sock.getsockname()[1]
    return port


def test_a_remote_line_has_severity_time_host_and_program(udp: socket.socket) -> None:
    log = SyslogLogger(f"udp://127.0.0.1:{port_of(udp)}", debug=True, trace=True)
    log.notice("a")
    line = udp.recv(1000).decode()
    assert re.fullmatch(rf"<5>{REMOTE_STAMP} {re.escape(socket.gethostname())} {re.escape(TAG)}: a\n", line)
    log.close()


@pytest.mark.parametrize(
    ("level", "severity"),
    [("notice", 5), ("warn", 4), ("error", 3), ("fatal", 2), ("debug", 7), ("trace", 5)],
)
def test_levels_are_severities(level: str, severity: int, udp: socket.socket) -> None:
    log = SyslogLogger(f"udp://127.0.0.1:{port_of(udp)}", debug=True, trace=True)
    getattr(log, level)("a")
    assert udp.recv(1000).startswith(f"<{severity}>".encode())
    log.close()


def test_debug_and_trace_need_their_switch(udp: socket.socket) -> None:
    log = SyslogLogger(f"udp://127.0.0.1:{port_of(udp)}")
    log.debug("no")
    log.trace("no")
    log.notice("yes")
    assert udp.recv(1000).endswith(b": yes\n")
    log.close()


def test_the_local_one_gets_lines_of_a_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    monkeypatch.setattr(syslog, "LOCAL_SOCKETS", (str(tmp_path / "none"), str(path)))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(path))
        sock.settimeout(30)
        log = configure_logger(Options(syslog=True))
        log.error("a")
        assert re.fullmatch(
            rf"<27>[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d {re.escape(TAG)}: a\n", sock.recv(1000).decode()
        )
        log.close()


def test_a_local_one_that_is_started_again_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    monkeypatch.setattr(syslog, "LOCAL_SOCKETS", (str(path),))
    log = None
    for number in range(2):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.bind(str(path))
            sock.settimeout(30)
            log = log or SyslogLogger()
            log.notice(f"line {number}")
            assert sock.recv(1000).endswith(f"line {number}\n".encode())
        path.unlink()
    assert log
    log.close()


def test_without_a_local_one_there_is_no_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syslog, "LOCAL_SOCKETS", (str(tmp_path / "none"),))
    with pytest.raises(ServerError, match="error connecting to syslog: there is none at"):
        configure_logger(Options(syslog=True))


def test_tcp_lines_come_in_order() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        log = SyslogLogger(f"tcp://127.0.0.1:{port_of(server)}")
        for number in range(100):
            log.notice(f"line {number}")
        conn, _ = server.accept()
        with conn, conn.makefile() as lines:
            conn.settimeout(30)
            for number in range(100):
                assert lines.readline().endswith(f": line {number}\n")
            log.close()
            assert lines.read() == ""


def test_lines_wait_for_a_remote_that_is_not_there_yet(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(syslog, "RETRY_AFTER", 0.01)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.bind(("127.0.0.1", 0))  # not listening: connections are refused
        log = SyslogLogger(f"tcp://127.0.0.1:{port_of(server)}")
        for number in range(3):
            log.notice(f"line {number}")
        server.listen()
        conn, _ = server.accept()
        with conn, conn.makefile() as lines:
            conn.settimeout(30)
            assert [lines.readline()[-7:-1] for _ in range(3)] == ["line 0", "line 1", "line 2"]
            log.close()
    said = capfd.readouterr().err.splitlines()
    assert all(line.startswith("syslog tcp://127.0.0.1:") for line in said), said


def test_a_remote_that_never_comes_costs_memory_only_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syslog, "MAX_QUEUED", 10)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.bind(("127.0.0.1", 0))
        log = SyslogLogger(f"tcp://127.0.0.1:{port_of(server)}")
        for number in range(1000):
            log.notice(f"line {number}")
        assert len(log._sender._lines) <= 10
        log.close()


def test_a_line_that_is_too_long_for_a_datagram_is_cut(udp: socket.socket) -> None:
    log = SyslogLogger(f"udp://127.0.0.1:{port_of(udp)}")
    log.notice("x" * 100_000)
    log.notice("next")
    assert len(udp.recv(1 << 17)) == syslog.MAX_DATAGRAM
    assert udp.recv(1000).endswith(b": next\n")
    log.close()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("foo://127.0.0.1:514", 'error invalid network type: "foo"'),
        ("127.0.0.1:514", 'error invalid network type: "'),
        ("udp://127.0.0.1", 'error connecting to syslog: "udp://127.0.0.1" is not udp://host:port'),
        ("tcp://:x", 'error connecting to syslog: "tcp://:x" is not tcp://host:port'),
        ("tcp://", "error connecting to syslog"),
    ],
)
def test_another_address_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ServerError) as caught:
        SyslogLogger(url)
    assert problem in str(caught.value)


def test_there_is_no_file_to_open_again(udp: socket.socket) -> None:
    log = SyslogLogger(f"udp://127.0.0.1:{port_of(udp)}")
    assert not log.reopen()
    log.close()
