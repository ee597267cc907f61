"""Finding the user of a client certificate (verify_and_map)."""

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from support.certs import Certificates

from gnats.tls.certmap import find_user
from gnats.tls.certs import PeerCertificate

pytestmark = pytest.mark.timeout(60)

SUBJECT = x509.Name(
    [
        x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "test"),
        x509.NameAttribute(NameOID.COUNTRY_NAME, "US"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Acme, Inc."),
        x509.NameAttribute(NameOID.COMMON_NAME, "bob"),
    ]
)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A certificate with names of every kind."""
    path: Path = tmp_path_factory.mktemp("certs")
    more = (x509.RFC822Name("bob@acme.test"), x509.UniformResourceIdentifier("spiffe://acme/bob"))
    return Certificates(path).make("bob", names=("bob.test",), more=more, subject=SUBJECT).der


NAMES = [
    "bob@acme.test",
    "bob.test",
    "spiffe://acme/bob",
    "CN=bob,O=Acme\\, Inc.,C=US,DC=test",
    "DC=test,CN=bob,O=Acme\\, Inc.,C=US",
    "CN=bob,O=Acme\\, Inc.,C=US",
]
"""Users, the one first that is preferred."""


@pytest.mark.parametrize("best", range(len(NAMES)))
def test_the_best_name_counts(shown: bytes, best: int) -> None:
    assert find_user(shown, NAMES[best:][::-1])[0] == NAMES[best]


def test_nobody_is_found(shown: bytes) -> None:
    assert find_user(shown, ["bob", "CN=bob"]) == (
        None,
        'User in cert ["CN=bob,O=Acme\\\\, Inc.,C=US"], not found',
    )


def test_there_is_no_certificate() -> None:
    assert find_user(None, NAMES) == (None, "User required in cert, no peer certificates found")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "CN=a"),
        ("a,b", "CN=a\\,b"),
        (" a ", "CN=\\ a\\ "),
        ("#a", "CN=\\#a"),
        ('a+b"c\\d<e>f;g', 'CN=a\\+b\\"c\\\\d\\<e\\>f\\;g'),
        ("a=b", "CN=a=b"),
    ],
)
def test_values_are_escaped(tmp_path: Path, value: str, text: str) -> None:
    assert written(tmp_path, (NameOID.COMMON_NAME, value)) == text


def written(directory: Path, *parts: tuple[x509.ObjectIdentifier, str]) -> str:
    """Make a certificate with a subject of these parts; return the subject as text."""
    subject = x509.Name([x509.NameAttribute(kind, value) for kind, value in parts])
    made = Certificates(directory).make("named", subject=subject)
    return PeerCertificate.from_der(made.der).subject_names


def test_known_attributes_come_in_an_order_of_their_own(tmp_path: Path) -> None:
    parts = [
        (NameOID.COMMON_NAME, "first"),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "one"),
        (NameOID.COUNTRY_NAME, "US"),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "two"),
        (NameOID.COMMON_NAME, "last"),
        (NameOID.EMAIL_ADDRESS, "left@out"),
    ]
    assert written(tmp_path, *parts) == "CN=last,OU=one+OU=two,C=US"
