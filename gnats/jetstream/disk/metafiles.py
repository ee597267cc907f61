"""The files that say what a stream or a consumer is: meta.inf and meta.sum (filestore.go).

meta.inf is JSON: when it was made, a consumer's name, and the configuration. meta.sum is its checksum.
With a meta.key it is sealed, and the checksum is of that.

They replace those that were there together: all are written beside (meta.inf.new ...), meta.sum last, and
then renamed. Where that was interrupted, a reader takes the old ones if they still fit, else the new ones.
Where there were none, meta.inf is written last.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from gnats.go.json import JSONError, marshal, unmarshal
from gnats.go.structs import TIME
from gnats.go.text import rfc3339
from gnats.go.times import unix_ns
from gnats.jetstream.disk.encryption import META_KEY, Keys, MetaError, Seal
from gnats.jetstream.settings.config import ConsumerConfig, StreamConfig
from gnats.store.format.highway import checksum
from gnats.system.files import make_directories, remove_empty, replace_file, sync_path

META_FILE, META_SUM = "meta.inf", "meta.sum"
NEW = ".new"
"""What the name of a file ends with that is to replace another one."""
DELETED = "."
"""What the name of a stream's or a consumer's directory begins with that is being deleted."""
MESSAGES, CONSUMERS, STREAMS = "msgs", "obs", "streams"
STATE_FILE = "o.dat"
_LONGEST_NAME = 255
"""Bytes that a file system takes."""
_TOGETHER = META_KEY, META_FILE, META_SUM


@dataclass(frozen=True, slots=True)
class Meta:
    """What was found. `problem` says what in it is not known here: then `config` is what is."""

    config: Any
    created: int
    """ns since 1970; 0: it does not say."""
    name: str = ""
    problem: str = ""


def write_stream_meta(
    directory: Path,
    config: StreamConfig,
    created: int,
    seal: Seal | None = None,
    key_file: bytes = b"",
    *,
    sync: bool = True,
) -> None:
    """With a `key_file` that is to replace the one there is; durable with `sync`. Raises OSError."""
    document = {"Created": rfc3339(created)} | config.json()
    _write(directory, config.name, marshal(document), seal, key_file, sync=sync)


def write_consumer_meta(
    directory: Path,
    stream: str,
    name: str,
    config: ConsumerConfig,
    created: int,
    seal: Seal | None = None,
    key_file: bytes = b"",
    *,
    sync: bool = True,
) -> None:
    """With a `key_file` that is to replace the one there is; durable with `sync`. Raises OSError."""
    document = {"Created": rfc3339(created), "Name": name} | config.json()
    _write(directory, f"{stream}/{name}", marshal(document), seal, key_file, sync=sync)


def _write(
    directory: Path, key: str, data: bytes, seal: Seal | None, key_file: bytes, *, sync: bool = True
) -> None:
    if seal:
        data = seal.seal(data)
    sums = checksum(key.encode(), data).hex().encode()
    make_directories(directory, sync=sync)
    if not key_file and not (directory / META_FILE).exists():
        _write_first(directory, data, sums, sync=sync)
        return
    _drop_new(directory)
    files = {META_KEY: key_file} if key_file else {}
    files |= {META_FILE: data, META_SUM: sums}
    for name, content in files.items():
        replace_file(directory / (name + NEW), content, sync=sync)
    _take_new(directory, list(files), sync=sync)


def _write_first(directory: Path, data: bytes, sums: bytes, *, sync: bool) -> None:
    """There is no meta.inf: it comes last, and with it the stream or the consumer is there."""
    replace_file(directory / META_SUM, sums, sync=sync)
    if sync:
        sync_path(directory)
    replace_file(directory / META_FILE, data, sync=sync)
    if sync:
        sync_path(directory)


def _take_new(directory: Path, names: list[str], *, sync: bool = True) -> None:
    if sync:
        sync_path(directory)
    for name in names:
        (directory / (name + NEW)).rename(directory / name)
    if sync:
        sync_path(directory)


def _drop_new(directory: Path) -> None:
    for name in reversed(_TOGETHER):
        (directory / (name + NEW)).unlink(missing_ok=True)


def sync_meta(directory: Path) -> None:
    """Make durable what was written without `sync`. Raises OSError."""
    for path in (directory / META_SUM, directory / META_FILE, directory, directory.parent):
        sync_path(path)


def remove_directory(directory: Path, *, sync: bool = False) -> None:
    """Delete a stream's or a consumer's, at once: when it has another name it is nobody's. Raises OSError.

    With `sync` it does not come back.
    """
    gone = _deleted(directory)
    if gone.exists():
        shutil.rmtree(gone)
    directory.rename(gone)
    if sync:
        sync_path(directory.parent)
    shutil.rmtree(gone)


def _deleted(directory: Path) -> Path:
    """What a directory is called while it is deleted; the longest names leave no room for the prefix."""
    name = directory.name.encode()
    if len(DELETED) + len(name) > _LONGEST_NAME:
        return directory.with_name(DELETED + sha256(name).hexdigest())
    return directory.with_name(DELETED + directory.name)


class Undo:
    """A stream's or a consumer's directory as it is now, to be put back when what is begun cannot be done."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError."""
        self._directory = directory
        self._is_new = not directory.is_dir()
        self._missing = [each for each in directory.parents if not each.is_dir()] if self._is_new else []
        self._files = {} if self._is_new else {name: _read(directory / name) for name in _TOGETHER}

    def undo(self) -> None:
        """Raises OSError."""
        if not self._is_new:
            _drop_new(self._directory)
            for name, content in self._files.items():
                path = self._directory / name
                if content is None:
                    path.unlink(missing_ok=True)
                elif _read(path) != content:
                    replace_file(path, content)
            return
        if self._directory.is_dir():
            gone = _deleted(self._directory)
            if gone.is_dir():
                shutil.rmtree(gone)
            self._directory.rename(gone)
            _remove_known(gone)
        remove_empty(*self._missing)


def _remove_known(directory: Path) -> None:
    """Remove a directory; one with little in it without a descriptor: there may be none. Raises OSError."""
    for name in (*_TOGETHER, STATE_FILE):
        for suffix in ("", NEW, ".tmp", NEW + ".tmp"):
            (directory / (name + suffix)).unlink(missing_ok=True)
    for each in (directory / MESSAGES, directory):
        with contextlib.suppress(OSError):  # there is something else in it
            each.rmdir()
    if directory.is_dir():
        shutil.rmtree(directory)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def read_stream_meta(directory: Path, keys: Keys, account: str) -> Meta:
    """Raises MetaError."""
    name = directory.name
    data = _settled(directory, keys, _Names("Stream", "stream", name, account, name))
    return _decode(data, directory, "Stream", "stream", StreamConfig)


def peek_stream_meta(directory: Path, keys: Keys, account: str, name: str) -> Meta:
    """The same of a directory that is somebody else's: its files stay as they are. Raises MetaError."""
    names = _Names("Stream", "stream", name, account, name)
    return _decode(_settled(directory, keys, names, leave=True), directory, "Stream", "stream", StreamConfig)


def read_consumer_meta(directory: Path, keys: Keys, account: str, stream: str) -> Meta:
    """Raises MetaError."""
    name = directory.name
    names = _Names("Consumer", "consumer", f"{stream}/{name}", account, f"{stream}.{name}")
    return _decode(_settled(directory, keys, names), directory, "Consumer", "consumer", ConsumerConfig)


@dataclass(frozen=True, slots=True)
class _Names:
    """What a file is called in messages, and what its checksum and its keys are made with."""

    title: str
    what: str
    sum: str
    account: str
    key: str


def _settled(directory: Path, keys: Keys, names: _Names, *, leave: bool = False) -> bytes:
    """What meta.inf holds; an interrupted replacement is finished, or undone, but for `leave`."""
    try:
        new = [name for name in _TOGETHER if (directory / (name + NEW)).exists()]
    except OSError as exc:
        path = directory / META_FILE
        raise MetaError(f'Error reading {names.what} metafile "{path}": {exc.strerror}') from None
    try:
        data = _unsealed(_checked(directory, names, ()), directory, keys, names, ())
    except MetaError as exc:
        if META_SUM not in new:
            raise
        try:
            data = _unsealed(_checked(directory, names, new), directory, keys, names, new)
            if not leave:
                _take_new(directory, new)
        except (MetaError, OSError):
            raise exc from None
        return data
    if new and not leave:
        _drop_new(directory)
    return data


def _path(directory: Path, name: str, new: Sequence[str]) -> Path:
    return directory / (name + NEW if name in new else name)


def _checked(directory: Path, names: _Names, new: Sequence[str]) -> bytes:
    """What meta.inf holds, which its checksum is right for; of those that are `new`, the new ones."""
    path, sums = _path(directory, META_FILE, new), _path(directory, META_SUM, new)
    what, title = names.what, names.title
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise MetaError(f'Missing {what} metafile for "{path}"') from None
    except OSError as exc:
        raise MetaError(f'Error reading {what} metafile "{path}": {exc.strerror}') from None
    try:
        wanted = sums.read_bytes()
    except FileNotFoundError:
        raise MetaError(f'Missing {what} checksum file "{sums}"') from None
    except OSError as exc:
        raise MetaError(f'Error reading {title} metafile checksum "{sums}": {exc.strerror}') from None
    found = checksum(names.sum.encode(), data).hex().encode()
    if found != wanted:
        text = wanted.decode(errors="replace")
        raise MetaError(f'{title} metafile "{path}": checksums do not match "{text}" vs "{found.decode()}"')
    return data


def _unsealed(data: bytes, directory: Path, keys: Keys, names: _Names, new: Sequence[str]) -> bytes:
    try:
        seal = keys.open(_path(directory, META_KEY, new), names.account, names.key)
        return seal.unseal(data) if seal else data
    except (MetaError, ValueError) as exc:
        where = f"'{names.account} > {names.sum.replace('/', ' > ')}'"
        raise MetaError(f"Error decrypting our {names.what} metafile: {exc} ({where})") from None


def _decode(data: bytes, directory: Path, title: str, what: str, cls: Any) -> Meta:
    path = directory / META_FILE
    fields = {"Created": TIME, "Name": "string", **cls.schema()}
    problem = ""
    try:
        members = unmarshal(data, fields, f"File{title}Info", strict=True)
    except JSONError as exc:
        problem = str(exc)
        try:
            members = unmarshal(data, fields, f"File{title}Info")
        except JSONError as again:
            raise MetaError(f'Error unmarshalling {what} metafile "{path}": {again}') from None
    return Meta(
        cls.from_members(members),
        unix_ns(str(members.get("Created", ""))),
        str(members.get("Name", "")),
        problem,
    )
