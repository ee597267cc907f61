"""Due times of cron patterns, beside a model that tries every minute or every second."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gnats.go.text import SECOND
from gnats.store.times.calendar import probe_rfc3339, probe_time_at
from gnats.store.times.cron import probe_due

BAD_ZONE, BAD, NONE, ONCE, REPEATS = -2, -1, 0, 1, 2
START = 1_600_000_000
"""Seconds since 1970."""

RANGES = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


def due(pattern: str, ts: int, zone: str | None = None, now: int = 0) -> int | None:
    """Return the due time in seconds since 1970, or None for a bad pattern."""
    kind, when, _ = probe_due(
        pattern.encode(), None if zone is None else zone.encode(), ts * SECOND, now * SECOND
    )
    if kind == BAD:
        return None
    assert kind == REPEATS
    return when // SECOND


def values(field: str, low: int, high: int) -> set[int]:
    """Return the values that a generated field matches."""
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        if first == "*":
            first, last = str(low), str(high)
        elif not dash:
            last = str(high) if step else first
        found |= set(range(int(first), int(last) + 1, int(step or 1)))
    return found


def day_fits(pattern: str) -> Callable[[datetime], bool]:
    day, month, weekday = pattern.split()[3:]
    days, months, weekdays = values(day, 1, 31), values(month, 1, 12), values(weekday, 0, 6)
    either = not starred(day) and not starred(weekday)

    def check(when: datetime) -> bool:
        matches = when.day in days, (when.weekday() + 1) % 7 in weekdays
        return when.month in months and (any(matches) if either else all(matches))

    return check


def fits(pattern: str) -> Callable[[datetime], bool]:
    seconds, minutes, hours = (
        values(field, *bounds) for field, bounds in zip(pattern.split()[:3], RANGES[:3], strict=True)
    )
    day = day_fits(pattern)
    return lambda when: when.second in seconds and when.minute in minutes and when.hour in hours and day(when)


def starred(field: str) -> bool:
    return any(part in ("*", "*/1") for part in field.split(","))


def parts(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    alone = st.one_of(number.map(str), span, st.just("*"))
    return st.one_of(alone, st.tuples(alone, st.integers(1, high)).map(lambda pair: f"{pair[0]}/{pair[1]}"))


def fields(low: int, high: int) -> st.SearchStrategy[str]:
    return st.one_of(st.just("*"), st.lists(parts(low, high), min_size=1, max_size=3).map(",".join))


OFTEN = st.just("*")


@given(
    st.tuples(*(fields(*bounds) for bounds in RANGES[:2]), OFTEN, OFTEN, OFTEN, OFTEN), st.integers(0, 10**9)
)
def test_seconds_and_minutes_are_those_of_a_look_at_every_second(parts: tuple[str, ...], after: int) -> None:
    pattern = " ".join(parts)
    check = fits(pattern)
    expected = next(s for s in count(START + after + 1) if check(datetime.fromtimestamp(s, UTC)))
    assert due(pattern, START + after) == expected


@given(st.tuples(*(fields(*bounds) for bounds in RANGES[2:])), st.integers(0, 10**9))
@example(("0", "29", "2", "*"), 0)
@example(("0", "31", "4", "*"), 0)
@example(("0", "13", "*", "5"), 0)
@example(("0", "13", "*/2", "*/1,5"), 0)
def test_hours_and_days_are_those_of_a_look_at_every_hour(parts: tuple[str, ...], after: int) -> None:
    pattern = "0 0 " + " ".join(parts)
    check, day = fits(pattern), day_fits(pattern)
    began = datetime.fromtimestamp(START + after, UTC)
    midnight = began.replace(hour=0, minute=0, second=0)
    days = (midnight + timedelta(days=n) for n in range(7 * 366))
    hours = (when + timedelta(hours=n) for when in days if day(when) for n in range(24))
    expected = next((when for when in hours if when > began and check(when)), None)
    if expected is None or expected.year > (began + timedelta(seconds=1)).year + 5:
        assert due(pattern, START + after) is None
    else:
        assert due(pattern, START + after) == int(expected.timestamp())


ZONES = ("Europe/Amsterdam", "America/New_York", "Asia/Kolkata", "Australia/Sydney", "UTC", "Pacific/Chatham")


@given(
    st.sampled_from(ZONES),
    st.tuples(st.just("0"), fields(0, 59), fields(0, 23), OFTEN, OFTEN, OFTEN),
    st.integers(0, 10**9),
)
@example("Europe/Amsterdam", ("0", "30", "2", "*", "*", "*"), 1743292800 - START)
@example("Europe/Amsterdam", ("0", "30", "2", "*", "*", "*"), 1761433200 - START)
@example("Europe/Amsterdam", ("0", "30", "2", "*", "*", "*"), 1761438600 - START)
def test_hours_are_those_that_clocks_of_a_zone_show(zone: str, parts: tuple[str, ...], after: int) -> None:
    # The examples are a night without 2:30, and one with 2:30 twice.
    pattern = " ".join(parts)
    check = fits(pattern)
    clock = ZoneInfo(zone)
    at = START + after - (START + after) % 60 + 60
    expected = next(s for s in count(at, 60) if check(datetime.fromtimestamp(s, clock)))
    assert due(pattern, START + after, zone) == expected


def test_what_comes_behind_the_transitions_that_are_listed_follows_the_rules() -> None:
    clock = ZoneInfo("Europe/Amsterdam")
    for year in range(2030, 2100, 7):
        for month in (1, 4, 7, 10):
            start = int(datetime(year, month, 1, tzinfo=UTC).timestamp())
            expected = datetime.fromtimestamp(start, clock).replace(hour=12, minute=0, second=0)
            expected += timedelta(days=expected.timestamp() <= start)
            assert due("0 0 12 * * *", start, "Europe/Amsterdam") == int(expected.timestamp())


@pytest.mark.parametrize(
    "pattern",
    [
        "", "x", "@", "@at", "@every", "@at ", "@every ", "@Hourly", "@hourly ", " @hourly", "* * * * *",
        "* * * * * * *",
        "60 * * * * *", "* 60 * * * *", "* * 24 * * *", "* * * 0 * *", "* * * 32 * *", "* * * * 0 *",
        "* * * * 13 *",
        "* * * * * 7", "5-1 * * * * *", "1-2-3 * * * * *", "1/2/3 * * * * *", "*/0 * * * * *", "1/ * * * * *",
        "/1 * * * * *", "- * * * * *", "-1 * * * * *", "-0 * * * * *", "1- * * * * *", "a * * * * *",
        "* * * * jan-foo *", ", * * * * *",
        "* * * , * ,", "0 0 0 30 2 *", "99999999999999999999 * * * * *", "@every 999ms", "@every -5s",
        "@every 5", "@every 1x",
        "@at 2024-02-30T00:00:00Z", "@at 2024-01-01", "@at 2024-01-01T00:00:00", "@at 2024-01-01T24:00:00Z",
        "@at 2024-13-01T00:00:00Z", "@at 2024-01-01T00:00:00+25:00", "@at 2024-01-01T00:00:00 Z",
        "@at 2024-01-01t00:00:00Z",
        "@at  2024-01-01T00:00:00Z", "@at 24-01-01T00:00:00Z", "@at 2024-01-01T00:00:00z",
        "@at 2024-01-01T00:00:00+0100",
    ],
)  # fmt: skip
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    assert probe_due(pattern.encode(), None, START * SECOND, 0)[0] == (BAD if pattern else NONE)


@pytest.mark.parametrize(
    ("pattern", "same"),
    [
        ("@yearly", "0 0 0 1 1 *"), ("@annually", "0 0 0 1 1 *"), ("@monthly", "0 0 0 1 * *"),
        ("@weekly", "0 0 0 * * 0"), ("@daily", "0 0 0 * * *"), ("@midnight", "0 0 0 * * *"),
        ("@hourly", "0 0 * * * *"),
        ("? ? ? ? ? ?", "* * * * * *"), ("+5 +0 0 1 1 *", "5 0 0 1 1 *"),
        ("0 0 0 1 JAN,dEc *", "0 0 0 1 1,12 *"),
        ("0 0 0 * * Mon-fri", "0 0 0 * * 1-5"), ("\t0  0\n0 *\u00a0*\u2003* ", "0 0 0 * * *"),
        ("*-7 0 0 * * *", "* 0 0 * * *"),
        (",,5,, 0 0 * * *", "5 0 0 * * *"), ("5/99999 0 0 * * *", "5 0 0 * * *"),
        ("0 0 0 1-5/2,7 * *", "0 0 0 1,3,5,7 * *"),
    ],
)  # fmt: skip
def test_patterns_that_mean_the_same(pattern: str, same: str) -> None:
    for after in range(START, START + 40_000_000, 3_333_333):
        assert due(pattern, after) == due(same, after)


def test_a_star_makes_both_days_count() -> None:
    friday_the_13th = int(datetime(2024, 9, 13, tzinfo=UTC).timestamp())
    assert due("0 0 0 13 * *", friday_the_13th - 1) == friday_the_13th
    assert due("0 0 0 13 * 5", friday_the_13th) == friday_the_13th + 7 * 86400
    assert due("0 0 0 13,* * 5", friday_the_13th) == friday_the_13th + 7 * 86400
    assert due("0 0 0 13 * 5,*/1", friday_the_13th) == int(datetime(2024, 10, 13, tzinfo=UTC).timestamp())


def test_what_was_missed_is_not_made_up_for() -> None:
    assert due("@every 5s", START, now=START + 5) == START + 5
    assert due("@every 5s", START, now=START + 6) == START + 11
    assert due("0 0 * * * *", START, now=START + 86400) == due("0 0 * * * *", START + 86400)


@pytest.mark.parametrize(("nanos", "rounded"), [(0, 0), (499_999_999, 0), (500_000_000, 1), (999_999_999, 1)])
def test_intervals_begin_at_a_whole_second(nanos: int, rounded: int) -> None:
    ts = START * SECOND + nanos
    assert probe_due(b"@every 1500ms", None, ts, 0) == (
        REPEATS,
        (START + rounded) * SECOND + 1_500_000_000,
        0,
    )


def test_the_ends_of_time() -> None:
    most = 2**63 - 1
    assert probe_due(b"@at 9999-12-31T23:59:59Z", None, 0, 0) == (ONCE, most, 0)
    assert probe_due(b"@at 0001-01-02T00:00:00Z", None, 0, 0) == (ONCE, -(2**63), 0)
    assert probe_due(b"@at 0001-01-01T00:00:00Z", None, 0, 0)[0] == NONE
    assert probe_due(b"@every 2562047h", None, START * SECOND, 0) == (REPEATS, most, 0)
    assert probe_due(b"@every 1s", None, most - 2 * SECOND, most) == (REPEATS, most, 0)


@pytest.mark.parametrize("pattern", ["@at 2030-01-01T00:00:00Z", "@every 5s"])
def test_zones_are_for_clocks_only(pattern: str) -> None:
    assert probe_due(pattern.encode(), b"UTC", START * SECOND, 0)[0] == BAD
    assert probe_due(pattern.encode(), b"No/Where", START * SECOND, 0)[0] == BAD_ZONE


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)), st.integers(-1439, 1439))
def test_times_are_read_as_they_are_written(when: datetime, minutes: int) -> None:
    seconds = int((when.replace(microsecond=0) - datetime(1970, 1, 1)).total_seconds()) - minutes * 60
    zone = (
        "Z"
        if minutes == 0
        else f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    )
    text = f"{when:%Y}".rjust(4, "0") + f"{when:-%m-%dT%H:%M:%S}{zone}"
    assert probe_rfc3339(text.encode()) == (seconds, 0)
    if 1678 < when.year < 2262:
        assert probe_time_at(seconds * SECOND, minutes * 60) == text.encode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"1970-01-01T00:00:01.5Z", (1, 500_000_000)), (b"1970-01-01T00:00:01,25Z", (1, 250_000_000)),
        (b"1970-01-01T0:00:01Z", (1, 0)), (b"1970-01-01T00:00:01.1234567891234Z", (1, 123_456_789)),
        (b"1970-01-01T00:00:00-24:60", (90_000, 0)), (b"1970-01-01T00:00:01.Z", None),
        (b"1970-01-01T0:0:01Z", None),
        (b"1970-01-01T00:00:60Z", None), (b"1970-01-01T00:00:00", None), (b"1970-01-01T00:00:00ZZ", None),
        (b"", None),
        (b"1970-01-01T", None), (b"1970-1-01T00:00:00Z", None), (b"1970-01-01 00:00:00Z", None),
    ],
)  # fmt: skip
def test_times_as_go_reads_them(text: bytes, expected: tuple[int, int] | None) -> None:
    assert probe_rfc3339(text) == expected


@given(
    st.text("0123456789*?/-,abcjanmonfri \t+\x00\u00e9", max_size=30),
    st.sampled_from([None, "UTC", "Europe/Berlin", "x"]),
)
def test_any_text_is_a_pattern_or_refused(pattern: str, zone: str | None) -> None:
    kind, when, _ = probe_due(pattern.encode(), zone and zone.encode(), START * SECOND, 0)
    assert kind in (BAD_ZONE, BAD, NONE, REPEATS)
    assert (kind == REPEATS) == (when > START * SECOND)
