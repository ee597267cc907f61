"""When schedules are due; see cron.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, strlen

from gnats.includes.text cimport is_text, starts_with_text
from gnats.includes.times cimport time_after
from gnats.includes.units cimport SECOND
from gnats.store.times.calendar cimport DAY, Civil, civil_of, days_of, floor_div, ns_of, parse_rfc3339
from gnats.store.times.durations cimport parse_duration
from gnats.store.times.zones cimport Zone, ZoneTime, zone_at, zone_free, zone_open, zone_seconds

cdef int64_t ZERO_TIME = -62135596800     # year 1: Go's zero time.Time
cdef uint64_t EVERY = <uint64_t> 1 << 63

cdef enum:
    FIELDS = 6
    YEARS = 5


# -- fields ------------------------------------------------------------------------------------------------------------

cdef struct Bounds:
    uint32_t low, high
    const char *names        # names of three letters each, the first for `low`; or NULL


cdef struct Text:
    const char *p
    size_t n


cdef Bounds[FIELDS] BOUNDS = [
    Bounds(0, 59, NULL), Bounds(0, 59, NULL), Bounds(0, 23, NULL), Bounds(1, 31, NULL),
    Bounds(1, 12, b"janfebmaraprmayjunjulaugsepoctnovdec"), Bounds(0, 6, b"sunmontuewedthufrisat"),
]


cdef size_t space_at(const char *p, size_t n) noexcept nogil:
    """Return the length of the Unicode blank at p, 0 when there is none."""
    cdef unsigned char a = p[0], b, c
    if a == c' ' or 9 <= a <= 13:
        return 1
    if n < 2 or a < 0xc2:
        return 0
    b = p[1]
    if a == 0xc2:
        return 2 if b == 0x85 or b == 0xa0 else 0
    if n < 3:
        return 0
    c = p[2]
    if a == 0xe2:
        if b == 0x80:
            return 3 if 0x80 <= c <= 0x8a or c == 0xa8 or c == 0xa9 or c == 0xaf else 0
        return 3 if b == 0x81 and c == 0x9f else 0
    if a == 0xe1:
        return 3 if b == 0x9a and c == 0x80 else 0
    return 3 if a == 0xe3 and b == 0x80 and c == 0x80 else 0


cdef int split_fields(const char *p, size_t n, Text *out) noexcept nogil:
    """Split a text into words; return their number. The first FIELDS of them are in out."""
    cdef int found = 0
    cdef size_t at = 0, blank, start
    while True:
        while at < n:
            blank = space_at(p + at, n - at)
            if blank == 0:
                break
            at += blank
        if at == n:
            return found
        start = at
        while at < n and space_at(p + at, n - at) == 0:
            at += 1
        if found < FIELDS:
            out[found].p = p + start
            out[found].n = at - start
        found += 1


cdef bint next_part(Text *rest, char separator, Text *out) noexcept nogil:
    """Split off the text before the next separator; without a separator, all of it, and return False."""
    cdef const char *at = <const char *> memchr(rest.p, separator, rest.n)
    out[0] = rest[0]
    if at == NULL:
        rest.n = 0
        return False
    out.n = at - rest.p
    rest.n -= out.n + 1
    rest.p = at + 1
    return True


cdef bint parse_number(const Text *t, uint64_t *out) noexcept nogil:
    """Parse as strconv.Atoi does; False also for a negative number."""
    cdef size_t i = 1 if t.n and (t.p[0] == c'+' or t.p[0] == c'-') else 0
    out[0] = 0
    if i == t.n:
        return False
    while i < t.n:
        if not c'0' <= t.p[i] <= c'9' or out[0] > <uint64_t> (INT64_MAX // 10):
            return False
        out[0] = out[0] * 10 + <uint64_t> (t.p[i] - c'0')
        i += 1
    return out[0] <= <uint64_t> INT64_MAX and (t.p[0] != c'-' or out[0] == 0)


cdef bint parse_value(const Text *t, const Bounds *b, uint64_t *out) noexcept nogil:
    cdef char[3] low
    cdef uint32_t i
    if b.names != NULL and t.n == 3:
        for i in range(3):
            low[i] = t.p[i] + 32 if c'A' <= t.p[i] <= c'Z' else t.p[i]
        for i in range(b.high - b.low + 1):
            if memcmp(b.names + 3 * i, low, 3) == 0:
                out[0] = b.low + i
                return True
    return parse_number(t, out)


cdef bint parse_range(Text t, const Bounds *b, uint64_t *out) noexcept nogil:
    """Parse `*`, a number or `number-number`, each optionally with `/step`, to a set of bits."""
    cdef Text span, low, high, step_text
    cdef uint64_t start, end, step = 1, extra = 0, i
    cdef bint stepped = next_part(&t, c'/', &span), spans
    spans = next_part(&span, c'-', &low)
    if low.n == 1 and (low.p[0] == c'*' or low.p[0] == c'?'):
        start = b.low
        end = b.high
        extra = EVERY
    else:
        if not parse_value(&low, b, &start):
            return False
        end = start
        if spans and (next_part(&span, c'-', &high) or not parse_value(&high, b, &end)):
            return False
    if stepped:
        if next_part(&t, c'/', &step_text) or not parse_number(&step_text, &step):
            return False
        if not spans:
            end = b.high
        if step > 1:
            extra = 0
    if start < b.low or end > b.high or start > end or step == 0:
        return False
    i = start
    while i <= end:
        out[0] |= <uint64_t> 1 << i
        i += step
    out[0] |= extra
    return True


cdef bint parse_field(Text t, const Bounds *b, uint64_t *out) noexcept nogil:
    cdef Text part
    cdef bint more = True
    out[0] = 0
    while more:
        more = next_part(&t, c',', &part)
        if part.n and not parse_range(part, b, out):
            return False
    return True


cdef bint parse_cron(const char *p, size_t n, Cron *out) noexcept nogil:
    cdef Text[FIELDS] fields
    cdef uint64_t *bits = <uint64_t *> out
    cdef int i
    if split_fields(p, n, fields) != FIELDS:
        return False
    for i in range(FIELDS):
        if not parse_field(fields[i], &BOUNDS[i], &bits[i]):
            return False
    return True


# -- the next time -----------------------------------------------------------------------------------------------------

cdef struct Clock:
    int64_t secs             # since 1970
    Civil shown              # the local time


cdef inline void set_clock(Clock *c, const Zone *z, int64_t secs) noexcept nogil:
    cdef ZoneTime at
    zone_at(z, secs, &at)
    c.secs = secs
    civil_of(secs + at.offset, &c.shown)


cdef inline void set_shown(
    Clock *c, const Zone *z, int64_t year, int64_t month, int64_t day, int64_t seconds
) noexcept nogil:
    """Set a local date and seconds of the day; a month or day that is too large carries over (time.Date)."""
    set_clock(c, z, zone_seconds(z, days_of(year, month, day) * DAY + seconds))


cdef inline bint has(uint64_t bits, int32_t value) noexcept nogil:
    return bits >> value & 1


cdef inline bint day_matches(const Cron *cron, const Civil *c) noexcept nogil:
    if (cron.day | cron.weekday) & EVERY:
        return has(cron.day, c.day) and has(cron.weekday, c.weekday)
    return has(cron.day, c.day) or has(cron.weekday, c.weekday)


cdef inline int64_t of_day(const Civil *c) noexcept nogil:
    return c.hour * 3600 + c.minute * 60 + c.second


cdef bint cron_next(const Cron *c, const Zone *z, int64_t after, int64_t *out) noexcept nogil:
    # Count each field up until it matches. When it wraps around, check the fields above it again, and only then: where
    # summer time skips midnight, the next day passes for the same one, as in nats-server.
    cdef Clock at
    cdef Civil *t = &at.shown
    cdef int64_t year_limit
    cdef bint cut = False    # the fields below the current one have been set to their lowest values
    cdef bint again = True
    if c.second == 0 or c.minute == 0 or c.hour == 0 or c.month == 0:
        return False         # a field of `,` parses, and matches nothing
    set_clock(&at, z, after + 1)
    year_limit = t.year + YEARS
    while again:
        if t.year > year_limit:
            return False
        again = False
        while not again and not has(c.month, t.month):
            if not cut:
                cut = True
                set_shown(&at, z, t.year, t.month, 1, 0)
            set_shown(&at, z, t.year, t.month + 1, t.day, of_day(t))
            again = t.month == 1
        while not again and not day_matches(c, t):
            if not cut:
                cut = True
                set_shown(&at, z, t.year, t.month, t.day, 0)
            set_shown(&at, z, t.year, t.month, t.day + 1, of_day(t))
            again = t.day == 1
        while not again and not has(c.hour, t.hour):
            if not cut:
                cut = True
                set_shown(&at, z, t.year, t.month, t.day, t.hour * 3600)
            set_clock(&at, z, at.secs + 3600)
            again = t.hour == 0
        while not again and not has(c.minute, t.minute):
            if not cut:
                cut = True
                set_clock(&at, z, floor_div(at.secs, 60) * 60)
            set_clock(&at, z, at.secs + 60)
            again = t.minute == 0
        while not again and not has(c.second, t.second):
            cut = True
            set_clock(&at, z, at.secs + 1)
            again = t.second == 0
    out[0] = at.secs
    return True


# -- patterns ----------------------------------------------------------------------------------------------------------

cdef struct Predefined:
    const char *name
    const char *fields


cdef Predefined[7] PREDEFINED = [
    Predefined(b"@yearly", b"0 0 0 1 1 *"), Predefined(b"@annually", b"0 0 0 1 1 *"),
    Predefined(b"@monthly", b"0 0 0 1 * *"), Predefined(b"@weekly", b"0 0 0 * * 0"),
    Predefined(b"@daily", b"0 0 0 * * *"), Predefined(b"@midnight", b"0 0 0 * * *"),
    Predefined(b"@hourly", b"0 0 * * * *"),
]


cdef inline int64_t rounded(int64_t ns) noexcept nogil:
    """Round ns to seconds."""
    return floor_div(time_after(ns, SECOND // 2), SECOND)


cdef ScheduleKind at_time(const char *p, size_t n, Due *out) noexcept nogil:
    cdef int64_t secs, nanos
    if not parse_rfc3339(p, n, &secs, &nanos):
        return SCHEDULE_BAD
    out.ts = ns_of(secs, nanos)
    return SCHEDULE_NONE if secs == ZERO_TIME and nanos == 0 else SCHEDULE_ONCE


cdef int64_t later(int64_t secs, int64_t interval) noexcept nogil:
    return ns_of(secs + interval // SECOND, interval % SECOND)


cdef ScheduleKind every_interval(const char *p, size_t n, int64_t ts, int64_t now, Due *out) noexcept nogil:
    cdef int64_t interval
    if not parse_duration(p, n, &interval) or interval < SECOND:
        return SCHEDULE_BAD
    out.ts = later(rounded(ts), interval)
    if out.ts < now:
        # Missed times are skipped.
        out.ts = later(rounded(now), interval)
    return SCHEDULE_REPEATS


cdef ScheduleKind cron_due(const char *p, size_t n, const Zone *z, int64_t ts, int64_t now, Due *out) noexcept nogil:
    cdef Cron cron
    cdef ZoneTime at
    cdef int64_t secs
    cdef int i
    for i in range(<int> (sizeof(PREDEFINED) // sizeof(Predefined))):
        if is_text(p, n, PREDEFINED[i].name):
            p = PREDEFINED[i].fields
            n = strlen(p)
            break
    if not parse_cron(p, n, &cron) or not cron_next(&cron, z, floor_div(ts, SECOND), &secs):
        return SCHEDULE_BAD
    if ns_of(secs, 0) < now and not cron_next(&cron, z, rounded(now), &secs):
        return SCHEDULE_BAD
    zone_at(z, secs, &at)
    out.ts = ns_of(secs, 0)
    out.offset = at.offset
    return SCHEDULE_REPEATS


cdef ScheduleKind next_due(
    const char *pattern, size_t n, const char *zone, size_t zone_n, int64_t ts, int64_t now, Due *out
) noexcept nogil:
    cdef const char *at = b"@at "
    cdef const char *every = b"@every "
    cdef Zone z
    cdef ScheduleKind kind
    out.ts = 0
    out.offset = 0
    if zone != NULL and not zone_open(&z, zone, zone_n):
        return SCHEDULE_BAD_ZONE
    if n == 0:
        kind = SCHEDULE_NONE
    elif starts_with_text(pattern, n, at):
        kind = at_time(pattern + strlen(at), n - strlen(at), out) if zone == NULL else SCHEDULE_BAD
    elif starts_with_text(pattern, n, every):
        kind = SCHEDULE_BAD
        if zone == NULL:
            kind = every_interval(pattern + strlen(every), n - strlen(every), ts, now, out)
    else:
        kind = cron_due(pattern, n, &z if zone != NULL else NULL, ts, now, out)
    if zone != NULL:
        zone_free(&z)
    return kind


def probe_due(bytes pattern not None, bytes zone, int64_t ts, int64_t now) -> tuple[int, int, int]:
    """Return (a ScheduleKind, when it is due in ns since 1970, the zone's offset then), for tests."""
    cdef Due due
    cdef const char *name = NULL if zone is None else PyBytes_AS_STRING(zone)
    kind = next_due(
        PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern), name, 0 if zone is None else PyBytes_GET_SIZE(zone), ts,
        now, &due)
    return kind, due.ts, due.offset
