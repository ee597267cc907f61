"""TLS between a connection and its socket."""

from typing import TypedDict

from gnats.core.net.connection import Connection
from gnats.core.tls.tlsstate import TLSBase

class TLSInfo(TypedDict):
    """What a handshake has settled."""

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
    clear_info: bytes,
    secure_info: bytes = b"",
    mixed: bool = False,
    fallback: float = 0.0,
    timeout: float = 2.0,
) -> None:
    """Put TLS before a connection that is not started yet: it greets its peer and shakes hands in `timeout`
    seconds before it speaks its protocol.

    Without `secure_info`, `clear_info` is sent at once and the handshake follows; with `mixed` only if
    the client's first byte begins one. With `secure_info` the handshake comes first, unless `fallback`
    is not 0 and no byte has come after so many seconds.
    """

def tls_info(connection: Connection) -> TLSInfo | None:
    """What the handshake of a connection has settled, None before that and without TLS.

    version ("1.2", "1.3"), cipher_suite (IANA's name), server_name (as the client asked, or ""), first
    (whether the handshake came before INFO), peer_certs (the client's certificates as DER, its own first)
    and verified (whether that was asked for and is good).
    """
