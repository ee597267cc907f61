"""Run a server whose log does not go to stderr: read its address from its ports file."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gnats.testing.rest import ServerProcess, wait_for_rest

from .servers import TIMEOUT, Kind, until


class QuietServer:
    """A server process that listens: it has written its ports file. `ports` is that file."""

    def __init__(self, process: subprocess.Popen[bytes], ports: dict[str, list[str]]) -> None:
        self.process = process
        self.ports = ports

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.ports["nats"][0].removeprefix("nats://").split(":")
        return host, int(port)


@contextmanager
def quiet_server(
    kind: Kind, directory: Path, *args: str, config: str, env: Mapping[str, str] = {}
) -> Iterator[QuietServer]:
    """Run a server, with `env` added to the environment. At the end gnats must rest; then it is killed.

    Raises AssertionError when it ends before it listens, TimeoutError, or NotAtRest.
    """
    conf = directory / "server.conf"
    conf.write_text(config + ("" if kind.is_reference else f"\nio_threads: {kind.io_threads}\n"))
    process = subprocess.Popen(
        [kind.find(), "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", directory, "-c", conf, *args],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        env=os.environ | env,
    )
    try:
        path = directory / f"{kind.command}_{process.pid}.ports"
        text = until(lambda: process.poll() is not None or (path.exists() and path.read_text()))
        assert isinstance(text, str), f"{kind.name} has ended with exit code {process.returncode}"
        at_start = ServerProcess(process.pid)
        yield QuietServer(process, json.loads(text))
        if not kind.is_reference and process.poll() is None:
            wait_for_rest(at_start)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(TIMEOUT)
