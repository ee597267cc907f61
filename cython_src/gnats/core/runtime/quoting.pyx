"""Quote text for the server's messages; see quoting.pxd."""
from libc.stddef cimport size_t
from libc.string cimport memcpy, strlen

from gnats.includes.text cimport HEX_DIGITS, put_text, starts_with_text


cdef char *quote(char *out, const char *p, size_t n) noexcept nogil:
    """Write p[:n] quoted as Go's %q does; bytes that are no UTF-8 become \\x.."""
    cdef const char *plain = b"\a\b\f\n\r\t\v\\\""
    cdef const char *letter = b"abfnrtv\\\""
    cdef size_t i = 0, k, width
    cdef unsigned char c
    out[0] = c'"'
    out += 1
    while i < n:
        c = <unsigned char> p[i]
        for k in range(strlen(plain)):
            if c == <unsigned char> plain[k]:
                out[0] = c'\\'
                out[1] = letter[k]
                out += 2
                i += 1
                break
        else:
            width = utf8_width(p + i, n - i)
            if c < 0x20 or c == 0x7f or width == 0:
                out[0] = c'\\'
                out[1] = c'x'
                out[2] = HEX_DIGITS[c >> 4]
                out[3] = HEX_DIGITS[c & 15]
                out += 4
                i += 1
            else:
                memcpy(out, p + i, width)
                out += width
                i += width
    out[0] = c'"'
    return out + 1


cdef size_t put_json_string(char *out, const char *p, size_t n) noexcept nogil:
    cdef char *to = out
    cdef size_t i = 0, width
    cdef unsigned char c
    to[0] = c'"'
    to += 1
    while i < n:
        c = <unsigned char> p[i]
        if c >= 0x80:
            width = utf8_width(p + i, n - i)
            if width == 0:
                to = put_text(to, b"\\ufffd")
                i += 1
            elif (
                width == 3 and starts_with_text(p + i, width, b"\xe2\x80")
                and (<unsigned char> p[i + 2] & 0xFE) == 0xA8
            ):
                to = put_text(to, b"\\u202")   # the line and paragraph separators
                to[0] = HEX_DIGITS[<unsigned char> p[i + 2] & 15]
                to += 1
                i += 3
            else:
                memcpy(to, p + i, width)
                to += width
                i += width
            continue
        i += 1
        if c == c'"' or c == c'\\':
            to[0] = c'\\'
            to[1] = <char> c
            to += 2
        elif c >= 0x20 and c != c'<' and c != c'>' and c != c'&':
            to[0] = <char> c
            to += 1
        elif c == 8 or c == 9 or c == 10 or c == 12 or c == 13:
            to[0] = c'\\'
            to[1] = c'b' if c == 8 else c't' if c == 9 else c'n' if c == 10 else c'f' if c == 12 else c'r'
            to += 2
        else:
            to = put_text(to, b"\\u00")
            to[0] = HEX_DIGITS[c >> 4]
            to[1] = HEX_DIGITS[c & 15]
            to += 2
    to[0] = c'"'
    return to + 1 - out


cdef size_t utf8_width(const char *p, size_t n) noexcept nogil:
    cdef unsigned char c = <unsigned char> p[0], d = <unsigned char> p[1] if n > 1 else 0
    cdef size_t width, i
    if c < 0x80:
        return 1
    if c < 0xC2 or c > 0xF4:
        return 0
    width = 2 if c < 0xE0 else 3 if c < 0xF0 else 4
    if n < width:
        return 0
    if (c == 0xE0 and d < 0xA0) or (c == 0xED and d > 0x9F) or (c == 0xF0 and d < 0x90) or (c == 0xF4 and d > 0x8F):
        return 0
    for i in range(1, width):
        if (<unsigned char> p[i] & 0xC0) != 0x80:
            return 0
    return width
