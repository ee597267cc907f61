"""Streams as Arrow, Parquet and Spark tables: `read_stream()` reads one of a store directory.

It needs what `pip install gnats[archive]` installs; the server does not import it.
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
