"""Subject transforms: nats-server's functions, its errors, and inverse transforms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.core.subjects.transform import (
    SubjectTransform,
    transform_tokenize,
    transform_untokenize,
    validate_mapping,
)

pytestmark = pytest.mark.timeout(60)

# source, destination, subject, result (None: the subject does not match)
CASES = [
    ("foo", "bar", "foo", "bar"),
    ("foo", "bar", "bar", None),
    ("foo.*", "bar.$1", "foo.x", "bar.x"),
    ("foo.*", "bar.$1", "foo.x.y", None),
    ("foo.*.*", "bar.$2.$1", "foo.a.b", "bar.b.a"),
    ("foo.*.*", "bar.{{wildcard(2)}}.{{ Wildcard( 1 ) }}", "foo.a.b", "bar.b.a"),
    ("foo.*.>", "bar.$1.x.>", "foo.a.b.c", "bar.a.x.b.c"),
    ("foo.>", "bar.>", "foo.a", "bar.a"),
    (">", "in.>", "a.b.c", "in.a.b.c"),
    ("", "in.>", "a", "in.a"),
    (">", ">", "a.b", "a.b"),
    ("foo.*", "$x.$1", "foo.a", "$x.a"),
    ("foo.*", "$1.$+1", "foo.a", "a.a"),
    ("foo.*", "$0", "foo.a", "foo"),
    ("foo.*", "foo.*", "foo.a", ValueError),
    ("*", "{{split(1,-)}}", "-abc-def--ghi-", "abc.def.ghi"),
    ("*", "{{split(1,--)}}", "a--b", "a.b"),
    ("*", "x.{{SplitFromLeft(1, 3)}}.y", "abcdef", "x.abc.def.y"),
    ("*", "{{splitFromLeft(1,9)}}", "abc", "abc"),
    ("*", "{{splitfromright(1,2)}}", "abcdef", "abcd.ef"),
    ("*", "{{sliceFromLeft(1,3)}}", "abcdefghij", "abc.def.ghi.j"),
    ("*", "{{sliceFromLeft(1,5)}}", "abcdefghij", "abcde.fghij"),
    ("*", "{{sliceFromRight(1,3)}}", "abcdefghij", "a.bcd.efg.hij"),
    ("*", "{{left(1,3)}}", "abcdef", "abc"),
    ("*", "{{Right(1,3)}}", "abcdef", "def"),
    ("*", "{{right(1,30)}}", "abcdef", "abcdef"),
    ("*", "{{random(1)}}", "a", "0"),
    ("*", "{{partition(0,1)}}", "a", "0"),
    ("foo.*", "foo.*", "foo..", ValueError),
    ("foo.*", "bar.$1", "foo.", None),
    ("foo.*", "bar.$1", "foo.*", None),
]


@pytest.mark.parametrize(("src", "dest", "subject", "expected"), CASES)
def test_a_subject_becomes(
    src: str, dest: str, subject: str, expected: str | type[ValueError] | None
) -> None:
    if expected is ValueError:
        with pytest.raises(ValueError, match="invalid subject"):
            SubjectTransform(src, dest)
        return
    assert SubjectTransform(src, dest).match(subject) == (expected.encode() if expected else None)


INVALID = "invalid mapping destination"
ERRORS = [
    ("foo", "bar.*", "invalid subject"),
    ("foo.>", "bar", "invalid subject"),
    ("foo..x", "bar", "invalid subject"),
    ("foo", "bar.$1", f"{INVALID}: wildcard index out of range in $1"),
    ("foo.*", "bar.$2", f"{INVALID}: wildcard index out of range in $2: [2]"),
    ("foo.*", "bar.{{wildcard(2)}}", f"{INVALID}: wildcard index out of range in {{{{wildcard(2)}}}}: [2]"),
    ("foo.*", "{{unknown(1)}}", f"{INVALID}: unknown function in {{{{unknown(1)}}}}"),
    (
        "foo.*",
        "{{wildcard()}}",
        f"{INVALID}: not enough arguments passed to the function in {{{{wildcard()}}}}",
    ),
    (
        "foo.*",
        "{{wildcard(1,2)}}",
        f"{INVALID}: too many arguments passed to the function in {{{{wildcard(1,2)}}}}",
    ),
    ("foo.*", "{{left(1)}}", f"{INVALID}: not enough arguments passed to the function in {{{{left(1)}}}}"),
    (
        "foo.*",
        "{{split(1,a,b)}}",
        f"{INVALID}: too many arguments passed to the function in {{{{split(1,a,b)}}}}",
    ),
    (
        "foo.*",
        "{{wildcard(x)}}",
        f"{INVALID}: function argument is invalid or in the wrong format in {{{{wildcard(x)}}}}",
    ),
    (
        "foo.*",
        "{{partition(2147483648,1)}}",
        f"{INVALID}: function argument is invalid or in the wrong format in {{{{partition(2147483648,1)}}}}",
    ),
]


@pytest.mark.parametrize(("src", "dest", "error"), ERRORS)
def test_a_bad_destination_is_refused(src: str, dest: str, error: str) -> None:
    with pytest.raises(ValueError, match="invalid") as caught:
        SubjectTransform(src, dest)
    assert str(caught.value) == error


def test_imports_use_all_wildcards_and_nothing_else() -> None:
    with pytest.raises(ValueError, match="only mapping function allowed for import"):
        SubjectTransform("a.*", "b.{{left(1,1)}}", strict=True)
    with pytest.raises(ValueError, match=r"not using all of the token wildcard\(s\) in b\.\$1"):
        SubjectTransform("a.*.*", "b.$1", strict=True)


def test_mappings_have_no_left_and_right() -> None:
    validate_mapping("a.*", "b.{{split(1,-)}}")
    with pytest.raises(ValueError, match="unknown function"):
        validate_mapping("a.*", "b.{{left(1,2)}}")
    with pytest.raises(ValueError, match="invalid transform"):
        validate_mapping("a.*", "b..$1")


def fnv1a(data: bytes) -> int:
    value = 2166136261
    for byte in data:
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


TOKEN = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=12)


@given(st.lists(TOKEN, min_size=3, max_size=3), st.integers(1, 1000))
def test_a_partition_is_the_hash_of_its_tokens(tokens: list[str], buckets: int) -> None:
    a, b, c = tokens
    transform = SubjectTransform("*.*.*", f"p.{{{{partition({buckets},3,1)}}}}.{{{{partition({buckets})}}}}")
    chosen, whole = fnv1a((c + a).encode()) % buckets, fnv1a(f"{a}.{b}.{c}".encode()) % buckets
    assert transform.match(f"{a}.{b}.{c}") == f"p.{chosen}.{whole}".encode()


@given(st.integers(1, 50), st.integers(0, 2**31))
def test_random_stays_below_its_limit(limit: int, _: int) -> None:
    drawn = SubjectTransform("a", f"b.{{{{random({limit})}}}}").match("a")
    assert drawn is not None
    assert 0 <= int(drawn[2:]) < limit


@given(TOKEN, st.integers(1, 14))
def test_slices_lose_nothing(token: str, size: int) -> None:
    for name in ("sliceFromLeft", "sliceFromRight", "splitFromLeft", "splitFromRight"):
        out = SubjectTransform("*", f"{{{{{name}(1,{size})}}}}").match(token)
        assert out is not None
        parts = out.decode().split(".")
        assert "".join(parts) == token
        assert all(parts)
        if name.startswith("slice"):
            assert all(len(part) <= size for part in parts) or size >= len(token)


@given(st.text("ab-", min_size=1, max_size=12), st.sampled_from(["-", "--", "a"]))
def test_a_split_has_no_empty_tokens(token: str, delimiter: str) -> None:
    out = SubjectTransform("*", f"{{{{split(1,{delimiter})}}}}").match(token)
    assert out is not None
    parts = token.split(delimiter)
    joined = ".".join(part for part in parts if part)
    # nats-server treats several delimiters at the beginning in its own way.
    assert out.decode() == ("." + joined if joined and parts[:2] == ["", ""] else joined)


@given(st.permutations(["$1", "$2"]), st.lists(TOKEN, min_size=2, max_size=2))
def test_there_is_a_way_back(holders: list[str], tokens: list[str]) -> None:
    transform = SubjectTransform("in.*.x.*", f"out.{holders[0]}.{holders[1]}", strict=True)
    back = transform.reverse()
    assert back is not None
    subject = f"in.{tokens[0]}.x.{tokens[1]}".encode()
    mapped = transform.match(subject)
    assert mapped is not None
    assert back.match(mapped) == subject


@given(st.lists(st.one_of(TOKEN, st.just("*")), min_size=1, max_size=6))
def test_place_holders_stand_for_wildcards(tokens: list[str]) -> None:
    subject = ".".join(tokens)
    dest = transform_tokenize(subject)
    assert transform_untokenize(dest) == (
        subject.encode(),
        [b"$%d" % (i + 1) for i in range(tokens.count("*"))],
    )


def test_long_results_are_whole() -> None:
    token = "x" * 3000
    assert SubjectTransform("*", "{{sliceFromLeft(1,1)}}").match(token) == b".".join([b"x"] * 3000)
