"""`gnats archive`: archive streams as Parquet files; compact, verify, restore and unpack archives."""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnats.archive.arguments import (
    DAMAGED,
    INTERRUPTED,
    Parser,
    compact_parser,
    restore_parser,
    run_parser,
    unpack_parser,
    verify_parser,
)
from gnats.archive.errors import ArchiveError
from gnats.archive.jobs.broker import Broker, purge_archived
from gnats.archive.jobs.compact import compact
from gnats.archive.jobs.engine import Engine, Inline, Processes, Spark
from gnats.archive.jobs.job import Archived, Options, archive
from gnats.archive.jobs.restore import Wanted, restore
from gnats.archive.jobs.verify import Verified, verify
from gnats.archive.manifest import Manifest, Origin, manifests
from gnats.archive.reading.backups import opened, unpack
from gnats.archive.reading.source import StreamSource
from gnats.archive.reading.streams import Keys, StreamDir, find_streams
from gnats.archive.storage import shown
from gnats.archive.target import Target
from gnats.archive.writer import Layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def in_line(text: str) -> str:
    """Escape a text for terminals and logs, because clients choose the names of streams."""
    return _UNSEEN.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def say(text: str) -> None:
    """Print a line on standard output. Raises ArchiveError."""
    try:
        print(in_line(text), flush=True)
    except OSError as exc:
        with Path(os.devnull).open("wb") as nothing:  # the exit flushes buffered text: let it succeed
            os.dup2(nothing.fileno(), sys.stdout.fileno())
        raise ArchiveError(f"standard output cannot be written: {exc.strerror}") from None


class Console:
    """Shows progress: a bar on a terminal, lines elsewhere."""

    def __init__(self) -> None:
        self.damaged = False
        self._bar: Any = None

    def begin(self, stream: str, size: int) -> None:
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=size, desc=in_line(stream), unit="B", unit_scale=True, leave=False)

    def advance(self, size: int) -> None:
        if self._bar is not None:
            self._bar.update(size)

    def line(self, text: str) -> None:
        self.end()
        say(text)

    def warn(self, text: str) -> None:
        self.damaged = True
        self.end()
        complain(f"damage: {text}")

    def end(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class Each:
    """A context for the work on each of several streams: prints an ArchiveError, and the others go on."""

    def __init__(self, target: Target, before: Callable[[], object] = lambda: None) -> None:
        """`before` is called before each error line."""
        self.target = target
        self.before = before
        self.failed = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        try:
            yield
        except ArchiveError as exc:
            self.before()
            self.target.open().names("")  # raises if the target is gone: every stream would fail the same way
            complain(str(exc))
            self.failed = True


def complain(text: str) -> None:
    print(f"gnats archive: {in_line(text)}", file=sys.stderr, flush=True)


def _keys(args: argparse.Namespace) -> Keys | None:
    if not args.key_file:
        _refuse(args, "--key-file", "prev_key_file", "cipher")
        return None
    try:
        key, previous = (
            Path(name).read_text().strip() if name else None for name in (args.key_file, args.prev_key_file)
        )
    except (OSError, UnicodeDecodeError) as exc:
        raise ArchiveError(f"the key cannot be read: {exc}") from None
    return Keys(key or "", previous, args.cipher or "chachapoly")


def _check_selection(args: argparse.Namespace) -> None:
    if args.stream and args.all:
        raise ArchiveError("say one of --stream NAME and --all")
    if not args.stream and not args.all:
        raise ArchiveError("say which: --stream NAME, or --all")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names))) or "none"


def _check_names(args: argparse.Namespace, found: Iterable[tuple[str, str]], where: str) -> None:
    """Raise ArchiveError when a named account or stream is not among the found ones."""
    found = list(found)
    accounts = {account for account, _ in found}
    for name in args.account or ():
        if name not in accounts:
            raise ArchiveError(
                f"no stream of account {name} is in {where}; accounts there: {_listed(accounts)}"
            )
    chosen = [(account, name) for account, name in found if not args.account or account in args.account]
    for name in args.stream or ():
        if all(each != name for _, each in chosen):
            whose = f" of account {', '.join(args.account)}" if args.account else ""
            known = _listed(each for _, each in chosen)
            raise ArchiveError(f"stream {name}{whose} is not in {where}; there: {known}")


def _found(args: argparse.Namespace) -> list[StreamDir]:
    """Return the streams of a store. Backups belong to the named account, if exactly one is named."""
    accounts = sorted(set(args.account or ()))
    found = find_streams(args.store, accounts[0] if len(accounts) == 1 else None)
    if len(accounts) > 1 and any(each.backup for each in found):
        raise ArchiveError(
            f"{args.store} has backups, which are of one account: --account names {len(accounts)}"
        )
    return found


def _streams(args: argparse.Namespace) -> list[StreamDir]:
    _check_selection(args)
    found = _found(args)
    _check_names(args, ((each.account, each.name) for each in found), args.store)
    return [
        each
        for each in found
        if (args.all or each.name in args.stream) and (not args.account or each.account in args.account)
    ]


def _archived(args: argparse.Namespace) -> list[Manifest]:
    """Return the selected archived streams. Raises ArchiveError when there is none."""
    _check_selection(args)
    found = list(manifests(Target(args.out).open()))
    if not found:
        raise ArchiveError(f"no archived stream in {shown(args.out)}")
    _check_names(
        args, ((each.origin.account, each.origin.stream) for each in found), f"the archive {shown(args.out)}"
    )
    return [
        each
        for each in found
        if (args.all or each.origin.stream in args.stream)
        and (not args.account or each.origin.account in args.account)
    ]


def _engine(args: argparse.Namespace, session: SparkSession | None) -> Engine:
    if session is not None:
        if args.engine == "processes" or args.master or args.workers:
            raise ArchiveError("--engine, --master and --workers are not for spark-submit, which has its own")
        return Spark(session=session)
    if args.engine != "processes":
        _refuse(args, "--engine processes", "workers")
        return Spark(args.master or "local[*]")
    _refuse(args, "--engine spark", "master")
    return Inline() if args.workers == 1 else Processes(args.workers)


def _layout(args: argparse.Namespace) -> Layout:
    return Layout(
        getattr(args, "partition", "date"), args.file_size, args.row_group, args.task_memory, args.level
    )


def _broker(args: argparse.Namespace) -> Broker:
    return Broker(args.server or Broker.server, args.creds, args.tls_ca, args.js_domain)


def _refuse(args: argparse.Namespace, needed: str, *names: str) -> None:
    """Raise ArchiveError for options that have no effect without the option `needed`."""
    for name in names:
        if getattr(args, name) is not None:
            raise ArchiveError(f"--{name.replace('_', '-')} needs {needed}")


def _run(args: argparse.Namespace, engine: Engine) -> int:
    streams, keys, target, console = _streams(args), _keys(args), Target(args.out), Console()
    options = Options(
        args.first_seq, args.last_seq, args.since, args.until, args.retry_damaged, _layout(args)
    )
    if args.purge_archived:
        if any(each.backup for each in streams):
            raise ArchiveError(
                "--purge-archived is not supported for backups: archive the server's store for that"
            )
        _broker(args).check()
    else:
        _refuse(args, "--purge-archived", "server", "creds", "tls_ca", "js_domain")
    try:
        each = Each(target, console.end)
        results = archive(streams, target, engine, options, console, keys, args.work_dir, each)
        for done in results if args.purge_archived else ():
            with each():
                console.line(_purge(args, engine, StreamSource(done.stream, keys), done))
    finally:
        console.end()
    if each.failed:
        return 1
    return DAMAGED if console.damaged else 0


def _purge(args: argparse.Namespace, engine: Engine, source: StreamSource, done: Archived) -> str:
    """Verify the archived messages that a stream still has, make the server purge them; return a text."""
    name = _name(done.manifest.origin)
    checked = verify(Target(args.out), done.manifest, source, engine, only_present=True)
    for problem in checked.problems:
        complain(problem)
    if checked.problems:
        raise ArchiveError(f"{name}: not verified; nothing is purged")
    purged = purge_archived(_broker(args), checked)
    if not purged.count:
        return f"{name}: nothing to purge"
    return f"{name}: {purged.count:,} messages purged, before sequence {purged.before:,}"


def _compact(args: argparse.Namespace, engine: Engine) -> int:
    target = Target(args.out)
    each = Each(target)
    for manifest in _archived(args):
        with each():
            done = compact(manifest.storage, target, manifest, engine, _layout(args))
            say(
                f"{_name(manifest.origin)}: {done.before} files made {done.after}, "
                f"{len(done.state.files)} in all"
            )
    return int(each.failed)


def _verify(args: argparse.Namespace, engine: Engine) -> int:
    if not args.store:
        _refuse(args, "--store", "key_file", "prev_key_file", "cipher", "work_dir")
    keys, target, bad = _keys(args), Target(args.out), False
    each = Each(target)
    sources = {(found.account, found.name): found for found in _found(args)} if args.store else {}
    for manifest in _archived(args):
        origin = manifest.origin
        with each(), ExitStack() as stack:
            source = None
            if args.store:
                stream = sources.get((origin.account, origin.stream))
                if stream is None:
                    raise ArchiveError(f"{_name(origin)} is in the archive, and not in {args.store}")
                source = StreamSource(stack.enter_context(opened(stream, args.work_dir)), keys)
            done = verify(target, manifest, source, engine)
            for problem in done.problems:
                complain(problem)
            bad = bad or bool(done.problems)
            say(_verdict(origin, done))
    return int(bad or each.failed)


def _name(origin: Origin) -> str:
    return f"{origin.account} > {origin.stream}"


def _verdict(origin: Origin, done: Verified) -> str:
    gone = f", {done.gone:,} of them not in the store any more" if done.gone else ""
    lost = sum(each.last_seq - each.first_seq + 1 for each in done.state.lost)
    damage = f", {lost:,} sequences lost to damage" if lost else ""
    damage += f", {done.unarchived:,} messages of the store not archived" if done.unarchived else ""
    verdict = f"{len(done.problems)} problems" if done.problems else "good"
    return (
        f"{_name(origin)}: {verdict}: {done.rows:,} messages in {len(done.state.files)} files{gone}{damage}"
    )


def _restore(args: argparse.Namespace) -> int:
    found = list(manifests(Target(args.out).open(), args.account, args.stream))
    if len(found) != 1:
        what = "is not in the archive" if not found else "is there for several accounts in"
        whose = f" of account {args.account}" if args.account else ""
        raise ArchiveError(f"stream {args.stream}{whose} {what} {shown(args.out)}")
    into = args.into or args.stream
    wanted = Wanted(into, args.subject_prefix, args.first_seq, args.last_seq, args.rate)
    done = restore(_broker(args), found[0], wanted)
    begun = f", after sequence {done.resumed_after:,}" if done.resumed_after else ""
    say(f"{into}: {done.messages:,} messages restored{begun}")
    return 0


def _unpack(args: argparse.Namespace) -> int:
    for stream in _streams(args):
        if not stream.backup:
            raise ArchiveError(f"{stream.path} is no backup")
        say(f"{stream.account} > {stream.name}: {unpack(stream, args.to).path}")
    return 0


_COMMANDS: dict[str, tuple[Callable[[], Parser], Callable[[argparse.Namespace, Engine], int]]] = {
    "": (run_parser, _run),
    "compact": (compact_parser, _compact),
    "verify": (verify_parser, _verify),
}
_WITHOUT_ENGINE: dict[str, tuple[Callable[[], Parser], Callable[[argparse.Namespace], int]]] = {
    "restore": (restore_parser, _restore),
    "unpack": (unpack_parser, _unpack),
}


def archive_main(args: Sequence[str], session: SparkSession | None = None) -> int:
    """Run `gnats archive ARGS`; return the exit status. `session` is given when Spark has started this."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # clients leave connections unclosed
    try:
        with _interruptible():
            return _main(args, session)
    except ArchiveError as exc:
        complain(str(exc))
        return 1
    except MemoryError:
        complain("out of memory: a smaller --task-memory needs less of it")
        return 1
    except KeyboardInterrupt:
        complain("interrupted; what was committed is kept, and the next run goes on")
        return INTERRUPTED


def _main(args: Sequence[str], session: SparkSession | None) -> int:
    command = args[0] if args and not args[0].startswith("-") else ""
    rest = args[1:] if command else args
    if command in _WITHOUT_ENGINE:
        parser, plain = _WITHOUT_ENGINE[command]
        return plain(parser().parse_args(rest))
    if command not in _COMMANDS:
        known = ", ".join(sorted(filter(None, [*_COMMANDS, *_WITHOUT_ENGINE])))
        raise ArchiveError(f"no command {command!r}; there are {known}, and without a command a run")
    parser, function = _COMMANDS[command]
    parsed = parser().parse_args(rest)
    engine = _engine(parsed, session)
    try:
        return function(parsed, engine)
    finally:
        engine.close()


def _interrupt(number: int, frame: object) -> None:
    """Handle Ctrl-C. Disables logging, because Py4J logs the calls that are interrupted."""
    logging.disable()
    raise KeyboardInterrupt


@contextmanager
def _interruptible() -> Iterator[None]:
    """Make Ctrl-C raise KeyboardInterrupt, even when PySpark has replaced the handler."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
