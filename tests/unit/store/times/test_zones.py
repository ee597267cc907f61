"""Time zones beside Python's zoneinfo, which reads the same files."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gnats.store.times.zones import has_database, probe_parse, probe_zone

DIRECTORY = Path("/usr/share/zoneinfo")
FROM, UNTIL = 0, 4_000_000_000

pytestmark = pytest.mark.skipif(not DIRECTORY.is_dir(), reason="no time zone database is installed")


def zone_of(path: Path) -> ZoneInfo:
    with path.open("rb") as file:
        return ZoneInfo.from_file(file)


def offset(zone: ZoneInfo, when: int) -> int:
    there = datetime.fromtimestamp(when, UTC).astimezone(zone).utcoffset()
    assert there is not None
    return int(there.total_seconds())


def test_every_zone_shows_the_time_that_python_shows() -> None:
    times = list(range(FROM, UNTIL, 40_000_003))
    assert has_database()
    for name in sorted(available_timezones()):
        if (DIRECTORY / name).is_file():
            zone = zone_of(DIRECTORY / name)
            assert probe_zone(name.encode(), times) == [offset(zone, when) for when in times], name


@pytest.mark.parametrize(
    "rules",
    [
        "EST5EDT,M3.2.0,M11.1.0", "<+0330>-3:30", "CET-1CEST,M3.5.0,M10.5.0/3",
        "AEST-10AEDT,M10.1.0,M4.1.0/3",
        "IST-1GMT0,M10.5.0,M3.5.0/1", "<-02>2<-01>,M3.5.0/-1,M10.5.0/0", "XXX3YYY,J60/3,J300",
        "XXX3YYY2:30:15,J60/3:30:30,J300/-12:15", "EET-2EEST,M3.4.4/50,M10.4.4/50",
    ],
)  # fmt: skip
def test_rules(tmp_path: Path, rules: str) -> None:
    data = tzif([], [(3600, False)], rules)
    (tmp_path / "zone").write_bytes(data)
    zone = zone_of(tmp_path / "zone")
    for when in range(1_700_000_000, 1_900_000_000, 333_333):
        assert probe_parse(data, when) == offset(zone, when), datetime.fromtimestamp(when, UTC)


def test_days_of_the_year_count_from_0_and_29_february_is_one() -> None:
    data = tzif([], [(0, False)], "XXX3YYY,59/3,300")
    for year, first, last in ((2024, "02-29", "10-27"), (2025, "03-01", "10-28")):
        begins = int(datetime.fromisoformat(f"{year}-{first}T06:00:00+00:00").timestamp())
        ends = int(datetime.fromisoformat(f"{year}-{last}T04:00:00+00:00").timestamp())
        found = [probe_parse(data, when) for when in (begins - 1, begins, ends - 1, ends)]
        assert found == [-10800, -7200, -7200, -10800]


def test_summer_time_without_its_days_is_that_of_america() -> None:
    data = [tzif([], [(0, False)], rules) for rules in ("EST5EDT", "EST5EDT,M3.2.0,M11.1.0")]
    for when in range(1_700_000_000, 1_800_000_000, 333_333):
        assert probe_parse(data[0], when) == probe_parse(data[1], when)


@pytest.mark.parametrize(
    "rules", ["E5", "EST", "EST5EDT,", "EST5EDT,M13.1.0,M11.1.0", "EST5EDT,M3.2.0,M11.1.0x", "<EST5"]
)
def test_rules_that_are_none_leave_the_last_transition(rules: str) -> None:
    assert probe_parse(tzif([(100, 1)], [(3600, False), (7200, True)], rules), 10**9) == 7200


def test_before_the_first_transition_it_is_not_summer() -> None:
    assert probe_parse(tzif([(100, 1)], [(3600, False), (7200, True)], ""), 99) == 3600
    assert probe_parse(tzif([(100, 0)], [(7200, True), (3600, False)], ""), 99) == 3600
    assert probe_parse(tzif([(100, 0)], [(7200, True)], ""), 99) == 7200


def tzif(transitions: list[tuple[int, int]], types: list[tuple[int, bool]], rules: str) -> bytes:
    """Encode a TZif file of version 2 with an empty version 1 part."""
    head = struct.pack(">4sc15x6l", b"TZif", b"2", 0, 0, 0, 0, 1, 4)
    body = struct.pack(">lBB", 0, 0, 0) + b"UTC\0"
    wide = struct.pack(">4sc15x6l", b"TZif", b"2", 0, 0, 0, len(transitions), len(types), 4)
    times = b"".join(struct.pack(">q", when) for when, _ in transitions)
    kinds = bytes(kind for _, kind in transitions)
    details = b"".join(struct.pack(">lBB", offset, summer, 0) for offset, summer in types)
    return head + body + wide + times + kinds + details + b"XXX\0\n" + rules.encode() + b"\n"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "/etc/localtime",
        "../zoneinfo/UTC",
        "Europe",
        "europe/berlin/",
        "No/Where",
        "zone.tab",
        "UTC\0",
        "+02:00",
        "x" * 300,
    ],
)
def test_what_is_no_zone(name: str) -> None:
    assert probe_zone(name.encode(), [0]) is None


def test_names_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert probe_zone(b"Local", [0]) == [32400]
    monkeypatch.setenv("TZ", str(DIRECTORY / "Asia" / "Kolkata"))
    assert probe_zone(b"Local", [0]) == [19800]
    monkeypatch.setenv("TZ", "")
    assert probe_zone(b"Local", [0]) == [0]
    (tmp_path / "Mine").write_bytes(tzif([], [(1234, False)], ""))
    assert probe_zone(b"Mine", [0]) is None
    monkeypatch.setenv("ZONEINFO", str(tmp_path))
    assert probe_zone(b"Mine", [0]) == [1234]
    assert probe_zone(b"Asia/Tokyo", [0]) == [32400]


@given(st.binary(max_size=200), st.integers(-(2**62), 2**62))
@example(b"", 0)
def test_any_file_is_one_or_refused(tail: bytes, when: int) -> None:
    found = probe_parse(b"TZif2" + tail, when)
    assert found is None or -(2**31) <= found < 2**31


@given(st.data())
def test_damaged_files_do_no_harm(data: st.DataObject) -> None:
    file = bytearray((DIRECTORY / "Europe" / "Berlin").read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(file)))
    for when in (-(2**62), 0, 10**9, 5 * 10**9, 2**60):
        found = probe_parse(bytes(file[:cut] if cut % 2 else file), when)
        assert found is None or -(2**31) <= found < 2**31
