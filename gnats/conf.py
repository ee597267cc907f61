"""A reader for the part of nats-server's configuration language that the options so far need (conf/).

    key: value, key = value or key value, one a line or separated by , or ; and one level of { }

Comments begin with # or //. Includes, variables, arrays and block strings are refused.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gnats.errors import OptionError
from gnats.gofmt import os_error, quote

Scalar = bool | int | float | str

_MAX_INT64 = (1 << 63) - 1
_SPACE = re.compile(r"[ \t\r]*(?:(?:#|//)[^\n]*)?")
_BLANK = re.compile(r"(?:[ \t\r\n,;]+|(?:#|//)[^\n]*)*")
_KEY = re.compile(r"""'[^'\n]*'|"[^"\n]*"|[^\s:={}\[\]"',;]+""")
_SEPARATOR = re.compile(r"[ \t]*[:=]?[ \t]*")
_BARE = re.compile(r"[^\s,;{}\[\]]+")
_QUOTED = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)\"""", re.DOTALL)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_INTEGER = re.compile(r"(-?[0-9]+)(?:([kmgtpe])(b|i|ib)?)?", re.IGNORECASE)
_FLOAT = re.compile(r"-?[0-9]+\.[0-9]+")
_NOT_YET = {"[": "an array", "{": "a block in a block"}
_BOOLS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@dataclass(slots=True)
class Entry:
    """A key with its value, and where it is."""

    key: str
    value: "Scalar | list[Entry]"
    line: int


def read_config(path: str) -> list[Entry]:
    """The entries of a configuration file.

    Raises OptionError, one line with file and line.
    """
    try:
        text = Path(path).read_text("utf-8", "surrogateescape")
    except OSError as exc:
        raise OptionError(f"open {path}: {os_error(exc)}") from exc
    return parse_config(text, path)


def parse_config(text: str, path: str) -> list[Entry]:
    """read_config() for a text; `path` is its name in errors."""
    return list(_Parser(text, path).entries(nested=False))


class _Parser:
    def __init__(self, text: str, path: str) -> None:
        self._text = text
        self._path = path
        self._at = 0

    def entries(self, *, nested: bool) -> Iterator[Entry]:
        opened = self._line()
        while True:
            self._take(_BLANK)
            if self._at == len(self._text):
                if nested:
                    raise self._error(f"the block opened on line {opened} is not closed with }}")
                return
            if nested and self._text[self._at] == "}":
                self._at += 1
                return
            line = self._line()
            key = self._take(_KEY).strip("\"'")
            if not key or key == "include":
                raise self._error("include is not supported yet" if key else self._expected("a key"))
            self._take(_SEPARATOR)
            if not nested and self._text.startswith("{", self._at):
                self._at += 1
                yield Entry(key, list(self.entries(nested=True)), line)
            else:
                yield Entry(key, self._scalar(), line)
                self._end_of_value(nested)

    def _scalar(self) -> Scalar:
        if quoted := _QUOTED.match(self._text, self._at):
            self._at = quoted.end()
            raw, escaped = quoted.groups()
            return str(raw) if raw is not None else _ESCAPE.sub(self._unescape, escaped)
        text = self._take(_BARE)
        if not text and (unknown := _NOT_YET.get(self._text[self._at : self._at + 1])):
            raise self._error(f"{unknown} is not supported yet")
        if not text or text[0] in "\"'(":
            raise self._error(self._expected("a value", back=len(text)))
        if text[0] == "$":
            raise self._error(f"the variable {text} is not supported yet; write the value")
        if text.lower() in _BOOLS:
            return _BOOLS[text.lower()]
        if number := _INTEGER.fullmatch(text):
            return self._integer(*number.groups())
        return float(text) if _FLOAT.fullmatch(text) else text

    def _integer(self, digits: str, prefix: str | None, binary: str | None) -> int:
        power = " kmgtpe".index(prefix.lower()) if prefix else 0
        scale: int = (1024 if binary else 1000) ** power
        value = int(digits) * scale
        if not -_MAX_INT64 - 1 <= value <= _MAX_INT64:
            raise self._error(f"the number {digits}{prefix or ''}{binary or ''} is too big")
        return value

    def _unescape(self, match: re.Match[str]) -> str:
        escape: str = match[1]
        if len(escape) == 3:
            return chr(int(escape[1:], 16))
        if escape not in _ESCAPES:
            known = r"\xHH, \t, \n, \r, \" and \\"
            raise self._error(f"invalid escape \\{escape}: there are {known}")
        return _ESCAPES[escape]

    def _end_of_value(self, nested: bool) -> None:
        self._take(_SPACE)
        rest = self._text[self._at : self._at + 1]
        if rest not in ("", "\n", ",", ";") and not (nested and rest == "}"):
            raise self._error(self._expected("the end of the line after a value"))

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match[0]

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1

    def _expected(self, what: str, back: int = 0) -> str:
        found = self._text[self._at - back :].split("\n", 1)[0][:20]
        return f"expected {what}, got {quote(found)}" if found else f"expected {what}"

    def _error(self, reason: str) -> OptionError:
        return OptionError(f"{self._path}:{self._line()}: {reason}")
