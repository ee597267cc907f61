"""The files that describe a stream or a consumer: meta.inf and meta.sum (filestore.go).

meta.inf is JSON: the time of creation, a consumer's name, and the configuration. meta.sum is its checksum.
With a meta.key, meta.inf is sealed, and the checksum is of the sealed bytes.

New files replace the old ones together: all are written beside them (meta.inf.new ...), meta.sum last, then
renamed. After an interruption, a reader uses the old files if they still fit together, else the new ones.
Without old files, meta.inf is written last.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnats.conf.digest import new_sha256
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
"""Suffix of a file that will replace another one."""
DELETED = "."
"""Prefix of the directory of a stream or consumer that is being deleted."""
MESSAGES, CONSUMERS, STREAMS = "msgs", "obs", "streams"
STATE_FILE = "o.dat"
_LONGEST_NAME = 255
"""Most bytes of a name in a file system."""
_TOGETHER = META_KEY, META_FILE, META_SUM


@dataclass(frozen=True, slots=True)
class Meta:
    """A description as it was read.

    `problem` is the error about fields that this server does not know; `config` has the known ones then.
    """

    config: Any
    created: int
    """ns since 1970; 0 when the file does not say."""
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
    """Write a stream's description, and a `key_file` that replaces meta.key. Raises OSError.

    With `sync`, the files are durable on return.
    """
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
    """Write a consumer's description, and a `key_file` that replaces meta.key. Raises OSError.

    With `sync`, the files are durable on return.
    """
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
    """Write the files of a new stream or consumer: meta.inf last, because its presence makes it one."""
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
    """Make a description durable that was written without `sync`. Raises OSError."""
    for path in (directory / META_SUM, directory / META_FILE, directory, directory.parent):
        sync_path(path)


def remove_directory(directory: Path, *, sync: bool = False) -> None:
    """Delete the directory of a stream or consumer: rename it first, then remove it. Raises OSError.

    After the rename it is no longer a stream's or consumer's, even when the removal is interrupted. With
    `sync`, the rename is durable.
    """
    gone = _deleted(directory)
    if gone.exists():
        shutil.rmtree(gone)
    directory.rename(gone)
    if sync:
        sync_path(directory.parent)
    shutil.rmtree(gone)


def _deleted(directory: Path) -> Path:
    """Return the name of a directory during its deletion: with a prefix, or a hash when that is too long."""
    name = directory.name.encode()
    if len(DELETED) + len(name) > _LONGEST_NAME:
        digest = new_sha256()
        digest.update(name)
        return directory.with_name(DELETED + digest.hexdigest())
    return directory.with_name(DELETED + directory.name)


class Undo:
    """Remembers the description files of a stream or consumer, to restore them when a change fails."""

    def __init__(self, directory: Path) -> None:
        """Read the present files. Raises OSError."""
        self._directory = directory
        self._is_new = not directory.is_dir()
        self._missing = [each for each in directory.parents if not each.is_dir()] if self._is_new else []
        self._files = {} if self._is_new else {name: _read(directory / name) for name in _TOGETHER}

    def undo(self) -> None:
        """Restore the files, or remove a directory that did not exist. Raises OSError."""
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
    """Remove a directory; needs no descriptor for a small one, because none may be left. Raises OSError."""
    for name in (*_TOGETHER, STATE_FILE):
        for suffix in ("", NEW, ".tmp", NEW + ".tmp"):
            (directory / (name + suffix)).unlink(missing_ok=True)
    for each in (directory / MESSAGES, directory):
        with contextlib.suppress(OSError):  # other files are in it
            each.rmdir()
    if directory.is_dir():
        shutil.rmtree(directory)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def read_stream_meta(directory: Path, keys: Keys, account: str) -> Meta:
    """Read a stream's description; finish or undo an interrupted replacement. Raises MetaError."""
    name = directory.name
    data = _settled(directory, keys, _Names("Stream", "stream", name, account, name))
    return _decode(data, directory, "Stream", "stream", StreamConfig)


def peek_stream_meta(directory: Path, keys: Keys, account: str, name: str) -> Meta:
    """Read a stream's description, and leave all files as they are. Raises MetaError."""
    names = _Names("Stream", "stream", name, account, name)
    return _decode(_settled(directory, keys, names, leave=True), directory, "Stream", "stream", StreamConfig)


def read_consumer_meta(directory: Path, keys: Keys, account: str, stream: str) -> Meta:
    """Read a consumer's description; finish or undo an interrupted replacement. Raises MetaError."""
    name = directory.name
    names = _Names("Consumer", "consumer", f"{stream}/{name}", account, f"{stream}.{name}")
    return _decode(_settled(directory, keys, names), directory, "Consumer", "consumer", ConsumerConfig)


@dataclass(frozen=True, slots=True)
class _Names:
    """Words for error texts, and the names that the checksum and the keys are derived from."""

    title: str
    what: str
    sum: str
    account: str
    key: str


def _settled(directory: Path, keys: Keys, names: _Names, *, leave: bool = False) -> bytes:
    """Return meta.inf in clear; finish or undo an interrupted replacement, unless `leave`."""
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
    """Return meta.inf after verifying its checksum; for the names in `new`, read the new files."""
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
