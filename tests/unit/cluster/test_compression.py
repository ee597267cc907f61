"""The compression of routes: what two servers agree on, and the level for a round trip time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from gnats.cluster.compression import UnknownModeError, choose_mode, level_for, negotiates, shown_mode
from gnats.cluster.route import Route
from gnats.options.values.cluster import Compression

from .fakes import Session, route, session

pytestmark = pytest.mark.timeout(60)

LEVELS = ("s2_uncompressed", "s2_fast", "s2_better", "s2_best")
S2 = ("s2_auto", *LEVELS)
OURS = ("not supported", "off", "accept", *S2)
THEIRS = ("", *OURS)


def pairs() -> Iterator[tuple[str, str, str]]:
    """Return each pair of modes with the result, by nats-server's rules."""
    for ours, theirs in itertools.product(OURS, THEIRS):
        if ours == "not supported" or theirs == "" or (theirs == "not supported" and ours != "off"):
            result = "not supported"
        elif "off" in (ours, theirs):
            result = "off"
        elif ours == "accept":
            result = {"accept": "off", "s2_auto": "s2_fast"}.get(theirs, theirs)
        else:
            result = ours
        yield ours, theirs, result


@pytest.mark.parametrize(("ours", "theirs", "result"), list(pairs()))
def test_every_pair(ours: str, theirs: str, result: str) -> None:
    assert choose_mode(ours, theirs) == result


@pytest.mark.parametrize(("ours", "theirs"), list(itertools.product(OURS, OURS)))
def test_both_sides_compress_or_none(ours: str, theirs: str) -> None:
    assert negotiates(choose_mode(ours, theirs)) == negotiates(choose_mode(theirs, ours))


def test_an_unknown_mode() -> None:
    for ours in ("accept", *S2):
        with pytest.raises(UnknownModeError, match='unsupported route compression mode "s2_\\\\"x"'):
            choose_mode(ours, 's2_"x')
    assert choose_mode("off", "x") == "off"
    assert choose_mode("not supported", "x") == "not supported"


def test_who_negotiates() -> None:
    assert [mode for mode in THEIRS if not negotiates(mode)] == ["", "not supported", "off"]


@pytest.mark.parametrize(
    ("thresholds", "rtts"),
    [
        ((0.01, 0.05, 0.1), {0: 0, 0.01: 0, 0.011: 1, 0.05: 1, 0.06: 2, 0.1: 2, 0.2: 3}),
        ((0.01, 0.05, 0.1, 0.5), {0.1: 2, 0.2: 3, 9: 3}),
        ((0.01,), {0.001: 0, 1: 0}),
        ((0.01, 0.05), {0.001: 0, 0.02: 1, 1: 1}),
        ((0.0, 0.05), {0.001: 1, 1: 1}),
        ((0.0, 0.0, 0.02), {0.001: 2, 0.02: 2, 0.03: 3}),
        ((0.0, 0.0, 0.02, 0.03), {0.001: 2, 0.03: 3, 9: 3}),
        ((0.0, 0.0, 0.0, 0.01), {0.001: 3, 9: 3}),
    ],
)
def test_the_level_for_a_round_trip_time(thresholds: tuple[float, ...], rtts: dict[float, int]) -> None:
    assert {rtt: level_for(rtt, thresholds) for rtt in rtts} == {rtt: LEVELS[n] for rtt, n in rtts.items()}


def test_the_mode_that_peers_are_told() -> None:
    assert shown_mode("s2_auto", "s2_fast") == "s2_auto"
    assert shown_mode("accept", "s2_fast") == "s2_fast"


AUTO = Compression("s2_auto", (0.010, 0.050, 0.100))


def compressing(level: str, rtt: float) -> Route:
    made = route()
    made.compression = level
    session(made).rtt = int(rtt * 1e9)
    return made


def test_the_level_follows_the_round_trip_time() -> None:
    made = compressing("s2_uncompressed", 0.02)
    made.follow_rtt(AUTO)
    assert made.compression == "s2_fast"
    made.follow_rtt(AUTO)
    session(made).rtt = 5_000_000
    made.follow_rtt(AUTO)
    assert made.compression == "s2_uncompressed"
    assert session(made).called("set_uncompressed") == [False, True]


@pytest.mark.parametrize(
    ("level", "compression"),
    [
        ("off", AUTO),
        ("not supported", AUTO),
        ("s2_fast", Compression("s2_fast")),
        ("s2_fast", Compression("accept")),
    ],
)
def test_others_do_not_follow_it(level: str, compression: Compression) -> None:
    made = compressing(level, 0.2)
    made.follow_rtt(compression)
    assert made.compression == level
    assert not session(made).calls


def test_a_closed_route_does_not_follow_it() -> None:
    made = compressing("s2_fast", 0.2)
    made.session = None
    made.follow_rtt(AUTO)
    assert made.compression == "s2_fast"


def test_before_the_first_pong_the_handshake_counts() -> None:
    made = compressing("s2_fast", 0)
    made.start -= 70_000_000
    made.follow_rtt(AUTO)
    assert made.compression == "s2_better"
    assert isinstance(made.session, Session)
