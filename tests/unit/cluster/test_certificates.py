"""Routes whose certificates stand in the place of a login."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from support.certs import Certificates

from gnats.cluster.certificates import Wanted, check_certificate, is_known
from gnats.go.url import parse_url
from gnats.options.values.tls import TLSOptions

pytestmark = pytest.mark.timeout(60)

MAP = TLSOptions(verify_and_map=True)
KNOWN = TLSOptions(check_known_urls=True)
ROUTES = (parse_url("r://10.0.0.1:1"), parse_url("r://A.example:1"))


@pytest.fixture(scope="module")
def der(certs: Certificates) -> bytes:
    """A certificate with all kinds of names."""
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "example"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "o"),
            x509.NameAttribute(NameOID.COMMON_NAME, "c"),
        ]
    )
    more = (x509.RFC822Name("a@mail.example"), x509.UniformResourceIdentifier("x://uri"))
    made = certs.make("names", issuer=certs.ca, names=("a.example", "b"), more=more, subject=subject)
    return made.der


USERS = {
    "a@mail.example": "Using email found in cert for auth",
    "a.example": "Using SAN found in cert for auth",
    "b": "Using SAN found in cert for auth",
    "x://uri": "Using URI found in cert for auth",
    "CN=c,O=o": "Using certificate subject for auth",
    "CN=c,O=o,DC=example": "Using RDNSequence for auth",
}


@pytest.mark.parametrize("user", USERS)
def test_the_user_is_a_name(der: bytes, user: str) -> None:
    good, why = check_certificate(der, Wanted(user, "", MAP, ()))
    assert (good, why) == (True, f'{USERS[user]} ["{user}"]')


@pytest.mark.parametrize("user", ["", "c", "10.0.0.1", "O=o,CN=c"])
def test_another_user(der: bytes, user: str) -> None:
    """As in nats-server, a subject in another order is another one."""
    good, why = check_certificate(der, Wanted(user, "", MAP, ()))
    assert (good, why) == (False, 'User in cert ["CN=c,O=o"], not found')


def test_a_host_of_the_routes(der: bytes) -> None:
    assert check_certificate(der, Wanted("", "", KNOWN, ROUTES))[0]
    assert not check_certificate(der, Wanted("", "", KNOWN, ROUTES[:1]))[0]
    assert not check_certificate(der, Wanted("b", "", KNOWN, ROUTES[:1]))[0]


def test_no_certificate() -> None:
    wanted = Wanted("", "", MAP, ())
    assert check_certificate(None, wanted) == (
        False,
        "User required in cert, no peer certificates found",
    )
    assert check_certificate(b"x", wanted)[1].startswith("User required in cert, which cannot be read")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.example", True),
        ("A.EXAMPLE", True),
        ("*.example", True),
        ("*.a.example", False),
        ("*", False),
        ("a.*", False),
        ("example", False),
        ("*.0.0.1", True),
    ],
)
def test_known_hosts(name: str, expected: bool) -> None:
    """As in nats-server, where an address is a host with labels."""
    assert is_known(name, ROUTES) is expected
