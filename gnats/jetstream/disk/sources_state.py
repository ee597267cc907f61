"""How far the sources of a stream have come, as it is written down: what is stored may be purged
(sources.db, writeSourcesState of filestore.go).

Magic 1, how many, the stamp (both 8 bytes, little endian); then for each the length of its index name, the
name, its sequence, the length of its identity, and the identity, numbers as uvarints. The headers of messages
at and behind the stamp are newer than what it says.
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
    """`positions`: by index name the sequence in the origin, and the origin's identity."""

    stamp: int
    positions: dict[str, tuple[int, str]]


def encode(state: SourcesState) -> bytes:
    """The content of the file."""
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
    """Raises ValueError for what encode() would not write."""
    if len(data) < _HEAD:
        raise ValueError("short buffer")
    if data[0] != _MAGIC:
        raise ValueError("sources: encoded version not known")
    reader = _Reader(data, _HEAD)
    positions = {}
    for _ in range(int.from_bytes(data[1:9], "little")):
        name = reader.text()
        seq = reader.number()
        positions[name] = seq, reader.text()
    return SourcesState(int.from_bytes(data[9:17], "little"), positions)


class _Reader(UvarintReader):
    def text(self) -> str:
        size = self.number()
        found = self.data[self.at : self.at + size]
        if len(found) < size:
            raise ValueError("unexpected EOF")
        self.at += size
        return found.decode()


def read_sources_state(directory: Path, warn: Callable[[str], None]) -> SourcesState:
    """What is written down in a stream's directory; what cannot be read is said, and taken for nothing."""
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
    """Write it down; where there is nothing to say, there is no file. Raises OSError."""
    if state.positions:
        replace_file(directory / SOURCES_FILE, encode(state), sync=False)
    else:
        (directory / SOURCES_FILE).unlink(missing_ok=True)
