"""JSON from a peer, read as Go's encoding/json reads it into a struct.

What a client can notice of it: field names match in any case, the exact one first; null leaves a field as it
is; unknown fields are skipped; of duplicates the last wins; bytes that are not UTF-8, and halves of surrogate
pairs, become U+FFFD; a value of another type is an error.
"""

import codecs
import json
import re
from collections.abc import Mapping
from typing import NamedTuple, NoReturn, Union

_INTEGERS = {
    "int": (-(1 << 63), (1 << 63) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint8": (0, 255),
    "uint64": (0, (1 << 64) - 1),
}


_GO_TYPES = {"strings": "[]string"}


class ListOf(NamedTuple):
    """An array of values of one type; null is null, and an item's null its type's zero value or None."""

    item: "Type"


class MapOf(NamedTuple):
    """An object with any names and values of one type."""

    item: "Type"


class Either(NamedTuple):
    """One type or, where the value is not of that one, another."""

    first: "Type"
    second: "Type"


Type = Union[str, "Struct", ListOf, MapOf, Either]
"""A field's type: "bool", "string", "strings", "any", an integer type, a nested object's fields..."""
Struct = Mapping[str, Type]
"""The fields of an object."""

_SURROGATES = re.compile("[\ud800-\udfff]")


class JSONError(ValueError):
    """Text that is not JSON, or not of the type it is read into."""


def _replace(exc: UnicodeError) -> tuple[str, int]:
    assert isinstance(exc, UnicodeDecodeError)
    return "\ufffd" * (exc.end - exc.start), exc.end


codecs.register_error("gnats.fffd", _replace)  # Python's "replace" writes one U+FFFD for several bytes


def _constant(text: str) -> NoReturn:
    raise JSONError(f"invalid JSON: {text} is not a number")


class _Pairs(list[tuple[str, object]]):
    """An object's members in their order, duplicates included."""


_DECODER = json.JSONDecoder(object_pairs_hook=_Pairs, parse_constant=_constant)


def unmarshal(data: bytes, fields: Struct, what: str) -> dict[str, object]:
    """The members of the JSON object `data` that are in `fields`; `what` is its name in errors.

    Raises JSONError.
    """
    try:
        value = _DECODER.decode(data.decode("utf-8", "gnats.fffd"))
    except JSONError:
        raise
    except ValueError as exc:  # json.JSONDecodeError, or a number with thousands of digits
        raise JSONError(_syntax_error(data) or f"invalid JSON: {exc}") from None
    except RecursionError:
        raise JSONError("invalid JSON: nested too deeply") from None
    if value is None:
        return {}
    if not isinstance(value, _Pairs):
        raise JSONError(f"json: cannot unmarshal {_kind(value)} into Go value of type server.{what}")
    return _object(value, fields, what)


def _object(pairs: _Pairs, fields: Struct, what: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        name = key if key in fields else _fold(key)
        field = fields.get(name)
        if field is not None and value is not None:
            found[name] = _value(value, field, f"{what}.{name}")
    return found


def _fold(name: str) -> str:
    return name.replace("\u017f", "s").lower()  # lower() leaves the long s alone, Go does not


def _value(value: object, field: Type, what: str) -> object:
    match field:
        case Either(first, second):
            try:
                return _value(value, first, what)
            except JSONError:
                return _value(value, second, what)
        case ListOf(item):
            if isinstance(value, list) and not isinstance(value, _Pairs):
                return [
                    None if each is None else _value(each, item, f"{what}.{index}")
                    for index, each in enumerate(value)
                ]
        case MapOf(item):
            if isinstance(value, _Pairs):
                return {
                    key: None if each is None else _value(each, item, f"{what}.{key}") for key, each in value
                }
        case str():
            return _scalar(value, field, what)
        case _:
            if isinstance(value, _Pairs):
                return _object(value, field, what)
    raise _mismatch(value, field, what)


def _mismatch(value: object, field: Type, what: str) -> JSONError:
    kind, of_type = _kind(value), ""
    if isinstance(field, str):
        of_type = f" of type {_GO_TYPES.get(field, field)}"
        if kind == "number" and field in _INTEGERS:
            kind = f"number {value}"
    return JSONError(f"json: cannot unmarshal {kind} into Go struct field {what}{of_type}")


def _syntax_error(data: bytes) -> str:
    from gnats.jsonsyntax import syntax_error  # only those who send no JSON load it

    return syntax_error(data)


def _scalar(value: object, field: str, what: str) -> object:
    if field == "any":
        return _plain(value)
    if field == "bool":
        if isinstance(value, bool):
            return value
    elif field == "string":
        if isinstance(value, str):
            return _SURROGATES.sub("\ufffd", value)
    elif field == "strings":
        if isinstance(value, list) and not isinstance(value, _Pairs):
            return [
                "" if item is None else _scalar(item, "string", f"{what}.{i}") for i, item in enumerate(value)
            ]
    elif isinstance(value, int) and not isinstance(value, bool):
        low, high = _INTEGERS[field]
        if low <= value <= high:
            return value
    raise _mismatch(value, field, what)


def _plain(value: object) -> object:
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
    return "string" if isinstance(value, str) else "number"


_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_ESCAPED = re.compile("[<>&\u2028\u2029]")


def marshal(value: object) -> bytes:
    """The compact JSON of a value, with the characters escaped that Go escapes for the sake of HTML."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return _ESCAPED.sub(lambda found: _ESCAPES[found[0]], text).encode("utf-8", "replace")
