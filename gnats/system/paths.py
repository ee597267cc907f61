"""Paths for system calls, and the pid file."""

import errno
import os


def system_path(path: str | os.PathLike[str]) -> str:
    """Return the path as text.

    Raises OSError for a path that no file can have, as a system call would. Python would raise ValueError,
    for which callers are not prepared.
    """
    text = os.fspath(path)
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        bad = True
    else:
        bad = "\0" in text
    if bad:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), text)
    return text


def write_pid_file(path: str) -> None:
    """Write this process's id. Raises OSError."""
    fd = os.open(system_path(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, b"%d" % os.getpid())
    finally:
        os.close(fd)
