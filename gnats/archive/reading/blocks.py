"""Block files of a stream, opened to be read: decrypted and decompressed where they are packed.

A packed block is in memory as a whole while it is read, twice for a moment.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gnats.archive.errors import ArchiveError
from gnats.archive.reading.streams import Keys, StreamDir
from gnats.archive.scanner import BlockReader, ReadError
from gnats.jetstream.disk.encryption import META_KEY, MetaError, Seal
from gnats.jetstream.disk.encryption import Keys as ServerKeys
from gnats.options.values.jetstream import JetStreamOptions
from gnats.store.format.s2 import decompress_block

_COMPRESSED = b"cmp"
_MOST_BYTES = 128 << 20
"""Of a block, compressed or not."""


class BlockDamage(Exception):
    """Nothing of a block can be read; the text says why."""


class BlockFiles:
    """Opens the blocks of one stream."""

    def __init__(self, stream: StreamDir, keys: Keys | None) -> None:
        self._stream = stream
        self._keys = keys.server_keys() if keys else ServerKeys(JetStreamOptions())
        self._encrypted = (Path(stream.path) / META_KEY).exists()

    def stream_seal(self) -> Seal | None:
        """What index.db is sealed with. Raises ArchiveError: the key is missing, or another one."""
        path = Path(self._stream.path) / META_KEY
        return self._seal(path, self._stream.name)

    def _seal(self, path: Path, name: str) -> Seal | None:
        try:
            return self._keys.open(path, self._stream.account, name)
        except MetaError as exc:
            if not self._keys:
                raise ArchiveError(f"{path.parent} is encrypted; its key is needed") from None
            raise ArchiveError(f"{path} is not opened by this key: {exc}") from None

    @contextmanager
    def open(
        self, path: str, index: int, *, is_last: bool, start: int = 0, after: int = 0
    ) -> Iterator[BlockReader]:
        """A block from byte `start` of its records on, behind message `after` (0: none).

        Raises FileNotFoundError: it was removed; BlockDamage, ArchiveError.
        """
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            raise
        except OSError as exc:
            raise BlockDamage(f"the file cannot be opened: {exc.strerror}") from None
        try:
            about = os.fstat(fd)
            if not stat.S_ISREG(about.st_mode):
                raise BlockDamage("it is no file")
            if about.st_size > _MOST_BYTES:
                raise BlockDamage(
                    f"it has {about.st_size:,} bytes, and no block has more than {_MOST_BYTES:,}"
                )
            content = self._packed(fd, Path(path), index) if about.st_size else None
            yield BlockReader(
                self._stream.name, index, fd if content is None else content, is_last, start, after
            )
        except ReadError as exc:
            raise BlockDamage(f"the file cannot be read: {exc.strerror}") from None
        finally:
            os.close(fd)

    def _packed(self, fd: int, path: Path, index: int) -> bytes | None:
        """The records of a file that is encrypted or compressed, None when it is neither. Raises
        FileNotFoundError, BlockDamage, ArchiveError."""
        try:
            seal = self._block_seal(path, index)
            if seal is None and self._encrypted and not path.exists():
                raise FileNotFoundError(path)  # its key was removed with it, after the file was opened
            if seal is None and os.pread(fd, len(_COMPRESSED), 0) != _COMPRESSED:
                return None
            with open(fd, "rb", closefd=False) as file:
                data = file.read()
        except FileNotFoundError:
            raise
        except OSError as exc:
            raise BlockDamage(f"the file cannot be read: {exc.strerror}") from None
        if seal:
            data = seal.xor_block(data)
        if data.startswith(_COMPRESSED):
            try:
                data = decompress_block(data, _MOST_BYTES)
            except ValueError as exc:
                raise BlockDamage(f"the block cannot be decompressed: {exc}") from None
        return data

    def _block_seal(self, path: Path, index: int) -> Seal | None:
        key = path.with_suffix(".key")
        try:
            return self._seal(key, f"{self._stream.name}:{index}")
        except ArchiveError as exc:
            if self._encrypted and self._keys:
                # the key is the right one: it has opened the stream's
                raise BlockDamage(str(exc)) from None
            raise
