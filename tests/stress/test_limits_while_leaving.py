"""A subscription gets its last message from one poller while another one removes those of its connection."""

from contextlib import ExitStack
from pathlib import Path
from socket import SHUT_WR

import pytest
from support.peer import Peer
from support.servers import KINDS, Server

pytestmark = pytest.mark.timeout(300)

NO_ECHO = b'CONNECT {"verbose":false,"echo":false}\r\n'
OTHERS = b"".join(b"SUB k %d\r\n" % sid for sid in range(50_000))  # take many turns to remove
LIMITED = b"".join(b"SUB s %070000d\r\nUNSUB %070000d 1\r\n" % (sid, sid) for sid in range(100))


def test_what_was_removed_is_not_looked_at_when_the_last_message_is_told(tmp_path: Path) -> None:
    """The end of the sender's batch reports the last messages. The subscriptions are freed by then."""
    wrapper = ("env", "MALLOC_MMAP_THRESHOLD_=65536")  # a long block can be read no more once it is freed
    config = "max_control_line: 100000\n"
    server = Server(KINDS["gnats-threads"], tmp_path / "server", config=config, wrapper=wrapper)
    with ExitStack() as stack:
        stack.callback(server.kill)
        publisher = stack.enter_context(Peer(server.port, NO_ECHO))
        publisher.send(b"".join(b"SUB z %d\r\n" % sid for sid in range(20_000)))
        publisher.fence()
        readers = [stack.enter_context(Peer(server.port)) for _ in range(2)]
        leavers = [stack.enter_context(Peer(server.port)) for _ in range(4)]
        for leaver, reader in zip(leavers, readers * 2, strict=True):
            leaver.send(LIMITED + OTHERS)
            leaver.fence()
            reader.send(b"SUB s 1\r\n")
            reader.fence()
            # A long batch: each of its further messages is for 20000 subscriptions, of its own publisher.
            publisher.send(b"PUB s 0\r\n\r\n" + b"PUB z 0\r\n\r\n" * 30)
            while b"MSG s " not in reader.fence():
                pass
            leaver.sock.shutdown(SHUT_WR)
            publisher.fence()
            reader.send(b"UNSUB 1\r\n")
            reader.fence()
        for leaver in leavers:
            leaver.reset()
        server.stop()
