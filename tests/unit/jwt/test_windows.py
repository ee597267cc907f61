"""Source networks and times of day from which a user may connect."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.jwt.claims import TimeRange, UserPermissionLimits
from gnats.jwt.windows import validate_src, validate_times

pytestmark = pytest.mark.timeout(60)

SOURCES = [
    (None, "anything", True),
    (("10.0.0.0/8",), "10.1.2.3", True),
    (("10.0.0.0/8",), "11.1.2.3", False),
    (("10.0.0.0/8",), "::ffff:10.1.2.3", True),
    (("192.0.2.7/32", "10.0.0.0/8"), "10.1.2.3", True),
    (("2001:db8::/32",), "2001:db8::1", True),
    (("2001:db8::/32",), "10.1.2.3", False),
    (("10.1.2.3/8",), "10.9.9.9", True),
    (("10.1.2.3",), "10.1.2.3", False),
    (("10.0.0.0/255.0.0.0",), "10.1.2.3", False),
    (("0.0.0.0/0",), "", False),
    (("0.0.0.0/0",), "localhost", False),
]


@pytest.mark.parametrize(("src", "host", "good"), SOURCES)
def test_sources(src: tuple[str, ...] | None, host: str, good: bool) -> None:
    assert validate_src(UserPermissionLimits(src=src), host) == good


def limits(*ranges: tuple[str, str], zone: str = "UTC") -> UserPermissionLimits:
    times = tuple(TimeRange(start=start, end=end) for start, end in ranges)
    return UserPermissionLimits(times=times, times_location=zone)


def at(clock: str, zone: str = "UTC", day: str = "2026-06-15") -> float:
    return datetime.fromisoformat(f"{day}T{clock}").replace(tzinfo=ZoneInfo(zone)).timestamp()


TIMES = [
    (("11:00:00", "22:00:00"), "13:00:00", 9 * 3600.0),
    (("11:00:00", "22:00:00"), "11:00:00", None),
    (("11:00:00", "22:00:00"), "22:00:00", None),
    (("11:00:00", "22:00:00"), "10:59:59", None),
    (("22:00:00", "06:00:00"), "05:00:00", 3600.0),
    (("22:00:00", "06:00:00"), "23:30:00", 6.5 * 3600),
    (("22:00:00", "06:00:00"), "06:00:00", None),
    (("22:00:00", "06:00:00"), "12:00:00", None),
    (("10:00:00", "10:00:00"), "10:00:00", None),
]


@pytest.mark.parametrize(("span", "now", "left"), TIMES)
def test_times_of_the_day(span: tuple[str, str], now: str, left: float | None) -> None:
    assert validate_times(limits(span), at(now)) == left


def test_without_times_a_user_may_always_stay() -> None:
    assert validate_times(UserPermissionLimits()) == 0.0


def test_of_several_times_the_longest_counts() -> None:
    both = limits(("10:00:00", "12:00:00"), ("09:00:00", "15:00:00"))
    assert validate_times(both, at("11:00:00")) == 4 * 3600.0


def test_times_are_those_of_their_place() -> None:
    berlin = limits(("08:00:00", "10:00:00"), zone="Europe/Berlin")
    assert validate_times(berlin, at("09:00:00", "Europe/Berlin")) == 3600.0
    assert validate_times(berlin, at("07:00:00")) == 3600.0
    assert validate_times(berlin, at("09:00:00")) is None


def test_a_night_with_a_change_of_the_clock_is_as_long_as_it_is() -> None:
    night = limits(("22:00:00", "06:00:00"), zone="Europe/Berlin")
    assert validate_times(night, at("23:00:00", "Europe/Berlin", "2026-03-28")) == 6 * 3600.0
    assert validate_times(night, at("23:00:00", "Europe/Berlin", "2026-06-15")) == 7 * 3600.0


@pytest.mark.parametrize("zone", ["", "Local"])
def test_without_a_place_it_is_the_time_of_the_machine(zone: str) -> None:
    now = datetime(2026, 6, 15, 13, 0).timestamp()
    assert validate_times(limits(("11:00:00", "14:00:00"), zone=zone), now) == 3600.0


def test_what_is_no_time_or_place_is_refused() -> None:
    assert validate_times(limits(("a", "b"))) is None
    assert validate_times(limits(("00:00:00", "23:59:59"), zone="Mars/Olympus")) is None


@given(st.times(), st.times(), st.times())
def test_time_left_never_exceeds_a_day(start: object, end: object, now: object) -> None:
    span = str(start)[:8], str(end)[:8]
    left = validate_times(limits(span), at(str(now)[:8]))
    assert left is None or 0 < left < 24 * 3600
