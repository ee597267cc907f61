"""An operator with accounts and users, servers that trust it, and raw clients that come with JWTs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gnats.jwt.account import AccountClaims
from gnats.jwt.claims import UserClaims
from gnats.jwt.token import encode
from gnats.nkeys.nkeys import KeyPair

from . import jwts
from .servers import Server
from .wire import Closed, Connection, connect_op


class Refused(Exception):
    """The server has closed the connection; `args[0]` is what it said."""


@dataclass
class Account:
    """An account that a test changes and signs again."""

    operator: KeyPair
    key: KeyPair = field(default_factory=jwts.account)

    def __post_init__(self) -> None:
        self.claims = AccountClaims.new(self.key.public_key)

    @property
    def name(self) -> str:
        return self.key.public_key

    @property
    def nats(self) -> Any:
        return self.claims.nats

    @property
    def jwt(self) -> str:
        return encode(self.claims, self.operator)

    def user(self, signer: KeyPair | None = None, **nats: Any) -> User:
        """A user; one of a signing key has no limits of its own."""
        key = jwts.user()
        claims = UserClaims.new(key.public_key)
        if signer:
            claims.nats = type(claims.nats)(issuer_account=self.name)
        for name, value in nats.items():
            setattr(claims.nats, name, value)
        return User(claims, key, signer or self.key)


@dataclass
class User:
    claims: UserClaims
    key: KeyPair
    signer: KeyPair

    @property
    def jwt(self) -> str:
        return encode(self.claims, self.signer)

    def connect(self, server: Server, **more: Any) -> Connection:
        """Connected as this user. Raises Refused."""
        return connect(server, self.key, jwt=self.jwt, **more)


class Trust:
    """An operator, its system account, and a configuration that trusts it."""

    def __init__(self, **nats: Any) -> None:
        self.operator = jwts.operator()
        self.system = self.account()
        self.jwt = jwts.operator_jwt(self.operator, system_account=self.system.name, **nats)

    def account(self) -> Account:
        return Account(self.operator)

    def config(self, *accounts: Account, resolver: str = "MEM", more: str = "") -> str:
        """`accounts` are preloaded, with the system account."""
        tokens = "\n".join(f"{account.name}: {account.jwt}" for account in (self.system, *accounts))
        preload = f"resolver_preload {{\n{tokens}\n}}\n" if not resolver.startswith("URL") else ""
        return f"operator: {self.jwt}\nresolver: {resolver}\n{preload}{more}\n"

    def push(self, server: Server, account: Account) -> dict[str, Any]:
        """Have the server take over what the account is now; its answer."""
        return self.ask(server, f"$SYS.REQ.ACCOUNT.{account.name}.CLAIMS.UPDATE", account.jwt)

    def ask(self, server: Server, subject: str, payload: str = "") -> dict[str, Any]:
        """Ask in the system account; the answer without the server's name."""
        with self.system.user().connect(server) as connection:
            answer: dict[str, Any] = json.loads(request(connection, subject, payload.encode()))
        del answer["server"]
        return answer


def connect(server: Server, key: KeyPair | None = None, **options: Any) -> Connection:
    """A raw connection that has said CONNECT with these options, signed with a key. Raises Refused."""
    connection = Connection(server.address)
    try:
        if key:
            nonce = connection.info["nonce"]
            options.setdefault("sig", jwts.raw_base64(key.sign(nonce.encode())))
        connection.send(connect_op(**{"pedantic": False} | options))
        connection.fence()
    except Closed as closed:
        connection.close()
        raise Refused(closed.args[0]) from None
    return connection


def request(connection: Connection, subject: str, payload: bytes = b"") -> bytes:
    """The payload of the one answer to a request."""
    connection.send(b"SUB _INBOX.ask 77\r\n")
    connection.send(b"PUB %b _INBOX.ask %d\r\n%b\r\n" % (subject.encode(), len(payload), payload))
    while not (op := connection.read_op()).startswith(b"MSG _INBOX.ask 77 "):
        assert not op.startswith(b"-ERR"), op
    connection.send(b"UNSUB 77\r\n")
    return op.partition(b"\r\n")[2][:-2]


def user_info(connection: Connection) -> dict[str, Any]:
    """What the server says about the client."""
    info: dict[str, Any] = json.loads(request(connection, "$SYS.REQ.USER.INFO"))["data"]
    return info


def hears(connections: Iterable[Connection]) -> list[list[bytes] | bytes]:
    """What each connection was sent: what came before an answer to a PING or, when it was closed, all.

    It is asked twice: what other claims change may hold from the end of a batch of input only.
    """
    heard: list[list[bytes] | bytes] = []
    for connection in connections:
        try:
            said = connection.fence() + connection.fence()
            heard.append([op for op in said if not op.startswith(b"INFO")])
        except Closed as closed:
            heard.append(closed.args[0])
    return heard
