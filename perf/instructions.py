"""Count the server's instructions for a message: `python -m perf.instructions [--base DIR] [SCENARIO ...]`.

It prints a table: user instructions for each published message in this build, beside those in the build of
another checkout (`--base`). Valgrind counts them (Debian: valgrind), so neither other work on the machine nor
its clock matters, and one run is enough. They do not include the kernel's. They do include a little that a
server does only under valgrind: its turns (1 ms) are over after a few dozen messages, and the rest of a read
is kept for the next.

Each scenario runs with few and with many messages; the difference leaves out the server's start and end.
"""

import argparse
import json
import re
import signal
import socket
import subprocess
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gnats.testing.rest import ServerProcess, wait_for_rest

FEW, MANY = 5_000, 45_000
BATCH = 500  # messages written at once; the next ones follow the answers
TIMEOUT = 300.0  # seconds; with valgrind a server is fifty times slower
HERE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Scenario:
    """The messages to publish, their form, and the number of subscribers."""

    about: str
    size: int = 16
    subscribers: int = 0
    group: str = ""
    reply: str = ""
    stream: bool = False
    link: str = ""
    """A second server, not under valgrind, has the subscribers ("out") or the publisher ("in")."""

    def message(self) -> bytes:
        words = ["PUB", "a", *([self.reply] if self.reply else []), str(self.size)]
        return " ".join(words).encode() + b"\r\n" + b"x" * self.size + b"\r\n"


SCENARIOS = {
    "pub/16B": Scenario("nobody subscribed"),
    "reply/16B": Scenario("nobody subscribed, with a reply subject", reply="r.x"),
    "1:1/16B": Scenario("one subscriber", subscribers=1),
    "1:1/1KiB": Scenario("one subscriber", size=1024, subscribers=1),
    "1:5/16B": Scenario("five subscribers", subscribers=5),
    "queue/16B": Scenario("a queue group of four", subscribers=4, group="q"),
    "js/128B": Scenario("a stream in memory", size=128, stream=True),
    "route-out/16B": Scenario("one subscriber behind a route", subscribers=1, link="out"),
    "route-in/16B": Scenario("one subscriber, what comes over a route", subscribers=1, link="in"),
}


ROUTED = "cluster {{ name: C, listen: '127.0.0.1:-1', pool_size: -1, routes: [{routes}] }}\n"


class Client:
    """A connection whose CONNECT has been answered."""

    def __init__(self, port: int, more: bytes = b"") -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
        self.send(b'CONNECT {"verbose":false,"headers":true%b}\r\n' % more)
        self.fence()

    def send(self, data: bytes) -> None:
        self._sock.sendall(data)

    def fence(self) -> bytes:
        """Wait until the server has handled everything sent; return what came. Raises EOFError."""
        self.send(b"PING\r\n")
        came = b""
        while not came.endswith(b"PONG\r\n"):
            if not (more := self._sock.recv(1 << 16)):
                raise EOFError("the server has closed the connection")
            came += more
        return came

    def read_all(self) -> None:
        """Read and drop everything up to the end of the connection."""
        while self._sock.recv(1 << 20):
            pass

    def end(self) -> None:
        """End the connection, and a read of another thread."""
        self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._sock.close()


def prepare(stack: ExitStack, port: int, other: int, scenario: Scenario) -> Client:
    """Make the scenario's subscribers, which read all the time, or its stream; return the publisher.

    `other` is the port of the second server of a scenario with a link.
    """
    subscribers_at = other if scenario.link == "out" else port
    for _ in range(scenario.subscribers):
        subscriber = Client(subscribers_at)
        subscriber.send(b"SUB a %s 1\r\n" % scenario.group.encode())
        subscriber.fence()
        reader = threading.Thread(target=subscriber.read_all)
        reader.start()
        stack.callback(subscriber.close)
        stack.callback(reader.join)
        stack.callback(subscriber.end)
    publisher = Client(other if scenario.link == "in" else port)
    stack.callback(publisher.close)
    stack.callback(publisher.end)
    if scenario.link:
        wait_for_interest(other if scenario.link == "in" else port)
    if scenario.stream:
        body = b'{"name":"S","subjects":["a"],"storage":"memory"}'
        publisher.send(b"SUB r 1\r\nPUB $JS.API.STREAM.CREATE.S r %d\r\n%s\r\n" % (len(body), body))
        while b'"created"' not in publisher.fence():
            pass
        publisher.send(b"UNSUB 1\r\n")
    return publisher


def run(build: Path, scenario: Scenario, messages: int) -> int:
    """Run a server under valgrind, publish `messages`; return all its instructions.

    Raises NotAtRest.
    """
    with tempfile.TemporaryDirectory() as where, ExitStack() as stack:
        config = Path(where) / "server.conf"
        common = f"port: -1, host: 127.0.0.1, io_threads: 0, ports_file_dir: '{where}'\n"
        config.write_text(
            common
            + (f"jetstream {{ store_dir: '{where}/js' }}\n" if scenario.stream else "")
            + (ROUTED.format(routes="") if scenario.link else "")
        )
        log = stack.enter_context((Path(where) / "log").open("w+"))
        server = subprocess.Popen(
            [
                *("valgrind", "--tool=callgrind", f"--callgrind-out-file={where}/out"),
                *(str(build / ".venv/bin/python"), "-P", "-m", "gnats.main", "-c", str(config)),
            ],
            cwd=where,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            port = wait_for_port(server, Path(where))
            at_start = ServerProcess(server.pid)
            other = second_server(stack, build, Path(where), common) if scenario.link else port
            publisher = prepare(stack, port, other, scenario)
            batch = scenario.message() * BATCH
            for _ in range(messages // BATCH):
                publisher.send(batch)
                publisher.fence()
            wait_for_rest(at_start)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(TIMEOUT)
        said = (Path(where) / "log").read_text()
        if not (collected := re.search(r"Collected : (\d+)", said)):
            raise SystemExit(f"valgrind reported no instructions:\n{said}")
        return int(collected[1])


def wait_for_interest(port: int) -> None:
    """Wait until a server knows of a subscription to `a`, and so does not say that nobody answers."""
    probe = Client(port, b',"no_responders":true')
    probe.send(b"SUB r 1\r\n")
    pause = threading.Event()
    while True:
        probe.send(b"PUB a r 0\r\n\r\n")
        if b" 503\r\n" not in probe.fence():
            break
        pause.wait(0.1)
    probe.end()
    probe.close()


def second_server(stack: ExitStack, build: Path, where: Path, common: str) -> int:
    """Start a server with a route to the one whose ports file is in `where`; return its port for clients."""
    (ports,) = where.glob("*.ports")
    (route,) = json.loads(ports.read_text())["cluster"]
    own = where / "second"
    own.mkdir()
    config = own / "server.conf"
    config.write_text(common.replace(f"'{where}'", f"'{own}'") + ROUTED.format(routes=f'"{route}"'))
    log = stack.enter_context((own / "log").open("w+"))
    server = subprocess.Popen(
        [str(build / ".venv/bin/python"), "-P", "-m", "gnats.main", "-c", str(config)],
        cwd=own,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )
    stack.callback(server.wait, TIMEOUT)
    stack.callback(server.terminate)
    return wait_for_port(server, own)


def wait_for_port(server: "subprocess.Popen[bytes]", where: Path) -> int:
    """Wait for the server's ports file; return its port for clients. Raises SystemExit with the log."""
    pause = threading.Event()
    for _ in range(int(TIMEOUT / 0.1)):
        for path in where.glob("*.ports"):
            return int(json.loads(path.read_text())["nats"][0].rpartition(":")[2])
        if server.poll() is not None:
            break
        pause.wait(0.1)
    raise SystemExit(f"the server did not start:\n{(where / 'log').read_text()}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m perf.instructions", description=__doc__.split("\n")[0])
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"some of {', '.join(SCENARIOS)}")
    parser.add_argument("--base", type=Path, help="another checkout, with a build, to compare with")
    args = parser.parse_args()
    if unknown := set(args.scenarios) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    builds = [*([args.base.resolve()] if args.base else []), HERE]
    print("| scenario | |" + (" base |" if args.base else "") + " here |" + (" ratio |" if args.base else ""))
    print("| --- " * (3 + 2 * bool(args.base)) + "|")
    for name in args.scenarios or SCENARIOS:
        scenario = SCENARIOS[name]
        counts = [(run(build, scenario, MANY) - run(build, scenario, FEW)) / (MANY - FEW) for build in builds]
        cells = [f"{count:,.0f}" for count in counts] + (
            [f"{counts[1] / counts[0]:.3f}"] if args.base else []
        )
        print(f"| {name} | {scenario.about} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
