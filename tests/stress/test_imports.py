"""Imports that change while messages cross accounts and pollers.

No message of an import that stays is lost, and no subscription, response or memory is left in the end.
"""

import re
import threading
from functools import partial

import pytest
from support.peer import Peer
from support.stress import SCALE, settle, together
from support.wire import connect_op

from gnats.core.runtime import quiesce
from gnats.options.options import Options
from gnats.options.values.accounts import (
    AccountConfig,
    MapDest,
    Mapping,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
)
from gnats.options.values.auth import User
from gnats.server.server import Server
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(300 * SCALE)

ROUNDS = 60 * SCALE
REQUESTS = 400 * SCALE
MESSAGES = 3000 * SCALE


def options(threads: int, variant: int = 0) -> Options:
    """Return options with two accounts; odd variants have more imports and mappings, or other subjects."""
    odd = variant % 2 == 1
    imports: list[StreamImport | ServiceImport] = [
        StreamImport("A", "steady.>"),
        ServiceImport("A", "svc"),
        ServiceImport("A", "many"),
        ServiceImport("A", "turned.*", to="t.$1", share=odd),
    ]
    if odd:
        imports += [StreamImport("A", "extra.>", prefix="p"), ServiceImport("A", "more.*")]
    mappings = [Mapping("mapped.*", (MapDest("extra.$1" if odd else "extra.x.$1"),))] if variant % 3 else []
    exports = [
        StreamExport(">"),
        ServiceExport("svc"),
        ServiceExport("many", response_type="stream"),
        ServiceExport("turned.*"),
        ServiceExport("more.*", threshold=0.05),
    ]
    return Options(
        host="127.0.0.1",
        port=-1,
        io_threads=threads,
        users=[User("a", "p", account="A"), User("b", "p", account="B")],
        accounts=[
            AccountConfig("A", exports=exports, mappings=mappings),
            AccountConfig("B", imports=imports),
        ],
    )


def configure(server: Server, options: Options) -> None:
    server.accounts.configure(options)


def hello(user: str) -> bytes:
    return connect_op(user, "p", pedantic=False, headers=True, no_responders=True)


class Responder:
    """Answers requests in account A until a message on "stop"."""

    def __init__(self, port: int) -> None:
        self.peer = Peer(port, hello("a"))
        self.peer.send(b"SUB svc w 1\r\nSUB many w 2\r\nSUB turned.* w 3\r\nSUB more.* w 4\r\nSUB stop 5\r\n")
        self.peer.fence()

    def run(self) -> None:
        while True:
            line = self.peer.until(b"\r\n")
            parts = line.split()
            if parts[0] not in (b"MSG", b"HMSG"):
                continue
            self.peer.take(int(parts[-1]) + 2)
            if parts[1] == b"stop":
                self.peer.close()
                return
            reply = parts[3] if len(parts) == (6 if parts[0] == b"HMSG" else 5) else b""
            if parts[1] == b"many":
                self.peer.send(b"PUB %b 1\r\n1\r\nPUB %b 1\r\n2\r\nPUB %b 0\r\n\r\n" % (reply, reply, reply))
            elif reply:
                self.peer.send(b"PUB %b 2\r\nok\r\n" % reply)


@pytest.mark.parametrize("threads", [0, 2], ids=["loop", "threads"])
def test_imports_change_under_traffic(threads: int) -> None:
    with ServerThread(options(threads)) as server:
        port = server.port
        before = server.call(lambda s: s.accounts["A"].sublist.count())
        responders = [Responder(port) for _ in range(2)]
        busy = threading.Event()
        busy.set()

        def request(subject: bytes, answers: int) -> None:
            with Peer(port, hello("b")) as peer:
                peer.send(b"SUB _INBOX.%b.* 1\r\n" % subject)
                for n in range(REQUESTS):
                    peer.send(b"PUB %b _INBOX.%b.%d 4\r\nwhat\r\n" % (subject, subject, n))
                    for _ in range(answers):
                        head = peer.until(b"\r\n")
                        while head.startswith(b"INFO"):
                            head = peer.until(b"\r\n")
                        assert head.startswith(b"MSG _INBOX.%b.%d 1 " % (subject, n)), head
                        peer.take(int(head.split()[-1]) + 2)

        def ask_what_may_be_gone() -> None:
            """Send requests over imports that come and go; any answer or none is right."""
            with Peer(port, hello("b")) as peer:
                for n in range(REQUESTS):
                    peer.send(b"SUB in.%d 1\r\nPUB more.%d in.%d 0\r\n\r\nUNSUB 1\r\n" % (n, n, n))
                    if n % 10 == 0:
                        peer.fence()
                peer.fence()

        def subscribe() -> None:
            """Subscribe and unsubscribe while imports change."""
            with Peer(port, hello("b")) as peer:
                for n in range(ROUNDS * 5):
                    peer.send(
                        b"SUB p.> %d\r\nSUB *.extra.* q %d\r\nSUB > %d\r\n" % (3 * n, 3 * n + 1, 3 * n + 2)
                    )
                    if n > 3:
                        peer.send(b"".join(b"UNSUB %d\r\n" % sid for sid in range(3 * (n - 4), 3 * (n - 3))))
                    if n % 5 == 0:
                        peer.fence()
                peer.fence()

        def publish() -> None:
            with Peer(port, hello("a")) as peer:
                n = 0
                while busy.is_set():
                    peer.send(b"PUB extra.y 1\r\nx\r\nPUB mapped.z 1\r\nx\r\n" * 20)
                    peer.fence()
                    n += 1

        def steady() -> None:
            """Require that no message of the import that stays is missed."""
            with Peer(port, hello("b")) as hearer, Peer(port, hello("a")) as teller:
                hearer.send(b"SUB steady.> 1\r\n")
                hearer.fence()
                for n in range(MESSAGES):
                    teller.send(b"PUB steady.s %d\r\n%d\r\n" % (len(str(n)), n))
                    if n % 50 == 49:
                        teller.fence()
                teller.fence()
                heard = [int(n) for n in re.findall(rb"MSG steady\.s 1 \d+\r\n(\d+)\r\n", hearer.fence())]
                assert sorted(set(heard)) == list(range(MESSAGES))

        def change() -> None:
            for variant in range(1, ROUNDS + 1):
                server.call(partial(configure, options=options(threads, variant)))
            busy.clear()

        answering = [threading.Thread(target=responder.run) for responder in responders]
        for thread in answering:
            thread.start()
        try:
            together(
                lambda: request(b"svc", 1),
                lambda: request(b"many", 3),
                ask_what_may_be_gone,
                subscribe,
                publish,
                steady,
                change,
            )
        finally:
            with Peer(port, hello("a")) as peer:
                peer.send(b"PUB stop 0\r\n\r\n")
                peer.fence()
            for thread in answering:
                thread.join(60)
        settle(server)
        server.call(partial(configure, options=options(threads)))
        account_a, account_b = server.call(lambda s: (s.accounts["A"], s.accounts["B"]))
        assert account_b.pending_requests == 0
        assert account_a.pending_responses == 0
        # One more than before: the first request made the subscription for responses.
        assert account_a.sublist.count() == before + 1
    quiesce.reclaim()
    assert quiesce.waiting_blocks() == 0
