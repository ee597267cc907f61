"""Durable changes of files and directories. New ones are readable by the server's user only."""

import os
from pathlib import Path

_FILE_MODE, _DIRECTORY_MODE = 0o600, 0o700


def make_directories(directory: Path, *, sync: bool = True) -> None:
    """Create a directory and its missing parents; durable with `sync`. Raises OSError."""
    if directory.is_dir():
        return
    make_directories(directory.parent, sync=sync)
    directory.mkdir(_DIRECTORY_MODE, exist_ok=True)
    if sync:
        sync_path(directory.parent)


def remove_empty(*directories: Path) -> None:
    """Remove directories in order; stop at the first that is missing or not empty."""
    for directory in directories:
        try:
            directory.rmdir()
        except OSError:
            return


def sync_path(path: Path) -> None:
    """Sync a file, or the entries of a directory. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write a new file and rename it to `path`. Raises OSError; the old file remains.

    With `sync`, a crash leaves the old file or the whole new one; sync_path() of the directory makes the
    rename durable.
    """
    temporary = path.with_name(path.name + ".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
