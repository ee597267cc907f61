"""Time zones; see zones.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EINTR, errno
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, getenv, malloc
from libc.string cimport memchr, memcpy, memset, strlen
from gnats.includes.text cimport is_text, starts_with_text
from posix.fcntl cimport O_CLOEXEC, O_NONBLOCK, O_RDONLY, open
from posix.stat cimport S_ISREG, fstat, struct_stat
from posix.unistd cimport close, read

import os

from gnats.store.times.calendar cimport DAY, Civil, civil_of, days_in, days_of

cdef enum:
    MAX_FILE = 1 << 20
    MAX_NAME = 255
    HEADER = 44          # bytes: magic, version, 15 unused bytes, six counts
    TYPE = 6

cdef enum RuleKind:
    JULIAN = 0           # day 1 to 365, without 29 February
    DAY_OF_YEAR = 1      # day 0 to 365
    WEEKDAY = 2          # a weekday of a week of a month

cdef extern from * nogil:
    """
    #define GNATS_ZONE_FILE "TZif"
    """
    const char *MAGIC "GNATS_ZONE_FILE"

# Directories of the database: Go's, in its order.
cdef const char **DIRECTORIES = [
    b"/usr/share/zoneinfo", b"/usr/share/lib/zoneinfo", b"/usr/lib/locale/TZ", b"/etc/zoneinfo", NULL,
]


# -- files -------------------------------------------------------------------------------------------------------------

cdef uint8_t *read_all(const char *path, size_t *n) noexcept nogil:
    cdef struct_stat st
    cdef uint8_t *data = NULL
    cdef ssize_t got = 0
    cdef int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
    n[0] = 0
    if fd < 0:
        return NULL
    if fstat(fd, &st) == 0 and S_ISREG(st.st_mode) and 0 < st.st_size <= MAX_FILE:
        data = <uint8_t *> malloc(st.st_size)
    while data != NULL and n[0] < <size_t> st.st_size:
        got = read(fd, data + n[0], st.st_size - n[0])
        if got > 0:
            n[0] += got
        elif got == 0 or errno != EINTR:
            break
    close(fd)
    return data


cdef inline uint32_t be32(const uint8_t *p) noexcept nogil:
    return <uint32_t> p[0] << 24 | <uint32_t> p[1] << 16 | <uint32_t> p[2] << 8 | p[3]


cdef inline int64_t when_of(const Zone *z, size_t i) noexcept nogil:
    cdef const uint8_t *p = z.when + i * z.width
    if z.width == 4:
        return <int32_t> be32(p)
    return <int64_t> (<long long> be32(p) << 32 | be32(p + 4))


cdef inline int32_t offset_of(const Zone *z, size_t type) noexcept nogil:
    return <int32_t> be32(z.types + type * TYPE)


cdef size_t body_size(const uint8_t *p, uint8_t width) noexcept nogil:
    """Return the size of the data after a header, with times of `width` bytes."""
    return (
        <size_t> be32(p + 32) * (width + 1) + <size_t> be32(p + 36) * TYPE + be32(p + 40)
        + <size_t> be32(p + 28) * (width + 4) + be32(p + 24) + be32(p + 20))


cdef bint is_header(const uint8_t *p, size_t n) noexcept nogil:
    return (
        n >= HEADER and starts_with_text(<const char *> p, n, MAGIC)
        and (p[strlen(MAGIC)] == 0 or p[strlen(MAGIC)] == c'2' or p[strlen(MAGIC)] == c'3'))


cdef bint parse_file(Zone *z, const uint8_t *p, size_t n) noexcept nogil:
    cdef size_t size, i
    if not is_header(p, n):
        return False
    z.width = 4
    if p[4]:
        # After the data of version 1, the file repeats it with wider times.
        size = HEADER + body_size(p, 4)
        if size >= n or not is_header(p + size, n - size):
            return False
        p += size
        n -= size
        z.width = 8
    size = HEADER + body_size(p, z.width)
    if size > n:
        return False
    z.n = be32(p + 32)
    z.n_types = <int32_t> be32(p + 36)
    z.when = p + HEADER
    z.kind = z.when + z.n * z.width
    z.types = z.kind + z.n
    if z.n_types == 0:
        return False
    for i in range(z.n):
        if z.kind[i] >= z.n_types:
            return False
    if z.width == 8 and n - size > 2 and p[size] == c'\n' and p[n - 1] == c'\n':
        parse_rules(z, <const char *> p + size + 1, n - size - 2)
    return True


cdef bint open_file(Zone *z, const char *path) noexcept nogil:
    cdef size_t n
    memset(z, 0, sizeof(Zone))
    z.data = read_all(path, &n)
    if z.data != NULL and parse_file(z, z.data, n):
        return True
    zone_free(z)
    return False


cdef bint open_in(Zone *z, const char *directory, const char *name, size_t n) noexcept nogil:
    cdef char[1024] path
    cdef size_t at = strlen(directory)
    if at + n + 2 > sizeof(path):
        return False
    memcpy(path, directory, at)
    path[at] = c'/'
    memcpy(path + at + 1, name, n)
    path[at + 1 + n] = 0
    return open_file(z, path)


cdef bint is_name(const char *name, size_t n) noexcept nogil:
    """Whether a name stays within the database's directory."""
    cdef size_t i
    if n == 0 or n > MAX_NAME or name[0] == c'/' or name[0] == c'\\' or memchr(name, 0, n) != NULL:
        return False
    for i in range(n - 1):
        if name[i] == c'.' and name[i + 1] == c'.':
            return False
    return True


cdef bint open_named(Zone *z, const char *name, size_t n) noexcept nogil:
    cdef const char *own = getenv(b"ZONEINFO")
    cdef int i = 0
    if not is_name(name, n):
        return False
    if own != NULL and own[0] and open_in(z, own, name, n):
        return True
    while DIRECTORIES[i] != NULL:
        if open_in(z, DIRECTORIES[i], name, n):
            return True
        i += 1
    return False


cdef void open_local(Zone *z) noexcept nogil:
    """Open the zone of TZ or /etc/localtime; UTC when these cannot be read."""
    cdef const char *tz = getenv(b"TZ")
    if tz == NULL:
        open_file(z, b"/etc/localtime")
    elif tz[0] == c':' or tz[0]:
        tz += tz[0] == c':'
        if tz[0] == c'/':
            open_file(z, tz)
        else:
            open_named(z, tz, strlen(tz))


cdef bint zone_open(Zone *z, const char *name, size_t n) noexcept nogil:
    memset(z, 0, sizeof(Zone))
    if is_text(name, n, b"UTC"):
        return True
    if is_text(name, n, b"Local"):
        open_local(z)
        return True
    return open_named(z, name, n)


cdef void zone_free(Zone *z) noexcept nogil:
    free(z.data)
    memset(z, 0, sizeof(Zone))


# -- rules: "CET-1CEST,M3.5.0,M10.5.0/3" -------------------------------------------------------------------------------

cdef struct Text:
    const char *p
    const char *end


cdef inline bint take(Text *t, char c) noexcept nogil:
    if t.p == t.end or t.p[0] != c:
        return False
    t.p += 1
    return True


cdef bint take_name(Text *t) noexcept nogil:
    cdef const char *start = t.p
    if take(t, c'<'):
        while t.p != t.end:
            if take(t, c'>'):
                return True
            t.p += 1
        return False
    while t.p != t.end and not (c'0' <= t.p[0] <= c'9' or t.p[0] in b",-+"):
        t.p += 1
    return t.p - start >= 3


cdef bint take_number(Text *t, int32_t low, int32_t high, int32_t *out) noexcept nogil:
    cdef const char *start = t.p
    out[0] = 0
    while t.p != t.end and c'0' <= t.p[0] <= c'9':
        out[0] = out[0] * 10 + t.p[0] - c'0'
        if out[0] > high:
            return False
        t.p += 1
    return t.p != start and out[0] >= low


cdef bint take_offset(Text *t, int32_t *out) noexcept nogil:
    """Parse [+-]hh[:mm[:ss]] to seconds."""
    cdef bint negative = take(t, c'-')
    cdef int32_t number
    if not negative:
        take(t, c'+')
    if not take_number(t, 0, 24 * 7, &number):
        return False
    out[0] = number * 3600
    if take(t, c':'):
        if not take_number(t, 0, 59, &number):
            return False
        out[0] += number * 60
        if take(t, c':'):
            if not take_number(t, 0, 59, &number):
                return False
            out[0] += number
    if negative:
        out[0] = -out[0]
    return True


cdef bint take_rule(Text *t, ZoneRule *r) noexcept nogil:
    if take(t, c'J'):
        r.kind = JULIAN
        if not take_number(t, 1, 365, &r.day):
            return False
    elif take(t, c'M'):
        r.kind = WEEKDAY
        if not (
            take_number(t, 1, 12, &r.month) and take(t, c'.') and take_number(t, 1, 5, &r.week) and take(t, c'.')
            and take_number(t, 0, 6, &r.day)
        ):
            return False
    else:
        r.kind = DAY_OF_YEAR
        if not take_number(t, 0, 365, &r.day):
            return False
    r.time = 2 * 3600
    return not take(t, c'/') or take_offset(t, &r.time)


cdef void parse_rules(Zone *z, const char *p, size_t n) noexcept nogil:
    cdef Text t
    cdef const char *usual = b",M3.2.0,M11.1.0"
    t.p = p
    t.end = p + n
    if not take_name(&t) or not take_offset(&t, &z.standard):
        return
    z.standard = -z.standard
    if t.p == t.end or t.p[0] == c',':
        z.has_rules = 1
        return
    if not take_name(&t):
        return
    z.summer = z.standard + 3600
    if t.p != t.end and t.p[0] != c',':
        if not take_offset(&t, &z.summer):
            return
        z.summer = -z.summer
    if t.p == t.end:
        t.p = usual
        t.end = usual + strlen(usual)
    if not take(&t, c',') and not take(&t, c';'):
        return
    if take_rule(&t, &z.begins) and take(&t, c',') and take_rule(&t, &z.ends) and t.p == t.end:
        z.has_rules = 2


cdef int64_t rule_time(const ZoneRule *r, int64_t year, int32_t offset) noexcept nogil:
    """Return when a rule applies, in seconds since the year began in UTC; local time is `offset` ahead of UTC."""
    cdef int64_t first = days_of(year, 1, 1), day
    cdef int32_t i
    cdef Civil c
    if r.kind == JULIAN:
        day = r.day - 1
        if days_in(year, 2) == 29 and r.day >= 60:
            day += 1
    elif r.kind == DAY_OF_YEAR:
        day = r.day
    else:
        day = days_of(year, r.month, 1)
        civil_of(day * DAY, &c)
        i = (r.day - c.weekday + 7) % 7
        day += i - first
        for _ in range(r.week - 1):
            if i + 7 >= days_in(year, r.month):
                break
            i += 7
            day += 7
    return day * DAY + r.time - offset


cdef void by_rules(const Zone *z, int64_t secs, ZoneTime *out) noexcept nogil:
    cdef Civil c
    cdef int64_t year_start, since, first, second
    cdef int32_t inside = z.summer, outside = z.standard
    civil_of(secs, &c)
    year_start = days_of(c.year, 1, 1) * DAY
    since = secs - year_start
    first = rule_time(&z.begins, c.year, z.standard)
    second = rule_time(&z.ends, c.year, z.summer)
    if second < first:
        # South of the equator, the year begins in summer.
        first, second = second, first
        inside, outside = outside, inside
    if since < first:
        out.offset = outside
        out.start = year_start
        out.end = year_start + first
    elif since >= second:
        out.offset = outside
        out.start = year_start + second
        out.end = year_start + 365 * DAY
    else:
        out.offset = inside
        out.start = year_start + first
        out.end = year_start + second


# -- times -------------------------------------------------------------------------------------------------------------

cdef int32_t first_type(const Zone *z) noexcept nogil:
    """Return the type of local time before the first transition."""
    cdef size_t i
    cdef int32_t type
    for i in range(z.n):
        if z.kind[i] == 0:
            break
    else:
        return 0
    if z.types[z.kind[0] * TYPE + 4]:
        type = z.kind[0] - 1
        while type >= 0:
            if not z.types[type * TYPE + 4]:
                return type
            type -= 1
    for type in range(z.n_types):
        if not z.types[type * TYPE + 4]:
            return type
    return 0


cdef void zone_at(const Zone *z, int64_t secs, ZoneTime *out) noexcept nogil:
    cdef size_t low = 0, high, mid
    out.start = INT64_MIN
    out.end = INT64_MAX
    out.offset = 0
    if z == NULL or z.data == NULL:
        return
    if z.n and secs < when_of(z, 0):
        out.offset = offset_of(z, first_type(z))
        out.end = when_of(z, 0)
        return
    if z.n:
        high = z.n
        while high - low > 1:
            mid = low + (high - low) // 2
            if secs < when_of(z, mid):
                out.end = when_of(z, mid)
                high = mid
            else:
                low = mid
        out.start = when_of(z, low)
        out.offset = offset_of(z, z.kind[low])
    else:
        out.offset = offset_of(z, 0)
    if low + 1 >= z.n and z.has_rules == 1:
        out.offset = z.standard
    elif low + 1 >= z.n and z.has_rules == 2:
        by_rules(z, secs, out)


cdef int64_t zone_seconds(const Zone *z, int64_t shown) noexcept nogil:
    cdef ZoneTime at
    cdef int64_t secs
    zone_at(z, shown, &at)
    if at.offset == 0:
        return shown
    secs = shown - at.offset
    if secs < at.start or secs >= at.end:
        zone_at(z, secs, &at)
    return shown - at.offset


# -- for Python --------------------------------------------------------------------------------------------------------

def has_database() -> bool:
    """Whether this machine has a time zone database."""
    cdef const char *own = getenv(b"ZONEINFO")
    cdef int i
    if own != NULL and os.path.isdir(own):
        return True
    for i in range(4):
        if os.path.isdir(DIRECTORIES[i]):
            return True
    return False


def probe_zone(bytes name not None, list times not None) -> list[int] | None:
    """Return the seconds east of UTC at each time (seconds since 1970); None for an unknown zone (for tests)."""
    cdef Zone z
    cdef ZoneTime at
    cdef list out = []
    if not zone_open(&z, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)):
        return None
    for secs in times:
        zone_at(&z, secs, &at)
        out.append(at.offset)
    zone_free(&z)
    return out


def probe_parse(bytes data not None, int64_t secs) -> int | None:
    """Return the seconds east of UTC at a time, by the content of a zone's file; None if damaged (for tests)."""
    cdef Zone z
    cdef ZoneTime at
    memset(&z, 0, sizeof(z))
    z.data = <uint8_t *> malloc(max(len(data), 1))
    if z.data == NULL:
        raise MemoryError
    memcpy(z.data, PyBytes_AS_STRING(data), len(data))
    good = parse_file(&z, z.data, len(data))
    if good:
        zone_at(&z, secs, &at)
        zone_seconds(&z, secs)
    zone_free(&z)
    return at.offset if good else None
