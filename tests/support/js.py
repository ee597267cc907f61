"""Streams and consumers of the reference, made through its API, or of gnats, made directly.

Both take the same JSON configuration, so that one test body runs against either.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gnats.core.client import Client
from gnats.core.runtime.inbox import EV_JETSTREAM
from gnats.jetstream.consumer.consumer import Consumer
from gnats.jetstream.engine.engine import Engine
from gnats.jetstream.settings.config import ConsumerConfig, StreamConfig
from gnats.jetstream.settings.consumer_rules import check_consumer_cfg, with_defaults
from gnats.jetstream.settings.stream_rules import check_stream_cfg
from gnats.jetstream.stream.stream import Stream
from gnats.options.values.limits import JetStreamAccountLimits, JSLimitOpts
from gnats.server.server import Server as GnatsServer
from gnats.store.store import FileStore, MemStore, StoreFailure
from gnats.testing import ServerThread
from support.caller import Message, parse
from support.servers import REFERENCE, Server
from support.wire import PONG, Connection, connect_op, publish_op

NUMBERS = (
    "num_ack_pending",
    "num_redelivered",
    "num_waiting",
    "num_pending",
)


# nats-server writes two blanks before the size of this answer, and of no other
TWO_BLANKS = b'"io.nats.jetstream.api.v1.consumer_reset_response"'


class Peer(Connection):
    """A raw client with headers and no_responders."""

    def __init__(self, address: tuple[str, int], user: str = "", password: str = "") -> None:
        super().__init__(address)
        self._waiting: list[bytes] = []
        self._sids = 0
        self._inboxes = 0
        try:
            self.send(connect_op(user, password, headers=True, no_responders=True, lang="raw", version="1"))
            self.fence()
        except BaseException:
            self.close()
            raise

    def sub(self, subject: str, queue: str = "") -> str:
        """Subscribe, wait until the server knows, and return the sid."""
        self._sids += 1
        self.send(f"SUB {subject} {queue} {self._sids}\r\n".encode())
        self.flush()
        return str(self._sids)

    def unsub(self, sid: str) -> None:
        self.send(f"UNSUB {sid}\r\n".encode())
        self.flush()

    def pub(self, subject: str, data: bytes = b"", reply: str = "", header: bytes = b"") -> None:
        self.send(publish_op(subject, data, reply, header))

    def flush(self) -> None:
        """Wait until the server has handled everything sent; keep what it sends meanwhile."""
        self._waiting += self.fence()

    def msg(self) -> Message:
        """Return the next message; answer PINGs. Raises AssertionError for any other operation."""
        while True:
            op = self._waiting.pop(0) if self._waiting else self.read_op()
            if b"MSG" in op[:4]:
                assert b"  " not in op.partition(b"\r\n")[0] or TWO_BLANKS in op, op
                return parse(op)
            if op != PONG:
                raise AssertionError(f"unexpected {op!r}")

    def msgs(self, n: int) -> list[Message]:
        return [self.msg() for _ in range(n)]

    def nothing(self) -> bool:
        """Return True if the server has sent nothing, and what was sent to it caused nothing."""
        self.flush()
        self.flush()
        return not self._waiting

    def inbox(self) -> str:
        """Subscribe to a new subject and return it."""
        self._inboxes += 1
        subject = f"_INBOX.{self.local[1]}.{self._inboxes}"
        self.sub(subject)
        return subject

    def request(self, subject: str, data: bytes = b"", header: bytes = b"") -> Message:
        inbox = self.inbox()
        self.pub(subject, data, inbox, header)
        return self.msg()


class Js:
    """One server with JetStream."""

    address: tuple[str, int]
    is_reference = False

    def create_stream(self, name: str, **config: Any) -> None:
        raise NotImplementedError

    def create_consumer(self, stream: str, name: str, **config: Any) -> None:
        raise NotImplementedError

    def delete_consumer(self, stream: str, name: str) -> None:
        raise NotImplementedError

    def consumer_info(self, stream: str, name: str) -> dict[str, Any]:
        """Return NUMBERS and push_bound of ConsumerInfo; delivered and ack_floor as (consumer, stream)."""
        raise NotImplementedError

    def messages(self, stream: str) -> int:
        raise NotImplementedError

    def peer(self) -> Peer:
        return Peer(self.address)

    def publish(self, *subjects: str, data: bytes = b"x", header: bytes = b"") -> None:
        """Store a message for each subject, in order; return when all are stored."""
        with self.peer() as peer:
            for subject in subjects:
                answer = json.loads(peer.request(subject, data, header).payload)
                assert "error" not in answer, answer


class ReferenceJs(Js):
    is_reference = True

    def __init__(self, directory: Path) -> None:
        self.server = Server(REFERENCE, directory, "-js", "-sd", str(directory / "js"))
        self.address = self.server.address

    def close(self) -> None:
        self.server.stop()

    def api(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        with self.peer() as peer:
            answer = json.loads(
                peer.request(f"$JS.API.{subject}", json.dumps(body).encode() if body else b"").payload
            )
        assert "error" not in answer, answer
        return dict(answer)

    def create_stream(self, name: str, **config: Any) -> None:
        self.api(f"STREAM.CREATE.{name}", {"name": name, "storage": "memory"} | config)

    def create_consumer(self, stream: str, name: str, **config: Any) -> None:
        body = {"stream_name": stream, "config": {"name": name} | config}
        self.api(f"CONSUMER.CREATE.{stream}.{name}", body)

    def update_consumer(self, stream: str, name: str, **config: Any) -> None:
        self.create_consumer(stream, name, **config)

    def delete_consumer(self, stream: str, name: str) -> None:
        self.api(f"CONSUMER.DELETE.{stream}.{name}")

    def delete_msg(self, stream: str, seq: int) -> None:
        self.api(f"STREAM.MSG.DELETE.{stream}", {"seq": seq})

    def purge(self, stream: str, **request: Any) -> None:
        self.api(f"STREAM.PURGE.{stream}", request)

    def reset(self, stream: str, name: str, seq: int = 0) -> int:
        return int(self.api(f"CONSUMER.RESET.{stream}.{name}", {"seq": seq} if seq else None)["reset_seq"])

    def consumer_info(self, stream: str, name: str) -> dict[str, Any]:
        info = self.api(f"CONSUMER.INFO.{stream}.{name}")
        return (
            {number: info[number] for number in NUMBERS}
            | {
                part: (info[part]["consumer_seq"], info[part]["stream_seq"])
                for part in ("delivered", "ack_floor")
            }
            | {"push_bound": info.get("push_bound", False)}
        )

    def messages(self, stream: str) -> int:
        return int(self.api(f"STREAM.INFO.{stream}")["state"]["messages"])


class NativeJs(Js):
    """A gnats server in this process; its streams and consumers are made without the API.

    File streams are stored below `directory`, memory streams where it is None. `notices` collects consumers'
    notices in place of JetStream's control.
    """

    def __init__(self, io_threads: int, directory: Path | None = None) -> None:
        self.directory = directory
        self.thread = ServerThread(io_threads=io_threads)
        self.thread.start()
        self.streams: dict[str, Stream] = {}
        self.consumers: dict[tuple[str, str], Consumer] = {}
        self.notices: list[tuple[object, int, tuple[int, int, int, int, bytes]]] = []
        self.call(self._enable)
        self.address = ("127.0.0.1", self.thread.port)

    def call(self, func: Callable[[GnatsServer], Any]) -> Any:
        return self.thread.call(func)

    def _enable(self, server: GnatsServer) -> None:
        pollers = server.pollers
        assert pollers is not None
        handle = pollers._handle

        def on_event(event: Any) -> bool:
            if event[0] == EV_JETSTREAM:
                if isinstance(event[1], Consumer):
                    self.notices.append((event[1], event[2], Consumer.notice(event[4])))
                return False
            return handle(event)

        pollers._handle = on_event
        self.engine = Engine(
            list(pollers.all), server.state, [server.internal_clients.next_cid() for _ in pollers.all]
        )
        if self.thread.before:
            self.thread.before.allow(self.engine)
        asyncio.get_running_loop().add_reader(self.engine.fileno(), self.engine.run_timers)

    def close(self) -> None:
        try:
            if self.thread.checks_rest:
                self.thread.wait_for_rest(self.engine)
        finally:
            self.call(self._disable)
            self.thread.stop()
            self.engine.close()

    def _disable(self, server: GnatsServer) -> None:
        asyncio.get_running_loop().remove_reader(self.engine.fileno())
        for consumer in self.consumers.values():
            consumer.close()
        for stream in self.streams.values():
            stream.close()
            with suppress(StoreFailure):  # a test has made it fail
                stream.store.close()

    def create_stream(self, name: str, **config: Any) -> None:
        body = json.dumps({"name": name, "storage": "memory"} | config).encode()
        cfg = check_stream_cfg(
            StreamConfig.from_json(body), JSLimitOpts(), JetStreamAccountLimits(), lambda _: None
        )

        def make(server: GnatsServer) -> None:
            limits = {
                "max_msgs": cfg.max_msgs,
                "max_bytes": cfg.max_bytes,
                "max_msgs_per_subject": cfg.max_msgs_per_subject,
                "max_age": cfg.max_age,
                "discard_new": cfg.discard == "new",
            }
            if self.directory:
                (self.directory / name / "msgs").mkdir(parents=True, exist_ok=True)
                store = FileStore(str(self.directory / name), name, **limits)
            else:
                store = MemStore(name, **limits)
            stream = Stream(
                self.engine, server.global_account, name, store, cid=server.internal_clients.next_cid()
            )
            stream.configure(cfg)
            stream.subscribe()
            self.streams[name] = stream

        self.call(make)

    def _consumer_config(self, stream: str, name: str, config: dict[str, Any]) -> ConsumerConfig:
        of = self.streams[stream].config
        cfg = ConsumerConfig.from_json(json.dumps({"name": name} | config).encode())
        cfg = with_defaults(cfg, of, JSLimitOpts(), JetStreamAccountLimits())
        check_consumer_cfg(cfg, JSLimitOpts(), of, JetStreamAccountLimits())
        return cfg

    def create_consumer(self, stream: str, name: str, state: bytes | None = None, **config: Any) -> None:
        cfg = self._consumer_config(stream, name, config)

        def make(server: GnatsServer) -> None:
            consumer = Consumer(
                self.streams[stream], name, cfg, account=server.global_account.name, state=state
            )
            consumer.start()
            self.consumers[stream, name] = consumer

        self.call(make)

    def update_consumer(self, stream: str, name: str, **config: Any) -> None:
        cfg = self._consumer_config(stream, name, config)
        self.call(lambda _: self.consumers[stream, name].configure(cfg))

    def delete_consumer(self, stream: str, name: str) -> None:
        def delete(_: GnatsServer) -> None:
            consumer = self.consumers.pop((stream, name))
            consumer.close(deleted=True)
            consumer.forget_unneeded()

        self.call(delete)

    def delete_msg(self, stream: str, seq: int) -> None:
        assert self.call(lambda _: self.streams[stream].delete_msg(seq))

    def purge(self, stream: str, **request: Any) -> None:
        wanted = {
            "subject": request.get("filter", "").encode(),
            "seq": request.get("seq", 0),
            "keep": request.get("keep", 0),
        }
        self.call(lambda _: self.streams[stream].purge(**wanted))

    def reset(self, stream: str, name: str, seq: int = 0) -> int:
        def reset(_: object) -> int:
            consumer = self.consumers[stream, name]
            begin = consumer.check_reset(seq)
            consumer.reset(begin)
            return begin

        return self.call(reset)

    def consumer_info(self, stream: str, name: str) -> dict[str, Any]:
        info = self.call(lambda _: self.consumers[stream, name].info())
        return (
            {number: info[number] for number in NUMBERS}
            | {
                part: (info[f"{part}_consumer"], info[f"{part}_stream"])
                for part in ("delivered", "ack_floor")
            }
            | {"push_bound": info["push_bound"]}
        )

    def messages(self, stream: str) -> int:
        state = self.call(lambda _: self.streams[stream].state())
        return int(state["msgs"] if isinstance(state, dict) else state.msgs)


__all__ = ["Client", "Js", "Message", "NativeJs", "Peer", "ReferenceJs"]
