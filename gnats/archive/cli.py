"""`gnats archive`: streams to Parquet files, and what there is to do with these."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnats.archive.backups import opened, unpack
from gnats.archive.broker import Broker, purge_archived
from gnats.archive.compact import compact
from gnats.archive.engine import Engine, Inline, Processes, Spark
from gnats.archive.errors import ArchiveError
from gnats.archive.job import Options, archive
from gnats.archive.manifest import Manifest, manifests
from gnats.archive.restore import Wanted, restore
from gnats.archive.source import StreamSource
from gnats.archive.streams import Keys, StreamDir, find_streams
from gnats.archive.target import Target
from gnats.archive.verify import verify
from gnats.archive.writer import Layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAMAGED = 3
"""Exit status of a run that has archived everything but what is damaged."""
INTERRUPTED = 130

EPILOG = """\
gnats archive compact   make large files of small ones
gnats archive verify    compare an archive with its store
gnats archive restore   publish archived messages into a stream
gnats archive unpack    make a store directory of backups, for Spark to read
"""


def size(text: str) -> int:
    """Bytes; K, M and G are accepted."""
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    number = int(text[:-1] if factor > 1 else text) * factor
    if number < 1:
        raise ValueError(text)
    return number


def moment(text: str) -> int:
    """A date or a time in ISO 8601, in UTC when it does not say; ns since 1970."""
    when = datetime.fromisoformat(text)
    when = when.replace(tzinfo=UTC) if when.tzinfo is None else when
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return ((since.days * 86400 + since.seconds) * 10**6 + since.microseconds) * 1000


class _Parser(argparse.ArgumentParser):
    """Exit status 1 for a wrong command line, and one line about it."""

    def error(self, message: str) -> Any:
        self.exit(1, f"{self.prog}: {message}\n")


def _parser(command: str, about: str, **more: Any) -> _Parser:
    prog = f"gnats archive {command}".strip()
    return _Parser(prog=prog, description=about, formatter_class=argparse.RawDescriptionHelpFormatter, **more)


def _selecting(parser: _Parser) -> None:
    parser.add_argument("--stream", action="append", metavar="NAME", help="a stream; may be repeated")
    parser.add_argument(
        "--account", action="append", metavar="NAME", help="only of this account; may be repeated"
    )
    parser.add_argument("--all", action="store_true", help="all streams")


def _engine_options(parser: _Parser) -> None:
    parser.add_argument(
        "--engine",
        choices=("spark", "processes"),
        default="spark",
        help="what runs the tasks (default: %(default)s)",
    )
    parser.add_argument("--master", metavar="URL", help="Spark's master (default: local[*])")
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: one for each core)")


def _store_options(parser: _Parser, *, required: bool) -> None:
    parser.add_argument(
        "--store",
        required=required,
        metavar="DIR",
        help="a server's store directory, or backups of streams; it is only read",
    )
    parser.add_argument(
        "--work-dir",
        metavar="DIR",
        help="where backups are unpacked; all tasks have to see it (default: of temporary files)",
    )


def _key_options(parser: _Parser) -> None:
    parser.add_argument("--key-file", metavar="FILE", help="file with the key of an encrypted store")
    parser.add_argument("--prev-key-file", metavar="FILE", help="file with the key before that one")
    parser.add_argument(
        "--cipher", choices=("chachapoly", "aes"), default="chachapoly", help="default: %(default)s"
    )


def _broker_options(parser: _Parser) -> None:
    parser.add_argument(
        "--server", default=Broker.server, metavar="URL", help="the server (default: %(default)s)"
    )
    parser.add_argument("--creds", metavar="FILE", help="credentials")
    parser.add_argument("--tls-ca", metavar="FILE", help="the server's CA")
    parser.add_argument("--js-domain", metavar="NAME", help="JetStream domain")


def _layout_options(parser: _Parser) -> None:
    parser.add_argument("--file-size", type=size, default=Layout.file_bytes, help="of a file (default: 256M)")
    parser.add_argument(
        "--task-memory",
        type=size,
        default=Layout.memory,
        help="what a task keeps of messages (default: 256M)",
    )
    parser.add_argument(
        "--row-group", type=size, default=Layout.row_group_rows, help="its rows (default: 1M)"
    )
    parser.add_argument(
        "--level", type=int, default=Layout.compression_level, help="of zstd (default: %(default)s)"
    )


def run_parser() -> _Parser:
    parser = _parser("", "Archives what is new in JetStream streams as Parquet files.", epilog=EPILOG)
    _store_options(parser, required=True)
    parser.add_argument(
        "--out", required=True, metavar="URL", help="a directory, s3://bucket/path or hdfs://..."
    )
    _selecting(parser)
    parser.add_argument("--first-seq", type=int, default=1, metavar="N", help="from this sequence on")
    parser.add_argument("--last-seq", type=int, metavar="N", help="up to this sequence")
    parser.add_argument("--since", type=moment, metavar="TIME", help="from this time on, ISO 8601")
    parser.add_argument("--until", type=moment, metavar="TIME", help="before this time")
    parser.add_argument("--partition", choices=("date", "hour"), default="date", help="default: %(default)s")
    parser.add_argument(
        "--retry-damaged", action="store_true", help="look again at what could not be read before"
    )
    parser.add_argument(
        "--purge-archived",
        action="store_true",
        help="then verify, and have the server purge what is verified",
    )
    _layout_options(parser)
    _key_options(parser)
    _engine_options(parser)
    _broker_options(parser)
    return parser


class Console:
    """A bar on a terminal; lines elsewhere."""

    def __init__(self) -> None:
        self.damaged = False
        self._bar: Any = None

    def begin(self, stream: str, size: int) -> None:
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=size, desc=stream, unit="B", unit_scale=True, leave=False)

    def advance(self, size: int) -> None:
        if self._bar is not None:
            self._bar.update(size)

    def line(self, text: str) -> None:
        self.end()
        print(text, flush=True)

    def warn(self, text: str) -> None:
        self.damaged = True
        self.end()
        print(f"gnats archive: damage: {text}", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _keys(args: argparse.Namespace) -> Keys | None:
    if not args.key_file:
        return None
    try:
        key, previous = (
            Path(name).read_text().strip() if name else None for name in (args.key_file, args.prev_key_file)
        )
    except (OSError, UnicodeDecodeError) as exc:
        raise ArchiveError(f"the key cannot be read: {exc}") from None
    return Keys(key or "", previous, args.cipher)


def _found(args: argparse.Namespace) -> list[StreamDir]:
    """The streams of a store. Backups are of the one account that is named, if one is."""
    account = args.account[0] if args.account and len(args.account) == 1 else None
    return find_streams(args.store, account)


def _streams(args: argparse.Namespace) -> list[StreamDir]:
    if not args.stream and not args.all:
        raise ArchiveError("say which: --stream NAME, or --all")
    found = [each for each in _found(args) if not args.account or each.account in args.account]
    if args.all:
        return found
    for name in args.stream:
        if all(each.name != name for each in found):
            known = ", ".join(sorted({each.name for each in found})) or "none"
            raise ArchiveError(f"stream {name} is not in {args.store}; there: {known}")
    return [each for each in found if each.name in args.stream]


def _archived(args: argparse.Namespace) -> list[Manifest]:
    """The archived streams that are selected."""
    if not args.stream and not args.all:
        raise ArchiveError("say which: --stream NAME, or --all")
    found = [
        each
        for each in manifests(Target(args.out).open())
        if not args.account or each.origin.account in args.account
    ]
    if args.all:
        return found
    for name in args.stream:
        if all(each.origin.stream != name for each in found):
            known = ", ".join(sorted({each.origin.stream for each in found})) or "none"
            raise ArchiveError(f"stream {name} is not in the archive {args.out}; there: {known}")
    return [each for each in found if each.origin.stream in args.stream]


def _engine(args: argparse.Namespace, session: SparkSession | None) -> Engine:
    if session is not None:
        return Spark(session=session)
    if args.engine == "spark":
        return Spark(args.master or "local[*]")
    return Inline() if args.workers == 1 else Processes(args.workers)


def _layout(args: argparse.Namespace) -> Layout:
    return Layout(
        getattr(args, "partition", "date"), args.file_size, args.row_group, args.task_memory, args.level
    )


def _broker(args: argparse.Namespace) -> Broker:
    return Broker(args.server, args.creds, args.tls_ca, args.js_domain)


def _run(args: argparse.Namespace, engine: Engine) -> int:
    streams, keys, target, console = _streams(args), _keys(args), Target(args.out), Console()
    options = Options(
        args.first_seq, args.last_seq, args.since, args.until, args.retry_damaged, _layout(args)
    )
    if args.purge_archived and any(each.backup for each in streams):
        raise ArchiveError(
            "--purge-archived is not supported for backups: archive the server's store for that"
        )
    results = archive(streams, target, engine, options, console, keys, args.work_dir)
    for stream, done in zip(streams, results, strict=True):
        if not args.purge_archived:
            continue
        checked = verify(target, done.manifest, StreamSource(stream, keys), engine, only_present=True)
        for problem in checked.problems:
            print(f"gnats archive: {problem}", file=sys.stderr)
        if checked.problems:
            raise ArchiveError(f"{stream.account} > {stream.name}: not verified; nothing is purged")
        purged = purge_archived(_broker(args), checked)
        console.line(
            f"{stream.account} > {stream.name}: "
            f"{purged.count:,} messages purged, before sequence {purged.before:,}"
        )
    return DAMAGED if console.damaged else 0


def compact_parser() -> _Parser:
    parser = _parser("compact", "Makes large files of the small ones of successive runs.")
    parser.add_argument("--out", required=True, metavar="URL", help="the archive")
    _selecting(parser)
    _layout_options(parser)
    _engine_options(parser)
    return parser


def _compact(args: argparse.Namespace, engine: Engine) -> int:
    target = Target(args.out)
    for manifest in _archived(args):
        done = compact(manifest.storage, target, manifest, engine, _layout(args))
        origin = manifest.origin
        print(
            f"{origin.account} > {origin.stream}: {done.before} files made {done.after}, "
            f"{len(done.state.files)} in all"
        )
    return 0


def verify_parser() -> _Parser:
    parser = _parser(
        "verify", "Compares an archive with its store; without a store, with its own checksums only."
    )
    parser.add_argument("--out", required=True, metavar="URL", help="the archive")
    _store_options(parser, required=False)
    _selecting(parser)
    _key_options(parser)
    _engine_options(parser)
    return parser


def _verify(args: argparse.Namespace, engine: Engine) -> int:
    keys, target, bad = _keys(args), Target(args.out), False
    sources = {(each.account, each.name): each for each in _found(args)} if args.store else {}
    for manifest in _archived(args):
        origin = manifest.origin
        name = f"{origin.account} > {origin.stream}"
        if args.store:
            stream = sources.get((origin.account, origin.stream))
            if stream is None:
                raise ArchiveError(f"{name} is in the archive, and not in {args.store}")
            with opened(stream, args.work_dir) as there:
                done = verify(target, manifest, StreamSource(there, keys), engine)
        else:
            done = verify(target, manifest, None, engine)
        for problem in done.problems:
            print(f"gnats archive: {problem}", file=sys.stderr)
        bad = bad or bool(done.problems)
        gone = f", {done.gone:,} of them not in the store any more" if done.gone else ""
        lost = sum(each.last_seq - each.first_seq + 1 for each in done.state.lost)
        damage = f", {lost:,} sequences lost to damage" if lost else ""
        damage += f", {done.unarchived:,} messages of the store not archived" if done.unarchived else ""
        verdict = f"{len(done.problems)} problems" if done.problems else "good"
        print(f"{name}: {verdict}: {done.rows:,} messages in {len(done.state.files)} files{gone}{damage}")
    return int(bad)


def restore_parser() -> _Parser:
    parser = _parser("restore", "Publishes archived messages, in their order, into a stream that is there.")
    parser.add_argument("--out", required=True, metavar="URL", help="the archive")
    parser.add_argument("--stream", required=True, metavar="NAME", help="the archived stream")
    parser.add_argument("--account", metavar="NAME", help="its account, where several have such a stream")
    parser.add_argument(
        "--into", metavar="NAME", help="the stream to restore into (default: of the same name)"
    )
    parser.add_argument("--subject-prefix", default="", metavar="TEXT", help="put before each subject")
    parser.add_argument(
        "--first-seq", type=int, default=1, metavar="N", help="from this archived sequence on"
    )
    parser.add_argument("--last-seq", type=int, metavar="N", help="up to this archived sequence")
    parser.add_argument("--rate", type=float, default=0.0, metavar="N", help="messages a second at most")
    _broker_options(parser)
    return parser


def _restore(args: argparse.Namespace) -> int:
    found = manifests(Target(args.out).open(), args.account, args.stream)
    if len(found) != 1:
        what = "is not in the archive" if not found else "is there for several accounts in"
        raise ArchiveError(f"stream {args.stream} {what} {args.out}")
    into = args.into or args.stream
    wanted = Wanted(into, args.subject_prefix, args.first_seq, args.last_seq, args.rate)
    done = restore(_broker(args), found[0], wanted)
    begun = f", after sequence {done.resumed_after:,}" if done.resumed_after else ""
    print(f"{into}: {done.messages:,} messages restored{begun}")
    return 0


def unpack_parser() -> _Parser:
    parser = _parser("unpack", "Makes a store directory of backups of streams; not one for a server.")
    parser.add_argument("--store", required=True, metavar="DIR", help="a backup, or a directory of them")
    parser.add_argument("--to", required=True, metavar="DIR", help="the store directory")
    _selecting(parser)
    return parser


def _unpack(args: argparse.Namespace) -> int:
    for stream in _streams(args):
        if not stream.backup:
            raise ArchiveError(f"{stream.path} is no backup")
        print(f"{stream.account} > {stream.name}: {unpack(stream, args.to).path}")
    return 0


_COMMANDS: dict[str, tuple[Callable[[], _Parser], Callable[[argparse.Namespace, Engine], int]]] = {
    "": (run_parser, _run),
    "compact": (compact_parser, _compact),
    "verify": (verify_parser, _verify),
}


def archive_main(args: Sequence[str], session: SparkSession | None = None) -> int:
    """`gnats archive ARGS`; the exit status. A session is given when Spark has started this."""
    try:
        if args[:1] == ["restore"]:
            return _restore(restore_parser().parse_args(args[1:]))
        if args[:1] == ["unpack"]:
            return _unpack(unpack_parser().parse_args(args[1:]))
        command = args[0] if args and args[0] in _COMMANDS else ""
        parser, function = _COMMANDS[command]
        parsed = parser().parse_args(args[1:] if command else args)
        engine = _engine(parsed, session)
        try:
            return function(parsed, engine)
        finally:
            engine.close()
    except ArchiveError as exc:
        print(f"gnats archive: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
