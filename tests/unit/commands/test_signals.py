"""Signals to other servers: the processes, the signal, and the error when there is no process."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnats.commands import signals
from gnats.commands.signals import is_server, process_signal, resolve_pids
from gnats.errors import ServerError

pytestmark = pytest.mark.timeout(60)

Sent = list[tuple[int, int]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Record signals instead of sending them."""
    sent: Sent = []
    monkeypatch.setattr(os, "kill", lambda pid, signum: sent.append((pid, signum)))
    return sent


def running(monkeypatch: pytest.MonkeyPatch, *pids: int) -> None:
    monkeypatch.setattr(signals, "resolve_pids", lambda: list(pids))


def refused(command: str, expr: str) -> str:
    with pytest.raises(ServerError) as caught:
        process_signal(command, expr)
    return str(caught.value)


@pytest.mark.parametrize(
    ("command", "signum"),
    [
        ("stop", signal.SIGKILL),
        ("quit", signal.SIGINT),
        ("term", signal.SIGTERM),
        ("reopen", signal.SIGUSR1),
        ("reload", signal.SIGHUP),
        ("ldm", signal.SIGUSR2),
    ],
)
def test_a_command_is_a_signal(command: str, signum: int, sent: Sent) -> None:
    process_signal(command, "123")
    assert sent == [(123, signum)]


def test_the_only_server_needs_no_pid(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, 77)
    process_signal("quit", "")
    assert sent == [(77, signal.SIGINT)]


def test_several_servers_need_a_pid(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, 77, 78)
    assert refused("quit", "") == "multiple gnats-server processes running:\n77\n78"
    assert sent == []


@pytest.mark.parametrize(("expr", "pids"), [("*", [12, 123, 45]), ("12*", [12, 123]), ("9*", [])])
def test_a_star_means_all_that_begin_so(
    expr: str, pids: list[int], sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(monkeypatch, 12, 123, 45)
    process_signal("reload", expr)
    assert sent == [(pid, signal.SIGHUP) for pid in pids]


@pytest.mark.parametrize("expr", ["", "*"])
def test_no_server_is_an_error(expr: str, sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch)
    assert refused("quit", expr) == "no gnats-server processes running"


@pytest.mark.parametrize("text", ["123", "123\n"])
def test_a_pid_file_names_the_server(text: str, sent: Sent, tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(text)
    process_signal("reopen", str(tmp_path / "pid"))
    assert sent == [(123, signal.SIGUSR1)]


@pytest.mark.parametrize("expr", ["abc", "-1", "0", "1.5", "/no/such/file", "a*", "-1*"])
def test_what_is_no_pid_is_refused(expr: str, sent: Sent) -> None:
    assert refused("stop", expr) == f"invalid pid: {expr.removesuffix('*')}"
    assert sent == []


def test_an_unknown_command_is_refused(sent: Sent) -> None:
    assert refused("fly", "123") == 'unknown signal "fly"'
    assert sent == []


def test_a_process_that_is_gone_is_named() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(30)
    assert refused("reopen", str(process.pid)) == f'signal "reopen" {process.pid}: no such process'
    assert refused("stop", "9" * 30) == f'signal "stop" {"9" * 30}: no such process'


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("/usr/bin/gnats-server -c /etc/gnats.conf", True),
        ("/opt/gnats/bin/python3 /opt/gnats/bin/gnats-server -p 4222", True),
        ("python3.11 -P -X dev /opt/gnats/bin/gnats-server", True),
        ("python3 -P /opt/gnats/bin/gnats-server", True),
        ("python3 -m gnats.main -p 1", True),
        ("python3 -m gnats.bench", False),
        ("python3 /opt/gnats/bin/gnats server", True),
        ("python3 /opt/gnats/bin/gnats bench", False),
        ("tail -f gnats-server", False),
        ("vim gnats-server.conf", False),
        ("python3", False),
        ("", False),
    ],
)
def test_a_server_is_known_by_its_command_line(line: str, found: bool) -> None:
    assert is_server(line.split(" ")) is found


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like a server."""
    script = tmp_path / "gnats-server"
    script.write_text("print(flush=True)\nimport sys\nsys.stdin.read()\n")
    with subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_running_servers_are_found(sleeper: subprocess.Popen[bytes]) -> None:
    pids = resolve_pids()
    assert sleeper.pid in pids
    assert os.getpid() not in pids
    process_signal("term", str(sleeper.pid))
    assert sleeper.wait(30) == -signal.SIGTERM
