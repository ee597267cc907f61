"""Entries of a log change the stored state as a model of consumerFileStore does, from the entry alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.js import NativeJs

from gnats.jetstream.consumer.consumer import Consumer
from gnats.jetstream.consumer.consumerlog import apply_entry
from gnats.store.format.codec import decode_consumer

pytestmark = pytest.mark.timeout(120)
SECOND = 10**9
START = 1_700_000_000 * SECOND
MAX_DELIVER = 3
SEQ = st.integers(1, 8)
TS = st.integers(0, 50).map(lambda n: START + n * SECOND)
STEPS = st.one_of(
    st.tuples(st.just("deliver"), TS),
    st.tuples(st.just("deliver"), TS),
    st.tuples(st.just("deliver again"), SEQ, TS),
    st.tuples(st.just("waits"), SEQ, TS),
    st.tuples(st.just("returned"), SEQ),
    st.tuples(st.just("ack"), SEQ),
    st.tuples(st.just("ack all"), SEQ),
    st.tuples(st.just("forgotten"), SEQ),
    st.tuples(st.just("moved")),
    st.tuples(st.just("reset"), SEQ),
)


@pytest.fixture(scope="module")
def js() -> Iterator[NativeJs]:
    js = NativeJs(0)
    js.create_stream("LOG", subjects=["log"])
    yield js
    js.close()


class Model:
    """The stored state, and the entries that a consumer would propose."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.delivered = (0, 0)
        self.floor = (0, 0)
        self.pending: dict[int, tuple[int, int]] = {}
        self.counts: dict[int, int] = {}

    def deliver(self, ts: int) -> None:
        self._deliver(self.delivered[1] + 1, 1, ts)

    def deliver_again(self, sseq: int, ts: int) -> None:
        if sseq in self.pending:
            self._deliver(sseq, self.counts.get(sseq, 0) + 2, ts)

    def _deliver(self, sseq: int, dc: int, ts: int) -> None:
        given_up = dc > MAX_DELIVER
        dseq = self.pending[sseq][0] if given_up else self.delivered[0] + 1
        assert self._apply("delivered", sseq, dseq=dseq, dc=dc, ts=ts) == ("applied", [])
        if dseq > self.floor[0]:
            self.delivered = max(self.delivered[0], dseq), max(self.delivered[1], sseq)
        if dc - 1 > self.counts.get(sseq, 0):
            self._count(sseq, dc - 1)
        if given_up:
            del self.pending[sseq]
        else:
            self.pending[sseq] = self.pending.get(sseq, (dseq,))[0], ts

    def waits(self, sseq: int, ts: int) -> None:
        known = sseq in self.pending
        assert self._apply("waits", sseq, ts=ts) == ("applied" if known else "unknown", [])
        if known:
            self.pending[sseq] = self.pending[sseq][0], ts

    def returned(self, sseq: int) -> None:
        known = sseq in self.pending or sseq in self.counts
        assert self._apply("returned", sseq) == ("applied" if known else "unknown", [])
        if known:
            self._count(sseq, self.counts.get(sseq, 0) - 1)

    def _count(self, sseq: int, n: int) -> None:
        self.counts[sseq] = n
        if n == 0:
            del self.counts[sseq]

    def ack(self, sseq: int) -> None:
        known = self.pending.pop(sseq, None)
        self.counts.pop(sseq, None)
        # The client's consumer sequence does not count; the delivery's does.
        assert self._apply("acked", sseq, dseq=77) == ("applied" if known else "unknown", [sseq])
        if known and known[0] > self.floor[0]:
            first = min(self.pending, default=0)
            if not first:
                self.floor = self.delivered
            elif known[0] == self.floor[0] + 1:
                self.floor = (self.pending[first][0] - 1, first - 1) if first > sseq else (known[0], sseq)

    def ack_all(self, sseq: int) -> None:
        known = self.pending.get(sseq)
        gone = sorted(seq for seq in self.pending if seq <= sseq)
        dseq = known[0] if known else self.delivered[0]
        outcome, acked = self._apply("acked", sseq, dseq=dseq, all=True)
        assert outcome == ("applied" if known else "unknown")
        assert acked == [sseq, *(seq for seq in gone if seq != sseq)]
        for seq in gone:
            del self.pending[seq]
            self.counts.pop(seq, None)
        if known and dseq > self.floor[0]:
            self.floor = dseq, sseq

    def forgotten(self, sseq: int) -> None:
        known = sseq in self.pending or sseq in self.counts
        assert self._apply("forgotten", sseq) == ("applied" if known else "unknown", [])
        self.pending.pop(sseq, None)
        self.counts.pop(sseq, None)

    def moved(self) -> None:
        self.delivered = self.delivered[0] + 1, self.delivered[1] + 1
        self._apply("moved", self.delivered[1], dseq=self.delivered[0], floor=self.floor)

    def reset(self, sseq: int) -> None:
        self.delivered = self.floor = 0, sseq
        self.pending.clear()
        self.counts.clear()
        assert self._apply("reset", sseq, floor=self.floor) == ("applied", [])

    def _apply(self, op: str, sseq: int, **fields: object) -> tuple[str, list[int]]:
        return apply_entry(self.consumer, op, sseq, **fields)  # type: ignore[arg-type]

    def check(self) -> None:
        info = self.consumer.info()
        assert (info["delivered_consumer"], info["delivered_stream"]) == self.delivered
        assert (info["ack_floor_consumer"], info["ack_floor_stream"]) == self.floor
        assert info["num_ack_pending"] == len(self.pending)
        assert info["num_redelivered"] == len(self.counts)
        _, _, pending, redelivered = decode_consumer(self.consumer.state())
        above = {seq: (dseq, ts) for seq, (dseq, ts) in self.pending.items() if seq > self.floor[1]}
        assert {seq: (dseq, ts) for seq, dseq, ts in pending} == above
        assert dict(redelivered) == {seq: n for seq, n in self.counts.items() if n > 0}


names = count(1)


@settings(deadline=None, max_examples=150)
@given(st.lists(STEPS, max_size=40))
def test_entries_change_the_stored_state_alone(js: NativeJs, steps: list[tuple[str, object]]) -> None:
    name = f"c{next(names)}"
    js.create_consumer(
        "LOG",
        name,
        filter_subject="log",
        ack_policy="explicit",
        ack_wait=100 * 365 * 86400 * SECOND,
        max_deliver=MAX_DELIVER,
    )
    model = Model(js.consumers["LOG", name])
    for step, *arguments in steps:
        getattr(model, step.replace(" ", "_"))(*arguments)
        model.check()
