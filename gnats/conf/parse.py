"""The grammar of the configuration language (conf/parse.go): turns the lexer's items into a tree of tokens.

This module resolves includes and variables, and gives numbers, booleans and dates their values.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from gnats.conf.digest import digest
from gnats.conf.lex import Item, Kind, Lexer
from gnats.conf.tokens import Token, Value, error_at
from gnats.errors import OptionError
from gnats.go.text import os_error
from gnats.system.paths import system_path

_Place: TypeAlias = tuple[str, int, int]

_MAX_CHAIN = 100  # nested includes and environment variables
MAX_VALUES = 10_000_000
"""Values of one configuration; those of a variable count at each use."""
MAX_INCLUDES = 10_000
_BCRYPT = "2a$"
_ENV_KEY = "pk"

# Looking up a member of an Enum is slow
_EOF, _KEY, _STRING = Kind.EOF, Kind.KEY, Kind.STRING
_MAP_START, _MAP_END = Kind.MAP_START, Kind.MAP_END
_ARRAY_START, _ARRAY_END = Kind.ARRAY_START, Kind.ARRAY_END

_INTEGER = re.compile(r"(-?\d+)(.*)")
_SCALES = {"": 1}
for _power, _prefix in enumerate("kmgtpe", 1):
    _SCALES[_prefix] = 1000**_power
    _SCALES |= dict.fromkeys((f"{_prefix}b", f"{_prefix}i", f"{_prefix}ib"), 1024**_power)


@dataclass
class Config:
    """A configuration: its top-level keys, and its digest (sha256:<hex>)."""

    root: dict[str, Token]
    digest: str


def parse_file(path: str) -> Config:
    """Read a configuration file and the files that it includes.

    Raises OptionError, one line: file:line:pos: reason.
    """
    try:
        text = _read(path)
    except OSError as exc:
        raise OptionError(_unreadable(path, exc)) from exc
    return _config(_Parser(text, path, (_identity(path),)))


def parse(text: str, name: str = "") -> Config:
    """Like parse_file(), for a text. `name` is its path: errors show it, and includes are relative to it."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as exc:
        line = text.count("\n", 0, exc.start) + 1
        raise error_at(name, line, 0, f"{text[exc.start]} is not a character") from None
    return _config(_Parser(text, name, ()))


def _read(path: str) -> str:
    return Path(system_path(path)).read_bytes().decode("utf-8", "surrogateescape")


def _unreadable(path: str, exc: OSError) -> str:
    return f"{'read' if isinstance(exc, IsADirectoryError) else 'open'} {path}: {os_error(exc)}"


def _identity(path: str) -> str:
    return str(Path(path).resolve())


def _config(parser: _Parser) -> Config:
    root = parser.parse()
    return Config(root, digest(root))


class _Files:
    """Counts included files; all parsers of a configuration share it."""

    def __init__(self) -> None:
        self.included = 0


class _Parser:
    """Reads one text.

    `chain` names the files and environment variables that led to this text. If the text is the value of an
    environment variable, `place` is the (file, line, pos) of the variable's use.
    """

    def __init__(
        self,
        text: str,
        name: str,
        chain: tuple[str, ...],
        place: _Place | None = None,
        files: _Files | None = None,
    ) -> None:
        self._text = text
        self._name = name
        self._chain = chain
        self._place = place
        self._files = files or _Files()
        self._open: list[dict[str, Token] | list[Token]] = [{}]
        self._sizes = [0]  # the number of values in each of `_open`
        self._keys: list[Item] = []

    def parse(self) -> dict[str, Token]:
        root = self._open[0]
        assert isinstance(root, dict)
        last = None
        for item in Lexer(self._text, self._name):
            if item.kind is not _EOF:
                last = item
                self._item(item)
            elif last is not None and last.kind is Kind.KEY and last.text != "}":  # an extra } is no error
                raise self._error(item, "config is invalid")
        return root

    @property
    def size(self) -> int:
        """The number of values in the result of parse()."""
        return self._sizes[0]

    def _item(self, item: Item) -> None:
        kind = item.kind
        if kind is _KEY:
            self._keys.append(item)
        elif kind is _STRING:
            self._set(item, item.text)
        elif kind is _MAP_START:
            self._open.append({})
            self._sizes.append(0)
        elif kind is _ARRAY_START:
            self._open.append([])
            self._sizes.append(0)
        elif kind is _MAP_END or kind is _ARRAY_END:
            self._set(item, self._open.pop(), 1 + self._sizes.pop())
        else:
            self._rare(item)

    def _rare(self, item: Item) -> None:
        match item.kind:
            case Kind.INCLUDE:
                self._include(item)
            case Kind.VARIABLE:
                self._set(item, *self._variable(item))
            case Kind.INTEGER:
                self._integer(item)
            case Kind.BOOL:
                self._set(item, item.text.lower() in ("true", "yes", "on"))
            case Kind.FLOAT:
                self._set(item, self._float(item))
            case Kind.DATETIME:
                self._set(item, self._datetime(item))

    def _set(self, item: Item, value: Value, size: int = 1) -> None:
        """Add `value` to the innermost open array or map; in a map, it belongs to the last open key.

        `size` is the number of values: this one and all inside.
        """
        token = Token(value, *(self._place or (self._name, item.line, item.pos)), size=size)
        self._grow(item, size)
        into = self._open[-1]
        if isinstance(into, list):
            into.append(token)
            return
        key = self._keys.pop()
        if self._place is None:
            token.line, token.pos = key.line, key.pos
        into[key.text] = token

    def _grow(self, item: Item, size: int) -> None:
        self._sizes[-1] += size
        if self._sizes[-1] > MAX_VALUES:
            reason = (
                f"the configuration has more than {MAX_VALUES} values, with those of each use of a variable"
            )
            raise self._error(item, reason)

    def _error(self, item: Item, reason: str) -> OptionError:
        return error_at(self._name, item.line, item.pos, reason)

    # Numbers and dates

    def _integer(self, item: Item) -> None:
        number = _INTEGER.fullmatch(item.text)
        if number is None or not number[1].isascii():
            raise self._error(item, f"expected integer, but got '{item.text}'")
        digits = number[1]
        value = int(digits) if len(digits.lstrip("-0")) < 20 else 1 << 64  # int() refuses thousands of digits
        if not -(1 << 63) <= value < 1 << 63:
            raise self._error(item, f"integer '{item.text}' is out of the range")
        scale = _SCALES.get(number[2].lower())
        if scale is not None:  # as in nats-server: a value like 1kbb is dropped, and large products wrap
            self._set(item, (value * scale + (1 << 63)) % (1 << 64) - (1 << 63))

    def _float(self, item: Item) -> float:
        if not item.text.isascii():
            raise self._error(item, f"expected float, but got '{item.text}'")
        value = float(item.text)
        if value in (float("inf"), float("-inf")):
            raise self._error(item, f"float '{item.text}' is out of the range")
        return value

    def _datetime(self, item: Item) -> Value:
        from datetime import datetime

        try:
            return datetime.fromisoformat(item.text)
        except ValueError:
            raise self._error(item, f"expected Zulu formatted DateTime, but got '{item.text}'") from None

    # Includes and variables

    def _include(self, item: Item) -> None:
        # As in nats-server, a path that begins with / is relative as well
        path = os.path.normpath(Path(self._name).parent / f"./{item.text}")
        self._files.included += 1
        if self._files.included > MAX_INCLUDES:
            raise self._error(item, f"more than {MAX_INCLUDES} files are included")
        try:
            text = _read(path)
        except OSError as exc:
            reason = f"error parsing include file '{item.text}', {_unreadable(path, exc)}"
            raise self._error(item, reason) from exc
        chain = self._extended(item, _identity(path), f"include cycle for '{item.text}'")
        into = self._open[-1]
        assert isinstance(into, dict)  # the word include is a key, and keys are in maps
        parser = _Parser(text, path, chain, self._place, self._files)
        into.update(parser.parse())
        self._grow(item, parser.size)

    def _variable(self, item: Item) -> tuple[Value, int]:
        """Return the value of a variable, and the number of values in it."""
        name = item.text
        if name.startswith(_BCRYPT):
            return f"${name}", 1
        for scope in reversed(self._open):
            if isinstance(scope, dict) and name in scope:
                scope[name].used_variable = True
                return scope[name].value, scope[name].size
        chain = self._extended(item, f"${name}", f"variable reference cycle for '{name}'")
        text = os.environ.get(name)
        if text is not None:
            place = self._place or (self._name, item.line, item.pos)
            try:
                found = _Parser(f"{_ENV_KEY}={text}", f"${name}", chain, place, self._files).parse()
            except OptionError as exc:
                reason = f"variable reference for '{name}' could not be parsed: {exc}"
                raise self._error(item, reason) from None
            if _ENV_KEY in found:
                return found[_ENV_KEY].value, found[_ENV_KEY].size
        raise self._error(item, f"variable reference for '{name}' can not be found")

    def _extended(self, item: Item, link: str, cycle: str) -> tuple[str, ...]:
        if link in self._chain:
            raise self._error(item, cycle)
        if len(self._chain) == _MAX_CHAIN:
            raise self._error(item, f"more than {_MAX_CHAIN} includes and variables lead to each other")
        return (*self._chain, link)
