"""Passwords in clear text and as bcrypt hashes."""

import asyncio
import threading

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.auth.passwords import (
    Comparisons,
    TooManyWaitError,
    check_password,
    check_password_async,
    is_bcrypt,
)

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


class Held(Comparisons):
    """Comparisons with one thread, blocked until `release` is set; `order` lists the compared passwords."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int = 1000) -> None:
        super().__init__(1, most)
        self.release = threading.Event()
        self.order: list[str] = []

        def compare(stored: str, given: str) -> bool:
            assert self.release.wait(30)
            self.order.append(given)
            return stored == given

        monkeypatch.setattr("gnats.auth.passwords._check_bcrypt", compare)


def test_addresses_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three hundred logins from one address do not delay one from another address."""
    held = Held(monkeypatch)
    crowd = [held.submit("x", f"crowd{n}", "10.0.0.1") for n in range(300)]
    one = held.submit("one", "one", "10.0.0.2")
    held.release.set()
    assert one.result(30)
    assert not any(each.result(30) for each in crowd)
    assert held.order.index("one") <= 2
    assert [each for each in held.order if each != "one"] == [f"crowd{n}" for n in range(300)]


def test_what_nobody_waits_for_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    first = held.submit("x", "first", "a")
    gone = [held.submit("x", f"gone{n}", "a") for n in range(100)]
    last = held.submit("x", "last", "a")
    for each in gone:
        held.give_up(each, "a")
    assert len(held) <= 2
    held.release.set()
    assert not first.result(30)
    assert not last.result(30)
    assert held.order == ["first", "last"]


def test_who_asks_most_is_refused_when_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, most=10)
    crowd = [held.submit("x", "x", "a") for _ in range(12)]
    other = held.submit("y", "y", "b")
    late = [each for each in crowd if each.done()]
    assert late
    for each in late:
        with pytest.raises(TooManyWaitError):
            each.result()
    assert len(held) <= 10
    held.release.set()
    assert other.result(30)
    assert sum(each.exception(30) is None for each in crowd) == 12 - len(late)


async def test_who_is_cancelled_gives_its_place_up(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    monkeypatch.setattr("gnats.auth.passwords.comparisons", lambda: held)
    tasks = [asyncio.create_task(check_password_async(HASH, str(n), "a")) for n in range(10)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(held) == 0
    held.release.set()
