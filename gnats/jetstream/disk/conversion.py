"""Convert files that are in clear, under prev_key or with the other cipher to the configured key and cipher
(convertCipher and convertToEncrypted of filestore.go).

A conversion may be interrupted at any moment; the next start continues it. A block's new file waits beside
the old one (N.blk.new) until the block's new key is on the disk. After an interruption, the file that the key
decrypts is the block's. Each block's key is checked, because some blocks may have been converted before;
meta.key changes last.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gnats.jetstream.disk.encryption import KeyTorn, MetaError
from gnats.jetstream.disk.metafiles import MESSAGES, NEW, STATE_FILE, write_consumer_meta, write_stream_meta
from gnats.jetstream.settings.config import ConsumerConfig, StreamConfig
from gnats.system.files import replace_file, sync_path

if TYPE_CHECKING:
    from gnats.jetstream.disk.encryption import Keys, Seal

INDEX_FILE = "index.db"
_BLOCK = re.compile(r"([1-9][0-9]{0,9})\.blk(\.new)?")
_UNFINISHED = (".blk.new.tmp", ".key.tmp")
_CHECKSUM = 8


class _Blocks:
    """The blocks of a stream, in msgs/; `say` logs a text."""

    def __init__(self, msgs: Path, keys: Keys, account: str, stream: str, say: Callable[[str], None]) -> None:
        self._msgs = msgs
        self._keys = keys
        self._account = account
        self._stream = stream
        self._say = say

    def convert(self) -> int:
        """Convert the blocks that need it; return their number. Raises OSError or MetaError."""
        blocks: list[int] = []
        interrupted: list[int] = []
        for path in self._msgs.iterdir() if self._msgs.is_dir() else ():
            if match := _BLOCK.fullmatch(path.name):
                (interrupted if match[2] else blocks).append(int(match[1]))
            elif path.name.endswith(_UNFINISHED):
                path.unlink()
        for index in interrupted:
            self._settle(index)
        return sum(self._convert(index) for index in sorted(blocks))

    def _open(self, index: int) -> Seal | None:
        try:
            return self._keys.open(self._msgs / f"{index}.key", self._account, f"{self._stream}:{index}")
        except MetaError as exc:
            raise type(exc)(f"block {index}: {exc}") from None

    def _readable(self, index: int, data: bytes) -> bool:
        from gnats.store.sealing import readable

        return readable(self._stream, index, data)

    def _settle(self, index: int) -> None:
        """Finish or undo an interrupted conversion: keep the new file if the block's key decrypts it."""
        new, seal = self._msgs / f"{index}.blk{NEW}", self._open(index)
        if seal and self._readable(index, seal.xor_block(new.read_bytes())):
            new.rename(self._msgs / f"{index}.blk")
            sync_path(self._msgs)
        else:
            new.unlink()

    def _convert(self, index: int) -> bool:
        try:
            seal = self._open(index)
        except KeyTorn:  # neither the key nor the block became durable before a crash
            seal = None
        if seal and seal.is_current:
            return False
        path, key = self._msgs / f"{index}.blk", self._msgs / f"{index}.key"
        data = path.read_bytes()
        if seal:
            data = seal.xor_block(data)
        if data and not self._readable(index, data):
            self._say(f"block {index}: no record of it can be read; its file is now {path.name}.bad")
            for each in (key, path):
                if each.exists():
                    each.rename(each.with_name(each.name + ".bad"))
            return False
        file, seal = self._keys.create(self._account, f"{self._stream}:{index}")
        new = path.with_name(path.name + NEW)
        replace_file(new, seal.xor_block(data))
        sync_path(self._msgs)
        replace_file(key, file)
        sync_path(self._msgs)
        new.rename(path)
        sync_path(self._msgs)
        return True


def convert_stream(
    directory: Path,
    keys: Keys,
    account: str,
    config: StreamConfig,
    created: int,
    seal: Seal | None,
    say: Callable[[str], None],
) -> Seal:
    """Convert a stream's files; `seal` is the present one, None for clear text. Returns the new one.

    May read and write all of the stream's files. Raises OSError or MetaError.
    """
    from gnats.store.recovery import settle_purge

    settle_purge(str(directory))
    name = config.name
    converted = _Blocks(directory / MESSAGES, keys, account, name, say).convert()
    if seal is None or not seal.is_current:
        index = _read_index(directory, name, seal)
        file, seal = keys.create(account, name)
        write_stream_meta(directory, config, created, seal, file)
        _write_index(directory, name, seal, index)
        say(f"it is encrypted as is configured now, {converted} blocks were converted")
    elif converted:
        say(f"{converted} more blocks are encrypted as is configured now")
    return seal


def _read_index(directory: Path, stream: str, seal: Seal | None) -> bytes:
    """Return the content of index.db in clear, b"" without a usable one."""
    from gnats.store.format.highway import checksum

    try:
        data = (directory / MESSAGES / INDEX_FILE).read_bytes()
    except FileNotFoundError:
        return b""
    data, found = data[:-_CHECKSUM], data[-_CHECKSUM:]
    if checksum(stream.encode(), data) != found:
        return b""
    try:
        return seal.unseal(data) if seal else data
    except ValueError:
        return b""


def _write_index(directory: Path, stream: str, seal: Seal, index: bytes) -> None:
    from gnats.store.format.highway import checksum

    path = directory / MESSAGES / INDEX_FILE
    if index:
        data = seal.seal(index)
        replace_file(path, data + checksum(stream.encode(), data))
    else:
        path.unlink(missing_ok=True)


def convert_consumer(
    directory: Path,
    keys: Keys,
    account: str,
    stream: str,
    name: str,
    config: ConsumerConfig,
    created: int,
    seal: Seal | None,
) -> Seal:
    """Convert a consumer's files; return the new seal. Raises OSError, or ValueError for a damaged state."""
    path = directory / STATE_FILE
    state = path.read_bytes() if path.exists() else b""
    if state and seal:
        state = seal.unseal(state)
    file, seal = keys.create(account, f"{stream}.{name}")
    new = path.with_name(STATE_FILE + NEW)
    if state:
        replace_file(new, seal.seal(state))
    write_consumer_meta(directory, stream, name, config, created, seal, file)
    if state:
        new.rename(path)
    return seal


def read_consumer_state(directory: Path, seal: Seal | None) -> bytes:
    """Return a consumer's stored state in clear, b"" without one; finish an interrupted conversion.

    Raises OSError, or ValueError for a damaged state.
    """
    path = directory / STATE_FILE
    new = path.with_name(STATE_FILE + NEW)
    try:
        state = path.read_bytes() if path.exists() else b""
        if state and seal:
            state = seal.unseal(state)
    except ValueError:
        if seal is None or not new.exists():
            raise
        state = seal.unseal(new.read_bytes())
        new.rename(path)
    new.unlink(missing_ok=True)
    return state
