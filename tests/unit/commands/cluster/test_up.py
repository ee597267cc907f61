"""`gnats cluster up` as a program: start, use, signals, members that end, nothing left."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from support.natspy import joined
from support.servers import TIMEOUT, until

from gnats.commands.cluster import running
from gnats.commands.cluster.output import Output
from gnats.commands.cluster.plan import Plan, configuration, plan_members
from gnats.commands.cluster.running import Running
from gnats.errors import ServerError
from gnats.system.ports import port_of, reserve_port

pytestmark = pytest.mark.timeout(120)

COMMAND = [sys.executable, "-m", "gnats.cli", "cluster"]
ROW = re.compile(r"([sl]\d+) (?: *C-\d)? +(nats://127\.0\.0\.1:\d+) +(http://127\.0\.0\.1:\d+|-)\n")

Up = Callable[..., "Command"]


class Command:
    """A cluster that the command has started: its processes, and the table that it has printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.head: list[str] = []
        assert process.stdout
        for line in process.stdout:
            self.head.append(line)
            has_leafs = any(line.startswith("l1 ") for line in self.head)
            last = ("Connect to it: ", "Connect to any of ", "Connect to C-2: ")
            if has_leafs:
                last = ("Connect to a leaf node: ",)
            if line.startswith(last):
                break
        self.rows = [row.groups() for row in map(ROW.fullmatch, self.head) if row]
        self.members = children(process.pid)

    @property
    def urls(self) -> list[str]:
        return [url for _, url, _ in self.rows]

    def end(self) -> tuple[int, str, str]:
        """Wait for the end of the command; return its exit code, and the rest of its output and errors."""
        out, err = self.process.communicate(timeout=TIMEOUT)
        assert not any(map(is_alive, self.members))
        return self.process.returncode, out, err


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def state(pid: int) -> str:
    """Return the state of a process as in /proc; X when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:
        return "X"


def is_alive(pid: int) -> bool:
    return state(pid) not in "ZX"


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """Start a cluster on free ports: up("3"). It is stopped at the end."""
    with ExitStack() as stack:

        def start(*args: str, port: str = "-1") -> Command:
            process = subprocess.Popen(
                [*COMMAND, "up", *args, "--port", port],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=tmp_path,
                env=os.environ | {"TMPDIR": str(tmp_path)},
            )
            stack.callback(stop, process)
            return Command(process)

        yield start


def stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
    process.communicate(timeout=TIMEOUT)


async def test_a_message_goes_from_one_member_to_another(up: Up, tmp_path: Path) -> None:
    cluster = up("3", "--name", "C", "--threads", "0")
    assert cluster.head[0] == "Cluster C: 3 servers, each connected to all others. Ctrl-C stops it.\n"
    assert [name for name, _, _ in cluster.rows] == ["s1", "s2", "s3"]
    assert cluster.head[-1] == f"Connect to any of them: {','.join(cluster.urls)}\n"
    assert len(cluster.members) == 3
    async with joined(cluster.urls[0]) as subscriber, joined(cluster.urls[2]) as publisher:
        subscription = await subscriber.subscribe("a")
        await subscriber.flush(TIMEOUT)  # type: ignore[arg-type]
        while not subscription.pending_msgs:  # until the publisher's member knows of the subscription
            await publisher.publish("a", b"hi")
            await publisher.flush(TIMEOUT)  # type: ignore[arg-type]
            await subscriber.flush(TIMEOUT)  # type: ignore[arg-type]
        assert (await subscription.next_msg(TIMEOUT)).data == b"hi"
    cluster.process.send_signal(signal.SIGINT)
    code, out, err = cluster.end()
    assert (code, err) == (0, "")
    for name in "s1", "s2", "s3":
        assert re.search(rf'^{name} \| \[\d+\] .* \[INF\] Trapped "terminated" signal$', out, re.MULTILINE)
        assert re.search(rf"^{name} \| \[\d+\] .* \[INF\] Server Exiting\.\.$", out, re.MULTILINE)
    assert not files(tmp_path)


@pytest.mark.parametrize("size", ["1", "2"])
async def test_a_message_goes_from_one_leaf_node_to_another(up: Up, tmp_path: Path, size: str) -> None:
    cluster = up(size, "--leaf", "2", "--threads", "0")
    names = [name for name, _, _ in cluster.rows]
    assert names == [*(f"s{number + 1}" for number in range(int(size))), "l1", "l2"]
    leafs, members = cluster.urls[-2:], cluster.urls[:-2]
    which = "it" if size == "1" else "any of them"
    assert cluster.head[-2] == f"Connect to {which}: {','.join(members)}\n"
    assert cluster.head[-1] == f"Connect to a leaf node: {' or '.join(leafs)}\n"
    assert len(cluster.members) == int(size) + 2
    async with joined(leafs[0]) as subscriber, joined(leafs[1]) as publisher:
        subscription = await subscriber.subscribe("a")
        await subscriber.flush(TIMEOUT)  # type: ignore[arg-type]
        while not subscription.pending_msgs:  # until the publisher's server knows of the subscription
            await publisher.publish("a", b"hi")
            await publisher.flush(TIMEOUT)  # type: ignore[arg-type]
            await subscriber.flush(TIMEOUT)  # type: ignore[arg-type]
        assert (await subscription.next_msg(TIMEOUT)).data == b"hi"
    cluster.process.send_signal(signal.SIGINT)
    code, out, err = cluster.end()
    assert (code, err) == (0, "")
    for name in names:
        assert re.search(rf"^{name} \| \[\d+\] .* \[INF\] Server Exiting\.\.$", out, re.MULTILINE)
    assert not files(tmp_path)


async def test_an_answer_comes_from_another_cluster(up: Up, tmp_path: Path) -> None:
    clusters = up("1", "--name", "C", "--gateways", "2", "--leaf", "2", "--threads", "0")
    assert clusters.head[0].startswith("Clusters C-1, C-2: 1 server in each, joined by gateways, and 2 leaf ")
    assert [name for name, _, _ in clusters.rows] == ["s1", "s2", "l1", "l2"]
    assert clusters.head[-3:-1] == [f"Connect to C-{n + 1}: {clusters.urls[n]}\n" for n in range(2)]
    for here, there in (0, 1), (2, 3):
        async with joined(clusters.urls[here]) as asking, joined(clusters.urls[there]) as answering:

            async def answer(message: Msg) -> None:
                await message.respond(message.data)

            await answering.subscribe(f"service.{here}", cb=answer)
            await answering.flush(TIMEOUT)  # type: ignore[arg-type]
            while True:
                try:
                    reply = await asking.request(f"service.{here}", b"hi", timeout=TIMEOUT)
                except NoRespondersError:  # the other cluster has not told of its interest yet
                    continue
                assert reply.data == b"hi"
                break
    clusters.process.send_signal(signal.SIGINT)
    assert clusters.end()[0] == 0
    assert not files(tmp_path)


def test_a_hub_and_its_leaf_node_may_have_jetstream(up: Up) -> None:
    cluster = up("1", "--js", "--leaf", "1")
    assert [name for name, _, _ in cluster.rows] == ["s1", "l1"]
    cluster.process.send_signal(signal.SIGINT)
    assert cluster.end()[0] == 0


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_all(up: Up, signum: signal.Signals) -> None:
    cluster = up("2")
    cluster.process.send_signal(signum)
    code, _, err = cluster.end()
    assert (code, err) == (0, "")


def test_a_member_that_is_killed_stops_all(up: Up) -> None:
    cluster = up("3")
    names = {Path(f"/proc/{pid}/cmdline").read_text().split("\0")[-2]: pid for pid in cluster.members}
    os.kill(next(pid for conf, pid in names.items() if conf.endswith("s2.conf")), signal.SIGKILL)
    code, _, err = cluster.end()
    assert (code, err) == (1, "gnats cluster: s2 was ended by SIGKILL\n")


def test_a_member_that_ends_by_itself_stops_all(up: Up) -> None:
    cluster = up("1")
    os.kill(cluster.members[0], signal.SIGINT)
    code, _, err = cluster.end()
    assert (code, err) == (1, "gnats cluster: s1 has ended with exit code 0\n")


def test_members_end_with_a_command_that_is_killed(up: Up) -> None:
    cluster = up("2")
    cluster.process.kill()
    cluster.process.communicate(timeout=TIMEOUT)
    until(lambda: not any(map(is_alive, cluster.members)))


def test_a_reader_that_goes_stops_all(up: Up) -> None:
    cluster = up("2")
    assert cluster.process.stdout
    assert cluster.process.stderr
    cluster.process.stdout.close()
    assert cluster.process.wait(TIMEOUT) == 128 + signal.SIGPIPE
    assert cluster.process.stderr.read() == ""
    assert not any(map(is_alive, cluster.members))


def test_a_second_signal_does_not_wait_for_members(up: Up) -> None:
    cluster = up("1")
    [member] = cluster.members
    os.kill(member, signal.SIGSTOP)
    until(lambda: state(member) == "T")
    cluster.process.send_signal(signal.SIGINT)
    until(lambda: pending(member, signal.SIGTERM))
    cluster.process.send_signal(signal.SIGINT)
    code, _, err = cluster.end()
    assert (code, err) == (0, "")


def pending(pid: int, signum: signal.Signals) -> bool:
    """Whether a signal waits for a stopped process."""
    found = re.search(r"^ShdPnd:\t(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return bool(int(found[1], 16) >> (signum - 1) & 1)


def test_a_store_keeps_the_configurations(up: Up, tmp_path: Path) -> None:
    cluster = up("2", "--store", "kept/here")
    cluster.process.send_signal(signal.SIGINT)
    assert cluster.end()[0] == 0
    assert files(tmp_path / "kept" / "here") == ["s1.conf", "s2.conf"]
    assert files(tmp_path) == ["kept"]


def run(*args: str) -> tuple[int, str, str]:
    done = subprocess.run([*COMMAND, *args], capture_output=True, text=True, timeout=TIMEOUT)
    return done.returncode, done.stdout, done.stderr


def test_a_port_in_use_is_one_line() -> None:
    with reserve_port() as reserved, socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = port_of(reserved)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        code, out, err = run("up", "1", "--port", str(port))
    where = f"127.0.0.1:{port}"
    reason = f'Error listening on port: {where}, "listen tcp {where}: bind: address already in use"'
    assert (code, out, err) == (1, "", f"gnats cluster: s1: {reason}\n")


def test_what_the_server_refuses_is_one_line() -> None:
    code, out, err = run("up", "1", "--gateways", "2", "--js", "--port", "-1")
    assert (code, out) == (1, "")
    reason = "JetStream cluster requires configured routes or solicited leafnode for the system account"
    assert re.fullmatch(rf"gnats cluster: [\w-]+: {reason}\n", err)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[Path], Running]]:
    """Make a cluster of one member in this process, which prints nothing: make(folder for its socket)."""
    with open(os.devnull, "w") as nowhere, reserve_port() as reserved:  # noqa: PTH123
        members = plan_members(Plan(1, port=-1), lambda: port_of(reserved))
        conf = tmp_path / "s1.conf"
        conf.write_text(configuration(Plan(1), members[0], members, tmp_path))
        yield lambda sockets: Running(["C"], members, [conf], sockets, Output(["s1"], nowhere))


async def test_a_cluster_that_takes_too_long_is_one_line(
    make: Callable[[Path], Running], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "START_TIMEOUT", 0.0)
    before, others = signal.getsignal(signal.SIGTERM), children(os.getpid())
    with pytest.raises(ServerError, match=r"^gave up after 0 s: s1 is not ready$"):
        await make(tmp_path).run()
    assert children(os.getpid()) == others
    assert signal.getsignal(signal.SIGTERM) == before


async def test_a_member_that_cannot_be_started_is_one_line(
    make: Callable[[Path], Running], tmp_path: Path
) -> None:
    with pytest.raises(ServerError, match=r"^s1 does not start: AF_UNIX path too long$"):
        await make(tmp_path / ("x" * 108)).run()


@pytest.mark.parametrize(
    ("args", "code", "error"),
    [
        (["up", "0"], 1, "gnats cluster: a cluster has 1 to 32 servers, not 0"),
        (["up", "3", "--port", "0"], 1, "gnats cluster: --port takes -1 (free ports) or 1 to 65533, not 0"),
        (
            ["up", "3", "--gateways", "0"],
            1,
            "gnats cluster: --gateways takes 1 to 10 clusters of 3 servers, not 0",
        ),
        (["up", "3", "--leaf", "33"], 1, "gnats cluster: --leaf takes 0 to 32 leaf nodes, not 33"),
        (["up", "1", "--store", "/proc/x"], 1, "gnats cluster: /proc/x: no such file or directory"),
        (
            ["up", "x"],
            2,
            "gnats cluster up: argument N: invalid int value: 'x'; gnats cluster up -h tells more",
        ),
        (
            ["up"],
            2,
            "gnats cluster up: the following arguments are required: N; gnats cluster up -h tells more",
        ),
        ([], 2, "gnats cluster: the following arguments are required: up; gnats cluster -h tells more"),
    ],
)
def test_wrong_arguments_are_one_line(args: list[str], code: int, error: str) -> None:
    assert run(*args) == (code, "", f"{error}\n")


def test_the_help_lists_the_options() -> None:
    code, out, err = run("up", "--help")
    assert (code, err) == (0, "")
    assert out.startswith("usage: gnats cluster up ")
    for option in "--name", "--port", "--threads", "--js", "--store", "--gateways", "--leaf":
        assert option in out


def test_other_commands_do_not_load_it() -> None:
    program = """
import sys
from gnats.cli import main
main(["version"])
loaded = [name for name in sys.modules if name.startswith(("gnats.commands", "asyncio"))]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50, stdout=subprocess.DEVNULL)
