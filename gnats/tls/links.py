"""TLS of the links to other servers, where both sides verify each other."""

from dataclasses import replace

from gnats.core.net.connection import Connection
from gnats.core.tls.tlstransport import add_tls
from gnats.options.values.tls import TLSOptions
from gnats.tls.context import files_digest, make_context


class LinkTLS:
    """TLS of the links of one kind: its options and a context made from them. Raises OptionError.

    A reload replaces this object; connections keep the context that they started with.
    """

    def __init__(self, opts: TLSOptions) -> None:
        self._opts = opts
        self.context = make_context(replace(opts, connection_rate_limit=0))  # that one is for clients
        self.digest = files_digest(opts)
        """Digest of the files that were read; shows a reload whether they have changed."""

    @property
    def insecure(self) -> bool:
        """Whether the certificates of servers that are dialled are not verified."""
        return self._opts.insecure

    def secure(self, connection: Connection, host: str = "") -> None:
        """Put TLS before a connection that is not started. `host` is the one that was dialled, if any."""
        add_tls(
            connection,
            self.context,
            host=host.encode(),
            insecure=self.insecure,
            timeout=self._opts.timeout,
        )
