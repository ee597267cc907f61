"""Traced messages while subscribers of several pollers come and go; GNATS_STRESS multiplies the work."""

import json
import threading

import pytest
from support.peer import Peer
from support.process import SANITIZED
from support.stress import SCALE
from support.wire import connect_op

from gnats.options.options import Options
from gnats.options.values.accounts import (
    AccountConfig,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
)
from gnats.options.values.auth import User
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(300 * SCALE)

PUBLISHERS = 3
TOTAL = (300 if SANITIZED else 1_500) * SCALE

ACCOUNTS = [
    AccountConfig("A", exports=[StreamExport("s.>"), ServiceExport("svc", allow_trace=True)]),
    AccountConfig(
        "B",
        imports=[StreamImport("A", "s.>", prefix="b", allow_trace=True), ServiceImport("A", "svc", "ask")],
    ),
]
USERS = [User(name.lower(), "pw", account=name) for name in ("A", "B")]


def connect(user: str) -> bytes:
    return connect_op(user, "pw", pedantic=False, headers=True)


def request(subject: bytes, dest: bytes, only: bytes) -> bytes:
    header = b"NATS/1.0\r\nNats-Trace-Dest: %s\r\nNats-Trace-Only: %s\r\n\r\n" % (dest, only)
    return b"HPUB %s %d %d\r\n%shi\r\n" % (subject, len(header), len(header) + 2, header)


def come_and_go(port: int, user: str, subject: bytes, stop: threading.Event) -> None:
    while not stop.is_set():
        peer = Peer(port, connect(user))
        try:
            peer.send(b"SUB %s 1\r\nUNSUB 1 7\r\nSUB %s q 2\r\nPING\r\n" % (subject, subject))
            peer.until(b"PONG\r\n")
        finally:
            peer.close()


def publish(port: int, number: int, counts: dict[int, int]) -> None:
    """Publish messages with trace destinations in both accounts, and read all traces."""
    user, subject = (("a", b"s.x"), ("b", b"ask"), ("a", b"svc"))[number % 3]
    dest = b"dest.%d" % number
    peer = Peer(port, connect(user))
    try:
        peer.send(b"SUB %s 9\r\nPING\r\n" % dest)
        peer.until(b"PONG\r\n")
        for done in range(TOTAL):
            peer.send(request(subject, dest, b"true" if done % 2 else b"false"))
            while not peer.until(b"\r\n").startswith(b"MSG " + dest):
                pass
            event = json.loads(peer.until(b"\r\n"))
            assert event["events"][0]["type"] == "in"
            counts[number] = done + 1
    finally:
        peer.close()


def test_every_message_has_its_trace() -> None:
    counts: dict[int, int] = {}
    options = Options(port=-1, io_threads=2, accounts=ACCOUNTS, users=USERS)
    with ServerThread(options) as thread:
        stop = threading.Event()
        watchers = [("a", b"s.*"), ("b", b"b.s.x"), ("a", b"svc")]
        others = [
            threading.Thread(target=come_and_go, args=(thread.port, *watcher, stop)) for watcher in watchers
        ]
        publishers = [
            threading.Thread(target=publish, args=(thread.port, number, counts))
            for number in range(PUBLISHERS)
        ]
        for each in (*others, *publishers):
            each.start()
        for each in publishers:
            each.join()
        stop.set()
        for each in others:
            each.join()
    assert counts == dict.fromkeys(range(PUBLISHERS), TOTAL)
