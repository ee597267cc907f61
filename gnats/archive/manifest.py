"""The manifest of an archived stream: which sequences are archived, and which files have them.

It is a log of versions beside the files: `_manifest/0000000001.json` and so on. Only one job can create a
version with a given number (`Storage.create`), so commits have one order. The state is the sum of all
versions. Versions are never changed or deleted. Every 64th comes with the sum up to it
(`0000000064.sum.json`), so that reading needs few requests.

The life of a file:

1. A task writes it to `_staging/JOB/`, under a unique name that readers do not take for data.
2. The job commits a version that names all its files. *This* makes all of them part of the archive, at once.
3. The job renames them to their final names, `date=.../FIRST-LAST.parquet`, which directory listings show.

A crash before 2 leaves files that are not part of the archive. After a later crash, the next job renames the
files (`publish`). So a listing never shows a file that is half-written, uncommitted or committed twice. It
may lack files for a moment: right after a commit, and while compacted files replace others. A reader that
must see all files reads the manifest.

When another job has created a job's next number, the job reads that version. When both archived the same
sequences, it drops its own files; otherwise it tries the next number. Files of a dead job are deleted after a
version has abandoned the job (`abandoned`). If the job is alive after all, it finds that version before it
commits, and stops."""

from __future__ import annotations

import json
import posixpath
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from gnats.archive.errors import ArchiveError
from gnats.archive.ranges import Ranges
from gnats.archive.storage import TEMPORARY, Storage, shown
from gnats.go.json import compact
from gnats.go.times import unix_ns

FORMAT = 1
MANIFEST = "_manifest"
STAGING = "_staging"
SUM_EVERY = 64
ABANDONED_AFTER = 24 * 3600.0
"""Seconds without a new file after which a job that has not committed counts as dead."""

_VERSION = re.compile(r"(\d{10,})\.json")
_SUM = re.compile(r"(\d{10,})\.sum\.json")
_PATH = re.compile(r"date=[^/]+/(hour=[^/]+/)?[^/]+\.parquet")
_STAGED = re.compile(rf"{STAGING}/(?!\.{{1,2}}/)[^/]+/[^/]+\.staged")
"""Restricts the files that a manifest can make a job move or delete."""


def _matched(pattern: re.Pattern[str], path: str) -> str:
    """Return a path that matches. Raises ValueError for another one."""
    if not pattern.fullmatch(path):
        raise ValueError(f"{path!r} is no file of an archive")
    return path


class Overlap(Exception):
    """Another job has archived some of the same messages meanwhile."""


@dataclass(frozen=True)
class Entry:
    """A file of the archive. Paths are relative to the stream's directory.

    `staged` is where it was written; `digest` is of its rows (`gnats.archive.digest`), in hex.
    """

    path: str
    staged: str
    file_bytes: int
    rows: int
    payload_bytes: int
    first_seq: int
    last_seq: int
    first_ns: int
    last_ns: int
    first_subject: str
    last_subject: str
    digest: str

    def __post_init__(self) -> None:
        """Check the paths. Raises ValueError."""
        _matched(_PATH, self.path)
        _matched(_STAGED, self.staged)


@dataclass(frozen=True)
class Origin:
    """The identity of a stream: account, name, and time of creation (RFC 3339, "" when unknown).

    A stream that is deleted and made again has other messages under the same sequences.
    """

    account: str
    stream: str
    created: str = ""

    @property
    def directory(self) -> str:
        """The directory of the stream's archive, relative to the target."""
        return f"account={quote(self.account, safe='$-_. @')}/stream={quote(self.stream, safe='$-_. @')}"


@dataclass(frozen=True)
class Lost:
    """Sequences in a damaged part of a block, which are not archived, and the reason."""

    first_seq: int
    last_seq: int
    reason: str


@dataclass(frozen=True)
class Change:
    """The content of one commit."""

    kind: str
    job: str
    covered: tuple[tuple[int, int], ...] = ()
    """Ranges of sequences that are archived now, with or without a message."""
    add: tuple[Entry, ...] = ()
    remove: tuple[str, ...] = ()
    """Files that are no longer part of the archive."""
    deleted: tuple[str, ...] = ()
    """Removed files that no longer exist."""
    lost: tuple[Lost, ...] = ()
    verified: tuple[tuple[int, int], ...] = ()
    abandoned: tuple[str, ...] = ()


@dataclass
class State:
    """The sum of all versions up to `version`."""

    origin: Origin
    version: int = 0
    covered: Ranges = field(default_factory=Ranges)
    verified: Ranges = field(default_factory=Ranges)
    files: dict[str, Entry] = field(default_factory=dict)
    retired: set[str] = field(default_factory=set)
    """Files that were replaced, and may still exist."""
    lost: list[Lost] = field(default_factory=list)
    abandoned: set[str] = field(default_factory=set)
    archived_at: int = 0
    """Time of the last version that archived messages: ns since 1970, in whole seconds; 0: unknown."""

    @property
    def entries(self) -> list[Entry]:
        """The files, in the order of their first sequences."""
        return sorted(self.files.values(), key=lambda entry: (entry.first_seq, entry.last_seq))

    @property
    def last_seq(self) -> int:
        """The last archived sequence, 0 without one."""
        return max((last for _, last in self.covered), default=0)

    @property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.files.values())

    def apply(self, change: Change, at: str) -> None:
        for path in change.remove:
            del self.files[path]
        self.retired = (self.retired | set(change.remove)) - set(change.deleted)
        for entry in change.add:
            self.files[entry.path] = entry
        self.covered.add(change.covered)
        self.verified.add(change.verified)
        self.lost = [each for each in self.lost if not self.covered.contains(each.first_seq, each.last_seq)]
        self.lost += [each for each in change.lost if each not in self.lost]
        self.abandoned |= set(change.abandoned)
        if change.covered:
            self.archived_at = unix_ns(at)

    def document(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": self.version,
            "stream": asdict(self.origin),
            "covered": list(self.covered),
            "verified": list(self.verified),
            "files": [asdict(entry) for entry in self.entries],
            "retired": sorted(self.retired),
            "lost": [asdict(each) for each in self.lost],
            "abandoned": sorted(self.abandoned),
            "archived_at": self.archived_at,
        }

    @classmethod
    def of(cls, document: dict[str, Any]) -> State:
        return cls(
            Origin(**document["stream"]),
            document["version"],
            Ranges(document["covered"]),
            Ranges(document["verified"]),
            {each["path"]: Entry(**each) for each in document["files"]},
            {_matched(_PATH, path) for path in document["retired"]},
            [Lost(**each) for each in document["lost"]],
            set(document["abandoned"]),
            document.get("archived_at", 0),  # absent in older documents
        )


def _change(document: dict[str, Any]) -> Change:
    return Change(
        document["kind"],
        document["job"],
        tuple((first, last) for first, last in document["covered"]),
        tuple(Entry(**each) for each in document["add"]),
        tuple(document["remove"]),
        tuple(document["deleted"]),
        tuple(Lost(**each) for each in document["lost"]),
        tuple((first, last) for first, last in document["verified"]),
        tuple(document["abandoned"]),
    )


class Manifest:
    """The manifest of one archived stream in a target."""

    def __init__(self, storage: Storage, origin: Origin) -> None:
        self.storage = storage
        self.origin = origin
        self.directory = origin.directory

    def path(self, relative: str) -> str:
        """Convert a path in the stream's archive to a path in the target."""
        return posixpath.join(self.directory, relative)

    def _version_path(self, version: int, kind: str = "json") -> str:
        return self.path(f"{MANIFEST}/{version:010}.{kind}")

    def exists(self) -> bool:
        return any(_VERSION.fullmatch(name) for name in self.storage.names(self.path(MANIFEST)))

    def load(self) -> State:
        """Read the present state. Raises ArchiveError when it cannot be read, or has a later format."""
        names = self.storage.names(self.path(MANIFEST))
        versions = {int(found[1]) for found in map(_VERSION.fullmatch, names) if found}
        sums = [int(found[1]) for found in map(_SUM.fullmatch, names) if found]
        state = State(self.origin)
        if sums:
            with self._reading(self._version_path(max(sums), "sum.json")) as document:
                state = State.of(document)
        for version in range(state.version + 1, max(versions, default=0) + 1):
            with self._reading(self._version_path(version)) as document:
                state.version = version
                state.origin = Origin(**document["stream"])
                state.apply(_change(document), document["at"])
        return state

    @contextmanager
    def _reading(self, path: str) -> Iterator[dict[str, Any]]:
        """Read a document. Raises ArchiveError, also for errors of malformed content within the context."""
        where = f"{shown(self.storage.url)}/{path}"
        try:
            document: dict[str, Any] = json.loads(self.storage.read(path))
            if document["format"] != FORMAT:
                raise ArchiveError(f"{where} has format {document['format']}, not {FORMAT}")
            yield document
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
            raise ArchiveError(f"{where} is not what a manifest has: {type(exc).__name__}: {exc}") from None

    def check_origin(self, state: State) -> None:
        """Raise ArchiveError when the archive is of another stream of the same name."""
        archived, now = state.origin.created, self.origin.created
        if archived and now and archived != now:
            raise ArchiveError(
                f"{shown(self.storage.url)}/{self.directory} is of a stream that was created at {archived}, "
                f"this one was at {now}: it needs a target of its own"
            )

    def commit(self, change: Change, check: Callable[[State], None] = lambda state: None) -> State:
        """Append a version, and return the state with it.

        Raises Overlap, with nothing changed, when another job has committed some of the same sequences or
        replaced the same files; ArchiveError when another job has abandoned this one. `check` is called with
        the state before each attempt, and may raise."""
        while True:
            state = self.load()
            self.check_origin(state)
            if change.job in state.abandoned and not change.abandoned:
                raise ArchiveError(
                    f"{self.directory}: this job was taken for dead and given up by another one"
                )
            if state.covered.intersects(change.covered):
                raise Overlap("some of the messages were archived by another job")
            if any(path not in state.files for path in change.remove):
                raise Overlap("some of the files were replaced by another job")
            check(state)
            clash = {entry.path for entry in change.add} & (state.files.keys() | state.retired)
            if clash:
                raise ArchiveError(f"{self.directory}: {min(clash)} is archived twice")
            version = state.version + 1
            origin = state.origin if state.origin.created else self.origin
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            about = {"format": FORMAT, "version": version, "stream": asdict(origin), "at": at}
            document = about | asdict(change)
            path, text = self._version_path(version), _json(document)
            # A refused version may still be ours: the answer to an earlier attempt may have been lost.
            if self.storage.create(path, text) or self.storage.read(path) == text:
                state.version, state.origin = version, origin
                state.apply(change, at)
                if version % SUM_EVERY == 0:
                    self.storage.create(self._version_path(version, "sum.json"), _json(state.document()))
                return state

    def recover(self, own: str = "") -> State:
        """Finish the work of earlier jobs that were interrupted; return the state after that."""
        state = self.load()
        self.check_origin(state)
        if state.retired:
            state = self.retire(state)
        if self.sweep(state, own=own):
            state = self.load()
        # Last, so that every file of the state has its final name. A file without one could be named after a
        # later job has replaced it.
        self.publish(state)
        self._sweep_versions()
        return state

    def _sweep_versions(self) -> None:
        """Delete unfinished versions of dead jobs."""
        for path, modified in self.storage.tree(self.path(MANIFEST)).items():
            if path.endswith(TEMPORARY) and modified < time.time() - ABANDONED_AFTER:
                self.storage.delete(self.path(f"{MANIFEST}/{path}"))

    def retire(self, state: State, job: str = "") -> State:
        """Delete files that were replaced, and commit that."""
        retired = tuple(sorted(state.retired))
        for path in retired:
            self.storage.delete(self.path(path))
        return self.commit(Change("clean", job, deleted=retired))

    def publish(self, state: State, entries: Iterable[Entry] | None = None) -> list[Entry]:
        """Give committed files their final names; return those that did not have them.

        Without `entries`, search the files that earlier jobs left without their names.
        """
        if entries is None:
            staged = self.storage.tree(self.path(STAGING))
            entries = [e for e in state.entries if e.staged.removeprefix(f"{STAGING}/") in staged]
        done = []
        for entry in entries:
            try:
                self.storage.move(self.path(entry.staged), self.path(entry.path))
            except ArchiveError:
                if entry.path in self.load().files:
                    raise
                continue  # other jobs have published, compacted and deleted it meanwhile
            done.append(entry)
        return done

    def find(self, entry: Entry) -> str:
        """Return a file's present path in the target. Raises ArchiveError when the file is missing."""
        for path in (
            entry.path,
            entry.staged,
            entry.path,
        ):  # again the first: the file may have been renamed between the two checks
            if self.storage.exists(self.path(path)):
                return self.path(path)
        raise ArchiveError(f"{shown(self.storage.url)}/{self.path(entry.path)} is missing")

    def sweep(self, state: State, older_than: float = ABANDONED_AFTER, own: str = "") -> list[str]:
        """Delete files of dead jobs, and files that job `own` does not need any more; return the dead jobs.

        A job is dead without a new file for `older_than` seconds.
        """
        needed = {entry.staged for entry in state.files.values()}
        latest: dict[str, float] = {}
        for path, modified in self.storage.tree(self.path(STAGING)).items():
            job = path.partition("/")[0]
            latest[job] = max(latest.get(job, 0.0), modified)
        for job, modified in self.storage.directories(self.path(STAGING)).items():
            latest.setdefault(job, modified)  # an empty directory
        given_up = [
            job for job, modified in latest.items() if job != own and modified < time.time() - older_than
        ]
        if given_up:
            state = self.commit(Change("abandon", own, abandoned=tuple(given_up)))
            needed = {entry.staged for entry in state.files.values()}
        for job in [*given_up, *([own] if own else [])]:
            prefix = f"{STAGING}/{job}"
            left = {f"{prefix}/{path}" for path in self.storage.tree(self.path(prefix))}
            for path in left - needed:
                self.storage.delete(self.path(path))
            if not left & needed:
                self.storage.delete_tree(self.path(prefix))
        return given_up


def _json(document: dict[str, Any]) -> bytes:
    return compact(document, ascii=True).encode() + b"\n"


def partition_of(entry: Entry) -> str:
    """Return the unit of a file's directory: "date" or "hour"."""
    return "hour" if "/hour=" in entry.path else "date"


def check_partition(storage: Storage, partition: str) -> None:
    """Raise ArchiveError when the target has files, of any stream, with another unit of directories.

    All files of a table must have the same columns.
    """
    there: set[str] = set()
    for manifest in manifests(storage):
        with suppress(ArchiveError):  # a broken manifest must not affect other streams
            there.update(map(partition_of, manifest.load().files.values()))
    if there and partition not in there:
        (other,) = there
        raise ArchiveError(
            f"{shown(storage.url)} has files by {other}, not by {partition}: give --partition {other}, "
            "or a target of its own"
        )


def manifests(storage: Storage, account: str | None = None, stream: str | None = None) -> Iterator[Manifest]:
    """Yield the archived streams of a target, or those of an account or a name. Raises ArchiveError.

    The origins lack the time of creation.
    """
    for first in storage.names(""):
        if not first.startswith("account="):
            continue
        for second in storage.names(first):
            origin = Origin(unquote(first.removeprefix("account=")), unquote(second.removeprefix("stream=")))
            wanted = account in (None, origin.account) and stream in (None, origin.stream)
            manifest = Manifest(storage, origin)
            if second.startswith("stream=") and wanted and manifest.exists():
                yield manifest
