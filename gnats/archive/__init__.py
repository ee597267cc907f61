"""Streams as Arrow, Parquet and Spark tables: `read_stream()` reads a stream of a store directory.

Needs the packages of `pip install gnats[archive]`. The server does not import it.
"""

from gnats.archive.errors import ArchiveError
from gnats.archive.reading.source import (
    SCHEMA,
    Block,
    Damage,
    DamageWarning,
    Scan,
    Selection,
    Snapshot,
    StreamSource,
    read_stream,
)
from gnats.archive.reading.streams import Keys, StreamDir, find_stream, find_streams

__all__ = [
    "SCHEMA",
    "ArchiveError",
    "Block",
    "Damage",
    "DamageWarning",
    "Keys",
    "Scan",
    "Selection",
    "Snapshot",
    "StreamDir",
    "StreamSource",
    "find_stream",
    "find_streams",
    "read_stream",
]
