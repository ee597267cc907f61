"""Streams to test without gnats's API: made directly in this process, or by the reference server's API."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, Self

from gnats.jetstream.control.stream_store import store_limits
from gnats.jetstream.engine.engine import Engine
from gnats.jetstream.engine.usage import Usage
from gnats.jetstream.settings.config import StreamConfig
from gnats.jetstream.settings.stream_rules import check_stream_cfg
from gnats.jetstream.state.batchtable import BatchLimits
from gnats.jetstream.stream.stream import Stream
from gnats.options.values.limits import JSLimitOpts
from gnats.server.server import Server as Gnats
from gnats.store.store import FileStore, MemStore, MsgStore, StoreFailure
from gnats.testing import ServerThread

from .servers import REFERENCE
from .servers import Server as Process
from .wire import HELLO, Connection

Address = tuple[str, int]
_inboxes = itertools.count(1)


class Streams(Protocol):
    """A server on which streams can be made."""

    @property
    def address(self) -> Address: ...
    def add(self, **config: Any) -> None:
        """Make a stream; keywords are the members of a StreamConfig."""

    def state(self, name: str) -> tuple[int, int, int]:
        """Return (messages, first sequence, last sequence)."""


class ReferenceStreams:
    """A reference server; `limits` is configuration text for its jetstream block."""

    def __init__(self, directory: Path, limits: str = "") -> None:
        config = f'jetstream {{ store_dir: "{directory}/js", {limits} }}'
        self._server = Process(REFERENCE, directory, config=config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    @property
    def address(self) -> Address:
        return self._server.address

    def request(self, subject: str, body: object) -> dict[str, Any]:
        """Return the answer to an API request. Raises AssertionError for an error."""
        with Client(self.address) as client:
            answer: dict[str, Any] = json.loads(
                client.ask(subject.encode(), json.dumps(body).encode() if body else b"")[0][1]
            )
        assert "error" not in answer, answer
        return answer

    def add(self, **config: Any) -> None:
        self.request(f"$JS.API.STREAM.CREATE.{config['name']}", {"storage": "file", **config})

    def state(self, name: str) -> tuple[int, int, int]:
        state = self.request(f"$JS.API.STREAM.INFO.{name}", None)["state"]
        return state["messages"], state["first_seq"], state["last_seq"]


class GnatsStreams:
    """A gnats server in this process, with an engine but without the API.

    `usage` limits the bytes that all streams store, `batch_limits` their batches; `options` are the server's.
    """

    def __init__(
        self,
        directory: Path,
        io_threads: int,
        *,
        sync_always: bool = False,
        usage: Usage | None = None,
        batch_limits: BatchLimits | None = None,
        **options: Any,
    ) -> None:
        self._directory = directory
        self._sync_always = sync_always
        self._usage = usage
        self.batch_limits = batch_limits or BatchLimits()
        self._thread = ServerThread(io_threads=io_threads, **options)
        self.engine: Engine
        self.streams: dict[str, Stream] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        self._thread.call(self._start)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if self._thread.checks_rest and kind is None:
                self._thread.wait_for_rest(self.engine)
        finally:
            self._thread.call(self._stop)
            self._thread.stop()
            self.engine.close()

    def _start(self, server: Gnats) -> None:
        assert server.pollers is not None
        pollers = server.pollers.all
        self.engine = Engine(
            list(pollers), server.state, [server.internal_clients.next_cid() for _ in pollers]
        )
        if self._thread.before:
            self._thread.before.allow(self.engine)
        asyncio.get_running_loop().add_reader(self.engine.fileno(), self.engine.run_timers)

    def _stop(self, server: Gnats) -> None:
        for stream in self.streams.values():
            stream.close()
            with suppress(StoreFailure):  # a test has made it fail
                stream.store.close()
        asyncio.get_running_loop().remove_reader(self.engine.fileno())

    @property
    def address(self) -> Address:
        return "127.0.0.1", self._thread.port

    def call(self, func: Any, *args: Any) -> Any:
        """Call func(*args) in the server's thread and return its result."""
        return self._thread.call(lambda _: func(*args))

    def checked(self, config: dict[str, Any]) -> StreamConfig:
        return check_stream_cfg(
            StreamConfig.from_json(json.dumps({"storage": "file", **config}).encode()),
            JSLimitOpts(),
            None,
            lambda _: None,
        )

    def add(self, **config: Any) -> None:
        self._thread.call(lambda server: self._add(server, self.checked(config)))

    def _add(self, server: Gnats, config: StreamConfig) -> None:
        stream = Stream(
            self.engine,
            server.global_account,
            config.name,
            self._store(config),
            cid=server.internal_clients.next_cid(),
            account_usage=self._usage,
            batch_limits=self.batch_limits,
        )
        stream.configure(config, sync_always=self._sync_always)
        stream.subscribe()
        self.streams[config.name] = stream

    def _store(self, config: StreamConfig) -> MsgStore:
        limits = {**store_limits(config), "first_seq": config.first_seq}
        if config.storage == "memory":
            return MemStore(config.name, **limits)
        directory = self._directory / config.name
        directory.mkdir(parents=True, exist_ok=True)
        return FileStore(str(directory), config.name, sync_always=self._sync_always, **limits)

    def update(self, **config: Any) -> None:
        """Give an existing stream another configuration."""
        checked = self.checked(config)
        self._thread.call(lambda _: self.streams[checked.name].configure(checked))

    def state(self, name: str) -> tuple[int, int, int]:
        state = self._thread.call(lambda _: self.streams[name].state())
        return state.msgs, state.first_seq if state.last_seq else 0, state.last_seq


Reply = tuple[bytes, bytes]
"""Header and payload of a message."""


class Client:
    """A connection that publishes and waits for replies."""

    def __init__(self, address: Address) -> None:
        self.connection = Connection(address)
        self.inbox = b"_INBOX.%d." % next(_inboxes)
        self._asked = 0
        try:
            self.connection.send(HELLO + b"SUB %s> 1\r\n" % self.inbox)
            self.connection.fence()
        except BaseException:
            self.connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def publish(
        self, subject: bytes, payload: bytes = b"", header: Iterable[bytes] = (), reply: bytes = b""
    ) -> None:
        """Send a message; `header` are lines without line ends."""
        self.connection.send(message(subject, payload, header, reply))

    def ask(
        self, subject: bytes, payload: bytes = b"", header: Iterable[bytes] = (), *, until: bytes = b""
    ) -> list[Reply]:
        """Send a message; return its first reply, or all up to one whose header starts with `until`."""
        self._asked += 1
        self.publish(subject, payload, header, b"%s%d" % (self.inbox, self._asked))
        replies: list[Reply] = []
        while not replies or not replies[-1][0].startswith(until):
            replies.append(self.read())
        return replies

    def ask_in_passing(self, subject: bytes, payload: bytes) -> list[bytes]:
        """Send a message; return the replies that came until the server had handled it.

        There may be none: a stream that is being closed may not answer.
        """
        self._asked += 1
        self.publish(subject, payload, (), b"%s%d" % (self.inbox, self._asked))
        return [header or body for header, body in map(parts, self.connection.fence()) if header or body]

    def read(self) -> Reply:
        """Return the next message."""
        return parts(self.connection.read_op())

    def ask_all(self, messages: Sequence[tuple[bytes, bytes, Sequence[bytes]]]) -> list[bytes]:
        """Publish messages (subject, payload, header lines) in one write; return their replies' payloads."""
        base = self._asked + 1
        self._asked += len(messages)
        self.connection.send(
            b"".join(
                message(s, p, h, b"%s%d" % (self.inbox, base + i)) for i, (s, p, h) in enumerate(messages)
            )
        )
        return [self.read()[1] for _ in messages]


def message(subject: bytes, payload: bytes, header: Iterable[bytes] = (), reply: bytes = b"") -> bytes:
    """Encode PUB or, with header lines, HPUB."""
    lines = list(header)
    to = b"%s %s" % (subject, reply) if reply else subject
    if not lines:
        return b"PUB %s %d\r\n%s\r\n" % (to, len(payload), payload)
    block = b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"
    return b"HPUB %s %d %d\r\n%s%s\r\n" % (to, len(block), len(block) + len(payload), block, payload)


def parts(op: bytes) -> Reply:
    """Split a MSG or HMSG into header and payload."""
    line, _, rest = op.partition(b"\r\n")
    size = int(line.split(b" ")[-2]) if line.startswith(b"HMSG") else 0
    return rest[:size], rest[size:-2]
