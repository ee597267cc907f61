"""Requests about account JWTs in the system account: those that are answered, and those of the resolver.

What the requests mean is the resolver's and OperatorMode's business.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from gnats.ident import NuidSource, server_hash
from gnats.internal import InternalClient, Message
from gnats.resolver.directory import DirectoryResolver
from gnats.resolver.requests import Reply

if TYPE_CHECKING:
    from gnats.events import Events
    from gnats.operatormode import OperatorMode
    from gnats.server import Server

_NEW_ACCOUNT_AT, _OLD_ACCOUNT_AT = 3, 2
"""Tokens of $SYS.REQ.ACCOUNT.<account>.CLAIMS.UPDATE and of $SYS.ACCOUNT.<account>.CLAIMS.UPDATE."""


Change = Callable[[Message], Awaitable[Reply]]


class SystemInbox:
    """Asks others through the system account (SystemRequests)."""

    def __init__(self, server: "Server") -> None:
        self._prefix = f"$SYS._INBOX.{server_hash(server.name)}"
        self._ids = NuidSource()
        self.client: InternalClient | None = None
        """None until there is a system account."""

    def expected_servers(self) -> int:
        """There are no clusters."""
        return 0

    async def request(self, subject: str, payload: bytes, wait: float) -> AsyncGenerator[bytes, None]:
        """See SystemRequests."""
        client = self.client
        if client is None:
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + wait
        replies: asyncio.Queue[bytes] = asyncio.Queue()
        inbox = f"{self._prefix}.{self._ids.next()}".encode()
        sid = client.subscribe(inbox, lambda reply: replies.put_nowait(reply.payload))
        try:
            client.publish(subject.encode(), payload, reply=inbox)
            while True:
                try:
                    yield await asyncio.wait_for(replies.get(), end - loop.time())
                except TimeoutError:
                    return
        finally:
            client.unsubscribe(sid)


class ClaimsServices:
    """Answers the requests about JWTs; what changes something is done in the order of the requests."""

    def __init__(
        self, server: "Server", mode: "OperatorMode", client: InternalClient, events: "Events"
    ) -> None:
        self._server = server
        self._client = client
        self._events = events
        self._changes: asyncio.Queue[tuple[Change, Message]] = asyncio.Queue()
        resolver = mode.resolver
        update: Callable[[str, bytes], Awaitable[Reply]] = mode.account_claim_update
        if isinstance(resolver, DirectoryResolver):
            update = resolver.account_update
            self._serve_directory(resolver)

        def change_at(at: int) -> Change:
            return lambda request: update(_token(request, at), request.payload)

        self._on_change("$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE", change_at(_NEW_ACCOUNT_AT))
        self._on_change("$SYS.ACCOUNT.*.CLAIMS.UPDATE", change_at(_OLD_ACCOUNT_AT))
        server.spawn(self._work())

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

        def in_background(
            answer: Callable[[Message], Coroutine[Any, Any, None]],
        ) -> Callable[[Message], None]:
            def begin(request: Message) -> None:
                self._server.spawn(answer(request))

            return begin

        self._on_change("$SYS.REQ.CLAIMS.DELETE", delete)
        self._on("$SYS.REQ.CLAIMS.LIST", in_background(send_list))
        if resolver.kind == "full":
            self._on("$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP", send_lookup)
            self._on("$SYS.REQ.CLAIMS.PACK", in_background(send_pack), b"responder")

    def _on(self, subject: str, answer: Callable[[Message], None], queue: bytes | None = None) -> None:
        """Answer what wants an answer, and is not asked by this server itself."""

        def serve(request: Message) -> None:
            if request.reply and request.producer != self._client.client.cid:
                answer(request)

        self._client.subscribe(subject.encode(), serve, queue)

    def _on_change(self, subject: str, change: Change) -> None:
        self._client.subscribe(subject.encode(), lambda request: self._changes.put_nowait((change, request)))

    async def _work(self) -> None:
        while True:
            change, request = await self._changes.get()
            reply = await change(request)
            if request.reply:
                self._events.respond(request.reply, {"server": self._events.server_info(), **reply})


def _token(request: Message, at: int) -> str:
    return request.subject.split(b".")[at].decode(errors="replace")
