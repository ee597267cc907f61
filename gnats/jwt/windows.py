"""Checks a user's networks and times of day for connecting (validateSrc, validateTimes in jwt.go)."""

import ipaddress
from datetime import datetime, timedelta
from datetime import time as clock_time
from zoneinfo import ZoneInfo

from gnats.clock import unix_time
from gnats.jwt.claims import UserPermissionLimits
from gnats.jwt.validation import LOCAL, load_location, parse_cidr


def validate_src(limits: UserPermissionLimits, host: str) -> bool:
    """Check whether a user with these limits may connect from the address `host`."""
    if not limits.src:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    for cidr in limits.src:
        network = parse_cidr(cidr)
        if network is None:
            return False
        if (mapped or address) in network:
            return True
    return False


def validate_times(limits: UserPermissionLimits, now: float | None = None) -> float | None:
    """Return the seconds until the end of the window in which the user may be connected (validateTimes).

    `now` is the unix time of the connection; None: the current time. A result of 0 means no end. None means
    that the user may not connect.
    """
    if not limits.times:
        return 0.0
    zone = None  # naive datetimes are the machine's local time
    if limits.times_location not in ("", LOCAL):
        zone = load_location(limits.times_location)
        if zone is None:
            return None
    if now is None:
        now = unix_time()
    left = 0.0
    for each in limits.times:
        try:
            left = max(left, _left(now, each.start, each.end, zone))
        except ValueError:
            return None
    return left or None


def _left(now: float, start: str, end: str, zone: ZoneInfo | None) -> float:
    """Return the seconds until the end of a range; 0 if `now` is outside it. A range may cross midnight."""
    first, last = _today(now, start, zone), _today(now, end, zone)
    begins, ends = first.timestamp(), last.timestamp()
    if begins > ends:
        if ends > now:
            return ends - now
        ends = (last + timedelta(days=1)).timestamp()
    return ends - now if begins < now < ends else 0.0


def _today(now: float, clock: str, zone: ZoneInfo | None) -> datetime:
    hour, minute, second = clock.replace(",", ".").partition(".")[0].split(":")
    date = datetime.fromtimestamp(now, zone).date()
    return datetime.combine(date, clock_time(int(hour), int(minute), int(second)), zone)
