"""Bytes as text; see text.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

import re

from gnats.includes.text cimport HEX_DIGITS

_SHOWN = re.compile(rb"\\x([0-9a-fA-F]{2})")


cdef inline bint is_hex(uint8_t c) noexcept nogil:
    return c'0' <= c <= c'9' or c'a' <= c <= c'f' or c'A' <= c <= c'F'


cdef size_t sequence_at(const uint8_t *p, size_t n) noexcept nogil:
    # The bytes of the character at p; 0: it is not UTF-8 (a surrogate, or an encoding longer than needed, is not).
    cdef uint8_t c = p[0], low = 0x80, high = 0xbf
    cdef size_t size, i
    if c < 0x80:
        return 1
    if c < 0xc2 or c > 0xf4:
        return 0
    size = 2 if c < 0xe0 else 3 if c < 0xf0 else 4
    if size > n:
        return 0
    if c == 0xe0:
        low = 0xa0
    elif c == 0xed:
        high = 0x9f
    elif c == 0xf0:
        low = 0x90
    elif c == 0xf4:
        high = 0x8f
    if not low <= p[1] <= high:
        return 0
    for i in range(2, size):
        if p[i] & 0xc0 != 0x80:
            return 0
    return size


cdef size_t show_bytes(const uint8_t *p, size_t n, uint8_t *out) noexcept nogil:
    cdef uint8_t *start = out
    cdef size_t size
    while n:
        size = sequence_at(p, n)
        if size == 0 or (p[0] == c'\\' and n >= 4 and p[1] == c'x' and is_hex(p[2]) and is_hex(p[3])):
            out[0] = c'\\'
            out[1] = c'x'
            out[2] = HEX_DIGITS[p[0] >> 4]
            out[3] = HEX_DIGITS[p[0] & 15]
            out += 4
            size = 1
        else:
            memcpy(out, p, size)
            out += size
        p += size
        n -= size
    return out - start


def show(bytes data not None) -> str:
    """Convert a subject or a header to text."""
    shown = PyBytes_FromStringAndSize(NULL, MOST_SHOWN * len(data))
    cdef const uint8_t *p = <const uint8_t *> PyBytes_AS_STRING(data)
    cdef size_t n = len(data)
    if is_plain(p, n):
        return data.decode("ascii")
    return shown[:show_bytes(p, n, <uint8_t *> PyBytes_AS_STRING(shown))].decode()


def unshow(str text not None) -> bytes:
    """Convert a text of show() back to its bytes."""
    return _SHOWN.sub(lambda match: bytes([int(match[1], 16)]), text.encode())
