"""Choose the Authenticator that a server's options call for (configureAuthorization in auth.go)."""

from typing import TYPE_CHECKING

from gnats.auth import Authenticator
from gnats.opts import Options

if TYPE_CHECKING:
    from gnats.server import Server


def configure_authorization(server: "Server", opts: Options) -> Authenticator:
    """Who decides about a server's clients with these options."""
    if server.trust:
        from gnats.jwtusers import JWTAuthenticator  # reads JWTs

        return JWTAuthenticator(server, opts, server.trust.mode)
    if opts.auth_callout:
        from gnats.configcallout import CalloutAuthenticator  # reads JWTs

        return CalloutAuthenticator(server, opts, opts.auth_callout)
    return Authenticator(opts, server.log)
