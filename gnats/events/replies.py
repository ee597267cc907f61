"""Replies to the server's own requests in the system account, all below one inbox (inboxReply, events.go)."""

import asyncio
from collections.abc import AsyncGenerator

from gnats.accounts.internal_client import InternalClient, Message
from gnats.clock import monotonic, timeout
from gnats.nkeys.identity import NuidSource, server_hash


class Replies:
    """Sends requests with a client of the system account, and collects what other servers reply.

    There is one subscription for all of them, so that a request costs the other servers no new interest.
    """

    def __init__(self, client: InternalClient, server_name: str) -> None:
        self._client = client
        self._prefix = f"$SYS._INBOX.{server_hash(server_name)}."
        self._ids = NuidSource()
        self._waiting: dict[bytes, asyncio.Queue[bytes]] = {}
        """The replies that have come, by inbox."""
        client.subscribe(f"{self._prefix}*".encode(), self._on_reply)

    def _on_reply(self, reply: Message) -> None:
        if queue := self._waiting.get(reply.subject):
            queue.put_nowait(reply.payload)

    async def request(self, subject: str, payload: bytes, wait: float) -> AsyncGenerator[bytes, None]:
        """Publish a request, and yield the replies that arrive within `wait` seconds."""
        end = monotonic() + wait
        inbox = f"{self._prefix}{self._ids.next()}".encode()
        replies = self._waiting[inbox] = asyncio.Queue()
        try:
            self._client.publish(subject.encode(), payload, reply=inbox)
            while True:
                try:
                    async with timeout(end - monotonic()):
                        reply = await replies.get()
                except TimeoutError:
                    return
                yield reply
        finally:
            del self._waiting[inbox]
