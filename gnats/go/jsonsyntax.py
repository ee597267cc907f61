"""Finds syntax errors in JSON and describes them as Go's encoding/json does; see gnats.go.json."""

import re
from collections.abc import Iterator

END = "unexpected end of JSON input"
VALUE = "looking for beginning of value"
KEY = "looking for beginning of object key string"

_BLANK = re.compile(rb"[ \t\r\n]*")
_LITERAL = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*')
_HEX = frozenset(b"0123456789abcdefABCDEF")
_DIGITS = frozenset(b"0123456789")
_QUOTED = {ord("'"): "'\\''", ord('"'): "'\"'"}


class _Bad(Exception):
    """A syntax error: the reason, and the offset of the byte."""

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.at = at


def syntax_error(data: bytes) -> str:
    """Return the reason why `data` is not JSON; "" if it is. Nesting is not limited here."""
    return syntax_error_at(data)[0]


def syntax_error_at(data: bytes) -> tuple[str, int]:
    """Return the same reason, and the offset of the last byte of the wrong character."""
    try:
        for _ in _document(data):
            pass
    except _Bad as exc:
        return str(exc), exc.at
    return "", 0


def _bad(data: bytes, at: int, context: str) -> _Bad:
    if at >= len(data):
        return _Bad(END, at)
    char = data[at : at + 4].decode("utf-8", "surrogateescape")[0]
    if "\udc80" <= char <= "\udcff":
        return _Bad(f"invalid character '\\x{data[at]:02x}' {context}", at)
    shown = _QUOTED.get(ord(char)) or repr(char)
    return _Bad(f"invalid character {shown} {context}", at + len(char.encode()) - 1)


def _skip(data: bytes, at: int) -> int:
    match = _BLANK.match(data, at)
    assert match
    return match.end()


def _document(data: bytes) -> Iterator[int]:
    """Walk through the document: yield the position behind each value. Raises _Bad at a syntax error."""
    closers: list[int] = []
    at = _skip(data, 0)
    while True:
        # a value begins at `at`
        byte = data[at] if at < len(data) else -1
        if byte == ord("{"):
            at = _skip(data, at + 1)
            if data[at : at + 1] != b"}":
                closers.append(ord("}"))
                at = _key(data, at)
                continue
            at += 1
        elif byte == ord("["):
            at = _skip(data, at + 1)
            if data[at : at + 1] != b"]":
                closers.append(ord("]"))
                continue
            at += 1
        else:
            at = _scalar(data, at)
        yield at
        while True:
            at = _skip(data, at)
            if not closers:
                if at < len(data):
                    raise _bad(data, at, "after top-level value")
                return
            byte = data[at] if at < len(data) else -1
            if byte == closers[-1]:
                closers.pop()
                at += 1
                continue
            if byte != ord(","):
                of_object = closers[-1] == ord("}")
                raise _bad(data, at, "after object key:value pair" if of_object else "after array element")
            at = _skip(data, at + 1)
            if closers[-1] == ord("}"):
                at = _key(data, at)
            break


def _key(data: bytes, at: int) -> int:
    if data[at : at + 1] != b'"':
        raise _bad(data, at, KEY)
    at = _skip(data, _string(data, at))
    if data[at : at + 1] != b":":
        raise _bad(data, at, "after object key")
    return _skip(data, at + 1)


def _scalar(data: bytes, at: int) -> int:
    byte = data[at] if at < len(data) else -1
    if byte == ord('"'):
        return _string(data, at)
    if literal := _LITERAL.get(byte):
        for i, expected in enumerate(literal):
            if data[at + i : at + i + 1] != bytes((expected,)):
                text = literal.decode()
                raise _bad(data, at + i, f"in literal {text} (expecting '{chr(expected)}')")
        return at + len(literal)
    if byte == ord("-") or byte in _DIGITS:
        return _number(data, at)
    raise _bad(data, at, VALUE)


def _string(data: bytes, at: int) -> int:
    at += 1
    while True:
        match = _PLAIN.match(data, at)
        assert match
        at = match.end()
        byte = data[at] if at < len(data) else -1
        if byte == ord('"'):
            return at + 1
        if byte != ord("\\"):
            raise _bad(data, at, "in string literal")
        at += 1
        if data[at : at + 1] == b"u":
            for i in range(1, 5):
                if at + i >= len(data) or data[at + i] not in _HEX:
                    raise _bad(data, at + i, "in \\u hexadecimal character escape")
            at += 4
        elif at >= len(data) or data[at] not in b'"\\/bfnrt':
            raise _bad(data, at, "in string escape code")
        at += 1


def _number(data: bytes, at: int) -> int:
    if data[at] == ord("-"):
        at += 1
    if data[at : at + 1] == b"0":
        at += 1
    else:
        at = _digits(data, at, "in numeric literal")
    if data[at : at + 1] == b".":
        at = _digits(data, at + 1, "after decimal point in numeric literal")
    if data[at : at + 1] in (b"e", b"E"):
        at += 1
        if data[at : at + 1] in (b"+", b"-"):
            at += 1
        at = _digits(data, at, "in exponent of numeric literal")
    return at


def _digits(data: bytes, at: int, context: str) -> int:
    start = at
    while at < len(data) and data[at] in _DIGITS:
        at += 1
    if at == start:
        raise _bad(data, at, context)
    return at
