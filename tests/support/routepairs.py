"""A client and the route that carries its account, in each of the forms that a route has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .accounts import Member
from .routepeer import Fake, RoutePeer
from .servers import Server

FORMS = ("no pool", "pool", "pinned")
CONFIG = """
accounts {
  SYS { users: [ { user: s, password: p } ] }
  A {
    users: [ { user: a, password: p } ], exports: [ { stream: "st.>" }, { service: svc } ]
    mappings { "map.*": "mapped.{{wildcard(1)}}" }
  }
  P { users: [ { user: p, password: p } ] }
  B {
    users: [ { user: b, password: p } ]
    imports: [ { stream: { account: A, subject: "st.>" }, prefix: in }
               { service: { account: A, subject: svc } } ]
  }
}
system_account: SYS
"""
"""Accounts of a server. Users have their accounts' first letters as names, in small."""
BLOCK = "accounts: [P]"
"""What the server's cluster block says: P is pinned, A and B are not."""


@dataclass
class Pair:
    """A client, and the peer's connection that carries the client's account."""

    client: Member
    peer: RoutePeer
    account: bytes

    def after(self) -> list[bytes]:
        """Return what the peer has received of the client's doings, as RoutePeer.after."""
        return self.peer.after(self.client.connection, self.account)

    def told(self, *lines: bytes) -> list[bytes]:
        """Have the client send lines; return the lines of interest that the server then sends to the peer."""
        self.client.say(*lines)
        return self.peer.interest(self.after(), self.account)

    def line(self, verb: bytes, rest: bytes) -> bytes:
        return self.peer.line(verb, self.account, rest)


def route(server: Server, fake: Fake, form: str) -> tuple[RoutePeer, bytes]:
    """Connect a route of the form to a server with CONFIG; return it and the account it carries."""
    if form == "pinned":
        return fake.pinned(server, b"P"), b"P"
    return (fake.dial(server) if form == "no pool" else fake.pooled(server, b"A")), b"A"


@contextmanager
def pair(server: Server, fake: Fake, form: str) -> Iterator[Pair]:
    """Connect a route of the form, and a client of the account that it carries."""
    peer, account = route(server, fake, form)
    with Member(server, account.decode().lower()) as client:
        yield Pair(client, peer, account)
        unsubscribe(client)


def unsubscribe(client: Member) -> None:
    """End the client's subscriptions, whose sids are at most 20, so that no later test hears of their end."""
    client.say(*(b"UNSUB %d" % sid for sid in range(21)))
