"""Readers of header blocks against plain Python, with blocks of any bytes and any length."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnats.core.messages import sampling
from gnats.core.messages.headers import header_value, probe_change
from gnats.core.routing import tracing
from gnats.jetstream.state.headers import header_names, probe_headers, required_level
from gnats.version import JS_API_LEVEL

pytestmark = pytest.mark.timeout(120)

VERSION = b"NATS/1.0\r\n"
LONGEST = 80
EMPTY = 12
LARGE = 300_000
NAMES = [b"Nats-TTL", b"A", b"Nats-Trace-Dest", b"traceparent", b"Nats-Required-Api-Level"]
MARKS = [b"\r\n", b"\r", b"\n", b":", b": ", b" ", b"\t", b"\0", b"NATS/1.0", b"\r\n\r\n", b"503", b"\xff"]
PIECES = [*NAMES, *MARKS, b"A: b\r\n", b"Nats-TTL: 1\r\n", b"Nats-", b"0", b"01", b"-1", b"00-a-b-01"]

pieces = st.one_of(st.sampled_from(PIECES), st.binary(max_size=6))
blocks = st.one_of(st.binary(max_size=LONGEST), st.lists(pieces, max_size=24).map(b"".join))
names = st.sampled_from([*NAMES, b"NATS/1.0", b"\r\n", b"B"])


def every_length() -> Iterator[bytes]:
    """Yield blocks of each length: pieces of well-formed ones, cut off, and random bytes."""
    rng = random.Random(1)
    for length in range(LONGEST + 1):
        for _ in range(30):
            block = VERSION * rng.randrange(2)
            while len(block) < length:
                block += rng.choice(PIECES) if rng.random() < 0.8 else rng.randbytes(3)
            yield block[:length]
        yield rng.randbytes(length)


# -- plain Python ---------------------------------------------------------------------------------------


def find(hdr: bytes, name: bytes) -> bytes | None:
    found = re.search(rb"\r\n%s: *(.*?)(?=\r\n|\Z)" % re.escape(name), hdr, re.DOTALL)
    return found[1] if found else None


def removed(hdr: bytes, beginning: bytes) -> bytes:
    while True:
        found = re.search(rb"(?<=\r\n)%s" % re.escape(beginning), hdr)
        end = hdr.find(b"\r\n", found.start()) if found else -1
        if found is None or end < 0:
            return hdr
        hdr = hdr[: found.start()] + hdr[end + 2 :]
        if len(hdr) <= EMPTY:
            return b""


def without_status(hdr: bytes) -> bytes:
    found = re.match(rb"NATS/1\.0([^\r]+)\r", hdr)
    if not found:
        return hdr
    hdr = hdr[: found.start(1)] + hdr[found.end(1) :]
    return b"" if len(hdr) == EMPTY else hdr


def begun(hdr: bytes) -> bytes:
    return hdr[:-2] if len(hdr) > 2 else VERSION


def added(hdr: bytes, name: bytes, value: bytes) -> bytes:
    return begun(hdr) + name + b": " + value + b"\r\n\r\n"


def changed(hdr: bytes, name: bytes, value: bytes) -> bytes:
    found = re.search(rb"(?<=\r\n)%s: ?((?:(?!\r\n).)*)" % re.escape(name), hdr, re.DOTALL)
    return hdr[: found.start(1)] + value + hdr[found.end(1) :] if found else added(hdr, name, value)


def begun_without(hdr: bytes, name: bytes) -> bytes:
    """Remove every line of a name, whatever ends lines, and let the block end with a line's end."""
    lines = re.findall(rb"[^\n]*\n|[^\n]+", hdr[:-2])
    left = b"".join(line for line in lines if not line.startswith(name + b":")) or VERSION
    return left if left.endswith(b"\r\n") else left + b"\r\n"


def textproto(hdr: bytes) -> list[tuple[bytes, bytes]]:
    """Parse as Go's net/textproto, apart from continuation lines."""
    fields: list[tuple[bytes, bytes]] = []
    for number, ended in enumerate(hdr.split(b"\n")[1:-1]):
        line = ended.removesuffix(b"\r")
        if not line:
            return fields
        if line[:1] in (b" ", b"\t"):
            if number == 0:
                return []
            continue
        key, colon, rest = line.partition(b":")
        value = rest.strip(b" \t")
        if not (colon and re.fullmatch(rb"[\w !#$%&'*+.^`|~-]+", key)) or re.search(
            rb"[\0-\x08\x0a-\x1f\x7f]", value
        ):
            return []
        fields.append((key, value))
    return []


def traced(hdr: bytes) -> list[tuple[bytes, bytes]]:
    fields: list[tuple[bytes, bytes]] = []
    at = len(VERSION)
    while hdr.startswith(VERSION) and (colon := hdr.find(b":", at)) >= 0:
        start = colon + 1
        while hdr[start : start + 1] in (b" ", b"\t"):
            start += 1
        end = hdr.find(b"\r\n", start)
        if end < 0:
            break
        if (key := hdr[at:colon]) and (value := hdr[start:end].rstrip(b" \t")):
            fields.append((key, value))
        at = end + 2
    return fields


# -- comparisons --------------------------------------------------------------------------------------------


def pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def check(hdr: bytes, name: bytes, value: bytes) -> None:
    assert header_value(hdr, name) == find(hdr, name)
    assert probe_change("remove", hdr, name) == removed(hdr, name + b":")
    assert probe_change("remove like", hdr, name) == removed(hdr, name)
    assert probe_change("status", hdr, b"") == without_status(hdr)
    assert probe_change("add", hdr, name, value) == added(hdr, name, value)
    assert probe_change("set", hdr, name, value) == changed(hdr, name, value)
    assert probe_change("without", hdr, name) == begun_without(hdr, name)
    found = probe_headers(hdr)
    for number, known in enumerate(header_names()):
        assert found.get(number) == find(hdr, known), known
    level = find(hdr, b"Nats-Required-Api-Level") or b"0"
    number_wanted = int(level) if re.fullmatch(rb"[+-]?[0-9]+", level) else 2**63
    assert required_level(hdr) == (-(2**63) <= number_wanted <= JS_API_LEVEL)
    assert pairs(tracing.fields(hdr)) == traced(hdr)
    assert sampling.fields(hdr) == textproto(hdr)
    assert isinstance(sampling.sampled(hdr), bool)


def test_blocks_of_every_length() -> None:
    rng = random.Random(2)
    for hdr in every_length():
        check(hdr, rng.choice(NAMES), rng.choice([b"", b"v", b"value of some length"]))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(blocks, names, st.binary(max_size=40))
def test_any_bytes(hdr: bytes, name: bytes, value: bytes) -> None:
    if name != b"\r\n":  # not a name: the call only must not touch memory outside the block
        check(hdr, name, value)
    else:
        for what in ("remove", "remove like", "set", "add", "without"):
            probe_change(what, hdr, name, value)


@pytest.mark.parametrize("blank", [b" ", b"\t", b"\n", b"x", b":", b"a: b\n", b"a: b\r\n"])
def test_large_blocks_are_read_in_one_go(blank: bytes) -> None:
    """Quadratic time would be minutes."""
    hdr = VERSION + b"a:" + blank * (LARGE // len(blank))
    for block in (hdr, hdr + b"\r\n\r\n"):
        assert pairs(tracing.fields(block)) == traced(block)
        assert sampling.fields(block) == textproto(block)
        assert header_value(block, b"a") == find(block, b"a")
