"""The configuration language: any text gives a configuration, or an error of one line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnats.conf import Token, Value, parse
from gnats.conf.lex import Item, Lexer
from gnats.errors import OptionError

pytestmark = pytest.mark.timeout(120)

PIECES = [
    *" \n\r\t:=,;{}[]()#/\"'\\$-.\0",
    *("a", "b", "12", "1.5", "2016-05-04T18:53:41Z", "true", "include", "k", "mb", "\\x41", "\\xff", "$a"),
    *(
        "é",
        "\u0661",
        "\xa0",
        "\u2028",
        "\udcff",
        "\ud800",
        "(\n",
        "\n)\n",
        "a: ",
        "{ a: 1 }",
        "[ 1 , 2 ]",
        "//",
    ),
]


def check(text: str) -> None:
    try:
        config = parse(text, "server.conf")
    except OptionError as exc:
        assert str(exc).startswith("server.conf:")
        assert len(str(exc).splitlines()) == 1
    else:
        lines = text.count("\n") + 1
        for token in tokens(config.root):
            assert token.file == "server.conf"
            assert 1 <= token.line <= lines
            assert 0 <= token.pos <= len(text.encode("utf-8", "surrogateescape"))
        assert parse(text, "server.conf") == config


def tokens(value: Value) -> list[Token]:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return inner + [deeper for token in inner for deeper in tokens(token.value)]


@settings(max_examples=500)
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_any_mixture_of_the_languages_pieces_is_read_or_refused_with_its_place(text: str) -> None:
    check(text)


@given(st.text(st.characters(), max_size=40))
def test_any_text_is_read_or_refused_with_its_place(text: str) -> None:
    check(text)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_with_their_place(data: bytes) -> None:
    check(data.decode("utf-8", "surrogateescape"))


NAMES = st.text("abcXYZ_", min_size=1, max_size=6)
QUOTED = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | QUOTED,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


def written(value: object) -> str:
    """Write a value in the configuration language."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {written(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[ " + ", ".join(f"{written(inner)} " for inner in value) + "]"
    if isinstance(value, bool):
        return "yes" if value else "off"
    if isinstance(value, int):
        return str(value)
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def read(value: Value) -> object:
    if isinstance(value, dict):
        return {key: read(token.value) for key, token in value.items()}
    if isinstance(value, list):
        return [read(token.value) for token in value]
    return value


@given(st.dictionaries(NAMES.filter(lambda name: name != "include"), VALUES, max_size=5))
def test_what_is_written_is_read(values: dict[str, object]) -> None:
    text = "\n".join(f"{key} = {written(value)}" for key, value in values.items())
    assert read(parse(text).root) == values


PLAIN = [
    'a: "x"',
    '"x"',
    'b= "1\\n"',
    'c "x"',
    "include: 'x'",
    'Include: "x"',
    "d {",
    "e: [",
    'f "é"\n',
    "}",
    "]",
    "[",
    "{",
    ",",
]


class EntryByEntry(Lexer):
    """A lexer without the shortcut for plain maps and arrays."""

    _map = Lexer._map_entry
    _array = Lexer._array_item


def items(lexer: Lexer) -> list[Item] | str:
    try:
        return list(lexer)
    except OptionError as exc:
        return str(exc)


@settings(max_examples=1000)
@given(st.lists(st.sampled_from([*PLAIN, *PLAIN, *PIECES, "\n", " "]), max_size=40).map("".join))
def test_what_is_plain_is_read_as_anything_else(text: str) -> None:
    text = f"top: {{{text}".replace("\ud800", "")
    assert items(Lexer(text, "x")) == items(EntryByEntry(text, "x"))
