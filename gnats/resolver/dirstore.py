"""JWTs of accounts in a directory, one file each: <public key>.jwt (dirstore.go).

The store has the SHA-256 of each JWT, and the exclusive or of all: with it, servers compare their sets of
JWTs. A file is removed when its JWT expires or, with a `ttl`, when it was not used for that long. A full
store that evicts removes the least recently used file. Other processes may read the files.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from math import inf
from pathlib import Path

from gnats.clock import unix_time
from gnats.go.text import os_error, quote
from gnats.jwt.claims import GenericClaims
from gnats.jwt.token import JWTError, decode_generic
from gnats.nkeys.nkeys import Prefix, is_valid_public_key
from gnats.resolver.base import ResolverError
from gnats.system.paths import system_path

_SUFFIX = ".jwt"
_DIRECTORY_MODE, _FILE_MODE = 0o700, 0o600
HASH_LENGTH = 32


class Delete(Enum):
    """The way in which a JWT is deleted."""

    NO = "refused"
    RENAME = "renamed to <file>.deleted"
    HARD = "removed"


@dataclass(slots=True)
class _Item:
    expires: float
    """Unix time in seconds; inf: never."""
    hash: int


class DirStore:
    """The files, and their hashes and expiry times. Methods raise ResolverError with nats-server's text."""

    def __init__(
        self,
        directory: str,
        *,
        delete: Delete = Delete.NO,
        limit: float = inf,
        evict: bool = False,
        ttl: float = 0.0,
    ) -> None:
        """Open the directory; create it if it is missing. `limit` is a number of JWTs, `ttl` seconds."""
        self.directory = Path(directory).absolute()
        self._delete = delete
        self._limit = limit
        self._evict = evict
        self._ttl = ttl
        self._items: dict[str, _Item] = {}
        """By public key, in the order of their last use."""
        self._hash = 0
        if self.directory.exists() and not self.directory.is_dir():
            raise ResolverError(f"the path [{self.directory}] is not a directory")
        try:
            system_path(self.directory)
            self.directory.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
        except OSError as exc:
            raise ResolverError(f"{self.directory}: {os_error(exc)}") from None
        self._index()

    @property
    def hash(self) -> bytes:
        """The exclusive or of all JWTs' SHA-256, 32 bytes."""
        return self._hash.to_bytes(HASH_LENGTH, "big")

    @property
    def deletes(self) -> bool:
        return self._delete is not Delete.NO

    @property
    def expire_interval(self) -> float:
        """Seconds between two calls of expire()."""
        return min(self._ttl / 2 or 60.0, 60.0)

    def __len__(self) -> int:
        return len(self._items)

    def load(self, key: str) -> str | None:
        """Return the JWT of an account; None if there is no file."""
        try:
            token = self._path(key).read_text("utf-8", "replace")
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise ResolverError(os_error(exc)) from None
        self._used(key)
        return token

    def save(self, key: str, token: str) -> bool:
        """Store a JWT. Return False if the store has the same JWT already."""
        path = self._path(key)
        if not token:
            raise ResolverError("invalid JWT")
        digest = _digest(token)
        if key in self._items:
            self._used(key)
            if self._items[key].hash == digest:
                return False
        elif len(self._items) >= self._limit:
            self._make_room()
        _write(path, token)
        self._track(key, token, digest)
        return True

    def save_if_newer(self, key: str, token: str) -> bool:
        """Store a JWT, unless the file has the same or a newer one. Return True if the JWT has changed."""
        path = self._path(key)
        if path.exists():
            try:
                new = decode_generic(token)
            except JWTError as exc:
                raise ResolverError(str(exc)) from None
            existing = self._decode(path)
            if existing is not None:
                if existing.jti == new.jti or existing.iat > new.iat:
                    return False
                if new.sub != key:
                    raise ResolverError("jwt subject nkey and provided nkey do not match")
                if existing.sub != new.sub:
                    raise ResolverError("subject of existing and new jwt do not match")
        return self.save(key, token)

    def delete(self, key: str) -> bool:
        """Delete a JWT in the configured way. Return False if there is none."""
        if not self.deletes:
            raise ResolverError("store is not set up to for delete")
        path = self._path(key)
        try:
            if self._delete is Delete.RENAME:
                path.rename(path.with_name(f"{path.name}.deleted"))
            else:
                path.unlink()
        except FileNotFoundError:
            return False
        except OSError as exc:
            raise ResolverError(os_error(exc)) from None
        self._untrack(key)
        return True

    def pack(self) -> Iterator[str]:
        """Yield "<public key>|<JWT>" of each account whose JWT has not expired. A thread may iterate it."""
        for key in list(self._items):
            path = self._path(key)
            if not (token := _read(path)):
                continue
            claims = self._decode(path)
            if claims is None or not 0 < claims.exp < unix_time():
                yield f"{key}|{token}"

    def merge(self, pack: str) -> list[str]:
        """Store the JWTs of `pack` that are newer. Return the accounts whose JWTs have changed."""
        changed = []
        for line in filter(None, pack.split("\n")):
            parts = line.split("|")
            if len(parts) != 2:
                raise ResolverError(f"line in package didn't contain 2 entries: {quote(line)}")
            key, token = parts
            if not is_valid_public_key(key, Prefix.ACCOUNT):
                raise ResolverError("key to merge is not a valid public account key")
            if self.save_if_newer(key, token):
                changed.append(key)
        return changed

    def reload(self) -> list[str]:
        """Read the directory again. Return the accounts whose JWTs have changed.

        In a store that evicts, an account that is new in the store counts, too: the server may have an older
        JWT of it.
        """
        before = self._items
        self._items, self._hash = {}, 0
        self._index()
        return [
            key
            for key, item in self._items.items()
            if (before[key].hash != item.hash if key in before else self._evict)
        ]

    def expire(self, now: float | None = None) -> list[str]:
        """Remove the expired JWTs. Return their accounts."""
        now = unix_time() if now is None else now
        gone = []
        for key in [key for key, item in self._items.items() if item.expires <= now]:
            try:
                self._path(key).unlink()
            except OSError:
                continue
            self._untrack(key)
            gone.append(key)
        return gone

    def _path(self, key: str) -> Path:
        # Only a valid key may become part of a path.
        if not is_valid_public_key(key):
            raise ResolverError("invalid public key")
        return self.directory / (key + _SUFFIX)

    def _index(self) -> None:
        for path in sorted(self.directory.glob(f"*{_SUFFIX}")):
            key = path.name.removesuffix(_SUFFIX)
            if not is_valid_public_key(key):
                continue
            if (token := _read(path)) is not None:
                self._track(key, token, _digest(token))

    def _track(self, key: str, token: str, digest: int) -> None:
        self._untrack(key)
        self._items[key] = _Item(self._expires(token), digest)
        self._hash ^= digest

    def _untrack(self, key: str) -> None:
        item = self._items.pop(key, None)
        if item is not None:
            self._hash ^= item.hash

    def _used(self, key: str) -> None:
        item = self._items.pop(key, None)
        if item is None:
            return
        if self._ttl:
            item.expires = unix_time() + self._ttl
        self._items[key] = item

    def _expires(self, token: str) -> float:
        if self._ttl:
            return unix_time() + self._ttl
        try:
            return decode_generic(token).exp or inf
        except JWTError:
            return inf

    def _make_room(self) -> None:
        if not self._evict:
            raise ResolverError("jwt store is full")
        key = next(iter(self._items))
        try:
            self._path(key).unlink()
        except OSError as exc:
            raise ResolverError(os_error(exc)) from None
        self._untrack(key)

    def _decode(self, path: Path) -> GenericClaims | None:
        try:
            return decode_generic(_read(path) or "")
        except JWTError:
            return None


def _digest(token: str) -> int:
    return int.from_bytes(hashlib.sha256(token.encode()).digest(), "big")


def _read(path: Path) -> str | None:
    """Return the contents of a file; None if it is missing or cannot be read."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return None


def _write(path: Path, token: str) -> None:
    """Replace a file by a rename: readers see the old or the new one, never a part."""
    scratch = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(token)
        scratch.replace(path)
    except OSError as exc:
        raise ResolverError(f"{path}: {os_error(exc)}") from None
