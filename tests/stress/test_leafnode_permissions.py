"""What permissions of a leaf node forbid never goes there, also while others that forbid it replace them."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
from support.dataplane import permissions
from support.process import SANITIZED
from support.runningplane import RunningPlane, Wire
from support.stress import SCALE

from gnats.core.accounts.account import Account
from gnats.core.links.leaf_session import LeafSession
from gnats.options.values.auth import Permissions, SubjectPermission

pytestmark = pytest.mark.timeout(120 * SCALE)

CHANGES = (50 if SANITIZED else 400) * SCALE
SETS = [
    permissions(
        Permissions(
            publish=SubjectPermission(deny=("secret", *more)),
            subscribe=SubjectPermission(deny=("hidden", *more)),
        )
    )
    for more in ((), ("other",))
]
"""A peer is sent nothing on `secret`, by the half for publishing, nor on `hidden`, by the other half."""


class Reader:
    """A thread that counts a peer's messages by subject, until the connection ends."""

    def __init__(self, wire: Wire) -> None:
        self.counts: dict[bytes, int] = {}
        self._wire = wire
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        with suppress(EOFError):
            while True:
                verb, *words = self._wire.op().split(b" ")
                if verb == b"LMSG":
                    self.counts[words[0]] = self.counts.get(words[0], 0) + 1

    def end(self) -> None:
        self._wire.close()
        self._thread.join()


def publish(wire: Wire, done: threading.Event) -> None:
    while not done.is_set():
        wire.send(b"PUB secret 1\r\nx\r\nPUB hidden 1\r\nx\r\nPUB open 1\r\nx\r\n" * 20)
        wire.fence()


def test_nothing_denied_passes_while_permissions_change() -> None:
    with RunningPlane(2) as plane:
        account: Account = plane.account("A")
        with plane.control:
            peer = plane.leaf(account, 0, spoke=True)
            wires = [Wire(plane.client(account, poller)) for poller in range(2)]
        session = peer.session
        assert isinstance(session, LeafSession)
        with plane.control:
            session.set_permissions(SETS[0])
        with Wire(peer) as hub:
            hub.send(b"LS+ >\r\n")
            hub.fence()
            reader = Reader(hub)
            done = threading.Event()
            threads = [threading.Thread(target=publish, args=(wire, done)) for wire in wires]
            for thread in threads:
                thread.start()
            for n in range(CHANGES):
                with plane.control:
                    session.set_permissions(SETS[n % 2])
                with plane.control:
                    after = Wire(plane.client(account, n % 2))
                with after:
                    after.fence()  # lets the owner of the hub's session run
            done.set()
            for thread in threads:
                thread.join()
            reader.end()
        for wire in wires:
            wire.close()
        assert set(reader.counts) == {b"open"}
