"""Permissions that change while messages cross pollers; GNATS_STRESS multiplies the amount of work."""

import gc
import re
import threading
import weakref

import pytest
from support.peer import Peer
from support.process import SANITIZED
from support.servers import until
from support.stress import SCALE

from gnats.core.auth.permissions import Permissions as Compiled
from gnats.core.auth.permissions import compile_permissions
from gnats.options.values.auth import Permissions, ResponsePermission, SubjectPermission
from gnats.server.server import Server
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(300 * SCALE)

WATCHED = b'CONNECT {"verbose":false,"pedantic":false,"name":"watched"}\r\n'
WATCHERS, PUBLISHERS = 4, 2
TOTAL = (1_000 if SANITIZED else 5_000) * SCALE


def some_permissions(n: int) -> Permissions:
    """Make permissions that differ for each n; all deny evt.secret, most end the subscription to side.>."""
    subscribe = SubjectPermission(
        ("evt.>", "side.>") if n % 3 == 0 else ("evt.>",), ("evt.secret", f"evt.{n}")
    )
    if n % 5 == 0:
        subscribe = SubjectPermission(None, ("evt.secret", f"evt.{n}"))
    publish = SubjectPermission((f"nothing.{n}",))
    return Permissions(publish, subscribe, ResponsePermission(max_msgs=1 + n % 2) if n % 4 else None)


def set_permissions(server: Server, compiled: Compiled) -> None:
    for session in server.clients.values():
        if session.client is not None and session.opts.name == "watched":
            session.client.set_permissions(compiled)


class Watcher:
    """A client that answers every request, and subscribes again when permissions end a subscription."""

    def __init__(self, port: int) -> None:
        self.peer = Peer(port, WATCHED)
        self.open: list[bytes] = []
        self.errors: set[bytes] = set()
        self.subjects: set[bytes] = set()

    def run(self) -> None:
        while len(self.open) < TOTAL * PUBLISHERS:
            line = self.peer.until(b"\r\n")
            if not line.startswith(b"MSG "):
                self.errors.add(re.sub(rb"\d+", b"0", line))
                if b"(sid" in line:
                    self.peer.send(b"SUB side.> 2\r\n")
                continue
            _, subject, _, reply, _ = line.split()
            self.subjects.add(subject)
            number = self.peer.until(b"\r\n")
            if subject == b"evt.open":
                self.open.append(number)
                self.peer.send(b"PUB %s 2\r\nok\r\n" % reply)


def test_permissions_change_under_traffic(server: ServerThread) -> None:
    port = server.port
    compiled = compile_permissions(some_permissions(0))
    watchers = [Watcher(port) for _ in range(WATCHERS)]
    server.call(lambda s: set_permissions(s, compiled))
    for watcher in watchers:
        watcher.peer.fence()
        watcher.peer.send(b"SUB evt.> 1\r\nSUB side.> 2\r\n")
        watcher.peer.fence()
    failed: list[BaseException] = []
    publishing = threading.Event()
    publishing.set()

    def publish(which: int) -> None:
        with Peer(port) as peer:
            peer.send(b"SUB in.%d.> 1\r\n" % which)
            for n in range(TOTAL):
                peer.send(
                    b"PUB evt.open in.%d.%d 8\r\n%d-%06d\r\n" % (which, n, which, n)
                    + b"PUB evt.secret in.s 8\r\n%d-%06d\r\n" % (which, n)
                    + b"PUB side.a in.s 8\r\n%d-%06d\r\n" % (which, n)
                )
                if n % 20 == 0:
                    peer.fence()
            peer.fence()

    made: list[weakref.ref[Compiled]] = []

    def change() -> None:
        n = 0
        while publishing.is_set():
            n += 1
            fresh = compile_permissions(some_permissions(n))
            made.append(weakref.ref(fresh))
            server.call(lambda s, fresh=fresh: set_permissions(s, fresh))

    def guarded(job: object, *args: object) -> None:
        try:
            job(*args)  # type: ignore[operator]
        except BaseException as exc:  # noqa: BLE001 - handed to the test
            failed.append(exc)

    changer = threading.Thread(target=guarded, args=(change,))
    jobs = [threading.Thread(target=guarded, args=(publish, which)) for which in range(PUBLISHERS)]
    jobs += [threading.Thread(target=guarded, args=(watcher.run,)) for watcher in watchers]
    for thread in (*jobs, changer):
        thread.start()
    for thread in jobs:
        thread.join()
    publishing.clear()
    changer.join()
    if failed:
        raise failed[0]
    wanted = [[b"%d-%06d\r\n" % (which, n) for n in range(TOTAL)] for which in range(PUBLISHERS)]
    for watcher in watchers:
        for which in range(PUBLISHERS):
            assert [n for n in watcher.open if n.startswith(b"%d-" % which)] == wanted[which]
        assert watcher.subjects <= {b"evt.open", b"side.a"}
        assert watcher.errors <= {
            b"-ERR 'Permissions Violation for Publish to \"in.0.0\"'\r\n",
            b"-ERR 'Permissions Violation for Subscription to \"side.>\"'\r\n",
            b'-ERR \'Permissions Violation for Subscription to "side.>" (sid "0")\'\r\n',
        }
    assert len(made) > 10

    def old_ones_have_gone() -> bool:
        fresh = compile_permissions(some_permissions(len(made) + 1))
        server.call(lambda s: set_permissions(s, fresh))
        for watcher in watchers:
            watcher.peer.fence()
        gc.collect()
        return sum(ref() is not None for ref in made) == 0

    until(old_ones_have_gone)
    for watcher in watchers:
        watcher.peer.close()
