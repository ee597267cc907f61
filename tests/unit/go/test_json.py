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
    ListOf,
    MapOf,
    Named,
    Struct,
    escape,
    marshal,
    marshal_steps,
    text_of,
    unmarshal,
    unmarshal_raw,
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


def read_slowly(data: bytes) -> str:
    """Decode UTF-8 character by character, as Go's utf8.DecodeRune does."""
    found, at = "", 0
    while at < len(data):
        for size in range(1, 5):
            with suppress(UnicodeDecodeError):
                found += data[at : at + size].decode()
                break
        else:
            found, size = found + "\ufffd", 1
        at += size
    return found


PIECES = [
    b"a",
    b"\x80",
    b"\xbf",
    b"\xc1",
    b"\xc3",
    b"\xe2\x82\xac",
    b"\xe2\x82",
    b"\xed\xa0\x80",
    b"\xf4\x90",
    b"\xff",
]


@given(st.lists(st.sampled_from(PIECES)).map(b"".join) | st.binary())
def test_bytes_are_replaced_as_if_read_one_by_one(data: bytes) -> None:
    assert text_of(data) == read_slowly(data)


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


MANY: Struct = {
    "flag": "bool",
    "name": "string",
    "count": "int",
    "list": "strings",
    "any": "any",
    "one": Named("One", {"flag": "bool", "list": "strings"}),
    "many": ListOf(Named("One", {"name": "string", "count": "int"}, pointer=True)),
    "map": MapOf("string"),
}
LEAVES = ["null", "true", "7", "-0", "1.5", '"x"', '"\\ud800"', '["x",null]', '["x",1]', '{"k":"v"}', "[{}]"]


def texts(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return texts of objects and arrays that contain such texts; objects may have duplicate names."""
    member = st.tuples(st.sampled_from([*MANY, "NAME", "other", "k"]), inner).map('"{0[0]}":{0[1]}'.format)
    objects = st.lists(member, max_size=4).map(lambda members: "{" + ",".join(members) + "}")
    return objects | st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]")


class Refused(Exception):
    """A value has another type."""


def model(value: object, kind: object) -> object:
    """Read a value by the rules in the module's docstring; objects are Members."""
    match kind, value:
        case "any", _:
            return plain(value)
        case "bool", bool():
            return value
        case "string", str():
            return value
        case "int", int() if not isinstance(value, bool):
            return value
        case "int", Text(text="-0"):
            return 0
        case "strings", list():
            return ["" if item is None else model(item, "string") for item in value]
        case ListOf(item=item), list():
            return [None if each is None else model(each, item) for each in value]
        case MapOf(item=item), Members():
            return {name: None if each is None else model(each, item) for name, each in value.pairs}
        case Named(fields=fields), Members():
            return members_of(value, fields)
    raise Refused


def members_of(value: "Members", fields: Struct) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, each in value.pairs:
        name = name if name in fields else name.lower()
        if name in fields and each is not None:
            found[name] = model(each, fields[name])
    return found


def plain(value: object) -> object:
    match value:
        case Members():
            return {name: plain(item) for name, item in value.pairs}
        case list():
            return [plain(item) for item in value]
        case Text():
            return float(value.text)
    return value


class Members:
    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        self.pairs = pairs


class Text:
    """A number that is not read as int()."""

    def __init__(self, text: str) -> None:
        self.text = text


@given(st.recursive(st.sampled_from(LEAVES), texts, max_leaves=20))
def test_objects_are_read_by_the_rules(text: str) -> None:
    value = json.loads(
        text,
        object_pairs_hook=Members,
        parse_float=Text,
        parse_int=lambda digits: Text(digits) if digits == "-0" else int(digits),
    )
    try:
        expected = {} if value is None else model(value, Named("T", MANY))
    except Refused:
        with pytest.raises(JSONError):
            unmarshal(text.encode(), MANY, "T")
        return
    found = unmarshal(text.encode(), MANY, "T")
    assert repr(found) == repr(expected).replace("\\ud800", "\ufffd")
    assert unmarshal_stream(text.encode(), MANY, "T") == found


@given(st.text(st.sampled_from("ab<>&\u2028\u2029\ud800\udfff\xe9\U0001f600")))
def test_each_character_is_escaped_as_if_alone(text: str) -> None:
    def one(char: str) -> str:
        if "\ud800" <= char <= "\udfff":
            return "\ufffd"
        return f"\\u{ord(char):04x}" if char in "<>&\u2028\u2029" else char

    assert escape(text) == "".join(map(one, text))


RAW = Named("T", {"id": "int", "config": "raw", "items": ListOf(Named("U", {"config": "raw", "n": "int"}))})
RAW_PATHS = {"config": {}, "items": {"config": {}}}


def test_raw_members_are_text() -> None:
    data = b' {"id":1, "config" : {"a":[1.50, -0],"b":"\\ud83d"} ,"items":[{"CONFIG":null,"n":2},{},null]} '
    assert unmarshal_raw(data, RAW, "T", RAW_PATHS) == {
        "id": 1,
        "config": '{"a":[1.50, -0],"b":"\\ud83d"}',
        "items": [{"config": "null", "n": 2}, {}, None],
    }
    assert unmarshal_raw(b"null", RAW, "T", RAW_PATHS) is None
    assert unmarshal_raw(b"[{}, {}]", ListOf(RAW), "T", RAW_PATHS) == [{}, {}]
    assert unmarshal_raw(b"{} {", RAW, "T", RAW_PATHS, first=True) == {}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "unexpected end of JSON input"),
        (b'{"id" 1}', "invalid character '1' after object key"),
        (b"{1:2}", "invalid character '1' looking for beginning of object key string"),
        (b'{"config":}', "invalid character '}' looking for beginning of value"),
        (b'{"items":[{"config":1}', "unexpected end of JSON input"),
        (b'{"items":[{"config":1} 2]}', "invalid character '2' after array element"),
        (b"{} 1", "invalid character '1' after top-level value"),
        (b'{"id":"x"}', "json: cannot unmarshal string into Go struct field T.id of type int"),
        (b'{"items":{}}', "json: cannot unmarshal object into Go struct field T.items of type []server.U"),
        (b"1", "json: cannot unmarshal number into Go value of type server.T"),
        (b'{"config":' + b"[" * 100_000, "invalid JSON: nested too deeply"),
    ],
)
def test_errors_beside_raw_members(data: bytes, text: str) -> None:
    with pytest.raises(JSONError) as raised:
        unmarshal_raw(data, RAW, "T", RAW_PATHS)
    assert str(raised.value) == text


@given(st.text(st.sampled_from('{}[],:"ab1 '), max_size=20))
def test_raw_members_change_nothing_about_the_syntax(text: str) -> None:
    try:
        expected = unmarshal(text.encode(), {"a": "any"}, "T")
    except JSONError as exc:
        with pytest.raises(JSONError) as raised:
            unmarshal_raw(text.encode(), Named("T", {"a": "raw"}), "T", {"a": {}})
        assert str(raised.value) == str(exc)
        return
    found = unmarshal_raw(text.encode(), Named("T", {"a": "raw"}), "T", {"a": {}})
    assert {name: json.loads(value) for name, value in (found or {}).items()} == expected
