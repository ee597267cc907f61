"""The client's side of TLS: contexts, and raw connections with the handshake after INFO or before it."""

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
    """Make a client's context that trusts the tests' authority; `insecure` trusts any server.

    `cert` is the client's certificate, `version` the only TLS version, `ciphers` an OpenSSL list (TLS 1.2).
    """
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
        """Read INFO, then shake hands; with `first`, shake hands, then read INFO.

        `name` is the server's name to verify. Raises ssl.SSLError or OSError for a handshake that fails,
        Closed when there is no INFO, ValueError when the server sent more than INFO in clear text.
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
        """Shake hands. Raises ValueError when something unread came in clear text."""
        if self._buffer:
            raise ValueError(f"in clear: {bytes(self._buffer)!r}")
        self.sock = self._context.wrap_socket(
            self.sock, server_hostname=self._name, suppress_ragged_eofs=False
        )


def connect_tls(address: tuple[str, int], context: ssl.SSLContext, **options: Any) -> TLSConnection:
    """Connect over TLS; return the connection after its first PONG. `options` are those of TLSConnection."""
    connection = TLSConnection(address, context, **options)
    try:
        connection.send(PLAIN_CONNECT)
        assert connection.fence() == []
    except BaseException:
        connection.close()
        raise
    return connection


def outcome(address: tuple[str, int], context: ssl.SSLContext, *, ping: bool = True, **options: Any) -> str:
    """Connect and send a PING; return "PONG", "closed", the name of a ConnectionError, or OpenSSL's reason.

    With `ping` False, send nothing, to be sure to read an alert: a server that closes with bytes unread
    resets the connection, and the reset may overtake the alert.
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
