"""JSON objects of small requests; see jsonreq.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset, strlen

cdef enum:
    MAX_DEPTH = 10000    # as in encoding/json
    NESTED = 1250        # bytes with a bit for each level
    NAME_ROOM = 128      # most bytes of a member's name that can match a field, with every character escaped
    OBJECT = 123         # {
    ARRAY = 91           # [
    STRING = 34          # "
    NUMBER = 48          # 0
    LITERAL_TRUE = 116
    LITERAL_FALSE = 102
    LITERAL_NULL = 110

cdef const char *VALUE = b"looking for beginning of value"
cdef const char *KEY = b"looking for beginning of object key string"


cdef struct Scan:
    const char *p
    size_t n
    size_t at
    JsonError *err
    bint escaped         # the last string has a backslash in it


# -- syntax ------------------------------------------------------------------------------------------------------------

cdef bint bad(Scan *s, const char *what) noexcept nogil:
    """Note a syntax error at the current character."""
    s.err.kind = JSON_SYNTAX
    s.err.what = what if s.at < s.n else NULL
    s.err.byte = <uint8_t> s.p[s.at] if s.at < s.n else 0
    s.err.p = s.p + s.at
    s.err.n = rune_length(<const uint8_t *> s.p + s.at, s.n - s.at) if s.at < s.n else 0
    return False


cdef inline int peek(const Scan *s) noexcept nogil:
    return <uint8_t> s.p[s.at] if s.at < s.n else -1


cdef inline void skip_blanks(Scan *s) noexcept nogil:
    while s.at < s.n and (s.p[s.at] == c' ' or s.p[s.at] == c'\n' or s.p[s.at] == c'\r' or s.p[s.at] == c'\t'):
        s.at += 1


cdef inline int hex_digit(int c) noexcept nogil:
    if c'0' <= c <= c'9':
        return c - c'0'
    if c'a' <= (c | 32) <= c'f':
        return (c | 32) - c'a' + 10
    return -1


cdef bint scan_string(Scan *s) noexcept nogil:
    """Scan a string, from its first quote to after the last."""
    cdef int c, _i
    s.escaped = False
    s.at += 1
    while True:
        c = peek(s)
        if c == c'"':
            s.at += 1
            return True
        if c < 32:
            return bad(s, b"in string literal")
        s.at += 1
        if c != c'\\':
            continue
        s.escaped = True
        c = peek(s)
        if c == c'u':
            for _i in range(4):
                s.at += 1
                if hex_digit(peek(s)) < 0:
                    return bad(s, b"in \\u hexadecimal character escape")
        elif not (
            c == c'"' or c == c'\\' or c == c'/' or c == c'b' or c == c'f' or c == c'n' or c == c'r' or c == c't'
        ):
            return bad(s, b"in string escape code")
        s.at += 1


cdef bint scan_digits(Scan *s, const char *what) noexcept nogil:
    if not c'0' <= peek(s) <= c'9':
        return bad(s, what)
    while c'0' <= peek(s) <= c'9':
        s.at += 1
    return True


cdef bint scan_number(Scan *s) noexcept nogil:
    if peek(s) == c'-':
        s.at += 1
    if peek(s) == c'0':
        s.at += 1
    elif not scan_digits(s, b"in numeric literal"):
        return False
    if peek(s) == c'.':
        s.at += 1
        if not scan_digits(s, b"after decimal point in numeric literal"):
            return False
    if peek(s) == c'e' or peek(s) == c'E':
        s.at += 1
        if peek(s) == c'+' or peek(s) == c'-':
            s.at += 1
        return scan_digits(s, b"in exponent of numeric literal")
    return True


cdef bint scan_literal(Scan *s, const char *word, const char *what) noexcept nogil:
    cdef size_t i
    for i in range(strlen(word)):
        if peek(s) != word[i]:
            s.err.expected = word[i]
            return bad(s, what)
        s.at += 1
    return True


cdef int scan_scalar(Scan *s) noexcept nogil:
    """Scan a value that is no object or array; return its kind, 0 for an error."""
    cdef int c = peek(s)
    if c == STRING:
        return STRING if scan_string(s) else 0
    if c == c'-' or c'0' <= c <= c'9':
        return NUMBER if scan_number(s) else 0
    if c == LITERAL_TRUE:
        return c if scan_literal(s, b"true", b"in literal true") else 0
    if c == LITERAL_FALSE:
        return c if scan_literal(s, b"false", b"in literal false") else 0
    if c == LITERAL_NULL:
        return c if scan_literal(s, b"null", b"in literal null") else 0
    bad(s, VALUE)
    return 0


cdef bint scan_key(Scan *s) noexcept nogil:
    """Scan a member's name and the colon, up to its value."""
    cdef bint escaped
    if peek(s) != STRING:
        return bad(s, KEY)
    if not scan_string(s):
        return False
    escaped = s.escaped
    skip_blanks(s)
    if peek(s) != c':':
        return bad(s, b"after object key")
    s.at += 1
    skip_blanks(s)
    s.escaped = escaped
    return True


cdef int scan_value(Scan *s) noexcept nogil:
    """Scan a value of any kind, from its first character to after its last; return its kind, 0 for an error."""
    cdef uint8_t[NESTED] nested            # a bit for each level: set for an object, clear for an array
    cdef uint32_t depth = 0
    cdef int c, kind = peek(s)
    cdef bint object
    while True:
        c = peek(s)
        if c == OBJECT or c == ARRAY:
            if depth + 1 >= MAX_DEPTH:   # the object that contains this value counts
                s.err.kind = JSON_SYNTAX
                s.err.what = b"exceeded max depth"
                s.err.byte = 0
                return 0
            if c == OBJECT:
                nested[depth >> 3] |= <uint8_t> (1 << (depth & 7))
            else:
                nested[depth >> 3] &= <uint8_t> ~(1 << (depth & 7))
            depth += 1
            s.at += 1
            skip_blanks(s)
            if peek(s) != (c'}' if c == OBJECT else c']'):
                if c == OBJECT and not scan_key(s):
                    return 0
                continue
        else:
            c = scan_scalar(s)
            if c == 0:
                return 0
            if depth == 0:
                return c
            skip_blanks(s)
        # After a value, or in an empty object or array.
        while True:
            object = nested[(depth - 1) >> 3] >> ((depth - 1) & 7) & 1
            c = peek(s)
            if c == (c'}' if object else c']'):
                s.at += 1
                depth -= 1
                if depth == 0:
                    return kind
                skip_blanks(s)
                continue
            if c != c',':
                if object:
                    bad(s, b"after object key:value pair")
                else:
                    bad(s, b"after array element")
                return 0
            s.at += 1
            skip_blanks(s)
            if object and not scan_key(s):
                return 0
            break


# -- values ------------------------------------------------------------------------------------------------------------

cdef const JsonField *find_field(
    const JsonField *fields, size_t n, const char *name, size_t name_n, bint escaped
) noexcept nogil:
    cdef char[3 * NAME_ROOM] plain
    cdef size_t i, k
    cdef int c
    if name_n > NAME_ROOM:
        return NULL
    if escaped:
        name_n = json_unescape(name, name_n, plain)
        name = plain
    for i in range(n):
        for k in range(name_n):
            c = name[k]
            if c'A' <= c <= c'Z':
                c |= 32
            if c == 0 or c != fields[i].name[k]:
                break
        else:
            if fields[i].name[name_n] == 0:
                return &fields[i]
    return NULL


cdef bint wrong_type(JsonError *err, const JsonField *f, const char *value, const char *p, size_t n) noexcept nogil:
    """Note a wrong type, unless there is an error already."""
    if err.kind == JSON_OK:
        err.kind = JSON_TYPE
        err.field = f.name
        err.value = value
        err.p = p
        err.n = n
        if f.type == JSON_INT:
            err.what = b"int"
        elif f.type == JSON_INT64:
            err.what = b"int64"
        elif f.type == JSON_DURATION:
            err.what = b"time.Duration"
        elif f.type == JSON_UINT:
            err.what = b"uint64"
        elif f.type == JSON_BOOL:
            err.what = b"bool"
        else:
            err.what = b"string"
            if f.type == JSON_STRINGS and p == NULL:
                err.what = b"[]string"
    return False


cdef bint read_integer(const char *p, size_t n, bint signed_, JsonValue *v) noexcept nogil:
    cdef uint64_t u = 0, most = <uint64_t> -1
    cdef bint negative = n > 0 and p[0] == c'-'
    cdef size_t i
    cdef uint32_t digit
    if negative and not signed_:
        return False
    if signed_:
        most = <uint64_t> 1 << 63 if negative else (<uint64_t> 1 << 63) - 1
    for i in range(negative, n):
        if not c'0' <= p[i] <= c'9':
            return False
        digit = p[i] - c'0'
        if u > (most - digit) // 10:
            return False
        u = u * 10 + digit
    if signed_:
        v.i = <int64_t> (0 - u if negative else u)
    else:
        v.u = u
    return True


cdef bint take(Scan *s, const JsonField *f, JsonValue *v, int kind, size_t start) noexcept nogil:
    """Convert the value of kind `kind` at text[start:s.at] to the field's type."""
    cdef const char *p = s.p + start
    cdef size_t n = s.at - start, at = 0
    cdef JsonValue item, list
    if kind == LITERAL_NULL:
        return True
    if kind == STRING and f.type == JSON_STRING:
        v.p = p + 1
        v.n = n - 2
    elif kind == NUMBER and (
        f.type == JSON_INT or f.type == JSON_DURATION or f.type == JSON_UINT or f.type == JSON_INT64
    ):
        if not read_integer(p, n, f.type != JSON_UINT, v):
            return wrong_type(s.err, f, b"number", p, n)
    elif (kind == LITERAL_TRUE or kind == LITERAL_FALSE) and f.type == JSON_BOOL:
        v.i = kind == LITERAL_TRUE
    elif kind == ARRAY and f.type == JSON_STRINGS:
        list.p = p + 1
        list.n = n - 2
        while json_next(&list, &at, &item):
            if not item.set:
                return wrong_type(s.err, f, b"value", list.p, 0)
        v.p = list.p
        v.n = list.n
    elif kind == NUMBER:
        return wrong_type(s.err, f, b"number", NULL, 0)
    elif kind == STRING:
        return wrong_type(s.err, f, b"string", NULL, 0)
    elif kind == OBJECT:
        return wrong_type(s.err, f, b"object", NULL, 0)
    elif kind == ARRAY:
        return wrong_type(s.err, f, b"array", NULL, 0)
    else:
        return wrong_type(s.err, f, b"bool", NULL, 0)
    v.set = 1
    return True


cdef int json_object(
    const char *text, size_t n, const JsonField *fields, size_t nfields, JsonValue *values, JsonError *err
) noexcept nogil:
    cdef Scan s
    cdef const JsonField *f
    cdef size_t start
    cdef int kind
    memset(values, 0, nfields * sizeof(JsonValue))
    memset(err, 0, sizeof(JsonError))
    s.p = text
    s.n = n
    s.at = 0
    s.err = err
    skip_blanks(&s)
    if peek(&s) != OBJECT:
        bad(&s, VALUE)
        return JSON_SYNTAX
    s.at += 1
    skip_blanks(&s)
    if peek(&s) == c'}':
        s.at += 1
    else:
        while True:
            start = s.at
            if not scan_key(&s):
                return JSON_SYNTAX
            f = find_field(fields, nfields, text + start + 1, key_length(text, start), s.escaped)
            start = s.at
            kind = scan_value(&s)
            if kind == 0:
                return JSON_SYNTAX
            if f != NULL:
                take(&s, f, &values[f - fields], kind, start)
            skip_blanks(&s)
            if peek(&s) == c'}':
                s.at += 1
                break
            if peek(&s) != c',':
                bad(&s, b"after object key:value pair")
                return JSON_SYNTAX
            s.at += 1
            skip_blanks(&s)
    skip_blanks(&s)
    if s.at < n:
        bad(&s, b"after top-level value")
        return JSON_SYNTAX
    return err.kind


cdef size_t key_length(const char *text, size_t start) noexcept nogil:
    """Return the length between the quotes of the well-formed string whose quote is at `start`."""
    cdef size_t at = start + 1
    while text[at] != c'"':
        at += 2 if text[at] == c'\\' else 1
    return at - start - 1


cdef bint json_next(const JsonValue *strings, size_t *at, JsonValue *item) noexcept nogil:
    cdef Scan s
    cdef JsonError unused
    cdef size_t start
    cdef int kind
    s.p = strings.p
    s.n = strings.n
    s.at = at[0]
    s.err = &unused
    skip_blanks(&s)
    if s.at < s.n and s.p[s.at] == c',':
        s.at += 1
        skip_blanks(&s)
    if s.at >= s.n:
        return False
    start = s.at
    kind = scan_value(&s)
    at[0] = s.at
    item.p = s.p + start + 1
    item.n = s.at - start - 2
    item.set = kind == STRING
    if kind == LITERAL_NULL:   # Go reads null as an empty string
        item.set = 1
        item.n = 0
    return kind != 0


cdef int json_member(const char *text, size_t n, size_t *at, JsonValue *key, JsonValue *value) noexcept nogil:
    cdef Scan s
    cdef JsonError unused
    cdef size_t start
    cdef int kind
    cdef bint first = at[0] == 0
    s.p = text
    s.n = n
    s.at = at[0]
    s.err = &unused
    skip_blanks(&s)
    if first:
        if peek(&s) != OBJECT:
            return JSON_SYNTAX
        s.at += 1
        skip_blanks(&s)
    if peek(&s) == c'}':
        s.at += 1
        skip_blanks(&s)
        return JSON_OK if s.at == n else JSON_SYNTAX
    if not first:
        if peek(&s) != c',':
            return JSON_SYNTAX
        s.at += 1
        skip_blanks(&s)
    start = s.at
    if not scan_key(&s):
        return JSON_SYNTAX
    key.p = text + start + 1
    key.n = key_length(text, start)
    start = s.at
    kind = scan_value(&s)
    if kind == 0:
        return JSON_SYNTAX
    at[0] = s.at
    value.set = kind != LITERAL_NULL
    value.i = text[start]
    value.p = text + start + (1 if kind == STRING else 0)
    value.n = s.at - start - (2 if kind == STRING else 0)
    return JSON_MORE


cdef size_t put_rune(uint32_t r, char *out) noexcept nogil:
    if r < 0x80:
        out[0] = <char> r
        return 1
    if r < 0x800:
        out[0] = <char> (0xC0 | r >> 6)
        out[1] = <char> (0x80 | (r & 63))
        return 2
    if r < 0x10000:
        out[0] = <char> (0xE0 | r >> 12)
        out[1] = <char> (0x80 | (r >> 6 & 63))
        out[2] = <char> (0x80 | (r & 63))
        return 3
    out[0] = <char> (0xF0 | r >> 18)
    out[1] = <char> (0x80 | (r >> 12 & 63))
    out[2] = <char> (0x80 | (r >> 6 & 63))
    out[3] = <char> (0x80 | (r & 63))
    return 4


cdef size_t rune_length(const uint8_t *p, size_t n) noexcept nogil:
    """Return the length of the UTF-8 sequence at p, 0 when it is invalid."""
    cdef uint8_t c = p[0], least = 0x80, most = 0xBF
    cdef size_t i, size
    if c < 0x80:
        return 1
    if 0xC2 <= c <= 0xDF:
        size = 2
    elif 0xE0 <= c <= 0xEF:
        size = 3
        if c == 0xE0:
            least = 0xA0
        elif c == 0xED:
            most = 0x9F
    elif 0xF0 <= c <= 0xF4:
        size = 4
        if c == 0xF0:
            least = 0x90
        elif c == 0xF4:
            most = 0x8F
    else:
        return 0
    if n < size or not least <= p[1] <= most:
        return 0
    for i in range(2, size):
        if not 0x80 <= p[i] <= 0xBF:
            return 0
    return size


cdef uint32_t escaped_unit(const char *p) noexcept nogil:
    """Decode the four digits of a \\u escape."""
    cdef uint32_t r = 0
    cdef int i
    for i in range(4):
        r = r << 4 | <uint32_t> hex_digit(<uint8_t> p[i])
    return r


cdef size_t json_unescape(const char *p, size_t n, char *out) noexcept nogil:
    cdef size_t i = 0, k, o = 0
    cdef uint32_t r, low
    cdef char c
    while i < n:
        if p[i] != c'\\':
            k = rune_length(<const uint8_t *> p + i, n - i)
            if k == 0:
                o += put_rune(0xFFFD, out + o)
                i += 1
            else:
                memcpy(out + o, p + i, k)
                o += k
                i += k
            continue
        c = p[i + 1]
        i += 2
        if c == c'u':
            r = escaped_unit(p + i)
            i += 4
            if 0xD800 <= r < 0xE000:
                low = escaped_unit(p + i + 2) if i + 6 <= n and p[i] == c'\\' and p[i + 1] == c'u' else 0
                if r < 0xDC00 and 0xDC00 <= low < 0xE000:
                    r = 0x10000 + ((r - 0xD800) << 10 | (low - 0xDC00))
                    i += 6
                else:
                    r = 0xFFFD
            o += put_rune(r, out + o)
            continue
        if c == c'b':
            c = 8
        elif c == c'f':
            c = 12
        elif c == c'n':
            c = 10
        elif c == c'r':
            c = 13
        elif c == c't':
            c = 9
        out[o] = c
        o += 1
    return o


# -- errors ------------------------------------------------------------------------------------------------------------

cdef size_t quote_char(const char *rune, size_t n, uint8_t c, char *out) noexcept nogil:
    """Quote as strconv.Quote does, in single quotes: the rune of n bytes that begins with c, or byte c if n is 0."""
    cdef const char *special = b"abtnvfr"
    cdef char *p = out
    p[0] = c"'"
    p += 1
    if c == c"'" or c == c'\\':
        p[0] = c'\\'
        p[1] = c
        p += 2
    elif 7 <= c <= 13:
        p[0] = c'\\'
        p[1] = special[c - 7]
        p += 2
    elif c < 32 or c == 127 or n == 0:
        p += snprintf(p, 8, b"\\x%02x", c)
    elif c == 0xC2 and (<uint8_t> rune[1] <= 0xA0 or <uint8_t> rune[1] == 0xAD):
        p += snprintf(p, 8, b"\\u%04x", <uint8_t> rune[1])
    else:
        memcpy(p, rune, n)
        p += n
    p[0] = c"'"
    return p + 1 - out


cdef size_t json_error_text(const JsonError *err, const char *of, char *out) noexcept nogil:
    cdef char[16] shown
    cdef const char *between = b""
    cdef const char *number = b""
    cdef int n, number_n = <int> min(err.n, <size_t> 64)
    if err.kind == JSON_TYPE:
        if err.n:
            between = b" "
            number = err.p
        n = snprintf(
            out, JSON_ERROR_ROOM, b"json: cannot unmarshal %s%s%.*s into Go struct field %s.%s of type %s",
            err.value, between, number_n, number, of, err.field, err.what)
    elif err.what == NULL:
        n = snprintf(out, JSON_ERROR_ROOM, b"unexpected end of JSON input")
    elif err.byte == 0 and err.what[0] == c'e':
        n = snprintf(out, JSON_ERROR_ROOM, b"%s", err.what)
    else:
        shown[quote_char(err.p, err.n, err.byte, shown)] = 0
        if err.expected:
            n = snprintf(
                out, JSON_ERROR_ROOM, b"invalid character %s %s (expecting '%c')", shown, err.what, <int> err.expected)
        else:
            n = snprintf(out, JSON_ERROR_ROOM, b"invalid character %s %s", shown, err.what)
    return strlen(out) if n >= 0 else 0


# -- for tests ---------------------------------------------------------------------------------------------------------

def read_object(bytes text not None, dict types not None, str of not None) -> tuple[dict, str]:
    """Decode a JSON object as Go decodes a struct `of` with members of these types; return (members, error).

    The types are "int", "duration", "uint", "bool", "string" and "strings". Members that are absent or null are left
    out; strings are bytes.
    """
    kinds = {"int": JSON_INT, "duration": JSON_DURATION, "uint": JSON_UINT, "bool": JSON_BOOL, "string": JSON_STRING,
             "strings": JSON_STRINGS}
    cdef list names = [name.encode() for name in types]
    cdef size_t n = len(names), i, at
    cdef JsonField *fields = <JsonField *> malloc((n + 1) * sizeof(JsonField))
    cdef JsonValue *values = <JsonValue *> malloc((n + 1) * sizeof(JsonValue))
    cdef JsonValue item
    cdef JsonError err
    cdef char[JSON_ERROR_ROOM] text_of_error
    cdef dict out = {}
    cdef str problem = ""
    cdef bytes struct_name = of.encode()
    try:
        if fields == NULL or values == NULL:
            raise MemoryError
        for i, name in enumerate(types):
            fields[i].name = PyBytes_AS_STRING(names[i])
            fields[i].type = kinds[types[name]]
        if json_object(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text), fields, n, values, &err) != JSON_OK:
            at = json_error_text(&err, PyBytes_AS_STRING(struct_name), text_of_error)
            problem = PyBytes_FromStringAndSize(text_of_error, at).decode(errors="replace")
        if err.kind != JSON_SYNTAX:
            for i, name in enumerate(types):
                if not values[i].set:
                    continue
                if fields[i].type == JSON_BOOL:
                    out[name] = bool(values[i].i)
                elif fields[i].type == JSON_UINT:
                    out[name] = values[i].u
                elif fields[i].type == JSON_STRING:
                    out[name] = unescaped(&values[i])
                elif fields[i].type == JSON_STRINGS:
                    out[name] = []
                    at = 0
                    while json_next(&values[i], &at, &item):
                        out[name].append(unescaped(&item))
                else:
                    out[name] = values[i].i
    finally:
        free(fields)
        free(values)
    return out, problem


cdef bytes unescaped(const JsonValue *v):
    cdef char *room = <char *> malloc(3 * v.n + 1)
    if room == NULL:
        raise MemoryError
    try:
        return PyBytes_FromStringAndSize(room, json_unescape(v.p, v.n, room))
    finally:
        free(room)
