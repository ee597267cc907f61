"""The accounts of a server by name, for the data plane."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.accounts.accounts import Accounts
from gnats.core.accounts.account import Account
from gnats.core.accounts.registry import AccountProbe, AccountRegistry, find_account
from gnats.options.options import Options
from gnats.options.values.accounts import AccountConfig

pytestmark = pytest.mark.timeout(120)

NAMES = st.binary(max_size=2)


@given(st.lists(st.tuples(NAMES, st.booleans()), max_size=150))
def test_it_finds_those_that_are_there(steps: list[tuple[bytes, bool]]) -> None:
    registry = AccountRegistry()
    probe = AccountProbe(registry)
    there: dict[bytes, Account] = {}
    changes = []
    for name, comes in steps:
        if comes and name not in there:
            there[name] = Account()
            registry.add(name, there[name])
            changes.append((True, there[name]))
        elif not comes and name in there:
            changes.append((False, there.pop(name)))
            registry.remove(name)
        assert find_account(registry, name) is there.get(name)
    for name, account in there.items():
        assert find_account(registry, name) is account
    assert probe.changes == changes
    probe.close()


def test_many_accounts() -> None:
    registry = AccountRegistry()
    accounts = {b"%d" % n: Account() for n in range(5000)}
    for name, account in accounts.items():
        registry.add(name, account)
    assert all(find_account(registry, name) is account for name, account in accounts.items())
    probe = AccountProbe(registry)
    assert sorted(id(account) for came, account in probe.changes if came) == sorted(
        map(id, accounts.values())
    )
    probe.close()
    for name in accounts:
        registry.remove(name)
    assert not any(find_account(registry, name) for name in accounts)
    assert len(probe.changes) == len(accounts)


def test_names_are_taken_once() -> None:
    registry = AccountRegistry()
    account = Account()
    registry.add(b"A", account)
    with pytest.raises(KeyError):
        registry.add(b"A", Account())
    assert find_account(registry, b"A") is account
    registry.remove(b"A")
    with pytest.raises(KeyError):
        registry.remove(b"A")
    assert find_account(registry, b"A") is None


async def test_it_follows_the_accounts_of_the_options() -> None:
    accounts = Accounts(Options(accounts=[AccountConfig("A"), AccountConfig("B")]))
    assert registered(accounts) == {b"A", b"B", b"$G", b"$SYS"}
    probe = AccountProbe(accounts.registry)
    probe.changes.clear()
    b = accounts["B"]
    accounts.configure(Options(accounts=[AccountConfig("A"), AccountConfig("C")]))
    assert registered(accounts) == {b"A", b"C", b"$G", b"$SYS"}
    assert probe.changes == [(False, b), (True, accounts["C"])]
    accounts.configure(Options(accounts=[AccountConfig("A"), AccountConfig("B")]))
    assert accounts["B"] is b
    assert find_account(accounts.registry, b"B") is b
    probe.close()
    accounts.close()


def registered(accounts: Accounts) -> set[bytes]:
    """The names that the data plane knows; check that it knows the same accounts as the control plane."""
    for name, account in accounts.items():
        assert find_account(accounts.registry, name.encode()) is account
    return set(accounts.registry.accounts)
