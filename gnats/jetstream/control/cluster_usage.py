"""Tells the other servers of a cluster what accounts use here (sendClusterUsageUpdate in jetstream.go)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from gnats.clock import call_later
from gnats.jetstream.cluster.account_usage import (
    SUBJECT,
    AccountUsage,
    UsageError,
    encode_usage,
    usage_subject,
)

if TYPE_CHECKING:
    from gnats.accounts.internal_client import InternalClient, Message
    from gnats.jetstream.cluster.account_usage import UsageElsewhere
    from gnats.log.logger import Logger

USAGE_TICK = 1.5
"""Seconds between two looks at what has changed."""
LOOKS_AT_ALL = 10
"""Looks of which one looks at every account, also when the server's totals are the same."""


class UsedAccount(Protocol):
    """An account with JetStream: a JSAccount."""

    @property
    def name(self) -> str: ...
    def usage_here(self) -> AccountUsage: ...


class ClusterUsage:
    """Publishes what accounts use at this server when that changes; `elsewhere` gets what others publish.

    `client` is the system account's. Only what other servers send is believed. `peer` is this server's name
    in groups. `accounts` returns those with JetStream, `totals` numbers of which one changes when any
    account's usage does, but for rare coincidences. Used from the loop's thread.
    """

    def __init__(
        self,
        client: InternalClient,
        peer: str,
        accounts: Callable[[], Iterable[UsedAccount]],
        totals: Callable[[], tuple[int, ...]],
        elsewhere: UsageElsewhere,
        log: Logger,
    ) -> None:
        self._elsewhere = elsewhere
        self._client = client
        self._peer = peer
        self._accounts = accounts
        self._totals = totals
        self._log = log
        self._sent: dict[str, AccountUsage] = {}
        self._seen: tuple[int, ...] = ()
        self._looks = 0
        self._sid = client.subscribe(SUBJECT + b">", self._heard)
        self._timer = call_later(USAGE_TICK, self._look)

    def close(self) -> None:
        """Stop publishing."""
        self._timer.cancel()
        self._client.unsubscribe(self._sid)

    def publish_again(self, *_: object) -> None:
        """Publish everything at the next look: another server may not have heard it."""
        self._sent.clear()
        self._seen = ()

    def _heard(self, message: Message) -> None:
        if not message.from_server:
            return
        try:
            self._elsewhere.heard(message.subject, message.payload, self._peer)
        except UsageError as exc:
            self._log.warn(str(exc))

    def _look(self) -> None:
        self._timer = call_later(USAGE_TICK, self._look)
        self._looks += 1
        totals = self._totals()
        if totals == self._seen and self._looks % LOOKS_AT_ALL:
            return
        self._seen = totals
        sent, self._sent = self._sent, {}
        for account in self._accounts():
            usage = account.usage_here()
            subject = usage_subject(account.name, self._peer)
            if usage.tiers and usage != sent.get(account.name) and subject.split() == [subject]:
                self._client.publish(subject, encode_usage(usage), reply=b"")
            self._sent[account.name] = usage
