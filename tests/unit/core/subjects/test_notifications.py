"""Interest: calls to sinks when subscriptions come and go; notifications of the first and the last one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.core.accounts.account import Account
from gnats.core.routing.services import ExportedService, ImportedService
from gnats.core.runtime.kinds import CLIENT, GATEWAY, LEAF, ROUTER
from gnats.core.subjects.notifications import NotificationList, SinkProbe
from gnats.core.subjects.sublist import Handle, Sublist

pytestmark = pytest.mark.timeout(120)


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
KINDS = st.sampled_from([CLIENT, ROUTER, GATEWAY, LEAF])
STEPS = st.lists(st.tuples(SUBJECTS, QUEUES, KINDS, st.integers(0, 3), st.integers(0, 3)), max_size=60)

Key = tuple[bytes, bytes]
Counts = tuple[int, int, int]
NOTHING = 0, 0, 0


def count(held: list[tuple[Handle, int, int]], queue: bytes) -> Counts:
    """The interest of a subject and group: count every subscription, in a group with its weight."""
    local = remote = 0
    for _, kind, weight in held:
        members = max(weight, 1) if queue and kind in (ROUTER, GATEWAY, LEAF) else 1
        if kind in (ROUTER, GATEWAY, LEAF):
            remote += members
        else:
            local += members
    return local, remote, 0


@given(STEPS, st.integers(0, 60))
def test_sinks_hear_of_each_change_with_the_interest_before_and_after(
    steps: list[tuple[bytes, bytes, int, int, int]], late: int
) -> None:
    sublist = Sublist()
    probe = SinkProbe(sublist)
    held: dict[Key, list[tuple[Handle, int, int]]] = {}
    expected: list[tuple[bytes, bytes, Counts, Counts]] = []
    joined: SinkProbe | None = None
    for number, (subject, queue, kind, weight, what) in enumerate(steps):
        if number == late:
            joined = SinkProbe(sublist)
            present = [(*key, NOTHING, count(subs, key[1])) for key, subs in held.items() if subs]
            assert sorted(joined.changes) == sorted(present)
            joined.changes.clear()
        there = held.setdefault((subject, queue), [])
        before = count(there, queue)
        if what in (0, 1):
            there.append((sublist.subscribe(subject, queue, b"1", kind, weight), kind, weight))
        elif what == 2 and there:
            sublist.unsubscribe(there.pop(weight % len(there))[0])
        elif what == 3 and there:
            handle, kind, _ = there.pop()
            sublist.update_weight(handle, weight)
            there.append((handle, kind, weight))
        else:
            continue
        expected.append((subject, queue, before, count(there, queue)))
        if joined:
            assert joined.changes.pop() == expected[-1]
            assert joined.changes == []
    assert probe.changes == expected
    for one in (probe, joined):
        if one:
            one.close()
    last = sublist.subscribe(b"z", b"", b"1")
    assert probe.changes == expected
    assert last.subject == b"z"


def test_sinks_hear_of_weights_and_of_batches(sublist: Sublist) -> None:
    probe = SinkProbe(sublist)
    remote = sublist.subscribe(b"a", b"g", b"1", ROUTER, 2)
    sublist.update_weight(remote, 5)
    other = sublist.subscribe(b"a", b"g", b"2")
    sublist.unsubscribe_all([remote, other, other])
    sublist.update_weight(remote, 7)
    assert probe.changes == [
        (b"a", b"g", NOTHING, (0, 2, 0)),
        (b"a", b"g", (0, 2, 0), (0, 5, 0)),
        (b"a", b"g", (0, 5, 0), (1, 5, 0)),
        (b"a", b"g", (1, 5, 0), (1, 0, 0)),
        (b"a", b"g", (1, 0, 0), NOTHING),
    ]
    probe.close()


def test_many_of_a_subject_are_counted_by_what_is_at_the_other_end(sublist: Sublist) -> None:
    kinds = [CLIENT, ROUTER, GATEWAY, LEAF]
    held = [sublist.subscribe(b"a", b"", b"%d" % n, kinds[n % 4]) for n in range(1000)]
    probe = SinkProbe(sublist)
    assert probe.changes == [(b"a", b"", NOTHING, (250, 750, 0))]
    while held:
        held.pop(len(held) // 2)
        local = sum(n % 4 == 0 for n in (int(handle.sid) for handle in held))
        assert probe.changes[-1][3] == (local, len(held) - local, 0)
    probe.close()


def test_a_sink_may_be_closed_twice(sublist: Sublist) -> None:
    first, second = SinkProbe(sublist), SinkProbe(sublist)
    first.close()
    first.close()
    kept = fill(sublist, "a")
    assert first.changes == []
    assert len(second.changes) == len(kept)
    second.close()


def test_imported_services_are_counted_apart() -> None:
    """Links do not announce the services that an account imports to other servers."""
    serving, importing = Account(), Account()
    probe = SinkProbe(importing.sublist)
    export = ExportedService(serving, "singleton", 1.0)

    def use(sid: bytes) -> ImportedService:
        return ImportedService(
            importing,
            export,
            b"svc",
            b"svc",
            None,
            use_published=False,
            share=False,
            to_system=False,
            sid=sid,
        )

    imports = [use(b"1")]
    client = fill(importing.sublist, "svc")
    imports.append(use(b"2"))
    client += fill(importing.sublist, "svc")
    late = SinkProbe(importing.sublist)
    assert late.changes == [(b"svc", b"", NOTHING, (2, 0, 2))]
    imports.pop(0).close()
    client.clear()
    imports.pop().close()
    counts = [now for *_, now in probe.changes]
    assert counts == [(0, 0, 1), (1, 0, 1), (1, 0, 2), (2, 0, 2), (2, 0, 1), (1, 0, 1), (0, 0, 1), NOTHING]
    probe.close()
    late.close()
