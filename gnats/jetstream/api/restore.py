"""Restore streams from backups, which arrive in chunks (STREAM.RESTORE; stream_backup.go, RestoreStream in
stream.go).

A restore builds the stream in a staging directory beside the others, which the next start of the server would
delete. When the backup is complete and correct, the directory gets the stream's name. Before that, and after
any error, the stream does not exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from gnats.clock import time_ns, timeout
from gnats.go.json import Json, JSONError, MapOf, Struct, marshal, unmarshal
from gnats.go.text import MAX_DIGITS, duration, friendly_bytes, os_error
from gnats.jetstream import errors
from gnats.jetstream.control.info import stream_info
from gnats.jetstream.control.stream_store import open_store
from gnats.jetstream.disk.backup import BackupError, BackupReader, BackupWriter
from gnats.jetstream.disk.backup_parts import extract, first_seq, last_seq, read_state
from gnats.jetstream.disk.encryption import MetaError
from gnats.jetstream.disk.metafiles import (
    CONSUMERS,
    STATE_FILE,
    read_consumer_meta,
    read_stream_meta,
    write_consumer_meta,
    write_stream_meta,
)
from gnats.jetstream.errors import ApiError
from gnats.jetstream.settings.config import FILE, MEMORY, ConsumerConfig, StreamConfig
from gnats.jetstream.threads import in_thread
from gnats.store.format.codec import encode_consumer
from gnats.store.store import FileStore, StoreFailure
from gnats.system.files import remove_empty, sync_path

if TYPE_CHECKING:
    from gnats.accounts.internal_client import Message
    from gnats.jetstream.api.request import Request
    from gnats.jetstream.control.jsaccount import JSAccount
    from gnats.jetstream.control.streams import Stream
    from gnats.jetstream.disk.encryption import Seal
    from gnats.store.store import MsgStore

STALLED = 5.0
"""Seconds without a chunk after which a restore is abandoned."""
STAGING = ".restore-"
_MOST_WAITING = 32 * 1024 * 1024
"""Most bytes that may have arrived and not been acknowledged: the largest window."""
_MOST_GAPS = 1 << 26
"""Most missing sequences in a block of an old backup, whose files may not come from a server."""
_SLICE = 4 * 1024 * 1024
_TAR, _TAR_FILES = "backup.tar", "files"
_MAX_SEQ = (1 << 62) - 1
_MOST_COUNTED = 1 << 62
"""Most bytes for an account without a limit, so that the counter cannot overflow."""
_CREATE_RESPONSE = "io.nats.jetstream.api.v1.stream_create_response"
_SEQUENCES: Struct = {"consumer_seq": "uint64", "stream_seq": "uint64"}
_CONSUMER: Struct = {
    "config": ConsumerConfig.schema(),
    "state": {
        "delivered": _SEQUENCES,
        "ack_floor": _SEQUENCES,
        "pending": MapOf({"Sequence": "uint64", "Timestamp": "int64"}),
        "redelivered": MapOf("uint64"),
    },
}


class Restore:
    """One restore of a stream. `config` is the stream's configuration, checked.

    Reserves the stream's name. Raises ApiError.
    """

    def __init__(self, request: Request, jsa: JSAccount, config: StreamConfig) -> None:
        self._js = js = request.js
        self._jsa = jsa
        self._config = config
        self._requester = request.client
        self._started = time_ns()
        self._client = js.shared.clients.of(jsa.account)
        self._reader = self._new_reader()
        _, tier = jsa.select_limits(config.num_replicas)
        jsa.begin_restore(config.name, self)
        self._usage = jsa.usage(tier)
        self._counted = 0
        self._came = self._waiting = 0
        self._chunks: asyncio.Queue[Message] = asyncio.Queue()
        self._staging: Path | None = None
        self._tar: IO[bytes] | None = None
        self._size = 0
        self._store: MsgStore | None = None
        self._state: Json | None = None
        self._created = 0
        self._ended = False
        self._seal: Seal | None = None
        self._consumers: dict[str, tuple[ConsumerConfig, bytes, int]] = {}
        self.subject = f"$JS.SNAPSHOT.RESTORE.{config.name}.{js.advisories.new_id()}"
        js.log.notice(f"Starting restore for stream {self._where}")
        js.advisories.restore_create(jsa.account, config.name, self._requester)
        self._sid = self._client.subscribe(self.subject.encode(), self._on_chunk)

    def _new_reader(self) -> BackupReader:
        opts = self._js.shared.options()
        return BackupReader(
            max_payload=opts.max_payload,
            max_subject=opts.max_control_line,
            max_msg_size=self._config.max_msg_size,
        )

    @property
    def _where(self) -> str:
        return f"'{self._jsa.name} > {self._config.name}'"

    def _on_chunk(self, message: Message) -> None:
        self._waiting += len(message.payload)
        if self._waiting <= _MOST_WAITING:
            self._chunks.put_nowait(message)

    async def run(self) -> None:
        """Receive chunks until the backup is complete, there is an error, or no chunk arrives in time."""
        log = self._js.log
        try:
            await self._take_chunks()
        except TimeoutError:
            await self._discard()
            log.warn(f"restore for stream {self._where} is stalled")
        finally:
            await self._discard()

    async def _take_chunks(self) -> None:
        while True:
            async with timeout(STALLED):
                message = await self._chunks.get()
            try:
                if not message.reply:
                    raise BackupError(
                        f"restore for stream {self._where} requires reply subject for each chunk"
                    )
                if self._waiting > _MOST_WAITING:
                    raise BackupError(f"restore for stream {self._where} has too much in flight")
                await self._take(message.payload)
                self._came += len(message.payload)
                self._waiting -= len(message.payload)
                if not message.payload:
                    async with self._js.changing_streams(self._jsa.name, self._config.name):
                        stream = await self._commit()
                    await self._discard()
                    self._finish(message.reply, stream, None)
                    return
            except Exception as exc:
                await self._discard()
                self._finish(message.reply, None, exc)
                if not isinstance(exc, (BackupError, ApiError, OSError)):
                    raise
                return
            self._client.publish(message.reply, b"", reply=b"")

    async def _discard(self) -> None:
        """End the restore, and remove all that did not become a stream. Idempotent."""
        if self._ended:
            return
        self._ended = True
        self._client.unsubscribe(self._sid)
        await in_thread(self._clean_up)
        self._count(0)
        self._jsa.forget_restore(self._config.name)

    def _finish(self, reply: bytes, stream: Stream | None, exc: Exception | None) -> None:
        ended = time_ns()
        js, name = self._js, self._config.name
        js.advisories.restore_complete(
            self._jsa.account, name, self._started, ended, self._came, self._requester
        )
        size, took = friendly_bytes(self._came), duration(ended - self._started)
        if stream is not None:
            answer: Json = {"type": _CREATE_RESPONSE} | stream_info(stream)
            js.log.notice(f"Completed restore of {size} for stream {self._where} in {took}")
        else:
            if isinstance(exc, (BackupError, ApiError, StoreFailure)):
                text = str(exc)
            else:
                text = os_error(exc) if isinstance(exc, OSError) else "internal error"
            error = exc if isinstance(exc, ApiError) else errors.STREAM_RESTORE(err=text)
            answer = {"type": _CREATE_RESPONSE, "error": error.json()}
            js.log.warn(f"Restore failed for {size} for stream {self._where} in {took}: {text}")
        if reply:
            self._client.publish(reply, marshal(answer), reply=b"")

    # -- the content -----------------------------------------------------------------------------------------

    async def _take(self, data: bytes) -> None:
        self._reader.feed(data)
        while await in_thread(self._step):
            self._check_room()
        self._check_room()

    def _step(self) -> bool:
        """Process some of the received data; in a thread. Returns whether to call it again."""
        version = self._reader.version
        if version == 0 or self._reader.is_complete:
            return False
        if self._staging is None:
            self._stage()
        if version == 1:
            return self._take_tar()
        if self._state is None:
            return self._take_state()
        if len(self._consumers) < self._state.get("consumer_count", 0):
            return self._take_consumer()
        assert self._store is not None
        taken = self._reader.store_into(self._store, _SLICE)
        self._store.flush_pending()
        self._size = self._store.state().bytes
        if taken:
            self._store.maintain(rewrites=0)
        return taken > 0

    def _stage(self) -> None:
        streams = self._jsa.streams_dir
        self._staging = streams / f"{STAGING}{self._js.advisories.new_id()}"
        self._staging.mkdir(0o700, parents=True)

    def _take_state(self) -> bool:
        entry = self._reader.entry()
        if entry is None:
            return False
        state = read_state(*entry)
        first = first_seq(state)
        self._reader.begin(first)
        self._size = int(str(state.get("bytes", 0)))  # the account must have room for all of it
        self._check_room()
        assert self._staging is not None
        self._open(first)
        self._state = state
        return True

    def _open(self, first_seq: int) -> None:
        """Make the store for the messages, in the staging directory."""
        jsa, config = self._jsa, replace(self._config, first_seq=first_seq)
        assert self._staging is not None
        directory = self._staging / config.name
        if config.storage == FILE:
            self._seal = jsa.shared.keys.make(directory, jsa.name, config.name)
        self._store = open_store(jsa, config, directory, self._seal)

    def _take_consumer(self) -> bool:
        entry = self._reader.entry()
        if entry is None:
            return False
        shown = entry[0].decode("utf-8", "replace")
        name = shown.removeprefix("consumers/")
        if name == shown:
            raise BackupError(f'expected consumer, found "{shown}"')
        if not name or name in (".", "..") or set(name) & set("/\\\0*> ."):
            raise BackupError(f'consumer name "{name}" is invalid')
        if name in self._consumers:
            raise BackupError(f'consumer "{name}" is there twice')
        try:
            document = unmarshal(entry[1], _CONSUMER, "SnapshotConsumerState")
        except JSONError as exc:
            raise BackupError(f'failed to decode consumer "{name}" state: {exc}') from None
        for part in ("config", "state"):
            if not document.get(part):
                raise BackupError(f'consumer "{name}" is missing {part}')
        config = ConsumerConfig.from_members(document["config"])  # type: ignore[arg-type]
        if config.durable_name not in ("", name) or config.name not in ("", name):
            raise BackupError(f'consumer "{name}" has another name in its config')
        state = encode_state(name, document["state"])  # type: ignore[arg-type]
        self._consumers[name] = (replace(config, name=name), state, 0)
        return True

    def _take_tar(self) -> bool:
        assert self._staging is not None
        if self._tar is None:
            self._tar = (self._staging / _TAR).open("w+b")
        piece = self._reader.take(_SLICE)
        if piece:
            self._tar.write(piece)
            self._size += len(piece)
            return True
        return False

    def _check_room(self) -> None:
        """Count the stored bytes for the account and server. Raises ApiError when they exceed a limit."""
        memory = self._config.storage == MEMORY
        for usage in (self._usage, self._js.usage):
            used = (usage.memory if memory else usage.storage) - self._counted + self._size
            most = usage.max_memory if memory else usage.max_storage
            if used > (most if most >= 0 else _MOST_COUNTED):
                raise errors.MEMORY_RESOURCES_EXCEEDED() if memory else errors.STORAGE_RESOURCES_EXCEEDED()
        self._count(self._size)

    def _count(self, size: int) -> None:
        memory = self._config.storage == MEMORY
        for usage in (self._usage, self._js.usage):
            usage.add(memory, size - self._counted)
        self._counted = size

    # -- the end ---------------------------------------------------------------------------------------------

    async def _commit(self) -> Stream:
        """Make the complete backup a stream. Raises BackupError, ApiError, StoreFailure, OSError."""
        jsa, name = self._jsa, self._config.name
        if self._js.accounts.get(jsa.name) is not jsa:
            raise errors.NOT_ENABLED_FOR_ACCOUNT()
        await in_thread(self._complete)
        await jsa.propose(await jsa.check_restore(self._config, self._created))
        stream = jsa.stream(name)
        try:
            for config, state, created in self._consumers.values():
                checked = await stream.check_add_consumer(config)
                await jsa.propose(replace(checked, state=state, created=created or checked.created))
            stream.subscribe()
            await stream.origins.start()
        except Exception:
            await jsa.propose(jsa.check_delete_stream(name))
            raise
        return stream

    async def hand_over(self) -> MsgStore | None:
        """Move the files to the stream's directory, or return the open store. Raises OSError."""
        jsa, config, store = self._jsa, self._config, None
        if config.storage == FILE:
            assert self._staging is not None
            (self._staging / config.name).rename(jsa.stream_directory(config.name))
            await asyncio.to_thread(sync_path, jsa.streams_dir)
        else:
            store, self._store = self._store, None
        self._count(0)  # the stream counts its own messages from now on
        return store

    def _complete(self) -> None:
        """Check that the backup is complete, and write all of the stream's files; in a thread."""
        reader = self._extract() if self._reader.version == 1 else self._reader
        if not reader.is_complete:
            raise BackupError("backup was truncated")
        assert self._state is not None and self._store is not None
        last, was_last = reader.last_seq, last_seq(self._state)
        if last < was_last:
            self._store.skip(last + 1, was_last - last)
        if self._config.storage == MEMORY:
            return
        self._store.sync_flushed()
        self._store.close()
        self._store = None
        self._write_meta()

    def _write_meta(self) -> None:
        assert self._staging is not None
        directory, name = self._staging / self._config.name, self._config.name
        keys, account = self._js.keys, self._jsa.name
        self._created = self._created or time_ns()
        write_stream_meta(directory, self._config, self._created, self._seal)
        for consumer, (config, state, created) in self._consumers.items():
            if config.mem_storage:
                continue
            where = directory / CONSUMERS / consumer
            seal = keys.make(where, account, f"{name}.{consumer}")
            write_consumer_meta(where, name, consumer, config, created or time_ns(), seal)
            (where / STATE_FILE).write_bytes(seal.seal(state) if seal else state)

    def _extract(self) -> BackupReader:
        """Unpack a tar file of nats-server before 2.15, and store the messages of the files in it.

        Returns the reader that has checked the messages.
        """
        assert self._staging is not None and self._tar is not None
        directory = self._staging / _TAR_FILES / self._config.name
        self._tar.flush()
        self._tar.seek(0)
        extract(self._tar, directory, f" (account={self._jsa.name})")
        try:
            meta = read_stream_meta(directory, self._js.keys, self._jsa.name)
        except MetaError as exc:
            raise BackupError(f"stream metafile cannot be used: {self._told(exc)}") from None
        if meta.config.name != self._config.name:
            raise BackupError("stream names do not match")
        consumers = directory / CONSUMERS
        for entry in sorted(consumers.iterdir()) if consumers.is_dir() else ():
            try:
                found = read_consumer_meta(entry, self._js.keys, self._jsa.name, self._config.name)
            except MetaError as exc:
                raise BackupError(f'error restoring consumer ["{entry.name}"]: {self._told(exc)}') from None
            if found.problem:
                raise BackupError(f'error restoring consumer ["{entry.name}"]: {found.problem}')
            state = entry / STATE_FILE
            data = state.read_bytes() if state.exists() else b""
            config = replace(found.config, name=entry.name)
            self._consumers[entry.name] = (config, data, found.created)
        files = FileStore(str(directory), self._config.name, most_gaps=_MOST_GAPS)
        try:
            stored = files.state()
            first, last = max(stored.first_seq, 1), stored.last_seq
            self._state = {"last_seq": last}
            self._open(first)
            assert self._store is not None
            self._created = meta.created
            return self._copy(files, last, first)
        finally:
            files.close()

    def _copy(self, source: MsgStore, last: int, first: int) -> BackupReader:
        """Store the messages of `source`, checked like those of other backups; return the reader."""
        assert self._store is not None
        writer = BackupWriter(source, last=last)
        reader = self._new_reader()
        reader.begin(first)
        assert reader.version == 0
        while not reader.is_complete:
            reader.feed(writer.read(_SLICE))
            if reader.version:
                reader.store_into(self._store, _SLICE * 1024)
            self._store.flush_pending()
        return reader

    def _told(self, exc: MetaError) -> str:
        """Return the error's text without the path of the staging directory."""
        return str(exc).replace(f"{self._staging}/", "")

    def _clean_up(self) -> None:
        """Close and remove the staged files; in a thread."""
        if self._store is not None:
            with contextlib.suppress(StoreFailure):
                self._store.close()
        if self._tar is not None:
            self._tar.close()
        if self._staging is None:
            return
        shutil.rmtree(self._staging, ignore_errors=True)
        remove_empty(self._jsa.streams_dir, self._jsa.store_dir)


def encode_state(name: str, found: Json) -> bytes:
    """Encode a consumer's state of a backup as an o.dat. Raises BackupError."""

    def pair(part: str) -> tuple[int, int]:
        members = found.get(part) or {}
        return int(members.get("consumer_seq", 0)), int(members.get("stream_seq", 0))

    def sequence(text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text.lstrip("0")) > MAX_DIGITS:
            raise BackupError(f'failed to decode consumer "{name}" state: "{text}" is no sequence')
        return int(text)

    delivered, floor = pair("delivered"), pair("ack_floor")
    pending = sorted(
        (sequence(seq), int(entry.get("Sequence", 0)), int(entry.get("Timestamp", 0)))
        for seq, entry in (found.get("pending") or {}).items()
        if entry
    )
    redelivered = sorted(
        (sequence(seq), int(count or 0)) for seq, count in (found.get("redelivered") or {}).items()
    )
    wrong = (
        max(*delivered, *floor) > _MAX_SEQ
        or delivered[0] < floor[0]
        or delivered[1] < floor[1]
        or any(not floor[1] < seq <= delivered[1] for seq, _, _ in pending)
        or any(not 0 < dseq <= delivered[0] for _, dseq, _ in pending)
        or any(seq > delivered[1] for seq, _ in redelivered)
    )
    if wrong:
        raise BackupError(f'failed to set consumer "{name}" state: bad ack floor or pending')
    redelivered = [(seq, count) for seq, count in redelivered if seq > floor[1]]
    return encode_consumer(delivered, floor, pending, redelivered, time_ns())
