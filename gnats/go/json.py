"""Reads JSON as Go's encoding/json reads it into a struct, and writes JSON as Go does.

Peers notice these rules of Go: field names match in any case, the exact one first; null leaves a field as it
is; unknown fields are skipped; of duplicates the last wins; bytes that are not UTF-8, and halves of surrogate
pairs, become U+FFFD; a value of another type is an error.
"""

import codecs
import json
import re
from collections.abc import Callable, Generator, Mapping
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
"""A field's type: "bool", "string", "strings", "any", a key of _INTEGERS, or one of the classes above."""
Struct = Mapping[str, Type]
"""The fields of an object."""

_SURROGATES = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_MINUS_ZERO = re.compile(r"-0(?![0-9.eE])")
_LONGEST_INTEGER = 4300
"""Digits that int() accepts."""
_TOO_DEEP = "invalid JSON: nested too deeply"


Json = dict[str, Any]
"""An object to write."""


class JSONError(ValueError):
    """Text is not JSON, or a value does not have its field's type."""


def _replace(exc: UnicodeError) -> tuple[str, int]:
    assert isinstance(exc, UnicodeDecodeError)
    return "\ufffd" * (exc.end - exc.start), exc.end


codecs.register_error("gnats.fffd", _replace)  # Python's "replace" writes one U+FFFD for several bytes


def _constant(text: str) -> NoReturn:
    raise JSONError(f"invalid JSON: {text} is not a number")


class _Pairs(list[tuple[str, object]]):
    """An object's members in their order, duplicates included."""


class _Number(str):
    """The text of a number that is not read with int(): a fraction or exponent, -0, or too many digits."""

    __slots__ = ()


def _integer(text: str) -> int | _Number:
    return _Number(text) if text == "-0" or len(text) > _LONGEST_INTEGER else int(text)


_DECODER = json.JSONDecoder(object_pairs_hook=_Pairs, parse_constant=_constant, parse_float=_Number)
_CAREFUL = json.JSONDecoder(
    object_pairs_hook=_Pairs, parse_constant=_constant, parse_float=_Number, parse_int=_integer
)


def _decoder(text: str) -> json.JSONDecoder:
    """Choose the faster decoder, unless the text may contain -0 or very long integers."""
    return _CAREFUL if _MINUS_ZERO.search(text) or len(text) > _LONGEST_INTEGER else _DECODER


def _whole(value: object) -> object:
    """Replace halves of surrogate pairs by U+FFFD, in keys too."""
    if isinstance(value, _Pairs):
        return _Pairs((_SURROGATES.sub("\ufffd", key), _whole(item)) for key, item in value)
    if isinstance(value, list):
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
    text = data.decode("utf-8", "gnats.fffd")
    try:
        value = _decoder(text).decode(text)
        if _ESCAPED_SURROGATE.search(text):
            value = _whole(value)
    except JSONError:
        raise
    except ValueError as exc:
        raise JSONError(_syntax_error(data) or f"invalid JSON: {exc}") from None
    if value is None:
        return {}
    if not isinstance(value, _Pairs):
        raise JSONError(f"json: cannot unmarshal {_kind(value)} into Go value of type server.{what}")
    return _object(value, fields, what, strict)


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
    text = data.decode("utf-8", "gnats.fffd")
    decoder, halves = _decoder(text), _ESCAPED_SURROGATE.search(text)
    at = _blank(text, 0)
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
            if halves:
                value = _whole(value)
        except JSONError:
            raise
        except ValueError:
            raise JSONError(_stream_error(data, at)) from None
        if value is not None:
            if not isinstance(value, _Pairs):
                raise JSONError(f"json: cannot unmarshal {_kind(value)} into Go value of type server.{what}")
            found |= _object(value, fields, what, strict)
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


def _object(pairs: _Pairs, fields: Struct, what: str, strict: bool) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        name = key if key in fields else _fold(key)
        field = fields.get(name)
        if field is None:
            if strict:
                raise JSONError(f"json: unknown field {quote(key)}")
        elif value is not None or isinstance(field, Custom):
            found[name] = _value(value, field, f"{what}.{name}", strict)
    return found


def _fold(name: str) -> str:
    return name.replace("\u017f", "s").lower()  # Go folds the long s to s, lower() does not


def _value(value: object, field: Type, what: str, strict: bool, element: bool = False) -> object:
    match field:
        case Custom(read, name):
            if not name or value is None or type(value) is str:
                return read(_plain(value))
        case Named(_, fields, _):
            if isinstance(value, _Pairs):
                return _object(value, fields, what, strict)
        case Either(first, second):
            try:
                return _value(value, first, what, strict)
            except JSONError:
                return _value(value, second, what, strict)
        case ListOf(item):
            if isinstance(value, list) and not isinstance(value, _Pairs):
                return [
                    None if each is None else _value(each, item, f"{what}.{index}", strict, True)
                    for index, each in enumerate(value)
                ]
        case MapOf(item):
            if isinstance(value, _Pairs):
                return {
                    key: None if each is None else _value(each, item, f"{what}.{key}", strict)
                    for key, each in value
                }
        case str():
            return _scalar(value, field, what, element)
        case _:
            if isinstance(value, _Pairs):
                return _object(value, field, what, strict)
    raise _mismatch(value, field, what, element)


def _mismatch(value: object, field: Type, what: str, element: bool = False) -> JSONError:
    """Make the error for a value of another type; with `element`, the value is an array's item."""
    kind, type_ = _kind(value), _go_type(field)
    if kind == "number" and isinstance(field, str) and field in _INTEGERS:
        kind = f"number {value}"
    where = what if element else f"Go struct field {what}"
    return JSONError(f"json: cannot unmarshal {kind} into {where}" + (f" of type {type_}" if type_ else ""))


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


def _scalar(value: object, field: str, what: str, element: bool = False) -> object:
    if field == "any":
        return _plain(value)
    if field == "bool":
        if isinstance(value, bool):
            return value
    elif field == "string":
        if type(value) is str:
            return value
    elif field == "strings":
        if isinstance(value, list) and not isinstance(value, _Pairs):
            return [
                "" if item is None else _scalar(item, "string", f"{what}.{i}", True)
                for i, item in enumerate(value)
            ]
    elif value == "-0" and isinstance(value, _Number):
        if not field.startswith("uint"):
            return 0
    elif isinstance(value, int) and not isinstance(value, bool):
        low, high = _INTEGERS[field]
        if low <= value <= high:
            return value
    raise _mismatch(value, field, what, element)


def _plain(value: object) -> object:
    if isinstance(value, _Number):
        return float(value)
    if isinstance(value, _Pairs):
        return {key: _plain(item) for key, item in value}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _kind(value: object) -> str:
    if isinstance(value, _Pairs):
        return "object"
    if isinstance(value, list):
        return "array"
    if isinstance(value, bool):
        return "bool"
    return "string" if type(value) is str else "number"


COMPACT = ",", ":"
"""The separators of JSON without blanks."""

_ESCAPED = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def escape(text: str) -> str:
    """Escape JSON text as Go does: escape characters special to HTML, replace bytes that are not UTF-8."""
    return _ESCAPED.sub(_escape_one, text)


def _escape_one(found: re.Match[str]) -> str:
    code = ord(found[0])
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else f"\\u{code:04x}"


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
