"""Interest in accounts that do not exist here is kept, up to a limit for each connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dataplane import DataPlane, Peer

from gnats.connection.log_lines import LogCode
from gnats.core.accounts.account import Account
from gnats.core.accounts.registry import AccountRegistry
from gnats.core.links.kept_interest import KeptTable
from gnats.core.runtime.inbox import EV_LOG

pytestmark = pytest.mark.timeout(120)

MOST = 64 << 20
LONG = b"x" * 3900
"""A subject that fills the limit with few lines."""
WRONG = b'INFO {"digest":"0123456789abcdef"}\r\n'


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 20)), max_size=200))
def test_bytes_are_those_of_what_is_kept(steps: list[tuple[bool, int, int]]) -> None:
    table, fresh, kept = KeptTable(), KeptTable(), set()
    for adds, account, number in steps:
        key = b"A%d" % account, b"R A%d %b" % (account, b"x" * number)
        if key in kept:
            assert table.drop(*key)
            kept.discard(key)
        elif adds:
            assert table.add(*key)
            kept.add(key)
        else:
            assert not table.drop(*key)
    for key in sorted(kept):
        fresh.add(*key)
    assert (len(table), table.nbytes) == (len(fresh), fresh.nbytes)


def test_what_is_full_takes_no_more_until_something_goes() -> None:
    table, count = KeptTable(), 0
    while table.add(b"NONE", b"%d %b" % (count, LONG)):
        count += 1
    assert MOST <= table.nbytes < MOST + 2 * len(LONG)
    assert count * len(LONG) > 0.9 * MOST
    assert not table.add(b"OTHER", b"x")
    assert table.drop(b"NONE", b"7 %b" % LONG)
    assert table.add(b"OTHER", b"x")
    registry = AccountRegistry()
    registry.add(b"NONE", Account())
    assert table.take_new(registry) == count - 1
    assert (len(table), table.drop(b"OTHER", b"x"), table.nbytes) == (1, True, 0)


@pytest.mark.parametrize("count", [1, 100, 5000])
def test_all_accounts_that_have_come_are_taken(count: int) -> None:
    """The table shrinks on the way."""
    table, registry = KeptTable(), AccountRegistry()
    for number in range(count):
        assert table.add(b"A%d" % number, b"x")
        if number % 10:
            registry.add(b"A%d" % number, Account())
    there = sum(1 for number in range(count) if number % 10)
    assert table.take_new(registry) == there
    assert len(table) == count - there


def route(plane: DataPlane) -> Peer:
    return plane.route(digests=True)


def gateway(plane: DataPlane) -> Peer:
    return plane.outbound(digests=True)


@pytest.fixture
def plane() -> Iterator[DataPlane]:
    with DataPlane() as made:
        yield made


@pytest.mark.parametrize("link", [route, gateway])
def test_a_connection_drops_what_is_too_much(plane: DataPlane, link: Callable[[DataPlane], Peer]) -> None:
    """It says so once, and then compares no more; what it has kept is good when the account comes."""
    peer = link(plane)
    logged = []
    told = 0
    while told * len(LONG) < MOST:
        peer.say(b"".join(b"RS+ NONE %d.%b\r\n" % (told + n, LONG) for n in range(20)))
        told += 20
        logged += [event[2] for event in plane.take(EV_LOG)]
    assert logged.count(LogCode.LOG_KEPT_FULL) == 1
    assert peer.say(WRONG * 3) == b""
    kept = plane.account("NONE").sublist.count() or plane.run() or len(peer.session.subscriptions())
    assert 0.9 * told < kept < told
    assert peer.say(b"RS+ NONE more\r\n" + WRONG * 3) == b""
    assert len(peer.session.subscriptions()) == kept + 1
    other = link(plane)
    other.say(b"RS+ LATER foo\r\n" + WRONG)
    assert other.say(WRONG) == b'INFO {"digest":"differs"}\r\n'
