"""Measure what one hostile client costs the others: `python -m perf.hostile [--seconds 3] [--base DIR]`.

It prints a table. For each server and each hostile client it has the time that a polite client needs to
connect (CONNECT and PING to PONG) and to get an answer (from another client): the median and the longest of
many tries in ms, alone and beside the hostile client; and the server's peak resident memory in MB, before and
after.
"""

import argparse
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from gnats.testing.rest import NotAtRest, ServerProcess, wait_for_rest

HELLO = '{"verbose":false,"pedantic":false,"headers":true,"no_responders":true'
BCRYPT = "$2b$11$nbgo3R7agn8stvWkjaMBKuUb/iFqyVPnRFp2Tt/SIcP9RUo/T8Lwm"  # of "secret"
CONFIG = """
jetstream {{ store_dir: "{dir}/js", max_mem: 1G, max_file: 8G }}
max_payload: 1MB
accounts {{
    A {{ jetstream: enabled, users: [
        {{ user: good, password: pw }}
        {{ user: bad, password: pw, permissions: {{ publish: {{ deny: "denied" }} }} }}
        {{ user: hashed, password: "{bcrypt}" }}
    ] }}
    $SYS {{ users: [ {{ user: sys, password: pw }} ] }}
}}
"""
MESSAGES = 3_000_000
"""In the stream that direct gets read."""


class Wire:
    """A raw connection of a user."""

    def __init__(self, port: int, user: str = "good", password: str = "pw") -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), 60)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = b""
        hello = f'CONNECT {HELLO},"user":"{user}","pass":"{password}"}}\r\nPING\r\n'
        self.sock.sendall(hello.encode())

    def until(self, end: bytes) -> bytes:
        while end not in self.data:
            got = self.sock.recv(1 << 16)
            if not got:
                raise EOFError(self.data[-200:])
            self.data += got
        head, _, self.data = self.data.partition(end)
        return head + end

    def ready(self) -> "Wire":
        self.until(b"PONG\r\n")
        return self

    def request(self, subject: str, body: bytes = b"") -> bytes:
        """Send a request; return line and payload of its answer. Only one may be under way."""
        self.sock.sendall(b"PUB %s _r %d\r\n%s\r\n" % (subject.encode(), len(body), body))
        line = self.until(b"\r\n")
        size = int(line.split()[-1])
        while len(self.data) < size + 2:
            self.data += self.sock.recv(1 << 16)
        payload, self.data = self.data[:size], self.data[size + 2 :]
        return payload

    def close(self) -> None:
        self.sock.close()


@dataclass(frozen=True)
class Way:
    """A server to measure, and how to run it."""

    label: str
    command: list[str]
    threads: int | None
    environ: dict[str, str]


@contextmanager
def running(way: Way) -> Iterator[tuple[int, int]]:
    """Run a server; yield its port and process id. At the end gnats must rest (NotAtRest)."""
    with tempfile.TemporaryDirectory() as where, socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        taken.close()
        conf = Path(where) / "server.conf"
        text = CONFIG.format(dir=where, bcrypt=BCRYPT)
        conf.write_text(text + ("" if way.threads is None else f"io_threads: {way.threads}\n"))
        with (Path(where) / "log").open("wb") as log:
            process = subprocess.Popen(
                [*way.command, "-a", "127.0.0.1", "-p", str(port), "-c", str(conf)],
                cwd=where,
                env=os.environ | way.environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        try:
            for _ in range(300):
                try:
                    Wire(port).ready().close()
                    break
                except (OSError, EOFError):
                    if process.poll() is not None:
                        raise SystemExit((Path(where) / "log").read_text()) from None
                    time.sleep(0.05)
            at_start = ServerProcess(process.pid)
            yield port, process.pid
            if way.threads is not None:
                wait_for_rest(at_start)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def resident(pid: int) -> int:
    """Return a process's peak resident memory in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    return 0


# -- hostile clients ---------------------------------------------------------------------------------------


def flood(connections: list[Wire], chunk: bytes, stop: threading.Event) -> None:
    """Send `chunk` on all connections as fast as the server reads it, and drop the server's output."""
    with selectors.DefaultSelector() as selector:
        rest = {}
        for each in connections:
            each.sock.setblocking(False)
            selector.register(each.sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
            rest[each.sock] = memoryview(chunk)
        while not stop.is_set() and selector.get_map():
            for key, what in selector.select(0.1):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                try:
                    if what & selectors.EVENT_READ and not sock.recv(1 << 20):
                        raise ConnectionResetError
                    if what & selectors.EVENT_WRITE:
                        rest[sock] = rest[sock][sock.send(rest[sock]) :] or memoryview(chunk)
                except BlockingIOError:
                    continue
                except OSError:
                    selector.unregister(sock)


def _many(port: int, count: int, user: str = "bad") -> list[Wire]:
    return [Wire(port, user).ready() for _ in range(count)]


def denied(port: int, stop: threading.Event) -> None:
    """Publishes that its permissions refuse."""
    flood(_many(port, 1), b"PUB denied 1\r\nx\r\n" * 5000, stop)


def user_info(port: int, stop: threading.Event) -> None:
    """Small requests to a service of the system account."""
    flood(_many(port, 1), b"PUB $SYS.REQ.USER.INFO _x 0\r\n\r\n" * 2000, stop)


def api_bodies(port: int, stop: threading.Event) -> None:
    """Requests of 1 MB to the JetStream API, from eight connections."""
    body = b'{"name":"' + b"x" * (1_000_000 - 12) + b'"}'
    flood(_many(port, 8), b"PUB $JS.API.STREAM.CREATE.X _x %d\r\n%s\r\n" % (len(body), body), stop)


def api_small(port: int, stop: threading.Event) -> None:
    """Small requests to the JetStream API."""
    flood(_many(port, 1), b"PUB $JS.API.STREAM.NAMES _x 0\r\n\r\n" * 2000, stop)


def connects(port: int, stop: threading.Event) -> None:
    """CONNECT again and again on one connection."""
    again = f'CONNECT {HELLO},"user":"bad","pass":"pw"}}\r\n'.encode()
    flood(_many(port, 1), again * 2000, stop)


def logins(port: int, stop: threading.Event) -> None:
    """300 logins at a time with a password that is hashed with bcrypt."""
    while not stop.is_set():
        waiting = [Wire(port, "hashed", "wrong") for _ in range(300)]
        flood(waiting, b"PING\r\n", stop)
        for each in waiting:
            each.close()


def direct_get(port: int, stop: threading.Event) -> None:
    """Direct gets of a whole stream, without a subscription to the answers."""
    body = b'{"seq":1,"batch":1000000000,"max_bytes":9000000000000}'
    wires = _many(port, 1)
    wires[0].sock.sendall(b"PUB $JS.API.DIRECT.GET.S nobody %d\r\n%s\r\n" % (len(body), body) * 3)
    stop.wait()


def direct_filter(port: int, stop: threading.Event) -> None:
    """Direct gets of the last messages of subjects with wildcards that match nothing."""
    body = b'{"multi_last":["*.*.none"]}'
    flood(_many(port, 1), b"PUB $JS.API.DIRECT.GET.S nobody %d\r\n%s\r\n" % (len(body), body) * 100, stop)


def purges(port: int, stop: threading.Event) -> None:
    """Purges of all messages of subjects with a wildcard, while others publish to the stream."""
    body = b'{"filter":"s.*.7"}'
    flood(_many(port, 1), b"PUB $JS.API.STREAM.PURGE.S nobody %d\r\n%s\r\n" % (len(body), body), stop)


HOSTILE: dict[str, Callable[[int, threading.Event], None]] = {
    "denied publishes": denied,
    "$SYS.REQ.USER.INFO": user_info,
    "CONNECT again": connects,
    "API, 1 MB bodies": api_bodies,
    "API, small": api_small,
    "300 bcrypt logins": logins,
    "direct get of all": direct_get,
    "multi_last of none": direct_filter,
    "purge by wildcard": purges,
}
WITH_STREAM = {"direct get of all", "multi_last of none", "purge by wildcard"}


# -- the polite client -------------------------------------------------------------------------------------


def fill(port: int) -> None:
    """Fill a memory stream S with MESSAGES small messages of 300,000 subjects."""
    wire = Wire(port).ready()
    wire.sock.sendall(b"SUB _r 1\r\n")
    config = {"name": "S", "subjects": ["s.>"], "storage": "memory", "allow_direct": True, "no_ack": True}
    wire.request("$JS.API.STREAM.CREATE.S", json.dumps(config).encode())
    for first in range(0, MESSAGES, 10_000):
        lines = b"".join(
            b"PUB s.%d.%d 1\r\nx\r\n" % (n % 30_000, n % 10) for n in range(first, first + 10_000)
        )
        wire.sock.sendall(lines)
    wire.sock.sendall(b"PING\r\n")
    wire.ready()
    wire.close()


def polite(port: int, seconds: float) -> str:
    """Return a text: median and longest time to connect, and to get another client's answer, in ms."""
    echo = Wire(port).ready()
    echo.sock.sendall(b"SUB ask 1\r\nPING\r\n")
    echo.ready()
    asker = Wire(port).ready()
    asker.sock.sendall(b"SUB _r 1\r\nPING\r\n")
    asker.ready()
    connected: list[float] = []
    answered: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        begin = time.monotonic()
        Wire(port).ready().close()
        connected.append(time.monotonic() - begin)
        begin = time.monotonic()
        asker.sock.sendall(b"PUB ask _r 2\r\nhi\r\n")
        echo.until(b"hi\r\n")
        echo.sock.sendall(b"PUB _r 2\r\nho\r\n")
        asker.until(b"ho\r\n")
        answered.append(time.monotonic() - begin)
        time.sleep(0.01)
    echo.close()
    asker.close()
    return " ".join(f"{1000 * median(t):7.1f} {1000 * max(t):7.1f}" for t in (connected, answered))


def measure(way: Way, name: str, seconds: float) -> str:
    """Measure one server and hostile client; return a line of the table."""
    with running(way) as (port, pid):
        if name in WITH_STREAM:
            fill(port)
        before = resident(pid)
        idle = polite(port, 1.0)
        # A process of its own, so that the two clients do not share an interpreter.
        hostile = subprocess.Popen(
            [sys.executable, "-m", "perf.hostile", "--attack", name, "--port", str(port)],
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            time.sleep(0.5)
            beside = polite(port, seconds)
        finally:
            hostile.kill()
            hostile.wait()
        after = resident(pid)
    return f"{way.label:23} {name:20} {idle} | {beside} | {before:5} {after:5}"


def ways(base: str) -> list[Way]:
    """Return nats-server and gnats without and with I/O threads; also those of another checkout, `base`."""
    here = Path(sys.executable).parent
    found = [Way("nats-server", [str(here / "nats-server")], None, {})]
    run = [sys.executable, "-P", "-c", "from gnats.main import main; raise SystemExit(main())"]
    for folder, label in ((str(Path(__file__).parent.parent), "gnats"), (base, "gnats before")):
        if folder:
            environ = {"PYTHONPATH": folder}
            found += [
                Way(f"{label}, loop", run, 0, environ),
                Way(f"{label}, 2 threads", run, 2, environ),
            ]
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="perf.hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a measurement")
    parser.add_argument("--base", default="", help="folder with another gnats, to compare with")
    parser.add_argument("--only", default="", help="hostile clients whose name contains this")
    parser.add_argument("--servers", default="", help="servers whose name contains this")
    parser.add_argument("--attack", default="", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.attack:
        HOSTILE[args.attack](args.port, threading.Event())
        return
    times = f"{'connect':>15} {'request':>15}"
    print(f"{'':44} {'idle, ms':>31} | {'beside, ms':>31} |  memory, MB")
    print(f"{'server':23} {'hostile client':20} {times} | {times} |")
    for name in HOSTILE:
        for way in ways(args.base):
            if args.only in name and args.servers in way.label:
                try:
                    print(measure(way, name, args.seconds), flush=True)
                except OSError as exc:
                    print(f"{way.label:22} {name:20} no answer: {exc}", flush=True)
                except NotAtRest as fault:
                    print(f"{way.label:22} {name:20} {fault}", flush=True)


if __name__ == "__main__":
    main()
