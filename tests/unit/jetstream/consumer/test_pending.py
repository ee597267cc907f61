"""Pending acks beside a naive model of dictionaries and a list, which nats-server uses."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gnats.jetstream.consumer.pending import PendingTable

SEQ = st.integers(1, 40) | st.sampled_from([2**40, 2**40 + 1, 2**63])
TIME = st.integers(0, 100) | st.sampled_from([-(2**63), 9 * 10**18, 2**63 - 2, 2**63 - 1])


class PendingAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = PendingTable()
        self.pending: dict[int, tuple[int, int, int]] = {}
        self.counts: dict[int, int] = {}
        self.queue: list[int] = []

    @rule(seq=SEQ, dseq=st.integers(1, 1000), ts=TIME, deadline=TIME)
    def track(self, seq: int, dseq: int, ts: int, deadline: int) -> None:
        self.table.track(seq, dseq, ts, deadline)
        self.pending[seq] = (self.pending.get(seq, (dseq,))[0], ts, deadline)

    @rule(seq=SEQ)
    def untrack(self, seq: int) -> None:
        self.table.untrack(seq)
        self.pending.pop(seq, None)

    @rule(deadline=TIME, data=st.data())
    def set_deadline(self, deadline: int, data: st.DataObject) -> None:
        if self.pending:
            seq = data.draw(st.sampled_from(sorted(self.pending)))
            self.table.set_deadline(seq, deadline)
            self.pending[seq] = (*self.pending[seq][:2], deadline)

    @rule(seq=SEQ)
    def forget(self, seq: int) -> None:
        self.table.forget(seq)
        self.pending.pop(seq, None)
        self.counts.pop(seq, None)
        if seq in self.queue:
            self.queue.remove(seq)

    @rule(seq=SEQ, rdc=st.integers(-1, 5))
    def set_rdc(self, seq: int, rdc: int) -> None:
        self.table.set_rdc(seq, rdc)
        self.counts[seq] = rdc
        if rdc == 0:
            del self.counts[seq]

    @rule(seq=SEQ)
    def enqueue(self, seq: int) -> None:
        self.table.enqueue(seq)
        if seq not in self.queue:
            self.queue.append(seq)

    @rule(seq=SEQ)
    def dequeue(self, seq: int) -> None:
        self.table.dequeue(seq)
        if seq in self.queue:
            self.queue.remove(seq)

    @rule()
    def pop(self) -> None:
        assert self.table.pop() == (self.queue.pop(0) if self.queue else 0)

    @rule(n=st.integers(1, 60))
    def many(self, n: int) -> None:
        """Add enough entries to make the table grow."""
        for seq in range(1000, 1000 + n):
            self.track(seq, seq, n, seq * 7 % 50)

    @rule()
    def ack_all(self) -> None:
        for seq in sorted(self.pending):
            self.untrack(seq)

    @invariant()
    def same(self) -> None:
        pending, queue, redelivered = self.table.state()
        assert pending == [(seq, *self.pending[seq]) for seq in sorted(self.pending)]
        assert queue == self.queue
        assert redelivered == len(self.counts)
        assert self.table.earliest() == min((each[2] for each in self.pending.values()), default=None)
        for seq in range(1, 41):
            assert self.table.rdc(seq) == self.counts.get(seq, 0)


PendingAgainstModel.TestCase.settings = settings(max_examples=150, stateful_step_count=60)
test_pending_against_a_naive_model = PendingAgainstModel.TestCase


def test_deadlines_come_in_order() -> None:
    table = PendingTable()
    deadlines = [seq * 7919 % 5003 for seq in range(1, 5001)]
    for seq, deadline in enumerate(deadlines, 1):
        table.track(seq, seq, 0, deadline)
    by_deadline = {deadline: seq for seq, deadline in enumerate(deadlines, 1)}
    for deadline in sorted(deadlines):
        assert table.earliest() == deadline
        table.untrack(by_deadline[deadline])
    assert table.earliest() is None
