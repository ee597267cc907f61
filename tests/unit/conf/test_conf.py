"""The configuration language: keys, values, includes, variables, places, errors."""

from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import pytest

from gnats.conf import Token, Value, parse, parse_file
from gnats.errors import OptionError

pytestmark = pytest.mark.timeout(60)

HERE = "server.conf"
conf_parse = import_module("gnats.conf.parse")  # the package has a function of the same name


def plain(value: Value) -> object:
    """Return a value without its tokens."""
    if isinstance(value, dict):
        return {key: plain(token.value) for key, token in value.items()}
    if isinstance(value, list):
        return [plain(token.value) for token in value]
    return value


def values(text: str) -> object:
    return plain(parse(text, HERE).root)


def error(text: str) -> str:
    with pytest.raises(OptionError) as caught:
        parse(text, HERE)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def file_error(path: Path) -> str:
    with pytest.raises(OptionError) as caught:
        parse_file(str(path))
    return str(caught.value).replace(f"{path.parent}/", "")


# Keys, separators, comments


@pytest.mark.parametrize(
    "text",
    [
        "port: 1",
        "port = 1",
        "port 1",
        "port:1",
        "port=1",
        "\tport  :\t1  ",
        "'port': 1",
        '"port" 1',
        "port\n1",
    ],
)
def test_a_key_and_a_value_are_parted_by_a_colon_an_equals_sign_or_white_space(text: str) -> None:
    assert values(text) == {"port": 1}


def test_entries_are_parted_by_line_ends_commas_and_semicolons() -> None:
    assert values("a 1, b 2; c: 3\r\n\r\nd = 4") == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert values("x { a 1, b 2; c: 3\r\n\r\nd = 4}") == {"x": {"a": 1, "b": 2, "c": 3, "d": 4}}


def test_comments_are_skipped() -> None:
    text = "# first\na: 1 # behind a value\n// line\n  b: x//y // that was no comment\n"
    text += "c [ # in\n 1 // an array\n]"
    assert values(text) == {"a": 1, "b": "x//y", "c": [1]}


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "b": {"c": [true, "x"]}}',
        '{\n  "a": 1,\n  "b": {\n    "c": [\n      true,\n      "x"\n    ]\n  }\n}\n',
        "a 1\nb { c [ yes, x ] }",
        "a: 1; b: {c: [on\nx]}",
        "b {}\na 1\nb { c [ true, 'x', ], }",
    ],
)
def test_maps_and_arrays_may_have_one_line_or_several(text: str) -> None:
    assert values(text) == {"a": 1, "b": {"c": [True, "x"]}}


def test_maps_and_arrays_are_in_each_other() -> None:
    assert values("a [ { b 1 }, { b 2, c [ [ 3 ], [] ] } ]") == {"a": [{"b": 1}, {"b": 2, "c": [[3], []]}]}


def test_of_equal_keys_the_last_counts() -> None:
    assert values("a 1\na 2\nA 3") == {"a": 2, "A": 3}


# Values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("YES", True),
        ("on", True),
        ("false", False),
        ("No", False),
        ("off", False),
        ("'true'", "true"),
        ("truely", "truely"),
        ("-12", -12),
        ("007", 7),
        ("9223372036854775807", (1 << 63) - 1),
        ("-9223372036854775808", -(1 << 63)),
        ("1k", 1000),
        ("1K", 1000),
        ("1kb", 1024),
        ("1Ki", 1024),
        ("1KiB", 1024),
        ("-2MB", -(2 << 20)),
        ("2m", 2_000_000),
        ("1g", 10**9),
        ("1gb", 1 << 30),
        ("3t", 3 * 10**12),
        ("3tib", 3 << 40),
        ("2p", 2 * 10**15),
        ("2PB", 2 << 50),
        ("1e", 10**18),
        ("1eb", 1 << 60),
        ("10g", 10**10),
        ("10e", 10**19 - (1 << 64)),
        ("1.5", 1.5),
        ("-0.25", -0.25),
        ("10s", "10s"),
        ("5h30m", "5h30m"),
        ("2m30s", "2m30s"),
        ("1kx", "1kx"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1:4222", "127.0.0.1:4222"),
        ("localhost:-1", "localhost:-1"),
        ("[::1]:4222", None),
        ("1.2.3", "1.2.3"),
        ("2016-05-04T18:53:41Z", datetime(2016, 5, 4, 18, 53, 41, tzinfo=UTC)),
        ("name", "name"),
        ("nats://user:pw@host:4222/path", "nats://user:pw@host:4222/path"),
        ("a\\tb\\x41", "a\tbA"),
        ("'raw \\n \"'", 'raw \\n "'),
        (r'"a\tb\n\r\"\\\x41"', 'a\tb\n\r"\\A'),
        (r'"\xc3\xa9"', "é"),
        (r'"\xff"', "\udcff"),
        ('"12"', "12"),
        ('""', ""),
        ('"two words # not a comment"', "two words # not a comment"),
        ('"two\nlines"', "two\nlines"),
        ("(\n  one ) (\n  two\n)", "\n  one ) (\n  two\n"),
        (
            "$2a$11$W2zko751KUvVy59mUTWmpOdWjpEm5qhcCZRd05GjI/sSOT.xtiHyG",
            "$2a$11$W2zko751KUvVy59mUTWmpOdWjpEm5qhcCZRd05GjI/sSOT.xtiHyG",
        ),
    ],
)
def test_values_have_types(text: str, value: object) -> None:
    if value is None:
        assert error(f"key: {text}\n").startswith("server.conf:1:")
        return
    found = parse(f"key: {text}\n").root["key"].value
    assert found == value
    assert type(found) is type(value)


def test_a_block_string_that_ends_the_file_keeps_its_bracket_as_nats_server_does() -> None:
    assert values("a (\nb\n)") == {"a": "\nb\n)"}


def test_a_number_with_an_unknown_suffix_is_dropped_as_nats_server_does() -> None:
    assert values("a 1kbb\nb 2") == {"b": 2}


# Places


def test_values_know_the_place_of_their_key() -> None:
    root = parse("a: 1\n\n  b: {\n c: 'x'\n}\n é d\n", HERE).root
    inner = root["b"].value
    assert isinstance(inner, dict)
    assert root["a"] == Token(1, HERE, 1, 0)
    assert (root["b"].line, root["b"].pos) == (3, 3)
    assert inner["c"] == Token("x", HERE, 4, 2)
    assert root["é"] == Token("d", HERE, 6, 2)


def test_elements_of_an_array_have_a_place_of_their_own() -> None:
    elements = parse("a [\n 1 , é, \n{ b: 2 } ]", HERE).root["a"].value
    assert isinstance(elements, list)
    assert [(token.line, token.pos) for token in elements] == [(2, 2), (2, 6), (3, 9)]


# Includes


def test_an_include_is_merged_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "main.conf").write_text("a 1\ninclude one.conf\nb {\n  include 'two.conf'\n  c 3\n}\n")
    (tmp_path / "one.conf").write_text("a 2\nd 4")
    (tmp_path / "two.conf").write_text("c 4\ne 5")
    root = parse_file(str(tmp_path / "main.conf")).root
    assert plain(root) == {"a": 2, "b": {"c": 3, "e": 5}, "d": 4}
    assert root["a"] == Token(2, str(tmp_path / "one.conf"), 1, 0)
    assert root["d"] == Token(4, str(tmp_path / "one.conf"), 2, 1)


def test_an_include_is_relative_to_the_file_that_includes_it(tmp_path: Path) -> None:
    (tmp_path / "sub" / "deeper").mkdir(parents=True)
    (tmp_path / "main.conf").write_text('include "./sub/a.conf"\n')
    (tmp_path / "sub" / "a.conf").write_text("include deeper/b.conf\n")
    (tmp_path / "sub" / "deeper" / "b.conf").write_text("include '../../c.conf'; include /d.conf\n")
    (tmp_path / "c.conf").write_text("c 1")
    (tmp_path / "sub" / "deeper" / "d.conf").write_text("d 1")
    assert plain(parse_file(str(tmp_path / "main.conf")).root) == {"c": 1, "d": 1}


def test_variables_see_what_was_included_before_and_includes_see_nothing(tmp_path: Path) -> None:
    main, one = tmp_path / "main.conf", tmp_path / "one.conf"
    main.write_text("include one.conf\nb $a\n")
    one.write_text("a 1")
    assert plain(parse_file(str(main)).root) == {"a": 1, "b": 1}
    main.write_text("a 1\ninclude one.conf\n")
    one.write_text("b $a")
    assert file_error(main) == "one.conf:1:3: variable reference for 'a' can not be found"


def test_a_file_may_be_included_twice_but_not_in_itself(tmp_path: Path) -> None:
    main, one = tmp_path / "main.conf", tmp_path / "one.conf"
    main.write_text("a { include one.conf }\nb { include one.conf }")
    one.write_text("c 1\n")
    assert plain(parse_file(str(main)).root) == {"a": {"c": 1}, "b": {"c": 1}}
    one.write_text("c 1\nx { include './main.conf' }")
    assert file_error(main) == "one.conf:2:14: include cycle for './main.conf'"
    main.write_text("include main.conf")
    assert file_error(main) == "main.conf:1:8: include cycle for 'main.conf'"


def test_a_cycle_of_includes_through_a_link_is_found(tmp_path: Path) -> None:
    main = tmp_path / "main.conf"
    main.write_text("\ninclude link.conf")
    (tmp_path / "link.conf").symlink_to(main)
    assert file_error(main) == "main.conf:2:9: include cycle for 'link.conf'"


def test_a_chain_of_includes_has_a_limit(tmp_path: Path) -> None:
    for number in range(120):
        (tmp_path / f"c{number}.conf").write_text(f"include c{number + 1}.conf")
    assert file_error(tmp_path / "c0.conf") == (
        "c99.conf:1:8: more than 100 includes and variables lead to each other"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "include no.conf",
            "1:8: error parsing include file 'no.conf', open no.conf: no such file or directory",
        ),
        ("a 1\ninclude 'x/y'", "2:10: error parsing include file 'x/y', open x/y: no such file or directory"),
        ("include .", "1:8: error parsing include file '.', read DIR: is a directory"),
        ("include bad.conf", "bad.conf:3:1: Parse error: Expected value but found new line"),
        ("include 12", "1:9: Parse error: Expected include value but found start of a number"),
        ("include [ a ]", "1:9: Parse error: Expected include value but found start of an array"),
        ("include 'a", "1:10: Parse error: Unexpected EOF in quoted include"),
        ("a { include\n x }", "2:1: Parse error: Expected include value but found new line"),
    ],
)
def test_an_include_that_cannot_be_read_is_an_error_with_its_place(
    tmp_path: Path, text: str, message: str
) -> None:
    main = tmp_path / "main.conf"
    main.write_text(text)
    (tmp_path / "bad.conf").write_text("a 1\nb =\n")
    expected = message if message.startswith("bad") else f"main.conf:{message}"
    assert file_error(main).replace(str(tmp_path), "DIR") == expected


# Variables


def test_a_variable_is_searched_from_the_innermost_map_outwards() -> None:
    text = "x 1\na { x 2, b { y $x, x 3, z $x }, w $x }\nv [ $x ]\nwhole $a"
    a = {"x": 2, "b": {"y": 2, "x": 3, "z": 3}, "w": 2}
    assert values(text) == {"x": 1, "a": a, "v": [1], "whole": a}


def test_a_key_that_a_variable_refers_to_is_marked() -> None:
    root = parse("a 1\nb 2\nc $a", HERE).root
    assert {key: token.used_variable for key, token in root.items()} == {"a": True, "b": False, "c": False}
    assert root["c"] == Token(1, HERE, 3, 1)


def test_quotes_make_a_variable_a_string(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNATS_A", "1")
    assert values("a '$GNATS_A'\nb \"$GNATS_A\"\nc $GNATS_A") == {"a": "$GNATS_A", "b": "$GNATS_A", "c": 1}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("2MB", 2 << 20),
        ("true", True),
        ("'12'", "12"),
        ("word", "word"),
        ("", ""),
        ("[ 1 , { a: 2 } ]", [1, {"a": 2}]),
        ("two words", None),
    ],
)
def test_an_environment_variable_is_read_as_a_value(
    monkeypatch: pytest.MonkeyPatch, text: str, value: object
) -> None:
    monkeypatch.setenv("GNATS_A", text)
    if value is None:
        assert error("\na $GNATS_A").startswith(
            "server.conf:2:4: variable reference for 'GNATS_A' could not be parsed: $GNATS_A:1:8: Parse "
            "error: Expected"
        )
        return
    token = parse("x 1\n a $GNATS_A", HERE).root["a"]
    assert plain(token.value) == value
    assert (token.file, token.line, token.pos) == (HERE, 2, 2)


def test_an_environment_variable_may_lead_to_others_but_not_to_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GNATS_A", "$GNATS_B")
    monkeypatch.setenv("GNATS_B", "[ $GNATS_C, $GNATS_C ]")
    monkeypatch.setenv("GNATS_C", "7")
    assert values("a $GNATS_A") == {"a": [7, 7]}
    monkeypatch.setenv("GNATS_C", "$GNATS_A")
    assert error("a $GNATS_A").endswith("variable reference cycle for 'GNATS_A'")


def test_an_environment_variable_that_includes_its_own_file_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNATS_A", "1\ninclude server.conf")
    (tmp_path / HERE).write_text("a $GNATS_A")
    assert "include cycle for 'server.conf'" in file_error(tmp_path / HERE)


# Errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: 1 2",
            "1:6: Parse error: "
            "Expected a top-level value to end with a new line, comment or EOF, but got '2' instead.",
        ),
        ("a", "1:1: config is invalid"),
        ("a 1\n  b\n", "3:1: config is invalid"),
        ("a:\n", "2:1: Parse error: Expected value but found new line"),
        ("= 1", "1:0: Parse error: Unexpected key separator '='"),
        ("a { : 1 }", "1:4: Parse error: Unexpected key separator ':'."),
        ("a {\n b: 1\n", "3:1: Parse error: Unexpected EOF processing map."),
        ("a {\n b", "2:3: Parse error: Unexpected EOF processing map key."),
        ("a { 'b", "1:6: Parse error: Unexpected EOF processing quoted map key."),
        ('a { "b', "1:6: Parse error: Unexpected EOF processing double quoted map key."),
        ("a { b: , }", '1:8: Parse error: Unexpected map value terminator ",".'),
        (
            "a { b: 'c' d",
            "1:12: Parse error: "
            'Expected a map value terminator "," or a map terminator "}", but got \'d\' instead.',
        ),
        ("a { ] }", "1:4: Parse error: Unexpected array end ']' processing map."),
        ("a [ 1, , 2 ]", "1:8: Parse error: Unexpected array value terminator ','."),
        (
            "a [ 'b' c ]",
            "1:9: Parse error: "
            'Expected an array value terminator "," or an array terminator "]", but got \'c\' instead.',
        ),
        (
            "a [\n1\n",
            '3:1: Parse error: Expected an array value terminator "," or an array terminator "]",'
            " but got the end instead.",
        ),
        (
            "{ a 'b' c }",
            "1:9: Parse error: "
            "Expected a block-level value to end with a new line, comment or EOF, but got 'c' instead.",
        ),
        ('a: "b', "1:5: Parse error: Unexpected EOF."),
        ("a: 'b\nc", "2:2: Parse error: Unexpected EOF."),
        ("a (\nb\n", "3:1: Parse error: Unexpected EOF processing block."),
        ("/a", "1:1: Parse error: Unexpected EOF."),
        (
            'a: "\\q"',
            "1:6: Parse error: "
            "Invalid escape character 'q'. Only the following escape characters are allowed:"
            r" \xXX, \t, \n, \r, \", \\.",
        ),
        ('a: "\\x4g"', r"1:8: Parse error: Expected two hexadecimal digits after '\x', but got '4g'"),
        ('a: "\\x\n"', r"2:1: Parse error: Expected two hexadecimal digits after '\x', but hit end of line"),
        ("a: 99999999999999999999", "1:3: integer '99999999999999999999' is out of the range"),
        (f"a: {'9' * 5000}k", f"1:3: integer '{'9' * 5000}k' is out of the range"),
        ("a: ١٢", "1:3: expected integer, but got '١٢'"),
        (f"a: {'9' * 400}.0", f"1:3: float '{'9' * 400}.0' is out of the range"),
        ("a: .5", "1:4: Parse error: Floats must start with a digit"),
        ("a: -.5", "1:5: Parse error: Floats must start with a digit, not '.'."),
        ("a: 5.x", "1:6: Parse error: Floats must have a digit after the '.', but got 'x' instead."),
        ("a: -x", "1:5: Parse error: Expected a digit but got 'x'."),
        ("a: 123-4", "1:7: Parse error: All ISO8601 dates must be in full Zulu form."),
        ("a: 2016-5", "1:9: Parse error: Expected digit in ISO8601 datetime, but found the end instead."),
        ("a: 2016-05-04 ", "1:14: Parse error: Expected 'T' in ISO8601 datetime, but found ' ' instead."),
        ("a: 2016-13-04T18:53:41Z", "1:3: expected Zulu formatted DateTime, but got '2016-13-04T18:53:41Z'"),
        ("a: 2016-02-30T18:53:41Z", "1:3: expected Zulu formatted DateTime, but got '2016-02-30T18:53:41Z'"),
        ("a: $GNATS_NOT_THERE", "1:4: variable reference for 'GNATS_NOT_THERE' can not be found"),
        ("a: $b\x0bc", r"1:4: variable reference for 'b\x0bc' can not be found"),
        (
            "\n\n  a 'b' \x01",
            r"3:10: Parse error: Expected a top-level value to end with a new line, comment or EOF,"
            r" but got '\x01' instead.",
        ),
    ],
)
def test_an_error_says_where_and_what(text: str, message: str) -> None:
    assert error(text) == f"server.conf:{message}"


def test_a_text_that_no_file_can_have_is_an_error() -> None:
    assert error("a 1\nb \ud800") == r"server.conf:2:0: \ud800 is not a character"


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    assert file_error(tmp_path / "no.conf") == "open no.conf: no such file or directory"


# Files and digests


def test_bytes_that_are_not_utf_8_are_kept(tmp_path: Path) -> None:
    path = tmp_path / HERE
    path.write_bytes(b"server_name: n\xff")
    assert parse_file(str(path)).root["server_name"].value == "n\udcff"


@pytest.mark.parametrize(
    ("text", "sha256"),
    [  # digests printed by nats-server 2.15.1 -t
        ("port: 4222\n", "797533ebd0dfba7d34a0f9337ecf147e442871f48ddfd07ed751575a5737267e"),
        ("server_name:", "2522a4a15b760e48fb9eb2fe96390ec5d4d7b66673d7fc8fede40f993c470da2"),
        ('server_name: "a\\xffb"', "cea19a4414ada06f4523488c63db6b190ba4e8a557f681421cbc4ebacd694c4c"),
    ],
)
def test_the_digest_is_nats_servers(text: str, sha256: str) -> None:
    assert parse(text).digest == f"sha256:{sha256}"


def test_arrays_and_maps_can_be_9999_deep() -> None:
    def nested(depth: int) -> str:
        return "a: " + "[" * depth + " 1 " + "]" * depth

    assert parse(nested(9999)).digest.startswith("sha256:")
    assert (
        error(nested(10000)) == "server.conf:1:10007: arrays and maps are more than 9999 deep in each other"
    )


# The size of a configuration


def test_variables_of_variables_hold_no_more_than_anybody_needs() -> None:
    lines = ["v0 = {a: 1}"]
    for level in range(1, 9):
        lines.append(f"v{level} = {{{', '.join(f'k{number}: $v{level - 1}' for number in range(10))}}}")
    assert error("\n".join(lines)) == (
        f"{HERE}:8:48: the configuration has more than 10000000 values, with those of each use of a variable"
    )


def test_values_are_counted_wherever_a_variable_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf_parse, "MAX_VALUES", 10)
    a = {"b": 1, "c": {"x": 1, "y": 2}}
    assert values("a { b: 1, c: {x: 1, y: 2} }\nd: $a") == {"a": a, "d": a}
    assert error("a { b: 1, c: {x: 1, y: 2} }\nd: $a\ne: 1").startswith(
        f"{HERE}:3:4: the configuration has more than"
    )
    monkeypatch.setenv("MANY", "{w: 1, x: 2, y: 3, z: 4}")
    assert error("a: $MANY\nb: $MANY\nc: 1").startswith(f"{HERE}:3:4: the configuration has more than")


def test_files_are_counted_as_often_as_they_are_included(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conf_parse, "MAX_INCLUDES", 30)
    for level in range(8):
        (tmp_path / f"{level}.conf").write_text(f'include "{level + 1}.conf"\n' * 10)
    (tmp_path / "8.conf").write_text("a: 1")
    assert "more than 30 files are included" in file_error(tmp_path / "0.conf")
    (tmp_path / "one.conf").write_text('include "8.conf"\n' * 30)
    parse_file(str(tmp_path / "one.conf"))
    monkeypatch.setattr(conf_parse, "MAX_VALUES", 29)
    assert "one.conf:30:" in file_error(tmp_path / "one.conf")
