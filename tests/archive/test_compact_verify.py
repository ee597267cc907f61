"""Compaction and verification."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnats.archive.errors import ArchiveError
from gnats.archive.jobs.compact import Compacted, compact
from gnats.archive.jobs.engine import Inline
from gnats.archive.jobs.job import Options
from gnats.archive.jobs.verify import Verified, purgeable, verify
from gnats.archive.ranges import Ranges
from gnats.archive.target import Target
from gnats.archive.writer import Layout

from .crashes import Crash, Failing, consistent
from .stores import DAY, SMALL, Writing, archive, listed, manifest_of, parquet_files, plain


def compacted(out: Path, layout: Layout | None = None) -> Compacted:
    manifest = manifest_of(out)
    return compact(manifest.storage, Target(str(out)), manifest, Inline(), layout or Layout())


def verified(stream: Writing, out: Path, only_present: bool = False) -> Verified:
    return verify(Target(str(out)), manifest_of(out), stream.source(), Inline(), only_present=only_present)


def many_runs(stream: Writing, out: Path, runs: int = 5) -> None:
    for _ in range(runs):
        stream.publish(20)
        archive(stream, out)


def test_small_files_become_one(orders: Writing, out: Path) -> None:
    many_runs(orders, out)
    done = compacted(out)
    assert (done.before, done.after) == (5, 1)
    assert [path.name for path in parquet_files(out)] == ["1-100.parquet"]
    assert plain(listed(out)) == orders.rows
    assert (compacted(out).before, archive(orders, out).rows) == (0, 0)
    assert not verified(orders, out).problems


def test_files_that_are_large_enough_stay(orders: Writing, out: Path) -> None:
    many_runs(orders, out)
    before = list(parquet_files(out))
    assert compacted(out, Layout(file_bytes=1000)).before == 0
    assert list(parquet_files(out)) == before
    two = 2 * max(path.stat().st_size for path in before)
    assert compacted(out, Layout(file_bytes=two)).after == 2
    assert len(list(parquet_files(out))) == 3


def test_days_and_hours_stay_apart(orders: Writing, out: Path) -> None:
    for _ in range(4):
        orders.publish(10, step=DAY // 10)
        archive(orders, out, Options(layout=Layout(partition="hour")))
    compacted(out)
    assert plain(listed(out)) == orders.rows
    assert all("/hour=" in str(path) for path in parquet_files(out))


def test_each_merge_keeps_its_layout(orders: Writing, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnats.archive.jobs.job.check_partition", lambda storage, partition: None)
    for partition in ("date", "hour"):  # no compacted file mixes them
        for _ in range(2):
            orders.publish(10, step=1000)
            archive(orders, out, Options(layout=Layout(partition=partition)))
    done = compacted(out)
    assert (done.before, done.after) == (4, 2)
    assert [path.parent.name[:5] for path in parquet_files(out)] == ["date=", "hour="]


def test_what_was_found_again_is_sorted_in(orders: Writing, out: Path) -> None:
    orders.publish(100)
    archive(orders, out, Options(first_seq=1, last_seq=30))
    archive(orders, out, Options(first_seq=61))
    archive(orders, out)
    compacted(out)
    (path,) = parquet_files(out)
    assert pq.read_table(path, partitioning=None).column("sequence").to_pylist() == list(range(1, 101))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_every_step_of_a_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    orders = Writing(tmp_path / "store")
    failing = Failing(monkeypatch)
    many_runs(orders, tmp_path / "whole")
    before = failing.count
    compacted(tmp_path / "whole")
    steps = failing.count - before
    assert steps > 8
    for step in range(1, steps + 1):
        out = tmp_path / f"out{step}"
        stream = Writing(tmp_path / f"store{step}")
        many_runs(stream, out)
        failing.arm(step, after)
        with pytest.raises(Crash):
            compacted(out)
        failing.disarm()
        consistent(out, stream.rows)
        stream.publish(3)
        archive(stream, out)
        assert consistent(out, stream.rows) == stream.rows, step
        compacted(out)
        assert consistent(out, stream.rows) == stream.rows, step


def test_two_compactions_at_once(orders: Writing, out: Path) -> None:
    many_runs(orders, out)

    class Slow(Inline):
        def run(self, function, tasks, done):  # type: ignore[no-untyped-def]
            results = super().run(function, tasks, done)
            compacted(out)
            return results

    manifest = manifest_of(out)
    with pytest.raises(ArchiveError, match="replaced by another job"):
        compact(manifest.storage, Target(str(out)), manifest, Slow(), Layout())
    assert plain(listed(out)) == orders.rows
    assert not list(out.rglob("*.staged"))


def test_a_damaged_file_is_not_compacted(orders: Writing, out: Path) -> None:
    many_runs(orders, out)
    path = next(parquet_files(out))
    spoil(path)
    with pytest.raises(ArchiveError, match=path.name):
        compacted(out)
    assert len(list(parquet_files(out))) == 5


def spoil(path: Path) -> None:
    """Rewrite a file with another payload in it."""
    file = pq.ParquetFile(path)
    table = file.read()
    payloads = table.column("payload").to_pylist()
    payloads[3] = payloads[3][:-1] + b"?"
    at = table.schema.get_field_index("payload")
    table = table.set_column(at, table.schema.field(at), pa.array(payloads, pa.binary()))
    pq.write_table(table, path)


def test_an_archive_that_has_what_the_stream_has(orders: Writing, out: Path) -> None:
    orders.publish(500)
    orders.remove(3, 4, 77)
    archive(orders, out)
    done = verified(orders, out)
    assert (done.problems, done.rows, done.gone) == ([], 497, 0)
    assert list(done.state.verified) == [(1, 500)]


def test_messages_that_were_deleted_since_are_counted(orders: Writing, out: Path) -> None:
    orders.publish(500)
    archive(orders, out)
    orders.remove(1, 2, 250)
    orders.publish(10)
    done = verified(orders, out)
    assert (done.problems, done.rows, done.gone) == ([], 500, 3)
    assert list(done.state.verified) == [(1, 500)]


def test_a_file_whose_messages_were_changed(orders: Writing, out: Path) -> None:
    orders.publish(500)
    archive(orders, out)
    path = list(parquet_files(out))[1]
    spoil(path)
    done = verified(orders, out)
    (problem,) = done.problems
    assert path.name in problem
    first, last = map(int, path.stem.split("-"))
    assert not done.state.verified.intersects([(first, last)])
    assert len(done.state.verified)


def test_a_file_that_is_missing_and_one_too_many(orders: Writing, out: Path) -> None:
    orders.publish(500)
    archive(orders, out)
    path = list(parquet_files(out))[1]
    path.rename(path.with_name("7-9.parquet"))
    problems = verified(orders, out).problems
    assert len(problems) == 2
    assert any("7-9.parquet: is not in the manifest" in problem for problem in problems)
    assert any(path.name in problem and "missing" in problem for problem in problems)


def test_a_message_that_the_manifest_claims_and_nobody_has(orders: Writing, out: Path) -> None:
    orders.publish(100)
    archive(orders, out, Options(last_seq=50))
    manifest = manifest_of(out)
    from gnats.archive.manifest import Change

    manifest.commit(Change("archive", "liar", covered=((51, 60),)))
    done = verified(orders, out)
    (problem,) = done.problems
    assert "messages 51 to 60 are not in the archive" in problem
    assert list(done.state.verified) in ([], [(1, 50)])


def test_what_may_be_purged(orders: Writing, out: Path) -> None:
    orders.publish(300)
    archive(orders, out, Options(last_seq=100))
    archive(orders, out, Options(first_seq=150))
    done = verified(orders, out)
    assert done.unarchived == 49
    assert [purgeable(done, first) for first in (1, 50, 101, 120, 150)] == [100, 100, 100, 119, 300]
    assert purgeable(replace(done, good=Ranges()), 1) == 0  # no range is verified


def test_what_is_to_be_purged_is_verified_anew(orders: Writing, out: Path) -> None:
    orders.publish(100)
    archive(orders, out)
    verified(orders, out)
    orders.publish(10)
    archive(orders, out, SMALL)
    orders.store.compact_to(101)
    orders.store.flush_pending()
    done = verified(orders, out, only_present=True)
    assert (done.rows, done.gone, list(done.good)) == (10, 0, [(101, 110)])
    assert list(manifest_of(out).load().verified) == [(1, 110)]


def test_ranges() -> None:
    some = Ranges([(5, 9), (1, 3), (4, 4), (20, 30), (8, 12), (40, 39)])
    assert list(some) == [(1, 12), (20, 30)]
    assert some.count == 23
    assert list(some.without([(3, 5), (12, 25)])) == [(1, 2), (6, 11), (26, 30)]
    assert list(some.both([(10, 22), (30, 99)])) == [(10, 12), (20, 22), (30, 30)]
    assert some.contains(1, 12)
    assert not some.contains(12, 20)
    assert some.intersects([(13, 20)])
    assert not some.intersects([(13, 19)])
