"""Auth callouts: a service decides whether a client may connect, and as which user (auth_callout.go).

The server publishes a JWT about the client to $SYS.REQ.USER.AUTH, signed with its own key. The answer is a
JWT that contains an error or a user JWT; the user's key is made for this one request. Both may be sealed.
The subclasses decide whose signatures are valid and where users may be placed: with a configuration file and
with JWTs these rules differ.
"""

import asyncio
import base64
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gnats.accounts.internal_client import Message
from gnats.auth.account_jwt import build_permissions
from gnats.auth.authenticator import Denied
from gnats.auth.user_jwt import expires, seconds_left
from gnats.client.grant import Grant, JWTUser
from gnats.clock import timeout, unix_time
from gnats.connection.closed_state import ClosedState
from gnats.go.text import quote
from gnats.jwt.claims import (
    AuthorizationRequest,
    AuthorizationRequestClaims,
    AuthorizationResponseClaims,
    ClientInformation,
    ClientTLS,
    ConnectOptions,
    ServerID,
    UserClaims,
    UserPermissionLimits,
)
from gnats.jwt.token import PREFIX, JWTError, decode, decode_as, encode
from gnats.jwt.validation import validate
from gnats.jwt.windows import validate_times
from gnats.nkeys.identity import NuidSource, server_hash
from gnats.nkeys.nkeys import CurveKeyPair, KeyPair, NkeyError, Prefix
from gnats.options.values.auth import CONNECTION_TYPES, Permissions, SubjectPermission
from gnats.version import NATS_VERSION

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.accounts.accounts import Accounts
    from gnats.accounts.internal_clients import InternalClients
    from gnats.client.session import Session
    from gnats.jwt.account import UserScope
    from gnats.log.logger import Logger
    from gnats.nkeys.identity import Identity
    from gnats.options.options import Options

SUBJECT = "$SYS.REQ.USER.AUTH"
AUDIENCE = "nats-authorization-request"
XKEY_HEADER = "Nats-Server-Xkey"


def deny_callouts(permissions: Permissions | None) -> Permissions:
    """Deny publishing to the callout's subject, on which only the server may publish."""
    permissions = permissions or Permissions()
    publish = permissions.publish or SubjectPermission()
    return replace(permissions, publish=replace(publish, deny=(*publish.deny, SUBJECT)))


class Violation(Exception):
    """The service's answer does not let the client in; the text is nats-server's."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A user's account, the account's default permissions, the user's own, and its signing key's scope."""

    account: str
    default_permissions: Permissions | None
    limits: UserPermissionLimits
    scope: "UserScope | None" = None


@dataclass(frozen=True, slots=True)
class CalloutParts:
    """The parts of a server that its callouts need. The server has keys, with an auth callout."""

    identity: "Identity"
    accounts: "Accounts"
    clients: "InternalClients"
    log: "Logger"


class Callout(ABC):
    """The callout service of `account`.

    `subject` is the `sub` of the requests' JWTs. `xkey` is the service's curve key that requests are sealed
    for, "" for clear text.
    """

    def __init__(
        self, parts: CalloutParts, opts: "Options", account: "Account", subject: str, xkey: str
    ) -> None:
        assert parts.identity.keys is not None
        self._parts = parts
        self._log = parts.log
        self._opts = opts
        self._keys = parts.identity.keys
        self._server_name = parts.identity.name
        self._account = account
        self._subject = subject
        self._xkey = xkey

    @abstractmethod
    def check_signer(self, response: AuthorizationResponseClaims) -> None:
        """Raise Violation unless the service signed an answer that was not sealed."""

    @abstractmethod
    async def place(self, claims: UserClaims) -> Placement:
        """Return the user's placement. Raises Violation when the signer of its JWT may not place it so."""

    async def ask(self, session: "Session", grant: Grant, token: str = "") -> Grant:
        """Ask the service about a client, and return the grant that the answer gives it.

        `grant` is the client's grant without the callout; `token` is the JWT of its CONNECT. Changes the name
        in session.opts to the user's. Raises Denied.
        """
        log, account = self._log, self._account.name
        reason = ""
        state = ClosedState.AUTHENTICATION_VIOLATION
        try:
            claims = await self._request(session, grant, token)
            if claims.nats.proxy_required:
                state = ClosedState.PROXY_REQUIRED
                raise Violation("proxy connection required")
            placed = await self._admit(session, grant, claims)
        except TimeoutError:
            log.debug(f"Authorization callout response not received in time on account {quote(account)}")
        except (Violation, JWTError) as exc:
            reason = str(exc)[:1].upper() + str(exc)[1:]
            log.warn(reason)
        else:
            opts = session.opts
            opts.jwt = ""
            if claims.name:
                opts.user, opts.nkey, opts.auth_token = claims.name, "", ""
            return placed
        raise Denied("", state, account=account, reason=reason)

    # -- the request -----------------------------------------------------------------------------------------

    async def _request(self, session: "Session", grant: Grant, token: str) -> UserClaims:
        """Send the request, and return the user's claims in the answer.

        Raises TimeoutError, Violation, JWTError.
        """
        keys = self._keys
        seal = keys.curve if self._xkey else None
        user = KeyPair.create(Prefix.USER).public_key
        claims = AuthorizationRequestClaims(
            sub=self._subject,
            aud=AUDIENCE,
            exp=int(unix_time() + self._opts.auth_timeout),
            nats=self._describe(session, grant),
        )
        claims.nats.user_nkey = user
        claims.nats.connect_opts.jwt = token
        claims.nats.server_id.xkey = seal.public_key if seal else ""
        request, header = encode(claims, keys.signing).encode(), None
        if seal:
            request = seal.seal(request, self._xkey)
            header = f"NATS/1.0\r\n{XKEY_HEADER}: {seal.public_key}\r\n\r\n".encode()
        payload = await self._exchange(request, header)
        return self._check_response(payload, user, seal)

    async def _exchange(self, request: bytes, header: bytes | None) -> bytes:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def receive(reply: Message) -> None:
            if not answer.done():
                answer.set_result(reply.payload)

        client = self._parts.clients.of(self._account)
        inbox = f"$SYS._INBOX.{server_hash(self._server_name)}.{_ids.next()}".encode()
        sid = client.subscribe(inbox, receive)
        try:
            client.publish(SUBJECT.encode(), request, reply=inbox, header=header)
            async with timeout(self._opts.auth_timeout):
                return await answer
        finally:
            client.unsubscribe(sid)

    def _describe(self, session: "Session", grant: Grant) -> AuthorizationRequest:
        mine, opts = self._opts, session.opts
        name = opts.nkey or opts.user or grant.pub_key or ("[REDACTED]" if opts.auth_token else "")
        return AuthorizationRequest(
            server_id=ServerID(
                name=self._server_name,
                host=mine.host,
                id=self._keys.signing.public_key,
                version=NATS_VERSION,
                cluster=mine.cluster.name,
                tags=mine.server_tags or None,
            ),
            client_info=ClientInformation(
                host=session.host,
                id=session.cid,
                user=name,
                name=opts.name,
                tags=grant.tags or None,
                name_tag=grant.name_tag,
                kind="Client",
                type="nats",
                nonce=session.nonce if opts.sig else "",
            ),
            connect_opts=ConnectOptions(
                nkey=opts.nkey,
                sig=opts.sig,
                auth_token=opts.auth_token,
                user=opts.user,
                password=opts.password,
                name=opts.name,
                lang=opts.lang,
                version=opts.version,
                protocol=opts.protocol,
            ),
            client_tls=_describe_tls(session),
        )

    # -- the answer ------------------------------------------------------------------------------------------

    def _check_response(self, payload: bytes, user: str, seal: CurveKeyPair | None) -> UserClaims:
        """Open and check an answer, and return the user's claims in it. Raises Violation, JWTError."""
        account = quote(self._account.name)
        if not payload:
            raise Violation(f'auth callout violation: "no reason supplied" on account {account}')
        sealed = seal is not None and not payload.startswith(PREFIX.encode())
        if seal is not None and sealed:
            try:
                payload = seal.open(payload, self._xkey)
            except NkeyError as exc:
                raise Violation(
                    f"error decrypting auth callout response on account {account}: {exc}"
                ) from None
        response = decode(payload.decode("utf-8", "replace"))
        if not isinstance(response, AuthorizationResponseClaims):
            raise Violation("not an authorization request claim")
        if issues := validate(response).issues:
            raise Violation(f"authorization response had validation errors: {issues[0].description}")
        if response.sub != user:
            raise Violation("auth callout violation: auth callout response is not for expected user")
        if response.aud != self._keys.signing.public_key:
            raise Violation("auth callout violation: auth callout response is not for server")
        if response.nats.error:
            raise Violation(f"auth callout service returned an error: {response.nats.error}")
        if not sealed:
            self.check_signer(response)
        claims = decode_as(UserClaims, response.nats.jwt)
        if issues := validate(claims).issues:
            raise Violation(f"Error validating user JWT: {issues[0].description}")
        if claims.sub != user:
            raise Violation(
                f"Expected authorized user of {quote(user)} but got {quote(claims.sub)} on account {account}"
            )
        return claims

    async def _admit(self, session: "Session", grant: Grant, claims: UserClaims) -> Grant:
        log, account = self._log, quote(self._account.name)
        valid_for = validate_times(claims.nats)
        if valid_for is None:
            log.error(f"{session} - Outside connect times")
            raise Violation(f"authorized user on account {account} outside of valid connect times")
        types = [each.upper() for each in claims.nats.allowed_connection_types or ()]
        if types and CONNECTION_TYPES.isdisjoint(types):
            raise Violation(f"authorized user on account {account} using invalid connection type")
        placement = await self.place(claims)
        permissions = build_permissions(placement.limits)
        uses_default = permissions is None
        if uses_default:
            permissions = placement.default_permissions
        signing_key = claims.iss if claims.nats.issuer_account else ""
        end = expires(claims.exp, valid_for)
        user = JWTUser(
            account=placement.account,
            user=claims.sub,
            name=claims.name,
            tags=claims.nats.tags or (),
            issuer=claims.iss,
            signing_key=signing_key,
            issued_at=claims.iat,
            token="",
            permissions=permissions,
            uses_default_permissions=uses_default,
            max_subs=-1,
            max_payload=-1,
            max_data=-1,
            expires=end,
            connection_types=frozenset(types),
            scope=placement.scope,
            bearer=False,
            proxy_required=False,
        )
        ends = [left for left in (grant.expires, seconds_left(end)) if left is not None]
        return Grant(
            account=placement.account,
            permissions=permissions,
            expires=min(ends, default=None),
            pub_key="" if claims.name else grant.pub_key,
            issuer_key=signing_key or placement.account,
            name_tag=grant.name_tag,
            tags=grant.tags,
            user=user,
        )


_ids = NuidSource()


def _describe_tls(session: "Session") -> ClientTLS | None:
    info = session.tls_info()
    if info is None:
        return None
    certs = tuple(map(_pem, info["peer_certs"]))
    chains = (certs,) if info["verified"] and certs else None
    return ClientTLS(
        version=info["version"],
        cipher=info["cipher_suite"],
        certs=None if chains else certs or None,
        verified_chains=chains,
    )


def _pem(certificate: bytes) -> str:
    text = base64.b64encode(certificate).decode()
    lines: Sequence[str] = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join(["-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""])
