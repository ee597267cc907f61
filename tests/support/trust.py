"""An operator with accounts and users, configurations that trust it, and raw clients with JWTs."""

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
    """The server has closed the connection; `args[0]` is the bytes that it sent after INFO."""


@dataclass
class Account:
    """An account whose claims a test may change; `jwt` signs them as they are."""

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
        """Make a user with these members of `nats`; `signer` is a signing key, else the account's key.

        The user of a signing key has no limits of its own.
        """
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
        """Connect as this user, with `more` members of CONNECT. Raises Refused."""
        return connect(server, self.key, jwt=self.jwt, **more)


class Trust:
    """An operator and its system account; `nats` are members of the operator's claims."""

    def __init__(self, **nats: Any) -> None:
        self.operator = jwts.operator()
        self.system = self.account()
        self.jwt = jwts.operator_jwt(self.operator, system_account=self.system.name, **nats)

    def account(self) -> Account:
        return Account(self.operator)

    def config(self, *accounts: Account, resolver: str = "MEM", more: str = "") -> str:
        """Return configuration text that trusts the operator; `more` is further text at the top level.

        It preloads the system account and `accounts`, unless `resolver` is a URL.
        """
        tokens = "\n".join(f"{account.name}: {account.jwt}" for account in (self.system, *accounts))
        preload = f"resolver_preload {{\n{tokens}\n}}\n" if not resolver.startswith("URL") else ""
        return f"operator: {self.jwt}\nresolver: {resolver}\n{preload}{more}\n"

    def push(self, server: Server, account: Account) -> dict[str, Any]:
        """Push the account's claims as they are now to the server; return its answer."""
        return self.ask(server, f"$SYS.REQ.ACCOUNT.{account.name}.CLAIMS.UPDATE", account.jwt)

    def ask(self, server: Server, subject: str, payload: str = "") -> dict[str, Any]:
        """Send a request as a user of the system account; return the answer (JSON) without `server`."""
        with self.system.user().connect(server) as connection:
            answer: dict[str, Any] = json.loads(request(connection, subject, payload.encode()))
        del answer["server"]
        return answer


def connect(server: Server, key: KeyPair | None = None, **options: Any) -> Connection:
    """Connect with these members of CONNECT; `key` signs the nonce. Raises Refused."""
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
    except BaseException:
        connection.close()
        raise
    return connection


def request(connection: Connection, subject: str, payload: bytes = b"") -> bytes:
    """Send a request; return the payload of its answer. Raises AssertionError for an -ERR."""
    connection.send(b"SUB _INBOX.ask 77\r\n")
    connection.send(b"PUB %b _INBOX.ask %d\r\n%b\r\n" % (subject.encode(), len(payload), payload))
    while not (op := connection.read_op()).startswith(b"MSG _INBOX.ask 77 "):
        assert not op.startswith(b"-ERR"), op
    connection.send(b"UNSUB 77\r\n")
    return op.partition(b"\r\n")[2][:-2]


def user_info(connection: Connection) -> dict[str, Any]:
    """Return the server's $SYS.REQ.USER.INFO for the client: the `data` of the answer."""
    info: dict[str, Any] = json.loads(request(connection, "$SYS.REQ.USER.INFO"))["data"]
    return info


def hears(connections: Iterable[Connection]) -> list[list[bytes] | bytes]:
    """Return what each connection received: operations, or all bytes if the server closed it.

    Each sends two PINGs: a change of claims may take effect only at the end of the poller's batch.
    """
    heard: list[list[bytes] | bytes] = []
    for connection in connections:
        try:
            said = connection.fence() + connection.fence()
            heard.append([op for op in said if not op.startswith(b"INFO")])
        except Closed as closed:
            heard.append(closed.args[0])
    return heard
