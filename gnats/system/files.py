"""Files and directories that are on the disk when the call returns, and that only the server may read."""

import os
from pathlib import Path

_FILE_MODE, _DIRECTORY_MODE = 0o600, 0o700


def make_directories(directory: Path, *, sync: bool = True) -> None:
    """Make a directory and those above it that are missing; durable with `sync`. Raises OSError."""
    if directory.is_dir():
        return
    make_directories(directory.parent, sync=sync)
    directory.mkdir(_DIRECTORY_MODE, exist_ok=True)
    if sync:
        sync_path(directory.parent)


def remove_empty(*directories: Path) -> None:
    """Remove directories one after the other, up to the first that is not there or has something in it."""
    for directory in directories:
        try:
            directory.rmdir()
        except OSError:
            return


def sync_path(path: Path) -> None:
    """Make durable a file, or what has been renamed in a directory. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write a file so that there is the old one or the new one; durable with `sync`. Raises OSError."""
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
