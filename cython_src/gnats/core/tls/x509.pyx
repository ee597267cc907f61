"""Read certificates with OpenSSL, to map their names to users and to show them."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from gnats.includes.openssl cimport (
    ASN1_STRING,
    ASN1_TIME,
    GEN_DNS,
    GEN_EMAIL,
    GEN_IPADD,
    GEN_URI,
    GENERAL_NAMES,
    X509,
    X509_NAME,
    X509_NAME_ENTRY,
    ASN1_STRING_get0_data,
    ASN1_STRING_length,
    ASN1_STRING_to_UTF8,
    ASN1_TIME_to_tm,
    d2i_X509,
    ERR_clear_error,
    GENERAL_NAME_get0_value,
    GENERAL_NAMES_free,
    i2d_X509_PUBKEY,
    NID_subject_alt_name,
    OBJ_obj2txt,
    OPENSSL_free,
    sk_GENERAL_NAME_num,
    sk_GENERAL_NAME_value,
    tm,
    X509_free,
    X509_get0_notAfter,
    X509_get0_notBefore,
    X509_get_ext_d2i,
    X509_get_subject_name,
    X509_get_X509_PUBKEY,
    X509_NAME_ENTRY_get_data,
    X509_NAME_ENTRY_get_object,
    X509_NAME_ENTRY_set,
    X509_NAME_entry_count,
    X509_NAME_get_entry,
    X509_verify_cert_error_string,
)

cdef enum:
    OID_TEXT = 4096


def read_certificate(bytes der not None) -> tuple:
    """Return (subject, emails, dns_names, addresses, uris, spki, not_before, not_after) of a DER certificate.

    `subject` is a list of RDNs as encoded, each a list of (dotted OID, value). `addresses` are bytes, 4 or 16 each.
    `spki` is the DER of its public key, a SubjectPublicKeyInfo. Times are (year, month, day, hour, minute, second) in
    UTC. Raises ValueError for anything but a certificate.
    """
    cdef const unsigned char *at = <const unsigned char *> PyBytes_AS_STRING(der)
    cdef X509 *cert = d2i_X509(NULL, &at, PyBytes_GET_SIZE(der))
    cdef unsigned char *key = NULL
    cdef int n
    ERR_clear_error()
    if cert == NULL:
        raise ValueError("not a certificate")
    try:
        n = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(cert), &key)
        if n <= 0:
            raise ValueError("a certificate without a public key")
        spki = PyBytes_FromStringAndSize(<char *> key, n)
        OPENSSL_free(key)
        names = alternative_names(cert)
        not_before, not_after = moment(X509_get0_notBefore(cert)), moment(X509_get0_notAfter(cert))
        return subject(cert), *names, spki, not_before, not_after
    finally:
        X509_free(cert)


def verify_error_text(int error) -> str:
    """Return OpenSSL's text for an error of certificate verification."""
    return (<bytes> X509_verify_cert_error_string(error)).decode()


cdef tuple moment(const ASN1_TIME *when):
    cdef tm t
    if ASN1_TIME_to_tm(when, &t) != 1:
        ERR_clear_error()
        raise ValueError("a certificate with a time that cannot be read")
    return (t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec)


cdef list subject(X509 *cert):
    cdef X509_NAME *name = X509_get_subject_name(cert)
    cdef X509_NAME_ENTRY *entry
    cdef ASN1_STRING *value
    cdef char[OID_TEXT] oid
    cdef unsigned char *text
    cdef int i, n, rdn = -1
    cdef list rdns = [], entries = []
    for i in range(X509_NAME_entry_count(name)):
        entry = X509_NAME_get_entry(name, i)
        if X509_NAME_ENTRY_set(entry) != rdn:
            rdn = X509_NAME_ENTRY_set(entry)
            entries = []
            rdns.append(entries)
        if OBJ_obj2txt(oid, OID_TEXT, X509_NAME_ENTRY_get_object(entry), 1) >= OID_TEXT:
            raise ValueError("a certificate with a subject that cannot be read")
        value = X509_NAME_ENTRY_get_data(entry)
        n = ASN1_STRING_to_UTF8(&text, value)
        if n < 0:   # not text: a BIT STRING, for instance
            ERR_clear_error()
            entries.append(((<bytes> (<char *> oid)).decode(), plain(value)))
            continue
        entries.append(((<bytes> (<char *> oid)).decode(), text[:n].decode("utf-8", "replace")))
        OPENSSL_free(text)
    return rdns


cdef tuple alternative_names(X509 *cert):
    cdef GENERAL_NAMES *names = <GENERAL_NAMES *> X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL)
    cdef ASN1_STRING *text
    cdef int i, kind = 0
    cdef list emails = [], dns_names = [], addresses = [], uris = []
    ERR_clear_error()
    if names == NULL:
        return emails, dns_names, addresses, uris
    for i in range(sk_GENERAL_NAME_num(names)):
        text = <ASN1_STRING *> GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names, i), &kind)
        if kind == GEN_EMAIL:
            emails.append(plain(text))
        elif kind == GEN_DNS:
            dns_names.append(plain(text))
        elif kind == GEN_IPADD:
            addresses.append(PyBytes_FromStringAndSize(
                <const char *> ASN1_STRING_get0_data(text), ASN1_STRING_length(text)))
        elif kind == GEN_URI:
            uris.append(plain(text))
    GENERAL_NAMES_free(names)
    return emails, dns_names, addresses, uris


cdef str plain(const ASN1_STRING *text):
    return PyBytes_FromStringAndSize(
        <const char *> ASN1_STRING_get0_data(text), ASN1_STRING_length(text)).decode("utf-8", "replace")
