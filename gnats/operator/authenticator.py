"""Check clients in operator mode: by their JWTs, and by the auth callouts of accounts (auth.go)."""

from collections.abc import Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gnats.auth.account_jwt import AccountError, ClaimAccount
from gnats.auth.authenticator import Authenticator, Denied
from gnats.auth.callout import Callout, CalloutParts, Placement, Violation, deny_callouts
from gnats.auth.user_jwt import seconds_left
from gnats.client.grant import Grant, JWTUser
from gnats.go.text import quote
from gnats.jwt.claims import AuthorizationResponseClaims, UserClaims, UserPermissionLimits
from gnats.jwt.templates import TemplateError, expand
from gnats.options.options import Options
from gnats.options.values.auth import Permissions

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.client.session import Session
    from gnats.operator.mode import OperatorMode


class OperatorCallout(Callout):
    """A callout of an account. It may place users in its own account and in those that its JWT allows.

    A key of the user's account must have signed the user's JWT.
    """

    def __init__(
        self,
        parts: CalloutParts,
        opts: Options,
        account: "Account",
        claim: ClaimAccount,
        mode: "OperatorMode",
    ) -> None:
        super().__init__(parts, opts, account, claim.name, claim.claims.nats.authorization.xkey)
        self._claim = claim
        self._mode = mode

    def check_signer(self, response: AuthorizationResponseClaims) -> None:
        named = response.nats.issuer_account
        if named not in ("", self._claim.name):
            raise Violation(f"auth callout response issuer account {quote(named)} is not the callout account")
        if response.iss != self._claim.name and response.iss not in self._claim.signing_keys:
            raise Violation("auth callout signing key is unknown")

    async def place(self, claims: UserClaims) -> Placement:
        name = claims.account
        if name != self._claim.name and not self._claim.is_allowed_account(name):
            raise Violation(
                f"account {quote(claims.iss)} not permitted as valid account option for auth callout"
                f" for account {quote(self._claim.name)}"
            )
        try:
            account = await self._mode.lookup_account(name)
        except AccountError as exc:
            raise Violation(
                f"no valid account {quote(name)} for auth callout response on account"
                f" {quote(self._claim.name)}: {exc}"
            ) from None
        if claims.iss not in account.signing_keys:
            raise Violation(f"user JWT issuer {quote(claims.iss)} is not known")
        scope = account.signing_keys[claims.iss]
        limits: UserPermissionLimits = claims.nats
        if scope is not None:
            if not claims.has_empty_permissions():
                raise Violation("user JWT is not valid: scoped users require no permissions or limits set")
            try:
                limits = expand(scope.template, claims, account.claims.name, account.claims.nats.tags)
            except TemplateError as exc:
                raise Violation(f"user JWT generated invalid permissions: {exc}") from None
        return Placement(name, account.default_permissions, limits, scope)


class JWTAuthenticator(Authenticator):
    """Decides which clients may connect, by JWTs."""

    takes_jwts = True

    def __init__(self, parts: CalloutParts, opts: Options, mode: "OperatorMode") -> None:
        super().__init__(opts, parts.log)
        self.required = self.nonce_required = True
        self._parts = parts
        self._mode = mode

    def check(self, session: "Session") -> Coroutine[Any, Any, Grant]:
        return self._authenticate(session)

    def recheck(self, session: "Session", before: Authenticator) -> Coroutine[Any, Any, Grant]:
        return self._authenticate(session)

    async def _authenticate(self, session: "Session") -> Grant:
        found = await self._mode.authenticate(
            session.opts, session.nonce, session.host, session.connection_type
        )
        user, claim = found.user, found.account
        log = self._log.error if found.level == "error" else self._log.debug
        log(f"{session} - {found.text}")
        if user is None or claim is None:
            raise Denied("", found.reason, account=claim.name if claim and claim.external_auth else "")
        grant = _grant(user)
        if claim.external_auth:
            if not claim.is_external_auth_user(user.user):
                account = self._parts.accounts[claim.name]
                callout = OperatorCallout(self._parts, self._opts, account, claim, self._mode)
                grant = await callout.ask(session, grant, user.token)
            if grant.account == claim.name:
                grant = replace(grant, permissions=deny_callouts(grant.permissions))
        return grant


def _grant(user: JWTUser) -> Grant:
    return Grant(
        account=user.account,
        permissions=user.permissions,
        expires=seconds_left(user.expires),
        max_subs=user.max_subs,
        max_payload=user.max_payload,
        pub_key=user.user,
        issuer_key=user.signing_key or user.account,
        name_tag=user.name,
        tags=user.tags,
        user=user,
    )


def granted_permissions(user: JWTUser, account: ClaimAccount) -> Permissions | None:
    """Return the permissions of a connected user after a change of its account."""
    return deny_callouts(user.permissions) if account.external_auth else user.permissions
