"""The values of a configuration, each with its place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from gnats.errors import OptionError

if TYPE_CHECKING:
    from datetime import datetime

Value: TypeAlias = "bool | int | float | str | datetime | list[Token] | dict[str, Token]"


@dataclass(slots=True)
class Token:
    """A value of a configuration.

    The place is that of the key, for an element of an array its own. As nats-server counts, `line` begins
    with 1 and `pos`, in bytes, with 1, in the first line with 0. Bytes that are not UTF-8 are kept in strings
    as surrogateescape keeps them. A datetime is in UTC.
    """

    value: Value
    file: str
    line: int
    pos: int
    used_variable: bool = False  # a variable refers to the key: it need not be an option
    size: int = field(default=1, compare=False, repr=False)  # it and all values in it


def error_at(file: str, line: int, pos: int, reason: str) -> OptionError:
    """The error that a place in a configuration is; what cannot be printed of `reason` is escaped."""
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in reason)
    return OptionError(f"{file}:{line}:{pos}: {shown}")
