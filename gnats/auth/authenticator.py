"""Check clients against the users, nkeys and the token of the configuration (auth.go).

A check returns a Grant, or a coroutine that returns one (because a password hash takes time). It raises
Denied. The reason goes to the debug log only, not to the client.
"""

import base64
import os
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from gnats.auth.passwords import TooManyWaitError, check_password, check_password_async, is_bcrypt
from gnats.client.grant import Grant, JWTUser
from gnats.connection.closed_state import ClosedState
from gnats.go.text import quote
from gnats.log.logger import Logger
from gnats.nkeys.nkeys import NkeyError, verify_nonce
from gnats.options.options import Options
from gnats.options.values.auth import GLOBAL_ACCOUNT, NkeyUser, User

if TYPE_CHECKING:
    from gnats.client.session import Session

NONCE_BYTES = 11


class Denied(Exception):
    """A client may not connect; the text is for the debug log, "" for no line.

    The authentication error is published in `account`, "": the client's present one. `reason` is the reason
    in it, instead of the state's text.
    """

    def __init__(
        self,
        why: str = "",
        state: ClosedState = ClosedState.AUTHENTICATION_VIOLATION,
        *,
        account: str = "",
        reason: str | None = None,
    ) -> None:
        super().__init__(why)
        self.state = state
        self.account = account
        self.reason = str(state) if reason is None else reason


Decision = Grant | Coroutine[Any, Any, Grant]


def new_nonce() -> str:
    """Return a random text for a client to sign: 15 characters of base64."""
    return base64.urlsafe_b64encode(os.urandom(NONCE_BYTES)).rstrip(b"=").decode()


def _check_nonce(public_key: str, nonce: str, sig: str) -> None:
    try:
        verify_nonce(public_key, nonce, sig)
    except NkeyError as exc:
        raise Denied(str(exc)) from None


class Authenticator:
    """Decides which clients may connect, by the options. A reload makes a new one."""

    takes_jwts = False
    """Whether a JWT in CONNECT is used."""

    def __init__(self, opts: Options, log: Logger) -> None:
        self._opts = opts
        self._log = log
        self.users = {user.username: user for user in opts.users}
        self.nkeys = {user.nkey: user for user in opts.nkeys}
        self.required = bool(self.users or self.nkeys or opts.username or opts.authorization)
        self.nonce_required = bool(self.nkeys)
        self._secrets = opts.username, opts.password, opts.authorization
        self._tls_map = opts.tls is not None and opts.tls.verify_and_map
        leafs = opts.leafnodes.tls
        self._leaf_tls_map = leafs is not None and leafs.verify_and_map

    @property
    def plaintext_passwords(self) -> bool:
        """Whether the options have a clear-text password (not a token) that no certificate replaces."""
        opts = self._opts
        stored = [opts.password] if opts.password else []
        stored += [user.password for user in opts.users if user.password or not self._maps(user)]
        return not all(map(is_bcrypt, stored))

    def check(self, session: "Session") -> Decision:
        """Decide whether the client may connect with its CONNECT options. Raises Denied.

        May change session.opts: a client without credentials becomes `no_auth_user`, a client with a mapped
        certificate becomes the user of that name.
        """
        return self._verify(session, self._select(session))

    def _select(self, session: "Session") -> User | NkeyUser | None:
        """Return the configured user that a client claims to be, None when it names none.

        An nkey comes before a user name when the client gives both. Changes session.opts as check() says.
        Raises Denied.
        """
        return self._nkey_user(session) or (self._user(session) if self.users else None)

    def _verify(self, session: "Session", user: User | NkeyUser | None) -> Decision:
        """Verify that a client is the user that it claims to be, or, without one, has the configured secret.

        Raises Denied.
        """
        opts, client = self._opts, session.opts
        if not self.required:
            return Grant()
        if user is not None and not _connection_type_allowed(user, session.connection_type):
            raise Denied
        if user is not None and user.proxy_required:  # no proxy is trusted
            raise Denied("proxy connection required", ClosedState.PROXY_REQUIRED)
        if isinstance(user, NkeyUser):
            if user.nkey != opts.no_auth_user:
                _check_nonce(user.nkey, session.nonce, client.sig)
            return _grant_nkey(user)
        if user is not None:
            return self._check_user(session, user, client.password)
        if opts.authorization:
            return self._check_secret(session, opts.authorization, client.auth_token, self._single_grant())
        if opts.username:
            if opts.username != client.user:
                raise Denied
            return self._check_secret(session, opts.password, client.password, self._single_grant())
        raise Denied

    def _single_grant(self) -> Grant:
        """Return the grant of a client with the token, or of the single user."""
        return Grant() if self._opts.authorization else Grant(permissions=self._opts.permissions)

    def recheck(self, session: "Session", before: "Authenticator") -> Decision:
        """Check a client again that `before` has let in; unchanged credentials are not verified again."""
        return self._still_granted(session, before) or self.check(session)

    def _still_granted(self, session: "Session", before: "Authenticator") -> Grant | None:
        """Return the grant of a client whose credentials are those that `before` verified, else None."""
        was = session.grant.user
        if isinstance(was, NkeyUser):
            nkey = self.nkeys.get(was.nkey)
            if nkey and _connection_type_allowed(nkey, session.connection_type) and not nkey.proxy_required:
                return _grant_nkey(nkey)
        if isinstance(was, User) and not self._maps_certificate(session):
            user = self.users.get(was.username)
            same = user and user.password == was.password and not user.proxy_required
            if user and same and _connection_type_allowed(user, session.connection_type):
                return Grant(user.account or GLOBAL_ACCOUNT, user.permissions, user=user)
        if was is None and before.required and self._secrets == before._secrets:
            return self._single_grant()
        return None

    def user_like(self, user: User | NkeyUser | JWTUser) -> User | NkeyUser | None:
        """Return the present user of the same name or key, None without one."""
        if isinstance(user, NkeyUser):
            return self.nkeys.get(user.nkey)
        return self.users.get(user.username) if isinstance(user, User) else None

    def _nkey_user(self, session: "Session") -> NkeyUser | None:
        client, no_auth_user = session.opts, self._opts.no_auth_user
        if not self.nkeys:
            return None
        if no_auth_user in self.nkeys and not (
            client.user or client.password or client.auth_token or client.nkey
        ):
            client.nkey = no_auth_user
        if not client.nkey:
            return None
        user = self.nkeys.get(client.nkey)
        if user is None:
            raise Denied
        return user

    def _user(self, session: "Session") -> User | None:
        client = session.opts
        if self._maps_certificate(session):
            user = self._mapped_user(session)
            if client.user:
                text = f"User {quote(client.user)} found in connect proto, but user required from cert"
                self._log.warn(text)
            client.user = user.username
            return user
        no_auth_user = self.users.get(self._opts.no_auth_user)
        if no_auth_user and not (client.user or client.password or client.auth_token):
            client.user, client.password = no_auth_user.username, no_auth_user.password
            return no_auth_user
        if not client.user:
            return None
        named = self.users.get(client.user)
        if named is None:
            raise Denied
        return named

    def _mapped_user(self, session: "Session") -> User:
        from gnats.tls.certmap import find_user

        kind = session.connection_type
        allowed = {name: user for name, user in self.users.items() if _connection_type_allowed(user, kind)}
        name, why = find_user(session.peer_certificate(), allowed)
        if name is None:
            raise Denied(why)
        self._log.debug(f"{session} - {why}")
        return self.users[name]

    def _maps_certificate(self, session: "Session") -> bool:
        """Whether a name in the connection's certificate is its user."""
        return self._leaf_tls_map if session.connection_type == "LEAFNODE" else self._tls_map

    def _maps(self, user: User) -> bool:
        return self._tls_map and _connection_type_allowed(user)

    def _check_user(self, session: "Session", user: User, password: str) -> Decision:
        granted = Grant(user.account or GLOBAL_ACCOUNT, user.permissions, user=user)
        return self._check_secret(session, user.password, password, granted)

    @staticmethod
    def _check_secret(session: "Session", stored: str, given: str, granted: Grant) -> Decision:
        if is_bcrypt(stored):
            return _check_hash(stored, given, session.host, granted)
        if not check_password(stored, given):
            raise Denied
        return granted


def _grant_nkey(user: NkeyUser) -> Grant:
    account = user.account or GLOBAL_ACCOUNT
    return Grant(account, user.permissions, issuer_key=account, user=user)


async def _check_hash(stored: str, given: str, address: str, granted: Grant) -> Grant:
    try:
        good = await check_password_async(stored, given, address)
    except TooManyWaitError as exc:
        raise Denied(str(exc)) from None
    if not good:
        raise Denied
    return granted


def _connection_type_allowed(user: User | NkeyUser, kind: str = "STANDARD") -> bool:
    return not user.allowed_connection_types or kind in user.allowed_connection_types
