"""Random bytes of a route for a data plane without a server, whole and in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from support.dataplane import DataPlane, Peer

from gnats.core.links.gateway_session import GatewaySession
from gnats.core.links.route_session import RouteSession
from gnats.core.runtime.inbox import EV_CLOSED, EV_CONNECT, EV_INFO

from .draw import Draw

ACCOUNTS = ("A", "B")
LONG = 65_600
"""Bytes of a line that is about as long as one may be (16 x 4096)."""
_SUBJECTS = (b"foo", b"foo.bar", b"foo.*", b"foo.>", b">", b"bar", b"q", b"foo..bar", b"$SYS.x", b"map.x")
_GROUPS = (b"g", b"h", b"no")
_NAMED = (*_GROUPS, b"other")
"""Groups that messages name. `other` has members at another server alone: nothing is drawn."""
_KINDS = ("interest", "interest", "leaf", "message", "message", "message", "header", "leaf message", "rest")
_HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"


@dataclass(frozen=True)
class Outcome:
    """What a route's bytes have done. `events` are CONNECT and INFO, and the reason why it was closed."""

    clients: tuple[bytes, ...]
    route: bytes
    other: bytes
    events: tuple[tuple[int, object], ...]
    interest: tuple[int, ...]
    subscriptions: tuple[bytes, ...]


def outcome(pieces: Sequence[bytes], *, pollers: int, pinned: bool) -> Outcome:
    """Have a route read bytes in pieces. `pinned`: it is for account A alone."""
    with DataPlane(pollers) as plane:
        accounts = [plane.account(name) for name in ACCOUNTS]
        last = pollers - 1
        clients = [
            plane.client(accounts[0]),
            plane.client(accounts[0], last),
            plane.client(accounts[1], last),
        ]
        for client in clients:
            client.say(b"SUB foo 1\r\nSUB foo.* 2\r\nSUB > 3\r\n")
        clients[0].say(b"SUB foo.bar g 4\r\n")
        clients[1].say(b"SUB foo.* h 5\r\n")
        terms = {"account": b"A", "pool_index": 0} if pinned else {}
        route, other = plane.route(**terms), plane.route(last)
        other.say(b"RS+ A foo\r\nRS+ A q other 2\r\nRS+ B foo\r\n")
        for peer in route, other:
            peer.hear()
        plane.events.clear()
        events: list[tuple[int, object]] = []
        heard = write(plane, route, pieces, events)
        session = route.session
        assert isinstance(session, RouteSession)
        return Outcome(
            tuple(client.hear() for client in clients),
            heard + route.hear(),
            other.hear(),
            tuple(events),
            tuple(account.sublist.count() for account in accounts),
            tuple(sorted(row[0] for row in session.subscriptions())),
        )


def write(plane: DataPlane, link: Peer, pieces: Sequence[bytes], events: list[tuple[int, object]]) -> bytes:
    """Send pieces until the connection is closed; return what has come. See answer() for `events`."""
    closed = False
    for piece in pieces:
        rest = piece
        while rest and not closed:
            try:
                rest = rest[link.socket.send(rest) :]
            except BlockingIOError:
                answer(plane, link, events)
            except (BrokenPipeError, ConnectionResetError):
                closed = True
        answer(plane, link, events)
        if closed:
            break
    heard = link.hear()
    answer(plane, link, events)
    return heard


def answer(plane: DataPlane, route: Peer, events: list[tuple[int, object]]) -> None:
    """Run until nothing is left to do; answer each CONNECT and INFO of the connection."""
    while True:
        plane.run()
        before = len(events)
        for kind, source, reason, _, data in plane.events:
            if source is not route.session:
                continue
            if kind == EV_CLOSED:
                events.append((kind, reason))
            elif kind in (EV_CONNECT, EV_INFO):
                events.append((kind, data))
                assert isinstance(source, RouteSession | GatewaySession)
                source.accept_connect() if kind == EV_CONNECT else source.resume()
        plane.events.clear()
        if len(events) == before:
            return


def sequence(seed: int, number: int) -> tuple[bytes, bool]:
    """Return bytes of a route and whether it is for one account; seed and number determine them."""
    draw = Draw(seed * 1_000_003 + number)
    pinned = draw.maybe(0.3)
    ops = [op(draw, pinned) for _ in range(draw.randint(1, 12))]
    data = b"".join(ops)
    for _ in range(draw.one(0, 0, 1, 1, 2, 4)):
        data = spoil(draw, data, ops)
    return data, pinned


def pieces(seed: int, number: int, data: bytes) -> list[list[bytes]]:
    """Return a few ways to split bytes; short ones byte by byte as well."""
    draw = Draw(seed * 1_000_003 + number)
    ways = [[data[i : i + 1] for i in range(len(data))]] if len(data) < 600 else []
    for _ in range(3):
        cuts = sorted({draw.randint(0, len(data)) for _ in range(draw.randint(1, 6))})
        ways.append([data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b])
    return ways


def _account(draw: Draw, pinned: bool) -> bytes:
    return b"" if pinned else draw.one(b"A ", b"A ", b"B ", b"NOPE ")


def op(draw: Draw, pinned: bool) -> bytes:
    account, subject = _account(draw, pinned), draw.choice(_SUBJECTS)
    kind = draw.one(
        "interest", "interest", "leaf", "message", "message", "message", "header", "leaf message", "rest"
    )
    if kind == "interest":
        group = b" " + draw.choice(_GROUPS) if draw.maybe(0.4) else b""
        if draw.maybe(0.35):
            return b"RS- %b%b%b\r\n" % (account, subject, group)
        weight = b" %d" % draw.one(0, 1, 1, 2, 5000, 10**12) if group else b""
        return b"RS+ %b%b%b%b\r\n" % (account, subject, group, weight)
    if kind == "leaf":
        verb = draw.one(b"LS+", b"LS-")
        group = b" " + draw.choice(_GROUPS) if draw.maybe(0.3) else b""
        weight = b" 2" if group and verb == b"LS+" else b""
        return b"%b origin %b%b%b%b\r\n" % (verb, account, subject, group, weight)
    if kind == "rest":
        return draw.one(
            b"PING\r\n",
            b"PONG\r\n",
            b"+OK\r\n",
            b'INFO {"server_id":"X","n":%d}\r\n' % draw.small(),
            b'CONNECT {"name":"X","n":%d}\r\n' % draw.small(),
            b"SUB foo 1\r\n",
            b"A+ A\r\n",
            b"A- A\r\n",
            b"PUB foo 1\r\nx\r\n",
        )
    groups = b" ".join(draw.sample(_NAMED, draw.randint(1, 3)))
    to = draw.one(
        b"", b" inbox.x", b" | " + groups, b" + inbox.x " + groups, b" $JS.ACK.S.C.1.2.3.4.5@foo.bar"
    )
    payload = bytes(draw.one(b"x", b"\r", b"\n", b"\0", b"RS+ A foo\r\n")) * draw.one(0, 1, 2, 7, 40, 5000)
    if kind == "message":
        return b"RMSG %b%b%b %d\r\n%b\r\n" % (account, subject, to, len(payload), payload)
    header = _HEADER if kind == "header" or draw.maybe(0.5) else b""
    verb = b"HMSG" if kind == "header" else b"LMSG origin"
    sizes = b"%d %d" % (len(header), len(header) + len(payload))
    return b"%b %b%b%b %b\r\n%b%b\r\n" % (verb, account, subject, to, sizes, header, payload)


def spoil(draw: Draw, data: bytes, ops: list[bytes]) -> bytes:
    """Change something of the bytes."""
    at = draw.randint(0, len(data))
    how = draw.one("byte", "byte", "drop", "double", "cut", "line", "digit", "blank", "long", "op")
    if how == "byte":
        return data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]
    if how == "drop":
        return data[:at] + data[at + draw.randint(1, 5) :]
    if how == "double":
        return data[: at + draw.randint(1, 40)] + data[at:]
    if how == "cut":
        return data[:at]
    if how == "line":
        return data[:at] + b"\r\n" + data[at:]
    if how == "digit":
        return data[:at] + draw.one(b"0", b"9", b"-1", b"99999999999999999999", b"2147483648") + data[at:]
    if how == "blank":
        return data[:at] + draw.one(b" ", b"\t", b"  ") + data[at:]
    if how == "long":
        word = b"x" * (LONG + draw.randint(-80, 16))
        return data[:at] + word + data[at:]
    return data[:at] + draw.choice(ops) + data[at:]
