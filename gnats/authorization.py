"""Choose the Authenticator that a server's options call for (configureAuthorization in auth.go)."""

from typing import TYPE_CHECKING

from gnats.auth import Authenticator
from gnats.opts import Options

if TYPE_CHECKING:
    from gnats.authcallout import Host
    from gnats.operatormode import OperatorMode


def configure_authorization(server: "Host", opts: Options, mode: "OperatorMode | None") -> Authenticator:
    """Return the one that decides about the server's clients; `mode`: JWTs say which users there are."""
    if mode:
        from gnats.jwtusers import JWTAuthenticator  # reads JWTs

        return JWTAuthenticator(server, opts, mode)
    if opts.auth_callout:
        from gnats.configcallout import CalloutAuthenticator  # reads JWTs

        return CalloutAuthenticator(server, opts, opts.auth_callout)
    return Authenticator(opts, server.log)
