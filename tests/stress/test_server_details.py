"""What requests to services say of the server changes while pollers write it into requests."""

from __future__ import annotations

import json
import threading

import pytest
from support.peer import Peer
from support.stress import SCALE, settle, together
from support.wire import connect_op

from gnats.options.options import Options
from gnats.options.values.accounts import AccountConfig, ServiceExport, ServiceImport
from gnats.options.values.auth import User
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(300 * SCALE)

REQUESTS = 1000 * SCALE
CLIENTS = 4
OTHERS = [["near"], ["near", "far" * 100], ["elsewhere"] * 40]
"""The other clusters that the server names, in turn."""


def options(threads: int) -> Options:
    return Options(
        host="127.0.0.1",
        port=-1,
        server_name="here",
        io_threads=threads,
        users=[User("a", "p", account="A"), User("b", "p", account="B")],
        accounts=[
            AccountConfig("A", exports=[ServiceExport("svc.*")]),
            AccountConfig("B", imports=[ServiceImport("A", "svc.*", share=True)]),
        ],
    )


def details(number: int) -> bytes:
    text = json.dumps(OTHERS[number % len(OTHERS)])
    return b',"server":"here","alts":%b' % text.encode()


@pytest.mark.parametrize("threads", [0, 3], ids=["loop", "threads"])
def test_each_request_has_one_of_them_whole(threads: int) -> None:
    with ServerThread(options(threads)) as server:
        server.call(lambda s: s.state.set_details(details(0)))
        busy = threading.Event()
        busy.set()
        left = CLIENTS
        lock = threading.Lock()

        def request(number: int) -> None:
            """Send requests; read them at a client of the other account, which may be another poller's."""
            nonlocal left
            hello = {name: connect_op(name, "p", pedantic=False, headers=True) for name in ("a", "b")}
            try:
                with Peer(server.port, hello["a"]) as service, Peer(server.port, hello["b"]) as requester:
                    service.send(b"SUB svc.%d 1\r\n" % number)
                    service.fence()
                    for _ in range(REQUESTS):
                        requester.send(b"PUB svc.%d in 1\r\nx\r\n" % number)
                        line = service.until(b"\r\n")
                        assert line.startswith(b"HMSG svc.%d 1 " % number), line
                        _, header, rest = service.take(int(line.split()[-1]) + 2).split(b"\r\n", 2)
                        assert rest == b"\r\nx\r\n"
                        found = json.loads(header.partition(b": ")[2])
                        assert found["server"] == "here"
                        assert found["alts"] in OTHERS
            finally:
                with lock:
                    left -= 1
                    if not left:
                        busy.clear()

        def change() -> None:
            number = 0
            while busy.is_set():
                number += 1
                server.call(lambda s, number=number: s.state.set_details(details(number)))  # type: ignore[misc]

        together(change, *(lambda number=number: request(number) for number in range(CLIENTS)))  # type: ignore[misc]
        settle(server)
