"""Passwords and tokens: what is configured against what is given, in the clear or as a bcrypt hash.

A bcrypt comparison takes as long as its cost says, seconds for a high one: in an event loop use
check_password_async, which compares in a thread.
"""

import asyncio
import re
from _operator import _compare_digest as compare_digest  # hmac's own, without loading OpenSSL

_BCRYPT = re.compile(r"\$2[abxy]\$\d\d\$")
_BCRYPT_BYTES = 72
"""Of a longer password bcrypt sees no more."""


def is_bcrypt(stored: str) -> bool:
    """Is a configured password a bcrypt hash?"""
    return _BCRYPT.match(stored) is not None


def check_password(stored: str, given: str) -> bool:
    """Is `given` the password that `stored` is, or is the hash of?

    The time that it takes does not depend on where the two differ. A hash that bcrypt cannot read matches
    nothing.
    """
    if is_bcrypt(stored):
        return _check_bcrypt(stored, given)
    return compare_digest(_bytes(stored), _bytes(given))


async def check_password_async(stored: str, given: str) -> bool:
    """As check_password; a bcrypt hash is compared in a thread."""
    if is_bcrypt(stored):
        return await asyncio.to_thread(_check_bcrypt, stored, given)
    return check_password(stored, given)


def _check_bcrypt(stored: str, given: str) -> bool:
    import bcrypt

    try:
        return bcrypt.checkpw(_bytes(given)[:_BCRYPT_BYTES], _bytes(stored))
    except ValueError:  # not a hash after all
        return False


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
