"""Converts dataclasses from and to JSON as Go's encoding/json does for the structs of the jwt library.

Attributes have the names of the JSON; defaults are Go's zero values, or the library's. A field with its
type's zero value is not written, but a nested object always is. A field's metadata may set: its "name" in
JSON, its "type", "always" to write it always, "special" for its own conversion.
"""

import dataclasses
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from gnats.go.json import ListOf, MapOf, Struct, Type

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Special:
    """The conversion of a field whose JSON differs from its Python type; `read` may raise JSONError."""

    type: Type
    read: Callable[[Any], object]
    write: Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class _Field:
    type: Type
    read: Callable[[Any, Any], object]
    """(JSON value, previous value of the attribute) -> new value of the attribute."""
    write: Callable[[Any], object]
    attribute: str = ""
    always: bool = False


ALWAYS = {"always": True}


def struct(cls: Any) -> Struct:
    """Return the type of a dataclass for unmarshal()."""
    return {name: each.type for name, each in _plan(cls).items()}


def fill(target: T, found: dict[str, Any]) -> T:
    """Set a result of unmarshal() on a dataclass object. Return the object. Raises JSONError."""
    cls: Any = type(target)
    plan = _plan(cls)
    for name, value in found.items():
        each = plan[name]
        setattr(target, each.attribute, each.read(value, getattr(target, each.attribute)))
    return target


def to_json(value: Any) -> dict[str, object]:
    """Return the JSON object of a dataclass object."""
    members: dict[str, object] = {}
    cls: Any = type(value)
    for name, each in _plan(cls).items():
        attribute = getattr(value, each.attribute)
        if each.always or attribute or dataclasses.is_dataclass(attribute):
            members[name] = each.write(attribute)
    return members


@cache
def _plan(cls: Any) -> dict[str, _Field]:
    """Return the conversion of each member of the JSON object."""
    hints = get_type_hints(cls)
    return {
        each.metadata.get("name", each.name): dataclasses.replace(
            _plan_field(hints[each.name], each.metadata),
            attribute=each.name,
            always=each.metadata.get("always", False),
        )
        for each in dataclasses.fields(cls)
    }


def _plan_field(hint: Any, metadata: Mapping[str, Any]) -> _Field:
    how: Special | None = metadata.get("special")
    if how is not None:
        read = how.read
        return _Field(how.type, lambda value, _: read(value), how.write)
    planned = _plan_type(hint)
    return dataclasses.replace(planned, type=metadata.get("type", planned.type))


def _plan_type(hint: Any) -> _Field:
    if get_origin(hint) in (Union, types.UnionType):  # X | None
        (hint,) = (each for each in get_args(hint) if each is not types.NoneType)
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        return _Field(struct(hint), lambda value, before: fill(before or hint(), value), to_json)
    origin = get_origin(hint)
    if origin is tuple:
        item = _plan_type(get_args(hint)[0])
        zero = _zero(get_args(hint)[0])
        return _Field(
            "strings" if item.type == "string" else ListOf(item.type),
            lambda value, _: tuple(zero() if each is None else item.read(each, None) for each in value),
            lambda value: [item.write(each) for each in value],
        )
    if origin is dict:
        item = _plan_type(get_args(hint)[1])
        zero = _zero(get_args(hint)[1])
        return _Field(
            MapOf(item.type),
            lambda value, _: {
                key: zero() if each is None else item.read(each, None) for key, each in value.items()
            },
            lambda value: {key: item.write(value[key]) for key in sorted(value)},
        )
    return _Field(
        {str: "string", int: "int", bool: "bool"}[hint], lambda value, _: value, lambda value: value
    )


def _zero(hint: Any) -> Callable[[], object]:
    return get_origin(hint) or hint  # type: ignore[no-any-return]
