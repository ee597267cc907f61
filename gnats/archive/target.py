"""The target of an archive, by its URL."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.fs as pafs

from gnats.archive.errors import ArchiveError
from gnats.archive.storage import FILE_ERRORS, LocalStorage, S3Storage, Storage, first_line, shown


@dataclass(frozen=True)
class Target:
    """The URL of an archive, as plain data for tasks in other processes."""

    url: str

    def open(self) -> Storage:
        """Open the storage. Raises ArchiveError for an invalid or unsupported URL, or a missing driver."""
        url = self.url
        try:
            split = urlsplit(url)
        except ValueError as exc:
            raise ArchiveError(f"{shown(url)!r} is no target: {exc}") from None
        if split.scheme in ("", "file"):
            named = split.path if split.scheme else url
            if not named or (split.scheme and split.netloc):
                raise ArchiveError(
                    f"{shown(url)!r} is no target: it does not name a directory of this machine"
                )
            path = Path(named).absolute()
            return LocalStorage(pafs.LocalFileSystem(), str(path), str(path))
        if split.scheme in ("hdfs", "viewfs"):
            try:
                from gnats.archive.hdfs import HdfsStorage
            except ImportError:
                raise ArchiveError("hdfs-native is needed for HDFS: pip install gnats[hdfs]") from None
            return HdfsStorage.at(url)
        if split.scheme != "s3":
            raise ArchiveError(
                f"{split.scheme}:// is not supported as a target; known: a directory, s3, hdfs"
            )
        try:
            files, path = pafs.FileSystem.from_uri(url)
        except FILE_ERRORS as exc:
            why = first_line(exc).replace(url, shown(url))
            raise ArchiveError(f"{shown(url)} cannot be used: {why}") from None
        if not path:
            raise ArchiveError(f"{shown(url)} is no target: it does not name a bucket")
        return S3Storage(files, path.rstrip("/"), url)
