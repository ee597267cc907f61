"""The open batches of a stream, against a dict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gnats.jetstream.state.batchtable import BatchLimits, BatchTableProbe

ids = st.one_of(st.sampled_from([b"", b"a", b"b", b"c" * 64]), st.binary(max_size=64))
steps = st.lists(st.tuples(st.sampled_from(("add", "touch", "remove")), ids), max_size=200)


@given(steps)
def test_batches_come_and_go(steps: list[tuple[str, bytes]]) -> None:
    table = BatchTableProbe()
    model: dict[bytes, int] = {}  # oldest first
    for now, (what, id) in enumerate(steps):
        assert (id in table) == (id in model)
        if what == "add" and id not in model:
            table.add(id, now)
            model[id] = now
        elif what == "touch" and id in model:
            table.touch(id, now)
            del model[id]
            model[id] = now
        elif what == "remove" and id in model:
            table.remove(id)
            del model[id]
        assert len(table) == len(model)
    assert table.ages() == list(model.items())


def test_many() -> None:
    table = BatchTableProbe()
    names = [b"%d" % i for i in range(5000)]
    for now, name in enumerate(names):
        table.add(name, now)
    assert all(name in table for name in names)
    for name in names[::2]:
        table.remove(name)
    assert [name for name, _ in table.ages()] == names[1::2]
    assert not any(name in table for name in names[::2])


def test_limits_that_are_not_set() -> None:
    limits = BatchLimits()
    default = {
        "atomic_per_stream": 50,
        "atomic_total": 1000,
        "fast_per_stream": 1000,
        "fast_total": 50_000,
        "max_size": 1000,
        "timeout": 10_000_000_000,
    }
    assert limits.get() == default
    limits.set(per_stream=1, total=2, size=3, timeout=4)
    assert list(limits.get().values()) == [1, 2, 1, 2, 3, 4]
    limits.set(per_stream=0, total=-1, size=0, timeout=-5)
    assert limits.get() == default
