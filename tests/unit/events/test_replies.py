"""Replies to the server's own requests; the time is held."""

from __future__ import annotations

import asyncio

import pytest
from support.clock import HeldClock

from gnats.accounts.internal_client import Callback, Message
from gnats.events.replies import Replies


class Client:
    """Answers each request with as many replies as its payload says, the last one late."""

    def __init__(self) -> None:
        self.subjects: list[bytes] = []
        self.inboxes: list[bytes] = []

    def subscribe(self, subject: bytes, callback: Callback) -> None:
        self.subjects.append(subject)
        self.callback = callback

    def publish(self, subject: bytes, payload: bytes, *, reply: bytes) -> None:
        self.inboxes.append(reply)
        for number in range(int(payload)):
            self.reply(reply, b"%d" % number)

    def reply(self, inbox: bytes, payload: bytes) -> None:
        self.callback(Message(inbox, b"", b"", payload, 7))


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def replies(client: Client) -> Replies:
    return Replies(client, "S")  # type: ignore[arg-type]


async def test_replies_come_until_the_time_is_over(
    clock: HeldClock, client: Client, replies: Replies
) -> None:
    came: list[bytes] = []

    async def collect() -> None:
        async for reply in replies.request("what", b"2", 0.5):
            came.append(reply)

    collecting = asyncio.create_task(collect())
    await clock.advance(0.4)
    client.reply(client.inboxes[0], b"late")
    await clock.advance(0.05)
    assert (came, collecting.done()) == ([b"0", b"1", b"late"], False)
    await clock.advance(0.06)
    assert collecting.done()
    client.reply(client.inboxes[0], b"too late")
    assert len(came) == 3


async def test_requests_share_one_subscription(clock: HeldClock, client: Client, replies: Replies) -> None:
    first, second = (aiter(replies.request("what", b"%d" % number, 1.0)) for number in (1, 2))
    assert await anext(first) == b"0"
    assert [await anext(second), await anext(second)] == [b"0", b"1"]
    await first.aclose()
    await second.aclose()
    (subject,) = client.subjects
    assert subject.startswith(b"$SYS._INBOX.")
    assert subject.endswith(b".*")
    assert all(inbox.startswith(subject[:-1]) for inbox in client.inboxes)
    assert len(set(client.inboxes)) == 2
    client.reply(client.inboxes[0], b"nobody waits")
