"""The archive job: copy the new messages of streams from a store to a target.

A job archives a stream in rounds, and commits each. So a first run over a large stream that is interrupted
continues after its last commit."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from gnats.archive.errors import ArchiveError
from gnats.archive.jobs.engine import Engine
from gnats.archive.jobs.plan import (
    Result,
    Task,
    missing,
    not_rolled_back,
    origin_of,
    run_task,
    sequences_of,
    tasks,
)
from gnats.archive.manifest import (
    MANIFEST,
    Change,
    Lost,
    Manifest,
    Origin,
    Overlap,
    State,
    check_partition,
)
from gnats.archive.ranges import Ranges
from gnats.archive.reading.backups import opened
from gnats.archive.reading.source import Damage, Selection, Snapshot, StreamSource
from gnats.archive.reading.streams import Keys, StreamDir
from gnats.archive.storage import Storage
from gnats.archive.target import Target
from gnats.archive.writer import Layout

MIN_TASK = 64 << 20
MAX_TASK = 512 << 20
"""Most bytes of blocks for a task."""
TASKS_A_ROUND = 8
"""Tasks for each of the engine's processes between two commits."""
ATTEMPTS = 10
"""Attempts at a run when other jobs archive the same messages first."""


class Report(Protocol):
    """Receives the progress of a run."""

    def begin(self, stream: str, size: int) -> None: ...

    def advance(self, size: int) -> None: ...

    def line(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def end(self) -> None: ...


class Silent:
    """A Report that only collects warnings."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.warnings: list[str] = []

    def begin(self, stream: str, size: int) -> None:
        pass

    def advance(self, size: int) -> None:
        pass

    def line(self, text: str) -> None:
        self.lines.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def end(self) -> None:
        pass


@dataclass(frozen=True)
class Options:
    """The part of each stream to archive, and the layout.

    Times are ns since 1970, without the end; sequences include both ends.
    """

    first_seq: int = 1
    last_seq: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    retry_lost: bool = False
    layout: Layout = field(default_factory=Layout)
    task_bytes: int | None = None
    """Bytes of blocks for a task; None: depends on the engine's parallelism."""


@dataclass
class Archived:
    """The result of a run for a stream."""

    stream: StreamDir
    manifest: Manifest
    state: State
    rows: int = 0
    payload_bytes: int = 0
    files: int = 0
    damage: list[str] = field(default_factory=list)


class StreamJob:
    """One run over one stream."""

    def __init__(
        self, storage: Storage, target: Target, source: StreamSource, options: Options, report: Report
    ) -> None:
        self.storage = storage
        self.target = target
        self.options = options
        self.report = report
        self.id = uuid.uuid4().hex
        self.source = source
        self.manifest = Manifest(storage, Origin(source.stream.account, source.stream.name))
        self._committing = False
        """Whether a version may be on its way to the target, so that its outcome is unknown."""
        self.name = f"{source.stream.account} > {source.stream.name}"

    def _range(self) -> tuple[int, int]:
        options = self.options
        first, last = sequences_of(self.snapshot, options.start_ns, options.end_ns)
        if options.last_seq is not None:
            last = min(last, options.last_seq)
        return max(first, options.first_seq), last

    def run(self, engine: Engine) -> Archived:
        """Archive the present messages that are not archived. Raises ArchiveError."""
        state = self.manifest.recover(own=self.id)
        # After recover(): an earlier snapshot might lack messages that another job has archived meanwhile.
        self.snapshot: Snapshot = self.source.snapshot(limits=False)
        self.manifest.origin = origin_of(self.snapshot)
        self.manifest.check_origin(state)
        state = not_rolled_back(self.snapshot, self.manifest, state)
        done = Archived(self.source.stream, self.manifest, state)
        for each in (*self.snapshot.damage, *self._damaged_end()):
            done.damage.append(str(each))
            self.report.warn(f"{self.name}: {each}")
        first, last = self._range()
        retry_lost = self.options.retry_lost
        for _ in range(ATTEMPTS):
            wanted = missing(done.state, first, last, retry_lost)
            if not len(wanted):
                return done
            try:
                self._archive(engine, wanted, done)
            except Overlap as overlap:
                self._committing = False
                self.report.line(f"{self.name}: {overlap}; looking again")
                done.state = self.manifest.load()
                self.manifest.sweep(done.state, own=self.id)
            except BaseException:
                with suppress(ArchiveError):  # else another job cleans up after a day
                    self._give_up()
                raise
            retry_lost = False
        raise ArchiveError(
            f"{self.name}: other jobs archive it as well, {ATTEMPTS} times faster than this one"
        )

    def _give_up(self) -> None:
        """Delete files that this job has staged and that no version names. All its tasks must have ended.

        When a commit may be on its way, abandon the job first: the commit then comes before that, or never.
        """
        state = self.manifest.load()
        if self._committing and self.id not in state.abandoned:
            state = self.manifest.commit(Change("abandon", self.id, abandoned=(self.id,)))
        self.manifest.sweep(state, own=self.id)

    def _archive(self, engine: Engine, wanted: Ranges, done: Archived) -> None:
        size = sum(block.size for a, b in wanted for block in self.snapshot.select(Selection(a, b)))
        parallelism = engine.parallelism if size else 1
        task_bytes = self.options.task_bytes or min(max(size // (2 * parallelism), MIN_TASK), MAX_TASK)
        planned = list(tasks(self.manifest.origin, self.snapshot, wanted, task_bytes))
        self.report.begin(self.name, sum(task.size for task in planned))
        function = partial(run_task, target=self.target, job=self.id, layout=self.options.layout)
        for group in rounds(planned, TASKS_A_ROUND * parallelism):
            heavy = [task for task in group if task.snapshot.blocks]
            results = {id(t): r for t, r in zip(heavy, self._run(engine, function, heavy), strict=True)}
            self._commit(
                [results.get(id(t)) or Result(t.first_seq, t.last_seq, (), (), ()) for t in group], done
            )
        self.report.end()

    def _run(self, engine: Engine, function: Callable[[Task], Result], group: list[Task]) -> list[Result]:
        if not group:
            return []
        seen = 0

        def progress(count: int) -> None:
            nonlocal seen
            self.report.advance(sum(task.size for task in group[seen:count]))
            seen = max(seen, count)

        results = engine.run(function, group, progress)
        failed = [result.failed for result in results if result.failed]
        if failed:
            raise ArchiveError(f"{self.name}: {failed[0]}")
        return results

    def _damaged_end(self) -> list[Damage]:
        """Return the damage in blocks after the last message, which no task reads."""
        blocks = [
            each for each in self.snapshot.blocks if each.damaged and not (each.last_seq or each.before)
        ]
        if not blocks:
            return []
        scan = self.snapshot.scan(blocks=blocks)
        for _ in scan.reader:
            pass
        return scan.damage

    def _missing(self, first: int, last: int) -> Iterator[Lost]:
        """Yield the sequences of missing blocks, which no task reads."""
        for each in self.snapshot.damage:
            if each.first_seq is None or each.last_seq is None:
                continue
            for a, b in Ranges([(each.first_seq, each.last_seq)]).within(first, last):
                yield Lost(a, b, str(each))

    def _commit(self, results: list[Result], done: Archived) -> None:
        lost = [each for result in results for each in result.lost]
        for result in results:
            lost += self._missing(result.first_seq, result.last_seq)
        covered = Ranges((result.first_seq, result.last_seq) for result in results)
        covered = covered.without((each.first_seq, each.last_seq) for each in lost)
        entries = tuple(entry for result in results for entry in result.entries)
        change = Change(
            "archive",
            self.id,
            covered=tuple(covered),
            add=entries,
            lost=tuple(lost),
        )
        self._committing = True
        done.state = self.manifest.commit(change)
        self._committing = False
        for result in results:
            done.damage += result.damage
            for text in result.damage:
                self.report.warn(f"{self.name}: {text}")
        done.rows += sum(entry.rows for entry in entries)
        done.payload_bytes += sum(entry.payload_bytes for entry in entries)
        done.files += len(entries)
        self.manifest.publish(done.state, entries)
        self.manifest.sweep(done.state, own=self.id)


def rounds(planned: list[Task], count: int) -> Iterator[list[Task]]:
    for at in range(0, len(planned), count):
        yield planned[at : at + count]


def archive(
    streams: Iterable[StreamDir],
    target: Target,
    engine: Engine,
    options: Options,
    report: Report,
    keys: Keys | None = None,
    work_dir: str | None = None,
    each: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> list[Archived]:
    """Archive streams one after the other. Raises ArchiveError at a failure, unless `each` suppresses it.

    `each` is the context of the work on one stream. Backups are unpacked below work_dir, one at a time; all
    tasks must be able to read it.
    """
    storage = target.open()
    streams = list(streams)
    if streams:
        check_partition(storage, options.layout.partition)
        first = Manifest(storage, Origin(streams[0].account, streams[0].name))
        storage.check_create(first.path(MANIFEST))
    results = []
    for stream in streams:
        with each():
            with opened(stream, work_dir) as there:
                job = StreamJob(storage, target, StreamSource(there, keys), options, report)
                done = job.run(engine)
            results.append(done)
            report.line(
                f"{job.name}: {done.rows:,} messages archived "
                f"({done.payload_bytes:,} bytes, {done.files} files), "
                f"{done.state.rows:,} in all, up to sequence {done.state.last_seq:,}"
            )
    return results
