"""Subscriptions of one connection in several accounts, as a route makes them."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from gnats.core.accounts.account import Account
from gnats.core.accounts.subscriptions import subscribe_in, unsubscribe_sid
from gnats.core.internal import InternalSubscriber
from gnats.core.poller import Poller
from gnats.core.runtime.inbox import Inbox
from gnats.core.runtime.kinds import SYSTEM
from gnats.core.runtime.state import ServerState

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def accounts() -> list[Account]:
    return [Account(), Account(), Account()]


@pytest.fixture
def connection(accounts: list[Account]) -> Iterator[InternalSubscriber]:
    """A connection that is bound to the first account."""
    state = ServerState()
    made = InternalSubscriber(SYSTEM, -1, 1, Poller(0, Inbox(), state), state)
    made.register(accounts[0])
    yield made


def sids(account: Account, subject: bytes) -> list[bytes]:
    plain, groups = account.sublist.lookup(subject)
    return sorted(plain + [sid for group in groups for sid in group])


def test_each_is_in_its_own_account(connection: InternalSubscriber, accounts: list[Account]) -> None:
    for number, account in enumerate(accounts):
        subscribe_in(connection, account, b"a.*", b"", b"plain %d" % number)
        subscribe_in(connection, account, b"a.b", b"g", b"group %d" % number)
    for number, account in enumerate(accounts):
        assert sids(account, b"a.b") == [b"group %d" % number, b"plain %d" % number]
    assert len(connection.subscriptions()) == 6
    assert unsubscribe_sid(connection, b"plain 1") is accounts[1]
    assert [account.sublist.count() for account in accounts] == [2, 1, 2]
    assert unsubscribe_sid(connection, b"group 0") is accounts[0]
    assert [account.sublist.count() for account in accounts] == [1, 1, 2]


def test_all_go_with_the_connection(accounts: list[Account]) -> None:
    state = ServerState()
    connection = InternalSubscriber(SYSTEM, -1, 1, Poller(0, Inbox(), state), state)
    for n in range(1000):
        subscribe_in(connection, accounts[n % 3 if n < 500 else 1], b"a.%d" % n, b"", b"%d" % n)
    assert sum(account.sublist.count() for account in accounts) == 1000
    del connection
    gc.collect()
    assert [account.sublist.count() for account in accounts] == [0, 0, 0]


def test_an_invalid_subject_changes_nothing(connection: InternalSubscriber, accounts: list[Account]) -> None:
    for account in accounts:
        with pytest.raises(ValueError, match="invalid subject"):
            subscribe_in(connection, account, b"a..b", b"", b"1")
    assert connection.subscriptions() == []
