"""Choose the Authenticator that a server's options call for (configureAuthorization in auth.go)."""

from typing import TYPE_CHECKING

from gnats.auth.authenticator import Authenticator
from gnats.options.options import Options

if TYPE_CHECKING:
    from gnats.auth.callout import Host
    from gnats.operator.mode import OperatorMode


def configure_authorization(server: "Host", opts: Options, mode: "OperatorMode | None") -> Authenticator:
    """Return the authenticator of the server's clients; in operator mode (`mode`), JWTs define the users."""
    if mode:
        from gnats.operator.authenticator import JWTAuthenticator  # reads JWTs

        return JWTAuthenticator(server, opts, mode)
    if opts.auth_callout:
        from gnats.auth.config_callout import CalloutAuthenticator  # reads JWTs

        return CalloutAuthenticator(server, opts, opts.auth_callout)
    return Authenticator(opts, server.log)
