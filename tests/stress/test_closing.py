"""Streams and consumers are closed while requests come: every request gets an answer."""

from __future__ import annotations

import json
import threading

import pytest
from support.js import NativeJs, Peer

pytestmark = pytest.mark.timeout(120)
ROUNDS = 5
REQUESTS = 10_000


def ask(peer: Peer, inbox: str, subject: str, body: bytes = b"x") -> None:
    """Send REQUESTS requests at once."""
    start = b"PUB %s %s." % (subject.encode(), inbox.encode())
    peer.send(b"".join(b"%s%d %d\r\n%s\r\n" % (start, i, len(body), body) for i in range(REQUESTS)))


def test_publishers_are_answered_when_the_stream_goes(js: NativeJs) -> None:
    """Each message is either stored and acknowledged, or answered with 503."""
    with js.peer() as peer:
        inbox = peer.inbox()
        peer.sub(f"{inbox}.*")
        for _ in range(ROUNDS):
            js.create_stream("S", subjects=["s.>"])
            asking = threading.Thread(target=ask, args=(peer, inbox, "s.a"))
            asking.start()
            answers = [peer.msg()]
            stored = js.call(lambda _: close(js))
            asking.join()
            answers += peer.msgs(REQUESTS - 1)
            assert {answer.status for answer in answers} <= {"", "503"}
            assert [json.loads(answer.payload)["seq"] for answer in answers if not answer.status] == list(
                range(1, stored + 1)
            )
            assert len({answer.subject for answer in answers}) == REQUESTS


def close(js: NativeJs) -> int:
    """Close the stream; return the number of messages that it has stored."""
    stream = js.streams.pop("S")
    stream.close()
    return int(stream.store.state().last_seq)


def test_whoever_pulls_is_answered_when_the_consumer_goes(js: NativeJs) -> None:
    js.create_stream("S", subjects=["s.>"])
    with js.peer() as peer:
        inbox = peer.inbox()
        peer.sub(f"{inbox}.*")
        for _ in range(ROUNDS):
            js.create_consumer("S", "C", durable_name="C", ack_policy="explicit", max_waiting=REQUESTS)
            ask(peer, inbox, "$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":1,"expires":60000000000}')
            js.delete_consumer("S", "C")
            answers = peer.msgs(REQUESTS)
            assert {answer.status for answer in answers} <= {"409 Consumer Deleted", "503"}
            assert len({answer.subject for answer in answers}) == REQUESTS
