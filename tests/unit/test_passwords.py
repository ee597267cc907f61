"""Passwords in the clear and as bcrypt hashes."""

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.passwords import check_password, check_password_async, is_bcrypt

pytestmark = pytest.mark.timeout(60)

HASH = bcrypt.hashpw(b"s3cret", bcrypt.gensalt(4)).decode()


@given(st.text(), st.text())
def test_plain_passwords_are_compared(stored: str, given: str) -> None:
    if not is_bcrypt(stored):
        assert check_password(stored, given.encode("utf-8", "replace").decode()) == (stored == given)
        assert check_password(stored, stored)


@pytest.mark.parametrize("kind", ["a", "b", "y", "x"])
def test_hashes_of_all_kinds_are_known(kind: str) -> None:
    stored = f"$2{kind}${HASH[4:]}"
    assert is_bcrypt(stored)
    assert check_password(stored, "s3cret")
    assert not check_password(stored, "secret")
    assert not check_password(stored, stored)


@pytest.mark.parametrize("stored", ["", "$2a$", "$2c$04$abc", "$2a$4$abc", "x$2a$04$abc", "$1$abc"])
def test_what_is_not_a_hash_is_a_password(stored: str) -> None:
    assert not is_bcrypt(stored)
    assert check_password(stored, stored)


def test_a_broken_hash_matches_nothing() -> None:
    for stored in ("$2a$04$short", "$2a$99$" + HASH[7:], "$2a$04$"):
        assert not check_password(stored, "s3cret")
        assert not check_password(stored, stored)


def test_only_72_bytes_of_a_password_count() -> None:
    stored = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()
    assert check_password(stored, "x" * 80)
    assert not check_password(stored, "x" * 71)


async def test_the_loop_can_wait_for_it() -> None:
    assert await check_password_async(HASH, "s3cret")
    assert not await check_password_async(HASH, "secret")
    assert await check_password_async("plain", "plain")
    assert not await check_password_async("plain", "other")
