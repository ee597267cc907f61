"""TLS for the monitoring endpoints: the only part of the server that uses Python's ssl."""

import ssl

from gnats.errors import OptionError, ServerError
from gnats.options.values.tls import TLSOptions
from gnats.tls.context import openssl_ciphers

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def server_context(tls: TLSOptions) -> ssl.SSLContext:
    """Make a context with these options. It does not request client certificates, as in nats-server.

    Raises ServerError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version]
    try:
        suites = openssl_ciphers(tls)
    except OptionError as exc:
        raise ServerError(f"Can't start monitoring: {exc}") from None
    if suites:
        context.set_ciphers(suites)
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    load_certificates(context, tls)
    return context


def load_certificates(context: ssl.SSLContext, tls: TLSOptions) -> None:
    """Load the options' certificates into a context.

    Raises ServerError.
    """
    pairs = tls.certificates or ((tls.cert_file, tls.key_file),)
    for cert, key in pairs:
        try:
            context.load_cert_chain(cert, key)
        except OSError as exc:  # includes ssl.SSLError
            reason = exc.reason if isinstance(exc, ssl.SSLError) else exc.strerror
            raise ServerError(
                f"Can't start monitoring: error loading X509 certificate/key pair {cert}, {key}: {reason}"
            ) from exc
