"""Distinguished names as text."""

import pytest

from gnats.tls.names import DN, parse_dn, same_dn, same_rdns

pytestmark = pytest.mark.timeout(60)

GOOD: dict[str, DN] = {
    "": [],
    "CN=a": [[("CN", "a")]],
    "cn=a": [[("CN", "a")]],
    "CN=a,O=b": [[("CN", "a")], [("O", "b")]],
    " CN = a , O = b ": [[("CN", "a")], [("O", "b")]],
    "CN=a b,O=c": [[("CN", "a b")], [("O", "c")]],
    "CN=a+OU=b,O=c": [[("CN", "a"), ("OU", "b")], [("O", "c")]],
    "CN=a\\,b": [[("CN", "a,b")]],
    "CN=a\\2Cb": [[("CN", "a,b")]],
    "CN=\\C3\\A9": [[("CN", "é")]],
    "CN=é": [[("CN", "é")]],
    "CN=a\\ ": [[("CN", "a ")]],
    "CN=\\ a": [[("CN", " a")]],
    "CN=a=b": [[("CN", "a=b")]],
    "CN=,O=b": [[("CN", "")], [("O", "b")]],
}


@pytest.mark.parametrize("text", GOOD)
def test_a_name_is_its_rdns(text: str) -> None:
    assert parse_dn(text) == GOOD[text]


@pytest.mark.parametrize("text", ["a", "a,CN=b", "CN=a,b", "CN=a\\", "CN=a\\x", "CN=a\\4", "CN=#04"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_dn(text)


@pytest.mark.parametrize(
    ("one", "other", "same", "same_in_any_order"),
    [
        ("CN=a,O=b", "cn=a, o=b", True, True),
        ("CN=a,O=b", "O=b,CN=a", False, True),
        ("CN=a+OU=c,O=b", "OU=c+CN=a,O=b", True, True),
        ("CN=a,O=b", "CN=A,O=b", False, False),
        ("CN=a,O=b", "CN=a", False, False),
        ("CN=a,CN=a", "CN=a", False, False),
        ("CN=a,OU=c,O=b", "CN=a+OU=c,O=b", False, False),
    ],
)
def test_names_are_compared(one: str, other: str, same: bool, same_in_any_order: bool) -> None:
    assert same_dn(parse_dn(one), parse_dn(other)) is same
    assert same_rdns(parse_dn(one), parse_dn(other)) is same_in_any_order
