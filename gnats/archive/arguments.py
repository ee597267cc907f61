"""The command line of `gnats archive`: one parser for each command.

A parser refuses an argument that is invalid by itself, in one line and with exit status 1."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from gnats.archive.jobs.broker import Broker
from gnats.archive.writer import Layout

DAMAGED = 3
"""Exit status of a run that has archived everything except damaged messages."""
INTERRUPTED = 130
"""Exit status after Ctrl-C."""

_COMMANDS = """\
commands:
  gnats archive compact   make large files of small ones
  gnats archive verify    compare an archive with its store
  gnats archive restore   publish archived messages into a stream
  gnats archive unpack    make a store directory of backups, for Spark to read
"""
_STATUS = """\
exit status:
  0    all is done
  1    an error; standard error has one line that names it
"""
_STATUS_DAMAGED = f"  {DAMAGED}    all but damaged data is archived; standard error lists the damage\n"
_STATUS_INTERRUPTED = f"  {INTERRUPTED}  it was interrupted (Ctrl-C)\n"

_MAX_NUMBER = 2**63 - 1
_MAX_SEQ = 2**64 - 1
_MIN_RATE = 0.001
_NANOSECONDS = re.compile(r"(.*[^\d:+-][\d:]+[.,]\d{6})(\d+)(\D.*)?")
"""Matches a time of day with more than six decimals, which datetime drops."""


class BadArgument(argparse.ArgumentTypeError, ValueError):
    """An argument is invalid. For argparse (ArgumentTypeError) and for other callers (ValueError)."""


def _counted(what: str) -> Callable[[str], int]:
    def number(text: str) -> int:
        factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
        try:
            found = int(text[:-1] if factor > 1 else text) * factor
        except ValueError:
            found = 0
        if not 1 <= found <= _MAX_NUMBER:
            raise BadArgument(f"{text!r} is not {what}, or with K, M or G")
        return found

    return number


size = _counted("bytes")
"""Parses a number of bytes; accepts K, M and G."""
rows = _counted("a number of rows")


def moment(text: str) -> int:
    """Parse an ISO 8601 date or time, UTC by default; return ns since 1970. Raises ValueError."""
    finer = _NANOSECONDS.fullmatch(text)
    if finer and finer[2][3:].strip("0"):
        raise BadArgument(f"{text!r} is finer than a nanosecond")
    try:
        when = datetime.fromisoformat(f"{finer[1]}{finer[3] or ''}" if finer else text)
    except ValueError:
        raise BadArgument(
            f"{text!r} is not a date or time in ISO 8601, as 2026-01-31T12:00 (UTC when it does not say)"
        ) from None
    when = when.replace(tzinfo=UTC) if when.tzinfo is None else when
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    ns = ((since.days * 86400 + since.seconds) * 10**6 + since.microseconds) * 1000
    ns += int(finer[2][:3].ljust(3, "0")) if finer else 0
    if not -(2**63) <= ns < 2**63:
        raise BadArgument(f"{text!r} is not a time that a message can have: 1677-09-22 to 2262-04-11")
    return ns


def _whole(first: int, last: int, what: str) -> Callable[[str], int]:
    def number(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            found = first - 1
        if not first <= found <= last:
            raise BadArgument(f"{text!r} is not {what}")
        return found

    return number


sequence = _whole(1, _MAX_SEQ, "a sequence, which is 1 or more")
_workers = _whole(1, _MAX_NUMBER, "a number of processes, 1 or more")
_level = _whole(1, 22, "a level of zstd, 1 to 22")


def rate(text: str) -> float:
    """Parse a number of messages a second."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and found >= _MIN_RATE):
        raise BadArgument(f"{text!r} is not a number of messages a second, {_MIN_RATE} or more")
    return found


class Parser(argparse.ArgumentParser):
    """A parser that ends with status 1 and a one-line error for a wrong command line."""

    def error(self, message: str) -> Any:
        self.exit(1, f"{self.prog}: {message}\n")


def _parser(command: str, about: str, before: str = "", damaged: bool = False) -> Parser:
    status = _STATUS + (_STATUS_DAMAGED if damaged else "") + _STATUS_INTERRUPTED
    return Parser(
        prog=f"gnats archive {command}".strip(),
        description=about,
        epilog=f"{before}\n{status}" if before else status,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _selecting(parser: Parser) -> None:
    group = parser.add_argument_group("which streams")
    group.add_argument("--stream", action="append", metavar="NAME", help="a stream; may be repeated")
    group.add_argument(
        "--account", action="append", metavar="NAME", help="only of this account; may be repeated"
    )
    group.add_argument("--all", action="store_true", help="all streams; not beside --stream")


def _engine_options(parser: Parser) -> None:
    group = parser.add_argument_group("what runs the tasks")
    group.add_argument("--engine", choices=("spark", "processes"), help="default: spark")
    group.add_argument("--master", metavar="URL", help="of --engine spark: its master (default: local[*])")
    group.add_argument(
        "--workers",
        type=_workers,
        metavar="N",
        help="of --engine processes: how many, 1 or more (default: one for each core)",
    )


def _store_option(parser: Parser, *, required: bool) -> None:
    parser.add_argument(
        "--store",
        required=required,
        metavar="DIR",
        help="a server's store directory, or backups of streams; it is only read",
    )


def _source_options(parser: Parser) -> None:
    """Add the options for encrypted stores and for backups."""
    group = parser.add_argument_group("backups")
    group.add_argument(
        "--work-dir",
        metavar="DIR",
        help="where backups are unpacked; all tasks have to see it (default: of temporary files)",
    )
    group = parser.add_argument_group("encrypted stores")
    group.add_argument("--key-file", metavar="FILE", help="file with the key of the store")
    group.add_argument(
        "--prev-key-file", metavar="FILE", help="file with the key before that one, beside --key-file"
    )
    group.add_argument(
        "--cipher",
        choices=("chachapoly", "aes"),
        help="of the server, beside --key-file (default: chachapoly)",
    )


def _broker_options(parser: Parser, title: str) -> None:
    group = parser.add_argument_group(title)
    group.add_argument("--server", metavar="URL", help=f"the server (default: {Broker.server})")
    group.add_argument("--creds", metavar="FILE", help="credentials")
    group.add_argument("--tls-ca", metavar="FILE", help="the server's CA, PEM")
    group.add_argument("--js-domain", metavar="NAME", help="JetStream domain")


def _layout_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--file-size",
        type=size,
        default=Layout.file_bytes,
        metavar="BYTES",
        help="of a file, in bytes or with K, M or G (default: 256M)",
    )
    group.add_argument(
        "--task-memory",
        type=size,
        default=Layout.memory,
        metavar="BYTES",
        help="what a task keeps of messages, in bytes or with K, M or G (default: 256M)",
    )
    group.add_argument(
        "--row-group",
        type=rows,
        default=Layout.row_group_rows,
        metavar="ROWS",
        help="of a row group of a file; K, M and G are 1024 of each other (default: 1M)",
    )
    group.add_argument(
        "--level",
        type=_level,
        default=Layout.compression_level,
        metavar="N",
        help="of zstd, 1 to 22 (default: %(default)s)",
    )


def run_parser() -> Parser:
    parser = _parser(
        "", "Archives what is new in JetStream streams as Parquet files.", _COMMANDS, damaged=True
    )
    _store_option(parser, required=True)
    parser.add_argument(
        "--out", required=True, metavar="URL", help="a directory, s3://bucket/path or hdfs://..."
    )
    parser.add_argument(
        "--retry-damaged", action="store_true", help="look again at what could not be read before"
    )
    _selecting(parser)
    group = parser.add_argument_group("which messages")
    group.add_argument(
        "--first-seq", type=sequence, default=1, metavar="N", help="from this sequence on, 1 or more"
    )
    group.add_argument("--last-seq", type=sequence, metavar="N", help="up to this sequence, and with it")
    group.add_argument(
        "--since",
        type=moment,
        metavar="TIME",
        help="from this time on: ISO 8601, as 2026-01-31 or 2026-01-31T12:00+01:00; UTC when it does not say",
    )
    group.add_argument("--until", type=moment, metavar="TIME", help="before this time, likewise")
    group = parser.add_argument_group("files")
    group.add_argument(
        "--partition",
        choices=("date", "hour"),
        default="date",
        help="directories by day, or by hour as well, in UTC; one of both for all of an archive "
        "(default: %(default)s)",
    )
    _layout_options(group)
    _source_options(parser)
    _engine_options(parser)
    parser.add_argument(
        "--purge-archived",
        action="store_true",
        help="then verify, and have the server purge what is verified",
    )
    _broker_options(parser, "the server, for --purge-archived")
    return parser


def compact_parser() -> Parser:
    parser = _parser("compact", "Makes large files of the small ones of successive runs.")
    parser.add_argument("--out", required=True, metavar="URL", help="the archive")
    _selecting(parser)
    _layout_options(parser.add_argument_group("files"))
    _engine_options(parser)
    return parser


def verify_parser() -> Parser:
    parser = _parser(
        "verify",
        "Compares an archive with its store; without a store, with its own checksums only.\n"
        "--all is all streams that are in the archive.",
    )
    parser.add_argument("--out", required=True, metavar="URL", help="the archive")
    _store_option(parser, required=False)
    _selecting(parser)
    _source_options(parser)
    _engine_options(parser)
    return parser


def restore_parser() -> Parser:
    parser = _parser("restore", "Publishes archived messages, in their order, into a stream that is there.")
    parser.add_argument("--out", required=True, metavar="URL", help="the archive")
    parser.add_argument("--stream", required=True, metavar="NAME", help="the archived stream")
    parser.add_argument("--account", metavar="NAME", help="its account, where several have such a stream")
    parser.add_argument(
        "--into", metavar="NAME", help="the stream to restore into (default: of the same name)"
    )
    parser.add_argument("--subject-prefix", default="", metavar="TEXT", help="put before each subject")
    parser.add_argument(
        "--first-seq", type=sequence, default=1, metavar="N", help="from this archived sequence on, 1 or more"
    )
    parser.add_argument(
        "--last-seq", type=sequence, metavar="N", help="up to this archived sequence, and with it"
    )
    parser.add_argument(
        "--rate",
        type=rate,
        default=0.0,
        metavar="N",
        help=f"messages a second at most, {_MIN_RATE} or more (default: no limit)",
    )
    _broker_options(parser, "the server")
    return parser


def unpack_parser() -> Parser:
    parser = _parser("unpack", "Makes a store directory of backups of streams; not one for a server.")
    parser.add_argument("--store", required=True, metavar="DIR", help="a backup, or a directory of them")
    parser.add_argument("--to", required=True, metavar="DIR", help="the store directory")
    _selecting(parser)
    return parser
