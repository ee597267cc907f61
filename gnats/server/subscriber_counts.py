"""Count the subscribers of a subject, on this server and on the others (debugSubscribers in events.go)."""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from gnats.accounts.internal_client import InternalClient, Message
from gnats.events.replies import Replies
from gnats.go.json import JSONError, Struct, marshal, unmarshal
from gnats.runtime.long_work import LongWork

if TYPE_CHECKING:
    import asyncio

    from gnats.accounts.account import Account
    from gnats.accounts.accounts import Accounts
    from gnats.client.session import Session
    from gnats.log.logger import Logger
    from gnats.monitor.services import PagesServer
    from gnats.runtime.steps import Steps

NUM_SUBS = "$SYS.REQ.ACCOUNT.NSUBS"
"""A server asks the others here how many subscribers they have."""
WAIT = 0.5
"""Seconds that the others have for their answers."""
MOST_WAITING = 1024
"""Requests that may wait for other servers. Beyond it, a request is not answered."""

_DIGITS = 9
"""Digits that a believable number of subscribers may have."""
_NUM_SUBS: Struct = {"acc": "string", "subject": "string", "queue": "string"}


class SubscriberCounts:
    """Answer requests for the number of a subject's subscribers.

    `client` is the system account's. `sessions` are this server's clients by id. `spawn` runs a coroutine as
    a task, until the server shuts down.
    """

    def __init__(
        self,
        client: InternalClient,
        replies: Replies,
        pages: "PagesServer",
        accounts: "Accounts",
        sessions: "Mapping[int, Session]",
        long_work: LongWork,
        log: "Logger",
        spawn: "Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]",
    ) -> None:
        self._client = client
        self._replies = replies
        self._pages = pages
        self._accounts = accounts
        self._sessions = sessions
        self._long_work = long_work
        self._log = log
        self._spawn = spawn
        self._waiting = 0
        client.subscribe(NUM_SUBS.encode(), self._nsubs)
        client.subscribe(b"$SYS.DEBUG.SUBSCRIBERS", self._debug_subscribers)

    def _nsubs(self, request: Message) -> None:
        """Answer another server, about this server's clients alone (nsubsRequest)."""
        if not request.payload:
            self._log.error("SYSTEM - request requires a body")
            return
        try:
            asked: dict[str, Any] = unmarshal(request.payload, _NUM_SUBS, "accNumSubsReq")
            queue = b64decode(asked["queue"], validate=True) if "queue" in asked else None
        except (JSONError, binascii.Error) as exc:
            self._log.error(f"SYSTEM - Error unmarshalling account nsubs request message: {exc}")
            return
        account = self._accounts.get(asked.get("acc", ""))
        if account and account.clients and request.reply:
            reply = request.reply
            self._count(
                request.producer, account, asked.get("subject", ""), queue, lambda n: self._say(reply, n)
            )

    def _debug_subscribers(self, request: Message) -> None:
        """Answer a client of this server, about the clients of all servers."""
        account = self._accounts.get(request.account_name)
        if request.producer not in self._sessions or account is None or not request.reply:
            return
        subject, *group = request.payload.decode(errors="replace").strip().split(" ")
        queue = group[0].encode() if group else None
        others, reply = len(account.clients_elsewhere), request.reply

        def counted(number: int) -> None:
            if not others:
                self._say(reply, number)
            elif self._waiting < MOST_WAITING:
                self._waiting += 1
                self._spawn(self._add_others(reply, number, others, account.name, subject, queue))
            elif self._log.allow(text := "Dropped requests for numbers of subscribers: too many wait"):
                self._log.warn(text)

        self._count(request.producer, account, subject, queue, counted)

    def _count(
        self, cid: int, account: "Account", subject: str, queue: bytes | None, counted: Callable[[int], None]
    ) -> None:
        """Count the subscribers on this server, on behalf of a connection, and call `counted`."""
        from gnats.monitor.services import count_subscriptions

        def count() -> "Steps[None]":
            counted((yield from count_subscriptions(self._pages, account, subject, queue)))

        self._long_work.begin(cid, account.name.encode(), count())

    async def _add_others(
        self, reply: bytes, number: int, others: int, account: str, subject: str, queue: bytes | None
    ) -> None:
        """Ask the other servers, of which `others` have clients of the account, and answer with the sum."""
        request = {"acc": account, "subject": subject}
        if queue:
            request["queue"] = b64encode(queue).decode()
        try:
            async with aclosing(self._replies.request(NUM_SUBS, marshal(request), WAIT)) as answers:
                async for answer in answers:
                    number += int(answer) if answer.isdigit() and len(answer) <= _DIGITS else 0
                    others -= 1
                    if not others:
                        break
        finally:
            self._waiting -= 1
        self._say(reply, number)

    def _say(self, reply: bytes, number: int) -> None:
        self._client.publish(reply, marshal(number), reply=b"")
