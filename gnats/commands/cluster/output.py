"""What the command prints: the table of members, and their logs."""

import os
import re
import stat
import sys
from collections.abc import Sequence
from typing import TextIO

from gnats.commands.cluster.plan import Member

_COLORS = (36, 33, 32, 35, 34, 31)
"""Of names on a terminal, in turn: cyan, yellow, green, magenta, blue, red."""
_ORDINARY = re.compile(
    r"\[\d+\] (\S+ \S+ )?\[(INF\] |ERR\] Error (trying to connect to route|connecting to explicit gateway) "
    r"|WRN\] (Route|Gateway connection) to )"
)
"""Matches lines that each start has: members dial those that do not listen yet, perhaps more than once."""
_LOGGED = re.compile(r"\[\d+\] (\S+ \S+ )?\[\w+\] |gnats-server: ")
"""What precedes the text of a log line or of an error."""


class Output:
    """Prints the members' logs to a stream, each line after the member's name.

    Until the table is printed it keeps them, and then shows those that not every start has. When the stream
    cannot be written, because its reader has gone for instance, `error` says why, and lines are dropped.
    """

    def __init__(self, names: Sequence[str], stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self.error: OSError | None = None
        width = max(map(len, names))
        self._prefixes = {name: f"{name:{width}} | " for name in names}
        if self._stream.isatty() and not os.environ.get("NO_COLOR"):
            for number, (name, prefix) in enumerate(self._prefixes.items()):
                color = _COLORS[number % len(_COLORS)]
                self._prefixes[name] = f"\x1b[{color}m{prefix}\x1b[0m"
        self._kept: list[tuple[str, str]] | None = []

    def pipe(self) -> int | None:
        """Return the descriptor of the stream if it is a pipe, which its reader may close."""
        descriptor = self._stream.fileno()
        return descriptor if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else None

    def show(self, name: str, lines: Sequence[str]) -> None:
        """Print lines of a member's log, or keep them."""
        if self._kept is not None:
            self._kept += [(name, line) for line in lines]
        else:
            self._write("".join(f"{self._prefixes[name]}{line}\n" for line in lines))

    def print_table(self, clusters: Sequence[str], members: Sequence[Member]) -> None:
        """Print the members and how to connect, then the lines that were kept."""
        self._write(table(clusters, members))
        kept, self._kept = self._kept or [], None
        for name, line in kept:
            if not _ORDINARY.match(line):
                self.show(name, [line])

    def last_words(self, name: str) -> str:
        """Return the text of the last line that a member has logged before the table; empty without one."""
        lines = [line for of, line in self._kept or () if of == name and line.strip()]
        return _LOGGED.sub("", lines[-1], count=1) if lines else ""

    def _write(self, text: str) -> None:
        if self.error:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as exc:
            self.error = exc


def table(clusters: Sequence[str], members: Sequence[Member]) -> str:
    """Return the table of members and leaf nodes, and lines that say how to connect."""
    several = len(clusters) > 1
    rows = [["name", "cluster", "clients", "monitoring"]]
    rows += [[each.name, each.cluster, each.client_url, each.monitor_url or "-"] for each in members]
    if not several:
        rows = [[row[0], *row[2:]] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    urls = {
        name: [each.client_url for each in members if each.cluster == name and not each.is_leaf]
        for name in clusters
    }
    size = len(urls[clusters[0]])
    servers = "1 server" if size == 1 else f"{size} servers"
    if several:
        servers += " in each, joined by gateways"
    elif size > 1:
        servers += ", each connected to all others"
    leaf_urls = [each.client_url for each in members if each.is_leaf]
    if leaf_urls:
        servers += ", and 1 leaf node" if len(leaf_urls) == 1 else f", and {len(leaf_urls)} leaf nodes"
    what = f"Clusters {', '.join(clusters)}" if several else f"Cluster {clusters[0]}"
    lines.insert(0, f"{what}: {servers}. Ctrl-C stops {'them' if several else 'it'}.")
    for name in clusters:
        which = name if several else "it" if size == 1 else "any of them"
        lines.append(f"Connect to {which}: {','.join(urls[name])}")
    if leaf_urls:
        lines.append(f"Connect to a leaf node: {' or '.join(leaf_urls)}")
    return "\n".join([*lines, ""])
