"""JSON as Go decodes it."""

import json
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.go.json import (
    Custom,
    JSONError,
    MapOf,
    Struct,
    marshal,
    marshal_steps,
    unmarshal,
    unmarshal_stream,
)

pytestmark = pytest.mark.timeout(60)

FIELDS: Struct = {
    "flag": "bool",
    "name": "string",
    "count": "int",
    "small": "uint8",
    "list": "strings",
    "inner": {"flag": "bool"},
}


def read(text: str | bytes) -> dict[str, object]:
    return unmarshal(text.encode() if isinstance(text, str) else text, FIELDS, "Thing")


def test_known_fields_are_taken_and_others_skipped() -> None:
    text = '{"flag":true,"name":"n","count":-3,"small":255,"list":["a",null],"inner":{"flag":false},"x":[{}]}'
    assert read(text) == {
        "flag": True,
        "name": "n",
        "count": -3,
        "small": 255,
        "list": ["a", ""],
        "inner": {"flag": False},
    }


@pytest.mark.parametrize("text", ["null", "{}", " {} ", '{"other":{"flag":1}}', '{"flag":null,"inner":null}'])
def test_null_and_unknown_fields_change_nothing(text: str) -> None:
    assert read(text) == {}


@pytest.mark.parametrize("key", ["FLAG", "Flag", "fLaG"])
def test_names_match_in_any_case(key: str) -> None:
    assert read(f'{{"{key}":true}}') == {"flag": True}


def test_letters_that_fold_to_ascii_match_and_others_do_not() -> None:
    assert read('{"\u017fmall":1}') == {"small": 1}
    assert read('{"f\u0131ag":true, "\u00dfmall":1}') == {}


def test_of_duplicates_the_last_wins_unless_it_is_null() -> None:
    assert read('{"count":1,"COUNT":2}') == {"count": 2}
    assert read('{"count":1,"count":null}') == {"count": 1}


def test_each_invalid_byte_becomes_a_replacement_character() -> None:
    assert read(b'{"name":"\xff\xe2\x82z"}') == {"name": "\ufffd\ufffd\ufffdz"}


def test_lone_surrogates_are_replaced_and_pairs_are_joined() -> None:
    assert read(r'{"name":"\ud800x\udc00"}') == {"name": "\ufffdx\ufffd"}
    assert read(r'{"name":"\ud83d\ude00"}') == {"name": "😀"}


def test_lone_surrogates_are_replaced_wherever_they_are() -> None:
    fields = {"any": "any", "map": MapOf("string"), "custom": Custom(lambda value: value)}
    text = rb'{"any":{"\ud800":["\udfff"]},"map":{"\udc00":"\ud800"},"custom":"\ud800"}'
    found = unmarshal(text, fields, "T")
    assert found == {"any": {"\ufffd": ["\ufffd"]}, "map": {"\ufffd": "\ufffd"}, "custom": "\ufffd"}


def test_a_number_that_is_none_of_an_integer_may_stand_where_it_is_not_asked_for() -> None:
    assert read('{"x":%s,"y":-0,"z":1e400,"count":-0}' % ("1" * 5000)) == {"count": 0}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"flag":1}', "number into Go struct field Thing.flag of type bool"),
        ('{"flag":"true"}', "string into Go struct field Thing.flag of type bool"),
        ('{"name":true}', "bool into Go struct field Thing.name of type string"),
        ('{"name":[]}', "array into Go struct field Thing.name of type string"),
        ('{"name":{}}', "object into Go struct field Thing.name of type string"),
        ('{"count":1.0}', "number 1.0 into Go struct field Thing.count of type int"),
        ('{"count":1e0}', "number 1e0 into Go struct field Thing.count of type int"),
        ('{"count":1e400}', "number 1e400 into Go struct field Thing.count of type int"),
        ('{"small":-0}', "number -0 into Go struct field Thing.small of type uint8"),
        ('{"count":%s}' % ("7" * 5000), "number 7777"),
        ('{"count":true}', "bool into Go struct field Thing.count of type int"),
        ('{"count":9223372036854775808}', "number 9223372036854775808 into Go struct field Thing.count"),
        ('{"small":256}', "number 256 into Go struct field Thing.small of type uint8"),
        ('{"small":-1}', "number -1 into Go struct field Thing.small of type uint8"),
        ('{"list":"a"}', "string into Go struct field Thing.list of type"),
        ('{"list":{}}', "object into Go struct field Thing.list of type"),
        ('{"list":[1]}', "number into Thing.list.0 of type string"),
        ('{"inner":true}', "bool into Go struct field Thing.inner"),
        ('{"inner":{"flag":1}}', "number into Go struct field Thing.inner.flag of type bool"),
        ("[]", "array into Go value of type"),
        ('"x"', "string into Go value of type"),
        ("true", "bool into Go value of type"),
    ],
)
def test_a_value_of_another_type_is_an_error(text: str, reason: str) -> None:
    with pytest.raises(JSONError) as caught:
        read(text)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"flag":true} x',
        '{"flag":true,}',
        "{'flag':true}",
        '{"flag":nul}',
        '{"name":"a\tb"}',
        '{"count":NaN}',
        '{"count":-Infinity}',
        '{"x":' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
)
def test_what_is_not_json_is_one_kind_of_error(text: str) -> None:
    with pytest.raises(JSONError) as caught:
        read(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("read_any", [unmarshal, unmarshal_stream])
def test_no_depth_of_nesting_raises_anything_else(read_any: Callable[..., dict[str, object]]) -> None:
    refused = 0
    for depth in range(0, 2000, 50):  # the decoder's stack suffices for some of these depths only
        for text in ("[" * depth + "]" * depth, '{"x":' * depth + "1" + "}" * depth):
            try:
                read_any(b'{"any":%b}' % text.encode(), {"any": "any"}, "Thing")
            except JSONError as exc:
                refused += "nested too deeply" in str(exc)
    assert refused


@given(st.binary(max_size=200))
def test_no_input_raises_anything_else(data: bytes) -> None:
    with suppress(JSONError):
        unmarshal(data, FIELDS, "Thing")


@given(
    st.dictionaries(
        st.sampled_from(["flag", "name", "count"]),
        st.sampled_from([None, True, False, "", "x", 0, -5, 1 << 63, 1.5, [], ["x"], {}]),
    )
)
def test_only_values_of_the_right_type_come_through(value: dict[str, object]) -> None:
    kinds = {"flag": bool, "name": str, "count": int}
    try:
        found = unmarshal(json.dumps(value).encode(), FIELDS, "Thing")
    except JSONError:
        return
    assert all(type(item) is kinds[name] for name, item in found.items())
    assert found.keys() == {name for name, item in value.items() if item is not None}


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON_VALUES)
def test_steps_make_the_same_text(value: object) -> None:
    steps = marshal_steps(value)
    with pytest.raises(StopIteration) as ended:
        while True:
            next(steps)
    assert ended.value.value == marshal(value)
