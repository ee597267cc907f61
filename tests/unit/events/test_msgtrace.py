"""The texts of message traces."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.core.routing.tracing import fields
from gnats.events.msgtrace import header_json
from gnats.go.json import marshal, text_of

pytestmark = pytest.mark.timeout(60)

NAMES = st.sampled_from([b"a", b"b", b"A", b"<", b"\xff", b"\xfe", b"\xc3\xa9", b'"', b"Nats-Trace-Dest"])
VALUES = st.sampled_from([b"", b"x", b"&", b"\xe2\x82", b"\xe2\x80\xa8", b"\\", b"\x01"])


@given(st.lists(st.tuples(NAMES, VALUES)))
def test_headers_are_shown_as_an_object_of_arrays(lines: list[tuple[bytes, bytes]]) -> None:
    header = b"NATS/1.0\r\n" + b"".join(b"%b: %b\r\n" % line for line in lines) + b"\r\n"
    flat, expected = fields(header), dict[str, list[str]]()
    for key, value in zip(flat[::2], flat[1::2], strict=True):
        expected.setdefault(text_of(key), []).append(text_of(value))
    shown = header_json(header)
    assert shown == marshal(dict(sorted(expected.items())))
    assert json.loads(shown) == expected


def test_very_many_values_of_one_name_take_no_quadratic_time() -> None:
    header = b"NATS/1.0\r\n" + b"a:b\r\n" * 200_000 + b"\r\n"
    assert header_json(header) == b'{"a":[' + b",".join([b'"b"'] * 200_000) + b"]}"
