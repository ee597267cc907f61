"""Digests of interest: two servers find out that one does not know what the other has told, and mend it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.dataplane import DataPlane, Peer, permissions

from gnats.core.runtime.inbox import EV_INFO
from gnats.core.subjects.sublist import Sublist
from gnats.options.values.auth import Permissions, SubjectPermission

pytestmark = pytest.mark.timeout(120)

PING = b"PING\r\n"
DIFFERS = b'INFO {"digest":"differs"}\r\n'
AGAIN = b'INFO {"digest":"again"}\r\n'


def digest(*interest: tuple[bytes, int]) -> bytes:
    """Return the line with the digest of sids and their weights: FNV-1a, mixed, and summed."""
    total = 0
    for sid, weight in interest:
        value = 0xCBF29CE484222325
        for byte in sid:
            value = (value ^ byte) * 0x100000001B3 % 2**64
        value *= 0x9E3779B97F4A7C15
        total += (value ^ value >> 64) % 2**64 * weight
    return b'INFO {"digest":"%016x"}\r\n' % (total % 2**64)


# -- what a server tells -----------------------------------------------------------------------------------


def test_a_pong_follows_the_digest(plane: DataPlane, other: int) -> None:
    client = plane.client(plane.account("A"), other)
    client.say(b"SUB foo 1\r\nSUB foo 2\r\nSUB q g 3\r\nSUB q g 4\r\n")
    route = plane.route(digests=True)
    route.hear()
    assert route.say(PING) == digest((b"R A foo", 1), (b"R A q g", 2)) + b"PONG\r\n"
    client.say(b"UNSUB 1\r\nUNSUB 3\r\nSUB more 5\r\n")
    route.hear()
    assert route.say(PING) == digest((b"R A foo", 1), (b"R A q g", 1), (b"R A more", 1)) + b"PONG\r\n"
    client.say(b"UNSUB 2\r\nUNSUB 4\r\nUNSUB 5\r\n")
    route.hear()
    assert route.say(PING) == digest() + b"PONG\r\n"


def test_a_digest_leaves_out_the_account_as_the_lines_do(plane: DataPlane, other: int) -> None:
    plane.client(plane.account("A"), other).say(b"SUB foo 1\r\n")
    plane.client(plane.account("B"), other).say(b"SUB bar 1\r\n")
    route = plane.route(account=b"A", digests=True)
    route.hear()
    assert route.say(PING) == digest((b"R foo", 1)) + b"PONG\r\n"


def test_a_digest_has_the_origins_of_leaf_nodes(plane: DataPlane, other: int) -> None:
    leaf = plane.leaf(plane.account("A"), other, cluster=b"L")
    leaf.say(b"LS+ foo\r\nLS+ q g 3\r\n")
    route = plane.route(digests=True, origins=2)
    assert sorted(route.hear().splitlines()) == [b"LS+ L A foo", b"LS+ L A q g 3"]
    assert route.say(PING) == digest((b"L L A foo", 1), (b"L L A q g", 3)) + b"PONG\r\n"


def test_accounts_that_a_connection_does_not_carry_do_not_count(plane: DataPlane, other: int) -> None:
    plane.client(plane.account("A"), other).say(b"SUB foo 1\r\n")
    plane.client(plane.account("B"), other).say(b"SUB bar 1\r\n")
    route = plane.route(digests=True, pool_index=0, pool_size=1)
    route.hear()
    route.session.drop_account(b"A")  # type: ignore[union-attr]
    plane.run()
    assert route.say(PING) == digest((b"R B bar", 1)) + b"PONG\r\n"
    route.session.carry(b"A")  # type: ignore[union-attr]
    route.hear()
    assert route.say(PING) == digest((b"R A foo", 1), (b"R B bar", 1)) + b"PONG\r\n"


def test_a_gateway_tells_the_digest_of_its_cluster(plane: DataPlane, other: int) -> None:
    client = plane.client(plane.account("A"), other)
    client.say(b"SUB foo 1\r\nSUB q g 3\r\nSUB q g 4\r\n")
    gateway = plane.inbound(digests=True)
    gateway.hear()
    assert gateway.say(PING) == digest((b"R A foo", 1), (b"R A q g", 1)) + b"PONG\r\n"


def test_there_is_no_digest_for_others(plane: DataPlane) -> None:
    assert plane.route().say(PING) == b"PONG\r\n"
    assert plane.inbound().say(PING) == b"PONG\r\n"
    assert plane.outbound(digests=True).say(PING) == b"PONG\r\n"


def test_there_is_no_digest_with_permissions(plane: DataPlane) -> None:
    """They keep from the peer what the digest counts."""
    terms = permissions(Permissions(publish=SubjectPermission(deny=("secret.>",))))
    route = plane.route(digests=True, permissions=terms)
    assert route.say(PING) == b"PONG\r\n"
    route.say(b"RS+ A x\r\n" + digest())
    assert route.say(digest()) == b""


def test_all_is_told_again_once_for_each_digest(plane: DataPlane, other: int) -> None:
    client = plane.client(plane.account("A"), other)
    client.say(b"SUB foo 1\r\n")
    route = plane.route(digests=True)
    route.hear()
    now = digest((b"R A foo", 1))
    assert route.say(DIFFERS) == b""
    assert route.say(PING) == now + b"PONG\r\n"
    assert route.say(DIFFERS + DIFFERS) == AGAIN + b"RS+ A foo\r\n" + now + AGAIN + b"RS+ A foo\r\n" + now
    assert not plane.take(EV_INFO)


def test_what_goes_with_an_account_is_told(plane: DataPlane, other: int) -> None:
    """No RS- comes when an account with subscriptions is removed."""
    client = plane.client(plane.account("A"), other)
    client.say(b"SUB foo 1\r\n")
    plane.client(plane.account("B"), other).say(b"SUB bar 1\r\n")
    route = plane.route(digests=True)
    route.hear()
    plane.registry.remove(b"A")
    assert route.hear() == AGAIN + b"RS+ B bar\r\n" + digest((b"R B bar", 1))
    nothing = plane.account("C")
    plane.registry.remove(b"C")
    assert route.hear() == b""
    assert nothing.sublist.count() == 0


# -- what a server hears -----------------------------------------------------------------------------------


def hearing_route(plane: DataPlane, poller: int) -> Peer:
    return plane.route(poller, digests=True)


def hearing_gateway(plane: DataPlane, poller: int) -> Peer:
    return plane.outbound(poller, digests=True)


@pytest.fixture(params=[hearing_route, hearing_gateway], ids=["route", "gateway"])
def hears(request: pytest.FixtureRequest) -> Callable[[DataPlane, int], Peer]:
    made: Callable[[DataPlane, int], Peer] = request.param
    return made


def test_the_same_digest_needs_nothing(
    plane: DataPlane, other: int, hears: Callable[[DataPlane, int], Peer]
) -> None:
    plane.account("A")
    link = hears(plane, other)
    link.say(
        b"RS+ A foo\r\nRS+ A q g 2\r\nRS+ A q g 1\r\nRS+ A bar\r\nRS+ A bar\r\nRS- A bar\r\nRS- A no\r\n"
    )
    link.say(b"RS+ NONE foo\r\nRS+ NONE q g 5\r\nRS+ NONE q g 4\r\nRS+ NONE bar\r\nRS- NONE bar\r\n")
    same = digest((b"R A foo", 1), (b"R A q g", 1), (b"R NONE foo", 1), (b"R NONE q g", 4))
    assert link.say(same * 5) == b""
    assert link.session.snapshot()["repairs"] == 0
    assert not plane.take(EV_INFO)


def test_the_second_difference_in_a_row_is_mended(
    plane: DataPlane, other: int, hears: Callable[[DataPlane, int], Peer]
) -> None:
    account = plane.account("A")
    link = hears(plane, other)
    link.say(b"RS+ A stale\r\nRS+ A kept\r\nRS+ A q g 2\r\nRS+ NONE stale\r\n")
    right = digest((b"R A kept", 1), (b"R A q g", 3), (b"R A new", 1), (b"R NONE new", 1))
    assert link.say(right) == b""
    assert link.say(right) == DIFFERS
    link.say(AGAIN + b"RS+ A kept\r\nRS+ A q g 3\r\nRS+ A new\r\nRS- A never\r\nRS+ NONE new\r\n")
    assert account.sublist.count() == 4
    assert link.say(right) == b""
    assert sorted(row[0] for row in link.session.subscriptions()) == [b"kept", b"new", b"q"]
    assert link.session.snapshot()["repairs"] == 1
    assert link.say(right * 3) == b""
    assert plane.account("NONE").sublist.count() == 0
    link.hear()
    assert [row[0] for row in link.session.subscriptions()].count(b"new") == 2


def test_one_difference_alone_is_forgotten(plane: DataPlane, other: int) -> None:
    plane.account("A")
    route = plane.route(other, digests=True)
    route.say(b"RS+ A foo\r\n")
    for _ in range(5):
        assert route.say(digest()) == b""
        assert route.say(digest((b"R A foo", 1))) == b""


def test_a_peer_that_does_not_mend_it_is_asked_once(
    plane: DataPlane, other: int, hears: Callable[[DataPlane, int], Peer]
) -> None:
    """Its digests do not get to the control plane from then on, either."""
    account = plane.account("A")
    link = hears(plane, other)
    wrong = digest((b"R A bar", 1))
    link.say(b"RS+ A foo\r\n")
    assert link.say(wrong * 2) == DIFFERS
    assert link.say(AGAIN + b"RS+ A foo\r\n" + wrong) == b""
    assert link.say(wrong * 10 + b"RS+ A more\r\n") == b""
    assert account.sublist.count() == 2
    assert not plane.take(EV_INFO)


@pytest.mark.parametrize(
    "text",
    [b"", b"0", b"0" * 15, b"0" * 17, b"G" * 16, b"AGAIN", b"0" * 16 + b'"', b"agai", b"differ", b'"}'],
)
def test_other_texts_change_nothing(plane: DataPlane, other: int, text: bytes) -> None:
    account = plane.account("A")
    route = plane.route(other, digests=True)
    route.say(b"RS+ A foo\r\n")
    assert route.say(b'INFO {"digest":"%b"}\r\n' % text * 3) == b""
    assert account.sublist.count() == 1


@pytest.mark.parametrize("count", [1, 100, 5000])
def test_much_that_is_stale_goes(plane: DataPlane, other: int, count: int) -> None:
    """The table of subscriptions shrinks on the way."""
    account = plane.account("A")
    route = plane.route(other, digests=True)
    route.say(b"".join(b"RS+ A foo.%d\r\nRS+ A bar.%d\r\n" % (n, n) for n in range(count)))
    route.say(AGAIN + b"RS+ A bar.0\r\n" + digest((b"R A bar.0", 1)))
    assert account.sublist.count() == 1


# -- two servers -------------------------------------------------------------------------------------------


class Pair:
    """Two servers with a route, or a gateway, between them; the test passes on what they write."""

    def __init__(self, link: str) -> None:
        self.planes = [DataPlane(), DataPlane()]
        self.clients: dict[tuple[int, str], Peer] = {}
        self.lost = 0
        if link == "route":
            self.ends = [plane.route(digests=True, origins=2) for plane in self.planes]
        else:
            self.ends = [self.planes[0].inbound(digests=True), self.planes[1].outbound(digests=True)]

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        for plane in self.planes:
            plane.__exit__(None, None, None)

    def pass_on(self, lose: Callable[[bytes], bool] = lambda line: False) -> list[bytes]:
        """Pass on lines until none come; return all. What `lose` returns true for does not arrive."""
        passed: list[bytes] = []
        while True:
            heard = [end.hear() for end in self.ends]
            if not any(heard):
                return passed
            for data, end in zip(heard, reversed(self.ends), strict=True):
                lines = data.splitlines(keepends=True)
                passed += lines
                # The control plane would answer a gateway's commands.
                lines = [line for line in lines if not line.startswith(b"INFO") or b'"digest"' in line]
                end.send(b"".join(line for line in lines if not lose(line)))

    def compare(self) -> list[bytes]:
        """Let each server compare twice; return the lines."""
        lines = []
        for _ in range(2):
            for end in self.ends:
                end.send(PING)
            lines += self.pass_on()
        return lines

    def client(self, at: int, name: str) -> Peer:
        if (at, name) not in self.clients:
            self.clients[at, name] = self.planes[at].client(self.planes[at].account(name))
        return self.clients[at, name]

    def heard(self, at: int) -> set[tuple[bytes, bytes, bytes]]:
        """Return what a server has subscribed to for the other: subject, queue group and sid."""
        return {row[:3] for row in self.ends[at].session.subscriptions()}


CHANGES = st.lists(
    st.tuples(
        st.sampled_from([0, 1]),
        st.sampled_from("AB"),
        st.sampled_from([b"SUB x %d", b"SUB x.y g %d", b"SUB x.y g %d", b"SUB > h %d", b"UNSUB %d"]),
        st.integers(1, 6),
        st.booleans(),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["route", "gateway"]), CHANGES)
def test_whatever_changes_the_digests_are_the_same(
    link: str, changes: list[tuple[int, str, bytes, int, bool]]
) -> None:
    """Accounts that only one of the servers has are among them."""
    with Pair(link) as pair:
        for at, name, verb, sid, passes in changes:
            pair.client(at, name).say(verb % sid + b"\r\n")
            if passes:
                pair.pass_on()
        lines = pair.compare()
        assert DIFFERS not in lines
        assert len([line for line in lines if re.fullmatch(rb'INFO {"digest":"\w{16}"}\r\n', line)]) == (
            4 if link == "route" else 2
        )


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["route", "gateway"]), CHANGES, st.integers(0, 2**32))
def test_lost_lines_are_made_up_for(
    link: str, changes: list[tuple[int, str, bytes, int, bool]], drawn: int
) -> None:
    with Pair(link) as pair, Pair(link) as whole:
        for each in (pair, whole):
            for at in (0, 1):
                for name in "AB":
                    each.client(at, name)
        numbers = iter(range(2**32))

        def lose(line: bytes) -> bool:
            return line.startswith(b"RS") and bool(drawn >> next(numbers) % 32 & 1)

        for at, name, verb, sid, passes in changes:
            for each in (pair, whole):
                each.client(at, name).say(verb % sid + b"\r\n")
            if passes:
                pair.pass_on(lose)
                whole.pass_on()
        pair.pass_on(lose)
        whole.pass_on()
        differed = [pair.heard(at) != whole.heard(at) for at in (0, 1)]
        lines = pair.compare()
        for at in (0, 1):
            assert pair.heard(at) == whole.heard(at)
            assert not differed[at] or pair.ends[at].session.snapshot()["repairs"] == 1
        assert DIFFERS in lines or not any(differed)
        assert DIFFERS not in pair.compare()


def test_an_account_that_comes_later_has_the_peers_interest(plane: DataPlane, other: int) -> None:
    """Also when the peer does not know digests: it is kept."""
    route = plane.route(other)
    route.say(b"RS+ A foo\r\nRS+ A q g 3\r\nRS+ A gone\r\nRS- A gone\r\nLS+ L A leaf\r\nRS+ A zero g 0\r\n")
    account = plane.account("A")
    plane.run()
    found = {row[:3] for row in route.session.subscriptions()}
    assert found == {
        (b"foo", b"", b"R A foo"),
        (b"q", b"g", b"R A q g"),
        (b"leaf", b"", b"L L A leaf"),
    }
    route.say(b"RS- A foo\r\nLS- L A leaf\r\n")
    assert account.sublist.count() == 1


def test_a_pinned_account_that_comes_back_has_the_peers_interest(plane: DataPlane, other: int) -> None:
    before = plane.account("A")
    route = plane.route(other, account=b"A")
    route.say(b"RS+ foo\r\nRS+ q g 2\r\n")
    plane.registry.remove(b"A")
    plane.run()
    again = plane.account("A")
    plane.run()
    assert (before.sublist.count(), again.sublist.count()) == (0, 2)


def test_interest_in_an_account_that_moves_is_forgotten(plane: DataPlane, other: int) -> None:
    """The peer tells of it over another connection."""
    route = plane.route(other, pool_index=0, pool_size=1)
    route.say(b"RS+ A foo\r\n")
    route.session.drop_account(b"A")  # type: ignore[union-attr]
    plane.run()
    sublist: Sublist = plane.account("A").sublist
    plane.run()
    assert sublist.count() == 0
