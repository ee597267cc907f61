"""Random bytes of a leaf node or of a hub for a data plane without a server, whole and in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from support.audience import Interest, apply
from support.dataplane import DataPlane, Peer, permissions

from gnats.connection.closed_state import ClosedState
from gnats.core.accounts.account import Account
from gnats.core.links.leaf_session import LeafSession
from gnats.core.runtime.inbox import EV_CLOSED, EV_CONNECT, EV_INFO, EV_LEAF
from gnats.core.subjects.transform import SubjectTransform
from gnats.options.values.auth import Permissions, SubjectPermission

from .draw import ENDS, Draw
from .routes import spoil

LOOP = b"$LDS.own"
_SUBJECTS = (
    *(b"foo", b"foo.bar", b"foo.*", b"foo.>", b">", b"bar", b"q", b"foo..bar", b"$SYS.x", b"map.x"),
    *(b"denied", b"$LDS.other", b"_GR_.x.y", b"$JS.ACK.x", b"_R_.x"),
)
_GROUPS = (b"g", b"h", b"no")
_NAMED = (*_GROUPS, b"other")
_HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"


@dataclass(frozen=True)
class Terms:
    """What is agreed with the peer."""

    spoke: bool = False
    joined: bool = True
    headers: bool = True
    restricted: bool = False
    max_subs: int = -1
    max_payload: int = -1


@dataclass(frozen=True)
class Outcome:
    """What the peer's bytes have done.

    `events` are CONNECT, INFO, violations, and the reason why it was closed.
    """

    clients: tuple[bytes, ...]
    leaf: bytes
    messages: tuple[tuple[bytes, ...], ...]
    told: tuple[Interest, ...]
    events: tuple[tuple[object, ...], ...]
    interest: int
    subscriptions: tuple[bytes, ...]


def outcome(pieces: Sequence[bytes], terms: Terms, *, pollers: int) -> Outcome:
    """Have a leaf node read bytes in pieces; check that other clients do not feel it."""
    with DataPlane(pollers) as plane:
        account = plane.account("A")
        account.set_mappings([(b"map.x", [(SubjectTransform(b"map.x", b"foo.mapped"), 100)])])
        last = pollers - 1
        clients = [plane.client(account), plane.client(account, last)]
        clients[0].say(b"SUB foo 1\r\nSUB foo.* 2\r\nSUB > 3\r\nSUB foo.bar g 4\r\n")
        clients[1].say(b"SUB foo 1\r\nSUB foo.* h 5\r\n")
        others = [
            plane.leaf(account, last, cluster=b"L2", loop_subject=b"$LDS.2"),
            plane.leaf(account, last, cluster=b"H", loop_subject=b"$LDS.3", spoke=True),
            plane.route(last, origins=2),
        ]
        others[0].send(b"LS+ foo\r\nLS+ q other 2\r\n")
        others[1].send(b"LS+ foo.>\r\n")
        others[2].send(b"RS+ A foo\r\nRS+ A q other 2\r\n")
        told: list[Interest] = [{}, {}, {}]
        leaf = connect(plane, account, terms)
        if terms.joined:
            leaf.hear()
        plane.events.clear()
        events: list[tuple[object, ...]] = []
        for piece in pieces:
            if not write(plane, leaf, piece, events):
                break
        heard = leaf.hear()
        answer(plane, leaf, events)
        heard += leaf.hear()
        messages = tuple(
            tuple(read(peer.hear(), known, b"A" if peer is others[2] else b""))
            for peer, known in zip(others, told, strict=True)
        )
        session = leaf.session
        assert isinstance(session, LeafSession)
        found = Outcome(
            tuple(client.hear() for client in clients),
            heard,
            messages,
            tuple(told),
            tuple(events),
            account.sublist.count(),
            tuple(sorted(row[0] for row in session.subscriptions())),
        )
        clients[1].say(b"SUB alive 9\r\n")
        clients[0].say(b"PUB alive 1\r\nx\r\n")
        assert b"MSG alive 9 1\r\nx\r\n" in clients[1].hear()
        return found


def connect(plane: DataPlane, account: Account, terms: Terms) -> Peer:
    """Connect the peer that is to send the bytes."""
    leaf = plane.waiting_leaf()
    assert isinstance(leaf.session, LeafSession)
    if not terms.joined:
        return leaf
    restricted = permissions(
        Permissions(publish=SubjectPermission(deny=("denied",)), subscribe=SubjectPermission(deny=("bar",)))
    )
    leaf.session.join(
        account,
        cluster=b"L1",
        spoke=terms.spoke,
        isolated=False,
        headers=terms.headers,
        traces=True,
        loop_subject=LOOP,
        permissions=restricted if terms.restricted else None,
        receive=permissions(Permissions(publish=SubjectPermission(deny=("bar",))))
        if terms.restricted
        else None,
        max_subs=terms.max_subs,
        max_payload=terms.max_payload,
    )
    plane.run()
    return leaf


def write(plane: DataPlane, leaf: Peer, piece: bytes, events: list[tuple[object, ...]]) -> bool:
    """Send a piece; return whether the connection is open."""
    while piece:
        try:
            piece = piece[leaf.socket.send(piece) :]
        except BlockingIOError:
            answer(plane, leaf, events)
        except (BrokenPipeError, ConnectionResetError):
            answer(plane, leaf, events)
            return False
    answer(plane, leaf, events)
    return True


def answer(plane: DataPlane, leaf: Peer, events: list[tuple[object, ...]]) -> None:
    """Run until nothing is left to do; answer what the control plane answers."""
    while True:
        plane.run()
        before = len(events)
        for kind, source, a, _, data in plane.events:
            if source is not leaf.session:
                continue
            assert isinstance(source, LeafSession)
            if kind == EV_CLOSED:
                events.append((kind, a))
            elif kind == EV_LEAF:
                events.append((kind, a, data))
                source.close_connection(ClosedState.PROTOCOL_VIOLATION)
            elif kind in (EV_CONNECT, EV_INFO):
                events.append((kind, data))
                source.accept_connect() if kind == EV_CONNECT else source.resume()
        plane.events.clear()
        if len(events) == before:
            return


def read(data: bytes, told: Interest, account: bytes) -> list[bytes]:
    """Apply lines of interest, which depend on how bytes are split, and return the messages."""
    found = []
    while data:
        line, _, data = data.partition(b"\r\n")
        verb = line[:4]
        if verb in (b"LS+ ", b"LS- ", b"RS+ ", b"RS- "):
            apply(told, line, account)
        else:
            assert verb in (b"LMSG", b"RMSG", b"HMSG"), line
            size = int(line.rpartition(b" ")[2])
            found.append(line + data[:size])
            data = data[size + 2 :]
    return found


def sequence(seed: int, number: int) -> tuple[bytes, Terms]:
    """Return bytes of a leaf node and what is agreed with it; seed and number determine them."""
    draw = Draw(seed * 1_000_003 + number)
    terms = Terms(
        spoke=draw.maybe(0.4),
        joined=draw.maybe(0.9),
        headers=draw.maybe(0.8),
        restricted=draw.maybe(0.3),
        max_subs=draw.one(-1, -1, 0, 1, 3),
        max_payload=draw.one(-1, -1, 0, 1, 100),
    )
    ops = [_op(draw) for _ in range(draw.randint(1, 12))]
    data = b"".join(ops)
    for _ in range(draw.one(0, 0, 1, 1, 2, 4)):
        data = spoil(draw, data, ops)
    return data, terms


def _op(draw: Draw) -> bytes:
    subject = draw.choice(_SUBJECTS) if draw.maybe(0.98) else LOOP
    kind = draw.one("interest", "interest", "interest", "message", "message", "message", "header", "rest")
    if kind == "interest":
        group = b" " + draw.choice(_GROUPS) if draw.maybe(0.4) else b""
        if draw.maybe(0.35):
            return b"LS- %b%b\r\n" % (subject, group)
        weight = b" %d" % (draw.choice(ENDS) if draw.maybe(0.3) else draw.small()) if group else b""
        return b"LS+ %b%b%b\r\n" % (subject, group, weight)
    if kind == "rest":
        return draw.one(
            b"PING\r\n",
            b"PONG\r\n",
            b"+OK\r\n",
            b"-ERR 'Some error'\r\n",
            b'INFO {"server_id":"X","n":%d}\r\n' % draw.small(),
            b'CONNECT {"name":"X","n":%d}\r\n' % draw.small(),
            b"SUB foo 1\r\n",
            b"RS+ A foo\r\n",
            b"RMSG A foo 1\r\nx\r\n",
            b"A+ A\r\n",
            b"PUB foo 1\r\nx\r\n",
        )
    groups = b" ".join(draw.sample(_NAMED, draw.randint(1, 3)))
    to = draw.one(
        b"", b" inbox.x", b" | " + groups, b" + inbox.x " + groups, b" $JS.ACK.S.C.1.2.3.4.5@foo.bar"
    )
    payload = bytes(draw.one(b"x", b"\r", b"\n", b"\0", b"LS+ foo\r\n")) * draw.one(0, 1, 2, 7, 40, 5000)
    if kind == "message":
        size = draw.choice(ENDS) if draw.maybe(0.02) else len(payload)
        return b"LMSG %b%b %d\r\n%b\r\n" % (subject, to, size, payload)
    sizes = b"%d %d" % (len(_HEADER), len(_HEADER) + len(payload))
    if draw.maybe(0.05):
        sizes = b"%d %d" % (draw.choice(ENDS), draw.choice(ENDS))
    return b"HMSG %b%b %b\r\n%b%b\r\n" % (subject, to, sizes, _HEADER, payload)
