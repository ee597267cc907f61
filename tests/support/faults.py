"""Servers that tests kill, and publishers that remember which messages the server acknowledged."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

from .caller import Caller
from .servers import Kind, Server
from .wire import Closed, Connection

WINDOW = 50
"""Messages that a publisher may have sent without an acknowledgement."""


class Home:
    """A store directory, and the servers that run in it one after the other.

    `options` is configuration text for the jetstream block; `wrapper` is a command to run the server with.
    """

    def __init__(self, kind: Kind, path: Path, sync_always: bool = False, options: str = "") -> None:
        self.kind = kind
        self.path = path
        self.store = path / "js"
        self.sync_always = sync_always
        self.options = options
        self.wrapper: tuple[str, ...] = ()
        self.server: Server | None = None
        self._starts = 0

    def start(self) -> Server:
        self._starts += 1
        directory = self.path / f"run{self._starts}"
        self.server = Server(self.kind, directory, config=self.config, wrapper=self.wrapper)
        return self.server

    def start_and_kill(self, seconds: float) -> None:
        """Start a server and kill it after `seconds`, ready or not. Raises AssertionError if it has ended."""
        self._starts += 1
        directory = self.path / f"run{self._starts}"
        directory.mkdir(parents=True)
        conf = directory / "server.conf"
        conf.write_text(f"{self.config}\nio_threads: {self.kind.io_threads}\n")
        command = [self.kind.find(), "-a", "127.0.0.1", "-p", "-1", "-c", conf]
        process = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
        _, log = process.communicate()
        assert process.returncode == -signal.SIGKILL, log.decode(errors="replace")

    @property
    def config(self) -> str:
        sync = "sync_interval: always" if self.sync_always else ""
        return f"jetstream {{\nstore_dir: '{self.store}'\n{sync}\n{self.options}\n}}"

    @property
    def is_encrypted(self) -> bool:
        return "key:" in self.options

    def stop(self) -> None:
        assert self.server
        self.server.stop()

    def kill(self) -> None:
        """End the server with SIGKILL."""
        if self.server:
            self.server.kill()

    def stream(self, name: str) -> Path:
        return self.store / "jetstream" / "$G" / "streams" / name

    def blocks(self, name: str) -> list[Path]:
        return sorted((self.stream(name) / "msgs").glob("*.blk"), key=lambda path: int(path.stem))

    def copy(self, path: Path) -> Home:
        """Copy the directory as it is now below `path`."""
        other = Home(self.kind, path, self.sync_always, self.options)
        shutil.copytree(self.store, other.store)
        return other


class Publisher(threading.Thread):
    """A thread that publishes to subjects of a stream until the server is gone.

    `acked` and `subjects` hold payload and subject of each acknowledged message by sequence; `changed` guards
    both, and is notified of each acknowledgement and of the end.
    """

    def __init__(self, server: Server, stream: str, name: str, subjects: int, noise: random.Random) -> None:
        super().__init__(daemon=True)
        self.acked: dict[int, bytes] = {}
        self.subjects: dict[int, str] = {}
        self.changed = threading.Condition()
        self._name = name
        self._stream = stream
        self._subjects = subjects
        self._random = noise
        self._connection = Connection(server.address)
        self._sent: dict[str, tuple[str, bytes]] = {}

    def run(self) -> None:
        try:
            self._connection.send(
                b'CONNECT {"verbose":false,"headers":true}\r\nSUB acks.%s.* 1\r\n' % self._name.encode()
            )
            while True:
                self._publish()
                while len(self._sent) >= WINDOW:
                    self._ack()
        except (OSError, Closed):
            return  # the server is gone
        finally:
            self._connection.close()
            with self.changed:
                self.changed.notify_all()

    def _publish(self) -> None:
        noise = self._random
        lines = b""
        for _ in range(noise.randrange(1, 20)):
            number = f"{noise.getrandbits(64):x}"
            payload = f"{self._name} {number} ".encode() + noise.randbytes(noise.choice((0, 10, 200, 3000)))
            subject = f"{self._stream}.{noise.randrange(self._subjects)}"
            self._sent[number] = subject, payload
            lines += (
                f"PUB {subject} acks.{self._name}.{number} {len(payload)}\r\n".encode() + payload + b"\r\n"
            )
        self._connection.send(lines)

    def _ack(self) -> None:
        op = self._connection.read_op()
        if not op.startswith(b"MSG "):
            return
        line, _, body = op.partition(b"\r\n")
        subject, payload = self._sent.pop(line.split()[1].decode().rpartition(".")[2])
        answer = json.loads(body)
        with self.changed:
            self.acked[answer["seq"]] = payload
            self.subjects[answer["seq"]] = subject
            self.changed.notify_all()


def create(caller: Caller, name: str, **config: Any) -> None:
    body = {"name": name, "subjects": [f"{name}.>"]} | config
    answer = caller.request(f"$JS.API.STREAM.CREATE.{name}", body).json
    assert "error" not in answer, answer


def info(caller: Caller, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = caller.request(f"$JS.API.STREAM.INFO.{name}", {"deleted_details": True}).json
    assert "error" not in answer, answer
    return answer


def stored(caller: Caller, name: str, first: int = 1) -> dict[int, tuple[str, bytes]]:
    """Read a stream from sequence `first` through a consumer; return (subject, payload) by sequence."""
    deliver = f"deliver.{name}.{os.urandom(4).hex()}"
    caller.subscribe(deliver)
    config = {
        "deliver_subject": deliver,
        "ack_policy": "none",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": first,
        "name": deliver.replace(".", "_"),
        "mem_storage": True,
    }
    subject = f"$JS.API.CONSUMER.CREATE.{name}.{config['name']}"
    answer = caller.request(subject, {"stream_name": name, "config": config}).json
    assert "error" not in answer, answer
    found: dict[int, tuple[str, bytes]] = {}
    state = info(caller, name)["state"]
    pending = state["messages"] > 0 and state["last_seq"] - len(state.get("deleted", ())) >= first
    while pending:
        op = caller.next()
        tokens = op.reply.split(".")
        if tokens[:2] != ["$JS", "ACK"]:
            continue
        found[int(tokens[5])] = op.subject, op.payload
        pending = int(tokens[8]) > 0
    caller.request(f"$JS.API.CONSUMER.DELETE.{name}.{config['name']}")
    return found
