"""The archive job on a local target archives each message exactly once, whatever happens to it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from gnats.archive.errors import ArchiveError
from gnats.archive.jobs.engine import Inline, Processes
from gnats.archive.jobs.job import Options, Silent, StreamJob
from gnats.archive.jobs.job import archive as run_archive
from gnats.archive.manifest import Manifest
from gnats.archive.storage import Storage
from gnats.archive.target import Target
from gnats.archive.writer import FILE_SCHEMA, Layout

from .crashes import Crash, Failing, consistent
from .stores import (
    CREATED,
    DAY,
    ORDERS,
    SMALL,
    START,
    Writing,
    archive,
    listed,
    manifest_of,
    parquet_files,
    plain,
)


def test_all_messages_are_in_the_files(orders: Writing, out: Path) -> None:
    orders.publish(1000)
    done = archive(orders, out)
    rows = listed(out)
    assert plain(rows) == orders.rows
    assert [row["headers"] for row in rows[3:5]] == [None, [("N", ["5"]), ("Two", ["a", "b"])]]
    assert (done.rows, done.files) == (1000, len(list(parquet_files(out))))
    assert done.files > 2
    assert list(done.state.covered) == [(1, 1000)]


def test_files_are_named_by_what_is_in_them(orders: Writing, out: Path) -> None:
    orders.publish(300)
    archive(orders, out)
    for path in parquet_files(out):
        table = pq.read_table(path, partitioning=None)
        sequences = table.column("sequence").to_pylist()
        assert path.name == f"{sequences[0]}-{sequences[-1]}.parquet"
        assert path.parent == out / ORDERS / "date=2025-10-09"
        assert table.schema.remove_metadata().equals(FILE_SCHEMA)
        group = pq.ParquetFile(path).metadata.row_group(0)
        statistics = {group.column(i).path_in_schema: group.column(i).statistics for i in range(8)}
        assert (statistics["sequence"].min, statistics["sequence"].max) == (sequences[0], sequences[-1])
        assert statistics["subject"].min == min(table.column("subject").to_pylist())
        assert group.column(0).compression == "ZSTD"


def test_a_second_run_goes_on_after_the_first(orders: Writing, out: Path) -> None:
    orders.publish(100)
    archive(orders, out)
    before = {path: path.read_bytes() for path in parquet_files(out)}
    assert archive(orders, out).rows == 0
    orders.publish(50)
    assert archive(orders, out).rows == 50
    assert {path: path.read_bytes() for path in before} == before
    assert plain(listed(out)) == orders.rows


def test_what_is_deleted_is_no_reason_to_look_again(orders: Writing, out: Path) -> None:
    orders.publish(200)
    orders.remove(1, 2, 3, 50, 120, 199)
    assert archive(orders, out).state.rows == 194
    orders.remove(60)
    done = archive(orders, out)
    assert (done.rows, done.state.rows, list(done.state.covered)) == (0, 194, [(1, 200)])


def test_days_have_directories_of_their_own(orders: Writing, out: Path) -> None:
    orders.publish(30, step=DAY // 10)
    archive(orders, out)
    table = ds.dataset(out, format="parquet", partitioning="hive").to_table()
    days = table.group_by("date").aggregate([("sequence", "count")]).to_pylist()
    assert {row["date"]: row["sequence_count"] for row in days} == {
        f"2025-10-{day:02}": count for day, count in ((9, 6), (10, 10), (11, 10), (12, 4))
    }
    assert set(table.column("account").to_pylist()) == {"$G"}
    assert set(table.column("stream").to_pylist()) == {"ORDERS"}


def test_hours_may_have_them_too(orders: Writing, out: Path) -> None:
    orders.publish(30, step=DAY // 48)
    archive(orders, out, Options(layout=Layout(partition="hour")))
    assert (out / ORDERS / "date=2025-10-09" / "hour=09").is_dir()
    assert plain(listed(out)) == orders.rows


def test_messages_out_of_the_order_of_time(orders: Writing, out: Path) -> None:
    for at in range(1, 60):
        orders.store.store_msg(b"orders.x", b"", ts=START + (at % 12) * DAY)
        orders.rows[at] = ("orders.x", START + (at % 12) * DAY, b"")
    orders.store.flush_pending()
    archive(orders, out)
    assert plain(listed(out)) == orders.rows
    assert len(list((out / ORDERS).glob("date=*"))) == 12


def test_a_file_ends_at_its_size(orders: Writing, out: Path) -> None:
    orders.publish(2000, size=200)
    layout = Layout(file_bytes=2 * 1024, memory=128 * 1024, compression_level=1)
    archive(orders, out, Options(layout=layout))
    assert len(list(parquet_files(out))) > 2
    assert plain(listed(out)) == orders.rows


def test_ranges(orders: Writing, out: Path) -> None:
    orders.publish(100, step=10**9)
    everything = dict(orders.rows)
    archive(orders, out, Options(first_seq=20, last_seq=40))
    assert sorted(plain(listed(out))) == list(range(20, 41))
    ns = everything[60][1]
    done = archive(orders, out, Options(start_ns=ns, end_ns=ns + 5 * 10**9))
    assert list(done.state.covered) == [(20, 40), (60, 64)]
    archive(orders, out)
    assert plain(listed(out)) == everything


def test_an_empty_stream(orders: Writing, out: Path) -> None:
    assert archive(orders, out).rows == 0
    assert not list(parquet_files(out))


def test_processes(orders: Writing, out: Path) -> None:
    orders.publish(500)
    engine = Processes(2)
    try:
        run_archive([orders.dir], Target(str(out)), engine, SMALL, Silent())
    finally:
        engine.close()
    assert plain(listed(out)) == orders.rows


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    orders = Writing(tmp_path / "store")
    orders.publish(400)
    failing = Failing(monkeypatch)
    options = Options(task_bytes=1)  # one block a task, in two rounds
    archive(orders, tmp_path / "whole", options)
    steps = failing.count
    assert steps > 15
    for step in range(1, steps + 1):
        out = tmp_path / f"out{step}"
        failing.arm(step, after)
        with pytest.raises(Crash):
            archive(orders, out, options)
        failing.disarm()
        consistent(out, orders.rows)
        orders.publish(3)
        archive(orders, out, options)
        assert consistent(out, orders.rows) == orders.rows, step


def test_what_a_dead_job_left_goes_in_the_end(
    orders: Writing, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.publish(200)
    failing = Failing(monkeypatch)
    failing.arm(4, after=False)
    with pytest.raises(Crash):
        archive(orders, out)
    failing.disarm()
    archive(orders, out)
    staging = out / ORDERS / "_staging"
    left = list(staging.rglob("*.staged"))
    assert left
    manifest = manifest_of(out)
    (dead,) = manifest.sweep(manifest.load(), older_than=-1)
    assert left[0].parent.name == dead
    assert not list(staging.rglob("*.staged"))
    assert plain(listed(out)) == orders.rows


def test_a_version_that_was_not_finished_goes_when_it_is_old(orders: Writing, out: Path) -> None:
    orders.publish(10)
    archive(orders, out)
    versions = out / ORDERS / "_manifest"
    old, new = versions / "0000000002.json.a.tmp", versions / "0000000002.json.b.tmp"
    for path in (old, new):
        path.write_bytes(b"{")
    os.utime(old, (time.time() - 2 * 86400,) * 2)
    archive(orders, out)
    assert sorted(path.name for path in versions.iterdir()) == ["0000000001.json", new.name]


def test_a_job_that_was_given_up_does_not_commit(orders: Writing, out: Path) -> None:
    orders.publish(100)
    slow = StreamJob(Target(str(out)).open(), Target(str(out)), orders.source(), SMALL, Silent())
    commit = slow.manifest.commit

    def given_up(*args: Any) -> Any:
        other = Manifest(Target(str(out)).open(), slow.manifest.origin)
        assert other.sweep(other.load(), older_than=-1) == [slow.id]
        return commit(*args)

    slow.manifest.commit = given_up  # type: ignore[method-assign]
    with pytest.raises(ArchiveError, match="given up"):
        slow.run(Inline())
    assert not list(parquet_files(out))
    archive(orders, out)
    assert plain(listed(out)) == orders.rows


class Meanwhile(Inline):
    """An engine that calls a function after the tasks have run and before the job commits them."""

    def __init__(self, *others: Callable[[], object]) -> None:
        self.others = list(others)

    def run(self, function: Any, tasks: Any, done: Any) -> Any:
        results = super().run(function, tasks, done)
        if self.others:
            self.others.pop(0)()
        return results


def test_two_jobs_at_once(orders: Writing, out: Path) -> None:
    orders.publish(100)

    def other() -> None:
        orders.publish(40)
        archive(orders, out)

    report = Silent()
    (done,) = run_archive([orders.dir], Target(str(out)), Meanwhile(other), SMALL, report)
    assert any("archived by another job" in line for line in report.lines)
    assert done.rows == 0
    assert plain(listed(out)) == orders.rows
    assert not list(out.rglob("*.staged"))


def test_the_slower_of_two_jobs_archives_what_is_left(orders: Writing, out: Path) -> None:
    orders.publish(100)
    part = Options(last_seq=30, task_bytes=4096)
    engine = Meanwhile(lambda: archive(orders, out, part))
    (done,) = run_archive([orders.dir], Target(str(out)), engine, SMALL, Silent())
    assert done.rows == 70
    assert plain(listed(out)) == orders.rows


def test_jobs_about_different_messages_do_not_disturb_each_other(orders: Writing, out: Path) -> None:
    orders.publish(100)
    engine = Meanwhile(lambda: archive(orders, out, Options(first_seq=51)))
    (done,) = run_archive([orders.dir], Target(str(out)), engine, Options(last_seq=50), Silent())
    assert (done.rows, list(done.state.covered)) == (50, [(1, 100)])
    assert plain(listed(out)) == orders.rows


def test_an_empty_directory_of_a_dead_job_goes_when_it_is_old(orders: Writing, out: Path) -> None:
    orders.publish(10)
    old, new = (out / ORDERS / "_staging" / name for name in ("old", "new"))
    for path in (old, new):
        path.mkdir(parents=True)
    os.utime(old, (0, 0))
    archive(orders, out)
    assert [path.name for path in old.parent.iterdir()] == ["new"]
    assert manifest_of(out).load().abandoned == {"old"}


def test_many_versions_are_summed_up(orders: Writing, out: Path) -> None:
    for _ in range(70):
        orders.publish(1)
        archive(orders, out)
    manifest = manifest_of(out)
    assert (out / ORDERS / "_manifest" / "0000000064.sum.json").exists()
    state = manifest.load()
    assert (state.version, state.rows, list(state.covered)) == (70, 70, [(1, 70)])
    (out / ORDERS / "_manifest" / "0000000064.sum.json").unlink()
    assert manifest.load() == state


def damage(stream: Writing, block: int) -> None:
    path = stream.directory / "msgs" / f"{block}.blk"
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle] ^= 0xFF
    path.write_bytes(data)


def test_a_damaged_block(orders: Writing, out: Path) -> None:
    orders.publish(200)
    saved = (orders.directory / "msgs" / "2.blk").read_bytes()
    damage(orders, 2)
    report = Silent()
    done = archive(orders, out, report=report)
    (lost,) = done.state.lost
    assert report.warnings
    assert 1 <= lost.last_seq - lost.first_seq + 1 <= 2
    kept = {at: row for at, row in orders.rows.items() if not lost.first_seq <= at <= lost.last_seq}
    assert plain(listed(out)) == kept
    assert not done.state.covered.contains(lost.first_seq, lost.last_seq)
    assert archive(orders, out).rows == 0  # the job does not read it again, unless
    (orders.directory / "msgs" / "2.blk").write_bytes(saved)
    done = archive(orders, out, Options(retry_lost=True))
    assert (done.state.lost, list(done.state.covered)) == ([], [(1, 200)])
    assert plain(listed(out)) == orders.rows


def test_another_stream_of_the_same_name(orders: Writing, out: Path, tmp_path: Path) -> None:
    orders.publish(10)
    archive(orders, out)
    again = Writing(tmp_path / "again", created=CREATED + DAY)
    again.publish(20)
    with pytest.raises(ArchiveError, match=r"created at 2025-10-09.*a target of its own"):
        archive(again, out)


def test_a_stream_that_was_rolled_back(orders: Writing, out: Path, tmp_path: Path) -> None:
    orders.publish(10)
    archive(orders, out)
    again = Writing(tmp_path / "again")
    again.publish(5)
    with pytest.raises(ArchiveError, match=r"ends at sequence 5.*at 10: it was rolled back"):
        archive(again, out)
    again.publish(20, step=3)
    again.remove(7, 8, 9, 10)
    with pytest.raises(ArchiveError, match=r"message 6 .* is another one"):
        archive(again, out)


def test_a_target_that_cannot_be_written(orders: Writing, tmp_path: Path) -> None:
    orders.publish(10)
    (tmp_path / "file").write_text("")
    with pytest.raises(ArchiveError, match="file") as caught:
        archive(orders, tmp_path / "file" / "out")
    assert "\n" not in str(caught.value)
    with pytest.raises(ArchiveError, match="gopher:// is not supported"):
        Target("gopher://somewhere/x").open()


def test_memory_is_bounded_by_the_setting(orders: Writing, out: Path) -> None:
    orders.publish(4000, size=4000)
    layout = Layout(memory=1 << 20)
    before = pa.total_allocated_bytes()
    peak = 0
    original = Storage.errors

    def watched(self: Storage, doing: str, path: str) -> Any:
        nonlocal peak
        peak = max(peak, pa.total_allocated_bytes() - before)
        return original(self, doing, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Storage, "errors", watched)
        archive(orders, out, Options(layout=layout))
    assert 0 < peak < 4 * layout.memory
    assert plain(listed(out)) == orders.rows


@pytest.mark.parametrize(
    "path", ["../../../precious", "/precious", "date=x/../../../precious", "date=x/y", "_manifest/x"]
)
@pytest.mark.parametrize("field", ["path", "staged"])
def test_a_manifest_names_files_of_its_archive_only(
    orders: Writing, out: Path, field: str, path: str
) -> None:
    orders.publish(10)
    archive(orders, out)
    (precious := out.parent / "precious").touch()
    first = out / ORDERS / "_manifest" / "0000000001.json"
    document = json.loads(first.read_text()) | {"covered": []}
    document["add"][0][field] = path.replace("/precious", str(precious)) if path[0] == "/" else path
    first.with_name("0000000002.json").write_text(json.dumps(document))
    document |= {"remove": [document["add"][0]["path"]], "add": []}
    first.with_name("0000000003.json").write_text(json.dumps(document))
    with pytest.raises(
        ArchiveError, match=r"is not what a manifest has: ValueError: .* is no file of an archive"
    ):
        manifest_of(out).recover()
    assert precious.exists()


def test_a_sum_names_files_of_its_archive_only(orders: Writing, out: Path) -> None:
    orders.publish(10)
    state = archive(orders, out).state
    document = state.document() | {"retired": ["../../../precious"]}
    (out / ORDERS / "_manifest" / "0000000001.sum.json").write_text(json.dumps(document))
    (precious := out.parent / "precious").touch()
    with pytest.raises(ArchiveError, match="is no file of an archive"):
        manifest_of(out).recover()
    assert precious.exists()


def test_a_manifest_of_brackets(orders: Writing, out: Path) -> None:
    orders.publish(10)
    archive(orders, out)
    (out / ORDERS / "_manifest" / "0000000002.json").write_text("[" * 100_000)
    with pytest.raises(ArchiveError, match="is not what a manifest has: RecursionError"):
        manifest_of(out).load()
