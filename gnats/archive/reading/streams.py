"""Find streams in a store, `jetstream/<account>/streams/<name>` with meta.inf and msgs/, and backups.

This module only reads: the directory may be a running server's.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gnats.archive.errors import ArchiveError
from gnats.jetstream.disk.encryption import META_KEY, MetaError
from gnats.jetstream.disk.encryption import Keys as ServerKeys
from gnats.jetstream.disk.metafiles import DELETED, MESSAGES, META_FILE, STREAMS, Meta, peek_stream_meta
from gnats.options.values.auth import GLOBAL_ACCOUNT
from gnats.options.values.jetstream import AES, CHACHA, STORE_DIR, JetStreamOptions

CIPHERS = {"": CHACHA, "chacha": CHACHA, "chachapoly": CHACHA, "aes": AES}
BLOCK_FILE = re.compile(r"([1-9][0-9]{0,9})\.blk")
BACKUP_META = "backup.json"
BACKUP_DATA = "stream.arc.s2", "stream.tar.s2"
"""Files with a backup's messages: the name since nats-server 2.15, and the older one."""
_NEW_MESSAGES = "__new_msgs__"
_META_READS, _META_PAUSE = 4, 0.05
_STREAM_NAME = re.compile(r"[^\s.*>/\\\0]{1,255}")


@dataclass(frozen=True, slots=True)
class Keys:
    """The encryption of a store: the server's key, its previous one, and the cipher.

    The cipher is "chachapoly" or "aes"; files with the other cipher are read, too.
    """

    key: str
    prev_key: str | None = None
    cipher: str = "chachapoly"

    def __repr__(self) -> str:
        return f"Keys(cipher={self.cipher!r})"

    def server_keys(self) -> ServerKeys:
        """Return the keys as JetStream uses them. Raises ArchiveError for an unknown cipher."""
        if self.cipher not in CIPHERS:
            raise ArchiveError(f"{self.cipher!r} is no cipher; known: chachapoly, aes")
        return ServerKeys(
            JetStreamOptions(key=self.key, prev_key=self.prev_key or "", cipher=CIPHERS[self.cipher])
        )


@dataclass(frozen=True, slots=True)
class StreamDir:
    """A stream: `path` is its directory in a store, or the directory of a `backup` (see module backups)."""

    account: str
    name: str
    path: str
    backup: bool = False


def _entries(path: Path) -> list[Path]:
    try:
        found = sorted(each for each in path.iterdir() if each.is_dir() and not each.name.startswith(DELETED))
    except OSError as exc:
        raise ArchiveError(f"{path} cannot be read: {exc.strerror}") from None
    for each in found:
        try:
            each.name.encode()
        except UnicodeEncodeError:
            shown = os.fsencode(each).decode(errors="backslashreplace")
            raise ArchiveError(f"{shown}: the name of this directory is no text (UTF-8)") from None
    return found


def is_stream(path: Path) -> bool:
    """Whether a directory is a stream's."""
    return (path / META_FILE).is_file() or (
        any(BLOCK_FILE.fullmatch(each.name) for each in (path / MESSAGES).glob("*.blk"))
    )


def _of_account(path: Path) -> Iterator[StreamDir]:
    for each in _entries(path / STREAMS):
        if is_stream(each):
            yield StreamDir(path.name, each.name, str(each))


def _is_backup(path: Path) -> bool:
    return (path / BACKUP_META).is_file()


def _backup(path: Path, account: str) -> StreamDir:
    meta = path / BACKUP_META
    try:
        name = json.loads(meta.read_bytes())["config"]["name"]
    except OSError as exc:
        raise ArchiveError(f"{meta} cannot be read: {exc.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise ArchiveError(f"{meta} does not say which stream it is of") from None
    if not isinstance(name, str) or not _STREAM_NAME.fullmatch(name):
        raise ArchiveError(f"{meta} is of a stream {name!r}, which is no name")
    if not any((path / each).is_file() for each in BACKUP_DATA):
        raise ArchiveError(f"{path} is no whole backup: neither {' nor '.join(BACKUP_DATA)} is in it")
    return StreamDir(account, name, str(path), backup=True)


def find_streams(store: str | Path, account: str | None = None) -> list[StreamDir]:
    """Find the streams below a directory.

    The directory is a server's store_dir, `jetstream` in it, an account's or a stream's, a backup, or has
    backups in it. A backup does not name its account: it counts as `account`'s, or $G's.

    Raises ArchiveError when the directory does not exist, cannot be read, or is no store.
    """
    path = Path(store).absolute()
    if not path.exists():
        raise ArchiveError(f"{path} does not exist")
    if not path.is_dir():
        raise ArchiveError(f"{path} is no directory")
    if _is_backup(path):
        return [_backup(path, account or GLOBAL_ACCOUNT)]
    if is_stream(path):
        owner = path.parents[1].name if path.parent.name == STREAMS else ""
        return [StreamDir(owner, path.name, str(path))]
    if (path / STREAMS).is_dir():
        return list(_of_account(path))
    top = path / STORE_DIR if (path / STORE_DIR).is_dir() else path
    entries = _entries(top)
    accounts = [each for each in entries if (each / STREAMS).is_dir()]
    backups = [] if accounts else [each for each in entries if _is_backup(each)]
    if backups:
        return [_backup(each, account or GLOBAL_ACCOUNT) for each in backups]
    if not accounts and top == path and path.name != STORE_DIR:
        raise ArchiveError(f"{path} is no JetStream store: no account with streams is in it")
    return [stream for each in accounts for stream in _of_account(each)]


def find_stream(store: str | Path, name: str | None, account: str | None = None) -> StreamDir:
    """Return the one stream of this name, or the only stream. Raises ArchiveError."""
    found = find_streams(store, account)
    streams = [each for each in found if name in (None, each.name) and account in (None, each.account)]
    if len(streams) == 1:
        return streams[0]
    if not streams:
        known = ", ".join(sorted({each.name for each in found})) or "none"
        raise ArchiveError(f"stream {name} is not in {store}; there: {known}")
    several = ", ".join(f"{each.account} > {each.name}" for each in streams)
    raise ArchiveError(f"{store} has several streams: {several}; say which")


def messages_dir(stream: StreamDir) -> Path:
    """Return the directory of the blocks, also when a purge was interrupted between its two renames."""
    path = Path(stream.path)
    purged = path / _NEW_MESSAGES
    return purged if any(purged.glob("*.blk")) else path / MESSAGES


def read_meta(stream: StreamDir, keys: Keys | None, note: Callable[[str], object]) -> Meta | None:
    """Read a stream's description; when it is unreadable, call `note` with the reason and return None.

    Raises ArchiveError when the description is encrypted, and the key is missing or wrong.
    """
    server_keys = keys.server_keys() if keys else ServerKeys(JetStreamOptions())
    path = Path(stream.path)
    try:
        if (path / META_KEY).exists():
            server_keys.open(path / META_KEY, stream.account, stream.name)
    except MetaError as exc:
        why = str(exc)
        if "not enabled" in why:
            raise ArchiveError(f"{path} is encrypted; its key is needed") from None
        raise ArchiveError(f"{path / META_KEY} is not opened by this key: {why}") from None
    for left in range(_META_READS, 0, -1):
        try:
            return peek_stream_meta(path, server_keys, stream.account, stream.name)
        except MetaError as exc:
            if left == 1 or not (path / META_FILE).exists():
                note(str(exc))
                break
            time.sleep(_META_PAUSE)  # the server may be between writing meta.inf and its checksum
    return None
