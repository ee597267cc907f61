"""The TLS layer between a connection and its socket."""

from typing import TypedDict

from gnats.core.net.connection import Connection
from gnats.core.tls.tlsstate import TLSBase

class TLSInfo(TypedDict):
    """The results of a handshake; see tls_info()."""

    version: str
    cipher_suite: str
    server_name: str
    first: bool
    verified: bool
    peer_certs: list[bytes]

def add_tls(
    connection: Connection,
    context: TLSBase,
    *,
    clear_greeting: bytes = b"",
    secure_greeting: bytes = b"",
    mixed: bool = False,
    fallback: float = 0.0,
    host: bytes = b"",
    insecure: bool = False,
    timeout: float = 2.0,
) -> None:
    """Put TLS before a connection that is not started.

    Once it is, it sends a greeting (INFO; empty for a protocol without one), does the handshake within
    `timeout` seconds, and then begins its session. Without memory the connection closes when it is started.

    Without `secure_greeting`: send `clear_greeting` at once, then do the handshake; with `mixed`, only
    if the client's first byte begins one. With `secure_greeting`: do the handshake, then send it; but when
    `fallback` is not 0 and no byte has come after so many seconds, go on as without `secure_greeting`.

    With `host`, a name or an address, do the side of the handshake that dials, and send no greeting: that
    host's certificate is verified, unless `insecure`.
    """

def host_was_wrong(connection: Connection) -> bool:
    """Return whether the peer's certificate is not one for the host dialled: no handshake was done then."""

def tls_info(connection: Connection) -> TLSInfo | None:
    """Return the results of a connection's handshake; None before its end, and without TLS.

    version ("1.2", "1.3"), cipher_suite (IANA's name), server_name (asked for by the client, or ""), first
    (whether the handshake came before the greeting), peer_certs (the peer's certificates as DER, its own
    first) and verified (whether one was required and is good).
    """
