"""An S2 stream as a peer writes and reads it: chunk by chunk, in any pieces."""

from __future__ import annotations

import struct

from gnats.codec import s2

IDENTIFIER = b"\xff\x06\x00\x00S2sTwO"
SNAPPY = b"\xff\x06\x00\x00sNaPpY"
PADDING = b"\xfe\x05\x00\x00\x00\x01\x02\x03\x04"
SKIPPABLE = b"\x80\x03\x00\x00abc"
COMPRESSED, UNCOMPRESSED = 0, 1
MOST = 4 << 20
"""Bytes of data of a chunk, at most."""


def masked_crc(data: bytes) -> int:
    crc = s2.crc(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def chunk(kind: int, body: bytes) -> bytes:
    """Make a chunk of any kind."""
    return bytes([kind]) + struct.pack("<I", len(body))[:3] + body


def uncompressed(data: bytes) -> bytes:
    """Make a chunk of uncompressed data."""
    return chunk(UNCOMPRESSED, struct.pack("<I", masked_crc(data)) + data)


def compressed(data: bytes) -> bytes:
    """Make chunks of data, compressed where that makes it shorter: one for each MiB."""
    return s2.encode(data)[len(IDENTIFIER) :]


def bomb(unit: bytes, size: int) -> bytes:
    """Make one compressed chunk of `size` bytes, 70,000 or more: a short text again and again."""
    length, varint = size, b""
    while length >= 0x80:
        varint += bytes([length & 0x7F | 0x80])
        length >>= 7
    # the text as a literal, a copy of 64 bytes, and one repeat of that with a length of 3 bytes
    rest = size - len(unit) - 64 - 4 - (1 << 16)
    body = varint + bytes([length, len(unit) - 1 << 2]) + unit
    body += bytes([63 << 2 | 2, len(unit), 0, 7 << 2 | 1, 0]) + struct.pack("<I", rest)[:3]
    data = (unit * (size // len(unit) + 1))[:size]
    return chunk(COMPRESSED, struct.pack("<I", masked_crc(data)) + body)


class S2Stream:
    """Both directions of a peer's S2. `kinds` are the kinds of chunks that have come, by number."""

    def __init__(self) -> None:
        self.kinds: list[int] = []
        self._began = False
        self._came = bytearray()

    def encode(self, data: bytes, *, shrink: bool = True) -> bytes:
        """Encode what is to be sent; nothing is held back."""
        began, self._began = self._began, True
        chunks = compressed(data) if shrink else b"".join(uncompressed(part) for part in _parts(data))
        return (b"" if began else IDENTIFIER) + chunks

    def decode(self, data: bytes) -> bytes:
        """Decode what has come, up to the last complete chunk. Raises ValueError."""
        self._came += data
        decoded = b""
        while len(self._came) >= 4:
            end = 4 + int.from_bytes(self._came[1:4], "little")
            if len(self._came) < end:
                break
            one = bytes(self._came[:end])
            del self._came[:end]
            if not self.kinds and one != IDENTIFIER:
                raise ValueError(f"the stream begins with {one[:20]!r}")
            self.kinds.append(one[0])
            decoded += s2.decode(IDENTIFIER + one, MOST)
        return decoded


def _parts(data: bytes, size: int = 1 << 20) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]
