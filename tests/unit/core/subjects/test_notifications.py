"""Interest: calls to sinks when subscriptions come and go; notifications of the first and the last one."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.core.subjects.notifications import NotificationList, SinkProbe
from gnats.core.subjects.sublist import Handle, Sublist

pytestmark = pytest.mark.timeout(120)

ROUTER = 1  # a kind of connection


@pytest.fixture
def sublist() -> Sublist:
    return Sublist()


def fill(sublist: Sublist, *subjects: str, queue: str = "") -> list[Handle]:
    """Subscribe to each subject; return the handles."""
    return [sublist.subscribe(subject.encode(), queue.encode(), b"1") for subject in subjects]


@pytest.mark.parametrize("queue", ["", "workers"])
def test_first_and_last_subscriptions_are_told(sublist: Sublist, queue: str) -> None:
    log = NotificationList(sublist).register(b"a.b", queue.encode())
    assert (log.interest, log.changes) == (False, 0)
    first = fill(sublist, "a.b", queue=queue)
    second = sublist.subscribe(b"a.b", queue.encode(), b"2")
    assert (log.interest, log.changes) == (True, 1)
    first.clear()
    assert (log.interest, log.changes) == (True, 1)
    del second
    assert (log.interest, log.changes) == (False, 2)


def test_other_subjects_wildcards_and_groups_are_not(sublist: Sublist) -> None:
    log = NotificationList(sublist).register(b"a.b")
    others = fill(sublist, "a", "a.b.c", "a.*", ">", "b.a") + fill(sublist, "a.b", queue="g")
    assert (log.interest, log.changes) == (False, 0)
    others.clear()
    assert log.changes == 0


def test_a_watch_knows_what_was_there_before(sublist: Sublist) -> None:
    kept = fill(sublist, "a.b")
    watches = NotificationList(sublist)
    assert watches.register(b"a.b").interest
    assert not watches.register(b"a.b", b"g").interest
    assert not watches.register(b"a").interest
    assert kept


def test_many_watches(sublist: Sublist) -> None:
    watches = NotificationList(sublist)
    logs = {f"s.{n}": watches.register(f"s.{n}".encode()) for n in range(200)}
    twice = watches.register(b"s.7")
    kept = fill(sublist, *[f"s.{n}" for n in range(0, 200, 2)], "s.7")
    assert [log.interest for log in logs.values()] == [n % 2 == 0 or n == 7 for n in range(200)]
    assert twice.interest
    for n in range(100):
        del logs[f"s.{n}"]
    kept.clear()
    assert not any(log.interest for log in logs.values())
    assert not twice.interest


SUBJECTS = st.sampled_from([b"a", b"a.b", b"a.*", b">", b"a.b.c"])
QUEUES = st.sampled_from([b"", b"g", b"h"])


@given(st.lists(st.tuples(SUBJECTS, QUEUES, st.booleans()), max_size=40))
def test_sinks_hear_of_each_change_with_the_number_that_is_left(
    steps: list[tuple[bytes, bytes, bool]],
) -> None:
    sublist = Sublist()
    probes = [SinkProbe(sublist), SinkProbe(sublist)]
    counts: Counter[tuple[bytes, bytes]] = Counter()
    held: dict[tuple[bytes, bytes], list[Handle]] = {}
    expected = []
    for subject, queue, comes in steps:
        key = subject, queue
        if comes:
            held.setdefault(key, []).append(sublist.subscribe(subject, queue, b"1"))
            counts[key] += 1
            expected.append((subject, queue, 1, counts[key]))
        elif counts[key]:
            sublist.unsubscribe(held[key].pop())
            counts[key] -= 1
            expected.append((subject, queue, -1, counts[key]))
    assert [probe.changes for probe in probes] == [expected, expected]
    probes[0].close()
    last = sublist.subscribe(b"z", b"", b"1")
    assert probes[0].changes == expected
    assert probes[1].changes == [*expected, (b"z", b"", 1, 1)]
    probes[1].close()
    assert last.subject == b"z"


def test_sinks_hear_of_weights_and_of_batches(sublist: Sublist) -> None:
    probe = SinkProbe(sublist)
    remote = sublist.subscribe(b"a", b"g", b"1", ROUTER, 2)
    sublist.update_weight(remote, 5)
    other = sublist.subscribe(b"a", b"g", b"2")
    sublist.unsubscribe_all([remote, other, other])
    sublist.update_weight(remote, 7)
    assert probe.changes == [
        (b"a", b"g", 1, 1),
        (b"a", b"g", 0, 1),
        (b"a", b"g", 1, 2),
        (b"a", b"g", -1, 1),
        (b"a", b"g", -1, 0),
    ]
    probe.close()
