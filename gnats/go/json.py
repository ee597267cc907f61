"""Reads JSON as Go's encoding/json reads it into a struct, and writes JSON as Go does.

Peers notice these rules of Go: field names match in any case, the exact one first; null leaves a field as it
is; unknown fields are skipped; of duplicates the last wins; bytes that are not UTF-8, and halves of surrogate
pairs, become U+FFFD; a value of another type is an error.
"""

import json
import re
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, NamedTuple, NoReturn, Union

from gnats.go.text import MAX_INT32, MAX_INT64, MAX_UINT64, quote

_INTEGERS = {
    "int": (-MAX_INT64 - 1, MAX_INT64),
    "int64": (-MAX_INT64 - 1, MAX_INT64),
    "duration": (-MAX_INT64 - 1, MAX_INT64),
    "int32": (-MAX_INT32 - 1, MAX_INT32),
    "uint8": (0, 255),
    "uint64": (0, MAX_UINT64),
}


_GO_TYPES = {"strings": "[]string", "duration": "time.Duration"}


class ListOf(NamedTuple):
    """An array with items of one type. An item that is null becomes None."""

    item: "Type"


class MapOf(NamedTuple):
    """An object with any names and values of one type."""

    item: "Type"


class Either(NamedTuple):
    """A value of the first type or, if it is not of that type, of the second."""

    first: "Type"
    second: "Type"


class Custom(NamedTuple):
    """A type with its own reader: `read` gets the value (None for null), and may raise JSONError.

    With a `name`, it is a Go type that is written as a string: `read` gets only strings and None.
    """

    read: Callable[[object], object]
    name: str = ""


class Named(NamedTuple):
    """An object's fields, and its struct's name for errors. With `pointer`, arrays of it hold pointers."""

    name: str
    fields: "Struct"
    pointer: bool = False


Type = Union[str, "Struct", ListOf, MapOf, Either, Custom, Named]
"""A field's type: "bool", "string", "strings", "any", a key of _INTEGERS, or one of the classes above.

"raw", for unmarshal_raw() alone, is the value's JSON, as text.
"""
Struct = Mapping[str, Type]
"""The fields of an object."""

_SURROGATES = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_MINUS_ZERO = re.compile(r"-0(?![0-9.eE])")
_ESCAPE = 0xDC00
"""The code of the escape of byte 0 in Python's "surrogateescape"."""
_LONGEST_INTEGER = 4300
"""Digits that int() accepts."""
_TOO_DEEP = "invalid JSON: nested too deeply"


Json = dict[str, Any]
"""An object to write."""


class JSONError(ValueError):
    """Text is not JSON, or a value does not have its field's type."""


def text_of(data: bytes) -> str:
    """Decode UTF-8 as Go does: each byte that is not part of a valid character becomes U+FFFD."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        pass
    # Python's "replace" writes one U+FFFD for several bytes. The escapes are half surrogates, one for a byte;
    # valid UTF-8 has none. Replacing each kind of them takes less time than a call for each byte.
    text = data.decode("utf-8", "surrogateescape")
    for byte in range(0x80, 0x100):
        if byte in data:
            text = text.replace(chr(_ESCAPE + byte), "\ufffd")
    return text


def _constant(text: str) -> NoReturn:
    raise JSONError(f"invalid JSON: {text} is not a number")


_Pairs = tuple[tuple[str, object], ...]
"""An object's members in their order, duplicates included. Other values are no tuples."""


class _Number(str):
    """The text of a number that is not read with int(): a fraction or exponent, -0, or too many digits."""

    __slots__ = ()


def _integer(text: str) -> int | _Number:
    return _Number(text) if text == "-0" or len(text) > _LONGEST_INTEGER else int(text)


_DECODER = json.JSONDecoder(object_pairs_hook=tuple, parse_constant=_constant, parse_float=_Number)
_CAREFUL = json.JSONDecoder(
    object_pairs_hook=tuple, parse_constant=_constant, parse_float=_Number, parse_int=_integer
)


def _is_plain(text: str) -> bool:
    """Whether the faster decoder can read the text, unless it has an integer that is too long for int()."""
    return not _MINUS_ZERO.search(text)


def _decode(text: str, at: int, *, plain: bool) -> tuple[object, int]:
    """Return the value that begins at `at`, and the position behind it. Raises ValueError."""
    if plain:
        try:
            return _DECODER.raw_decode(text, at)
        except (json.JSONDecodeError, JSONError):
            raise
        except ValueError:  # of int()
            pass
    return _CAREFUL.raw_decode(text, at)


def _whole(value: object) -> object:
    """Replace halves of surrogate pairs by U+FFFD, in keys too."""
    if type(value) is tuple:
        return tuple((_SURROGATES.sub("\ufffd", key), _whole(item)) for key, item in value)
    if type(value) is list:
        return [_whole(item) for item in value]
    return _SURROGATES.sub("\ufffd", value) if type(value) is str else value


def unmarshal(data: bytes, fields: Struct, what: str, *, strict: bool = False) -> dict[str, object]:
    """Return the members of the JSON object `data` that are in `fields`; errors call it `what`.

    With `strict`, a member that is not in `fields` is an error. Raises JSONError.
    """
    try:
        return _unmarshal(data, fields, what, strict)
    except RecursionError:  # in the decoder, or in functions here that walk through its values
        raise JSONError(_TOO_DEEP) from None


def _unmarshal(data: bytes, fields: Struct, what: str, strict: bool) -> dict[str, object]:
    value = _parsed(data, _decode)
    if value is None:
        return {}
    return _members(value, fields, what, strict)


def _parsed(data: bytes, decode: Callable[..., tuple[object, int]], *, first: bool = False) -> object:
    """Return the value in `data`, by _decode() or the like; with `first`, ignore data behind it."""
    text = text_of(data)
    try:
        value, end = decode(text, _blank(text, 0), plain=_is_plain(text))
        if not first and _blank(text, end) != len(text):
            raise ValueError
        return _whole(value) if _ESCAPED_SURROGATE.search(text) else value
    except JSONError:
        raise
    except ValueError as exc:
        raise JSONError(_syntax_error(data) or f"invalid JSON: {exc}") from None


RawPaths = Mapping[str, "RawPaths"]
"""The members of an object, or of each object in an array, that are "raw" ({}) or that have such members."""


class _Raw(str):
    """The JSON of a value."""

    __slots__ = ()


def unmarshal_raw(data: bytes, type_: Type, what: str, raw: RawPaths, *, first: bool = False) -> Any:
    """Return the value of `type_` in `data`, None for null, with the JSON of the members in `raw`.

    `raw` is like {"config": {}, "items": {"config": {}}}. With `first`, data behind the value is ignored.
    Errors call the struct `what`. Raises JSONError.
    """
    try:
        value = _parsed(data, partial(_walk, raw=raw), first=first)
        return None if value is None else _value(value, type_, False)
    except _Mismatch as exc:
        if not exc.path:
            kind = _kind(exc.value)
            raise JSONError(
                f"json: cannot unmarshal {kind} into Go value of type {_go_type(type_)}"
            ) from None
        raise exc.error(what) from None
    except RecursionError:
        raise JSONError(_TOO_DEEP) from None


def _walk(text: str, at: int, raw: RawPaths, *, plain: bool) -> tuple[object, int]:
    """Like _decode(), for a value with members that are raw."""
    opener = text[at : at + 1]
    if opener not in ("{", "["):
        return _decode(text, at, plain=plain)
    closer = "}" if opener == "{" else "]"
    found: list[object] = []
    at = _blank(text, at + 1)
    if text[at : at + 1] == closer:
        return (() if opener == "{" else found), at + 1
    while True:
        if opener == "{":
            item, at = _walk_member(text, at, raw, plain=plain)
        else:
            item, at = _walk(text, at, raw, plain=plain)
        found.append(item)
        at = _blank(text, at)
        separator = text[at : at + 1]
        if separator == closer:
            return (tuple(found) if opener == "{" else found), at + 1
        if separator != ",":
            raise ValueError
        at = _blank(text, at + 1)


def _walk_member(text: str, at: int, raw: RawPaths, *, plain: bool) -> tuple[object, int]:
    """Return a member of an object, its name and its value, and the position behind it."""
    if text[at : at + 1] != '"':
        raise ValueError
    name, at = _decode(text, at, plain=plain)
    assert isinstance(name, str)
    at = _blank(text, at)
    if text[at : at + 1] != ":":
        raise ValueError
    at = _blank(text, at + 1)
    inner = raw.get(name, raw.get(_fold(name)))
    if inner:
        value, end = _walk(text, at, inner, plain=plain)
    else:
        value, end = _decode(text, at, plain=plain)
        if inner is not None:
            value = _Raw(text[at:end])
    return (name, value), end


def unmarshal_stream(data: bytes, fields: Struct, what: str, *, strict: bool = False) -> dict[str, object]:
    """Like unmarshal(), for any number of objects in a row (json.Decoder): later members win.

    Raises JSONError, with the offset of a syntax error.
    """
    try:
        return _unmarshal_stream(data, fields, what, strict)
    except RecursionError:
        raise JSONError(_TOO_DEEP) from None


def _unmarshal_stream(data: bytes, fields: Struct, what: str, strict: bool) -> dict[str, object]:
    found: dict[str, object] = {}
    text = text_of(data)
    plain, halves = _is_plain(text), _ESCAPED_SURROGATE.search(text)
    at = _blank(text, 0)
    while at < len(text):
        try:
            value, at = _decode(text, at, plain=plain)
            if halves:
                value = _whole(value)
        except JSONError:
            raise
        except ValueError:
            raise JSONError(_stream_error(data, at)) from None
        if value is not None:
            found |= _members(value, fields, what, strict)
        at = _blank(text, at)
    return found


def _blank(text: str, at: int) -> int:
    """Return the position behind white space."""
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _stream_error(data: bytes, at: int) -> str:
    """Return the reason and the byte offset of the syntax error behind the character `at`."""
    from gnats.go.jsonsyntax import END, syntax_error_at

    before = len(data.decode("utf-8", "surrogateescape")[:at].encode("utf-8", "surrogateescape"))
    reason, wrong = syntax_error_at(data[before:])
    return "unexpected EOF" if reason == END else f"{reason} at offset {before + wrong + 1}"


class _Mismatch(JSONError):
    """A value does not have its field's type; with `element`, the value is an array's item."""

    def __init__(self, value: object, field: Type, element: bool) -> None:
        super().__init__()
        self.value = value
        self.field = field
        self.element = element
        self.path: list[str] = []
        """Names of fields and indexes that lead to the value, the innermost first."""

    def within(self, name: str | int) -> "_Mismatch":
        """Add the name or index of what contains the value."""
        self.path.append(str(name))
        return self

    def error(self, what: str) -> JSONError:
        """Return the error with Go's text; `what` is the outermost struct."""
        kind, type_ = _kind(self.value), _go_type(self.field)
        if kind == "number" and isinstance(self.field, str) and self.field in _INTEGERS:
            kind = f"number {self.value}"
        where = ".".join([what, *reversed(self.path)])
        if not self.element:
            where = f"Go struct field {where}"
        return JSONError(
            f"json: cannot unmarshal {kind} into {where}" + (f" of type {type_}" if type_ else "")
        )


def _members(value: object, fields: Struct, what: str, strict: bool) -> dict[str, object]:
    """Return the members of the outermost object."""
    if type(value) is not tuple:
        raise JSONError(f"json: cannot unmarshal {_kind(value)} into Go value of type server.{what}")
    try:
        return _object(value, fields, strict)
    except _Mismatch as exc:
        raise exc.error(what) from None


def _object(pairs: _Pairs, fields: Struct, strict: bool) -> dict[str, object]:
    found: dict[str, object] = {}
    name = ""
    try:
        for name, value in pairs:
            field = fields.get(name)
            if field is None:
                key, name = name, _fold(name)
                field = fields.get(name)
                if field is None:
                    if strict:
                        raise JSONError(f"json: unknown field {quote(key)}")
                    continue
            if value is not None or type(field) is Custom:
                found[name] = _value(value, field, strict)
    except _Mismatch as exc:
        raise exc.within(name)  # noqa: B904 - the same one
    return found


def _fold(name: str) -> str:
    return name.replace("\u017f", "s").lower()  # Go folds the long s to s, lower() does not


def _value(value: object, field: Type, strict: bool, element: bool = False) -> object:
    if type(field) is str:
        return _scalar(value, field, element)
    match field:
        case Named(_, fields, _):
            if type(value) is tuple:
                return _object(value, fields, strict)
        case ListOf(item):
            if type(value) is list:
                return _list(value, item, strict)
        case MapOf(item):
            if type(value) is tuple:
                return _map(value, item, strict)
        case Custom(read, name):
            if not name or value is None or type(value) is str:
                return read(_plain(value))
        case Either(first, second):
            try:
                return _value(value, first, strict)
            except JSONError:
                return _value(value, second, strict)
        case Mapping():
            if type(value) is tuple:
                return _object(value, field, strict)
    raise _Mismatch(value, field, element)


def _list(values: list[object], item: Type, strict: bool) -> list[object]:
    found: list[object] = []
    try:
        for value in values:
            found.append(None if value is None else _value(value, item, strict, True))
    except _Mismatch as exc:
        raise exc.within(len(found))  # noqa: B904 - the same one
    return found


def _map(pairs: _Pairs, item: Type, strict: bool) -> dict[str, object]:
    found: dict[str, object] = {}
    key = ""
    try:
        for key, value in pairs:
            found[key] = None if value is None else _value(value, item, strict)
    except _Mismatch as exc:
        raise exc.within(key)  # noqa: B904 - the same one
    return found


def _go_type(field: Type) -> str:
    """Return Go's name of a type; "" for a struct whose name is not known."""
    match field:
        case str():
            return _GO_TYPES.get(field, field)
        case Custom(_, name):
            return name
        case Named(name, _, _):
            return f"server.{name}"
        case ListOf(item):
            inner, pointer = _go_type(item), isinstance(item, Named) and item.pointer
            return f"[]{'*' if pointer else ''}{inner}" if inner else ""
        case MapOf(item):
            inner = _go_type(item)
            return f"map[string]{inner}" if inner else ""
    return ""


def _syntax_error(data: bytes) -> str:
    from gnats.go.jsonsyntax import syntax_error  # loaded only when a syntax error occurs

    return syntax_error(data)


def _scalar(value: object, field: str, element: bool = False) -> object:
    if field == "string":
        if type(value) is str:
            return value
    elif field == "strings":
        if type(value) is list:
            if set(map(type, value)) <= {str}:
                return value
            return ["" if each is None else each for each in _list(value, "string", False)]
    elif field == "any":
        return _plain(value)
    elif field == "raw":
        if type(value) is _Raw:
            return str(value)
    elif field == "bool":
        if type(value) is bool:
            return value
    elif value == "-0" and type(value) is _Number:
        if not field.startswith("uint"):
            return 0
    elif type(value) is int:
        low, high = _INTEGERS[field]
        if low <= value <= high:
            return value
    raise _Mismatch(value, field, element)


def _plain(value: object) -> object:
    if type(value) is tuple:
        return {key: _plain(item) for key, item in value}
    if type(value) is list:
        return [_plain(item) for item in value]
    return float(value) if isinstance(value, _Number) else value


def _kind(value: object) -> str:
    if type(value) is tuple:
        return "object"
    if type(value) is list:
        return "array"
    if type(value) is bool:
        return "bool"
    return "string" if type(value) is str else "number"


COMPACT = ",", ":"
"""The separators of JSON without blanks."""

_ESCAPED = {char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def escape(text: str) -> str:
    """Escape JSON text as Go does: escape characters special to HTML, replace bytes that are not UTF-8."""
    for char, escaped in _ESCAPED.items():
        text = text.replace(char, escaped)
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def compact(value: object, *, ascii: bool = False) -> str:
    """Return a value's JSON without blanks and without the escapes of Go; with `ascii` in ASCII."""
    return json.dumps(value, ensure_ascii=ascii, separators=COMPACT)


def marshal(value: object) -> bytes:
    """Return the compact JSON of a value, as Go writes it."""
    return escape(compact(value)).encode()


def marshal_steps(value: object, depth: int = 3) -> Generator[None, None, bytes]:
    """Like marshal(), in steps: yields after each item of a list. A value nested `depth` deep is one step."""
    if depth and isinstance(value, dict):
        members = []
        for name, item in value.items():
            members.append(marshal(name) + b":" + (yield from marshal_steps(item, depth - 1)))
        return b"{" + b",".join(members) + b"}"
    if depth and isinstance(value, list):
        items = []
        for item in value:
            items.append((yield from marshal_steps(item, depth - 1)))
            yield
        return b"[" + b",".join(items) + b"]"
    return marshal(value)
