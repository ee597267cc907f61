"""Nats-Counter-Sources beside Python's JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from gnats.jetstream.publish.countersources import probe_sources

NAMES = st.text(max_size=4)
SOURCES = st.dictionaries(NAMES, st.none() | st.dictionaries(NAMES, st.text(max_size=5)), max_size=5)
Sources = dict[str, dict[str, str] | None]


def in_order(sources: Sources) -> Sources:
    """Sort keys as Go does, by their bytes."""

    def sort(found: dict[str, str] | None) -> dict[str, str] | None:
        return found and dict(sorted(found.items(), key=lambda item: item[0].encode()))

    return {name: sort(found) for name, found in sorted(sources.items(), key=lambda item: item[0].encode())}


@given(SOURCES, st.booleans(), st.sampled_from([None, 1]))
def test_they_are_written_in_order(sources: Sources, escaped: bool, indent: int | None) -> None:
    text = json.dumps(sources, ensure_ascii=escaped, indent=indent).encode("utf-8", "surrogatepass")
    found = probe_sources(text)
    assert found is not None
    written, before = found
    assert before == b""
    if not sources:
        assert written == b""
    else:
        assert json.dumps(json.loads(written)) == json.dumps(in_order(sources))
        assert probe_sources(written) == (written, b"")


@given(SOURCES, NAMES, NAMES, st.text(max_size=5))
def test_values_are_set(sources: Sources, stream: str, subject: str, value: str) -> None:
    for name in (stream, *sources):
        found = probe_sources(json.dumps(sources).encode(), name.encode(), subject.encode(), value.encode())
        assert found is not None
        written, before = found
        expected = dict(sources)
        inner = dict(expected.get(name) or {})
        assert before == inner.get(subject, "").encode()
        inner[subject] = value
        expected[name] = inner
        assert json.loads(written) == expected
        assert probe_sources(written) == (written, b"")


@given(st.text('{}[]":,ab \\un0', max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    """The parser accepts the syntax of json.loads, apart from some characters in strings."""
    found = probe_sources(text.encode())
    try:
        members = json.loads(text, object_pairs_hook=list)
    except ValueError:
        assert found is None or not text
        return
    good = text[:1] != "[" and isinstance(members, list) and "[" not in text
    if not good or not all(isinstance(inner, list | None) for _, inner in members):
        assert found is None
    elif all(isinstance(value, str | None) for _, inner in members for _, value in inner or ()):
        assert found is not None
    else:
        assert found is None
