"""A peer's certificate: its names as Go's crypto/x509 writes them, and its digests."""

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from ipaddress import ip_address

from gnats.core.tls.x509 import read_certificate

ATTRIBUTES = {
    "2.5.4.6": "C",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.17": "POSTALCODE",
    "2.5.4.3": "CN",
    "2.5.4.5": "SERIALNUMBER",
}
"""The attributes of a subject that Go has names for, by OID, in Go's order."""
_SINGLE = frozenset(("CN", "SERIALNUMBER"))
_PRINTABLE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 '()+,-./:=?")

RDNs = list[list[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """The contents of a certificate. `rdns` is the subject as encoded: (dotted OID, value) pairs by RDN.

    `subject` is the subject as monitoring shows it; `subject_names` leaves out attributes that Go has no name
    for. Digests are SHA-256 in lower-case hex; `spki_sha256` is the public key's.
    """

    rdns: RDNs
    subject: str
    subject_names: str
    emails: list[str]
    dns_names: list[str]
    addresses: list[str]
    uris: list[str]
    cert_sha256: str
    spki_sha256: str
    not_before: datetime
    not_after: datetime

    @classmethod
    def from_der(cls, der: bytes) -> "PeerCertificate":
        """Read a certificate in DER. Raises ValueError when it is not one."""
        rdns, emails, dns_names, addresses, uris, spki, not_before, not_after = read_certificate(der)
        names = _ordered(rdns)
        others = [[entry] for rdn in rdns for entry in rdn if entry[0] not in ATTRIBUTES]
        return cls(
            rdns,
            rdn_string(others + names),
            rdn_string(names),
            emails,
            dns_names,
            [_address(packed) for packed in addresses],
            uris,
            sha256(der).hexdigest(),
            sha256(spki).hexdigest(),
            datetime(*not_before, tzinfo=UTC),
            datetime(*not_after, tzinfo=UTC),
        )


def _address(packed: bytes) -> str:
    """Return an address as Go writes it: one of IPv4 in the form of IPv6, too, is one of IPv4."""
    try:
        address = ip_address(packed)
    except ValueError:  # of another length
        return "?" + packed.hex()
    return str(getattr(address, "ipv4_mapped", None) or address)


def _ordered(rdns: RDNs) -> RDNs:
    """Return the attributes that Go has names for, in Go's order, one RDN for each type.

    Of a type in _SINGLE, only the last value counts.
    """
    ordered = []
    for oid, name in ATTRIBUTES.items():
        values = [entry for rdn in rdns for entry in rdn if entry[0] == oid]
        if name in _SINGLE:
            values = [entry for entry in values[-1:] if entry[1]]
        if values:
            ordered.append(values)
    return ordered


def rdn_string(rdns: RDNs) -> str:
    """Return a distinguished name as text of RFC 2253: the last RDN comes first."""
    return ",".join("+".join(_attribute(*entry) for entry in rdn) for rdn in reversed(rdns))


def _attribute(oid: str, value: str) -> str:
    name = ATTRIBUTES.get(oid)
    if name is None:
        text = value.encode()
        tag = 0x13 if _PRINTABLE.issuperset(value) else 0x0C  # PrintableString or UTF8String
        return f"{oid}=#{(bytes((tag,)) + _der_length(len(text)) + text).hex()}"
    escaped = "".join(f"\\{c}" if c in ',+"\\<>;' else c for c in value)
    if value[:1] in (" ", "#"):
        escaped = "\\" + escaped
    if len(value) > 1 and value.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return f"{name}={escaped}"


def _der_length(n: int) -> bytes:
    if n < 0x80:
        return bytes((n,))
    size = (n.bit_length() + 7) // 8
    return bytes((0x80 | size,)) + n.to_bytes(size, "big")
