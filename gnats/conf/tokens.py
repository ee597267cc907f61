"""Tokens: the values of a configuration with their places; errors at a place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from gnats.errors import OptionError

if TYPE_CHECKING:
    from datetime import datetime

Value: TypeAlias = "bool | int | float | str | datetime | list[Token] | dict[str, Token]"


@dataclass(slots=True)
class Token:
    """A value of a configuration and its place: the place of its key; of an item of an array, its own.

    As in nats-server, `line` counts from 1, and `pos` counts bytes from 1 (in the first line from 0). Strings
    keep bytes that are not UTF-8 as surrogateescape does. A datetime is in UTC.
    """

    value: Value
    file: str
    line: int
    pos: int
    used_variable: bool = False  # a variable refers to the key: the key need not be an option
    size: int = field(default=1, compare=False, repr=False)  # the number of values: this one and all inside


def error_at(file: str, line: int, pos: int, reason: str) -> OptionError:
    """Make the error for a place in a configuration; escapes unprintable characters of `reason`."""
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in reason)
    return OptionError(f"{file}:{line}:{pos}: {shown}")
