"""The log's contents and files with each log option, beside the reference's."""

from __future__ import annotations

import re
import signal
import socket
from pathlib import Path

import pytest
from support.launch import Launch
from support.quiet import quiet_server
from support.servers import REFERENCE, TIMEOUT, Kind, Server
from support.wire import Connection

pytestmark = pytest.mark.timeout(60)

CONNECT = b'CONNECT {"verbose":false,"headers":true,"user":"u","pass":"p","auth_token":"t"}\r\n'
SESSION = (
    b"SUB foo 1\r\n",
    b"PUB foo 0\r\n\r\n",
    b"PUB foo 5\r\nhello\r\n",
    b"PUB foo 10\r\n0123456789\r\n",
    b"PUB foo 11\r\n0123456789a\r\n",
    b'PUB foo 15\r\n01234567\xc3"\xe2\x82\xac89\r\n',
    b"HPUB foo 18 18\r\nNATS/1.0\r\nA: 1\r\n\r\n\r\n",
    b"HPUB foo 18 29\r\nNATS/1.0\r\nA: 1\r\n\r\nhello world\r\n",
    b"PUB nobody 3\r\nabc\r\n",
    b"UNSUB 1\r\n",
)
OPTIONS = {
    "max_traced_msg_len": "trace: true\nmax_traced_msg_len: 10",
    "short": "trace: true\nmax_traced_msg_len: 1",
    "trace_headers": "trace: true\ntrace_headers: true",
    "both": "trace: true\ntrace_headers: true\nmax_traced_msg_len: 12",
    "debug": "debug: true\nmax_traced_msg_len: 12",
}
START = {
    "nothing": "",
    "password": "authorization { user: u, password: p }",
    "token": "authorization { token: t }",
    "bcrypt": "authorization { user: u, password: "
    "$2a$11$K4kMaVYdz1JuLAOJUBSrU.VIWVd8SJWcEcGgSsSDxXDgSjeYnKVi. }",
    "big payloads": "max_payload: 9MB",
}


@pytest.mark.parametrize("config", OPTIONS.values(), ids=OPTIONS.keys())
def test_what_a_trace_shows_of_messages(launch: Launch, config: str) -> None:
    assert log_of_session(launch(config=config)) == log_of_session(launch(config=config, kind=REFERENCE))


def log_of_session(server: Server) -> list[str]:
    with Connection(server.address) as connection:
        for step in (CONNECT, *SESSION):
            connection.send(step)
            connection.fence()
        connection.end()
        connection.rest()
    server.stop()
    lines = re.findall(rf"\[[A-Z]{{3}}\] 127\.0\.0\.1:{connection.local[1]} - .*", server.log)
    assert lines or "trace" not in server.conf.read_text()
    return [re.sub(r"127\.0\.0\.1:\d+ - cid:\d+", "CLIENT", line) for line in lines]


@pytest.mark.parametrize("config", START.values(), ids=START.keys())
def test_what_a_start_warns_of(launch: Launch, config: str) -> None:
    tested, expected = launch(config=config), launch(config=config, kind=REFERENCE)
    assert warnings(tested) == warnings(expected)


def warnings(server: Server) -> list[str]:
    return re.findall(r"\[WRN\] .*", server.log)


def test_rotation_of_the_log_file(kind: Kind, tmp_path: Path) -> None:
    """The log rotates by size and keeps log_max_num files."""
    logs = tmp_path / "logs"
    logs.mkdir()
    path = logs / "server.log"
    config = f'log_file: "{path}"\nlog_size_limit: 2000\nlog_max_num: 3\ntrace: true\n'
    with quiet_server(kind, tmp_path, config=config) as server, Connection(server.address) as connection:
        connection.send(CONNECT)
        for _ in range(20):
            connection.send(b"PUB foo 500\r\n" + b"x" * 500 + b"\r\n")
        assert connection.fence() == []
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(TIMEOUT) == 0
    current, *old = sorted(logs.iterdir())
    assert current == path
    assert len(old) == 2
    for file in old:
        assert re.fullmatch(r"server\.log\.\d{4}(\.\d\d){5}\.\d{9}", file.name)
        assert 2000 < file.stat().st_size < 3000
        text = file.read_bytes().decode()
        assert re.search(r'\[INF\] Rotated log, backup saved as ".*"\r?\n', text)
        assert re.search(r'\[INF\] Purged log file "server\.log\.[\d.]+"\r?\n', text)


def test_syslog_far_away(kind: Kind, tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(TIMEOUT)
        config = f"debug: true\nremote_syslog: 'udp://127.0.0.1:{sock.getsockname()[1]}'"
        with quiet_server(kind, tmp_path, config=config) as server:
            lines = []
            while not lines or not lines[-1].endswith(": Server is ready\n"):
                lines.append(sock.recv(65536).decode())
            server.process.send_signal(signal.SIGUSR1)
            assert sock.recv(65536).endswith(b': Trapped "user defined signal 1" signal\n')
            assert sock.recv(65536).endswith(b": File log re-open ignored, not a file logger\n")
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(TIMEOUT) == 0
            while not sock.recv(65536).endswith(b": Server Exiting..\n"):
                pass  # not compared: earlier lines of the shutdown
    header = rf"<[57]>\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d) {re.escape(socket.gethostname())} "
    tag = rf"{kind.command}\[{server.process.pid}\]: "
    for line in lines:
        assert re.match(header + tag, line), line
    assert lines[0].startswith("<5>")
    assert any(line.startswith("<7>") and ": " in line for line in lines)


def test_the_system_account_is_traced_only_verbosely(launch: Launch) -> None:
    quiet, verbose = launch(config="trace: true"), launch(config="trace: true\ntrace_verbose: true")
    for server in (quiet, verbose):
        server.stop()
    assert "[TRC] SYSTEM - " not in quiet.log
    assert re.search(r"\[TRC\] SYSTEM - <<- \[SUB \$SYS\.REQ\.SERVER\.PING\.STATSZ  \d+\]\n", verbose.log)
