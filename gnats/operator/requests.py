"""Answer requests about account JWTs in the system account (accounts.go, events.go), and send the resolver's.

The resolver and OperatorMode carry the requests out.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sized
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from gnats.accounts.internal_client import InternalClient, Message
from gnats.go.text import quote
from gnats.resolver.directory import DirectoryResolver
from gnats.resolver.requests import Reply

if TYPE_CHECKING:
    from gnats.events.events import Events
    from gnats.events.replies import Replies
    from gnats.log.logger import Logger
    from gnats.operator.mode import OperatorMode

_NEW_ACCOUNT_AT, _OLD_ACCOUNT_AT = 3, 2
"""Index of the account's token in $SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE and $SYS.ACCOUNT.*.CLAIMS.UPDATE."""


MOST_WAITING = 64 << 20
"""Most bytes of requests that wait in one queue, with _OVERHEAD for each: 1,024 small ones."""
_OVERHEAD = 64 << 10

Change = Callable[[Message], Awaitable[Reply]]
Carry = Callable[[Message], Awaitable[None]]
"""Carries a request out, and answers it."""


Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Runs a coroutine as a task, until the server shuts down."""


class OtherServers:
    """The other servers, as a resolver asks them for JWTs (SystemRequests)."""

    def __init__(self) -> None:
        self.replies: Replies | None = None
        """None until there is a system account."""
        self.known: Sized = ()
        """The other servers that are known."""

    def expected_servers(self) -> int:
        """Return the number of other servers."""
        return len(self.known)

    async def request(self, subject: str, payload: bytes, wait: float) -> AsyncGenerator[bytes, None]:
        """Publish a request, and yield the replies that arrive within `wait` seconds."""
        if self.replies is None:
            return
        async with aclosing(self.replies.request(subject, payload, wait)) as replies:
            async for reply in replies:
                yield reply


class InOrder:
    """Carries out requests one after the other, in the order of their arrival.

    When too many wait, the connection with the most bytes of them loses its latest. `refuse` answers a
    request that is not carried out, with the reason.
    """

    def __init__(self, spawn: Spawn, log: "Logger", refuse: Callable[[Message, str], None]) -> None:
        self._spawn = spawn
        self._log = log
        self._refuse = refuse
        self._waiting: deque[tuple[Carry, Message]] = deque()
        self._sizes: Counter[int] = Counter()
        """Bytes of waiting requests, by connection id."""
        self._task: asyncio.Task[None] | None = None

    def add(self, carry: Carry, request: Message) -> None:
        """Queue a request for `carry`."""
        self._waiting.append((carry, request))
        self._sizes[request.producer] += _size(request)
        while self._sizes.total() > MOST_WAITING:
            self._drop()
        if self._task is None:
            self._next()

    def _drop(self) -> None:
        crowded = max(self._sizes, key=self._sizes.__getitem__)
        at = max(at for at, (_, request) in enumerate(self._waiting) if request.producer == crowded)
        _, request = self._waiting[at]
        del self._waiting[at]
        self._took(request)
        log = self._log
        if log.allow(text := "Dropped requests about JWTs: too many wait"):
            log.warn(text)
        self._refuse(request, "too many requests wait")

    def _took(self, request: Message) -> None:
        self._sizes[request.producer] -= _size(request)
        if not self._sizes[request.producer]:
            del self._sizes[request.producer]

    def _next(self) -> None:
        """Begin the request that has waited longest; its end begins the next."""
        if not self._waiting:
            return
        carry, request = self._waiting.popleft()
        self._took(request)

        async def carry_out() -> None:
            await carry(request)

        def ended(task: asyncio.Task[None]) -> None:
            self._task = None
            if task.cancelled():  # the server shuts down
                return
            if exc := task.exception():  # unexpected: a bug
                self._log.error(f"Request {quote(request.subject)} failed: {exc!r:.500}")
                self._refuse(request, "internal error")
            self._next()

        self._task = self._spawn(carry_out())
        self._task.add_done_callback(ended)


def _size(request: Message) -> int:
    return len(request.payload) + len(request.header) + _OVERHEAD


class ClaimsServices:
    """Answers the requests about JWTs; changes happen in the order of their requests."""

    def __init__(
        self,
        spawn: Spawn,
        log: "Logger",
        mode: "OperatorMode",
        client: InternalClient,
        events: "Events",
    ) -> None:
        self._client = client
        self._events = events
        self._changes = InOrder(spawn, log, self._refuse)
        self._reads = InOrder(spawn, log, self._refuse)
        resolver = mode.resolver
        update: Callable[[str, bytes], Awaitable[Reply]] = mode.account_claim_update
        if isinstance(resolver, DirectoryResolver):
            update = resolver.account_update
            self._serve_directory(resolver)

        def change_at(at: int) -> Change:
            return lambda request: update(_token(request, at), request.payload)

        self._on_change("$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE", change_at(_NEW_ACCOUNT_AT))
        self._on_change("$SYS.ACCOUNT.*.CLAIMS.UPDATE", change_at(_OLD_ACCOUNT_AT))

    def _serve_directory(self, resolver: DirectoryResolver) -> None:
        self._on_change("$SYS.REQ.CLAIMS.UPDATE", lambda request: resolver.update(request.payload))

        async def delete(request: Message) -> Reply:
            return resolver.delete_accounts(request.payload)

        async def send_list(request: Message) -> None:
            accounts = await resolver.list_accounts()
            self._events.respond(request.reply, {**accounts, "server": self._events.server_info()})

        async def send_pack(request: Message) -> None:
            for message in await resolver.pack(request.payload):
                self._client.publish(request.reply, message)

        def send_lookup(request: Message) -> None:
            found = resolver.lookup(_token(request, _NEW_ACCOUNT_AT))
            if found is not None:
                self._client.publish(request.reply, found)

        def in_background(answer: Carry) -> Callable[[Message], None]:
            return lambda request: self._reads.add(answer, request)

        self._on_change("$SYS.REQ.CLAIMS.DELETE", delete)
        self._on("$SYS.REQ.CLAIMS.LIST", in_background(send_list))
        if resolver.kind == "full":
            self._on("$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP", send_lookup)
            self._on("$SYS.REQ.CLAIMS.PACK", in_background(send_pack), b"responder")

    def _on(self, subject: str, answer: Callable[[Message], None], queue: bytes | None = None) -> None:
        """Answer requests to `subject` that have a reply subject and are not this server's own."""

        def serve(request: Message) -> None:
            if request.reply and request.producer != self._client.client.cid:
                answer(request)

        self._client.subscribe(subject.encode(), serve, queue)

    def _on_change(self, subject: str, change: Change) -> None:
        async def carry(request: Message) -> None:
            self._answer(request, await change(request))

        self._client.subscribe(subject.encode(), lambda request: self._changes.add(carry, request))

    def _refuse(self, request: Message, why: str) -> None:
        self._answer(request, {"error": {"code": 500, "description": why}})

    def _answer(self, request: Message, reply: Reply) -> None:
        if request.reply:
            self._events.respond(request.reply, {"server": self._events.server_info(), **reply})


def _token(request: Message, at: int) -> str:
    return request.subject.split(b".")[at].decode(errors="replace")
