"""The client's side of TLS: contexts, and raw connections that shake hands after INFO or before."""

from __future__ import annotations

import ssl
from typing import Any

from .certs import Certificate, Certificates
from .wire import Closed, Connection

TLS_1_2, TLS_1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
PLAIN_CONNECT = b'CONNECT {"verbose":false,"protocol":0}\r\n'


def client_context(
    certs: Certificates,
    cert: Certificate | None = None,
    *,
    version: ssl.TLSVersion | None = None,
    ciphers: str = "",
    insecure: bool = False,
) -> ssl.SSLContext:
    """What a client of the tests' authority uses, with a certificate of its own and one version only."""
    context = ssl.create_default_context(cafile=certs.ca.cert_file)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert:
        context.load_cert_chain(cert.cert_file, cert.key_file)
    if version:
        context.minimum_version = context.maximum_version = version
    if ciphers:
        context.set_ciphers(ciphers)
    return context


class TLSConnection(Connection):
    """A raw connection over TLS. `sock` is the ssl.SSLSocket once the handshake is done."""

    sock: Any

    def __init__(
        self,
        address: tuple[str, int],
        context: ssl.SSLContext,
        *,
        first: bool = False,
        name: str | None = "localhost",
    ) -> None:
        """Reads INFO and shakes hands, or with `first` the other way round.

        Raises ssl.SSLError or OSError for a handshake that fails, Closed when there is no INFO.
        """
        self._context = context
        self._name = name
        self._first = first
        super().__init__(address)
        if not first:
            try:
                self.secure()
            except BaseException:
                self.close()
                raise

    def read_op(self) -> bytes:
        if self._first:
            self._first = False
            self.secure()
        return super().read_op()

    def secure(self) -> None:
        """Shake hands now."""
        if self._buffer:
            raise ValueError(f"in clear: {bytes(self._buffer)!r}")
        self.sock = self._context.wrap_socket(
            self.sock, server_hostname=self._name, suppress_ragged_eofs=False
        )


def outcome(address: tuple[str, int], context: ssl.SSLContext, *, ping: bool = True, **options: Any) -> str:
    """What a client that connects and sends a PING gets: "PONG", "closed", or OpenSSL's name for an error or
    for the alert the server has sent.

    With `ping` False it says nothing, for the sake of an alert: a server that closes with something unread
    resets the connection, and that may overtake it.
    """
    try:
        with TLSConnection(address, context, **options) as connection:
            if ping:
                connection.sock.sendall(PLAIN_CONNECT + b"PING\r\n")
            connection.read_until(b"PONG\r\n")
            return "PONG"
    except ssl.SSLError as error:
        return error.reason or type(error).__name__
    except Closed:
        return "closed"
    except ConnectionError as error:
        return type(error).__name__
