"""Positions of sources: saved files, source headers, answers of other servers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gnats.accounts.internal_client import Message
from gnats.jetstream import errors
from gnats.jetstream.control.sources import RETRY_MAXIMUM, api_subject, read_answer, retry_backoff
from gnats.jetstream.disk.sources_state import SourcesState, decode, encode
from gnats.jetstream.settings.config import ExternalStream, StreamSource
from gnats.jetstream.stream.sourcing import last_sourced
from gnats.store.store import MemStore

FAILURE = errors.SOURCE_CONSUMER_SETUP_FAILED
NUMBERS = st.integers(0, (1 << 64) - 1)
POSITIONS = st.dictionaries(st.text(), st.tuples(NUMBERS, st.text()), max_size=5)
WANTED = [("A", "A > >", 0), ("A", "A a.* b.*", 0), ("B:hash", "B:hash:C=x > >", 0), ("C", "C x\fy z\f>", 4)]
FIELDS = st.sampled_from(
    [
        "A",
        "B:hash",
        "B:hash:C=x",
        "C",
        ">",
        "a.*",
        "b.*",
        "x\fy",
        "z\f>",
        "1",
        "7",
        "18446744073709551615",
        "",
        "-1",
    ]
)
REPLIES = [
    "$JS.ACK.A.c.1.9.1.1.0",
    "$JS.ACK._.h.A.c.1.12.1.1.0",
    "$JS.ACK.A.c.1.x.1.1.0",
    "$JS.ACK.A",
    "$JS.ACK..........",
]
VALUES = st.one_of(
    st.lists(FIELDS, min_size=1, max_size=8).map(" ".join),
    st.sampled_from(REPLIES),
    st.sampled_from(
        ["A 5 > >", "A 6 > > s identity", "C 3 x\fy z\f> s i more", "B:hash 4", "A 3", "B:hash:C=x 8 > > s"]
    ),
)


@given(NUMBERS, POSITIONS)
def test_what_is_written_down_is_read_again(stamp: int, positions: dict[str, tuple[int, str]]) -> None:
    state = SourcesState(stamp, positions)
    assert decode(encode(state)) == state


@given(st.binary(max_size=80) | st.binary(max_size=60).map(lambda rest: b"\x01\x02" + bytes(7) + rest))
def test_what_is_no_state_is_a_value_error(data: bytes) -> None:
    try:
        decode(data)
    except ValueError:
        return
    assert data[0] == 1


@given(NUMBERS, POSITIONS, st.data())
def test_a_state_that_was_cut_short_is_a_value_error(
    stamp: int, positions: dict[str, tuple[int, str]], data: st.DataObject
) -> None:
    whole = encode(SourcesState(stamp, positions))
    with pytest.raises(ValueError, match=r"short|EOF"):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))])


def model(headers: list[str | None], wanted: list[tuple[str, str, int]]) -> dict[str, tuple[int, str]]:
    """Find positions as nats-server's streamAndSeq (stream.go), from the last header to the first."""
    found: dict[str, tuple[int, str]] = {}
    for seq, value in reversed(list(enumerate(headers, 1))):
        if value is None:
            continue
        fields = value.lstrip(" ").split(" ")
        name, index_name, number, identity = fields[0], "", "", ""
        if len(fields) == 1:
            tokens = value.split(".")
            if tokens[:2] != ["$JS", "ACK"] or not (len(tokens) == 9 or len(tokens) >= 11):
                continue
            at = 2 if len(tokens) == 9 else 4
            name, number = tokens[at], tokens[at + 3]
        elif len(fields) == 3:
            continue
        else:
            number = fields[1]
            if len(fields) >= 4:
                index_name, identity = " ".join((fields[0], *fields[2:4])), "".join(fields[5:6])
        if not (number.isdigit() and 0 < int(number) < 1 << 63):
            continue
        for stream, each, stop in wanted:
            if seq >= stop and each not in found and (each == index_name if index_name else stream == name):
                found[each] = int(number), identity
    return found


@given(st.lists(st.none() | VALUES, max_size=12))
def test_sources_go_on_where_the_headers_say(headers: list[str | None]) -> None:
    store = MemStore("S")
    try:
        for value in headers:
            head = (
                b"" if value is None else f"NATS/1.0\r\nA: b\r\nNats-Stream-Source: {value}\r\n\r\n".encode()
            )
            store.store_msg(b"s", b"x", head)
        assert last_sourced(store, WANTED) == model(headers, WANTED)
    finally:
        store.close()


def test_a_long_stream_is_searched_to_its_beginning() -> None:
    store = MemStore("S")
    store.store_msg(b"s", b"x", b"NATS/1.0\r\nNats-Stream-Source: A 5 > > s i\r\n\r\n")
    for _ in range(2000):
        store.store_msg(b"s", b"x", b"NATS/1.0\r\nNats-Stream-Source: B 7 > > s\r\n\r\n")
    assert last_sourced(store, [("A", "A > >", 0), ("B", "B > >", 0)]) == {
        "A > >": (5, "i"),
        "B > >": (7, ""),
    }
    assert last_sourced(store, [("A", "A > >", 2)]) == {}
    store.close()


JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "code", "name", "config", "delivered", "stream_seq"]), inner
        )
    ),
    max_leaves=12,
)


@given(JSON.map(json.dumps).map(str.encode) | st.binary())
@example(b'{"error":{"code":1e999}}')
@example(b'{"name":"\\ud800","delivered":{"stream_seq":0},"config":{}}')
def test_any_answer_is_one_or_an_error(payload: bytes) -> None:
    answer = read_answer(Message(b"s", b"", b"", payload, 1), FAILURE)
    assert answer.error or (isinstance(answer.name, bytes) and 0 <= answer.delivered < 1 << 64)


def test_answers_are_read() -> None:
    found: Any = {"name": "C", "config": {"ack_policy": "none"}, "delivered": {"stream_seq": 7}}
    header = b"NATS/1.0\r\nNats-Stream-Identity: abc\r\n\r\n"
    answer = read_answer(Message(b"s", b"", header, json.dumps(found).encode(), 1), FAILURE)
    assert (answer.name, answer.delivered, answer.ack_policy, answer.identity, answer.error) == (
        *(b"C", 7, "none", "abc"),
        None,
    )
    refused = json.dumps(
        {"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}
    ).encode()
    error = read_answer(Message(b"s", b"", b"", refused, 1), FAILURE).error
    assert error and errors.STREAM_NOT_FOUND.is_kind_of(error)


def test_requests_go_where_the_origin_is() -> None:
    assert api_subject(StreamSource(name="O"), "CONSUMER", "CREATE", "O") == "$JS.API.CONSUMER.CREATE.O"
    external = ExternalStream(api="$JS.hub.API", deliver="d")
    assert api_subject(StreamSource(name="O", external=external), "X") == "$JS.hub.API.X"


def test_retries_come_later_and_later() -> None:
    waits = [retry_backoff(fails) for fails in range(20)]
    assert waits == sorted(waits)
    assert (waits[0], waits[1], waits[-1]) == (0, 10, RETRY_MAXIMUM)
