"""Typed readers of configuration values, and the list of problems that they find.

A reader gets a key as written, its token, and the problems found until then. It returns the value of an
option, or raises ConfigError. A table gives the option and the reader of each key of a block.
"""

import re
from collections.abc import Callable
from typing import Any

from gnats.conf import Token, Value
from gnats.errors import OptionError
from gnats.go.hostport import split_host_port
from gnats.go.text import SECOND, parse_duration, quote

_PORT = re.compile(r"[+-]?[0-9]+")


class ConfigError(Exception):
    """A value cannot be used: its token, and the reason."""

    def __init__(self, token: Token, reason: str) -> None:
        super().__init__(reason)
        self.token = token


class Problems:
    """The errors and warnings about a configuration, one line each."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []

    def error(self, token: Token, reason: str) -> None:
        self.errors.append(f"{_place(token)}: {reason}")

    def warning(self, token: Token, reason: str) -> None:
        self.warnings.append(f"{_place(token)}: {reason}")

    def misuse(self, key: str, token: Token, reason: str) -> None:
        """Warn about the use of a key."""
        self.warning(token, f"invalid use of field {quote(key)}: {reason}")


Read = Callable[[str, Token, Problems], Any]
Keys = dict[str, tuple[str, Read]]
"""By key: the option that it sets, and its reader. Option "": the reader returns a dict of options."""


def keys(*rows: tuple[str, Read, str]) -> Keys:
    """Make a table from rows of (option, reader, names of the key)."""
    return {name: (option, read) for option, read, names in rows for name in names.split()}


def read_block(
    table: Keys,
    key: str,
    token: Token,
    problems: Problems,
    unknown: str = "unknown field {}",
    variables: bool = True,
    strict: bool = True,
) -> dict[str, Any]:
    """Read a block: return the options that its keys set, and add errors to `problems`.

    If a key occurs under several of its names, the last counts. A key that is not in the table is an error,
    or without `strict` a warning. With `variables`, such a key may be used as a variable. Raises ConfigError
    when the value is not a block.
    """
    found: dict[str, Any] = {}
    for name, value in block(key, token).items():
        option, read = table.get(name.lower(), ("", None))
        if read is None:
            if not (variables and value.used_variable):
                (problems.error if strict else problems.warning)(value, unknown.format(quote(name)))
            continue
        try:
            result = read(name, value, problems)
        except ConfigError as exc:
            problems.error(exc.token, str(exc))
        else:
            found.update({option: result} if option else result)
    return found


def block(key: str, token: Token) -> dict[str, Token]:
    """Return the entries of a block. Raises ConfigError."""
    if not isinstance(token.value, dict):
        raise ConfigError(token, f"{key} takes a block {{ ... }}, not {show(token.value)}")
    return token.value


def array(key: str, token: Token) -> list[Token]:
    """Return the items of an array. Raises ConfigError."""
    if not isinstance(token.value, list):
        raise ConfigError(token, f"{key} takes an array [ ... ], not {show(token.value)}")
    return token.value


def string(key: str, token: Token, problems: Problems) -> str:
    if not isinstance(token.value, str):
        raise ConfigError(token, f"{key} takes a string, not {show(token.value)}")
    return token.value


def boolean(key: str, token: Token, problems: Problems) -> bool:
    if not isinstance(token.value, bool):
        raise ConfigError(token, f"{key} takes true or false, not {show(token.value)}")
    return token.value


def integer(key: str, token: Token, problems: Problems) -> int:
    if type(token.value) is not int:
        raise ConfigError(token, f"{key} takes a number, not {show(token.value)}")
    return token.value


def duration(key: str, token: Token, problems: Problems) -> float:
    """Read seconds from a duration as text."""
    try:
        return parse_duration(string(key, token, problems)) / SECOND
    except ValueError as exc:
        raise ConfigError(token, f"error parsing {key}: {exc}") from None


def seconds(key: str, token: Token, problems: Problems) -> float:
    """Read seconds from a duration as text, or from a number with a warning."""
    if type(token.value) is int:
        problems.misuse(key, token, f"{key} should be converted to a duration")
        return float(token.value)
    if not isinstance(token.value, str):
        raise ConfigError(token, f'{key} takes a duration like "10s", not {show(token.value)}')
    return duration(key, token, problems)


def timeout(key: str, token: Token, problems: Problems) -> float:
    """Read seconds from a number or a duration as text."""
    if isinstance(token.value, (int, float)) and not isinstance(token.value, bool):
        return float(token.value)
    if not isinstance(token.value, str):
        raise ConfigError(token, f"{key} takes seconds or a duration, not {show(token.value)}")
    return duration(key, token, problems)


def listen(host: str, port: str) -> Read:
    """Make a reader of a port or host:port, which sets two options."""

    def read(key: str, token: Token, problems: Problems) -> dict[str, Any]:
        if type(token.value) is int:
            return {port: token.value}
        try:
            name, number = split_host_port(token.value if isinstance(token.value, str) else "")
        except OptionError:
            number = ""
        if not _PORT.fullmatch(number):
            raise ConfigError(token, f"{key}: expected port or host:port, got {show(token.value)}")
        return {host: name, port: int(number)}

    return read


def write_timeout(key: str, token: Token, problems: Problems) -> str:
    """Read the policy for a connection that misses its write deadline: "" is the default one."""
    policy = string(key, token, problems)
    if policy not in ("default", "close", "retry"):
        raise ConfigError(token, f"{key} must be 'default', 'close' or 'retry'")
    return "" if policy == "default" else policy


def strings(key: str, token: Token, problems: Problems) -> tuple[str, ...]:
    """Read an array of strings."""
    return tuple(string(f"an item of {key}", item, problems) for item in array(key, token))


def string_or_strings(key: str, token: Token, problems: Problems) -> tuple[str, ...]:
    """Read an array of strings, or a single string."""
    if isinstance(token.value, str):
        return (token.value,)
    if not isinstance(token.value, list):
        raise ConfigError(token, f"{key} takes a string or an array of strings, not {show(token.value)}")
    return strings(key, token, problems)


def public_nkey(kind: str, what: str) -> Read:
    """Make a reader of a public nkey; `kind` is its first letter."""

    def read(key: str, token: Token, problems: Problems) -> str:
        nkey = string(key, token, problems)
        if not is_public_nkey(nkey, kind):
            raise ConfigError(token, f"{key}: not a valid public nkey of {what}: {quote(nkey)}")
        return nkey

    return read


def is_public_nkey(text: str, kind: str) -> bool:
    """Check for a public nkey that begins with the letter `kind`."""
    from gnats.nkeys.nkeys import is_valid_public_key

    return text.startswith(kind) and is_valid_public_key(text)


def percentage(low: int) -> Read:
    """Make a reader of a whole number from `low` to 100; it may be text, with or without %."""

    def read(key: str, token: Token, problems: Problems) -> int:
        number: Value = token.value
        if isinstance(number, str):
            text = number.removesuffix("%")
            if not (text.lstrip("+-").isdecimal() and text.isascii()):
                raise ConfigError(token, f"{key} takes a percentage, not {show(number)}")
            number = int(text)
        if type(number) is not int or not low <= number <= 100:
            raise ConfigError(token, f"{key} takes a percentage from {low} to 100, not {show(token.value)}")
        return number

    return read


def not_yet(key: str, token: Token, problems: Problems) -> dict[str, Any]:
    """Refuse a key of a feature that is not built yet."""
    raise ConfigError(token, f"key {quote(key)} is not supported yet")


def not_yet_unless(*off: bool | str) -> Read:
    """Make a reader of a switch for which only the values `off` (words in lower case) are supported yet."""

    def read(key: str, token: Token, problems: Problems) -> dict[str, Any]:
        value = token.value
        if isinstance(value, bool | str) and (value.lower() if isinstance(value, str) else value) in off:
            return {}
        return not_yet(key, token, problems)

    return read


def show(value: Value) -> str:
    """Return a value as error texts show it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, dict | list):
        return "a block" if isinstance(value, dict) else "an array"
    return str(value)


def _place(token: Token) -> str:
    return f"{token.file}:{token.line}:{token.pos}"
