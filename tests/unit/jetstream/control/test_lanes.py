"""The lanes of requests: in order of arrival where their claims conflict, at once where they do not."""

from __future__ import annotations

import gc
import weakref

from hypothesis import given, settings
from hypothesis import strategies as st

from gnats.jetstream.control.lanes import (
    Claim,
    Hold,
    Lanes,
    account_claim,
    creation_claims,
    stream_claim,
    streams_claim,
)

CLAIMS = {
    "create S": creation_claims("A", "S"),
    "create T": creation_claims("A", "T"),
    "purge S": [account_claim("A"), stream_claim("A", "S")],
    "ask S": [account_claim("A"), stream_claim("A", "S", alone=False)],
    "ask T": [account_claim("A"), stream_claim("A", "T", alone=False)],
    "ask A": [account_claim("A")],
    "remove A": [account_claim("A", alone=True)],
    "create S of B": creation_claims("B", "S"),
    "streams": [streams_claim("A")],
}


class Many:
    """Holds by number, and the numbers of the holds that have begun."""

    def __init__(self) -> None:
        self.lanes = Lanes()
        self.holds: dict[int, Hold] = {}
        self.begun: list[int] = []

    def enter(self, claims: list[Claim]) -> int:
        number = len(self.holds)
        self.holds[number] = self.lanes.enter(claims, lambda: self.begun.append(number))
        return number

    def leave(self, number: int) -> None:
        self.lanes.leave(self.holds[number])


def test_changes_of_one_stream_wait_for_each_other() -> None:
    many = Many()
    first, second, other = (many.enter(CLAIMS[what]) for what in ("purge S", "purge S", "create T"))
    assert many.begun == [first, other]
    many.leave(first)
    assert many.begun == [first, other, second]


def test_a_question_about_another_stream_does_not_wait() -> None:
    many = Many()
    many.enter(CLAIMS["create S"])
    waits = many.enter(CLAIMS["create T"])
    asks = [many.enter(CLAIMS[what]) for what in ("ask A", "ask S")]
    assert many.begun == [0, asks[0]]
    assert waits not in many.begun


def test_what_does_away_with_an_account_is_alone() -> None:
    many = Many()
    begun = [many.enter(CLAIMS["purge S"]), many.enter(CLAIMS["ask T"])]
    removes, later, elsewhere = (many.enter(CLAIMS[what]) for what in ("remove A", "ask A", "create S of B"))
    assert many.begun == [*begun, elsewhere]
    many.leave(begun[0])
    many.leave(begun[1])
    assert many.begun == [*begun, elsewhere, removes]
    many.leave(removes)
    assert many.begun[-1] == later


def test_one_that_goes_before_its_turn_is_in_nobodys_way() -> None:
    many = Many()
    slow = many.enter(CLAIMS["purge S"])
    gone = many.enter(CLAIMS["create S"])
    waits = many.enter(CLAIMS["create T"])
    assert many.begun == [slow]
    many.leave(gone)
    assert many.begun == [slow, waits]
    many.leave(slow)
    many.leave(waits)
    assert len(many.lanes) == 0


def test_what_begins_and_its_turn_are_freed_without_a_collection() -> None:
    """Otherwise the collection of ten thousand would block the event loop for a third of a second."""

    class Work:
        hold: Hold

        def begin(self) -> None:
            pass

    lanes = Lanes()
    first = lanes.enter(CLAIMS["purge S"], Work().begin)
    left = []
    gc.disable()
    try:
        for _ in range(3):
            work = Work()
            work.hold = lanes.enter(CLAIMS["purge S"], work.begin)
            left.append(weakref.ref(work))
            lanes.leave(work.hold)
        del work
        lanes.leave(first)
        assert not len(lanes)
        assert [each() for each in left] == [None] * 3
    finally:
        gc.enable()


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(sorted(CLAIMS)), st.integers(0, 20)), max_size=40))
def test_all_begin_once_and_no_two_that_exclude_each_other(steps: list[tuple[str, int]]) -> None:
    many = Many()
    what: dict[int, str] = {}
    running: list[int] = []
    for name, leaves in steps:
        what[many.enter(CLAIMS[name])] = name
        running = [n for n in many.begun if not many.holds[n].gone]
        if running and leaves:
            many.leave(running[leaves % len(running)])
        check(many, what)
    while running := [n for n in many.begun if not many.holds[n].gone]:
        many.leave(running[0])
        check(many, what)
    assert sorted(many.begun) == list(many.holds)
    assert len(many.lanes) == 0


def check(many: Many, what: dict[int, str]) -> None:
    running = [n for n in many.begun if not many.holds[n].gone]
    held: dict[tuple[str, ...], list[bool]] = {}
    for n in running:
        for key, alone in CLAIMS[what[n]]:
            held.setdefault(key, []).append(alone)
    assert all(len(claims) == 1 or not any(claims) for claims in held.values())
    assert len(set(many.begun)) == len(many.begun)
    for name in CLAIMS:  # holds with the same claim are first come, first served
        begun = [n for n in many.begun if what.get(n) == name]
        assert begun == sorted(begun)
