"""Reloads under full load: clients that no change concerns lose nothing; GNATS_STRESS multiplies the work."""

import re
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.peer import Peer
from support.process import SANITIZED
from support.servers import until
from support.stress import SCALE
from support.wire import PING, connect_op

from gnats.options.options import Options
from gnats.options.values.accounts import (
    AccountConfig,
    AccountLimits,
    MapDest,
    Mapping,
    StreamExport,
    StreamImport,
)
from gnats.options.values.auth import Permissions, SubjectPermission, User
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(300 * SCALE)

RELOADS = (10 if SANITIZED else 40) * SCALE
BATCH = 50 if SANITIZED else 200
PUBLISHERS = 2
READERS = {"A": (b"flow.>", b""), "D": (b"from.flow.>", b"from.")}
"""Accounts that receive everything published in A: the subject that a client subscribes to, and a prefix."""
MESSAGE = re.compile(rb"MSG (\S*?)flow\.(\d) 1 8\r\n(\d{8})\r\n|PING\r\n")
END = b"99999999"


def configuration(base: Options, n: int) -> Options:
    """Make configuration n: accounts A and D and the users "pub" and "sub" stay, everything else changes."""
    guest = Permissions(
        SubjectPermission((f"noise.{n}", "noise.all")), SubjectPermission((f"noise.{n % 3}",))
    )
    users = [
        *(User(name, "pw", account="A") for name in ("pub", "subA")),
        User("subD", "pw", account="D"),
        User("guest", "pw", guest, account="A"),
        User("rover", "pw", account="AB"[n % 2]),
        User("fickle", "pw" if n % 2 else "other", account="B"),
    ]
    flow = StreamImport("A", "flow.>", prefix="from")
    accounts = [
        AccountConfig("A", exports=[StreamExport("flow.>"), StreamExport("noise.>")]),
        AccountConfig("D", imports=[flow]),
        AccountConfig(
            "B",
            imports=[StreamImport("A", "noise.>", prefix=f"x{n}"), *([flow] if n % 3 else [])],
            mappings=[Mapping("noise.all", (MapDest(f"noise.{n % 4}"),))],
            limits=AccountLimits(max_payload=1000 + n, max_subscriptions=5 + n % 2),
        ),
    ]
    if n % 2:
        accounts.append(AccountConfig("C", imports=[flow]))
        users.append(User("temp", "pw", account="C"))
    return replace(
        base,
        accounts=accounts,
        users=users,
        max_payload=(1 << 20) + n,
        max_control_line=4096 + n,
        ping_interval=120.0 + n % 2,
        ping_max=2 + n % 2,
        no_fast_producer_stall=False,
        server_tags=(f"t{n}",),
    )


def hello(name: str) -> bytes:
    return connect_op(name, "pw")


class Reader:
    """Reads messages; requires that each publisher's come once and in order, and nothing else."""

    def __init__(self, port: int, account: str) -> None:
        subject, self._prefix = READERS[account]
        self.peer = Peer(port, hello(f"sub{account}"))
        self.peer.send(b"SUB %s 1\r\n" % subject)
        self.peer.fence()
        self.received = [0] * PUBLISHERS

    def run(self) -> None:
        data, ends = b"", 0
        while ends < PUBLISHERS:
            got = self.peer.sock.recv(1 << 16)
            assert got, "the server has closed the connection"
            data += got
            end = 0
            for match in MESSAGE.finditer(data):
                assert match.start() == end, data[end : match.start()]
                end = match.end()
                if match[0] == PING:
                    continue
                prefix, which, number = match.groups()
                assert prefix == self._prefix
                if number == END:
                    ends += 1
                    continue
                assert int(number) == self.received[int(which)], "lost, repeated or out of order"
                self.received[int(which)] += 1
            data = data[end:]
            assert b"-ERR" not in data, data


class Load:
    """The load during reloads: publishers, and clients that the changes concern."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.sent = [0] * PUBLISHERS
        self.refused = 0
        """Connections of those clients that the server has ended, or not let in."""
        self.reloading = True

    def publish(self, which: int) -> None:
        with Peer(self._port, hello("pub")) as peer:
            while self.reloading:
                first = self.sent[which]
                batch = (b"PUB flow.%d 8\r\n%08d\r\n" % (which, n) for n in range(first, first + BATCH))
                peer.send(b"".join(batch))
                assert peer.fence() == b"PONG\r\n"
                self.sent[which] += BATCH
            peer.send(b"PUB flow.%d 8\r\n%s\r\n" % (which, END))
            peer.fence()

    def disturb(self, name: str) -> None:
        """Connect again and again; subscribe and publish until the server closes the connection."""
        while self.reloading:
            try:
                with Peer(self._port, hello(name)) as peer:
                    peer.send(b"SUB noise.> 1\r\nSUB noise.0 2\r\nSUB *.noise.> 3\r\n")
                    while self.reloading:
                        peer.send(b"PUB noise.all 2\r\nhi\r\n" * 5)
                        peer.fence()
            except (OSError, EOFError):
                self.refused += 1


def test_reloads_under_full_load(server: ServerThread) -> None:
    base = server.call(lambda s: s.opts)
    reload(server, configuration(base, 0))
    load = Load(server.port)
    readers = [Reader(server.port, account) for account in READERS for _ in range(2)]
    failed: list[BaseException] = []

    def guarded(job: Callable[..., None], *args: object) -> None:
        try:
            job(*args)
        except BaseException as exc:  # noqa: BLE001 - handed to the test
            failed.append(exc)
            load.reloading = False

    jobs: list[tuple[Callable[..., None], *tuple[object, ...]]] = [(reader.run,) for reader in readers]
    jobs += [(load.publish, which) for which in range(PUBLISHERS)]
    jobs += [(load.disturb, name) for name in ("guest", "rover", "fickle", "temp")]
    threads = [threading.Thread(target=guarded, args=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for n in range(1, RELOADS + 1):
        sent = list(load.sent)
        reload(server, configuration(base, n))
        until(lambda sent=sent: failed or all(now > then for now, then in zip(load.sent, sent, strict=True)))
    load.reloading = False
    for thread in threads if not failed else ():
        thread.join()
    if failed:
        raise failed[0]
    for reader in readers:
        assert reader.received == load.sent
        assert reader.peer.fence() == b"PONG\r\n"
        reader.peer.close()
    assert load.refused > RELOADS // 2
    left = server.call(lambda s: (s.opts.max_payload, s.accounts.keys() - {"$G", "$SYS"}))
    assert left == ((1 << 20) + RELOADS, {"A", "B", "D"} | ({"C"} if RELOADS % 2 else set()))


def reload(server: ServerThread, opts: Options) -> None:
    server.run(server.server.reload(opts))
