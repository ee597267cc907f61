"""Encode integers as Go's encoding/binary does (Uvarint, Varint)."""

from __future__ import annotations


def uvarint(n: int) -> bytes:
    return bytes([n & 127 | 128]) + uvarint(n >> 7) if n > 127 else bytes([n])


def varint(n: int) -> bytes:
    return uvarint(n << 1 if n >= 0 else ~n << 1 | 1)
