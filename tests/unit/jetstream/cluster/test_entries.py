"""Entries and snapshots of the meta group: round trips, forms of nats-server, and damaged input."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.assignments import consumers, streams

from gnats.codec import s2
from gnats.jetstream.cluster import entries
from gnats.jetstream.cluster.entries import (
    ClientInfo,
    ConsumerAssignment,
    Entry,
    MetaError,
    Op,
    SnapshotStream,
    StreamAssignment,
    decode_entry,
    decode_snapshot,
    encode_entry,
    encode_snapshot,
)
from gnats.version import JS_API_LEVEL

pytestmark = pytest.mark.timeout(60)

STREAM_OPS = [Op.ASSIGN_STREAM, Op.REMOVE_STREAM, Op.UPDATE_STREAM]
CONSUMER_OPS = [Op.ASSIGN_CONSUMER, Op.REMOVE_CONSUMER, Op.ASSIGN_COMPRESSED_CONSUMER]
ENTRIES = st.tuples(st.sampled_from(STREAM_OPS), streams()) | st.tuples(
    st.sampled_from(CONSUMER_OPS), consumers()
)

GROUP = {"name": "S-R3F-HpZ1mTkV", "peers": ["yrzKKRBu", "cnrtt3eg", "bkCGheKT"], "store": "file"}
CREATED = "2026-08-21T14:50:11.123456789Z"
STREAM: dict[str, Any] = {
    "client": {"acc": "A", "rtt": 1200, "server": "s1", "cluster": "C1"},
    "created": CREATED,
    "stream": {"name": "S", "subjects": ["s.>"], "retention": "limits", "storage": "file", "num_replicas": 3},
    "group": GROUP | {"cluster": "C1", "preferred": "cnrtt3eg"},
    "sync": "$JSC.SYNC.Gw8n2Wci",
    "subject": "$JS.API.STREAM.CREATE.S",
    "reply": "_INBOX.1",
}
CONSUMER: dict[str, Any] = {
    "client": {"acc": "A", "cluster": "C1"},
    "created": CREATED,
    "name": "c",
    "stream": "S",
    "consumer": {"durable_name": "c", "deliver_policy": "all", "ack_policy": "explicit", "num_replicas": 0},
    "group": GROUP | {"name": "C-R3F-HpZ1mTkV"},
}


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def entry(op: Op, members: object) -> bytes:
    return bytes((op,)) + compact(members) + b"\n"


def read_stream(**changes: Any) -> StreamAssignment:
    found = decode_entry(entry(Op.ASSIGN_STREAM, STREAM | changes)).assignment
    assert isinstance(found, StreamAssignment)
    return found


def read_consumer(**changes: Any) -> ConsumerAssignment:
    found = decode_entry(entry(Op.ASSIGN_CONSUMER, CONSUMER | changes)).assignment
    assert isinstance(found, ConsumerAssignment)
    return found


@given(ENTRIES)
def test_an_entry_is_read_as_it_was_written(found: tuple[Op, Any]) -> None:
    data = encode_entry(*found)
    assert decode_entry(data) == found
    assert encode_entry(*decode_entry(data)) == data


@given(st.lists(st.tuples(streams(), st.lists(consumers(), max_size=3)), max_size=3))
def test_a_snapshot_is_read_as_it_was_written(found: list[tuple[StreamAssignment, list[Any]]]) -> None:
    written = [
        SnapshotStream(stream, tuple(replace(each, stream=stream.name) for each in theirs))
        for stream, theirs in found
    ]
    data = encode_snapshot(written)
    read = decode_snapshot(data)
    assert encode_snapshot(read) == data
    for (stream, theirs), (stream_read, theirs_read) in zip(written, read, strict=True):
        assert (stream_read.config, stream_read.group) == (stream.config, stream.group)
        assert (stream_read.created, stream_read.sync) == (stream.created, stream.sync)
        assert stream_read.client == (stream.client and stream.client.for_snapshot())
        assert (stream_read.subject, stream_read.restore) == ("", None)
        assert [(each.name, each.config, each.group) for each in theirs_read] == [
            (each.name, each.config, each.group) for each in theirs
        ]


@settings(max_examples=300)
@given(ENTRIES, st.data())
def test_a_damaged_entry_raises_nothing_but_the_one_error(found: tuple[Op, Any], data: st.DataObject) -> None:
    damaged = bytearray(encode_entry(*found))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        if not damaged:
            break
    try:
        op, assignment = decode_entry(bytes(damaged))
    except MetaError:
        return
    decode_entry(encode_entry(op, assignment))


@settings(max_examples=200)
@given(st.binary(max_size=60))
def test_any_bytes_raise_nothing_but_the_one_error(data: bytes) -> None:
    for read in decode_entry, decode_snapshot:
        try:
            read(data)
        except MetaError:
            continue


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=300)
@given(st.sampled_from(["stream", "consumer", "snapshot"]), st.data())
def test_members_of_any_type_raise_nothing_but_the_one_error(what: str, data: st.DataObject) -> None:
    members = json.loads(compact(CONSUMER if what == "consumer" else STREAM))
    members |= {"restore_state": {"first_ts": CREATED, "lost": {"msgs": [1]}, "deleted": [1]}}
    members["group"]["desired"] = {"id": "x", "peers": [], "origin": {"peers": [], "retention": "limits"}}
    if what == "consumer":
        members["state"] = {"pending": {"1": {"Sequence": 1}}, "redelivered": {"1": 1}, "delivered": {}}
    if what == "snapshot":
        members["Consumers"] = [json.loads(compact(CONSUMER))]
    place: Any = members
    while isinstance(place, (dict, list)) and place:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.booleans()):
            place[key] = data.draw(JSON)
            break
        place = place[key]
    try:
        if what == "snapshot":
            encode_snapshot(decode_snapshot(s2.encode_block(compact([members]))))
        else:
            op = Op.ASSIGN_CONSUMER if what == "consumer" else Op.ASSIGN_STREAM
            encode_entry(*decode_entry(entry(op, members)))
    except MetaError:
        pass


def test_an_entry_is_written_with_the_bytes_of_nats_server() -> None:
    for op in STREAM_OPS:
        data = entry(op, STREAM)
        assert encode_entry(*decode_entry(data)) == data
    for op in (Op.ASSIGN_CONSUMER, Op.REMOVE_CONSUMER):
        data = entry(op, CONSUMER)
        assert encode_entry(*decode_entry(data)) == data


def test_a_snapshot_has_what_nats_server_keeps() -> None:
    stream, consumer = read_stream(), read_consumer(subject="x", reply="y")
    data = s2.decode_block(encode_snapshot([SnapshotStream(stream, (consumer,))]), 1 << 20)
    kept = {name: value for name, value in STREAM.items() if name not in ("subject", "reply")}
    kept["client"] = {"acc": "A", "cluster": "C1"}
    assert data == compact([kept | {"Consumers": [CONSUMER]}])


def test_no_streams_make_an_empty_snapshot() -> None:
    assert encode_snapshot([]) == b""
    assert decode_snapshot(b"") == []


def test_no_snapshot_is_written_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = [SnapshotStream(read_stream(), (read_consumer(),))] * 3
    size = len(s2.decode_block(encode_snapshot(streams), 1 << 20))
    monkeypatch.setattr(entries, "MOST_SNAPSHOT", size)
    assert len(decode_snapshot(encode_snapshot(streams))) == 3
    monkeypatch.setattr(entries, "MOST_SNAPSHOT", size - 1)
    with pytest.raises(MetaError, match=f"{size} bytes"):
        encode_snapshot(streams)


def test_a_consumer_in_a_snapshot_may_leave_out_its_stream() -> None:
    for left_out in (CONSUMER | {"stream": ""}, {k: v for k, v in CONSUMER.items() if k != "stream"}):
        data = s2.encode_block(compact([STREAM | {"Consumers": [left_out]}]))
        ((_, (consumer,)),) = decode_snapshot(data)
        assert (consumer.name, consumer.stream) == ("c", "S")


def test_the_account_is_that_of_the_service() -> None:
    assert read_stream().account == "A"
    assert read_stream(client={"acc": "A", "svc": "B"}).account == "B"
    assert read_stream(client=None).account == ""


def test_a_proposal_leaves_out_the_client_s_jwt() -> None:
    stream = replace(read_stream(), client=ClientInfo(acc="A", jwt="secret", issuer_key="key", user="u"))
    assert decode_entry(encode_entry(Op.ASSIGN_STREAM, stream)).assignment.client == ClientInfo(
        acc="A", user="u"
    )


def test_a_compressed_assignment_may_have_bytes_behind_it() -> None:
    data = bytes((Op.ASSIGN_COMPRESSED_CONSUMER,)) + s2.encode(compact(CONSUMER) + b"\n more")
    assert decode_entry(data) == Entry(Op.ASSIGN_COMPRESSED_CONSUMER, read_consumer())


# ---- what is not supported ----


def test_a_configuration_with_unknown_fields_is_kept_as_it_came() -> None:
    config = STREAM["stream"] | {"from_the_future": [1.50, {"a": None}]}
    stream = read_stream(stream=config)
    assert stream.unsupported == 'unsupported - config error: unknown field "from_the_future"'
    assert stream.config.name == "S"
    assert json.loads(stream.json())["stream"] == config
    assert b"1.5" in stream.json()
    ((again, _),) = decode_snapshot(encode_snapshot([SnapshotStream(stream, ())]))
    assert (again.config_json, again.unsupported) == (stream.config_json, stream.unsupported)

    consumer = read_consumer(consumer=CONSUMER["consumer"] | {"later": True})
    assert consumer.unsupported == 'unsupported - config error: unknown field "later"'


@pytest.mark.parametrize(
    ("level", "supported"),
    [("0", True), (f"{JS_API_LEVEL}", True), (f"{JS_API_LEVEL + 1}", False), ("x", False), ("", True)],
)
def test_a_higher_api_level_is_not_supported(level: str, supported: bool) -> None:
    metadata = {"metadata": {"_nats.req.level": level}}
    reason = f"unsupported - required API level: {level}, current API level: {JS_API_LEVEL}"
    assert read_stream(stream=STREAM["stream"] | metadata).unsupported == ("" if supported else reason)
    consumer = CONSUMER["consumer"] | metadata
    assert read_consumer(consumer=consumer).unsupported == ("" if supported else reason)


def test_a_mirror_of_an_old_server_loses_its_duplicate_window() -> None:
    config = STREAM["stream"] | {"mirror": {"name": "O"}, "duplicate_window": 120_000_000_000}
    assert read_stream(stream=config).config.duplicate_window == 0


# ---- what is wrong ----


def without(members: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in members.items() if key != name}


WRONG = {
    b"": "empty meta entry",
    b"\x04{}": "unknown meta entry op type: 4",
    b"\xff": "unknown meta entry op type: 255",
    b"\x00": "stream assignment: unexpected end of JSON input",
    b"\x00[]": (
        "stream assignment: json: cannot unmarshal array into Go value of type server.streamAssignment"
    ),
    b"\x01{} {}": "consumer assignment: invalid character '{' after top-level value",
    b"\x09{}": "compressed consumer assignment: not S2, or damaged",
    b"\x00null": "stream assignment has no configuration",
    entry(Op.ASSIGN_STREAM, without(STREAM, "group")): 'stream "S" has no group',
    entry(Op.ASSIGN_STREAM, without(STREAM, "stream")): "stream assignment has no configuration",
    entry(Op.ASSIGN_STREAM, STREAM | {"stream": {}}): "stream has no name",
    entry(Op.ASSIGN_STREAM, STREAM | {"stream": {"name": "../x"}}): 'stream: bad name "../x"',
    entry(Op.ASSIGN_STREAM, STREAM | {"group": {"name": "a/b"}}): 'group of stream "S": bad name "a/b"',
    entry(Op.ASSIGN_STREAM, STREAM | {"group": {"name": "g"}}): (
        'group "g" of stream "S" has no storage type'
    ),
    entry(Op.ASSIGN_STREAM, STREAM | {"created": "today"}): (
        'stream assignment: parsing time "today" as "2006-01-02T15:04:05Z07:00": '
        'cannot parse "today" as "2006"'
    ),
    entry(Op.ASSIGN_STREAM, STREAM | {"stream": {"name": "S", "storage": "tape"}}): (
        'stream assignment: can not unmarshal "\\"tape\\""'
    ),
    entry(Op.ASSIGN_CONSUMER, without(CONSUMER, "consumer")): (
        'consumer "c" of stream "S" has no configuration'
    ),
    entry(Op.ASSIGN_CONSUMER, without(CONSUMER, "name")): "consumer has no name",
    entry(Op.ASSIGN_CONSUMER, CONSUMER | {"stream": "a.b"}): 'stream: bad name "a.b"',
    entry(Op.ASSIGN_CONSUMER, CONSUMER | {"state": {"pending": {"x": None}}}): (
        "consumer assignment: json: cannot unmarshal number x into Go value of type uint64"
    ),
}


@pytest.mark.parametrize(("data", "text"), WRONG.items(), ids=WRONG.values())
def test_the_error_says_what_is_wrong(data: bytes, text: str) -> None:
    with pytest.raises(MetaError) as raised:
        decode_entry(data)
    assert str(raised.value) == text


def test_the_error_says_what_is_wrong_with_a_snapshot() -> None:
    for data, text in (
        (b"\x05", "meta snapshot: not S2, or damaged"),
        (b"\xff\xff\xff\xff\x7f", "meta snapshot: over the limit"),
        (s2.encode_block(b"{}"), "cannot unmarshal object into Go value of type []server.writeableStreamAs"),
        (s2.encode_block(b"[1]"), "meta snapshot: json: cannot unmarshal number into"),
        (
            s2.encode_block(compact([STREAM | {"Consumers": [CONSUMER | {"stream": "T"}]}])),
            'stream "S" has a consumer of stream "T"',
        ),
    ):
        with pytest.raises(MetaError) as raised:
            decode_snapshot(data)
        assert text in str(raised.value)


def test_deep_nesting_is_an_error() -> None:
    with pytest.raises(MetaError):
        decode_entry(b"\x00" + b'{"stream":' + b"[" * 100_000)
