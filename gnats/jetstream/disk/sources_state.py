"""The file of the positions of a stream's sources (sources.db, writeSourcesState of filestore.go).

Without it, the positions would be lost when the stored messages, whose headers have them, are purged.

Format: magic 1, the number of sources, the stamp (both 8 bytes, little endian); then for each source the
length of its index name, the name, its sequence, the length of its identity, and the identity, numbers as
uvarints. The stamp is a sequence of the stream: headers of messages from there on are newer than the file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gnats.go.text import os_error
from gnats.go.uvarint import UvarintReader, encode_uvarint
from gnats.system.files import replace_file

SOURCES_FILE = "sources.db"

_MAGIC = 1
_HEAD = 17


class SourcesState(NamedTuple):
    """`positions`: by index name (sequence in the origin, the origin's identity)."""

    stamp: int
    positions: dict[str, tuple[int, str]]


def encode(state: SourcesState) -> bytes:
    """Encode the content of the file."""
    parts = [
        bytes((_MAGIC,)),
        len(state.positions).to_bytes(8, "little"),
        state.stamp.to_bytes(8, "little"),
    ]
    for name, (seq, identity) in state.positions.items():
        for text, number in ((name.encode(), seq), (identity.encode(), None)):
            parts += [encode_uvarint(len(text)), text]
            if number is not None:
                parts.append(encode_uvarint(number))
    return b"".join(parts)


def decode(data: bytes) -> SourcesState:
    """Decode the content of the file. Raises ValueError for a damaged one."""
    if len(data) < _HEAD:
        raise ValueError("short buffer")
    if data[0] != _MAGIC:
        raise ValueError("sources: encoded version not known")
    reader = UvarintReader(data, _HEAD)
    positions = {}
    for _ in range(int.from_bytes(data[1:9], "little")):
        name = reader.counted().decode()
        seq = reader.number()
        positions[name] = seq, reader.counted().decode()
    return SourcesState(int.from_bytes(data[9:17], "little"), positions)


def read_sources_state(directory: Path, warn: Callable[[str], None]) -> SourcesState:
    """Read the file in a stream's directory; without a readable one, `warn` and return no positions."""
    try:
        return decode((directory / SOURCES_FILE).read_bytes())
    except FileNotFoundError:
        pass
    except OSError as exc:
        warn(f"Recovering sources state from index errored: {os_error(exc)}")
    except ValueError as exc:
        warn(f"Error decoding sources state: {exc}")
    return SourcesState(0, {})


def write_sources_state(directory: Path, state: SourcesState) -> None:
    """Write the file, or delete it when there are no positions. Raises OSError."""
    if state.positions:
        replace_file(directory / SOURCES_FILE, encode(state), sync=False)
    else:
        (directory / SOURCES_FILE).unlink(missing_ok=True)
