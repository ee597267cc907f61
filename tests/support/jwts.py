"""JWTs of operators, accounts and users for tests, valid or wrong on purpose."""

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
    """Decode the claims, the middle part of a JWT."""
    middle = token.split(".")[1]
    decoded: dict[str, Any] = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    return decoded


def sign(members: object, signer: KeyPair, *, version: int = 2, header: dict[str, str] | None = None) -> str:
    """Encode any JSON as a JWT, signed as in version 1 or 2 of NATS's JWTs."""
    algorithm = "ed25519" if version == 1 else "ed25519-nkey"
    head = raw_base64(json.dumps(header or {"typ": "JWT", "alg": algorithm}).encode())
    body = raw_base64(json.dumps(members).encode())
    signed = body if version == 1 else f"{head}.{body}"
    return f"{head}.{body}.{raw_base64(signer.sign(signed.encode()))}"


def resign(token: str, signer: KeyPair, **changes: Any) -> str:
    """Change members of a JWT's claims, remove those that are None, and sign it again."""
    members = payload(token) | changes
    return sign({name: value for name, value in members.items() if value is not None}, signer)


@dataclass
class Attempt:
    """A user of an account, ready to connect; a test changes the parts that it is about.

    `account_jwt` and `user_jwt` replace the JWTs made from the claims. The signers default to the right keys.
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
    """Members of CONNECT to set; None leaves a member out."""
    now: int = field(default_factory=lambda: int(unix_time()))

    def __post_init__(self) -> None:
        self.account_claims = AccountClaims.new(self.account.public_key)
        self.account_claims.name = "Acme"
        self.user_claims = UserClaims.new(self.user.public_key)
        self.user_claims.name = "Ann"

    @property
    def a(self) -> Any:
        """The `nats` member of the account's claims."""
        return self.account_claims.nats

    @property
    def u(self) -> Any:
        """The `nats` member of the user's claims."""
        return self.user_claims.nats

    def signing_key(self, scope: Any = None) -> KeyPair:
        """Add a signing key to the account, with a scope if given, and have it sign the user; return it."""
        key = account()
        if scope is not None:
            scope.key = key.public_key
        self.a.signing_keys[key.public_key] = scope
        self.u.issuer_account = self.account.public_key
        self.user_signer = key
        return key

    def make(self) -> None:
        """Make and sign the JWTs that are not set yet."""
        self.account_jwt = self.account_jwt or encode(
            self.account_claims, self.account_signer or self.operator
        )
        self.user_jwt = self.user_jwt or encode(self.user_claims, self.user_signer or self.account)

    def connect_options(self, nonce: str) -> dict[str, Any]:
        """Return the members of CONNECT that log in: jwt, sig (of the nonce) and `connect`."""
        signer = self.nonce_signer or self.user
        fields = {"jwt": self.user_jwt, "sig": raw_base64(signer.sign(nonce.encode()))} | self.connect
        return {name: value for name, value in fields.items() if value is not None}
