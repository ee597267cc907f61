"""Direct gets of many messages, and searches through many, take turns with the poller's other work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.peer import Peer
from support.process import SANITIZED
from support.servers import until
from support.stress import settle

from gnats.options.values.jetstream import JetStreamOptions
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(120)
MESSAGES = 20_000 if SANITIZED else 200_000
SUBJECTS = 10_000
"""More than a search may ask at once."""
END = b"NATS/1.0 204 EOB\r\n"


@pytest.fixture(params=[0, 1], ids=["loop", "thread"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerThread]:
    """A server with a stream S of MESSAGES messages, whose subjects repeat s.0 to s.9999."""
    options = JetStreamOptions(enabled=True, store_dir=str(tmp_path))
    with ServerThread(io_threads=request.param, jetstream=options) as running:
        peer = Peer(running.port)
        peer.send(b"SUB r 1\r\n")
        config = {"name": "S", "subjects": ["s.*"], "storage": "memory", "allow_direct": True, "no_ack": True}
        body = json.dumps(config).encode()
        peer.send(b"PUB $JS.API.STREAM.CREATE.S r %d\r\n%s\r\n" % (len(body), body))
        assert b'"error"' not in peer.until(b"}\r\n")
        for first in range(0, MESSAGES, SUBJECTS):
            peer.send(
                b"".join(b"PUB s.%d 1\r\nx\r\n" % (n % SUBJECTS) for n in range(first, first + SUBJECTS))
            )
        peer.fence()
        peer.close()
        settle(running)
        yield running


def ask(peer: Peer, reply: bytes, **request: Any) -> bytes:
    body = json.dumps(request).encode()
    return b"PUB $JS.API.DIRECT.GET.S %s %d\r\n%s\r\n" % (reply, len(body), body)


def test_others_are_served_between(server: ServerThread) -> None:
    """A message published after the get has begun arrives before the get ends."""
    with Peer(server.port) as hostile, Peer(server.port) as polite, Peer(server.port) as listener:
        listener.send(b"SUB get 1\r\nSUB other 2\r\n")
        listener.fence()
        hostile.send(ask(hostile, b"get", seq=1, batch=1_000_000_000, max_bytes=1 << 40))
        hostile.fence()
        polite.send(b"PUB other 4\r\nnow!\r\n")
        before = listener.until(b"now!\r\n")
        assert END not in before
        after = listener.until(END)
        assert before.count(b"Nats-Sequence: ") + after.count(b"Nats-Sequence: ") == MESSAGES


def test_what_nobody_waits_for_ends(server: ServerThread) -> None:
    with Peer(server.port) as listener, Peer(server.port) as polite:
        listener.send(b"SUB get 1\r\n")
        listener.fence()
        for _ in range(5):
            hostile = Peer(server.port)
            hostile.send(ask(hostile, b"get", seq=1, batch=1_000_000_000, max_bytes=1 << 40) * 3)
            hostile.fence()
            hostile.reset()
        polite.fence()
        until(lambda: server.call(lambda s: s.num_clients) == 2, 60)
        assert END not in listener.fence()
        assert listener.fence() == b"PONG\r\n"


def test_who_asks_for_too_much_waits(server: ServerThread) -> None:
    """The server stops reading the client for a while, and answers every request."""
    count = 100
    with Peer(server.port) as hostile, Peer(server.port) as polite:
        hostile.send(b"SUB get 1\r\n")
        hostile.fence()
        request = ask(hostile, b"get", next_by_subj="*.none", seq=1, batch=1_000_000_000)
        hostile.send(request * count)
        polite.fence()
        for _ in range(count):
            hostile.until(b"NATS/1.0 40")
        pollers = server.server.pollers
        assert pollers is not None
        assert pollers.inbox_stats()["parkings"] > 0
        hostile.fence()


@pytest.mark.parametrize("first", [1, 2, 3000, MESSAGES // 2, MESSAGES - 1, MESSAGES])
@pytest.mark.parametrize("subject", ["s.*", "s.7", "s.>", "*.7"])
def test_counts_that_take_more_than_a_slice_are_right(server: ServerThread, subject: str, first: int) -> None:
    matching = [n + 1 for n in range(MESSAGES) if subject[-1] != "7" or n % SUBJECTS == 7]
    expected = [seq for seq in matching if seq >= first]
    with Peer(server.port) as peer:
        peer.send(b"SUB get 1\r\n" + ask(peer, b"get", next_by_subj=subject, seq=first, batch=3))
        if not expected:
            peer.until(b"NATS/1.0 404 Message Not Found\r\n")
            return
        answer = peer.until(END) + peer.until(b"\r\n\r\n")
    for number, seq in enumerate(expected[:3]):
        assert b"Nats-Sequence: %d\r\n" % seq in answer
        assert b"Nats-Num-Pending: %d\r\n" % (len(expected) - number - 1) in answer


def test_the_last_of_subjects_with_wildcards_is_found(server: ServerThread) -> None:
    with Peer(server.port) as peer:
        peer.send(b"SUB get 1\r\n")
        for subject, seq in (("*.3", MESSAGES - SUBJECTS + 4), ("s.*", MESSAGES), (">", MESSAGES)):
            peer.send(ask(peer, b"get", last_by_subj=subject))
            assert b"Nats-Sequence: %d\r\n" % seq in peer.until(b"Nats-Time-Stamp: ")
        peer.send(ask(peer, b"get", last_by_subj="*.none"))
        peer.until(b"NATS/1.0 404 Message Not Found\r\n")
