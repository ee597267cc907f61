"""The wheel of expiry times beside a dictionary."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.written import Written

from gnats.go.text import SECOND
from gnats.store.index.wheel import HashWheel

pytestmark = pytest.mark.timeout(120)

SEQS = st.one_of(st.integers(0, 300), st.integers(2**64 - 50, 2**64 - 1))
# The same slot in several turns of the wheel, and the ends of the range.
TIMES = st.one_of(
    st.integers(0, 20 * SECOND),
    st.builds(lambda turn, s: (turn * 4096 + s) * SECOND, st.integers(0, 5), st.integers(0, 5)),
    st.integers(-(2**63), 2**63 - 1),
)


class Machine(RuleBasedStateMachine):
    """Operations on a wheel and on a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.wheel = HashWheel()
        self.model: dict[int, int] = {}

    @rule(seq=SEQS, expires=TIMES)
    def add(self, seq: int, expires: int) -> None:
        self.wheel.add(seq, expires)
        self.model[seq] = expires

    @rule(
        first=st.integers(0, 10_000),
        n=st.integers(1, 300),
        expires=TIMES,
        step=st.sampled_from([0, 1, SECOND]),
    )
    def add_many(self, first: int, n: int, expires: int, step: int) -> None:
        for i in range(n):
            if expires + i * step < 2**63:
                self.add(first + i, expires + i * step)

    @rule(seq=SEQS)
    def remove(self, seq: int) -> None:
        assert self.wheel.remove(seq) == (seq in self.model)
        self.model.pop(seq, None)

    @rule(seq=SEQS)
    def find(self, seq: int) -> None:
        assert self.wheel.find(seq) == self.model.get(seq)

    @rule(now=TIMES, most=st.sampled_from([1, 3, 1024]))
    def take(self, now: int, most: int) -> None:
        due = {seq: t for seq, t in self.model.items() if t <= now}
        taken: dict[int, int] = {}
        while part := self.wheel.take(now, most):
            assert len(part) <= most
            assert not taken.keys() & dict(part).keys()
            taken.update(part)
        assert taken == due
        self.model = {seq: t for seq, t in self.model.items() if t > now}
        assert self.wheel.next is None or self.wheel.next <= min(self.model.values())

    @rule(high=SEQS)
    def encode(self, high: int) -> None:
        data = self.wheel.encode(high)
        self.wheel = HashWheel()
        assert self.wheel.decode(data) == high

    @invariant()
    def same(self) -> None:
        assert len(self.wheel) == len(self.model)
        if self.model:
            assert self.wheel.next is not None
            assert self.wheel.next <= min(self.model.values())
        else:
            assert self.wheel.next is None


Machine.TestCase.settings = settings(max_examples=80, stateful_step_count=30)
test_operations = Machine.TestCase


def test_the_next_time_is_exact_when_something_was_taken() -> None:
    wheel = HashWheel()
    for seq in range(100):
        wheel.add(seq, seq * SECOND)
    wheel.take(50 * SECOND)
    assert wheel.next == 51 * SECOND


def test_the_layout() -> None:
    wheel = HashWheel()
    wheel.add(300, -1)
    assert wheel.encode(7) == b"\x01" + struct.pack("<QQ", 1, 7) + b"\x01\xac\x02"


@pytest.mark.parametrize(
    "data",
    [b"", bytes(17), b"\1" + bytes(15), b"\2" + bytes(16), b"\1\1" + bytes(15), b"\1" + b"\xff" * 16],
)
def test_what_is_no_wheel_is_refused(data: bytes) -> None:
    wheel = HashWheel()
    wheel.add(1, 1)
    with pytest.raises(ValueError, match="not an encoded wheel"):
        wheel.decode(data)
    assert len(wheel) == 0


@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=6), st.integers(0, 400))
def test_corrupted_wheels_do_no_harm(changes: list[tuple[int, int]], end: int) -> None:
    wheel = HashWheel()
    for seq in range(100):
        wheel.add(seq, seq * SECOND)
    data = bytearray(wheel.encode(100))
    for at, value in changes:
        data[at % len(data)] = value
    try:
        wheel.decode(bytes(data[: len(data) - end]))
    except ValueError:
        assert len(wheel) == 0
    assert len(wheel.take(2**63 - 1, 10_000)) <= 200


def test_what_nats_server_wrote(clear: Written) -> None:
    wheel = HashWheel()
    assert wheel.decode((clear.stream("PLAIN") / "msgs" / "thw.db").read_bytes()) >= 800
    expiring = {seq for seq in clear.messages["PLAIN"] if seq % 5 == 0}
    assert {seq for seq, _ in wheel.take(2**63 - 1)} == expiring
