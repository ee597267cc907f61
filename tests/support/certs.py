"""Certificates for tests: two authorities and certificates that they sign, as PEM files in a folder."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID as Usage
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class Certificate:
    """A certificate, its private key, and their PEM files."""

    cert: x509.Certificate
    key: Key
    cert_file: Path
    key_file: Path

    @property
    def der(self) -> bytes:
        return self.cert.public_bytes(serialization.Encoding.DER)

    @property
    def pin(self) -> str:
        """The SHA-256 of the public key in hexadecimal, as in pinned_certs."""
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        public = self.key.public_key().public_bytes(serialization.Encoding.DER, form)
        return hashlib.sha256(public).hexdigest()

    @property
    def tls_block(self) -> str:
        """cert_file and key_file as configuration text for a tls block."""
        return f'cert_file: "{self.cert_file}", key_file: "{self.key_file}"'


class Certificates:
    """The certificates of the TLS tests; each is made on first use."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def make(
        self,
        name: str,
        *,
        issuer: Certificate | None = None,
        authority: bool = False,
        names: tuple[str, ...] = ("localhost",),
        addresses: tuple[str, ...] = ("127.0.0.1",),
        more: tuple[x509.GeneralName, ...] = (),
        usage: x509.ObjectIdentifier | None = None,
        days: int = 10,
        kind: str = "ec",
        subject: x509.Name | None = None,
    ) -> Certificate:
        """Make a certificate and write <name>.pem and <name>-key.pem.

        `issuer` None makes it self-signed. `names` are DNS names, `more` further alternative names. It is
        valid for another `days` days; below zero it has expired. `kind` is "ec" or "rsa".
        """
        key: Key
        key = (
            rsa.generate_private_key(65537, 2048)
            if kind == "rsa"
            else ec.generate_private_key(ec.SECP256R1())
        )
        subject = subject or x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        alternatives: list[x509.GeneralName] = [x509.DNSName(entry) for entry in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        alternatives += more
        end = datetime.datetime.now(datetime.UTC) + days * DAY
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.cert.subject if issuer else subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(end - 30 * DAY)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        if usage:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        cert = builder.sign(issuer.key if issuer else key, hashes.SHA256())
        made = Certificate(cert, key, self._directory / f"{name}.pem", self._directory / f"{name}-key.pem")
        made.cert_file.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
        form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        made.key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, none))
        return made

    @cached_property
    def ca(self) -> Certificate:
        return self.make("Authority", authority=True)

    @cached_property
    def other_ca(self) -> Certificate:
        return self.make("Other authority", authority=True)

    @cached_property
    def server(self) -> Certificate:
        return self.make("server", issuer=self.ca, usage=Usage.SERVER_AUTH)

    @cached_property
    def rsa_server(self) -> Certificate:
        return self.make("rsa server", issuer=self.ca, usage=Usage.SERVER_AUTH, kind="rsa")

    @cached_property
    def node(self) -> Certificate:
        """The certificate of a server with routes, which is a client of others, too."""
        return self.make("node", issuer=self.ca)

    @cached_property
    def named_node(self) -> Certificate:
        """As `node`, without an address."""
        return self.make("named node", issuer=self.ca, addresses=())

    @cached_property
    def foreign_node(self) -> Certificate:
        """As `node`, of the untrusted authority."""
        return self.make("foreign node", issuer=self.other_ca)

    @cached_property
    def expired_node(self) -> Certificate:
        return self.make("expired node", issuer=self.ca, days=-1)

    @cached_property
    def client(self) -> Certificate:
        return self.make("client", issuer=self.ca, usage=Usage.CLIENT_AUTH)

    @cached_property
    def untrusted_client(self) -> Certificate:
        return self.make("untrusted client", issuer=self.other_ca, usage=Usage.CLIENT_AUTH)

    @cached_property
    def impostors_client(self) -> Certificate:
        """A client certificate of an authority with the trusted one's name and another key."""
        impostor = self.make("impostor", authority=True, subject=self.ca.cert.subject)
        return self.make("client of an impostor", issuer=impostor, usage=Usage.CLIENT_AUTH)

    @cached_property
    def impostors_rsa_client(self) -> Certificate:
        """As impostors_client, where the impostor's key is RSA and the trusted one's is not."""
        impostor = self.make("rsa impostor", authority=True, subject=self.ca.cert.subject, kind="rsa")
        return self.make("client of an rsa impostor", issuer=impostor, usage=Usage.CLIENT_AUTH)

    @cached_property
    def expired_client(self) -> Certificate:
        return self.make("expired client", issuer=self.ca, usage=Usage.CLIENT_AUTH, days=-1)

    @cached_property
    def self_signed_client(self) -> Certificate:
        return self.make("self-signed client", usage=Usage.CLIENT_AUTH)

    @cached_property
    def server_as_client(self) -> Certificate:
        """A valid certificate whose extended key usage is servers only."""
        return self.make("server as client", issuer=self.ca, usage=Usage.SERVER_AUTH)
