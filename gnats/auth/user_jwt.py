"""Check the user JWT of a client's CONNECT: the JWT part of auth.go."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gnats.auth.account_jwt import AccountError, ClaimAccount, build_permissions, clamp
from gnats.client.grant import JWTUser
from gnats.clock import unix_time
from gnats.connection.closed_state import ClosedState
from gnats.connection.connect_options import ClientOptions
from gnats.go.text import quote
from gnats.jwt.claims import UserClaims, UserPermissionLimits
from gnats.jwt.templates import TemplateError, expand
from gnats.jwt.token import JWTError, decode_as
from gnats.jwt.validation import validate
from gnats.jwt.windows import validate_src, validate_times
from gnats.nkeys.nkeys import NkeyError, verify_nonce
from gnats.options.values.auth import CONNECTION_TYPES


class Accounts(Protocol):
    """The accounts as an attempt sees them: an OperatorMode."""

    @property
    def trusted_keys(self) -> frozenset[str]: ...

    @property
    def sentinel(self) -> str:
        """Default JWT for clients that send none; "": a JWT is required."""

    def is_pinned(self, account: str) -> bool: ...

    async def lookup_account(self, name: str) -> ClaimAccount:
        """Return the account with that public key, fetched if need be. Raises AccountError."""


@dataclass(frozen=True, slots=True)
class Authentication:
    """The result of an attempt; `user` is None when the client was refused.

    `account` and `claims` are set if they were found, even when the client was refused, because the account's
    auth callout may still let it in. `text` is for the log, at `level` "debug" or "error".
    """

    user: JWTUser | None
    text: str
    level: str = "debug"
    reason: ClosedState = ClosedState.AUTHENTICATION_VIOLATION
    account: ClaimAccount | None = None
    claims: UserClaims | None = None


@dataclass(frozen=True, slots=True)
class Eviction:
    """The reason to close a client, and the text of its -ERR, "" for none."""

    reason: ClosedState
    err: str


class Refused(Exception):
    def __init__(
        self,
        text: str,
        level: str = "debug",
        reason: ClosedState = ClosedState.AUTHENTICATION_VIOLATION,
    ) -> None:
        super().__init__(text)
        self.level = level
        self.reason = reason


class Attempt:
    """The check of one client's CONNECT."""

    def __init__(
        self,
        mode: Accounts,
        connect: ClientOptions,
        nonce: str,
        remote_ip: str,
        connection_type: str,
        trusted_proxy: bool,
    ) -> None:
        self.mode = mode
        self.connect = connect
        self.nonce = nonce
        self.remote_ip = remote_ip
        self.connection_type = connection_type
        self.trusted_proxy = trusted_proxy
        self.account: ClaimAccount | None = None
        self.claims: UserClaims | None = None

    async def run(self) -> JWTUser:
        """Return the user. Raises Refused; `account` and `claims` are set if they were found."""
        token, claims = self._user_claims()
        self.claims = claims
        account = await self._lookup(claims)
        self.account = account
        limits = self._permission_limits(claims, account)
        if account.is_expired:
            raise Refused("Account JWT has expired")
        if limits.bearer_token and account.disallow_bearer:
            raise Refused("Account does not allow bearer tokens")
        connection_types = self._connection_types(limits)
        if not limits.bearer_token:
            self._check_nonce(claims)
        if account.is_user_revoked(claims.sub, claims.iat):
            raise Refused("User authentication revoked")
        if not validate_src(limits, self.remote_ip):
            raise Refused(f"Bad src Ip {self.remote_ip}", "error")
        valid_for = validate_times(limits)
        if valid_for is None:
            raise Refused("Outside connect times", "error")
        permissions = build_permissions(limits)
        max_subs, max_payload = _own_limits(claims, account)
        return JWTUser(
            account=account.name,
            user=claims.sub,
            name=claims.name,
            tags=claims.nats.tags or (),
            issuer=claims.iss,
            signing_key=claims.iss if claims.nats.issuer_account else "",
            issued_at=claims.iat,
            token=token,
            permissions=permissions or account.default_permissions,
            uses_default_permissions=permissions is None,
            max_subs=max_subs,
            max_payload=max_payload,
            max_data=limits.data,
            expires=expires(claims.exp, valid_for),
            connection_types=connection_types,
            scope=account.signing_keys[claims.iss],
            bearer=limits.bearer_token,
            proxy_required=limits.proxy_required,
        )

    def _user_claims(self) -> tuple[str, UserClaims]:
        """Return the client's JWT, or the default one, and its claims. Raises Refused."""
        connect = self.connect
        token, claims = connect.jwt, _decode_user(connect.jwt)
        if not connect.jwt and self.connection_type.startswith("MQTT"):
            token, claims = connect.password, _decode_user(connect.password)
        if claims is None and self.mode.sentinel:
            token = self.mode.sentinel
            claims = _decode_user(token)
        if claims is None:
            raise Refused("Authentication requires a user JWT")
        connect.jwt = token
        if claims.nats.proxy_required and not self.trusted_proxy:
            raise Refused("proxy connection required", reason=ClosedState.PROXY_REQUIRED)
        issues = validate(claims)
        if issues.is_blocking(time_checks=True):
            raise Refused(f"User JWT no longer valid: {issues}")
        return token, claims

    async def _lookup(self, claims: UserClaims) -> ClaimAccount:
        if not self.mode.is_pinned(claims.account):
            raise Refused(f"Account {claims.account} not listed as operator pinned account")
        try:
            account = await self.mode.lookup_account(claims.account)
        except AccountError as exc:
            raise Refused(f"Account JWT lookup error: {exc}") from None
        if account.issuer not in self.mode.trusted_keys:
            raise Refused("Account JWT not signed by trusted operator")
        return account

    def _permission_limits(self, claims: UserClaims, account: ClaimAccount) -> UserPermissionLimits:
        """Return the user's permissions and limits: of its JWT, or of the scope of its signing key."""
        if claims.iss not in account.signing_keys:
            raise Refused("User JWT issuer is not known")
        scope = account.signing_keys[claims.iss]
        if scope is None:
            return claims.nats
        if not claims.has_empty_permissions():
            raise Refused("User JWT is not valid: scoped users require no permissions or limits set")
        try:
            return expand(scope.template, claims, account.claims.name, account.claims.nats.tags)
        except TemplateError:
            raise Refused("User JWT generated invalid permissions") from None

    def _connection_types(self, limits: UserPermissionLimits) -> frozenset[str]:
        """Return the allowed types, empty for all. Raises Refused when they exclude this connection's."""
        named = [each.upper() for each in limits.allowed_connection_types or ()]
        known = CONNECTION_TYPES.intersection(named)
        if named and not known:  # this server knows none of the allowed types
            raise Refused(f"invalid connection types {_list(named)}")
        if known and self.connection_type not in known:
            raise Refused("Connection type not allowed")
        return known

    def _check_nonce(self, claims: UserClaims) -> None:
        try:
            verify_nonce(claims.sub, self.nonce, self.connect.sig)
        except NkeyError as exc:
            raise Refused(str(exc)) from None

    def describe(self, user: JWTUser) -> str:
        """Return the log's text about a user that may connect."""
        account = self.account
        assert account is not None
        kind = "Leafnode" if self.connection_type.startswith("LEAF") else "Client"
        return (
            f"Authenticated JWT: {kind} {quote(user.user)} (claim-name: {quote(user.name)},"
            f" claim-tags: {_list(user.tags)}) signed with {quote(user.issuer)} by Account"
            f" {quote(account.name)} (claim-name: {quote(account.claims.name)},"
            f" claim-tags: {_list(account.claims.nats.tags or ())}) signed with {quote(account.issuer)}"
        )


def _list(words: Sequence[str]) -> str:
    return f"[{' '.join(quote(word) for word in words)}]"


def _decode_user(token: str) -> UserClaims | None:
    try:
        return decode_as(UserClaims, token) if token else None
    except JWTError:
        return None


def _own_limits(claims: UserClaims, account: ClaimAccount) -> tuple[int, int]:
    """Return (max_subs, max_payload) of a user's JWT or its scope."""
    limits: UserPermissionLimits = claims.nats
    if claims.nats.issuer_account not in ("", claims.iss) and (scope := account.signing_keys.get(claims.iss)):
        limits = scope.template
    return clamp(limits.subs), clamp(limits.payload)


def seconds_left(end: float) -> float | None:
    """Return the seconds until `end`, a result of expires(), None for 0; the last second counts in full."""
    return max(0.0, end - int(unix_time())) if end else None


def expires(exp: int, valid_for: float) -> float:
    """Return when a client must be closed, in seconds since 1970, 0 for never.

    That is the end of its JWT (`exp`, 0 for none), or of its connect times, `valid_for` seconds from now.
    """
    ends = [float(exp)] if exp else []
    if valid_for:
        ends.append(unix_time() + valid_for)
    return min(ends, default=0.0)
