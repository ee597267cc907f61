"""Put values at the ends of their ranges into the fields of JSON documents, one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gnats.go.json import Custom, Either, ListOf, MapOf, Named

_PLACE = "@place@"

NUMBERS = (
    b"0",
    b"-1",
    b"1",
    b"2147483647",
    b"2147483648",
    b"4294967295",
    b"4294967296",
    b"9007199254740993",
    b"4611686018427387904",
    b"8000000000000000000",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"-9223372036854775809",
    b"18446744073709551615",
    b"18446744073709551616",
    b"1e400",
    b"1e3",
    b"1.5",
    b"-0",
)
"""As JSON text, like TEXTS and OTHERS."""
TEXTS = (
    b'""',
    b'"\\u0000"',
    b'"a\\u0000b"',
    b'"a\xffb"',
    b'"\\ud800"',
    b'" "',
    b'"*"',
    b'">"',
    b'"a.>.b"',
    b'"."',
    b'"../../x"',
    b'"0"',
    b'"4294967296"',
    b'"9223372036854775808"',
    b'"100%"',
    b'"2262-04-11T23:47:16.854775807Z"',
    b'"9999-12-31T23:59:59.999999999Z"',
    b'"0001-01-01T00:00:00Z"',
    b'"0000-01-01T00:00:00+23:59"',
    b'"\xc3\xa9"',
    b'"%s"' % (b"x" * 255),
    b'"%s"' % (b"x" * 256),
    b'"%s"' % (b"y" * 200_000),
)
OTHERS = (b"true", b"null", b"[]", b"{}", b'[""]', b"[null]", b"[1]", b'{"":""}')
TOKENS = (
    "\0",
    "a\0b",
    "\N{LATIN SMALL LETTER E WITH ACUTE}",
    "x" * 255,
    "x" * 256,
    "a\\b",
    "a/b",
    "%",
)
"""Unusual tokens of subjects that a server allows."""


def values(kind: object) -> tuple[bytes, ...]:
    """Return JSON texts to try in a field of a type of gnats.go.json: its ends, and some of other types."""
    if isinstance(kind, ListOf):
        return (*(b"[%s]" % value for value in values(kind.item)), *OTHERS, b"1", b'"x"')
    if kind == "strings":
        return (*(b"[%s]" % value for value in values("string")), *OTHERS, b"1", b'"x"')
    if isinstance(kind, MapOf):
        named = (b'{"a":%s}' % value for value in values(kind.item))
        return (*named, *(b"{%s:%s}" % (text, text) for text in TEXTS), *OTHERS, b"1", b'"x"')
    if isinstance(kind, Custom) or kind == "string":
        return (*TEXTS, *OTHERS, b"0", b"-1", b"18446744073709551615")
    if kind == "bool":
        return (b"true", b"false", *OTHERS, b"0", b"1", b'""', b'"true"')
    return (*NUMBERS, *OTHERS, b'""', b'"1"', b'"1s"')


def leaves(
    schema: Mapping[str, object], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield (path, type) of every field of a schema, nested ones too.

    A path is a tuple such as ("consumer_limits", "max_ack_pending"); the type of a nested object is "object".
    """
    for name, kind in schema.items():
        inner = kind.item if isinstance(kind, ListOf) else kind
        if isinstance(inner, Either):
            inner = inner.first
        fields = inner.fields if isinstance(inner, Named) else inner
        yield (*above, name), "object" if isinstance(fields, Mapping) else kind
        if isinstance(fields, Mapping):
            yield from leaves(fields, (*above, name))


def put(document: Any, path: tuple[str, ...], raw: bytes) -> bytes:
    """Return the JSON of `document` with the text `raw` at `path`; in an array it is in the first item."""
    return json.dumps(_placed(document, path)).encode().replace(b'"%s"' % _PLACE.encode(), raw)


def _placed(document: Any, path: tuple[str, ...]) -> Any:
    if not path:
        return _PLACE
    if isinstance(document, list):
        first, *others = document or [{}]
        return [_placed(first, path), *others]
    name, *rest = path
    found = dict(document or {})
    found[name] = _placed(found.get(name), tuple(rest))
    return found
