"""Members of the clusters of these tests: their kinds, their accounts, and clients of theirs."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.caller import Caller, Message
from support.clusters import Cluster
from support.launch import launcher
from support.servers import REFERENCE, Kind, Server, selected, until

OLD = Kind("nats-server-2.9", "nats-server-2.9", ended_by=signal.SIGINT, compresses=False)
"""A nats-server before pools and compression, such as the Debian package `nats-server` has.

Its tests are skipped unless it stands next to this Python with this name.
"""
PASSWORD = "p"
ACCOUNTS = """
accounts {
  SYS { users: [ { user: s, password: p } ] }
  A {
    users: [ { user: a, password: p } ]
    exports: [
      { stream: "st.>" }, { service: "svc.*" }, { service: "many.*", response_type: stream }
      { service: "group.*" }
    ]
    mappings { "map.*": "mapped.{{wildcard(1)}}", "mapped.*": "twice.{{wildcard(1)}}" }
  }
  B {
    users: [ { user: b, password: p } ]
    exports: [ { service: "ask.*" } ]
    imports: [
      { stream: { account: A, subject: "st.>" }, prefix: from }
      { service: { account: A, subject: "svc.*" }, to: "ask.*" }
      { service: { account: A, subject: "many.*" } }, { service: { account: A, subject: "group.*" } }
    ]
  }
  C {
    users: [ { user: c, password: p } ]
    imports: [ { service: { account: B, subject: "ask.*" }, to: "chain.*" } ]
  }
  P { users: [ { user: p, password: p } ] }
}
system_account: SYS
"""
"""Accounts of every member. Users have their accounts' first letters as names, in small."""

_marks = itertools.count(1)


def member_kinds() -> list[Kind]:
    """Return the kinds that the tests select, gnats first."""
    return sorted(selected(), key=lambda kind: kind.is_reference)


def pairs() -> list[tuple[Kind, Kind]]:
    """Return all ordered pairs of kinds, and those of gnats and OLD."""
    kinds = member_kinds()
    found = list(itertools.product(kinds, kinds))
    for kind in kinds:
        if not kind.is_reference:
            found += [(kind, OLD), (OLD, kind)]
    return found


def few_pairs() -> list[tuple[Kind, Kind]]:
    """Return pairs with each kind in each place, and gnats and the reference each with itself."""
    kinds = member_kinds()
    own = [kind for kind in kinds if not kind.is_reference]
    found = [(own[-1], own[0])] if own else []
    if REFERENCE in kinds:
        found += [(own[0], REFERENCE), (REFERENCE, own[-1])] if own else []
        found.append((REFERENCE, REFERENCE))
    return found


def named(kinds: Sequence[Kind]) -> str:
    """Return the id of a test's kinds."""
    return "+".join(kind.name for kind in kinds)


def rows(size: int, count: int) -> list[tuple[Kind, ...]]:
    """Return `count` different clusters of that size, which together have each kind in each place."""
    kinds = member_kinds()
    if len(kinds) == 1:
        return [tuple(kinds * size)]
    found = (
        tuple(kinds[(n + i * (1 + n // len(kinds))) % len(kinds)] for i in range(size))
        for n in itertools.count()
    )
    return list(itertools.islice(dict.fromkeys(itertools.islice(found, 4 * count)), count))


def block_of(kinds: Sequence[Kind]) -> Callable[[int], str]:
    """Return the cluster block of a member by its number; OLD knows neither compression nor pools."""

    def block(number: int) -> str:
        return "compression: off" if kinds[number].compresses else ""

    return block


class Client(Caller):
    """A client of a member that can tell when it has heard everything that another client has published.

    `user` is the first letter of its account.
    """

    def __init__(self, server: Server, user: str = "a", **connect: object) -> None:
        self.server = server
        self.user = user
        self._mark = f"mark.{next(_marks)}"
        options: dict[str, object] = {"no_responders": connect.get("headers", True)}
        super().__init__(server, user, PASSWORD, f"_INBOX.{self._mark}", **options | connect)

    def reachable_from(self, *others: Client) -> None:
        """Wait until messages of other clients of the account arrive: all interest so far is known there."""
        # Anew: what the client has subscribed to before is known when this is.
        self._reached = f"{self._mark}.{next(_marks)}"
        self.subscribe(f"{self._reached}.*")
        for other in others:
            subject = f"{self._reached}.{next(_marks)}"

            def arrived(other: Client = other, subject: str = subject) -> bool:
                other.publish(subject)
                other.fence()
                self.fence()
                return any(message.subject == subject for message in self.kept())

            until(arrived)
            self.heard(other)

    def heard(self, *others: Client) -> list[Message]:
        """Return the messages that have come before one which each of the others publishes now.

        Before, this client must have been reachable from them.
        """
        subjects = {f"{self._reached}.{next(_marks)}": other for other in others}
        for subject, other in subjects.items():
            other.publish(subject)
        messages: list[Message] = []
        while subjects:
            message = self.next()
            if not message.subject.startswith(f"{self._mark}."):
                messages.append(message)
            subjects.pop(message.subject, None)
        return messages

    def payloads(self, *others: Client) -> list[bytes]:
        """As `heard`; return the payloads only."""
        return [message.payload for message in self.heard(*others)]

    def wait_alone(self, subject: str) -> None:
        """Wait until the client's server knows of nobody who serves a subject: it says so at once."""

        def alone() -> bool:
            inbox = self.ask(subject)
            self.fence()
            answers = [message for message in self.kept() if message.subject == inbox]
            return bool(answers) and answers[0].status == "503"

        until(alone)
        self._waiting = [each for each in self._waiting if not each.subject.startswith(self._inbox)]


@contextmanager
def running(directory: Path, kinds: Sequence[Kind], **how: Any) -> Iterator[Cluster]:
    """Run a cluster with ACCOUNTS whose members have found each other. `how`: see Cluster."""
    with launcher(REFERENCE, directory) as launch:
        cluster = Cluster(launch, kinds, **{"config": ACCOUNTS, "block": block_of(kinds)} | how)
        cluster.wait_mesh(None)
        yield cluster
