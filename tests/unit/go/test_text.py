"""Texts of numbers, times and durations as Go writes them."""

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.go.text import (
    duration,
    friendly_bytes,
    join_host_port,
    os_error,
    parse_duration,
    quote,
    rfc3339,
    uptime,
)

pytestmark = pytest.mark.timeout(60)

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("", '""'),
        ("plain text", '"plain text"'),
        ('say "hi" \\ there', r'"say \"hi\" \\ there"'),
        ("\a\b\f\n\r\t\v", r'"\a\b\f\n\r\t\v"'),
        ("\x00\x1f\x7f", r'"\x00\x1f\x7f"'),
        ("\x80\u00ad\u2028", r'"\u0080\u00ad\u2028"'),
        ("äé€😀", '"äé€😀"'),
        ("\ufffd", '"\ufffd"'),
        ("\U000e0001", r'"\U000e0001"'),
        (b"\xff\xfeok", r'"\xff\xfeok"'),
        (b"\xe2\x82\xac", '"€"'),
        (b"\xe2\x82", r'"\xe2\x82"'),
    ],
)
def test_quote_escapes_as_percent_q_does(text: str | bytes, quoted: str) -> None:
    assert quote(text) == quoted


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5µs"),
        (999_999, "999.999µs"),
        (100_835_368, "100.835368ms"),
        (SECOND, "1s"),
        (10 * SECOND, "10s"),
        (90 * SECOND, "1m30s"),
        (120 * SECOND, "2m0s"),
        (3600 * SECOND, "1h0m0s"),
        (3_661 * SECOND + 250_000_000, "1h1m1.25s"),
        (-1_500_000_000, "-1.5s"),
    ],
)
def test_duration_is_printed_as_time_duration(ns: int, text: str) -> None:
    assert duration(ns) == text


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("10s", 10 * SECOND),
        ("1m30s", 90 * SECOND),
        ("1.5h", 5400 * SECOND),
        ("100ms", SECOND // 10),
        ("3us", 3_000),
        ("3µs", 3_000),
        ("7ns", 7),
        ("0", 0),
        ("-2s", -2 * SECOND),
        ("+2s", 2 * SECOND),
        (".5s", SECOND // 2),
    ],
)
def test_durations_are_read(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", 'invalid duration ""'),
        ("10", 'missing unit in duration "10"'),
        ("10x", 'unknown unit "x" in duration "10x"'),
        ("s", 'invalid duration "s"'),
        (".s", 'invalid duration ".s"'),
        ("1.2.3s", 'invalid duration "1.2.3s"'),
        ("1 s", 'unknown unit " s" in duration "1 s"'),
        ("--1s", 'invalid duration "--1s"'),
        ("99999999999h", "too long"),
    ],
)
def test_a_bad_duration_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_duration(text)
    assert reason in str(caught.value)


@given(st.integers(min_value=0, max_value=1 << 62))
def test_a_printed_duration_reads_back(ns: int) -> None:
    assert parse_duration(duration(ns)) == ns


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59, "59s"),
        (61, "1m1s"),
        (3_600, "1h0m0s"),
        (90_061, "1d1h1m1s"),
        (366 * 86_400, "1y1d0h0m0s"),
    ],
)
def test_uptime_begins_with_its_largest_unit(seconds: int, text: str) -> None:
    assert uptime(seconds * SECOND + 1) == text


def test_times_are_utc_without_trailing_zeros() -> None:
    assert rfc3339(1_795_223_621_151_393_732) == "2026-11-21T01:13:41.151393732Z"
    assert rfc3339(1_795_223_621_150_000_000) == "2026-11-21T01:13:41.15Z"
    assert rfc3339(1_795_223_621_000_000_000) == "2026-11-21T01:13:41Z"


def test_sizes_have_two_digits_and_a_unit() -> None:
    assert friendly_bytes(1023) == "1023 B"
    assert friendly_bytes(8 << 20) == "8.00 MB"
    assert friendly_bytes(1536) == "1.50 KB"


def test_an_ipv6_host_is_bracketed() -> None:
    assert join_host_port("::1", 4222) == "[::1]:4222"
    assert join_host_port("0.0.0.0", 4222) == "0.0.0.0:4222"


def test_an_os_error_reads_as_in_go() -> None:
    assert os_error(OSError(errno.EMFILE, os.strerror(errno.EMFILE))) == "too many open files"
