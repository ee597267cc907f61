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
