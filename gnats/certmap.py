"""Which user a client's certificate stands for (checkClientTLSCertSubject in auth.go)."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gnats.dn import DN, parse_dn, same_dn, same_rdns
from gnats.gofmt import quote

if TYPE_CHECKING:
    from cryptography import x509

# The attributes that a name in the configuration may have, and how Go writes those it knows.
_TYPES = {
    "2.5.4.3": "CN",
    "2.5.4.5": "SERIALNUMBER",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.17": "POSTALCODE",
    "0.9.2342.19200300.100.1.25": "DC",
}
_DC = "0.9.2342.19200300.100.1.25"
_GO_ORDER = ("2.5.4.6", "2.5.4.10", "2.5.4.11", "2.5.4.7", "2.5.4.8", "2.5.4.9", "2.5.4.17")
_GO_LAST = ("2.5.4.3", "2.5.4.5")
_SPECIAL = frozenset(',+"\\<>;')


def find_user(certificate: bytes | None, users: Iterable[str]) -> tuple[str | None, str]:
    """The first of a certificate's names (DER) that is a user's, and what the debug log says about it.

    Looked at in this order: e-mail addresses, DNS names, URIs, the subject as a distinguished name (exactly,
    then with its RDNs in any order), and the subject as Go writes it, with and without domain components.
    """
    if certificate is None:
        return None, "User required in cert, no peer certificates found"
    from cryptography import x509

    cert = x509.load_der_x509_certificate(certificate)
    names = set(users)
    for kind, name in _alternative_names(cert):
        if name in names:
            return name, f"Using {kind} found in cert for auth [{quote(name)}]"
    subject = rdn_sequence(cert.subject)
    dn = _subject_dn(cert.subject)
    if dn is not None and (found := _find_dn(dn, users)):
        return found, f"Using DistinguishedNameMatch for auth [{quote(found)}]"
    components = ",".join(f"DC={_text(part)}" for part in cert.subject if part.oid.dotted_string == _DC)
    if components and f"{subject},{components}" in names:
        return f"{subject},{components}", f"Using RDNSequence for auth [{quote(subject + ',' + components)}]"
    if subject in names:
        return subject, f"Using certificate subject for auth [{quote(subject)}]"
    return None, f"User in cert [{quote(subject)}], not found"


def _alternative_names(cert: "x509.Certificate") -> Iterator[tuple[str, str]]:
    from cryptography import x509

    try:
        names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return
    yield from (("email", name) for name in names.get_values_for_type(x509.RFC822Name))
    yield from (("SAN", name) for name in names.get_values_for_type(x509.DNSName))
    yield from (("URI", name) for name in names.get_values_for_type(x509.UniformResourceIdentifier))


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


def _subject_dn(subject: "x509.Name") -> DN | None:
    dn: DN = []
    for rdn in reversed(subject.rdns):
        kinds = [_TYPES.get(part.oid.dotted_string) for part in rdn]
        if None in kinds:
            return None
        dn.append([(str(kind), _text(part)) for kind, part in zip(kinds, rdn, strict=True)])
    return dn


def rdn_sequence(subject: "x509.Name") -> str:
    """The subject as Go's pkix.Name writes it: known attributes grouped, in Go's order."""
    parts = list(subject)
    rdns: list[list[x509.NameAttribute[str | bytes]]] = []
    for oid in _GO_ORDER:
        if group := [part for part in parts if part.oid.dotted_string == oid]:
            rdns.append(group)
    for oid in _GO_LAST:  # of these Go keeps one
        if group := [part for part in parts if part.oid.dotted_string == oid]:
            rdns.append(group[-1:])
    return ",".join(
        "+".join(f"{_TYPES[part.oid.dotted_string]}={_escape(_text(part))}" for part in rdn)
        for rdn in reversed(rdns)
    )


def _text(part: "x509.NameAttribute[str | bytes]") -> str:
    return part.value if isinstance(part.value, str) else part.value.decode(errors="replace")


def _escape(value: str) -> str:
    escaped = "".join(f"\\{char}" if char in _SPECIAL else char for char in value)
    if escaped.startswith((" ", "#")):
        escaped = "\\" + escaped
    if escaped.endswith(" ") and len(value) > 1:
        escaped = escaped[:-1] + "\\ "
    return escaped
