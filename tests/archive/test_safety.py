"""Cases in which an archive could lack messages, or a server could purge messages that are not archived."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.natspy import jetstream, joined
from support.servers import Server

from gnats.archive.errors import ArchiveError
from gnats.archive.files import batches
from gnats.archive.jobs.broker import Broker, purge_archived
from gnats.archive.jobs.compact import compact
from gnats.archive.jobs.engine import Inline
from gnats.archive.jobs.job import Options, Silent, StreamJob
from gnats.archive.jobs.job import archive as run_archive
from gnats.archive.jobs.plan import check_not_rolled_back
from gnats.archive.jobs.verify import Verified, verify
from gnats.archive.manifest import Change, Manifest, State
from gnats.archive.reading.snapshot import take_snapshot
from gnats.archive.reading.source import StreamSource, read_stream
from gnats.archive.reading.streams import find_stream
from gnats.archive.storage import LocalStorage
from gnats.archive.target import Target
from gnats.archive.writer import Layout
from gnats.jetstream.disk.metafiles import write_stream_meta
from gnats.jetstream.settings.config import StreamConfig

from .stores import CREATED, ORDERS, SMALL, Writing, archive, listed, manifest_of, parquet_files, plain

pytestmark = pytest.mark.timeout(120)


class Around(Inline):
    """An engine that calls one function before the tasks and one after them."""

    def __init__(self, before: Callable[[], object], after: Callable[[], object] = lambda: None) -> None:
        self.before = before
        self.after = after

    def run(self, function: Any, tasks: Any, done: Any) -> Any:
        self.before()
        try:
            return super().run(function, tasks, done)
        finally:
            self.before = lambda: None
            self.after()


def verified(stream: Writing, out: Path, engine: Inline | None = None) -> Verified:
    return verify(Target(str(out)), manifest_of(out), stream.source(), engine or Inline())


def compacted(out: Path) -> None:
    manifest = manifest_of(out)
    compact(manifest.storage, Target(str(out)), manifest, Inline(), Layout())


def limited(stream: Writing, **limits: int) -> None:
    """Write limits into a stream's description only, so that its files hold more than the limits allow.

    So do a server's files when it removed other messages by age before it applied the limits.
    """
    write_stream_meta(stream.directory, StreamConfig(name="ORDERS", storage="file", **limits), CREATED)


@pytest.mark.parametrize("limit", ["max_msgs", "max_bytes", "max_msgs_per_subject"])
def test_limits_drop_nothing_that_the_server_may_still_have(orders: Writing, out: Path, limit: str) -> None:
    orders.publish(100)
    limited(orders, **{limit: 10})
    assert orders.source().snapshot().messages < 100
    archive(orders, out)
    assert plain(listed(out)) == orders.rows
    assert not verified(orders, out).problems


def test_nothing_is_verified_that_has_come_since(orders: Writing, out: Path) -> None:
    def more() -> None:
        orders.publish(100)
        archive(orders, out)

    more()
    done = verified(orders, out, Around(more))
    assert (done.problems, list(done.good), done.state.last_seq) == ([], [(1, 100)], 200)


def test_what_another_job_has_archived_is_no_roll_back(orders: Writing, out: Path) -> None:
    orders.publish(100)
    target = Target(str(out))
    job = StreamJob(target.open(), target, orders.source(), SMALL, Silent())
    orders.publish(50)
    archive(orders, out)
    assert job.run(Inline()).rows == 0


def test_sequences_that_are_given_out_again_are_no_deletes(
    orders: Writing, out: Path, tmp_path: Path
) -> None:
    """A server that loses unsynced data loses messages, and removals from before the archiving."""
    orders.publish(100)
    orders.remove(*range(51, 101))
    done = archive(orders, out)
    assert (done.rows, done.state.last_seq) == (50, 100)
    forgetful = Writing(tmp_path / "forgetful")
    forgetful.publish(100)  # with its removed messages back, and no others
    assert archive(forgetful, out).rows == 0
    again = Writing(tmp_path / "again")
    again.publish(50)
    again.publish(60, step=10**17)
    with pytest.raises(ArchiveError, match=r"message 51 of .* was rolled back"):
        archive(again, out)


@pytest.mark.parametrize("versions", [1, 64])
def test_when_sequences_were_archived_is_remembered(orders: Writing, out: Path, versions: int) -> None:
    orders.publish(1)
    before = int(time.time()) * 10**9
    archive(orders, out)
    after = time.time_ns()
    manifest = manifest_of(out)
    for _ in range(versions - 1):
        manifest.commit(Change("verify", "", verified=((1, 1),)))
    assert before <= manifest.load().archived_at <= after


def test_a_verification_that_begins_again_beside_an_archive(
    orders: Writing, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction of a file to verify, and newly archived messages, do not look like a roll-back."""
    for _ in range(2):
        orders.publish(50)
        archive(orders, out)

    def overtaken(*args: Any) -> None:
        monkeypatch.undo()
        orders.publish(50)
        archive(orders, out)
        compacted(out)
        check_not_rolled_back(*args)

    monkeypatch.setattr("gnats.archive.jobs.plan.check_not_rolled_back", overtaken)
    done = verified(orders, out)
    assert (done.problems, list(done.good)) == ([], [(1, 100)])


def test_an_archive_that_is_ahead_of_its_stream_is_not_verified(
    orders: Writing, out: Path, tmp_path: Path
) -> None:
    orders.publish(100)
    archive(orders, out)
    again = Writing(tmp_path / "again")
    again.publish(50)
    done = verified(again, out)
    assert "it was rolled back" in done.problems[0]
    assert not len(done.good)


def test_a_directory_that_is_gone_for_a_moment_is_no_delete(
    orders: Writing, out: Path, tmp_path: Path
) -> None:
    orders.publish(400)
    there, aside = orders.directory / "msgs", tmp_path / "aside"
    engine = Around(lambda: there.rename(aside), lambda: aside.rename(there))
    with pytest.raises(ArchiveError):
        run_archive([orders.dir], Target(str(out)), engine, SMALL, Silent())
    assert archive(orders, out).rows == 400


def test_blocks_that_come_back_are_no_deletes(
    orders: Writing, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.publish(400)
    there, aside = orders.directory / "msgs", tmp_path / "aside"

    def back(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        aside.rename(there)
        return take_snapshot(*args, **options)

    monkeypatch.setattr("gnats.archive.reading.snapshot.take_snapshot", back)
    with pytest.raises(ArchiveError, match="was replaced while it was read"):
        run_archive([orders.dir], Target(str(out)), Around(lambda: there.rename(aside)), SMALL, Silent())
    assert archive(orders, out).rows == 400


def test_a_reader_of_a_stream_that_is_replaced_says_so(orders: Writing, tmp_path: Path) -> None:
    orders.publish(400)
    there, aside = orders.directory / "msgs", tmp_path / "aside"
    reader = read_stream(orders.root, batch_rows=1)
    assert reader.read_next_batch()["sequence"].to_pylist() == [1]
    there.rename(aside)
    there.mkdir()
    for path in aside.glob("*.blk"):
        shutil.copy(path, there / f"{int(path.stem) + 1000}.blk")
    with pytest.raises(ArchiveError, match="was replaced while it was read"):
        reader.read_all()


def test_a_damaged_end_is_no_end(orders: Writing, out: Path) -> None:
    orders.publish(400)
    blocks = sorted(orders.directory.glob("msgs/*.blk"), key=lambda path: int(path.stem))
    good = blocks[-1].read_bytes()
    blocks[-1].write_bytes(bytes(len(good)))
    report = Silent()
    done = archive(orders, out, report=report)
    assert 300 < done.rows < 400
    assert f"block {blocks[-1].stem}" in report.warnings[0]
    assert archive(orders, out).damage  # the next job reports it again
    blocks[-1].write_bytes(good)
    assert archive(orders, out).state.rows == 400


def test_a_block_that_is_missing_is_lost_and_found(orders: Writing, out: Path) -> None:
    orders.publish(400)
    orders.store.close()
    path = orders.directory / "msgs" / "3.blk"
    data = path.read_bytes()
    path.unlink()
    report = Silent()
    done = archive(orders, out, report=report)
    assert "the file is missing" in report.warnings[0]
    ((first, last),) = ((each.first_seq, each.last_seq) for each in done.state.lost)
    assert done.rows == 400 - (last + 1 - first)
    assert not done.state.covered.intersects([(first, last)])
    path.write_bytes(data)
    assert archive(orders, out).rows == 0
    assert archive(orders, out, Options(retry_lost=True)).state.rows == 400


def test_an_answer_that_was_lost_is_no_refusal(
    orders: Writing, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of two attempts may have made the link (NFS), the rename (HDFS) or the object (S3)."""
    create = LocalStorage.create
    monkeypatch.setattr(LocalStorage, "create", lambda *args: create(*args) and False)
    orders.publish(100)
    assert archive(orders, out).rows == 100
    assert plain(listed(out)) == orders.rows
    assert not verified(orders, out).problems


def test_a_job_that_is_overtaken_keeps_what_it_has_committed(
    orders: Writing, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a job's commit and its renames, other jobs publish its files, compact them and delete them."""
    for _ in range(3):
        orders.publish(50)
        archive(orders, out)
    orders.publish(50)
    commit = Manifest.commit

    def overtaken(self: Manifest, change: Change, *more: Any) -> State:
        state = commit(self, change, *more)
        if change.kind == "archive":
            monkeypatch.undo()
            compacted(out)
        return state

    monkeypatch.setattr(Manifest, "commit", overtaken)
    assert archive(orders, out).rows == 50
    assert plain(listed(out)) == orders.rows


def test_a_compaction_that_gives_up_a_job_beside_one_that_is_slow(
    orders: Writing, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compaction learns of the slow job's files after it has looked for files to publish.

    It must publish them before it replaces them: otherwise the slow job would bring them back later.
    """
    for _ in range(2):
        orders.publish(50)
        archive(orders, out)
    orders.publish(50)
    dead = out / ORDERS / "_staging" / "dead"
    dead.mkdir()
    os.utime(dead, (0, 0))
    publish, sweep = Manifest.publish, Manifest.sweep
    late: list[tuple[Any, ...]] = []

    def slow(self: Manifest, state: State, entries: Any = None) -> list[Any]:
        if entries is not None:
            late.append((self, state, entries))
        return []

    def commits_now(self: Manifest, *args: Any, **options: Any) -> list[str]:
        monkeypatch.setattr(Manifest, "publish", slow)
        monkeypatch.setattr(Manifest, "sweep", lambda *args, **options: [])
        archive(orders, out)
        monkeypatch.undo()
        return sweep(self, *args, **options)

    monkeypatch.setattr(Manifest, "sweep", commits_now)
    compacted(out)
    assert len(late) == 1
    publish(*late[0])
    assert plain(listed(out)) == orders.rows
    assert not verified(orders, out).problems


def test_a_verification_beside_an_archive_and_a_compaction(orders: Writing, out: Path) -> None:
    """A verified file becomes part of a larger one, whose later messages are not verified."""

    def more() -> None:
        orders.publish(50)
        archive(orders, out)

    more()
    more()

    def overtaken() -> None:
        more()
        compacted(out)

    done = verified(orders, out, engine=Around(overtaken))
    assert (done.problems, list(done.good)) == ([], [(1, 100)])


def test_a_verification_beside_a_compaction(orders: Writing, out: Path) -> None:
    for _ in range(3):
        orders.publish(50)
        archive(orders, out)
    done = verified(orders, out, engine=Around(lambda: compacted(out)))
    assert (done.problems, done.rows, list(done.good)) == ([], 150, [(1, 150)])


def rewritten(path: Path, column: str, values: pa.Array) -> None:
    table = pq.read_table(path, partitioning=None)
    at = table.schema.get_field_index(column)
    pq.write_table(table.set_column(at, table.schema.field(at), values), path)


def test_columns_that_do_not_agree_are_found(orders: Writing, out: Path) -> None:
    orders.publish(100)
    archive(orders, out)
    (path,) = parquet_files(out)
    good = path.read_bytes()
    rewritten(path, "size", pa.array([7] * 100, pa.int64()))
    assert "a time or a size" in verified(orders, out).problems[0]
    path.write_bytes(good)
    rewritten(path, "time", pa.array([0] * 100, pa.timestamp("us", "UTC")))
    assert "a time or a size" in verified(orders, out).problems[0]
    path.write_bytes(good)
    assert not verified(orders, out).problems


def test_no_flipped_bit_changes_a_value_unseen(orders: Writing, out: Path) -> None:
    orders.publish(100)
    archive(orders, out)
    (path,) = parquet_files(out)
    manifest = manifest_of(out)
    (entry,) = manifest.load().entries
    good = path.read_bytes()
    rows = pa.Table.from_batches(list(batches(manifest, entry)))
    seen = 0
    for at in range(0, len(good), 3):
        data = bytearray(good)
        data[at] ^= 1 << at % 8
        path.write_bytes(data)
        try:
            assert pa.Table.from_batches(list(batches(manifest, entry))).equals(rows), at
        except ArchiveError:
            seen += 1
    assert seen > len(good) // 6


def in_store(server: Server, account: str) -> StreamSource:
    return StreamSource(find_stream(server.directory / "js", "ORDERS", account))


def archived(source: StreamSource, out: Path) -> Verified:
    target = Target(str(out))
    (done,) = run_archive([source.stream], target, Inline(), Options(), Silent())
    return verify(target, done.manifest, source, Inline(), only_present=True)


ACCOUNTS = """
jetstream { store_dir: js }
accounts {
  A { jetstream: enabled, users: [{ user: a, password: a }] }
  B { jetstream: enabled, users: [{ user: b, password: b }] }
}
"""


async def test_another_account_is_not_purged(launch: Callable[..., Server], out: Path) -> None:
    server = launch(config=ACCOUNTS)
    for user in ("a", "b"):
        async with joined(server.url, user=user, password=user) as client:
            js = jetstream(client)
            await js.add_stream(name="ORDERS", subjects=["orders"])
            for _ in range(5):
                await js.publish("orders", user.encode())
    done = archived(in_store(server, "A"), out)
    host = server.url.removeprefix("nats://")
    with pytest.raises(ArchiveError, match="this is account B, the archive is of A; nothing is purged"):
        await asyncio.to_thread(purge_archived, Broker(f"nats://b:b@{host}"), done)
    assert (await asyncio.to_thread(purge_archived, Broker(f"nats://a:a@{host}"), done)).count == 5


@pytest.mark.parametrize("common", [0, 5])
async def test_a_copy_that_went_its_own_way_is_not_purged(
    launch: Callable[..., Server], out: Path, tmp_path: Path, common: int
) -> None:
    """No purge of another server's stream, or of a restored store's, with the same name and creation time.

    Such a stream may have the same messages at its beginning.
    """
    server = launch(config="jetstream { store_dir: js }")
    async with joined(server.url) as client:
        js = jetstream(client)
        await js.add_stream(name="ORDERS", subjects=["orders"])
        for _ in range(common):
            await js.publish("orders", b"")
    copy = tmp_path / "copy"
    shutil.copytree(server.directory / "js", copy)
    other = launch(config=f"jetstream {{ store_dir: {copy} }}")
    for each in (server, other):
        async with joined(each.url) as client:
            js = jetstream(client)
            for _ in range(5):
                await js.publish("orders", b"")
            await js.delete_msg("ORDERS", common + 3)
            if each is other:  # its last message is not its last sequence
                await js.delete_msg("ORDERS", common + 5)
    done = archived(in_store(server, "$G"), out)
    differs = f"message {common + 4 if common else 1} of stream ORDERS is not the archived one"
    with pytest.raises(ArchiveError, match=differs):
        await asyncio.to_thread(purge_archived, Broker(other.url), done)
    assert (await asyncio.to_thread(purge_archived, Broker(server.url), done)).count == common + 4


def test_jobs_beside_each_other(orders: Writing, out: Path) -> None:
    """Two jobs archive, one compacts and one verifies, while the stream stores messages."""
    orders.publish(50)
    archive(orders, out)
    enough = threading.Event()

    def archives() -> list[str]:
        found = []
        while not enough.is_set():
            found += archive(orders, out).damage
        return found

    def compacts() -> list[str]:
        while not enough.is_set():
            with suppress(ArchiveError):  # another job may be faster
                compacted(out)
        return []

    def verifies() -> list[str]:
        found = []
        while not enough.is_set():
            found += verified(orders, out).problems
        return found

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(each) for each in (archives, archives, compacts, verifies)]
        for _ in range(20):
            orders.publish(10)
            if wait(jobs, timeout=0.1).done:
                break
        enough.set()
        assert [job.result() for job in jobs] == [[], [], [], []]
    archive(orders, out)
    assert plain(listed(out)) == orders.rows
    assert not verified(orders, out).problems
