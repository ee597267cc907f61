"""Comparing secrets: plain ones in constant time, bcrypt hashes with the bcrypt package."""

import asyncio
import re
from _operator import _compare_digest as compare_digest  # hmac's own, without loading OpenSSL

_BCRYPT = re.compile(r"\$2[abxy]\$\d\d\$")
_LONGEST = 72
"""Bytes of a password that bcrypt looks at; longer ones do not match."""


def is_bcrypt(stored: str) -> bool:
    """Whether a configured secret is a bcrypt hash."""
    return _BCRYPT.match(stored) is not None


def check_password(stored: str, given: str) -> bool:
    """Whether a client's secret is the configured one, plain or hashed.

    The time for a plain one does not depend on where they differ; hashes: see check_password_later.
    """
    client = given.encode("utf-8", "surrogateescape")
    if not is_bcrypt(stored):
        return compare_digest(stored.encode("utf-8", "surrogateescape"), client)
    import bcrypt

    if len(client) > _LONGEST or b"\0" in client:
        return False
    try:
        return bcrypt.checkpw(client, stored.encode("utf-8", "surrogateescape"))
    except ValueError:  # what looked like a hash is none
        return False


async def check_password_later(stored: str, given: str) -> bool:
    """check_password() in a thread, for hashes: the loop goes on meanwhile."""
    return await asyncio.to_thread(check_password, stored, given)
