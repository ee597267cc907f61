"""Backups of streams (`nats stream backup`): unpack them to a directory, to be read like any other stream.

A backup is a directory with backup.json, which has the stream's configuration, and the messages in
stream.arc.s2 (before nats-server 2.15: stream.tar.s2). The content, not the name, decides the format.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import IO, cast

from gnats.archive.errors import ArchiveError
from gnats.archive.reading.streams import BACKUP_DATA, StreamDir, read_meta
from gnats.jetstream.disk.backup import BackupError, BackupReader
from gnats.jetstream.disk.backup_parts import extract, first_seq, last_seq, read_state
from gnats.jetstream.disk.metafiles import DELETED, MESSAGES, STREAMS, write_stream_meta
from gnats.jetstream.settings.config import FILE, StreamConfig
from gnats.options.values.jetstream import STORE_DIR
from gnats.store.store import FileStore, StoreFailure

_PIECE = 1 << 20
_SLICE = 4 << 20
_MOST_PAYLOAD = 64 << 20
_MOST_SUBJECT = 1 << 20
_TAR_END = bytes(1024)


@contextmanager
def opened(stream: StreamDir, work_dir: str | Path | None = None) -> Iterator[StreamDir]:
    """Yield a stream that can be read: a backup is unpacked below `work_dir`, and removed afterwards.

    `work_dir` None: the system's directory for temporary files. Raises ArchiveError.
    """
    if not stream.backup:
        yield stream
        return
    try:
        made = TemporaryDirectory(prefix="gnats-backup-", dir=work_dir)
    except OSError as exc:
        raise ArchiveError(f"{work_dir}: backups cannot be unpacked there: {exc.strerror}") from None
    with made as top:
        there = None
        try:
            there = unpack(stream, top)
            yield there
        except ArchiveError as exc:  # name the backup, because the unpacked directory is removed
            text = str(exc).replace(there.path, stream.path) if there else str(exc)
            raise ArchiveError(text.replace(top, str(work_dir or gettempdir()))) from None


def unpack(stream: StreamDir, store: str | Path) -> StreamDir:
    """Unpack a backup as a stream of the store directory `store`, which is made if it does not exist.

    Messages are kept whatever their age and TTL. Memory is bounded by the largest message. Raises
    ArchiveError, after removing the stream's files.
    """
    streams = Path(store).absolute() / STORE_DIR / stream.account / STREAMS
    directory = streams / stream.name
    data = next(path for name in BACKUP_DATA if (path := Path(stream.path) / name).is_file())
    if directory.exists():
        raise ArchiveError(f"{directory} is there already")
    try:
        streams.mkdir(0o700, parents=True, exist_ok=True)
        # find_streams() ignores this name, so that an incomplete stream is not found.
        with TemporaryDirectory(prefix=f"{DELETED}unpack-", dir=streams) as staging:
            there = replace(stream, path=f"{staging}/{stream.name}", backup=False)
            Path(there.path).mkdir(0o700)
            with data.open("rb") as file:
                _unpack(file, stream.name, Path(there.path))
            _check_meta(data, there)
            Path(there.path).rename(directory)
    except BackupError as exc:
        raise ArchiveError(f"{data} is damaged: {exc}") from None
    except (StoreFailure, OSError) as exc:
        raise ArchiveError(
            f"{data} cannot be unpacked to {directory}: {getattr(exc, 'strerror', None) or exc}"
        ) from None
    return replace(there, path=str(directory))


def _unpack(file: IO[bytes], name: str, directory: Path) -> None:
    reader = BackupReader(max_payload=_MOST_PAYLOAD, max_subject=_MOST_SUBJECT, keep_expired=True)
    while not reader.version:
        if not _feed(reader, file):
            raise BackupError("it was truncated" if file.tell() else "it is empty")
    if reader.version == 1:
        _unpack_tar(_Plain(reader, file), directory)
    else:
        _unpack_messages(reader, file, name, directory)


def _feed(reader: BackupReader, file: IO[bytes]) -> bool:
    piece = file.read(_PIECE)
    reader.feed(piece)
    return bool(piece)


def _entry(reader: BackupReader, file: IO[bytes]) -> tuple[bytes, bytes]:
    while (entry := reader.entry()) is None:
        _feed(reader, file)  # at the end of the file, the reader raises
    return entry


def _unpack_messages(reader: BackupReader, file: IO[bytes], name: str, directory: Path) -> None:
    state = read_state(*_entry(reader, file))
    for _ in range(state.get("consumer_count", 0)):
        _entry(reader, file)
    first, last = first_seq(state), last_seq(state)
    reader.begin(first)
    # Without limits: all messages of the backup are wanted.
    write_stream_meta(directory, StreamConfig(name=name, storage=FILE), 0, sync=False)
    store = FileStore(str(directory), name, first_seq=first)
    try:
        while True:
            while reader.store_into(store, _SLICE):
                store.flush_pending()
                store.maintain(rewrites=0)
            if reader.is_complete:
                break
            if not _feed(reader, file):
                raise BackupError("it was truncated")
        if reader.last_seq < last:
            store.skip(reader.last_seq + 1, last - reader.last_seq)
    finally:
        store.close()


class _Plain:
    """The decompressed tar file of a backup, to be read once."""

    def __init__(self, reader: BackupReader, file: IO[bytes]) -> None:
        self._reader = reader
        self._file = file
        self.tail = b""
        """The last bytes that were read."""

    def read(self, n: int) -> bytes:
        found = b""
        while len(found) < n:
            piece = self._reader.take(n - len(found))
            if piece is None:
                break
            found += piece
            if not piece:
                _feed(self._reader, self._file)
        self.tail = (self.tail + found)[-len(_TAR_END) :]
        return found


def _unpack_tar(plain: _Plain, directory: Path) -> None:
    extract(cast(IO[bytes], plain), directory)
    while plain.read(_PIECE):
        pass
    if plain.tail != _TAR_END:
        raise BackupError("it was truncated")
    (directory / MESSAGES).mkdir(exist_ok=True)  # the backup of an empty stream may lack it


def _check_meta(data: Path, stream: StreamDir) -> None:
    """Require the right stream name: it is part of checksums, so nothing is readable with another one."""
    problems: list[str] = []
    if read_meta(stream, None, problems.append) is None:
        why = problems[0].replace(f"{stream.path}/", "")
        raise ArchiveError(f"{data} is damaged, or not of stream {stream.name}: {why}")
