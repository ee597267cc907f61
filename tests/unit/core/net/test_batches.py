"""What the control loop publishes between two rounds of its poller leaves at once."""

from __future__ import annotations

from support.dataplane import DataPlane

from gnats.connection.closed_state import ClosedState
from gnats.core.internal import InternalSubscriber
from gnats.core.runtime.kinds import ACCOUNT

LISTENERS = 500
"""So many that sending to them takes far longer than reading the next message."""
LONG = 128 * 1024


def test_an_answer_to_a_long_read_leaves_at_once() -> None:
    """A long read leaves no queue behind that would wait for more input: it may be the last for a while."""
    with DataPlane() as plane:
        account = plane.account("A")
        service = InternalSubscriber(ACCOUNT, -1, 1 << 20, plane.pollers[0], plane.state)
        service.register(account)
        service.subscribe_internal(b"service", None, b"1")
        for _ in range(LISTENERS):
            assert plane.client(account).say(b"SUB all 1\r\n") == b"+OK\r\n"
        asker = plane.client(account)
        assert asker.say(b"SUB answer 1\r\n") == b"+OK\r\n"
        sender = plane.route()
        for _ in range(20):
            sender.send(b"RMSG A all 1\r\n.\r\n")
            plane.pollers[0].run_once()
            sender.send(b"RMSG A service %d\r\n%s\r\n" % (LONG, b"x" * LONG))
            plane.pollers[0].run_once()
            assert service.publish_internal(b"answer", None, None, b".")
            assert asker.socket.recv(1 << 16) == b"MSG answer 1 1\r\n.\r\n"
            plane.run()
        service.close_connection(ClosedState.CLIENT_CLOSED)
