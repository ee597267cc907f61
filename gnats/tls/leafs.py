"""TLS of leaf nodes. Unlike routes, both servers first say in clear text whether they want it."""

from dataclasses import replace

from gnats.core.net.connection import Connection
from gnats.core.tls.tlstransport import add_tls
from gnats.options.values.leafnodes import LeafNodeOptions, RemoteLeafOptions
from gnats.options.values.tls import TLSOptions
from gnats.tls.context import files_digest, make_context

_NONE: frozenset[str] = frozenset()


class AcceptingTLS:
    """TLS of the port for leaf nodes. Raises OptionError."""

    def __init__(self, opts: TLSOptions) -> None:
        self._opts = opts
        self._context = make_context(opts)
        self.digest = files_digest(opts)

    def secure(self, connection: Connection, info: bytes) -> None:
        """Put TLS before a connection that is not started; it sends `info` before or behind the handshake."""
        first = self._opts.handshake_first
        fallback = self._opts.handshake_first_fallback
        add_tls(
            connection,
            self._context,
            clear_greeting=b"" if first and not fallback else info,
            secure_greeting=info if first else b"",
            fallback=fallback,
            timeout=self._opts.timeout,
        )


class DiallingTLS:
    """TLS towards a remote: its tls block, or what serves without one. Raises OptionError.

    `pinned` are the digests of the keys that servers may have; empty: any.
    """

    def __init__(self, opts: TLSOptions | None, pinned: frozenset[str] = _NONE) -> None:
        self._opts = opts = opts or TLSOptions()
        self._context = make_context(
            replace(opts, connection_rate_limit=0, verify=True, pinned_certs=pinned), dials=True
        )
        self.digest = files_digest(opts, dials=True)

    def secure(self, connection: Connection, host: str) -> None:
        """Put TLS before a connection that is not started, to a server that must be `host`."""
        add_tls(
            connection,
            self._context,
            host=host.encode(),
            insecure=self._opts.insecure,
            timeout=self._opts.timeout,
        )


class LeafTLS:
    """The TLS contexts of the leafnodes block and its remotes. Raises OptionError.

    A reload replaces this object; connections keep the context that they started with.
    """

    def __init__(self, block: LeafNodeOptions) -> None:
        self.accepting = AcceptingTLS(block.tls) if block.port and block.tls else None
        self._pinned = block.tls.pinned_certs if block.tls else _NONE
        self._remotes = {
            remote.key: DiallingTLS(remote.tls, self._pinned) for remote in block.remotes if remote.tls
        }
        self._plain: DiallingTLS | None = None
        self.insecure = bool(block.port and block.tls and block.tls.insecure) or any(
            remote.tls and remote.tls.insecure for remote in block.remotes
        )

    @property
    def digests(self) -> list[bytes]:
        """Digests of all files that were read; they show a reload whether one has changed."""
        parts: list[AcceptingTLS | DiallingTLS] = [*self._remotes.values()]
        if self.accepting:
            parts.insert(0, self.accepting)
        return [part.digest for part in parts]

    def of(self, remote: RemoteLeafOptions) -> DiallingTLS:
        """Return what dials a remote; one without a tls block may be asked for TLS by the other server."""
        if found := self._remotes.get(remote.key):
            return found
        if self._plain is None:
            self._plain = DiallingTLS(None, self._pinned)
        return self._plain
