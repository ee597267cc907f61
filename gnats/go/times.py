"""Times of RFC 3339, read and written as Go's time package does in JSON, and nanoseconds since 1970."""

import re

from gnats.go.text import MAX_INT64, SECOND, rfc3339

ZERO_TIME = "0001-01-01T00:00:00Z"
"""Go's zero time.Time{}: no time."""

_LAYOUT = "2006-01-02T15:04:05Z07:00"
_STEPS = (
    (re.compile(r"[0-9]{4}"), "2006"),
    (re.compile("-"), "-"),
    (re.compile("[0-9]{2}"), "01"),
    (re.compile("-"), "-"),
    (re.compile("[0-9]{2}"), "02"),
    (re.compile("T"), "T"),
    (re.compile("[0-9]{2}"), "15"),
    (re.compile(":"), ":"),
    (re.compile("[0-9]{2}"), "04"),
    (re.compile(":"), ":"),
    (re.compile(r"[0-9]{2}(\.[0-9]+)?"), "05"),
    (re.compile("Z|[+-][0-9]{2}:[0-9]{2}"), "Z07:00"),
)
_NANOSECONDS = 9
_FIRST, _END = -62167219200 * SECOND, 253402300800 * SECOND
"""The years 0 to 9999, in nanoseconds since 1970."""


def _quote(text: str) -> str:
    """Quote text as package time does in errors: bytes that are not printable ASCII become \\xNN."""
    return '"' + "".join(map(_quote_byte, text.encode("utf-8", "surrogateescape"))) + '"'


def _quote_byte(byte: int) -> str:
    if byte in b'"\\':
        return "\\" + chr(byte)
    return chr(byte) if 0x20 <= byte < 0x80 else f"\\x{byte:02x}"


def parse_rfc3339(text: str) -> tuple[int, str]:
    """Return the nanoseconds since 1970 of a time, and the time as Go prints it again.

    Raises ValueError with Go's text.
    """
    at, parts = 0, []
    for pattern, element in _STEPS:
        found = pattern.match(text, at)
        if not found:
            raise ValueError(
                f"parsing time {_quote(text)} as {_quote(_LAYOUT)}:"
                f" cannot parse {_quote(text[at:])} as {_quote(element)}"
            )
        parts.append(found[0])
        at = found.end()
    if at < len(text):
        raise ValueError(f"parsing time {_quote(text)}: extra text: {_quote(text[at:])}")
    second, _, fraction = parts[10].partition(".")
    year, month, day = int(parts[0]), int(parts[2]), int(parts[4])
    hour, minute = int(parts[6]), int(parts[8])
    for value, low, high, what in (
        (month, 1, 12, "month"),
        (hour, 0, 23, "hour"),
        (minute, 0, 59, "minute"),
        (int(second), 0, 59, "second"),
    ):
        if not low <= value <= high:
            raise ValueError(f"parsing time {_quote(text)}: {what} out of range")
    if not 1 <= day <= _days(year, month):
        raise ValueError(f"parsing time {_quote(text)}: day out of range")
    zone, offset = parts[11], 0
    if zone != "Z":
        offset = (int(zone[1:3]) * 60 + int(zone[4:6])) * (-60 if zone[0] == "-" else 60)
    fraction = fraction[:_NANOSECONDS]
    seconds = _days_since_1970(year, month, day) * 86400 + hour * 3600 + minute * 60 + int(second) - offset
    ns = seconds * SECOND + int(fraction.ljust(_NANOSECONDS, "0"))
    part = f".{fraction}".rstrip("0").rstrip(".")
    return ns, f"{text[:17]}{second}{part}{zone if offset else 'Z'}"


def unix_ns(text: str) -> int:
    """Return the nanoseconds since 1970 of a valid time, limited to 1 and MAX_INT64; 0 for "" and ZERO_TIME.

    Times before 1970 become 1: nothing stored is that old.
    """
    if not text or text == ZERO_TIME:
        return 0
    return max(1, min(parse_rfc3339(text)[0], MAX_INT64))


def _days(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _days_since_1970(year: int, month: int, day: int) -> int:
    """Return the days since 1970, also for the year 0, which datetime lacks."""
    year -= month < 3  # count years from March: the leap day is then a year's last day
    days = (153 * ((month - 3) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + days - 719468


def utc(text: str) -> str:
    """Return a valid time in UTC; unchanged if its year in UTC is not 0 to 9999."""
    if not text or text == ZERO_TIME:
        return text
    when = parse_rfc3339(text)[0]
    return rfc3339(when) if _FIRST <= when < _END else text
