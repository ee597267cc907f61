"""The auth callout of a configuration: authorization { auth_callout { ... } } (auth.go, auth_callout.go)."""

from collections.abc import Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gnats.auth.authenticator import Authenticator, Denied
from gnats.auth.callout import Callout, CalloutParts, Placement, Violation, deny_callouts
from gnats.client.grant import Grant, JWTUser
from gnats.connection.closed_state import ClosedState
from gnats.go.text import quote
from gnats.jwt.claims import AuthorizationResponseClaims, UserClaims
from gnats.options.options import Options
from gnats.options.values.auth import GLOBAL_ACCOUNT, AuthCallout, NkeyUser, User

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.client.session import Session


class ConfigCallout(Callout):
    """A callout whose user JWTs are signed by the configured key, and name the user's account in `aud`."""

    def __init__(self, parts: CalloutParts, opts: Options, account: "Account", callout: AuthCallout) -> None:
        super().__init__(parts, opts, account, callout.issuer, callout.xkey)
        self._issuer = callout.issuer

    def check_signer(self, response: AuthorizationResponseClaims) -> None:
        if response.iss != self._issuer:
            raise Violation("auth callout signing key is unknown")

    async def place(self, claims: UserClaims) -> Placement:
        account = quote(self._account.name)
        if claims.nats.issuer_account:
            raise Violation(f"error non operator mode account {account}: attempted to use issuer_account")
        if claims.iss != self._issuer:
            raise Violation(
                f"wrong issuer for auth callout response on account {account},"
                f" expected {quote(self._issuer)} got {quote(claims.iss)}"
            )
        name = claims.aud
        if name not in self._parts.accounts:
            raise Violation(
                f"no valid account {quote(name)} for auth callout response on account {account}:"
                " account missing"
            )
        return Placement(name, None, claims.nats)


class CalloutAuthenticator(Authenticator):
    """Asks the service about all clients, except `auth_users` and users of accounts not delegated to it."""

    def __init__(self, parts: CalloutParts, opts: Options, callout: AuthCallout) -> None:
        super().__init__(opts, parts.log)
        self._parts = parts
        self._callout = callout
        if callout.account not in {GLOBAL_ACCOUNT, *(config.name for config in opts.accounts)}:
            self._log.error(f"Authorization callout account {quote(callout.account)} not valid")
        for name in callout.auth_users:
            if name not in self.users and name not in self.nkeys:
                self._log.error(f"Authorization callout user {quote(name)} not valid")

    def check(self, session: "Session") -> Coroutine[Any, Any, Grant]:
        return self._decide(session)

    def recheck(self, session: "Session", before: Authenticator) -> Coroutine[Any, Any, Grant]:
        return self._decide_again(session, before)

    async def _decide(self, session: "Session") -> Grant:
        """Decide about a client; skip the service only when the client has proved that it is the user."""
        claimed, grant, refused = "", None, None
        try:
            user = self._select(session)
            claimed = self._name_of(session, user)
            decision = self._verify(session, user)
            grant = decision if isinstance(decision, Grant) else await decision
        except Denied as exc:
            if exc.state is ClosedState.PROXY_REQUIRED:  # the service cannot waive this
                raise
            refused = exc
        if grant is not None and not self._is_delegated(grant):
            return grant
        if not claimed or claimed not in self._callout.auth_users:
            grant = await self._ask(session, grant or Grant())
        elif refused:
            raise Denied(str(refused), refused.state, account=self._callout.account)
        assert grant is not None
        return self._without_callouts(grant)

    async def _decide_again(self, session: "Session", before: Authenticator) -> Grant:
        grant = self._still_granted(session, before)
        if grant is None:
            return await self._decide(session)
        if not self._is_delegated(grant):
            return grant
        if self._name_of(session, grant.user) in self._callout.auth_users:
            return self._without_callouts(grant)
        return await self._decide(session)

    def _is_delegated(self, grant: Grant) -> bool:
        """Whether the service decides about users that the configuration puts into the grant's account."""
        allowed = self._callout.allowed_accounts
        return not allowed or grant.account == GLOBAL_ACCOUNT or grant.account in allowed

    async def _ask(self, session: "Session", grant: Grant) -> Grant:
        name = self._callout.account
        account = self._parts.accounts.get(name)
        if account is None:
            text = f"No valid account {quote(name)} for auth callout request: account missing"
            self._log.warn(text)
            raise Denied(account=name, reason=text)
        return await ConfigCallout(self._parts, self._opts, account, self._callout).ask(session, grant)

    def _without_callouts(self, grant: Grant) -> Grant:
        if grant.account != self._callout.account:
            return grant
        return replace(grant, permissions=deny_callouts(grant.permissions))

    def _name_of(self, session: "Session", user: User | NkeyUser | JWTUser | None) -> str:
        """Return the name, as in `auth_users`, of the user that a client claims to be; "" for none."""
        if isinstance(user, NkeyUser):
            return user.nkey
        if isinstance(user, User):
            return user.username
        opts = self._opts
        return opts.username if not opts.authorization and session.opts.user == opts.username else ""
