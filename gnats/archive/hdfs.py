"""Archives in HDFS, through hdfs-native, which needs neither Java nor Hadoop.

hdfs-native reads the cluster's configuration from HADOOP_CONF_DIR, and the user from HADOOP_USER_NAME."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

import pyarrow.fs as pafs
from hdfs_native.fsspec import HdfsFileSystem, ViewfsFileSystem

from gnats.archive.errors import ArchiveError
from gnats.archive.storage import FILE_ERRORS, Storage, beside_of, first_line, shown

_ONE_SERVER = {"dfs.client.failover.max.attempts": "3"}
"""Settings for a cluster without a configuration. It has one name node: more attempts only take minutes."""


class _Timed:
    """Adds the time of modification (seconds since 1970) under the name that pyarrow reads."""

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        return _timed(super().info(path, **options))  # type: ignore[misc]

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        found = super().ls(path, detail, **options)  # type: ignore[misc]
        return [_timed(each) for each in found] if detail else found


def _timed(about: dict[str, Any]) -> dict[str, Any]:
    return about | {"mtime": about["modification_time"] / 1000}


class _Hdfs(_Timed, HdfsFileSystem):
    pass


class _Viewfs(_Timed, ViewfsFileSystem):
    pass


class HdfsStorage(Storage):
    """A directory in HDFS. A rename to an existing name fails, so the first job to rename makes the file.

    A closed file is with the datanodes; `dfs.datanode.synconclose` decides whether it is on their disks.
    """

    faults = (*FILE_ERRORS, RuntimeError)

    def __init__(self, hdfs: _Hdfs | _Viewfs, root: str, url: str) -> None:
        super().__init__(pafs.PyFileSystem(pafs.FSSpecHandler(hdfs)), root, url)
        self._hdfs = hdfs

    @classmethod
    def at(cls, url: str) -> HdfsStorage:
        """Open the directory of an hdfs: URL. Raises ArchiveError."""
        split = urlsplit(url)
        if split.query or split.username:
            raise ArchiveError(
                f"{shown(url)}: a user and options are not in the URL of HDFS, but in HADOOP_USER_NAME and "
                "HADOOP_CONF_DIR"
            )
        kind = _Viewfs if split.scheme == "viewfs" else _Hdfs
        root = split.path.rstrip("/") or "/"
        options = {} if "HADOOP_CONF_DIR" in os.environ else _ONE_SERVER
        try:
            files = kind(split.hostname, split.port, skip_instance_cache=True, **options)
            files.exists(root)  # type: ignore[no-untyped-call]
        except cls.faults as exc:
            raise ArchiveError(f"{shown(url)} cannot be used: {first_line(exc)}") from None
        return cls(files, root, url)

    def move(self, source: str, to: str) -> None:
        with self.errors("written", to):
            self.make_parent(to)
            try:
                self._hdfs.mv(self.full(source), self.full(to), overwrite=True)
            except FileNotFoundError:
                if not self.exists(to):
                    raise ArchiveError(f"{shown(self.url)}/{source} is missing") from None

    def create(self, path: str, data: bytes) -> bool:
        beside = beside_of(path)
        with self.open_output(beside) as stream:
            stream.write(data)
        with self.errors("written", path):
            try:
                self._hdfs.mv(self.full(beside), self.full(path))
            except FileExistsError:
                self.delete(beside)
                return False
        return True
