"""Variable-length numbers of Go's encoding/binary: seven bits a byte, the lowest first."""

MAX_LENGTH = 10
"""Bytes that a 64-bit number may take."""


class UvarintReader:
    """Reads numbers from `data`, starting at `at`."""

    ended = "unexpected EOF"
    """What a ValueError says when the data ends."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def number(self) -> int:
        """Read the next number. Raises ValueError if the data ends or the number exceeds 64 bits."""
        value = 0
        for i, byte in enumerate(self.data[self.at : self.at + MAX_LENGTH]):
            value |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                if value >= 1 << 64:
                    break
                self.at += i + 1
                return value
        raise ValueError(self.ended)

    def counted(self) -> bytes:
        """Read a number, and as many bytes behind it. Raises ValueError."""
        size = self.number()
        found = self.data[self.at : self.at + size]
        if len(found) < size:
            raise ValueError(self.ended)
        self.at += size
        return found


def encode_uvarint(value: int) -> bytes:
    """Return the encoded bytes of a number."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
