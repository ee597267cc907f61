"""Texts of values in Go's forms (strconv, time, fmt), for logs and JSON."""

import time

_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}

MICROSECOND, MILLISECOND, SECOND = 1_000, 1_000_000, 1_000_000_000
HOUR = 3600 * SECOND
"""In nanoseconds."""
_UNITS = {
    "ns": 1,
    "us": MICROSECOND,
    "µs": MICROSECOND,  # U+00B5, micro sign
    "μs": MICROSECOND,  # U+03BC, Greek letter mu
    "ms": MILLISECOND,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
MAX_INT32 = (1 << 31) - 1
MAX_INT64 = (1 << 63) - 1
MAX_UINT64 = (1 << 64) - 1
MAX_DIGITS = 20
"""Digits of MAX_UINT64, without leading zeros. int() raises ValueError for thousands of digits."""
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))
_YEAR_0, _YEAR_9999_END = -62167219200, 253402300799
"""The first second of the year 0 and the last of the year 9999, since 1970."""


def quote(text: str | bytes) -> str:
    """Quote as fmt's %q does: a double-quoted Go string; bytes that are not UTF-8 become \\xNN."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_quote_char, text)) + '"'


def printable(text: str) -> str:
    """Return what a peer has sent as it is, or quoted if a log could not show it in one line."""
    return text if text.isprintable() else quote(text)


def text_bytes(text: str) -> bytes:
    """Return the bytes of a text from the configuration, including the bytes that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _quote_char(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that surrogateescape kept
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def duration(ns: int) -> str:
    """Return a duration in nanoseconds as time.Duration prints it: 0s, 1.5ms, 2m0s, 1h0m0.25s."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    if ns == 0:
        return "0s"
    for unit, size in (("ns", 1), ("µs", MICROSECOND), ("ms", MILLISECOND)):
        if ns < size * 1000:
            return f"{sign}{_decimal(ns, size)}{unit}"
    minutes, rest = divmod(ns, _UNITS["m"])
    text = f"{_decimal(rest, _UNITS['s'])}s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{minutes}m{text}"
        if hours:
            text = f"{hours}h{text}"
    return sign + text


def duration_of(seconds: float) -> str:
    """Like duration(), for seconds."""
    return duration(round(seconds * SECOND))


def _decimal(value: int, size: int) -> str:
    """Return value/size without trailing zeros; size is a power of ten, or 1."""
    whole, part = divmod(value, size)
    if not part:
        return str(whole)
    return f"{whole}.{part:0{len(str(size)) - 1}d}".rstrip("0")


def parse_duration(text: str) -> int:
    """Return the nanoseconds of a Go duration: 10s, 1m30s, 1.5h, 100ms. Raises ValueError with a reason."""
    rest = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    if rest == "0":
        return 0
    total = 0
    if not rest:
        raise ValueError(f"invalid duration {quote(text)}")
    while rest:
        digits = len(rest) - len(rest.lstrip("0123456789."))
        number, rest = rest[:digits], rest[digits:]
        whole, _, part = number.partition(".")
        if not (whole or part) or "." in part:
            raise ValueError(f"invalid duration {quote(text)}")
        letters = 0
        while letters < len(rest) and rest[letters] not in "0123456789.":
            letters += 1
        unit, rest = rest[:letters], rest[letters:]
        if unit not in _UNITS:
            problem = f"unknown unit {quote(unit)}" if unit else "missing unit"
            raise ValueError(f"{problem} in duration {quote(text)}")
        total += int(whole or "0") * _UNITS[unit]
        if part:
            total += int(part) * _UNITS[unit] // 10 ** len(part)
    if total > MAX_INT64:
        raise ValueError(f"invalid duration {quote(text)}: too long")
    return -total if text.startswith("-") else total


def parse_bool(text: str) -> bool:
    """Read a boolean as strconv.ParseBool does. Raises ValueError with its reason."""
    if text not in _TRUE | _FALSE:
        raise ValueError(f"strconv.ParseBool: parsing {quote(text)}: invalid syntax")
    return text in _TRUE


def uptime(ns: int) -> str:
    """Return an age in nanoseconds as monitoring prints it: 5s, 1m0s, 2d3h4m5s."""
    minutes, seconds = divmod(ns // SECOND, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    years, days = divmod(days, 365)
    values = [(years, "y"), (days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")]
    while len(values) > 1 and not values[0][0]:
        del values[0]
    return "".join(f"{value}{unit}" for value, unit in values)


def rfc3339(unix_ns: int) -> str:
    """Return a time as encoding/json prints it: UTC, no trailing zeros, years limited to 0 to 9999."""
    seconds, ns = divmod(unix_ns, SECOND)
    part = f".{ns:09d}".rstrip("0") if ns else ""
    when = time.gmtime(max(_YEAR_0, min(seconds, _YEAR_9999_END)))
    return f"{when.tm_year:04d}{time.strftime('-%m-%dT%H:%M:%S', when)}{part}Z"


def friendly_bytes(count: int) -> str:
    """Return a size in units of 1024 with two decimals: 8.00 MB."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for prefix in "KMGTPE":
        value /= 1024
        if value < 1024 or prefix == "E":
            break
    return f"{value:.2f} {prefix}B"


def os_error(exc: OSError) -> str:
    """Return the reason of an OSError as Go prints an errno: in lower case."""
    reason = exc.strerror or str(exc)
    return reason[:1].lower() + reason[1:]


def join_host_port(host: str, port: int) -> str:
    """Return host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
