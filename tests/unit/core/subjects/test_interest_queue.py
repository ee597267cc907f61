"""The queue of changes of interest that wait for a link to another server."""

from __future__ import annotations

import os
import random
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
GROUP_NAMES = [b"", b"", b"g", b"ab"]


@pytest.fixture
def sublist() -> Sublist:
    return Sublist()


@pytest.fixture
def queue(sublist: Sublist) -> QueueProbe:
    """A queue of a link that hears of local interest, as a route does."""
    return following(sublist, WANT_LOCAL)


def following(sublist: Sublist, wanted: int, limit: int = 1 << 40) -> QueueProbe:
    """Return a queue that has walked through all that is there."""
    probe = QueueProbe([sublist], wanted, limit)
    probe.follow(0)
    assert probe.walk(0)[:2] == (True, False)
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
    queue = following(sublist, WANT_REMOTE)
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
    queue = following(sublist, WANT_LOCAL, 2000)
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
    assert queue.take() == (False, [])
    one = 1, 0, 0
    everything = [(n, b"a", group, NOTHING, one) for n in (0, 1) for group in (b"", b"g")]
    done, incomplete, changes = queue.walk(1)
    assert (done, incomplete, sorted(changes)) == (True, False, everything[2:])
    done, incomplete, changes = queue.walk(0)
    assert (done, incomplete, sorted(changes)) == (True, False, everything[:2])
    held.pop(0)
    held.pop()
    queue.leave(0)
    assert queue.take() == (False, [(1, b"a", b"g", one, NOTHING)])
    held.clear()
    assert queue.take() == (False, [(1, b"a", b"", one, NOTHING)])


def test_a_walk_tells_of_what_changes_before_it_comes_there_once(sublist: Sublist) -> None:
    held = [sublist.subscribe(b"%d" % n) for n in range(500)]
    queue = QueueProbe([sublist], WANT_LOCAL)
    queue.follow(0)
    known = [subject for _, subject, *_ in queue.walk(0, 300)[2]]
    assert 0 < len(known) < 500
    unknown = [each for each in held if each.subject not in known]
    for each in unknown[:100]:
        sublist.unsubscribe(each)
    more = [sublist.subscribe(each.subject) for each in unknown[100:]]
    assert queue.take() == (False, [])
    sublist.unsubscribe(next(each for each in held if each.subject == known[0]))
    done, incomplete, changes = queue.walk(0)
    assert done and not incomplete
    assert changes[0] == (0, known[0], b"", (1, 0, 0), NOTHING)
    assert sorted(subject for _, subject, *_ in changes[1:]) == sorted(each.subject for each in more)
    assert {(before, now) for *_, before, now in changes[1:]} == {(NOTHING, (1, 0, 0))}


def test_wildcards_and_groups_are_walked_with_the_rest(sublist: Sublist) -> None:
    subjects = [b">", b"*", b"*.*", b"*.*.a", b"a.>", b"a.*.b", b"a.*.*.>", b"a.b"]
    held = [sublist.subscribe(subject, group) for subject in subjects for group in (b"", b"g", b"h")]
    queue = QueueProbe([sublist], WANT_LOCAL)
    queue.follow(0)
    found: list[tuple[bytes, bytes]] = []
    done = False
    while not done:
        done, _, changes = queue.walk(0, 1)
        found += [(subject, group) for _, subject, group, *_ in changes]
    assert sorted(found) == sorted((each.subject, each.queue) for each in held)


@pytest.mark.parametrize("seed", range(12))
def test_a_walk_meets_each_subject_once_while_the_table_grows_and_shrinks(seed: int) -> None:
    """Link.take() requires that what is told as new was not known."""
    rng = random.Random(seed)
    sublist = Sublist()
    held: list[tuple[Handle, int, int]] = []
    link = Link([sublist], WANT_LOCAL | WANT_REMOTE)

    def subscribe() -> None:
        form = rng.choice([b"a.%d", b"a.%d.b.c", b"%d.*", b"b.*.%d", b"c.%d.>", b"*.%d"])
        subject = form % rng.randrange(3000)
        kind, weight = rng.choice([CLIENT, ROUTER, LEAF]), rng.randrange(4)
        held.append((sublist.subscribe(subject, rng.choice(GROUP_NAMES), b"1", kind, weight), kind, weight))

    for _ in range(3):
        for _ in range(rng.randrange(5000)):
            subscribe()
        link.follow()
        while link.unwalked:
            target = rng.choice((0, 50, 500, 5000))
            for _ in range(rng.randrange(600)):
                if len(held) < target:
                    subscribe()
                elif held:
                    at = rng.randrange(len(held))
                    held[at], held[-1] = held[-1], held[at]
                    sublist.unsubscribe(held.pop()[0])
            link.take(rng.choice((1, 10, 100, 1000)))
        link.settle(1)
        assert link.told == interest([held], WANT_LOCAL | WANT_REMOTE)


SUBJECTS = st.sampled_from([b"a", b"a.b", b"a.*", b">", b"*"])
GROUPS = st.sampled_from(GROUP_NAMES)
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
    assert int(found.stdout) >= 3  # a change of a slice, one that waits, and the table's buckets
