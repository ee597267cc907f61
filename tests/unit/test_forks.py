"""A forked server (support.forks) looks and behaves like one started as a program."""

from __future__ import annotations

import re
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from support import servers
from support.forks import ForkedProcess, ForkServer
from support.process import SANITIZED
from support.servers import KINDS, TIMEOUT, Kind, Server, until

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(bool(SANITIZED) or not servers.FORKS, reason="servers are started as programs here"),
]

WAYS = [kind for kind in KINDS.values() if not kind.is_reference]
each_way = pytest.mark.parametrize("kind", WAYS, ids=lambda kind: kind.name)


def seen(server: Server) -> dict[str, object]:
    """Return facts from /proc about a server, and its log, without values that differ at each start."""
    server.wait_for_rest()  # so that its threads have their names
    process = Path(f"/proc/{server.process.pid}")
    descriptors = Counter(re.sub(r"\d+", "N", str(fd.readlink())) for fd in (process / "fd").iterdir())
    status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
    signals = ("SigBlk", "SigIgn", "SigCgt")
    return {
        "log": re.sub(
            r"(?m)^\[\d+\] \S+ \S+ |\d{4,}|\bN[A-Z0-9]{55}\b|(?<=Took )\S+|(?<=Max Storage:).*",
            "",
            server.log,
        ),
        "folder": (process / "cwd").readlink(),
        "name": (process / "comm").read_text(),
        "descriptors": descriptors,
        "threads": sorted((task / "comm").read_text() for task in (process / "task").iterdir()),
        "signals": {name: status[name] for name in signals},
        "mask": status["Umask"],
        "limits": (process / "limits").read_text(),
    }


@each_way
@pytest.mark.parametrize(
    "config", ["", "jetstream { store_dir: js }", "http: -1"], ids=["plain", "jetstream", "monitored"]
)
def test_nothing_tells_it_from_the_command(
    kind: Kind, config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = Server(kind, tmp_path, config=config)
    assert isinstance(forked.process, ForkedProcess)
    of_forked = seen(forked)
    forked.stop()
    monkeypatch.setattr(servers, "FORKS", False)
    started = Server(kind, tmp_path, config=config)
    assert isinstance(started.process, subprocess.Popen)
    of_started = seen(started)
    started.stop()
    assert of_forked == of_started


@each_way
def test_its_end_is_told_as_that_of_a_child(kind: Kind, tmp_path: Path) -> None:
    server = Server(kind, tmp_path)
    assert server.process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(0.001)
    server.process.send_signal(signal.SIGKILL)
    assert server.process.wait(TIMEOUT) == server.process.poll() == -signal.SIGKILL
    assert not Path(f"/proc/{server.process.pid}").exists()
    server.process.send_signal(signal.SIGTERM)  # to an ended process: no error, and no other process gets it
    with pytest.raises(RuntimeError, match="ended without logging") as told:
        Server(kind, tmp_path, config="no_such_option: {}\nport: x")
    assert "server.conf" in str(told.value)


def test_one_that_fails_at_its_start_has_the_exit_code_of_the_command(tmp_path: Path) -> None:
    server = Server(WAYS[0], tmp_path, config="port: []", ready=False)
    assert isinstance(server.process, ForkedProcess)
    assert server.process.wait(TIMEOUT) == 1
    server.kill()
    assert server.log.startswith("gnats-server: ")


def test_where_the_environment_has_changed_the_program_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Server(WAYS[0], tmp_path).stop()
    monkeypatch.setenv("GNATS_TEST_HAS_CHANGED", "1")
    server = Server(WAYS[0], tmp_path)
    assert isinstance(server.process, subprocess.Popen)
    assert b"GNATS_TEST_HAS_CHANGED=1" in Path(f"/proc/{server.process.pid}/environ").read_bytes()
    server.stop()


def test_with_the_fork_server_its_servers_end(tmp_path: Path) -> None:
    fork_server = ForkServer(WAYS[0].find(), "lean")
    process = ForkedProcess(fork_server, ["-a", "127.0.0.1", "-p", "-1"], tmp_path)
    assert process.stderr
    with process.stderr as log:
        assert any("Server is ready" in line for line in log)
        fork_server.close()
        until(lambda: not Path(f"/proc/{process.pid}").exists())
    with pytest.raises(RuntimeError, match="fork server has ended"):
        process.wait(TIMEOUT)
