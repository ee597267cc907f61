"""The index of schedules, alone and in a store."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.schedules import Scheduled, parse_schedules, read_schedules
from support.wire import header

from gnats.go.text import SECOND
from gnats.store.index.schedules import SchedulesProbe
from gnats.store.store import FileStore, MemStore

U64 = st.integers(0, 2**64 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
SUBJECTS = [b"a", b"b", b"c.d", b"e" * 300, b""]
LATER = "@at 2100-01-01T00:00:00Z"
AT_2100 = 4_102_444_800 * SECOND


def known(schedules: SchedulesProbe) -> Scheduled:
    return parse_schedules(schedules.encode(0))


OPERATIONS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(SUBJECTS), st.integers(1, 9), st.integers(-50, 50)),
    st.tuples(st.just("due"), st.sampled_from(SUBJECTS), st.integers(-50, 50)),
    st.tuples(st.just("again"), st.sampled_from(SUBJECTS), st.integers(-50, 50)),
    st.tuples(st.just("drop"), st.sampled_from(SUBJECTS)),
    st.tuples(st.just("take"), st.integers(-60, 60)),
)


@given(st.lists(OPERATIONS, max_size=60))
def test_it_is_a_table_and_a_queue(operations: list[tuple[object, ...]]) -> None:
    schedules = SchedulesProbe()
    model: Scheduled = {}
    waiting: dict[bytes, int] = {}
    for what, *args in operations:
        if what == "take":
            (now,) = args
            assert isinstance(now, int)
            first = min(((when, model[name][0]) for name, when in waiting.items()), default=None)
            assert schedules.next == (first[0] if first else None)
            taken = schedules.take(now)
            if first is None or first[0] > now:
                assert taken is None
                continue
            assert taken is not None
            assert (waiting.pop(taken[0]), taken[1]) == first
            assert model[taken[0]] == taken[1:]
            continue
        subject = args[0]
        assert isinstance(subject, bytes)
        if what == "add":
            _, seq, ts = args
            assert isinstance(seq, int) and isinstance(ts, int)
            schedules.add(subject, seq, ts)
            model[subject], waiting[subject] = (seq, ts), ts
        elif subject not in model:
            with pytest.raises(KeyError):
                schedules.drop(subject)
        elif what == "drop":
            schedules.drop(subject)
            del model[subject]
            waiting.pop(subject, None)
        else:
            when = args[1]
            assert isinstance(when, int)
            getattr(schedules, str(what))(subject, when)
            waiting[subject] = when
            if what == "due":
                model[subject] = model[subject][0], when
        assert len(schedules) == len(model)
    assert known(schedules) == model


@given(st.dictionaries(st.binary(max_size=300), st.tuples(U64, I64), max_size=40), U64)
def test_they_are_read_as_written(entries: Scheduled, high: int) -> None:
    schedules, again = SchedulesProbe(), SchedulesProbe()
    for subject, (seq, ts) in entries.items():
        schedules.add(subject, seq, ts)
    data = schedules.encode(high)
    assert data[:17] == b"\x01" + struct.pack("<QQ", len(entries), high)
    assert again.decode(data) == high
    assert known(again) == entries
    for cut in range(len(data)):
        with pytest.raises(ValueError, match="not a list"):
            again.decode(data[:cut])
        assert len(again) == 0


@given(st.binary(max_size=60), st.integers(0, 5))
def test_damaged_ones_do_no_harm(data: bytes, count: int) -> None:
    schedules = SchedulesProbe()
    try:
        schedules.decode(b"\x01" + struct.pack("<QQ", count, 0) + data)
    except ValueError:
        assert len(schedules) == 0
    assert len(schedules) <= count


# -- in a store ----------------------------------------------------------------------------------------------


def schedule(pattern: str = LATER) -> bytes:
    return header(f"Nats-Schedule: {pattern}", "Nats-Schedule-Target: t")


def produced(scheduler: str, following: str = "purge") -> bytes:
    return header(f"Nats-Scheduler: {scheduler}", f"Nats-Schedule-Next: {following}")


def open_store(directory: Path, **limits: object) -> FileStore:
    return FileStore(str(directory), "S", **{"allow_msg_schedules": True, **limits})  # type: ignore[arg-type]


def written(directory: Path) -> Scheduled:
    return read_schedules(directory / "msgs" / "sched.db")


def settled(directory: Path, **limits: object) -> Scheduled:
    """Open a store, change it so that it writes its schedules, and return these."""
    store = open_store(directory, **limits)
    store.skip()
    store.close()
    return written(directory)


def crash(store: FileStore, directory: Path) -> Path:
    """Copy the files as a crash would leave them, and close the store; return the copy's directory."""
    store.flush_pending()
    copy = directory.with_name(directory.name + "-copy")
    (copy / "msgs").mkdir(parents=True)
    for file in (directory / "msgs").iterdir():
        (copy / "msgs" / file.name).write_bytes(file.read_bytes())
    store.close()
    return copy


STEPS = st.one_of(
    st.tuples(st.just("schedule"), st.sampled_from("abc")),
    st.tuples(st.just("every"), st.sampled_from("abc")),
    st.tuples(st.just("plain"), st.sampled_from("abct")),
    st.tuples(st.just("produced"), st.sampled_from("abc")),
    st.tuples(st.just("again"), st.sampled_from("abc"), st.integers(1, 1000)),
    st.tuples(st.just("remove"), st.integers(1, 20)),
    st.tuples(st.just("purge"), st.sampled_from(["a", "b", "*", ""])),
    st.tuples(st.just("compact"), st.integers(1, 20)),
    st.tuples(
        st.just("write"),
    ),
)
DISTANT = 3_000_000_000
"""Seconds since 1970, later than the present time."""


def run(store: FileStore | MemStore, steps: list[tuple[object, ...]]) -> Scheduled:
    """Run steps on a store; return the expected schedules at the end."""
    model: Scheduled = {}
    subjects: dict[int, bytes] = {}
    for what, *args in steps:
        name = str(args[0]).encode() if args else b""
        if what in ("schedule", "every", "plain", "produced", "again"):
            when = AT_2100
            hdr = b""
            seq = store.state().last_seq + 1
            if what == "schedule":
                hdr = schedule()
            elif what == "every":
                hdr = schedule("@every 100000000s")
                when = (DISTANT + seq + 100_000_000) * SECOND
            elif what == "produced":
                hdr = produced("x")
            elif what == "again":
                assert isinstance(args[1], int)
                hdr = produced(name.decode(), f"2090-01-01T00:00:00.{args[1]:09}Z")
            target = b"t" if what == "again" else name
            subjects[store.store_msg(target, b"", hdr, ts=(DISTANT + seq) * SECOND)] = target
            if what in ("schedule", "every"):
                model[name] = seq, when
            elif what == "plain":
                model.pop(name, None)
            elif what == "again" and name in model:
                model[name] = model[name][0], 3_786_912_000 * SECOND + int(str(args[1]))
        elif what == "remove":
            assert isinstance(args[0], int)
            store.remove_msg(args[0])
            model = {key: value for key, value in model.items() if value[0] != args[0]}
        elif what == "purge":
            store.purge_msgs(name)
            model = {key: value for key, value in model.items() if name not in (b"", b"*", key)}
        elif what == "compact":
            assert isinstance(args[0], int)
            store.compact_to(args[0])
            model = {key: value for key, value in model.items() if value[0] >= args[0]}
        elif isinstance(store, FileStore):
            store.write_state()
    return model


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=25), st.integers(0, 1))
def test_a_store_knows_its_schedules(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[object, ...]], crashes: int
) -> None:
    directory = tmp_path_factory.mktemp("store")
    store = open_store(directory, block_size=400)
    model = run(store, steps)
    if crashes:
        directory = crash(store, directory)
    else:
        store.close()
        if (directory / "msgs" / "sched.db").exists():
            assert written(directory) == model
    assert settled(directory) == model


def test_schedules_are_found_in_messages_when_the_file_is_lost(tmp_path: Path) -> None:
    steps: list[tuple[object, ...]] = [
        ("schedule", "a"), ("schedule", "b"), ("every", "c"), ("plain", "b"), ("produced", "a"),
        ("schedule", "a"),
    ]  # fmt: skip
    store = open_store(tmp_path)
    model = run(store, steps)
    store.close()
    for damage in (b"", b"\x01" * 40, b"\x02"):
        (tmp_path / "msgs" / "sched.db").write_bytes(damage)
        assert settled(tmp_path) == model
    (tmp_path / "msgs" / "sched.db").unlink()
    assert settled(tmp_path) == model
    (tmp_path / "msgs" / "index.db").unlink()
    assert settled(tmp_path) == model


def test_those_without_a_message_are_forgotten(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    model = run(store, [("schedule", "a"), ("schedule", "b"), ("remove", 2), ("schedule", "c")])
    store.close()
    stale = SchedulesProbe()
    for subject, seq in ((b"a", 1), (b"b", 2), (b"c", 3), (b"d", 0), (b"e", 99)):
        stale.add(subject, seq, AT_2100)
    (tmp_path / "msgs" / "sched.db").write_bytes(stale.encode(4))
    assert settled(tmp_path) == model


def test_schedules_count_when_they_are_allowed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    model = run(store, [("schedule", "a"), ("schedule", "b"), ("plain", "b")])
    store.close()
    store = open_store(tmp_path, allow_msg_schedules=False)
    (tmp_path / "msgs" / "sched.db").unlink()
    store.skip()
    store.write_state()
    assert not (tmp_path / "msgs" / "sched.db").exists()
    store.update_config(allow_msg_schedules=True)
    store.close()
    assert written(tmp_path) == model


@pytest.mark.parametrize("limit", [{"max_msgs": 2}, {"max_msgs_per_subject": 1}, {"max_bytes": 200}])
def test_what_limits_remove_is_no_schedule_any_more(tmp_path: Path, limit: dict[str, int]) -> None:
    store = open_store(tmp_path, **limit)
    for name in (b"a", b"a", b"b", b"c", b"d"):
        store.store_msg(name, b"", schedule())
    left = {name: (seq, AT_2100) for name, (_, _, seq) in store.subjects_state().items()}
    store.close()
    assert len(left) < 5
    assert written(tmp_path) == left


def test_a_cut_end_takes_its_schedules_along(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    model = run(store, [("schedule", "a"), ("schedule", "b"), ("schedule", "c")])
    store.write_state()
    store.truncate_to(2)
    store.close()
    del model[b"c"]
    assert written(tmp_path) == model
