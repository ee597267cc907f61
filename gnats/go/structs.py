"""Dataclasses for JSON objects: read as Go reads a struct, written in the order of their fields.

always() and omitempty() declare fields, as tags of a Go struct do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, Self

from gnats.go.json import Custom, JSONError, ListOf, Named, Struct, Type, compact, unmarshal
from gnats.go.text import quote
from gnats.go.times import parse_rfc3339

_TYPE, _OMIT, _MAKE = "type", "omit", "make"


class Document:
    """The base of these dataclasses. Attributes have the names of the JSON; arrays are tuples."""

    __slots__ = ()
    go_name: ClassVar[str] = ""
    """The struct's name in errors; empty: the class's name."""

    @classmethod
    @cache
    def schema(cls) -> Struct:
        """Return the fields as gnats.go.json needs them."""
        return {field.name: field.metadata[_TYPE] for field in dataclasses.fields(cls)}  # type: ignore[arg-type]

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Self:
        """Make an object from the result of unmarshal(); members that are not fields are ignored."""
        if not members:
            return cls()
        values = {}
        makers = cls._makers()
        for name, value in members.items():
            if name in makers:
                make = makers[name]
                values[name] = make(value) if make else value
        return cls(**values)

    @classmethod
    @cache
    def _makers(cls) -> dict[str, Callable[[Any], object] | None]:
        """Return the functions that convert values of unmarshal() to attributes, by name."""
        return {field.name: field.metadata[_MAKE] for field in dataclasses.fields(cls)}  # type: ignore[arg-type]

    @classmethod
    def from_json(cls, data: bytes, *, strict: bool = False) -> Self:
        """Read an object from JSON. Raises JSONError with Go's text."""
        return cls.from_members(unmarshal(data, cls.schema(), cls.go_name or cls.__name__, strict=strict))

    def json(self) -> dict[str, object]:
        """Return the members in the order of the fields; empty omitempty() fields are left out."""
        members = {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value or not field.metadata[_OMIT]:
                members[field.name] = _plain(value)
        return members


def _plain(value: object) -> object:
    if isinstance(value, Document):
        return value.json()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return dict(sorted(value.items()))
    return value


def _field(type_: Type, default: object, omit: bool, make: Callable[[Any], object] | None) -> Any:
    metadata = {_TYPE: type_, _OMIT: omit, _MAKE: make}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def always(type_: Type, default: object, make: Callable[[Any], object] | None = None) -> Any:
    """Declare a field that is always written; `make` converts a value of unmarshal() to the attribute."""
    return _field(type_, default, False, make)


def omitempty(type_: Type, default: object, make: Callable[[Any], object] | None = None) -> Any:
    """Declare a field that is left out when it is empty."""
    return _field(type_, default, True, make)


def one(cls: type[Document]) -> Any:
    """Declare a field that holds another object, or None."""
    return omitempty(Named(cls.go_name or cls.__name__, cls.schema()), None, cls.from_members)


def many(cls: type[Document], *, pointers: bool = False) -> Any:
    """Declare a field that holds an array of objects; null becomes an empty object, with `pointers` None."""
    item = Named(cls.go_name or cls.__name__, cls.schema(), pointers)

    def make(found: list[Mapping[str, Any] | None]) -> tuple[Document | None, ...]:
        return tuple(None if each is None and pointers else cls.from_members(each or {}) for each in found)

    return omitempty(ListOf(item), (), make)


def strings() -> Any:
    """Declare a field that holds an array of strings."""
    return omitempty("strings", (), tuple)


def one_of(*words: str, refusal: str = "can not unmarshal {quoted}", **also: str) -> Custom:
    """Make the type of a string that must be one of `words`, or a key of `also`, which maps it to a word.

    `refusal` is the error's text for other values; {raw} and {quoted} stand for the value's JSON.
    """
    meaning = {word: word for word in words} | also

    def read(value: object) -> object:
        if isinstance(value, str) and value in meaning:
            return meaning[value]
        raw = compact(value)
        raise JSONError(refusal.format(raw=raw, quoted=quote(raw)))

    return Custom(read)


def _read_time(value: object) -> object:
    if value is None:
        return ""
    assert isinstance(value, str)
    try:
        return parse_rfc3339(value)[1]
    except ValueError as exc:
        raise JSONError(str(exc)) from None


TIME = Custom(_read_time, "time.Time")
"""A time as text of RFC 3339; null becomes ""."""
