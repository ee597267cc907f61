# cython: wraparound=True
"""Subject transforms; see transform.pxd."""
import re

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, strlen

from gnats.core.subjects.subject cimport (
    is_valid_literal_subject,
    token_end,
)

# ---- applying -----------------------------------------------------------------------------------------------


cdef struct Out:
    char *p
    size_t room
    size_t n     # bytes that put() was called with, also those that did not fit


cdef inline void put(Out *out, const char *p, size_t n) noexcept nogil:
    if out.n + n <= out.room:
        memcpy(out.p + out.n, p, n)
    out.n += n


cdef inline void put_dot(Out *out) noexcept nogil:
    put(out, b".", strlen(b"."))


cdef void put_number(Out *out, uint32_t number) noexcept nogil:
    cdef char[16] text
    put(out, text, snprintf(text, sizeof(text), b"%u", number))


cdef size_t nth_token(const char *subject, size_t n, uint32_t nth, size_t *size) noexcept nogil:
    """Return the start of a subject's token, and its length in size[0]; 0 for a token that it does not have."""
    cdef size_t start = 0, end = token_end(subject, n, 0)
    while nth > 0 and end < n:
        start = end + 1
        end = token_end(subject, n, start)
        nth -= 1
    size[0] = end - start if nth == 0 else 0
    return start


cdef inline uint32_t fnv1a(uint32_t h, const char *p, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(n):
        h = (h ^ <unsigned char> p[i]) * 16777619
    return h


cdef void put_slices(Out *out, const char *p, size_t n, size_t first, size_t size) noexcept nogil:
    """Write p[:first], then pieces of `size` bytes, separated by dots."""
    cdef size_t at = first, piece
    put(out, p, first)
    while at < n:
        if at > 0:
            put_dot(out)
        piece = size if size < n - at else n - at
        put(out, p + at, piece)
        at += piece


cdef size_t next_split(const char *p, size_t n, const char *delim, size_t dn) noexcept nogil:
    """Return the distance to the next delimiter, n without one. An empty delimiter stands between any two
    characters."""
    cdef size_t i
    if dn == 0:
        i = 1
        while i < n and (<unsigned char> p[i] & 0xC0) == 0x80:   # the rest of a UTF-8 sequence
            i += 1
        return i if i < n else n
    for i in range(n):
        if n - i < dn:
            break
        if memcmp(p + i, delim, dn) == 0:
            return i
    return n


cdef void put_split(Out *out, const char *p, size_t n, const char *delim, size_t dn) noexcept nogil:
    cdef size_t at = 0, end, follow
    cdef bint first = True
    while True:
        end = at + next_split(p + at, n - at, delim, dn)
        put(out, p + at, end - at)
        if end >= n:
            return
        follow = end + dn
        # A delimiter becomes a dot, unless it is at the beginning or another follows at once: no empty tokens.
        if not (first and end == at) and next_split(p + follow, n - follow, delim, dn) > 0:
            put_dot(out)
        first = False
        at = follow


cdef size_t transform_apply(
    const Transform *t, const char *subject, size_t n, uint64_t *rng, bint hashed, char *target, size_t room,
) noexcept nogil:
    cdef Out out
    cdef const Step *s
    cdef uint32_t i, k, h
    cdef size_t at, size, number
    cdef const char *p
    out.p = target
    out.room = room
    out.n = 0
    for i in range(t.nsteps):
        s = &t.steps[i]
        if s.kind == LITERAL_TOKEN:
            put(&out, <const char *> t + s.text, s.text_n)
        elif s.kind == PARTITION:
            h = 2166136261
            if s.count == 0:
                if hashed:
                    h = fnv1a(h, subject, n)
            else:
                for k in range(s.count):
                    at = nth_token(subject, n, t.indexes[s.first + k], &size)
                    h = fnv1a(h, subject + at, size)
            put_number(&out, h % <uint32_t> s.number if s.number else 0)
        elif s.kind == RANDOM:
            rng[0] ^= rng[0] << 13
            rng[0] ^= rng[0] >> 7
            rng[0] ^= rng[0] << 17
            h = <uint32_t> (rng[0] >> 33)
            number = -s.number if s.number < 0 else s.number
            put_number(&out, h % <uint32_t> number if number else 0)
        else:
            at = nth_token(subject, n, t.indexes[s.first], &size)
            p = subject + at
            number = s.number
            if s.kind == SPLIT:
                put_split(&out, p, size, <const char *> t + s.text, s.text_n)
            elif s.kind == WILDCARD or s.number <= 0 or number >= size:
                put(&out, p, size)
            elif s.kind == SPLIT_FROM_LEFT:
                put_slices(&out, p, size, number, size)
            elif s.kind == SPLIT_FROM_RIGHT:
                put_slices(&out, p, size, size - number, size)
            elif s.kind == SLICE_FROM_LEFT:
                put_slices(&out, p, size, 0, number)
            elif s.kind == SLICE_FROM_RIGHT:
                put_slices(&out, p, size, size % number, number)
            elif s.kind == LEFT:
                put(&out, p, number)
            else:
                put(&out, p + size - number, number)
        if i + 1 < t.nsteps or t.tail:
            put_dot(&out)
    if t.tail:
        at = nth_token(subject, n, t.src_tokens - 1, &size)
        put(&out, subject + at, n - at if size else 0)
    return out.n


cdef Transform *transform_copy(const Transform *t) noexcept nogil:
    cdef Transform *copy = <Transform *> malloc(t.nbytes)
    if copy != NULL:
        memcpy(copy, t, t.nbytes)
        copy.steps = <Step *> (copy + 1)
        copy.indexes = <uint32_t *> (copy.steps + copy.nsteps)
    return copy


# ---- compiling ----------------------------------------------------------------------------------------------

cdef str INVALID = "invalid mapping destination"
NOT_ALL_WILDCARDS = f"{INVALID}: not using all of the token wildcard(s)"
UNKNOWN_FUNCTION = f"{INVALID}: unknown function"
OUT_OF_RANGE = f"{INVALID}: wildcard index out of range"
NOT_ENOUGH_ARGS = f"{INVALID}: not enough arguments passed to the function"
INVALID_ARG = f"{INVALID}: function argument is invalid or in the wrong format"
TOO_MANY_ARGS = f"{INVALID}: too many arguments passed to the function"
NOT_FOR_IMPORT = f"{INVALID}: the only mapping function allowed for import transforms is {{{{Wildcard()}}}}"
INVALID_TRANSFORM = f"{INVALID}: invalid transform"
INVALID_SUBJECT = "invalid subject"


def _pattern(bytes name):
    return re.compile(rb"\{\{[\t\n\f\r ]*" + name + rb"[\t\n\f\r ]*\((.*)\)[\t\n\f\r ]*\}\}")


_WILDCARD = _pattern(b"[wW]ildcard")
_PARTITION = _pattern(b"[pP]artition")
_SPLIT = _pattern(b"[sS]plit")
_RANDOM = _pattern(b"[rR]andom")
# Tried in this order. It matters, since the names are not anchored.
_INDEX_AND_NUMBER = (
    (_pattern(b"[sS]plit[fF]rom[lL]eft"), SPLIT_FROM_LEFT),
    (_pattern(b"[sS]plit[fF]rom[rR]ight"), SPLIT_FROM_RIGHT),
    (_pattern(b"[sS]lice[fF]rom[lL]eft"), SLICE_FROM_LEFT),
    (_pattern(b"[sS]lice[fF]rom[rR]ight"), SLICE_FROM_RIGHT),
    (_pattern(b"[rR]ight"), RIGHT),
    (_pattern(b"[lL]eft"), LEFT),
)
# Functions that an account's mapping may use: left and right are for streams only.
_MAPPING_FUNCTIONS = (
    _PARTITION, _WILDCARD, _SPLIT, _RANDOM, *(pattern for pattern, _ in _INDEX_AND_NUMBER[:4]),
)
_COMMA = re.compile(rb",[\t\n\f\r ]*")
_NUMBER = re.compile(rb"[+-]?[0-9]+")
MAX_DIGITS = 20    # of 2^64 - 1, without leading zeros; int() refuses thousands of them


cdef bytes as_bytes(subject):
    return subject.encode("utf-8", "surrogateescape") if isinstance(subject, str) else bytes(subject)


cdef str text_of(bytes token):
    return token.decode("utf-8", "replace")


def _error(str reason, bytes token):
    return ValueError(f"{reason} in {text_of(token)}" if token else reason)


def _number(bytes text, bits=64):
    """Parse an integer as Go's strconv does; None when it is none."""
    if not _NUMBER.fullmatch(text):
        return None
    if len(text.lstrip(b"+-0")) > MAX_DIGITS:
        return None
    value = int(text)
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else None


def _arguments(pattern, bytes token):
    found = pattern.search(token)
    return _COMMA.split(found[1]) if found else None


def _argument(bytes token, bytes text, bits=64):
    value = _number(text.strip(b" "), bits)
    if value is None:
        raise _error(INVALID_ARG, token)
    return value


def _buckets(bytes token, bytes text):
    value = _argument(token, text)
    if value >= 1 << 31:
        raise _error(INVALID_ARG, token)
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


cdef bint is_function(bytes token):
    return len(token) > 4 and token.startswith(b"{{") and token.endswith(b"}}")


def index_place_holders(bytes token) -> tuple:
    """Parse a token of a destination: (kind, numbers of the wildcards that it uses, number, delimiter).

    Raises ValueError.
    """
    if len(token) > 1 and token.startswith(b"$"):
        number = _number(token[1:])
        return (LITERAL_TOKEN, (), -1, b"") if number is None else (WILDCARD, (number,), -1, b"")
    if not is_function(token):
        return LITERAL_TOKEN, (), -1, b""
    args = _arguments(_WILDCARD, token)
    if args is not None:
        if args == [b""]:
            raise _error(NOT_ENOUGH_ARGS, token)
        if len(args) > 1:
            raise _error(TOO_MANY_ARGS, token)
        return WILDCARD, (_argument(token, args[0]),), -1, b""
    args = _arguments(_PARTITION, token)
    if args is not None:
        buckets = _buckets(token, args[0])
        return PARTITION, tuple([_argument(token, arg) for arg in args[1:]]), buckets, b""
    for pattern, kind in _INDEX_AND_NUMBER:
        args = _arguments(pattern, token)
        if args is not None:
            _two(token, args)
            return kind, (_argument(token, args[0]),), _argument(token, args[1], 32), b""
    args = _arguments(_SPLIT, token)
    if args is not None:
        _two(token, args)
        index = _argument(token, args[0])
        if b" " in args[1] or b"." in args[1]:
            raise _error(INVALID_ARG, token)
        return SPLIT, (index,), -1, args[1]
    args = _arguments(_RANDOM, token)
    if args is not None:
        if len(args) != 1:
            raise _error(NOT_ENOUGH_ARGS, token)
        return RANDOM, (), _buckets(token, args[0]), b""
    raise _error(UNKNOWN_FUNCTION, token)


def _two(bytes token, list args):
    if len(args) != 2:
        raise _error(NOT_ENOUGH_ARGS if len(args) < 2 else TOO_MANY_ARGS, token)


def subject_info(bytes subject) -> tuple | None:
    """Split a subject: (tokens, number of `*`, whether the last is `>`); None for an invalid one."""
    tokens = subject.split(b".")
    if b"" in tokens or b">" in tokens[:-1]:
        return None
    return tokens, tokens.count(b"*"), tokens[-1] == b">"


def transform_tokenize(subject) -> bytes:
    """Turn a subject with wildcards into a destination: foo.*.* becomes foo.$1.$2."""
    out, wildcards = [], 0
    for token in as_bytes(subject).split(b"."):
        if token == b"*":
            wildcards += 1
            token = b"$%d" % wildcards
        out.append(token)
    return b".".join(out)


def transform_untokenize(subject) -> tuple[bytes, list]:
    """Turn a destination into a subject with wildcards, and a list of its place holders: the inverse."""
    out, holders = [], []
    for token in as_bytes(subject).split(b"."):
        args = _arguments(_WILDCARD, token)
        if (len(token) > 1 and token[:1] == b"$" and b"1" <= token[1:2] <= b"9") or (
            args is not None and len(args) == 1 and args[0] != b""
        ):
            holders.append(token)
            token = b"*"
        out.append(token)
    return b".".join(out), holders


def validate_mapping(src, dest) -> None:
    """Raise ValueError, with nats-server's text, unless `dest` can be a mapping's destination for `src`."""
    cdef bytes target = as_bytes(dest)
    if not target:
        return
    full = False
    for token in target.split(b"."):
        if not token or full:
            raise _error(INVALID_TRANSFORM, token)
        if is_function(token):
            if not any([pattern.search(token) for pattern in _MAPPING_FUNCTIONS]):
                raise _error(UNKNOWN_FUNCTION, token)
        elif token == b">":
            full = True
        elif any([blank in token for blank in b"\t\n\f\r "]):
            raise ValueError(INVALID_TRANSFORM)
    SubjectTransform(src, target)


cdef uint64_t _rng = 0x9E3779B97F4A7C15


cdef class SubjectTransform:
    """A transform of subjects that match `src` into `dest`, in which $1 and {{functions}} stand for parts of them.

    An empty `src` is ">". `strict` is for imports, which must be reversible: only wildcards, and all of them. Subjects
    are bytes, or str that is encoded as UTF-8. Raises ValueError with nats-server's text.
    """

    def __cinit__(self, src, dest, *, bint strict=False):
        self.src = as_bytes(src) or b">"
        self.dest = as_bytes(dest)
        source = subject_info(self.src)
        target = subject_info(self.dest)
        if source is None or target is None or target[1] or source[2] != target[2]:
            raise ValueError(INVALID_SUBJECT)
        self.stoks = tuple(source[0])
        wildcards = [i for i, token in enumerate(self.stoks) if token == b"*"]
        steps = [self._step(token, wildcards, source[2], strict) for token in target[0]]
        if strict and sum([len(step[1]) for step in steps]) < len(wildcards):
            raise _error(NOT_ALL_WILDCARDS, self.dest)
        self.compiled = compile_steps(self.src, len(self.stoks), steps[:-1] if target[2] else steps, target[2])

    def __dealloc__(self):
        free(self.compiled)

    def _step(self, bytes token, list wildcards, bint full, bint strict):
        """Return (kind, source tokens, number, text) for a token of the destination."""
        kind, holders, number, text = index_place_holders(token)
        if kind == LITERAL_TOKEN:
            return kind, (), number, token
        if not wildcards and not full:
            if kind != RANDOM and kind != PARTITION:
                raise _error(OUT_OF_RANGE, token)
            return kind, (), number, text
        if strict and kind != WILDCARD:
            raise _error(NOT_FOR_IMPORT, token)
        for holder in holders:
            if holder > len(wildcards):
                raise _error(OUT_OF_RANGE, b"%b: [%d]" % (token, holder))
        # nats-server uses the subject's first token for a wildcard number below 1.
        return kind, tuple([wildcards[h - 1] if h > 0 else 0 for h in holders]), number, text

    def __repr__(self) -> str:
        return f"SubjectTransform({text_of(self.src)!r}, {text_of(self.dest)!r})"

    def match(self, subject) -> bytes | None:
        """Transform a literal subject; None when it does not match or is not valid."""
        cdef bytes s = as_bytes(subject)
        if self.src == b">" and self.dest == b">":
            return s
        if not is_valid_literal_subject(PyBytes_AS_STRING(s), PyBytes_GET_SIZE(s)):
            return None
        if not transform_matches(self.compiled, PyBytes_AS_STRING(s), PyBytes_GET_SIZE(s)):
            return None
        return self.transform_subject(s)

    def transform_subject(self, subject) -> bytes:
        """Transform a subject, without checking whether it matches."""
        cdef bytes s = as_bytes(subject)
        cdef bytes out
        cdef size_t n = 0, need = 256
        global _rng
        while True:
            n = need
            out = PyBytes_FromStringAndSize(NULL, n)
            need = transform_apply(
                self.compiled, PyBytes_AS_STRING(s), PyBytes_GET_SIZE(s), &_rng, True, PyBytes_AS_STRING(out), n)
            if need <= n:
                return out[:need]

    def reverse(self) -> SubjectTransform | None:
        """Return the inverse transform; None when there is none."""
        source, holders = transform_untokenize(self.dest)
        back = []
        for token in self.stoks:
            if token == b"*":
                if not holders:
                    return None
                token = holders.pop(0)
            back.append(token)
        try:
            return SubjectTransform(source, b".".join(back), strict=True)
        except ValueError:
            return None


cdef Transform *compile_steps(bytes src, uint32_t tokens, list steps, bint tail) except NULL:
    cdef list indexes = []
    cdef list texts = [src]
    cdef Transform *t
    cdef char *text
    cdef size_t nbytes
    cdef uint32_t i
    for _, places, _, chars in steps:
        indexes.extend(places)
        texts.append(chars)
    nbytes = (
        sizeof(Transform) + len(steps) * sizeof(Step) + len(indexes) * sizeof(uint32_t)
        + sum([len(chars) for chars in texts]))
    t = <Transform *> malloc(nbytes)
    if t == NULL:
        raise MemoryError
    t.nbytes = nbytes
    t.nsteps = len(steps)
    t.src_tokens = tokens
    t.tail = tail
    t.steps = <Step *> (t + 1)
    t.indexes = <uint32_t *> (t.steps + t.nsteps)
    text = <char *> (t.indexes + len(indexes))
    t.src_n = len(src)
    t.src = <uint32_t> (text - <char *> t)
    memcpy(text, PyBytes_AS_STRING(src), t.src_n)
    text += t.src_n
    for i, place in enumerate(indexes):
        t.indexes[i] = place
    place = 0
    for i, (kind, places, number, chars) in enumerate(steps):
        t.steps[i].kind = kind
        t.steps[i].number = <int32_t> <int64_t> number
        t.steps[i].first = place
        t.steps[i].count = len(places)
        t.steps[i].text = <uint32_t> (text - <char *> t)
        t.steps[i].text_n = len(chars)
        memcpy(text, PyBytes_AS_STRING(chars), len(chars))
        text += len(chars)
        place += len(places)
    return t
