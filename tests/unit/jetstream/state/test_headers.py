"""Headers of messages, TTLs, times and message ids, against plain Python."""

from __future__ import annotations

import datetime
import json
import re

from hypothesis import given
from hypothesis import strategies as st

from gnats.core.messages.headers import probe_change
from gnats.jetstream.state.dedupe import DedupeProbe
from gnats.jetstream.state.headers import (
    header_names,
    probe_headers,
    probe_json_string,
    probe_parse_time,
    probe_time,
)
from gnats.store.times.durations import probe_duration, probe_ttl

NAMES = header_names()
pieces = st.one_of(
    st.sampled_from(
        [*NAMES, b"\r\n", b"\r", b"\n", b":", b": ", b" ", b"NATS/1.0", b"Nats-", b"A: b\r\n", b"\0"]
    ),
    st.binary(max_size=6),
)
blocks = st.one_of(st.binary(max_size=64), st.lists(pieces, max_size=24).map(b"".join))
lines = st.lists(
    st.tuples(
        st.sampled_from([*NAMES, b"Other", b"Nats-Other"]), st.sampled_from([b"", b" ", b"  ", b"v", b"a\rb"])
    ),
    max_size=8,
)


def find(hdr: bytes, name: bytes) -> bytes | None:
    """Return the value of the first line of a name, in plain Python."""
    at = hdr.find(b"\r\n")
    while at >= 0 and at + 4 < len(hdr) + 2:
        line = hdr[at + 2 :]
        end = line.find(b"\r\n")
        line = line if end < 0 else line[:end]
        if line.startswith(name + b":"):
            return line[len(name) + 1 :].lstrip(b" ")
        if end < 0:
            return None
        at += 2 + end
    return None


@given(blocks)
def test_headers_are_found(hdr: bytes) -> None:
    found = probe_headers(hdr)
    for number, name in enumerate(NAMES):
        assert found.get(number) == find(hdr, name), name


@given(lines)
def test_headers_of_blocks_are_found(fields: list[tuple[bytes, bytes]]) -> None:
    hdr = b"NATS/1.0\r\n" + b"".join(name + b":" + value + b"\r\n" for name, value in fields) + b"\r\n"
    found = probe_headers(hdr)
    for number, name in enumerate(NAMES):
        assert found.get(number) == next((v.lstrip(b" ") for n, v in fields if n == name), None)


@given(blocks, st.sampled_from(NAMES))
def test_removing_leaves_none(hdr: bytes, name: bytes) -> None:
    left = probe_change("remove", hdr, name)
    assert len(left) <= len(hdr)
    value = find(left, name)
    assert value is None or b"\r\n" not in left[left.find(name) :]  # a line without an end stays
    if find(hdr, name) is None:
        assert left == hdr


def test_what_is_removed_and_added() -> None:
    assert probe_change("remove", b"NATS/1.0\r\nA: b\r\nNats-TTL: 1\r\nC: d\r\n\r\n", b"Nats-TTL") == (
        b"NATS/1.0\r\nA: b\r\nC: d\r\n\r\n"
    )
    assert probe_change("remove", b"NATS/1.0\r\nNats-TTL: 1\r\nNats-TTL:2\r\n\r\n", b"Nats-TTL") == b""
    assert probe_change("status", b"NATS/1.0 503 No\r\nA: b\r\n\r\n", b"") == b"NATS/1.0\r\nA: b\r\n\r\n"
    assert probe_change("status", b"NATS/1.0 503\r\n\r\n", b"") == b""
    assert probe_change("add", b"", b"A", b"b") == b"NATS/1.0\r\nA: b\r\n\r\n"
    assert probe_change("add", b"NATS/1.0\r\nA: b\r\n\r\n", b"C", b"d") == b"NATS/1.0\r\nA: b\r\nC: d\r\n\r\n"


UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


@given(st.lists(st.tuples(st.integers(0, 10**5), st.sampled_from(sorted(UNITS))), min_size=1, max_size=4))
def test_durations(terms: list[tuple[int, str]]) -> None:
    text = "".join(f"{n}{unit}" for n, unit in terms)
    total = sum(n * UNITS[unit] for n, unit in terms)
    assert probe_duration(text.encode()) == total
    assert probe_duration(b"-" + text.encode()) == -total
    assert probe_ttl(text.encode()) == (total // 10**9 if total >= 10**9 else None)


@given(st.text(alphabet="0123456789.hmsnuµ+-never", max_size=12))
def test_what_is_no_ttl(text: str) -> None:
    ttl = probe_ttl(text.encode())
    if re.fullmatch(r"[0-9]+", text) and text != "0":
        assert ttl == int(text)
    elif not re.search(r"[a-zµ]", text) or re.search(r"[vrx]", text.replace("never", "")):
        assert ttl is None


def test_ttls() -> None:
    expected = {
        b"never": -1,
        b"NEVER": -1,
        b"0": None,
        b"1": 1,
        b"1.9s": 1,
        b"999ms": None,
        b"1h0m1s": 3601,
        b"": None,
    }
    assert {text: probe_ttl(text) for text in expected} == expected
    assert probe_duration(b"9223372036854775807ns") == 2**63 - 1
    assert probe_duration(b"9223372036854775808ns") is None
    assert probe_duration(b"-9223372036854775808ns") == -(2**63)
    assert probe_duration(b"1.5h") == 5400 * 10**9
    assert probe_duration(b".5s") == 5 * 10**8
    for bad in (b"", b"+", b".s", b"1", b"s", b"1x", b"1s2", b"99999999999999999999h"):
        assert probe_duration(bad) is None, bad


@given(
    st.datetimes(min_value=datetime.datetime(1700, 1, 1), max_value=datetime.datetime(2250, 1, 1)),
    st.integers(0, 999),
)
def test_times(when: datetime.datetime, nanos: int) -> None:
    since = when - datetime.datetime(1970, 1, 1)
    ns = (since.days * 86400 + since.seconds) * 10**9 + since.microseconds * 1000 + nanos
    text = probe_time(ns).decode()
    fraction = f"{when.microsecond * 1000 + nanos:09}".rstrip("0")
    assert text == when.strftime("%Y-%m-%dT%H:%M:%S") + (f".{fraction}" if fraction else "") + "Z"
    assert probe_parse_time(text.encode()) == ns
    assert probe_parse_time(text[:-1].encode() + b"+02:30") == ns - 9000 * 10**9


@given(st.text(alphabet="0123456789-:T.Z+ ", max_size=36))
def test_what_is_no_time_is_refused(text: str) -> None:
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", text):
        assert probe_parse_time(text.encode()) is None


def test_dates_that_are_none() -> None:
    for text in (
        "2023-02-29T00:00:00Z",
        "2024-13-01T00:00:00Z",
        "2024-04-31T00:00:00Z",
        "2024-01-01T24:00:00Z",
    ):
        assert probe_parse_time(text.encode()) is None
    assert probe_parse_time(b"2024-02-29T00:00:00Z") is not None


@given(st.binary(max_size=40))
def test_json_strings(data: bytes) -> None:
    text = probe_json_string(data)
    assert not re.search(rb"[<>&\x00-\x1f]", text)
    decoded = json.loads(text)
    try:
        assert decoded == data.decode()
    except UnicodeDecodeError:
        assert "\ufffd" in decoded


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.binary(max_size=3), st.integers(0, 5)),
            st.tuples(st.just("find"), st.binary(max_size=3), st.just(0)),
            st.tuples(st.just("expire"), st.just(b""), st.integers(0, 60)),
        ),
        max_size=200,
    )
)
def test_message_ids(steps: list[tuple[str, bytes, int]]) -> None:
    probe, now, seq = DedupeProbe(), 0, 0
    queue: list[tuple[int, bytes, int]] = []
    known: dict[bytes, int] = {}
    for what, msg_id, n in steps:
        if what == "add":
            now, seq = now + n, seq + 1
            probe.add(msg_id, seq, now)
            queue.append((now, msg_id, seq))
            known[msg_id] = seq
        elif what == "expire":
            while queue and queue[0][0] <= now - n:
                _, old, number = queue.pop(0)
                if known.get(old) == number:
                    del known[old]
            assert probe.expire(now - n) == (queue[0][0] if queue else 0)
        assert probe.find(msg_id) == known.get(msg_id, 0)
        assert len(probe) == len(known)


def test_many_message_ids() -> None:
    probe = DedupeProbe()
    for i in range(1, 50_001):
        probe.add(b"id-%d" % i, i, i)
    assert all(probe.find(b"id-%d" % i) == i for i in range(1, 50_001))
    probe.expire(49_000)
    assert len(probe) == 1000
    assert probe.find(b"id-49000") == 0
    assert probe.find(b"id-49001") == 49_001
    probe.expire(50_000)
    assert len(probe) == 0


def test_message_ids_that_are_taken_back() -> None:
    probe = DedupeProbe()
    for i in range(1, 1001):
        probe.add(b"id-%d" % i, i, i)
    probe.forget(600)
    assert len(probe) == 600
    assert [probe.find(b"id-%d" % i) for i in (600, 601, 1000)] == [600, 0, 0]
    probe.add(b"id-601", 601, 2000)
    assert probe.expire(1500) == 2000
    assert (len(probe), probe.find(b"id-601")) == (1, 601)
