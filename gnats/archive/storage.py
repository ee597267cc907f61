"""The files of an archive: in a local directory and in an S3-compatible store (in HDFS: gnats.archive.hdfs).

The manifest needs an operation that pyarrow's file systems lack, `create`: make a file with its whole content
unless the name exists, in one atomic step. Locally, this writes and syncs another file and links it to the
name. In S3 it is a PUT with `If-None-Match: *`, sent by boto3, in HDFS a rename (gnats.archive.hdfs)."""

from __future__ import annotations

import os
import posixpath
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from gnats.archive.errors import ArchiveError
from gnats.go.text import SECOND
from gnats.system.files import sync_path

ATTEMPTS = 100
"""Attempts at an operation that other jobs disturb by the same operation."""
FILE_ERRORS = (OSError, pa.ArrowException)
"""The exceptions of pyarrow's file systems."""
TEMPORARY = ".tmp"
_USER = re.compile(r"[^/@:\[]*:(?!\d*/)[^@]*@([^/]*@)?|[^/]*@")
"""Matches the user after the scheme of a URL, with a password: the text after a colon that is not a port."""
_S3_USER = re.compile(r"[^/@:]*:[^@]*@([^/]*@)?|[^/]*@")
"""The same for URLs without ports."""


def shown(url: str) -> str:
    """Return a URL without its password and options, even if the password is not quoted as it should be."""
    scheme, found, rest = url.partition("://")
    if not found:
        return url
    rest = rest[user.end() :] if (user := (_S3_USER if scheme == "s3" else _USER).match(rest)) else rest
    return f"{scheme}://{re.split('[?#]', rest, maxsplit=1)[0]}"


def beside_of(path: str) -> str:
    """Return a unique temporary name for a file that is being written."""
    return f"{path}.{uuid.uuid4().hex}{TEMPORARY}"


def first_line(exc: BaseException) -> str:
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror.partition("\n")[0]
    return (str(exc) or type(exc).__name__).partition("\n")[0]


class Storage:
    """Files below a root; paths are relative to it, with slashes. All errors are ArchiveErrors."""

    faults: tuple[type[Exception], ...] = FILE_ERRORS
    """The exceptions of the file system."""

    def __init__(self, files: pafs.FileSystem, root: str, url: str) -> None:
        self.files = files
        self.root = root
        self.url = url

    def full(self, path: str) -> str:
        return posixpath.join(self.root, path) if path else self.root

    @contextmanager
    def errors(self, doing: str, path: str) -> Iterator[None]:
        """Convert the file system's exceptions within the context to ArchiveErrors."""
        try:
            yield
        except self.faults as exc:
            where = posixpath.join(shown(self.url), path) if path else shown(self.url)
            raise ArchiveError(f"{where} cannot be {doing}: {first_line(exc)}") from exc

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a directory, [] when it does not exist."""
        with self.errors("listed", path):
            return sorted(each.base_name for each in self._infos(path) if each.base_name)

    def tree(self, path: str) -> dict[str, float]:
        """Return the files below a directory: relative path -> time of modification, seconds since 1970."""
        with self.errors("listed", path):
            return {
                posixpath.relpath(each.path, self.full(path)): (each.mtime_ns or 0) / SECOND
                for each in self._infos(path, recursive=True)
                if each.type == pafs.FileType.File
            }

    def directories(self, path: str) -> dict[str, float]:
        """Return the directories in a directory: name -> time of modification, seconds since 1970.

        Object stores have no such time, and need none.
        """
        with self.errors("listed", path):
            return {
                each.base_name: each.mtime_ns / SECOND
                for each in self._infos(path)
                if each.type == pafs.FileType.Directory and each.mtime_ns is not None
            }

    def _infos(self, path: str, recursive: bool = False) -> list[pafs.FileInfo]:
        selector = pafs.FileSelector(self.full(path), allow_not_found=True, recursive=recursive)
        infos: list[pafs.FileInfo] = self.files.get_file_info(selector)
        return infos

    def exists(self, path: str) -> bool:
        return self.size(path) is not None

    def size(self, path: str) -> int | None:
        """Return a file's length in bytes, None when it does not exist."""
        with self.errors("read", path):
            info = self.files.get_file_info(self.full(path))
        return info.size if info.type == pafs.FileType.File else None

    def read(self, path: str) -> bytes:
        with self.errors("read", path), self.files.open_input_stream(self.full(path)) as stream:
            data: bytes = stream.read()
            return data

    def open_input(self, path: str) -> pa.NativeFile:
        with self.errors("read", path):
            return self.files.open_input_file(self.full(path))

    def open_output(self, path: str) -> IO[bytes]:
        """Open a new file for writing. It is complete for other readers after close() and sync()."""
        with self.errors("written", path):
            self.make_parent(path)
            output: IO[bytes] = self.files.open_output_stream(self.full(path))
            return output

    def make_parent(self, path: str) -> None:
        self.files.create_dir(posixpath.dirname(self.full(path)), recursive=True)

    def sync(self, path: str) -> None:
        """Wait until a closed file is durable. In object stores it always is."""

    def move(self, source: str, to: str) -> None:
        """Rename a file, unless that has been done before. Raises ArchiveError."""
        if self.exists(source):
            with self.errors("written", to):
                self.make_parent(to)
                try:
                    self.files.move(self.full(source), self.full(to))
                except self.faults:  # another job may have renamed it meanwhile
                    if self.exists(source) or not self.exists(to):
                        raise
        elif not self.exists(to):
            raise ArchiveError(f"{posixpath.join(shown(self.url), source)} is missing")

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        with self.errors("deleted", path):
            try:
                self.files.delete_file(self.full(path))
            except OSError:
                if self.exists(path):
                    raise

    def delete_tree(self, path: str) -> None:
        """Delete a directory and everything below it, if it exists."""
        with self.errors("deleted", path):
            if self.files.get_file_info(self.full(path)).type == pafs.FileType.Directory:
                self.files.delete_dir(self.full(path))

    def create(self, path: str, data: bytes) -> bool:
        """Make a file with this content in one atomic step; False when the name exists.

        The existing file may be this one: when the answer to an attempt is lost, the next attempt is refused.
        """
        raise NotImplementedError

    def check_create(self, directory: str) -> None:
        """Raise ArchiveError when create() would not be atomic here."""


class LocalStorage(Storage):
    """A local or mounted directory."""

    def sync(self, path: str) -> None:
        with self.errors("written", path):
            sync_path(Path(self.full(path)))
            self._sync_directory(path)

    def _sync_directory(self, path: str) -> None:
        """Sync the directories above a file, up to the archive's root."""
        for each in Path(self.full(path)).parents:
            sync_path(each)
            if str(each) == self.root:
                return

    def move(self, source: str, to: str) -> None:
        with self.errors("written", to):
            self.make_parent(to)
            try:
                Path(self.full(source)).replace(self.full(to))
            except FileNotFoundError:
                if not self.exists(to):
                    raise
            self._sync_directory(to)

    def create(self, path: str, data: bytes) -> bool:
        beside = beside_of(path)
        with self.errors("written", path):
            self.make_parent(path)
            with Path(self.full(beside)).open("xb") as stream:
                try:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
                    os.link(self.full(beside), self.full(path))
                except FileExistsError:
                    return False
                finally:
                    Path(self.full(beside)).unlink()
            self._sync_directory(path)
            return True


class S3Storage(Storage):
    """A bucket of S3 or a compatible store (endpoint_override=, scheme=, region= in the URL)."""

    def make_parent(self, path: str) -> None:
        pass  # S3 has no directories

    @cached_property
    def client(self) -> Any:
        """boto3's client, with the options of the URL, read as pyarrow does."""
        try:
            import boto3
        except ImportError:
            raise ArchiveError("boto3 is needed to commit to S3: pip install gnats[s3]") from None
        split = urlsplit(self.url)
        options = dict(parse_qsl(split.query))
        settings: dict[str, Any] = {"region_name": options.get("region")}
        if endpoint := options.get("endpoint_override"):
            scheme = options.get("scheme", "https")
            settings["endpoint_url"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        if split.username:
            settings["aws_access_key_id"] = split.username
            settings["aws_secret_access_key"] = split.password
        return boto3.client("s3", **settings)

    def create(self, path: str, data: bytes) -> bool:
        from botocore.exceptions import BotoCoreError, ClientError

        bucket, _, key = self.full(path).partition("/")
        where = posixpath.join(shown(self.url), path)
        for _ in range(ATTEMPTS):
            try:
                self.client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
            except ClientError as exc:
                status = exc.response["ResponseMetadata"]["HTTPStatusCode"]
                if status == 412:
                    return False
                if status == 409:  # another job is creating the file: try again to see which job was first
                    continue
                raise ArchiveError(f"{where} cannot be written: {first_line(exc)}") from None
            except BotoCoreError as exc:
                raise ArchiveError(f"{where} cannot be written: {first_line(exc)}") from None
            return True
        raise ArchiveError(f"{where} cannot be written: others are about to, each time")

    def check_create(self, directory: str) -> None:
        probe = beside_of(posixpath.join(directory, "probe"))
        taken = (self.create(probe, b"1"), self.create(probe, b"2"))
        self.delete(probe)
        if taken != (True, False):
            raise ArchiveError(
                f"{shown(self.url)} ignores If-None-Match: two jobs at once could not be told apart there"
            )
