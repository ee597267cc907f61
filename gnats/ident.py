"""A server's identity: a public nkey, as nats-server's (its form only: nothing is signed with it yet)."""

import binascii
import os
import random

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_SERVER_PREFIX = 13 << 3  # "N"


def new_server_id() -> str:
    """A new id: N and 55 more base32 characters, the last of them a checksum."""
    return encode_nkey(_SERVER_PREFIX, os.urandom(32))


def encode_nkey(prefix: int, key: bytes) -> str:
    """An nkey: base32 of the prefix byte, 32 bytes of key and their CRC-16/XMODEM in little endian."""
    raw = bytes([prefix]) + key
    raw += binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    bits = int.from_bytes(raw, "big")
    return "".join(_ALPHABET[bits >> shift & 31] for shift in range(len(raw) * 8 - 5, -1, -5))


_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NUID_PREFIX, _NUID_TOTAL = 12, 22


class NuidSource:
    """Unique ids (nuid): a random prefix, and a number that grows by a random step."""

    def __init__(self) -> None:
        self._number = random.randrange(62 ** (_NUID_TOTAL - _NUID_PREFIX))
        self._step = random.randrange(33, 333)
        self._prefix = "".join(_DIGITS[byte % 62] for byte in os.urandom(_NUID_PREFIX))

    def next(self) -> str:
        """Another id, 22 characters."""
        self._number += self._step
        rest, digits = self._number, []
        for _ in range(_NUID_TOTAL - _NUID_PREFIX):
            rest, digit = divmod(rest, 62)
            digits.append(_DIGITS[digit])
        return self._prefix + "".join(reversed(digits))
