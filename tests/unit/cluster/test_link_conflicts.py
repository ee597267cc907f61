"""Connections that are closed again and again: when they become an alert, and when that is over."""

from __future__ import annotations

import pytest

from gnats.cluster import link_conflicts as module
from gnats.cluster.link_conflicts import KEPT, Conflict, LinkConflicts

from .fakes import Log

pytestmark = pytest.mark.timeout(60)

LOOP = Conflict("loop", "s", "A")


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def conflicts() -> tuple[LinkConflicts, Log, Time]:
    log, time = Log(), Time()
    return LinkConflicts("Leafnode connection", log, time), log, time


def test_a_conflict_is_logged_once_and_over_when_it_does_not_come_again() -> None:
    found, log, time = conflicts()
    found.add(LOOP, "why")
    time.now = KEPT - 1
    found.add(LOOP, "why not")
    assert [(each.times, each.reason) for each in found.alerts().values()] == [(2, "why not")]
    time.now = 2 * KEPT - 2
    assert list(found.alerts()) == [LOOP]
    time.now += 1
    assert found.alerts() == {}
    name = 'Leafnode connection to "s" for account "A"'
    assert log.lines == [f"{name} was closed: why", f"{name} has had no loop for 75 s"]
    found.add(LOOP, "again")
    assert log.lines[2:] == [f"{name} was closed: again"]


def test_some_conflicts_are_alerts_only_when_they_have_come_often_enough() -> None:
    found, log, time = conflicts()
    found.add(LOOP, "why", least=2)
    assert found.alerts() == {}
    time.now = KEPT
    found.add(LOOP, "why", least=2)  # the first one is forgotten
    assert found.alerts() == {}
    found.add(LOOP, "why", least=2)
    assert list(found.alerts()) == [LOOP]
    assert len(log.lines) == 1


def test_conflicts_end_each_in_its_time() -> None:
    found, _, time = conflicts()
    other = LOOP._replace(remote="t")
    found.add(LOOP, "why")
    time.now = 1.0
    found.add(other, "why")
    time.now = 2.0
    found.add(LOOP, "why")
    time.now = KEPT + 1
    assert list(found.alerts()) == [LOOP]


def test_only_some_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    found, _, _ = conflicts()
    for name in "abac":
        found.add(LOOP._replace(remote=name), "why")
    assert [conflict.remote for conflict in found.alerts()] == ["a", "c"]
