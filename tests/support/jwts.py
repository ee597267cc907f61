"""JWTs for tests: an operator, accounts and users, and what of them is to be wrong."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

from gnats.clock import unix_time
from gnats.jwt.account import AccountClaims
from gnats.jwt.claims import OperatorClaims, UserClaims
from gnats.jwt.token import encode
from gnats.nkeys.nkeys import KeyPair, Prefix

HOUR = 3600


def operator() -> KeyPair:
    return KeyPair.create(Prefix.OPERATOR)


def account() -> KeyPair:
    return KeyPair.create(Prefix.ACCOUNT)


def user() -> KeyPair:
    return KeyPair.create(Prefix.USER)


def operator_jwt(key: KeyPair, **nats: Any) -> str:
    claims = OperatorClaims(sub=key.public_key, name="O")
    for name, value in nats.items():
        setattr(claims.nats, name, value)
    return encode(claims, key)


def account_jwt(key: KeyPair, signer: KeyPair, **nats: Any) -> str:
    claims = AccountClaims.new(key.public_key)
    for name, value in nats.items():
        setattr(claims.nats, name, value)
    return encode(claims, signer)


def user_jwt(key: KeyPair, signer: KeyPair, **nats: Any) -> str:
    claims = UserClaims.new(key.public_key)
    for name, value in nats.items():
        setattr(claims.nats, name, value)
    return encode(claims, signer)


def raw_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def payload(token: str) -> dict[str, Any]:
    """What a JWT's middle says."""
    middle = token.split(".")[1]
    decoded: dict[str, Any] = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    return decoded


def sign(members: object, signer: KeyPair, *, version: int = 2, header: dict[str, str] | None = None) -> str:
    """The JWT of any JSON, signed in the way of version 1 or 2."""
    algorithm = "ed25519" if version == 1 else "ed25519-nkey"
    head = raw_base64(json.dumps(header or {"typ": "JWT", "alg": algorithm}).encode())
    body = raw_base64(json.dumps(members).encode())
    signed = body if version == 1 else f"{head}.{body}"
    return f"{head}.{body}.{raw_base64(signer.sign(signed.encode()))}"


def resign(token: str, signer: KeyPair, **changes: Any) -> str:
    """A JWT with other members, signed again; a member that is None is taken out."""
    members = payload(token) | changes
    return sign({name: value for name, value in members.items() if value is not None}, signer)


@dataclass
class Attempt:
    """A user of an account that is about to connect; a test changes what it is about.

    A JWT set by hand replaces the one that is made from the claims.
    """

    operator: KeyPair
    account: KeyPair = field(default_factory=account)
    user: KeyPair = field(default_factory=user)
    account_signer: KeyPair | None = None
    user_signer: KeyPair | None = None
    nonce_signer: KeyPair | None = None
    account_jwt: str = ""
    user_jwt: str = ""
    connect: dict[str, Any] = field(default_factory=dict)
    """Fields of CONNECT to set, or with None to leave out."""
    now: int = field(default_factory=lambda: int(unix_time()))

    def __post_init__(self) -> None:
        self.account_claims = AccountClaims.new(self.account.public_key)
        self.account_claims.name = "Acme"
        self.user_claims = UserClaims.new(self.user.public_key)
        self.user_claims.name = "Ann"

    @property
    def a(self) -> Any:
        """The `nats` part of the account."""
        return self.account_claims.nats

    @property
    def u(self) -> Any:
        """The `nats` part of the user."""
        return self.user_claims.nats

    def signing_key(self, scope: Any = None) -> KeyPair:
        """A new signing key of the account signs the user."""
        key = account()
        if scope is not None:
            scope.key = key.public_key
        self.a.signing_keys[key.public_key] = scope
        self.u.issuer_account = self.account.public_key
        self.user_signer = key
        return key

    def make(self) -> None:
        """Sign the JWTs."""
        self.account_jwt = self.account_jwt or encode(
            self.account_claims, self.account_signer or self.operator
        )
        self.user_jwt = self.user_jwt or encode(self.user_claims, self.user_signer or self.account)

    def connect_options(self, nonce: str) -> dict[str, Any]:
        """The fields of CONNECT."""
        signer = self.nonce_signer or self.user
        fields = {"jwt": self.user_jwt, "sig": raw_base64(signer.sign(nonce.encode()))} | self.connect
        return {name: value for name, value in fields.items() if value is not None}
