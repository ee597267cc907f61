"""Paths as the system takes them."""

import errno
import os


def system_path(path: str | os.PathLike[str]) -> str:
    """The path as text.

    Raises OSError, as the system would, for one that no file can have: Python raises ValueError, which
    callers that expect a failing system call do not expect.
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
