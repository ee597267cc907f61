"""The compiled parser of JSON requests, beside json and Go's rules in Python (gnats.go.jsonsyntax)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gnats.go.jsonsyntax import syntax_error
from gnats.jetstream.engine.jsonreq import read_object

TYPES = {
    "batch": "int",
    "expires": "duration",
    "seq": "uint",
    "no_wait": "bool",
    "id": "string",
    "multi_last": "strings",
}


def read(text: str | bytes) -> tuple[dict[str, Any], str]:
    return read_object(text.encode() if isinstance(text, str) else text, TYPES, "Request")


def test_members_by_name() -> None:
    text = (
        '{"batch": 10, "expires":-5, "seq" :18446744073709551615,"no_wait":true,"id":"a",'
        '"multi_last":["x","y"]}'
    )
    assert read(text) == (
        {
            "batch": 10,
            "expires": -5,
            "seq": 2**64 - 1,
            "no_wait": True,
            "id": b"a",
            "multi_last": [b"x", b"y"],
        },
        "",
    )


def test_names_match_in_any_case_and_the_last_counts() -> None:
    assert read('{"BATCH":1,"Batch":2,"b\\u0061tch":3}') == ({"batch": 3}, "")


def test_null_and_unknown_members_are_skipped() -> None:
    assert read('{"batch":7,"batch":null,"other":[{"batch":1},[[]],{}],"x":{"y":{"batch":2}}}') == (
        {"batch": 7},
        "",
    )


def test_strings_are_unescaped() -> None:
    assert read('{"id":"\\ud83d\\ude00\\ud83d\\n\\/\\"\\u00e9"}')[0] == {"id": '😀�\n/"é'.encode()}
    assert read(b'{"id":"\xff\xc3\xa9\xed\xa0\x80"}')[0] == {"id": "�é���".encode()}
    assert read('{"multi_last":[]}')[0] == {"multi_last": []}
    assert read('{"multi_last":[null," , "]}')[0] == {"multi_last": [b"", b" , "]}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"batch":"x"}', "json: cannot unmarshal string into Go struct field Request.batch of type int"),
        ('{"batch":1.5}', "json: cannot unmarshal number 1.5 into Go struct field Request.batch of type int"),
        ('{"batch":1e3}', "json: cannot unmarshal number 1e3 into Go struct field Request.batch of type int"),
        (
            '{"batch":9223372036854775808}',
            "json: cannot unmarshal number 9223372036854775808 into Go struct field Request.batch "
            "of type int",
        ),
        ('{"seq":-1}', "json: cannot unmarshal number -1 into Go struct field Request.seq of type uint64"),
        (
            '{"expires":"1s"}',
            "json: cannot unmarshal string into Go struct field Request.expires of type time.Duration",
        ),
        ('{"no_wait":1}', "json: cannot unmarshal number into Go struct field Request.no_wait of type bool"),
        ('{"id":{}}', "json: cannot unmarshal object into Go struct field Request.id of type string"),
        ('{"id":[]}', "json: cannot unmarshal array into Go struct field Request.id of type string"),
        ('{"id":true}', "json: cannot unmarshal bool into Go struct field Request.id of type string"),
        (
            '{"id":1,"batch":""}',
            "json: cannot unmarshal number into Go struct field Request.id of type string",
        ),
        # The error for malformed JSON comes first.
        ('{"id":1,"batch":x}', "invalid character 'x' looking for beginning of value"),
        ('{"id":"\x01"}', "invalid character '\\x01' in string literal"),
        ('{"id":"\\q"}', "invalid character 'q' in string escape code"),
        ('{"id":"\\u12G4"}', "invalid character 'G' in \\u hexadecimal character escape"),
        ('{"batch":1}}', "invalid character '}' after top-level value"),
        ('{"batch" 1}', "invalid character '1' after object key"),
        ('{"batch":1,}', "invalid character '}' looking for beginning of object key string"),
        ('{"batch":-x}', "invalid character 'x' in numeric literal"),
        ('{"batch":\'}', "invalid character '\\'' looking for beginning of value"),
        ('{"a":[1 2]}', "invalid character '2' after array element"),
        ('{"batch":1 "x"}', "invalid character '\"' after object key:value pair"),
        ('{"no_wait":trux}', "invalid character 'x' in literal true (expecting 'e')"),
        ("{", "unexpected end of JSON input"),
        ("[1]", "invalid character '[' looking for beginning of value"),
    ],
)
def test_errors_are_worded_as_go_words_them(text: str, error: str) -> None:
    assert read(text)[1] == error


def test_numbers_at_their_limits() -> None:
    assert read('{"batch":-9223372036854775808}') == ({"batch": -(2**63)}, "")
    assert read('{"batch":-9223372036854775809}')[1]
    assert read('{"seq":18446744073709551616}')[1]
    assert read('{"batch":-0}') == ({"batch": 0}, "")


def test_nesting_is_bounded() -> None:
    deepest = 9999
    assert read('{"x":' + "[" * deepest + "]" * deepest + "}") == ({}, "")
    assert read('{"x":' + "[" * 10000 + "]" * 10000 + "}")[1] == "exceeded max depth"
    assert read('{"x":' + '{"x":' * 200000)[1] == "exceeded max depth"


PIECES = st.sampled_from(
    [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        '"',
        '"batch"',
        '"id"',
        '"multi_last"',
        "1",
        "-",
        "0",
        ".5",
        "e",
        "E+",
        "true",
        "tru",
        "false",
        "null",
        "nul",
        "\\",
        "\\u",
        "d83d",
        "\\n",
        "x",
        " ",
        "\t",
        "\n",
        "é",
        "'",
    ]
)


@given(st.lists(PIECES, max_size=30))
@example(['"batch"', ":", "1"])
def test_what_is_not_json_is_refused_for_the_same_reason(pieces: list[str]) -> None:
    text = ("{" + "".join(pieces)).encode()
    expected = syntax_error(text)
    got = read(text)[1]
    assert (got if not got.startswith("json:") else "") == expected


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(sorted(TYPES)) | st.text(), VALUES, max_size=8),
    st.sampled_from([None, 1]),
)
def test_every_object_is_read_as_json_reads_it(members: dict[str, Any], indent: int | None) -> None:
    fits = {
        "batch": lambda v: type(v) is int and -(2**63) <= v < 2**63,
        "expires": lambda v: type(v) is int and -(2**63) <= v < 2**63,
        "seq": lambda v: type(v) is int and 0 <= v < 2**64,
        "no_wait": lambda v: type(v) is bool,
        "id": lambda v: type(v) is str,
        "multi_last": lambda v: type(v) is list and all(each is None or type(each) is str for each in v),
    }
    # Names are compared without case.
    members = {name: value for name, value in members.items() if name in TYPES or name.lower() not in TYPES}
    got, error = read(json.dumps(members, indent=indent))
    expected: dict[str, Any] = {}
    wrong = False
    for name, value in members.items():
        if name not in TYPES or value is None:
            continue
        if not fits[name](value):
            wrong = True
        elif name == "id":
            expected[name] = value.encode()
        elif name == "multi_last":
            expected[name] = [(each or "").encode() for each in value]
        else:
            expected[name] = value
    assert got == expected
    assert bool(error) == wrong


@given(st.binary(max_size=60))
def test_any_bytes_are_survived(data: bytes) -> None:
    read(data)
    read(b"{" + data)
    read(b'{"id":"' + data + b'"}')
    read(b'{"multi_last":[' + data + b"]}")
