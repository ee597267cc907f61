"""Parse JSON objects of small requests without Python: read the members with known names, skip the others.

The rules are those of encoding/json for a struct: names match in any case, the last of several members with one name
counts, null changes nothing, a syntax error is reported before a wrong type, and errors have Go's texts. Allocates
nothing. The time is linear in the text, which may nest 10000 deep, as in Go.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    # results
    JSON_OK = 0
    JSON_MORE = 1       # json_member only
    JSON_SYNTAX = -1
    JSON_TYPE = -2
    # types of fields, and the members of JsonValue that hold their values
    JSON_INT = 1        # i
    JSON_DURATION = 2   # i, ns; only the error text differs from JSON_INT
    JSON_UINT = 3       # u
    JSON_BOOL = 4       # i
    JSON_STRING = 5     # p[:n], between the quotes
    JSON_STRINGS = 6    # p[:n], between the brackets: for json_next
    JSON_INT64 = 7      # i; only the error text differs from JSON_INT
    JSON_ERROR_ROOM = 384


cdef struct JsonField:
    const char *name    # in lower case
    uint8_t type


cdef struct JsonValue:
    uint8_t set         # the member is present and not null
    int64_t i
    uint64_t u
    const char *p       # into the text
    size_t n


cdef struct JsonError:
    int kind            # JSON_SYNTAX or JSON_TYPE
    const char *what    # syntax error: Go's words for the place, NULL for an unexpected end; type error: the Go type
    uint8_t byte        # the character
    char expected       # the one expected there, 0 when there are several
    const char *field   # type error: the field's name
    const char *value   # type error: the kind of value found; "number" is followed by p[:n]
    const char *p
    size_t n


cdef inline void json_field(JsonField *field, const char *name, int type) noexcept:
    field.name = name
    field.type = <uint8_t> type


# Parse text[:n], an object, into values[:nfields], which are cleared first. Return JSON_OK, or an error described in
# `err`; after JSON_TYPE the members with right types are set.
cdef int json_object(const char *text, size_t n, const JsonField *fields, size_t nfields, JsonValue *values,
                     JsonError *err) noexcept nogil
# Write Go's text of the error, cut at JSON_ERROR_ROOM. Return its length. `of`: the name of the struct in Go, or "".
cdef size_t json_error_text(const JsonError *err, const char *of, char *out) noexcept nogil
# Get the next string of a JSON_STRINGS value into item[0], between the quotes. False at the end. at[0] starts at 0.
cdef bint json_next(const JsonValue *strings, size_t *at, JsonValue *item) noexcept nogil
# Get the next member of text[:n], an object. Return JSON_MORE with a member, JSON_OK at the end, or JSON_SYNTAX for
# anything but an object. key.p[:n] and a string value are between the quotes; another value is complete. value.i is the
# value's first character; value.set is 0 for null. at[0] starts at 0.
cdef int json_member(const char *text, size_t n, size_t *at, JsonValue *key, JsonValue *value) noexcept nogil
# Unescape the text between quotes. Return the number of bytes, 3 * n at most. Bytes that are not UTF-8 become U+FFFD.
cdef size_t json_unescape(const char *p, size_t n, char *out) noexcept nogil
