"""A link begins where there is much interest: it tells of it in turns, between which others are served."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from support.dataplane import COMMAND, DataPlane, Peer, permissions

from gnats.core.links.gateway_session import GatewaySession
from gnats.core.links.leaf_session import LeafSession
from gnats.core.links.route_session import RouteSession
from gnats.options.values.auth import Permissions, SubjectPermission

pytestmark = pytest.mark.timeout(120)

MANY = 20_000
"""Subscriptions that take several turns."""
PENDING = 1 << 20
"""More bytes than wait for a peer that reads nothing."""


def subjects(numbers: range) -> set[bytes]:
    return {b"many.%d" % n for n in numbers}


def subscribe(client: Peer, numbers: range) -> None:
    """Subscribe to many.<n> for each number, which is the sid too."""
    for first in numbers[::2_000]:  # as many as the socket takes
        client.say(
            b"".join(b"SUB many.%d %d\r\n" % (n, n) for n in range(first, min(first + 2_000, numbers.stop)))
        )


def route(plane: DataPlane, poller: int, **terms: object) -> Peer:
    """Connect a server, whose session has not begun to announce."""
    peer = plane.waiting_route(poller)
    assert isinstance(peer.session, RouteSession)
    peer.session.join(**({"pool_index": -1, "pool_size": 1, "headers": True, "traces": True} | terms))  # type: ignore[arg-type]
    return peer


def leaf(plane: DataPlane, poller: int, *, spoke: bool = False, terms: Permissions | None = None) -> Peer:
    peer = plane.waiting_leaf(poller)
    assert isinstance(peer.session, LeafSession)
    account = plane.registry.accounts[b"A"]
    peer.session.join(
        account,
        cluster=b"L",
        spoke=spoke,
        isolated=False,
        headers=True,
        traces=True,
        loop_subject=b"$LDS.own",
        permissions=permissions(terms) if terms else None,
    )
    return peer


def gateway(plane: DataPlane, poller: int, *, digests: bool = False) -> Peer:
    peer = plane.waiting_gateway(poller, outbound=False)
    assert isinstance(peer.session, GatewaySession)
    peer.session.join(cluster=b"F", headers=True, traces=True, command=COMMAND, digests=digests)
    return peer


def step(plane: DataPlane) -> None:
    """Let each poller do a round."""
    for poller in plane.pollers:
        poller.run_once(0)


def begin(plane: DataPlane, peer: Peer) -> bytes:
    """Let a link begin; return what it has told in its first turns."""
    told = b""
    while not told.count(b" many."):
        step(plane)
        told += peer.come()
    return told


def known(told: bytes) -> set[bytes]:
    """Return the subjects many.<n> that a peer knows which was told this. Nothing is told twice in a row."""
    found: set[bytes] = set()
    for line in told.splitlines():
        verb, _, rest = line.partition(b" ")
        subject = rest.rpartition(b" ")[2]
        if verb in (b"RS+", b"LS+"):
            assert subject not in found
            found.add(subject)
        elif verb in (b"RS-", b"LS-"):
            found.remove(subject)
    return {subject for subject in found if subject.startswith(b"many.")}


LINKS = pytest.mark.parametrize("link", [route, leaf, gateway])


@LINKS
def test_messages_are_delivered_between_the_turns_of_a_walk(
    plane: DataPlane, other: int, link: Callable[[DataPlane, int], Peer]
) -> None:
    account = plane.account("A")
    subscribe(plane.client(account), range(MANY))
    client = plane.client(account)
    client.say(b"SUB here 1\r\n")
    peer = link(plane, other)
    told = begin(plane, peer)
    delivered = 0
    while len(known(told)) < MANY:
        client.send(b"PUB here 2\r\nhi\r\n")
        step(plane)
        delivered += client.come().count(b"MSG here 1 2\r\nhi\r\n")
        told += peer.come()
    assert delivered >= MANY // 5_000
    assert known(told + peer.hear()) == subjects(range(MANY))


@LINKS
def test_changes_between_the_turns_of_a_walk_are_told_once(
    plane: DataPlane, other: int, link: Callable[[DataPlane, int], Peer]
) -> None:
    account = plane.account("A")
    client = plane.client(account)
    subscribe(client, range(MANY))
    peer = link(plane, other)
    told = begin(plane, peer)
    rng = random.Random(1)
    now = set(range(MANY))
    while len(told.splitlines()) < MANY:
        fewer = rng.sample(sorted(now), 300)
        client.send(b"".join(b"UNSUB %d\r\n" % n for n in fewer))
        now.difference_update(fewer)
        more = [rng.randrange(2 * MANY) for _ in range(200)]
        client.send(b"".join(b"SUB many.%d %d\r\n" % (n, n) for n in more))
        now.update(more)
        step(plane)
        told += peer.come()
    told += peer.hear()
    assert known(told) == {b"many.%d" % n for n in now}


def test_a_message_does_not_overtake_interest_still_to_be_walked(plane: DataPlane, other: int) -> None:
    account = plane.account("A")
    client = plane.client(account)
    subscribe(client, range(MANY))
    peer = route(plane, other)
    peer.send(b"RS+ A far\r\n")
    told = begin(plane, peer)
    assert len(known(told)) < MANY
    client.send(b"PUB far answer 2\r\nhi\r\n")
    told += peer.hear()
    lines, _, rest = told.partition(b"RMSG A far answer 2\r\nhi\r\n")
    assert known(lines) == subjects(range(MANY))
    assert rest == b""


@LINKS
def test_little_waits_for_a_peer_that_does_not_read(
    plane: DataPlane, other: int, link: Callable[[DataPlane, int], Peer]
) -> None:
    account = plane.account("A")
    client = plane.client(account)
    for first in range(0, 100_000, MANY):
        subscribe(client, range(first, first + MANY))
    peer = link(plane, other)
    plane.run()
    assert peer.session.snapshot()["pending_bytes"] < PENDING
    client.say(b"UNSUB 1\r\nSUB many.last 1\r\n")
    assert known(peer.hear()) == subjects(range(100_000)) - {b"many.1"} | {b"many.last"}


def test_an_account_that_goes_is_told_of_no_more(plane: DataPlane, other: int) -> None:
    accounts = [plane.account(name) for name in "AB"]
    clients = [plane.client(account) for account in accounts]
    for client in clients:
        subscribe(client, range(MANY))
    peer = route(plane, other)
    told = begin(plane, peer)
    first = told.split(b" ")[1]
    plane.registry.remove(first)
    told += peer.hear()
    assert 0 < told.count(b"RS+ %b " % first) < MANY
    assert told.count(b"RS+ %b " % (b"B" if first == b"A" else b"A")) == MANY


@LINKS
def test_a_link_ends_in_the_middle_of_a_walk(
    plane: DataPlane, other: int, link: Callable[[DataPlane, int], Peer]
) -> None:
    client = plane.client(plane.account("A"))
    subscribe(client, range(MANY))
    peer = link(plane, other)
    told = begin(plane, peer)
    assert len(known(told)) < MANY
    peer.socket.close()
    subscribe(client, range(MANY, 2 * MANY))
    again = link(plane, other)
    assert known(again.hear()) == subjects(range(2 * MANY))


def test_permissions_change_in_the_middle_of_a_walk(plane: DataPlane, other: int) -> None:
    client = plane.client(plane.account("A"))
    subscribe(client, range(MANY))
    peer = route(plane, other)
    told = begin(plane, peer)
    assert len(known(told)) < MANY
    denied = tuple(f"many.{n}" for n in range(0, MANY, 100))
    peer.session.set_permissions(permissions(Permissions(publish=SubjectPermission(deny=denied))))
    told += peer.hear()
    assert known(told) == subjects(range(MANY)) - {name.encode() for name in denied}


def test_a_hub_is_sent_nothing_that_is_denied_while_its_link_walks(plane: DataPlane, other: int) -> None:
    """The spoke's own interest in wildcards calls for a look at all that is delivered."""
    client = plane.client(plane.account("A"))
    subscribe(client, range(MANY))
    client.say(b"".join(b"SUB in.%d.> w%d\r\n" % (n, n) for n in range(3)))
    denied = SubjectPermission(deny=tuple(f"in.{n}.no" for n in range(3)))
    hub = leaf(plane, other, spoke=True, terms=Permissions(subscribe=denied))
    told = begin(plane, hub)
    hub.send(b"LS+ in.0.*\r\nLS+ in.1.*\r\nLS+ in.2.*\r\n")
    step(plane)
    client.send(
        b"".join(b"PUB in.%d.%b 1\r\nx\r\n" % (n, word) for n in range(3) for word in (b"no", b"yes"))
    )
    told += hub.hear()
    assert told.count(b"LMSG ") == told.count(b".yes 1\r\nx\r\n") == 3


def test_no_digest_is_sent_before_the_end_of_a_walk(plane: DataPlane, other: int) -> None:
    client = plane.client(plane.account("A"))
    subscribe(client, range(MANY))
    peer = route(plane, other, digests=True)
    told = begin(plane, peer)
    assert len(known(told)) < MANY
    peer.send(b"PING\r\n")
    while b"PONG\r\n" not in told:
        step(plane)
        told += peer.come()
    assert b"digest" not in told
    told += peer.hear()
    assert known(told) == subjects(range(MANY))
    digest = peer.say(b"PING\r\n")
    assert digest.startswith(b'INFO {"digest":"')
    assert digest.endswith(b"\r\nPONG\r\n")
    second = plane.route(other, digests=True)
    second.hear()
    assert second.say(b"PING\r\n") == digest
    client.say(b"UNSUB 0\r\n")
    peer.hear()
    assert peer.say(b"PING\r\n") != digest


def test_all_is_told_again_in_the_middle_of_a_walk(plane: DataPlane, other: int) -> None:
    client = plane.client(plane.account("A"))
    subscribe(client, range(MANY))
    peer = route(plane, other, digests=True)
    told = begin(plane, peer)
    assert isinstance(peer.session, RouteSession)
    peer.session.announce_again()
    told += peer.hear()
    lines = sorted(told.splitlines())
    assert lines[::2] == lines[1::2] == sorted(b"RS+ A " + subject for subject in subjects(range(MANY)))


def test_a_gateway_s_commands_stand_around_each_account(plane: DataPlane, other: int) -> None:
    for name in "AB":
        subscribe(plane.client(plane.account(name)), range(MANY))
    plane.account("C")
    lines = gateway(plane, other).hear().splitlines()
    for name, code, told in ((b"A", b"QQ==", MANY), (b"B", b"Qg==", MANY), (b"C", b"Qw==", 0)):
        first, last = (
            lines.index(COMMAND + b'%d,"gateway_cmd_payload":"%b"}' % (number, code)) for number in (2, 3)
        )
        assert sum(line.startswith(b"RS+ %b many." % name) for line in lines[first:last]) == told
        assert sum(line.startswith(b"RS+ %b many." % name) for line in lines) == told


def test_the_pong_of_a_gateway_follows_all_interest(plane: DataPlane, other: int) -> None:
    subscribe(plane.client(plane.account("A")), range(5_000))
    peer = gateway(plane, other)
    told = begin(plane, peer)
    assert len(known(told)) < 5_000
    told += peer.say(b"PING\r\n")
    assert told.endswith(b"PONG\r\n")
    assert known(told) == subjects(range(5_000))
