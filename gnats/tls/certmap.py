"""Finds the user that a client's certificate names (checkClientTLSCertSubject in auth.go)."""

from collections.abc import Iterable

from gnats.go.text import quote
from gnats.tls.certs import ATTRIBUTES, PeerCertificate
from gnats.tls.names import DN, parse_dn, same_dn, same_rdns

_DC = "0.9.2342.19200300.100.1.25"
_TYPES = ATTRIBUTES | {_DC: "DC"}
"""The attribute types that a distinguished name in the configuration may use, by OID."""


def find_user(certificate: bytes | None, users: Iterable[str]) -> tuple[str | None, str]:
    """Return the first name in a certificate (DER) that is a user's, or None, and a text for the debug log.

    The order is: e-mail addresses, DNS names, URIs, the subject as a distinguished name (exactly, then with
    its RDNs in any order), the subject as Go writes it, with and without domain components.
    """
    if certificate is None:
        return None, "User required in cert, no peer certificates found"
    try:
        cert = PeerCertificate.from_der(certificate)
    except ValueError as exc:
        return None, f"User required in cert, which cannot be read: {exc}"
    names = set(users)
    subject = cert.subject_names
    kinds = (("email", cert.emails), ("SAN", cert.dns_names), ("URI", cert.uris))
    for kind, found in ((kind, name) for kind, given in kinds for name in given):
        if found in names:
            return found, f"Using {kind} found in cert for auth [{quote(found)}]"
    dn = _subject_dn(cert)
    if dn is not None and (user := _find_dn(dn, users)):
        return user, f"Using DistinguishedNameMatch for auth [{quote(user)}]"
    whole = subject_with_components(cert)
    if whole in names:
        return whole, f"Using RDNSequence for auth [{quote(whole)}]"
    if subject in names:
        return subject, f"Using certificate subject for auth [{quote(subject)}]"
    return None, f"User in cert [{quote(subject)}], not found"


def subject_with_components(cert: PeerCertificate) -> str:
    """Return the subject as Go writes it with its domain components; empty when it has none."""
    components = ",".join(f"DC={value}" for rdn in cert.rdns for oid, value in rdn if oid == _DC)
    return f"{cert.subject_names},{components}" if components else ""


def _find_dn(dn: DN, users: Iterable[str]) -> str | None:
    reordered = None
    for user in users:
        try:
            named = parse_dn(user)
        except ValueError:
            continue
        if same_dn(named, dn):
            return user
        if reordered is None and same_rdns(named, dn):
            reordered = user
    return reordered


def _subject_dn(cert: PeerCertificate) -> DN | None:
    """Return the subject, most specific RDN first; None if it has attributes that are not in _TYPES."""
    dn: DN = []
    for rdn in reversed(cert.rdns):
        if any(oid not in _TYPES for oid, _ in rdn):
            return None
        dn.append([(_TYPES[oid], value) for oid, value in rdn])
    return dn
