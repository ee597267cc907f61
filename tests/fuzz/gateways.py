"""Random bytes of a gateway for a data plane without a server, whole and in pieces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from support.dataplane import DataPlane

from gnats.core.links.gateway_session import GatewaySession
from gnats.core.routing.gateway_reply import GatewayReplies, name_hash

from .draw import Draw
from .routes import ACCOUNTS, op, spoil, write

MAPPED = b"_GR_.%b.%b." % (name_hash(b"C"), name_hash(b"S"))
FOREIGN = b"_GR_.%b.%b." % (name_hash(b"F"), name_hash(b"X"))
_INTEREST = re.compile(rb"(?m)^LS[+-] [^\r]*\r\n")
"""What comes and goes at once is not told of, or is: that depends on the pieces."""
_OUTBOUND = (b"RS+", b"RS-", b"A+ ", b"A- ", b"PIN", b"PON", b"INF")
_INBOUND = (b"RMS", b"HMS", b"PIN", b"PON", b"INF", b"PUB")


@dataclass(frozen=True)
class Outcome:
    """What a gateway's bytes have done; see routes.Outcome."""

    clients: tuple[bytes, ...]
    gateway: bytes
    others: tuple[bytes, ...]
    events: tuple[tuple[int, object], ...]
    interest: tuple[int, ...]
    subscriptions: tuple[bytes, ...]


def outcome(pieces: Sequence[bytes], *, pollers: int, outbound: bool) -> Outcome:
    """Have a gateway read bytes in pieces. `outbound`: this server has dialled it."""
    with DataPlane(pollers) as plane:
        replies = GatewayReplies(plane.state)
        replies.set_gateway(b"C", b"S")
        accounts = [plane.account(name) for name in ACCOUNTS]
        last = pollers - 1
        clients = [plane.client(accounts[0]), plane.client(accounts[1], last)]
        for client in clients:
            client.say(b"SUB foo 1\r\nSUB foo.* 2\r\nSUB > 3\r\nSUB foo.bar g 4\r\n")
        far = plane.outbound(last, cluster=b"F")
        others = (far, plane.route(last), plane.leaf(accounts[0], last))
        others[1].say(b"RS+ A foo\r\nRS+ A q other 2\r\n")
        others[0].say(b"RS+ A foo\r\nRS+ A foo g 1\r\n")
        assert isinstance(far.session, GatewaySession)
        replies.set_gateway_links({name_hash(b"F"): far.session})
        gateway = plane.outbound(cluster=b"E") if outbound else plane.inbound(cluster=b"E")
        for peer in (gateway, *others):
            peer.hear()
        plane.events.clear()
        events: list[tuple[int, object]] = []
        heard = write(plane, gateway, pieces, events)
        for client in clients:
            client.say(b"PUB foo inbox.x 1\r\nx\r\nPUB r.x 1\r\ny\r\n")
        replies.set_gateway_links({})
        return Outcome(
            tuple(client.hear() for client in clients),
            heard + gateway.hear(),
            tuple(_INTEREST.sub(b"", other.hear()) for other in others),
            tuple(events),
            tuple(account.sublist.count() for account in accounts),
            tuple(sorted(row[0] for row in gateway.session.subscriptions())),
        )


def sequence(seed: int, number: int) -> tuple[bytes, bool]:
    """Return bytes of a gateway and whether it is outbound; seed and number determine them."""
    draw = Draw(seed * 1_000_003 + number)
    outbound = draw.maybe(0.5)
    ops = [_op(draw, outbound) for _ in range(draw.randint(1, 12))]
    data = b"".join(ops)
    for _ in range(draw.one(0, 0, 1, 1, 2, 4)):
        data = spoil(draw, data, ops)
    return data, outbound


def _op(draw: Draw, outbound: bool) -> bytes:
    """Return an operation, mostly one that goes in this direction."""
    if not outbound and draw.maybe(0.3):
        way = draw.one(MAPPED, FOREIGN, b"_GR_.x", MAPPED[:-4])
        return draw.one(
            b"RMSG A foo %br.x 2\r\nhi\r\n" % way,
            b"RMSG A %bfoo 2\r\nhi\r\n" % way,
            b"RMSG A %bfoo.bar | g h 2\r\nhi\r\n" % way,
        )
    fitting = _OUTBOUND if outbound else _INBOUND
    while True:
        drawn = op(draw, pinned=False)
        if drawn.startswith(fitting) or draw.maybe(0.02):
            return drawn
