"""Open the block files of a stream for reading; decrypt and decompress packed ones.

A packed block is in memory as a whole while it is read, for a moment twice.
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
from gnats.store.format.packing import decompress_block

_COMPRESSED = b"cmp"
_MOST_BYTES = 128 << 20
"""Largest block, compressed or not."""


class BlockDamage(Exception):
    """No part of a block can be read; the text is the reason."""


class BlockFiles:
    """Opens the blocks of one stream."""

    def __init__(self, stream: StreamDir, keys: Keys | None) -> None:
        self._stream = stream
        self._keys = keys.server_keys() if keys else ServerKeys(JetStreamOptions())
        self._encrypted = (Path(stream.path) / META_KEY).exists()

    def stream_seal(self) -> Seal | None:
        """Return the seal of index.db, None for clear text. Raises ArchiveError without the right key."""
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
        """Open a block from byte `start` of its records on, which follow message `after` (0: none).

        Raises FileNotFoundError when the block was removed, BlockDamage, ArchiveError.
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
        """Return the records of an encrypted or compressed file, None when it is neither.

        Raises FileNotFoundError, BlockDamage, ArchiveError.
        """
        try:
            seal = self._block_seal(path, index)
            if seal is None and self._encrypted and not path.exists():
                raise FileNotFoundError(path)  # the block and its key were removed after the file was opened
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
                # The key has opened the stream's meta.key, so it is right, and the block's key is damaged.
                raise BlockDamage(str(exc)) from None
            raise
