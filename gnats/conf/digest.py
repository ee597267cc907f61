"""The digest of a configuration: SHA-256 of its JSON as Go's encoding/json writes it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from gnats.conf.tokens import Token, Value, error_at

if TYPE_CHECKING:
    import hashlib

_TEXTS = 10000
"""Pieces of text that one update of the hash gets."""
_MAX_DEPTH = 9999  # nested arrays and maps: encoding/json's limit

_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(0x20), *map(ord, "<>&\u2028\u2029"))}
_ESCAPES |= dict.fromkeys(range(0xDC80, 0xDD00), "\ufffd")  # bytes that surrogateescape kept
_ESCAPES |= {ord(char): f"\\{name}" for char, name in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True)}


def digest(root: dict[str, Token]) -> str:
    """Return the digest of `root` as `nats-server -t` prints it: sha256:<hex>.

    Raises OptionError for values that are nested too deeply.
    """
    total = new_sha256()
    texts = _texts(root)
    while part := "".join(islice(texts, _TEXTS)):
        total.update(part.encode())
    total.update(b"\n")
    return f"sha256:{total.hexdigest()}"


def new_sha256() -> hashlib._Hash:
    """Return a new SHA-256 hash, Python's own if there is one: hashlib loads OpenSSL (3.7 MB of memory)."""
    return cast("hashlib._Hash", _sha256()())


@cache
def _sha256() -> Any:
    for name in ("_sha2", "_sha256"):  # of Python 3.12 and of 3.11
        try:
            return import_module(name).sha256
        except ImportError:
            continue
    return import_module("hashlib").sha256


def _texts(root: dict[str, Token]) -> Iterator[str]:
    open_values = [_pieces(root)]
    while open_values:
        for piece in open_values[-1]:
            if isinstance(piece, str):
                yield piece
            elif len(open_values) > _MAX_DEPTH and isinstance(piece.value, list | dict):
                reason = f"arrays and maps are more than {_MAX_DEPTH} deep in each other"
                raise error_at(piece.file, piece.line, piece.pos, reason)
            else:
                open_values.append(_pieces(piece.value))
                break
        else:
            open_values.pop()


def _pieces(value: Value) -> Iterator[str | Token]:
    """Yield the JSON of a value; a Token stands for its own JSON."""
    if isinstance(value, dict):
        lead = "{"
        for key in sorted(value, key=_utf8):
            name = f'{lead}"{key.translate(_ESCAPES)}":'
            if isinstance(text := value[key].value, str):
                yield f'{name}"{text.translate(_ESCAPES)}"'
            else:
                yield name
                yield value[key]
            lead = ","
        yield "}" if value else "{}"
    elif isinstance(value, list):
        lead = "["
        for token in value:
            if isinstance(token.value, str):
                yield f'{lead}"{token.value.translate(_ESCAPES)}"'
            else:
                yield lead
                yield token
            lead = ","
        yield "]" if value else "[]"
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, int):
        yield str(value)
    elif isinstance(value, float):
        yield _float(value)
    elif isinstance(value, str):
        yield f'"{value.translate(_ESCAPES)}"'
    else:
        yield f'"{value.year:04}-{value:%m-%dT%H:%M:%SZ}"'


def _float(value: float) -> str:
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa.removesuffix(".0")
    if not 1e-6 <= abs(value) < 1e21:
        return f"{mantissa}e{exponent.replace('-0', '-')}"
    whole, _, part = mantissa.partition(".")
    places = int(exponent)
    if places > 0:  # at least 16, and there are never more digits than that
        return whole + part.ljust(places, "0")
    sign = "-" if value < 0 else ""
    return f"{sign}0.{'0' * (-places - 1)}{whole.removeprefix('-')}{part}"


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
