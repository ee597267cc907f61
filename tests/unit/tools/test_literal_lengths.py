"""No code gives the length of a literal as a number: the compiler counts it (includes/text)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "cython_src" / "gnats"
LITERAL = r"""b(?:"(?:[^"\\]|\\.)+"|'(?:[^'\\]|\\.)+')"""
"""A literal of bytes that is not empty: an empty one has no bytes to count."""
COUNTED = re.compile(
    rf"{LITERAL} *, *\d+ *[,)]"  # f(b"text", 4)
    rf"|\b(?:str|mem)n?(?:case)?cmp\([^()]*{LITERAL}[^()]*, *\d+\)"  # memcmp(b"text", p, 4)
    rf"|\bn *[<>=!]=? *\d+ *(?:and|or) *(?:not )?\w*cmp\("  # n == 4 and memcmp(
)
LENGTH_OF = re.compile(rf"char \*(\w+) = (?:<[^>]*> *)?{LITERAL}")
CALLS = {
    "openat": "flags of the system",
    "unlinkat": "flags of the system",
    "mkdirat": "the mode of a directory",
    "getenv": "takes no length",
}
"""Functions that take a literal and a number that is not its length; the meaning of the number."""
DATA_PLANE = ("core", "jetstream", "store", "includes", "archive", "bench")


def counted(text: str) -> list[tuple[int, str]]:
    """Return the lines, with their numbers, that give a literal with a counted length."""
    return [
        (number, line.strip())
        for number, line in enumerate(text.splitlines(), 1)
        for code in [line.partition("  #")[0]]
        if COUNTED.search(code) and not any(f"{name}(" in code for name in CALLS)
    ]


def counted_names(text: str) -> list[str]:
    """Return the constants that repeat the length of a literal beside them: `DEST` and `DEST_N = 15`."""
    names = LENGTH_OF.findall(text)
    return [name for name in names if re.search(rf"^ +{name}(?:_N|_LEN|_SIZE) = \d+", text, re.MULTILINE)]


def test_no_length_of_a_literal_is_counted_by_hand() -> None:
    found = []
    for folder in DATA_PLANE:
        for path in sorted((SOURCES / folder).rglob("*.p[xy][xd]")):
            text = path.read_text()
            where = path.relative_to(SOURCES)
            found += [f"{where}:{number}: {line}" for number, line in counted(text)]
            found += [f"{where}: {name}" for name in counted_names(text)]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        'memcpy(p, b"NATS/1.0 ", 9)',
        'if n < 8 or memcmp(subject, b"$JS.ACK.", 8) != 0:',
        "return n == 4 and memcmp(p, word, 4) == 0",
        'send_ack(s, jp, reply, seq, b"}", 1)',
        r'put(p, b"\r\n", 2)',
        """put(p, b',"val":"', 8)""",
        'find_header(hdr, n, b"Nats-TTL", 8)',
    ],
)
def test_counted_lengths_are_found(line: str) -> None:
    assert counted(line) == [(1, line)]


@pytest.mark.parametrize(
    "line",
    [
        'put_text(p, b"NATS/1.0 ")',
        'publish_now(ps, self.stream, reply.p, reply.n, NULL, 0, b"", 0)',
        'unlinkat(s.env.dirfd, b"index.db", 0)',
        'snprintf(out, 35, b"%04d-%02u", year, month)',
    ],
)
def test_other_numbers_are_not_lengths(line: str) -> None:
    assert counted(line) == []


def test_a_constant_with_the_length_of_a_literal_is_found() -> None:
    assert counted_names('cdef const char *DEST = b"Nats-Trace-Dest"\ncdef enum:\n    DEST_N = 15\n') == [
        "DEST"
    ]
