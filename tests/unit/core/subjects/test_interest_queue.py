"""The queue of changes of interest that wait for a link to another server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.failing_server import build
from support.links import NOTHING, WANT_LOCAL, WANT_NUMBERS, WANT_REMOTE, Link, interest, sizes
from support.process import SANITIZED

from gnats.core.runtime.kinds import CLIENT, GATEWAY, LEAF, ROUTER
from gnats.core.subjects.interest_queue import QueueProbe
from gnats.core.subjects.sublist import Handle, Sublist

pytestmark = pytest.mark.timeout(120)

TESTS = Path(__file__).parents[3]
ALL = WANT_LOCAL | WANT_REMOTE | WANT_NUMBERS


@pytest.fixture
def sublist() -> Sublist:
    return Sublist()


@pytest.fixture
def queue(sublist: Sublist) -> QueueProbe:
    """A queue of a link that hears of local interest, as a route does."""
    probe = QueueProbe([sublist], WANT_LOCAL)
    probe.follow(0)
    return probe


def told(queue: QueueProbe) -> list[tuple[bytes, bytes, int]]:
    """Take all changes: subject, queue group and local interest now."""
    incomplete, changes = queue.take()
    assert not incomplete
    return [(subject, group, now[0]) for _, subject, group, _, now in changes]


def test_changes_come_in_the_order_of_their_subjects_first_change(
    sublist: Sublist, queue: QueueProbe
) -> None:
    first = sublist.subscribe(b"a", b"g")
    second = [sublist.subscribe(b"b"), sublist.subscribe(b"a", b"g"), sublist.subscribe(b"b")]
    assert told(queue) == [(b"a", b"g", 2), (b"b", b"", 1)]
    del first
    second.clear()
    assert told(queue) == [(b"a", b"g", 0), (b"b", b"", 0)]
    assert told(queue) == []


def test_only_the_first_and_the_last_subscription_of_a_subject_count(
    sublist: Sublist, queue: QueueProbe
) -> None:
    held = [sublist.subscribe(b"a")]
    assert told(queue) == [(b"a", b"", 1)]
    held.append(sublist.subscribe(b"a"))
    held.pop()
    held.append(sublist.subscribe(b"a", kind=ROUTER))
    assert told(queue) == []
    held.clear()
    assert told(queue) == [(b"a", b"", 0)]


def test_a_change_that_is_undone_leaves_nothing(sublist: Sublist, queue: QueueProbe) -> None:
    for n in range(1000):
        sublist.subscribe(b"_INBOX.%d" % n, b"g" * (n % 3))
    assert queue.bytes == 0
    assert told(queue) == []
    kept = sublist.subscribe(b"a", b"g")
    assert told(queue) == [(b"a", b"g", 1)]
    sublist.subscribe(b"a", b"g")
    assert told(queue) == []
    assert kept.subject == b"a"


def test_the_weight_of_a_link_counts(sublist: Sublist) -> None:
    queue = QueueProbe([sublist], WANT_REMOTE)
    queue.follow(0)
    local = sublist.subscribe(b"a", b"g", b"0")
    leaf = sublist.subscribe(b"a", b"g", b"1", LEAF, 3)
    route = sublist.subscribe(b"a", b"g", b"2", ROUTER, 50)
    assert [now for *_, now in queue.take()[1]] == [(0, 53, 0)]
    sublist.update_weight(route, 51)
    sublist.update_weight(leaf, 7)
    assert [now for *_, now in queue.take()[1]] == [(0, 58, 0)]
    assert local.subject == b"a"


def test_the_link_is_woken_once(sublist: Sublist, queue: QueueProbe) -> None:
    held = [sublist.subscribe(b"%d" % n) for n in range(10)]
    assert queue.wakes == 1
    queue.take(9)
    held.append(sublist.subscribe(b"more"))
    assert queue.wakes == 1
    queue.take()
    held.clear()
    assert queue.wakes == 2


def test_some_changes_at_a_time(sublist: Sublist, queue: QueueProbe) -> None:
    held = [sublist.subscribe(b"%d" % n) for n in range(100)]
    found = []
    while taken := queue.take(7)[1]:
        found += [int(subject) for _, subject, *_ in taken]
    assert found == list(range(100))
    assert queue.bytes == 0
    held.clear()


def test_a_queue_over_its_limit_is_incomplete_until_that_is_told(sublist: Sublist) -> None:
    queue = QueueProbe([sublist], WANT_LOCAL, 2000)
    queue.follow(0)
    held = [sublist.subscribe(b"%d" % n) for n in range(100)]
    assert queue.bytes == 0
    assert queue.wakes == 1
    assert queue.take() == (True, [])
    held.append(sublist.subscribe(b"more"))
    assert queue.wakes == 2
    assert told(queue) == [(b"more", b"", 1)]


def test_what_is_there_comes_first_and_an_account_left_is_forgotten() -> None:
    sublists = [Sublist(), Sublist()]
    held = [sublist.subscribe(b"a", group) for sublist in sublists for group in (b"", b"g")]
    queue = QueueProbe(sublists, ALL)
    queue.follow(0)
    queue.follow(1)
    one = 1, 0, 0
    everything = [(n, b"a", group, NOTHING, one) for n in (0, 1) for group in (b"", b"g")]
    incomplete, changes = queue.take(1)
    assert changes[0] in everything
    queue.leave(0)
    incomplete, more = queue.take()
    assert not incomplete
    assert sorted(more) == everything[2:]
    held.pop(0)
    assert queue.take() == (False, [])
    held.clear()
    assert len(queue.take()[1]) == 2


SUBJECTS = st.sampled_from([b"a", b"a.b", b"a.*", b">", b"*"])
GROUPS = st.sampled_from([b"", b"", b"g", b"ab"])
KINDS = st.sampled_from([CLIENT, CLIENT, ROUTER, GATEWAY, LEAF])
STEPS = st.lists(
    st.tuples(st.integers(0, 1), SUBJECTS, GROUPS, KINDS, st.integers(0, 3), st.integers(0, 6)), max_size=80
)


@given(STEPS, st.sampled_from([WANT_LOCAL, WANT_REMOTE | WANT_LOCAL, ALL]), st.sampled_from([600, 1 << 40]))
def test_a_link_that_takes_changes_knows_the_interest(
    steps: list[tuple[int, bytes, bytes, int, int, int]], wanted: int, limit: int
) -> None:
    sublists = [Sublist(), Sublist()]
    held: list[list[tuple[Handle, int, int]]] = [[], []]
    link = Link(sublists, wanted, limit)
    limited = limit < 1 << 40
    for number, subject, group, kind, weight, what in steps:
        there = held[number]
        if what < 3:
            there.append((sublists[number].subscribe(subject, group, b"1", kind, weight), kind, weight))
        elif what == 3:
            link.take(weight)
        elif there and what < 6:
            sublists[number].unsubscribe(there.pop(weight % len(there))[0])
        elif there:
            handle, kind, _ = there.pop()
            sublists[number].update_weight(handle, weight)
            there.append((handle, kind, weight))
        assert link.queue.bytes <= (limit if limited else sizes(link.told) + sizes(interest(held, ALL)))
    link.settle(most_rounds=3 if limited else 1)
    if not link.lost:
        assert link.told == interest(held, wanted)
    else:
        assert limited


@pytest.mark.skipif(bool(SANITIZED), reason="loads an allocator of its own in front of all others")
def test_failed_allocations_are_reported(tmp_path: Path) -> None:
    """Each allocation fails once; the link hears of it and begins anew."""
    for tool in ("gcc",):
        if not shutil.which(tool):
            pytest.skip(f"no {tool}")
    failing = build(tmp_path, depth=2)
    found = subprocess.run(
        [sys.executable, "-P", "-m", "support.links"],
        env=os.environ
        | failing.variables
        | {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) >= 2  # the change itself, and the table's buckets
