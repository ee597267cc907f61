"""TLS for the monitoring endpoints, by Python's ssl: nothing but this needs it."""

import ssl

from gnats.errors import ServerError
from gnats.tlsopts import TLSOptions

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def server_context(tls: TLSOptions) -> ssl.SSLContext:
    """A context for a server with these options; clients are not asked for certificates, as in nats-server.

    Raises ServerError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version]
    if suites := [openssl_name(suite) for suite in tls.cipher_suites if "_WITH_" in suite]:
        try:
            context.set_ciphers(":".join(suites))
        except ssl.SSLError:
            names = ", ".join(tls.cipher_suites)
            raise ServerError(f"Can't start monitoring: none of the cipher suites {names} is known") from None
    load_certificates(context, tls)
    return context


def load_certificates(context: ssl.SSLContext, tls: TLSOptions) -> None:
    """Have a context serve the options' certificates.

    Raises ServerError.
    """
    pairs = tls.certificates or ((tls.cert_file, tls.key_file),)
    for cert, key in pairs:
        try:
            context.load_cert_chain(cert, key)
        except OSError as exc:  # ssl.SSLError as well
            reason = exc.reason if isinstance(exc, ssl.SSLError) else exc.strerror
            raise ServerError(
                f"Can't start monitoring: error loading X509 certificate/key pair {cert}, {key}: {reason}"
            ) from exc


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a TLS 1.2 cipher suite: TLS_RSA_WITH_AES_128_CBC_SHA is AES128-SHA."""
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    parts = [] if exchange == "RSA" else exchange.split("_")
    cipher = cipher.replace("AES_", "AES").replace("_CBC_", "_").replace("3DES_EDE", "DES_CBC3")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    return "-".join([*parts, *cipher.split("_")])
