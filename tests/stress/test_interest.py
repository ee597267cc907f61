"""Links to other servers hear of interest, and look accounts up, while threads change both."""

from __future__ import annotations

import random
import threading
from functools import partial

import pytest
from support.links import WANT_LOCAL, WANT_NUMBERS, WANT_REMOTE, Link, interest
from support.process import SANITIZED
from support.stress import SCALE, together

from gnats.core.accounts.account import Account
from gnats.core.accounts.registry import AccountProbe, AccountRegistry, find_account
from gnats.core.runtime import quiesce
from gnats.core.runtime.kinds import CLIENT, LEAF, ROUTER
from gnats.core.subjects.sublist import Handle, Sublist

pytestmark = pytest.mark.timeout(300 * SCALE)
STEPS = (2_000 if SANITIZED else 20_000) * SCALE


@pytest.mark.parametrize("limit", [1 << 40, 3000], ids=["unlimited", "limited"])
@pytest.mark.parametrize("wanted", [WANT_LOCAL, WANT_LOCAL | WANT_REMOTE | WANT_NUMBERS])
def test_a_link_knows_the_interest_that_threads_have_made(wanted: int, limit: int) -> None:
    sublists = [Sublist() for _ in range(3)]
    held: list[list[tuple[Handle, int, int]]] = [[] for _ in sublists]
    links = [Link(sublists, wanted, limit) for _ in range(2)]
    done = threading.Event()

    def churn(number: int, seed: int) -> None:
        rng = random.Random(seed)
        mine: list[tuple[Handle, int, int]] = []
        for n in range(STEPS):
            subject = rng.choice([b"a", b"a.*", b"b.%d" % rng.randrange(50), b"i.%d.%d" % (seed, n)])
            kind, weight = rng.choice([CLIENT, ROUTER, LEAF]), rng.randrange(4)
            sub = sublists[number].subscribe(subject, rng.choice([b"", b"g"]), b"1", kind, weight)
            mine.append((sub, kind, weight))
            if len(mine) > 40:
                sublists[number].unsubscribe_all([each[0] for each in mine[:20]])
                del mine[:20]
            if n % 7 == 0:
                handle, kind, _ = mine.pop()
                sublists[number].update_weight(handle, n % 5)
                mine.append((handle, kind, n % 5))
        held[number] += mine

    def listen(link: Link) -> None:
        while not done.is_set():
            if link.take(100) == 0 or link.lost:
                link.follow()

    def work() -> None:
        try:
            together(*(partial(churn, number, 2 * number + i) for number in range(3) for i in range(2)))
        finally:
            done.set()

    together(work, *(partial(listen, link) for link in links))
    for link in links:
        link.settle(2)
        if limit == 1 << 40:
            assert not link.lost
        assert link.lost or link.told == interest(held, wanted)
    for sublist, subs in zip(sublists, held, strict=True):
        assert sublist.count() == len(subs)


def test_accounts_come_and_go_under_readers() -> None:
    registry = AccountRegistry()
    steady = {b"steady.%d" % n: Account() for n in range(20)}
    for name, account in steady.items():
        registry.add(name, account)
    done = threading.Event()
    problems: list[object] = []
    old: list[tuple[int, Account]] = []  # outlives the readers, as an account must

    def read(seed: int) -> None:
        rng = random.Random(seed)
        while not done.is_set():
            name = rng.choice(list(steady))
            if find_account(registry, name, 50) is not steady[name]:
                problems.append(name)
            find_account(registry, b"passing.%d" % rng.randrange(300), 50)

    def listen() -> None:
        while not done.is_set():
            probe = AccountProbe(registry)
            there = [account for came, account in probe.changes[: len(steady)] if came]
            probe.close()
            present: list[Account] = []
            for came, account in probe.changes:
                if came:
                    present.append(account)
                else:
                    present.remove(account)
            if len(there) < len(steady) or not {id(a) for a in steady.values()} <= {id(a) for a in present}:
                problems.append(probe.changes)

    def change() -> None:
        try:
            for n in range(STEPS // 4):
                name = b"passing.%d" % (n % 300)
                if name in registry.accounts:
                    old.append((quiesce.advance(), registry.accounts[name]))
                    registry.remove(name)
                    old[-1] = quiesce.advance(), old[-1][1]
                else:
                    registry.add(name, Account())
                while old and quiesce.passed(old[0][0]):
                    del old[0]
        finally:
            done.set()

    together(change, listen, *(partial(read, seed) for seed in range(3)))
    assert problems == []
    for name in list(registry.accounts):
        registry.remove(name)
    assert find_account(registry, b"steady.1") is None
