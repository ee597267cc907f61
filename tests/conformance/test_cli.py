"""The command nats-server: output, exit codes, signals, files, and log lines."""

from __future__ import annotations

import json
import re
import signal
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.launch import Launch
from support.servers import LISTENING, READY, REFERENCE, TIMEOUT, Kind, Server, until
from support.wire import Closed, Connection, parse_info

from gnats.testing.rest import ServerProcess, wait_for_rest

from .cases import QUIET

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("programs")]

FLAGS = (
    "-t",
    "-sl",
    "-ms",
    "-s",
    "-r",
    "-VV",
    "-DVV",
    "--log_size_limit",
    "--max_traced_msg_len",
    "--client_advertise",
    "--profile",
    "--tls",
    "--tlscert",
    "--tlskey",
    "--tlsverify",
    "--tlscacert",
    "--help_tls",
    "-a",
    "-p",
    "-n",
    "-c",
    "-D",
    "-V",
    "-DV",
    "-l",
    "-T",
    "-P",
    "--ports_file_dir",
    "--user",
    "--pass",
    "--auth",
    "-m",
)
LINE = r"\[{pid}\] \d{{4}}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{{6}} \[(INF|DBG|TRC|WRN|ERR|FTL)\] .*"

# The steps of a session; the test compares what -DV logs of it with the reference.
SESSION = (
    b'CONNECT {"verbose":false,"name":"me","user":"u","pass":"s3cret","auth_token":"t","headers":true}\r\n',
    b"SUB foo.* 1\r\n",
    b"SUB bar q 2\r\n",
    b"PUB foo.a re.ply 5\r\nhello\r\n",
    b"PUB nobody 0\r\n\r\n",
    b'PUB foo.b 12\r\n\0\xff\t"\\\r\n\x7f\xc3\xa9\xe2\x82\r\n',
    b"HPUB foo.c 18 20\r\nNATS/1.0\r\nA: 1\r\n\r\nhi\r\n",
    b"UNSUB 1 5\r\n",
    b"UNSUB 1\r\n",
    b"PONG\r\n+OK\r\nINFO {}\r\n",
    b"SUB foo..bar 3\r\n",
    b"SUB foo _sys_ 4\r\n",
    b"PUB $NRG.x 2\r\nhi\r\n",
    b"UNSUB 2\r\n",
)


@pytest.fixture
def started(kind: Kind, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start commands without reading their log or waiting for them: started("-l", "file").

    The test ends them, when they rest.
    """
    processes: list[subprocess.Popen[bytes]] = []

    def start(*args: str) -> subprocess.Popen[bytes]:
        processes.append(subprocess.Popen([kind.find(), "-a", "127.0.0.1", "-p", "-1", *args], cwd=tmp_path))
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait(TIMEOUT)


def assert_one_line(text: str) -> None:
    """Require an error text of one line without a traceback."""
    assert len(text.strip().splitlines()) == 1, text
    assert "Traceback" not in text


@pytest.mark.parametrize("flag", ["-v", "--version", "-version", "version"])
def test_version(executable: Kind, tmp_path: Path, flag: str) -> None:
    done = executable.run(tmp_path, flag)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == REFERENCE.run(tmp_path, flag).stdout


@pytest.mark.parametrize("flag", ["-h", "--help", "-help", "help"])
def test_help(executable: Kind, tmp_path: Path, flag: str) -> None:
    done = executable.run(tmp_path, flag)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage" in done.stdout
    for flag in FLAGS:
        assert re.search(rf"(?<!\S){flag}\b", done.stdout), flag


@pytest.mark.parametrize("args", [["--nosuch"], ["-p", "many"], ["-p"], ["-nosuch=1"]], ids=" ".join)
def test_bad_flag(executable: Kind, tmp_path: Path, args: list[str]) -> None:
    done = executable.run(tmp_path, *args)
    assert args[0].strip("-").partition("=")[0] in done.stdout + done.stderr
    if executable.is_reference:  # it prints its usage and exits with 0
        assert (done.returncode, "Usage" in done.stdout + done.stderr) == (0, True)
    else:
        assert (done.returncode, done.stdout) == (1, "")
        assert_one_line(done.stderr)


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["nosuch"], "nosuch"),
        (["-c", "nosuch.conf"], "nosuch.conf"),
        (["-c", "bad.conf"], "bad.conf"),
        (["-P", "nosuch/pid"], "nosuch/pid"),
        (["-l", "nosuch/log"], "nosuch/log"),
        (["-a", "192.0.2.1"], "192.0.2.1"),
        (["-p", "70000"], "70000"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_is_named_and_ends_with_1(
    executable: Kind, tmp_path: Path, args: list[str], named: str
) -> None:
    (tmp_path / "bad.conf").write_text("max_payload: many\n")
    done = executable.run(tmp_path, "-a", "127.0.0.1", "-p", "-1", *args)
    assert (done.returncode, done.stdout) == (1, "")
    assert named in done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_address_in_use(executable: Kind, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = executable.run(tmp_path, "-a", "127.0.0.1", "-p", str(port))
    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.strip().splitlines()[-1]
    assert re.search(rf"\[FTL\] Error listening on port: 127\.0\.0\.1:{port}, .*address already in use", last)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=lambda signum: signum.name)
def test_signals_end_it_well(launch: Launch, signum: signal.Signals) -> None:
    server = launch("-P", "pid", "--ports_file_dir", ".")
    with Connection(server.address) as quiet, Connection(server.address) as busy:
        busy.send(QUIET + b"SUB a 1\r\n")
        assert busy.fence() == []
        server.stop(signum)
        assert quiet.rest() == busy.rest() == b""
    trapped = {signal.SIGINT: "interrupt", signal.SIGTERM: "terminated"}[signum]
    tail = [line.split("] ", 1)[1] for line in re.findall(r"\[INF\] .*", server.log)][-3:]
    assert tail == [f'Trapped "{trapped}" signal', "Initiating Shutdown...", "Server Exiting.."]


def test_lame_duck_without_clients_ends_at_once(launch: Launch) -> None:
    server = launch()
    server.stop(signal.SIGUSR2)
    assert "[INF] Entering lame duck mode, stop accepting new clients\n" in server.log


def test_lame_duck_tells_clients_and_lets_nobody_in(launch: Launch) -> None:
    """In lame duck mode (its grace period is ten seconds) the server ignores SIGTERM; SIGINT ends it."""
    server = launch()
    with Connection(server.address) as told, Connection(server.address) as untold:
        told.send(b'CONNECT {"verbose":false,"protocol":1}\r\n')
        told.fence()
        assert parse_info(told.read_op())["connect_info"]
        untold.send(b'CONNECT {"verbose":false,"protocol":0}\r\n')
        assert untold.fence() == []
        server.process.send_signal(signal.SIGUSR2)
        info = parse_info(told.read_op())
        assert {key: value for key, value in info.items() if told.info.get(key) != value} == {"ldm": True}
        with pytest.raises((Closed, ConnectionRefusedError)):
            Connection(server.address)
        server.process.send_signal(signal.SIGTERM)
        server.wait_log(r'\[INF\] Trapped "terminated" signal\n')
        assert told.fence() == untold.fence() == []
        server.stop(signal.SIGINT)
        assert told.rest() == untold.rest() == b""


def test_port_is_free_after_the_end(launch: Launch) -> None:
    server = launch()
    with Connection(server.address):
        server.stop()
    server.start_again()
    with Connection(server.address) as connection:
        assert connection.fence() == []


def test_pid_file(launch: Launch) -> None:
    server = launch("-P", "pid")
    path = server.directory / "pid"
    assert path.read_text() == str(server.process.pid)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    server.stop()
    assert path.exists()


def test_ports_file(launch: Launch) -> None:
    server = launch("--ports_file_dir", ".", "-m", "-1")
    path = server.directory / f"{server.kind.command}_{server.process.pid}.ports"
    ports = json.loads(until(lambda: path.read_text() if path.exists() else ""))
    assert ports == {"nats": [server.url], "monitoring": [f"http://127.0.0.1:{server.monitor_port}"]}
    server.stop()
    assert not path.exists()


def test_ports_file_without_monitoring(launch: Launch) -> None:
    server = launch("--ports_file_dir", ".")
    path = server.directory / f"{server.kind.command}_{server.process.pid}.ports"
    assert until(lambda: path.read_text() if path.exists() else "") == f'{{"nats":["{server.url}"]}}'


def test_log_of_a_start(launch: Launch) -> None:
    server = launch("-n", "me", "-m", "-1")
    with Connection(server.address) as connection:
        info = connection.info
    for line in server.log.splitlines():
        assert re.fullmatch(LINE.format(pid=server.process.pid), line) or "config has no values" in line, line
    expected = (
        r"\[INF\] Starting (nats|gnats)-server\n",
        rf"\[INF\]   Version:  {re.escape(info['version'])}\n",
        r"\[INF\]   Name:     me\n",
        rf"\[INF\]   ID:       {info['server_id']}\n",
        r"\[INF\] Starting http monitor on 127\.0\.0\.1:\d+\n",
        LISTENING.pattern + "\n",
        READY.pattern + "\n",
    )
    positions = [server.wait_log(pattern).start() for pattern in expected]
    assert positions == sorted(positions)


@pytest.mark.parametrize("flag", ["-T=false", "--logtime=false"])
def test_log_without_time(launch: Launch, flag: str) -> None:
    server = launch(flag)
    assert f"[{server.process.pid}] [INF] Server is ready\n" in server.log


def test_log_file_and_reopening(
    kind: Kind, started: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    log, old = tmp_path / "log", tmp_path / "old"
    process = started("-l", "log")
    until(lambda: log.exists() and READY.search(log.read_text()))
    assert stat.S_IMODE(log.stat().st_mode) & 0o007 == 0
    address = LISTENING.search(log.read_text())
    assert address
    at_start = ServerProcess(process.pid)
    log.rename(old)
    process.send_signal(signal.SIGUSR1)
    until(lambda: log.exists() and "[INF] File log re-opened\n" in log.read_text())
    assert '[INF] Trapped "user defined signal 1" signal\n' in old.read_text()
    with Connection((address[1], int(address[2]))) as connection:
        assert connection.fence() == []
    if not kind.is_reference:
        wait_for_rest(at_start)
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT) == 0
    assert "[INF] Server Exiting.." in log.read_text()
    assert "Server Exiting" not in old.read_text()
    for line in (old.read_text() + log.read_text()).splitlines():
        assert re.fullmatch(LINE.format(pid=process.pid), line), line


def test_log_to_stderr_ignores_reopening(launch: Launch) -> None:
    server = launch()
    server.process.send_signal(signal.SIGUSR1)
    server.wait_log(r'\[INF\] Trapped "user defined signal 1" signal\n')
    server.wait_log(r"\[INF\] File log re-open ignored, not a file logger\n")
    with Connection(server.address) as connection:
        assert connection.fence() == []


@pytest.mark.parametrize(
    "flags", [("-DV",), ("-D", "-V"), ("--debug", "--trace"), ("-D",), ("-V",), ()], ids=" ".join
)
def test_log_of_a_session(launch: Launch, flags: tuple[str, ...]) -> None:
    tested, expected = launch(*flags), launch(*flags, kind=REFERENCE)
    assert log_of_session(tested) == log_of_session(expected)


def log_of_session(server: Server) -> list[str]:
    """Return the log of SESSION without times and numbers that differ."""
    with Connection(server.address) as connection:
        for step in SESSION:
            connection.send(step)
            connection.fence()
        connection.end()
        connection.rest()
    server.stop()
    lines = re.findall(rf"\[[A-Z]{{3}}\] 127\.0\.0\.1:{connection.local[1]} - .*", server.log)
    return [re.sub(r"127\.0\.0\.1:\d+ - cid:\d+", "CLIENT", line) for line in lines]


def test_log_of_a_parser_error(launch: Launch) -> None:
    server = launch("-DV")
    with Connection(server.address) as connection:
        connection.send(QUIET + b"PING\r\nFOO bar\r\n")
        connection.rest()
    server.wait_log(r"\[TRC\] .* - ->> \[-ERR Unknown Protocol Operation\]\n")
    server.wait_log(r"""\[ERR\] .* - Client parser ERROR, state=\d+, i=\d+: proto='"FOO bar.*'\n""")
    server.wait_log(r"\[DBG\] .* - Client connection closed: Protocol Violation\n")


def test_flags_win_over_the_configuration(launch: Launch) -> None:
    server = launch("-n", "flag", config="server_name: conf\nport: 1\nhost: 192.0.2.1\nmax_payload: 1000")
    with Connection(server.address) as connection:
        assert (connection.info["server_name"], connection.info["max_payload"]) == ("flag", 1000)


@pytest.mark.parametrize("dashes", ["-", "--"])
def test_long_names_of_flags(launch: Launch, dashes: str) -> None:
    """A flag has one dash or two, and its value follows = or is the next word."""
    server = launch(f"{dashes}name=me", f"{dashes}http_port", "-1", f"{dashes}pid", "pid")
    with Connection(server.address) as connection:
        assert connection.info["server_name"] == "me"
    assert server.monitor_port
    assert (server.directory / "pid").exists()
