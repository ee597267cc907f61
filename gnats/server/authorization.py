"""Choose the Authenticator that a server's options call for (configureAuthorization in auth.go)."""

from typing import TYPE_CHECKING

from gnats.auth.authenticator import Authenticator
from gnats.options.options import Options

if TYPE_CHECKING:
    from gnats.accounts.accounts import Accounts
    from gnats.accounts.internal_clients import InternalClients
    from gnats.log.logger import Logger
    from gnats.nkeys.identity import Identity
    from gnats.operator.mode import OperatorMode


def configure_authorization(
    opts: Options,
    mode: "OperatorMode | None",
    identity: "Identity",
    accounts: "Accounts",
    clients: "InternalClients",
    log: "Logger",
) -> Authenticator:
    """Return the authenticator of a server's clients; in operator mode (`mode`), JWTs define the users."""
    if not mode and not opts.auth_callout:
        return Authenticator(opts, log)
    from gnats.auth.callout import CalloutParts  # reads JWTs, as the modules below

    parts = CalloutParts(identity, accounts, clients, log)
    if mode:
        from gnats.operator.authenticator import JWTAuthenticator

        return JWTAuthenticator(parts, opts, mode)
    assert opts.auth_callout
    from gnats.auth.config_callout import CalloutAuthenticator

    return CalloutAuthenticator(parts, opts, opts.auth_callout)
