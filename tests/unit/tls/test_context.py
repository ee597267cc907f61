"""TLS options: unusable ones are refused in one line, others become settings of OpenSSL."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from support.certs import Certificates

from gnats.core.tls.tls import openssl_cipher
from gnats.errors import OptionError
from gnats.options.values.tls import TLSOptions
from gnats.tls.certs import PeerCertificate
from gnats.tls.context import SECURE_CIPHERS, make_context
from gnats.tls.errors import handshake_error

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def good(certs: Certificates) -> dict[str, Any]:
    return {"cert_file": str(certs.server.cert_file), "key_file": str(certs.server.key_file)}


def refusal(**options: Any) -> str:
    with pytest.raises(OptionError) as refused:
        make_context(TLSOptions(**options))
    text = str(refused.value)
    assert "\n" not in text
    return text


def test_a_file_that_is_missing(good: dict[str, Any]) -> None:
    pair = "error parsing X509 certificate/key pair"
    assert (
        refusal(**good | {"cert_file": "nosuch.pem"}) == f"{pair}: open nosuch.pem: no such file or directory"
    )
    assert (
        refusal(**good | {"key_file": "nosuch.pem"}) == f"{pair}: open nosuch.pem: no such file or directory"
    )
    assert refusal(**good, ca_file="nosuch.pem", verify=True).endswith(
        "open nosuch.pem: no such file or directory"
    )


def test_a_key_of_another_certificate(good: dict[str, Any], certs: Certificates) -> None:
    text = refusal(**good | {"key_file": str(certs.client.key_file)})
    assert str(certs.client.key_file) in text
    assert text.endswith("tls: private key does not match public key")


def test_a_file_without_what_it_should_hold(good: dict[str, Any], tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    assert refusal(**good | {"cert_file": str(empty)}).endswith(
        "tls: failed to find any PEM data in certificate input"
    )
    assert refusal(**good | {"key_file": str(empty)}).endswith(
        "tls: failed to find any PEM data in key input"
    )
    assert str(empty) in refusal(**good, ca_file=str(empty), verify=True)


def test_a_file_that_is_damaged(good: dict[str, Any], certs: Certificates, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pem"
    text = certs.server.cert_file.read_text().replace("MII", "MXX", 1)
    damaged.write_text(text)
    assert str(damaged) in refusal(**good | {"cert_file": str(damaged)})
    damaged.write_text(certs.ca.cert_file.read_text() + text)
    assert str(damaged) in refusal(**good, ca_file=str(damaged), verify=True)


def test_a_key_with_a_password_is_not_asked_about(
    good: dict[str, Any], certs: Certificates, tmp_path: Path
) -> None:
    from cryptography.hazmat.primitives import serialization

    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        certs.server.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    assert "private key" in refusal(**good | {"key_file": str(locked)})


def test_half_a_pair(good: dict[str, Any]) -> None:
    assert refusal(cert_file=good["cert_file"]) == "missing 'key_file' in TLS configuration"
    assert refusal(key_file=good["key_file"]) == "missing 'cert_file' in TLS configuration"


def test_the_pair_that_is_bad_is_named(good: dict[str, Any]) -> None:
    pair = (good["cert_file"], good["key_file"])
    text = refusal(certificates=(pair, ("nosuch.pem", "nosuch.pem")))
    assert text.startswith("error parsing X509 certificate/key pair 2/2: open nosuch.pem")


def test_cipher_suites(good: dict[str, Any]) -> None:
    make_context(TLSOptions(**good, cipher_suites=SECURE_CIPHERS))
    make_context(TLSOptions(**good, cipher_suites=("TLS_AES_128_GCM_SHA256",)))
    insecure = "TLS_RSA_WITH_AES_128_GCM_SHA256"
    assert insecure in refusal(**good, cipher_suites=(insecure,))
    make_context(TLSOptions(**good, cipher_suites=(insecure,), allow_insecure_cipher_suites=True))
    assert refusal(**good, cipher_suites=("TLS_NO_SUCH",), allow_insecure_cipher_suites=True) == (
        "cipher suite TLS_NO_SUCH is not supported: this OpenSSL does not have it"
    )


def test_every_suite_that_is_on_without_a_list_is_there() -> None:
    assert all(openssl_cipher(name) for name in SECURE_CIPHERS)


def test_curves(good: dict[str, Any]) -> None:
    make_context(TLSOptions(**good, curve_preferences=("CurveP521", "X25519")))
    assert refusal(**good, curve_preferences=("P-256",)) == "unrecognized curve preference P-256"


def test_versions(good: dict[str, Any]) -> None:
    assert refusal(**good, min_version="1.1") == "unsupported TLS version: 1.1"


def test_a_subject_in_the_words_of_go(certs: Certificates) -> None:
    def attribute(oid: x509.ObjectIdentifier, value: str) -> x509.NameAttribute[str]:
        return x509.NameAttribute(oid, value)

    subject = x509.Name(
        [
            attribute(NameOID.DOMAIN_COMPONENT, "org"),
            attribute(NameOID.COMMON_NAME, 'a, "b"'),
            attribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "one"),
            attribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "two"),
            attribute(NameOID.COUNTRY_NAME, "CH"),
        ]
    )
    made = certs.make("named", subject=subject)
    read = PeerCertificate.from_der(made.der)
    assert read.subject_names == r"CN=a\, \"b\",OU=one+OU=two,C=CH"
    assert read.subject == r"CN=a\, \"b\",OU=one+OU=two,C=CH,0.9.2342.19200300.100.1.25=#13036f7267"
    assert read.dns_names == ["localhost"]
    assert read.spki_sha256 == made.pin
    assert read.not_after == made.cert.not_valid_after_utc


def test_what_is_no_certificate() -> None:
    with pytest.raises(ValueError, match="not a certificate"):
        PeerCertificate.from_der(b"\x30\x03abc")


def test_errors_without_words_of_their_own_are_openssl_s() -> None:
    assert handshake_error(20 << 23 | 999, b"\0\0\0\0some reason\0\0") == "tls: some reason"
    assert handshake_error(20 << 23 | 1042, b"\0\0\0\0x\0\0") == "remote error: tls: bad certificate"
    assert handshake_error(-2, (104).to_bytes(4, sys.byteorder) + b"\0\0") == "read: connection reset by peer"


JETSTREAM = ", jetstream=JetStreamOptions(enabled=True, store_dir=sys.argv[1])"


@pytest.mark.parametrize("options", ["", JETSTREAM], ids=["plain", "jetstream"])
def test_a_server_without_tls_does_not_load_openssl(options: str, tmp_path: Path) -> None:
    program = f"""
import sys
from gnats.commands.footprint import import_loop_without_ssl
import_loop_without_ssl()
import asyncio
from gnats.server.server import Server
from gnats.options.options import Options
from gnats.options.values.jetstream import JetStreamOptions
async def main():
    async with Server(Options(host="127.0.0.1", port=-1{options})) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await reader.readline()
        writer.close()
asyncio.run(main())
with open("/proc/self/maps") as maps:
    print("libcrypto" in maps.read(), "gnats.core.tls.tls" in sys.modules)
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert (done.stdout, done.stderr) == ("False False\n", "")
