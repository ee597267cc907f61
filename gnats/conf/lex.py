"""The lexer of the configuration language (conf/lex.go): turns text into keys, values and brackets.

A state is a method that reads from `_at` on and returns the next state. The state after a value depends on
where the value stands: the state that begins a value pushes it to the stack. Most states treat a NUL byte as
the end of the text, as in nats-server.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from gnats.conf.tokens import error_at
from gnats.errors import OptionError

_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # unicode.IsSpace
_SPACES = re.compile(f"[{_SPACE}]*")
_BLANKS = re.compile(r"[\t ]*")
_AFTER_VALUE = re.compile(r"(?:[\t ]|/(?!/))*")  # a single / behind a value is ignored
_AFTER_BLOCK = re.compile(r"(?:[\t\r\n ]|/(?!/))*")
_COMMENT = re.compile(r"(?:#|//)[^\n\r\0]*")
_KEY = re.compile(f"[^:=\0{_SPACE}]*")
_QUOTED = {"'": re.compile(r"[^'\0]*"), '"': re.compile(r'[^"\0]*')}
_PATH = re.compile(r"[^\n\r\0;}\t ']*")
_STRING = re.compile(r'[^\\"\0]*')
_BARE = re.compile(r"[^\\\n\r\0;,\]}\t ']*")
_BLOCK_END = re.compile(r"\n\)(?=[\n\0]|\Z)")
_DIGITS = re.compile(r"\d*")
_SUFFIX = re.compile(r"[kmgtpe][bi]*", re.IGNORECASE | re.ASCII)
_ADDRESS = re.compile(r"[\d.:-]*")
# Most of a long configuration: key: "text" in a map, "text" in an array, and brackets
_PLAIN_IN_MAP = re.compile(
    rf"[{_SPACE}]*(?:((?!(?i:include)\b)[a-zA-Z_][\w.-]*)(?:[\t ]*[:=][\t ]*|[\t ]+(?=[{{\[]))"
    r'(?:"([^"\\\0]*)"(?:[\t ]*[,;\n\r]|(?=[\t ]*\}))|([{\[]))|(\}))',
    re.ASCII,
)
_PLAIN_IN_ARRAY = re.compile(
    rf"[{_SPACE}]*" r'(?:()"([^"\\\0]*)"(?:[\t ]*[,\n\r]|(?=[\t ]*\]))|([{])|(\]))',
    re.ASCII,
)
_PLAIN_END_IN_MAP = re.compile(r"[\t ]*[,;\n\r]|[\t ]*(?=\})")
_PLAIN_END_IN_ARRAY = re.compile(r"[\t ]*[,\n\r]|[\t ]*(?=\])")
_HEX = re.compile(r"[0-9a-fA-F]{2}")

_NUMBER_ENDS = "\n\r\0};,\t "
_WORDS = frozenset(("true", "false", "on", "off", "yes", "no"))
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_NO_PATH = {
    "[": "start of an array",
    "{": "start of a map",
    "(": "start of a block",
    "-": "start of a number",
    "\\": "escape sequence",
    "\n": "new line",
    "\r": "new line",
}


class Kind(Enum):
    """The kind of an item."""

    EOF = "end"
    KEY = "key"
    STRING = "string"
    BOOL = "bool"
    INTEGER = "integer"
    FLOAT = "float"
    DATETIME = "datetime"
    ARRAY_START = "["
    ARRAY_END = "]"
    MAP_START = "{"
    MAP_END = "}"
    VARIABLE = "variable"
    INCLUDE = "include"


@dataclass(slots=True)
class Item:
    """A lexical item. `text` is a number as written, or a string without quotes and escapes."""

    kind: Kind
    text: str
    line: int
    pos: int


State: TypeAlias = "Callable[[], State | None]"


class Lexer:
    """Iterates over the items of `text`; the last is Kind.EOF. `name` is the file's name in errors.

    Iterating raises OptionError, one line with the place.
    """

    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name
        self._ascii = text.isascii()
        self._newlines = [match.start() for match in re.finditer("\n", text)]
        self._at = 0
        self._start = 0  # where the present value begins
        self._stack: list[State] = []
        self._items: list[Item] = []
        # The line of the last item: the positions of the newlines around it, and the number before it
        self._before = self._after = self._lines = 0

    def __iter__(self) -> Iterator[Item]:
        state: State | None = self._top
        while state is not None:
            state = state()
            yield from self._items
            self._items.clear()

    # Reading

    def _peek(self) -> str:
        """Return the next character; "" at the end of the text."""
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        char = self._peek()
        self._at += len(char)
        return char

    def _skip(self, pattern: re.Pattern[str]) -> str:
        """Skip the text that matches `pattern`, and return it; "" without a match."""
        match = pattern.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match[0]

    def _comment(self) -> bool:
        return bool(self._skip(_COMMENT))

    # Places

    def _emit(self, kind: Kind, start: int, end: int, text: str | None = None) -> None:
        """Add an item that goes from `start` to `end`; `text` replaces the text there."""
        if text is None:
            text = self._text[start:end]
        if not self._before < start <= end <= self._after:
            self._lines = bisect_left(self._newlines, start)
            self._before = self._line_start(self._lines)
            self._after = (self._newlines[self._lines : self._lines + 1] or [len(self._text)])[0]
        if self._ascii:
            pos = end - self._before - len(text)
        else:
            pos = self._bytes(self._text[self._before : end]) - self._bytes(text)
        line = self._lines if end <= self._after else bisect_left(self._newlines, end)
        self._items.append(Item(kind, text, line + 1, pos))

    def _line_start(self, newlines: int) -> int:
        return self._newlines[newlines - 1] if newlines else 0

    def _bytes(self, text: str) -> int:
        return len(text) if self._ascii else len(text.encode("utf-8", "surrogateescape"))

    def _error(self, reason: str) -> OptionError:
        newlines = bisect_left(self._newlines, self._at)
        pos = self._bytes(self._text[self._line_start(newlines) : self._at])
        return error_at(self._name, newlines + 1, pos, f"Parse error: {reason}")

    def _unexpected(self, expected: str) -> OptionError:
        """Make the error for the next character."""
        got = _show(self._take())
        return self._error(f"{expected}, but got {got} instead.")

    # The top level, and { } around the whole configuration

    def _top(self) -> State | None:
        return self._entry(self._top, self._top, self._after_top)

    def _block(self) -> State | None:
        self._skip(_SPACES)
        if self._peek() == "}":
            self._at += 1
            return self._stack.pop()
        return self._entry(self._block, self._after_block, self._after_block_value)

    def _entry(self, again: State, after_block: State, after_value: State) -> State | None:
        self._skip(_SPACES)
        if self._comment():
            return again
        match self._peek():
            case "":
                self._emit(Kind.EOF, self._at, self._at)
                return None
            case "{":
                self._at += 1
                self._stack.append(after_block)
                return self._block
            case "/" | "\0":
                self._at += 1
                raise self._error("Unexpected EOF.")
        self._stack.append(after_value)
        return self._key()

    def _after_top(self) -> State:
        self._skip(_AFTER_VALUE)
        if self._comment():
            return self._top
        if self._peek() in "\n\r\0;,}":
            self._take()
            return self._top
        raise self._unexpected("Expected a top-level value to end with a new line, comment or EOF")

    def _after_block_value(self) -> State:
        self._skip(_AFTER_VALUE)
        if self._comment():
            return self._after_block_value
        match self._peek():
            case "\n" | "\r" | ";" | ",":
                self._at += 1
                return self._block
            case "}":
                return self._after_block
        raise self._unexpected("Expected a block-level value to end with a new line, comment or EOF")

    def _after_block(self) -> State:
        self._skip(_AFTER_BLOCK)
        if self._comment():
            return self._block
        match self._peek():
            case ";" | ",":
                self._at += 1
                return self._block
            case "}":
                self._at += 1
                return self._stack.pop()
        raise self._unexpected("Expected a block-level to end with a '}'")

    def _key(self) -> State | None:
        char = self._peek()
        if char in ":=":
            raise self._error(f"Unexpected key separator '{char}'")
        if char in _QUOTED:
            return self._quoted_key(char)
        start = self._at
        self._at += 1
        self._skip(_KEY)
        if self._is_include(start):
            return self._include
        self._emit(Kind.KEY, start, self._at)
        return self._after_key

    def _quoted_key(self, quote: str) -> State | None:
        self._at += 1
        start = self._at
        self._skip(_QUOTED[quote])
        if self._peek() != quote:
            return self._unexpected_end(start)
        self._emit(Kind.KEY, start, self._at)
        self._at += 1
        return self._after_key

    def _unexpected_end(self, start: int, text: str = "") -> State | None:
        """End inside a quoted string. As in nats-server, an error only if text was read since `start`.

        `text` is the part of the string before `start`.
        """
        if self._at > start:
            raise self._error("Unexpected EOF.")
        self._emit(Kind.EOF, start, start, text)
        return None

    def _after_key(self) -> State | None:
        self._skip(_SPACES)
        match self._peek():
            case ":" | "=":
                self._at += 1
            case "" | "\0":
                self._emit(Kind.EOF, self._at, self._at)
                return None
        return self._value

    # Includes

    def _is_include(self, start: int) -> bool:
        """Check whether the bare key from `start` to here is the word include."""
        return self._text[start : self._at].lower() == "include" and self._peek() not in ":=\0"

    def _include(self) -> State:
        self._skip(_BLANKS)
        char = self._peek()
        if char in _QUOTED:
            self._at += 1
            start = self._at
            self._skip(_QUOTED[char])
            if self._peek() != char:
                raise self._error(f"Unexpected EOF in {'double ' if char == chr(34) else ''}quoted include")
        else:
            found = "start of a number" if char.isdecimal() else _NO_PATH.get(char)
            if found:
                self._at += 1
                raise self._error(f"Expected include value but found {found}")
            start = self._at
            self._skip(_PATH)
        self._emit(Kind.INCLUDE, start, self._at)
        if self._peek() in _QUOTED:
            self._at += 1
        return self._stack.pop()

    # Fast path of maps and arrays

    def _map(self) -> State:
        return self._plain(True)

    def _array(self) -> State:
        return self._plain(False)

    def _plain(self, in_map: bool) -> State:
        """Read plain entries of a map (`in_map`) or an array, and of maps and arrays inside it.

        Stop at the first entry that needs the other states.
        """
        emit, stack = self._emit, self._stack
        after_map_value, after_array_value = self._after_map_value, self._after_array_value
        while found := (_PLAIN_IN_MAP if in_map else _PLAIN_IN_ARRAY).match(self._text, self._at):
            self._at = found.end()
            which = found.lastindex
            if in_map and which != 4:
                emit(Kind.KEY, *found.span(1))
            if which == 2:
                emit(Kind.STRING, *found.span(2))
            elif which == 3:
                stack.append(after_map_value if in_map else after_array_value)
                in_map = found[3] == "{"
                emit(Kind.MAP_START if in_map else Kind.ARRAY_START, self._at, self._at)
            else:
                emit(Kind.MAP_END if in_map else Kind.ARRAY_END, self._at, self._at)
                after = stack.pop()
                in_map = after == after_map_value
                if not in_map and after != after_array_value:
                    return after
                end = (_PLAIN_END_IN_MAP if in_map else _PLAIN_END_IN_ARRAY).match(self._text, self._at)
                if end is None:
                    return after
                self._at = end.end()
        return self._map_entry if in_map else self._array_item

    # Maps

    def _map_entry(self) -> State:
        self._skip(_SPACES)
        if self._comment():
            return self._map
        match char := self._peek():
            case ":" | "=":
                raise self._error(f"Unexpected key separator '{char}'.")
            case "]":
                raise self._error("Unexpected array end ']' processing map.")
            case "}":
                return self._map_end
            case "" | "\0":
                raise self._error("Unexpected EOF processing map.")
            case "'" | '"':
                return self._quoted_map_key(char)
            case "/":
                self._at += 1
        start = self._at
        self._take()
        self._skip(_KEY)
        if self._peek() in ("", "\0"):
            raise self._error("Unexpected EOF processing map key.")
        if self._is_include(start):
            self._stack.append(self._after_map_value)
            return self._include
        self._emit(Kind.KEY, start, self._at)
        return self._after_map_key

    def _quoted_map_key(self, quote: str) -> State:
        self._at += 1
        start = self._at
        self._skip(_QUOTED[quote])
        if self._peek() != quote:
            kind = "quoted" if quote == "'" else "double quoted"
            raise self._error(f"Unexpected EOF processing {kind} map key.")
        self._emit(Kind.KEY, start, self._at)
        self._at += 1
        return self._after_map_key

    def _after_map_key(self) -> State:
        self._skip(_SPACES)
        if self._peek() in (":", "="):
            self._at += 1
            self._skip(_SPACES)
        match self._peek():
            case ",":
                self._at += 1
                raise self._error('Unexpected map value terminator ",".')
            case "}":
                return self._map_end
        self._stack.append(self._after_map_value)
        return self._value

    def _after_map_value(self) -> State:
        self._skip(_BLANKS)
        if self._comment():
            return self._after_map_value
        match self._peek():
            case "/" | ";" | "," | "\n" | "\r":
                self._at += 1
                return self._map
            case "}":
                return self._map_end
        raise self._unexpected('Expected a map value terminator "," or a map terminator "}"')

    def _map_end(self) -> State:
        self._at += 1
        self._emit(Kind.MAP_END, self._at, self._at)
        return self._stack.pop()

    # Arrays

    def _array_item(self) -> State:
        self._skip(_SPACES)
        if self._comment():
            return self._array
        match self._peek():
            case "/" | ",":
                self._at += 1
                raise self._error("Unexpected array value terminator ','.")
            case "]":
                return self._array_end
        self._stack.append(self._after_array_value)
        return self._value

    def _after_array_value(self) -> State:
        self._skip(_BLANKS)
        if self._comment():
            return self._after_array_value
        match self._peek():
            case "/" | "," | "\n" | "\r":
                self._at += 1
                return self._array
            case "]":
                return self._array_end
        raise self._unexpected('Expected an array value terminator "," or an array terminator "]"')

    def _array_end(self) -> State:
        self._at += 1
        self._emit(Kind.ARRAY_END, self._at, self._at)
        return self._stack.pop()

    # Values

    def _value(self) -> State | None:
        self._skip(_BLANKS)
        self._start = self._at
        char = self._take()
        match char:
            case "[":
                self._emit(Kind.ARRAY_START, self._at, self._at)
                return self._array
            case "{":
                self._emit(Kind.MAP_START, self._at, self._at)
                return self._map
            case "'":
                return self._raw_string()
            case '"':
                return self._string()
            case "(":
                return self._block_string()
            case "-":
                return self._negative()
            case ".":
                raise self._error("Floats must start with a digit")
            case "\n" | "\r":
                raise self._error("Expected value but found new line")
        if char.isdecimal():
            return self._number()
        self._at = self._start
        return self._bare()

    def _done(self, kind: Kind, start: int, text: str | None = None) -> State:
        """Add the value from `start` to here as an item."""
        self._emit(kind, start, self._at, text)
        return self._stack.pop()

    def _raw_string(self) -> State | None:
        start = self._at
        self._skip(_QUOTED["'"])
        if self._take() == "'":
            self._emit(Kind.STRING, start, self._at - 1)
            return self._stack.pop()
        return self._unexpected_end(start)

    def _string(self) -> State | None:
        start = part = self._at
        text = ""
        while True:
            text += self._skip(_STRING)
            match self._take():
                case "\\":
                    text += self._escape()
                    part = self._at
                case '"':
                    self._emit(Kind.STRING, start, self._at - 1, _join(text))
                    return self._stack.pop()
                case _:
                    return self._unexpected_end(part, text)

    def _bare(self) -> State:
        """Read the rest of a string without quotes, a boolean or a variable."""
        start = self._start
        text = self._text[start : self._at] + self._skip(_BARE)
        escaped = False
        while self._peek() == "\\":
            escaped = True
            self._at += 1
            text += self._escape()
            text += self._skip(_BARE)
        if self._peek() == "'":
            self._emit(Kind.STRING, start, self._at, _join(text))
            self._at += 1
            return self._stack.pop()
        if escaped:
            return self._done(Kind.STRING, start, _join(text))
        if text.lower() in _WORDS:
            return self._done(Kind.BOOL, start)
        if text.startswith("$"):
            return self._done(Kind.VARIABLE, start + 1)
        return self._done(Kind.STRING, start)

    def _escape(self) -> str:
        char = self._take()
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char != "x":
            raise self._error(
                f"Invalid escape character {_show(char)}. Only the following escape characters are allowed:"
                r" \xXX, \t, \n, \r, \", \\."
            )
        for _ in range(2):
            if self._take() in ("\n", "\r"):
                raise self._error(r"Expected two hexadecimal digits after '\x', but hit end of line")
        digits = self._text[self._at - 2 : self._at]
        if not _HEX.fullmatch(digits):
            raise self._error(rf"Expected two hexadecimal digits after '\x', but got {_show(digits)}")
        byte = int(digits, 16)
        return chr(byte if byte < 0x80 else 0xDC00 + byte)

    def _block_string(self) -> State:
        start = self._at
        end = _BLOCK_END.search(self._text, start)
        nul = self._text.find("\0", start, end.end() if end else len(self._text))
        if end is None or nul >= 0:
            self._at = nul + 1 if nul >= 0 else len(self._text)
            raise self._error("Unexpected EOF processing block.")
        self._at = end.end()
        # nats-server keeps the ) when it is the last character of the file
        self._emit(Kind.STRING, start, self._at - 1 if self._peek() else self._at)
        return self._stack.pop()

    # Numbers, and values that begin like a number

    def _number(self) -> State:
        self._skip(_DIGITS)
        if self._skip(_SUFFIX):
            return self._suffixed()
        char = self._peek()
        if char in _NUMBER_ENDS:
            return self._done(Kind.INTEGER, self._start)
        self._at += 1
        if char == "-":
            return self._datetime()
        return self._float() if char == "." else self._bare()

    def _suffixed(self) -> State:
        if self._peek() in _NUMBER_ENDS:
            return self._done(Kind.INTEGER, self._start)
        return self._bare()

    def _negative(self) -> State:
        char = self._take()
        if char == ".":
            raise self._error("Floats must start with a digit, not '.'.")
        if not char.isdecimal():
            raise self._error(f"Expected a digit but got {_show(char)}.")
        self._skip(_DIGITS)
        if self._peek() == ".":
            self._at += 1
            return self._float()
        return self._suffixed() if self._skip(_SUFFIX) else self._done(Kind.INTEGER, self._start)

    def _float(self) -> State:
        char = self._take()
        if not char.isdecimal():
            raise self._error(f"Floats must have a digit after the '.', but got {_show(char)} instead.")
        self._skip(_DIGITS)
        if self._peek() != ".":
            return self._done(Kind.FLOAT, self._start)
        self._skip(_ADDRESS)
        return self._done(Kind.STRING, self._start)

    def _datetime(self) -> State:
        if self._bytes(self._text[self._start : self._at]) != len("2006-"):
            raise self._error("All ISO8601 dates must be in full Zulu form.")
        for expected in "00-00T00:00:00Z":
            char = self._take()
            if not (char.isdecimal() if expected == "0" else char == expected):
                wanted = "digit" if expected == "0" else f"'{expected}'"
                raise self._error(f"Expected {wanted} in ISO8601 datetime, but found {_show(char)} instead.")
        return self._done(Kind.DATETIME, self._start)


def _join(text: str) -> str:
    """Join escaped bytes that form a UTF-8 character."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _show(text: str) -> str:
    return f"'{text}'" if text.strip("\0") else "the end"
