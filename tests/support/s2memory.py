"""Let each allocation on the way of a compressed route fail once: the route closes, or all goes on."""

from __future__ import annotations

import random

from gnats.connection.closed_state import ClosedState
from gnats.core.links.route_session import RouteSession
from gnats.core.runtime.inbox import EV_INFO

from .dataplane import DataPlane, Peer
from .failing_server import Call, here
from .s2stream import MOST, S2Stream, bomb

LAYER = "core/net/s2transport"
PAYLOAD = random.Random(1).randbytes(200_000)
RMSG = b"RMSG A in %d\r\n%s\r\n" % (len(PAYLOAD), PAYLOAD)
RECEIVED = b"MSG in 1 %d\r\n%s\r\n" % (len(PAYLOAD), PAYLOAD)
PUB = b"PUB out %d\r\n%s\r\n" % (len(PAYLOAD), PAYLOAD)
SENT = b"RS+ A in\r\nRMSG A out %d\r\n%s\r\n" % (len(PAYLOAD), PAYLOAD)


def exchange(plane: DataPlane, client: Peer, route: Peer) -> tuple[bytes, bytes]:
    """Compress a route, with bytes behind the INFO; send messages both ways. Return what both have heard."""
    stream = S2Stream()
    assert isinstance(route.session, RouteSession)
    start = stream.encode(b"RS+ A out\r\n" + b"PONG\r\n" * 20_000)
    route.send(b"INFO {}\r\n" + start[:100])
    plane.run()
    if not plane.take(EV_INFO):
        return b"", b""
    route.session.compress(b"INFO {}\r\n", solicited=False)
    route.session.join(headers=True, traces=True, pool_index=-1, pool_size=1)
    plane.run()
    route.send(start[100:] + bomb(b"PONG\r\n", MOST // 6 * 6))
    plane.run()
    came = b""
    for data in (stream.encode(RMSG)[at : at + 50_000] for at in range(0, len(RMSG) + 100, 50_000)):
        route.send(data)
        came += client.hear()
    heard = b""
    for at in range(0, len(PUB), 50_000):
        client.send(PUB[at : at + 50_000])
        heard += route.hear()
    return came.replace(b"+OK\r\n", b""), stream.decode(heard).removeprefix(b"INFO {}\r\n")


def main() -> None:
    """Print how many allocations of the layer have failed. Runs in a process of its own."""
    failing = here(2)
    failed = set()
    where = "begin"
    while where:
        with DataPlane() as plane:
            account = plane.account("A")
            client, route = plane.client(account), plane.waiting_route()
            client.say(b"SUB in 1\r\n")
            failing.fail_next(Call.MEMORY)
            try:
                result = exchange(plane, client, route)
            except OSError:  # the other side has closed
                result = None
            except MemoryError:
                result = None
                route.session.close_connection(ClosedState.READ_ERROR)  # as the control plane does
            where = failing.stop()
            plane.run()
            closed = route.session.closed_reason or client.session.closed_reason
            assert closed or result in (None, (RECEIVED, SENT)), where
            if where.startswith(LAYER):
                failed.add(where.split()[1])
                assert route.session.closed_reason, where
            # the next one is as good as ever
            client, route = plane.client(account), plane.waiting_route()
            client.say(b"SUB in 1\r\n")
            assert exchange(plane, client, route) == (RECEIVED, SENT), where
    print(len(failed))


if __name__ == "__main__":
    main()
