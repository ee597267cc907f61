"""Compression of routes, with a peer that writes and reads S2 itself, as the one that dials and the other."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest
from support.clusters import launch_routed
from support.launch import Launch
from support.monitor import monitor
from support.routepeer import GLOBAL, POOL, SYSTEM, Fake, RouteListener, RoutePeer, pool_index
from support.s2stream import IDENTIFIER, PADDING, SKIPPABLE, SNAPPY, chunk, compressed, uncompressed
from support.servers import Server, until
from support.wire import HELLO, PING, PONG, Connection, parse_info

pytestmark = pytest.mark.timeout(60)

FAST, AUTO, ACCEPT = "s2_fast", "s2_auto", "accept"


@pytest.fixture
def listener() -> Iterator[RouteListener]:
    with RouteListener() as listener:
        yield listener


@pytest.fixture
def fake(listener: RouteListener) -> Iterator[Fake]:
    """The server that `listener` belongs to."""
    with Fake(port=listener.port) as fake:
        yield fake


def launched(launch: Launch, mode: str, *routes: RouteListener, block: str = "") -> Server:
    if mode == AUTO:  # a long round trip must not change the level
        mode = "{ mode: s2_auto, rtt_thresholds: [1h, 2h] }"
    named = ", ".join(f"'{listener.url}'" for listener in routes)
    block = f"compression: {mode}\n{block}" + (f"\nroutes: [{named}]" if named else "")
    return launch_routed(launch, "-DV", cluster=block)


@pytest.fixture(scope="module")
def server(launch_shared: Launch) -> Server:
    """A server that compresses if asked to."""
    return launched(launch_shared, ACCEPT)


def shown(server: Server, peer: RoutePeer) -> str:
    """Return the mode on /routez of the route to a peer."""
    port = int(peer.local.partition(":")[2])
    found = [route for route in monitor(server, "/routez")["routes"] if route["port"] == port]
    mode: str = found[0]["compression"]
    return mode


ACCEPTED: dict[str, dict[str | None, str]] = {
    # a server's mode; the mode of the peer that dials: the server's own on /routez, and in its second INFO
    "off": {
        None: "not supported", "not supported": "off", "off": "off", ACCEPT: "off", FAST: "off", "x": "off"
    },
    "not_supported": {None: "not supported", FAST: "not supported"},
    ACCEPT: {
        None: "not supported", "not supported": "not supported", "off": "off", ACCEPT: "off",
        AUTO: FAST, "s2_uncompressed": "s2_uncompressed", FAST: FAST, "s2_better": "s2_better",
        "s2_best": "s2_best",
    },
    FAST: {None: "not supported", "off": "off", ACCEPT: FAST, AUTO: FAST, "s2_best": FAST},
    "s2_best": {ACCEPT: "s2_best", FAST: "s2_best"},
    AUTO: {"off": "off", ACCEPT: "s2_uncompressed", FAST: "s2_uncompressed"},
}  # fmt: skip
PAIRS = [(ours, theirs, mode) for ours, pairs in ACCEPTED.items() for theirs, mode in pairs.items()]


def configured(mode: str) -> str:
    return mode.replace("_", " ") if mode.startswith("not") else mode


def told(ours: str, mode: str) -> str:
    return AUTO if ours == AUTO else mode


@pytest.mark.parametrize(("ours", "theirs", "mode"), PAIRS)
def test_a_peer_that_dials(launch: Launch, fake: Fake, ours: str, theirs: str | None, mode: str) -> None:
    server = launched(launch, ours)
    if mode.startswith("s2_"):
        assert theirs
        peer = fake.dial_compressed(server, theirs)
        assert peer.info["compression"] == told(ours, mode)
        assert peer.info["nonce"]
    else:
        peer = fake.dial(server, compression=theirs)
    assert parse_info(peer.seen[0])["compression"] == configured(ours)
    assert shown(server, peer) == mode
    assert peer.fence() == []


@pytest.mark.parametrize(("ours", "theirs", "mode"), PAIRS)
def test_a_peer_that_is_dialled(
    launch: Launch, fake: Fake, listener: RouteListener, ours: str, theirs: str | None, mode: str
) -> None:
    server = launched(launch, ours, listener)
    if mode.startswith("s2_"):
        assert theirs
        pool = fake.serve_compressed(listener, theirs)
        firsts = [parse_info(peer.opening[0]) for peer in pool]
        assert [info["compression"] for info in firsts] == [told(ours, mode)] * 4
        assert [info.get("route_account", "") for info in firsts] == ["", "", "", "$SYS"]
        assert not any(info.get("route_pool_idx") for info in firsts)
    else:
        pool = fake.serve(listener, compression=theirs)
    said = {peer.info["compression"] for peer in pool if not peer.account}
    assert said == {told(ours, mode)}
    assert [peer.info.get("route_pool_idx", 0) for peer in pool] == [0, 1, 2, 0]
    assert [peer.account for peer in pool] == [b"", b"", b"", SYSTEM]
    until(lambda: len(monitor(server, "/routez")["routes"]) == POOL + 1)
    assert {route["compression"] for route in monitor(server, "/routez")["routes"]} == {mode}


@pytest.mark.parametrize("ours", [ACCEPT, FAST, AUTO])
def test_an_unknown_mode(launch: Launch, fake: Fake, ours: str) -> None:
    server = launched(launch, ours)
    peer = fake.greet(server)
    peer.send(fake.connect() + fake.info(compression="s2_x"))
    assert peer.rest() == [b"-ERR 'unsupported route compression mode \"s2_x\"'\r\n"]
    peer.wait_logged(server, 'ERR unsupported route compression mode "s2_x"')
    peer.wait_logged(server, "INF Router connection closed: Protocol Violation", begins=True)


def test_messages_and_interest_in_both_directions(server: Server, fake: Fake) -> None:
    peer = fake.dial_compressed(server, FAST, route_pool_size=POOL, route_pool_idx=pool_index(GLOBAL) or None)
    with Connection(server.address) as client:
        client.send(HELLO + b"SUB here 1\r\n")
        client.fence()
        assert peer.interest(peer.after(client)) == [b"RS+ here"]
        for payload in (b"", b"x" * 100_000, random.Random(1).randbytes(300_000)):
            peer.message(GLOBAL, b"here", payload)
            assert client.read_op() == b"MSG here 1 %d\r\n%s\r\n" % (len(payload), payload)
            peer.tell(b"RS+", GLOBAL, b"there")
            client.send(b"PUB there %d\r\n%s\r\n" % (len(payload), payload))
            op = peer.await_op(b"RMSG ")
            assert op == b"RMSG $G there %d\r\n%s\r\n" % (len(payload), payload)


def test_a_connection_of_a_pinned_account(server: Server, fake: Fake) -> None:
    peer = fake.dial_compressed(server, FAST, account=SYSTEM, route_pool_size=POOL, route_account="$SYS")
    peer.wait_logged(server, f'DBG Registering remote route "{fake.id}" for account "$SYS"')
    assert any(op.startswith(b"RS+ $SYS.REQ.") for op in peer.opening)


STREAMS = {
    "compressed": compressed(PING),
    "uncompressed": uncompressed(PING),
    "a new identifier": IDENTIFIER + uncompressed(PING),
    "Snappy's identifier": SNAPPY + uncompressed(PING),
    "padding": PADDING + uncompressed(PING),
    "a skippable chunk": SKIPPABLE + uncompressed(PING) + SKIPPABLE,
    "empty chunks": uncompressed(b"") * 2 + uncompressed(PING),
    "three chunks": b"".join(uncompressed(part) for part in (b"P", b"IN", b"G\r\n")),
}


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_chunks_that_are_read(server: Server, fake: Fake, stream: bytes) -> None:
    peer = fake.dial_compressed(server, FAST)
    peer.send_raw(stream)
    assert peer.until(PONG)[-1] == PONG
    for byte in stream:
        peer.send_raw(bytes([byte]))
    assert peer.until(PONG)[-1] == PONG


DAMAGED = {
    "a checksum": chunk(1, b"\x00\x00\x00\x00" + PING),
    "a block": chunk(0, b"\x00\x00\x00\x00\x05xxxx"),
    "an unknown kind": chunk(0x02, b"x"),
    "plain text": PING,
    "a huge chunk": b"\x01\xff\xff\xff",
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_damage_closes_the_route(server: Server, fake: Fake, data: bytes) -> None:
    peer = fake.dial_compressed(server, FAST)
    peer.send_raw(data)
    assert peer.rest() == []
    peer.wait_logged(server, f"INF Router connection closed: Read Error - Remote: {fake.name}")


def test_a_peer_that_goes_on_in_plain_text(server: Server, fake: Fake) -> None:
    peer = fake.greet(server)
    peer.send(fake.connect() + fake.info(compression=FAST) + fake.info())
    peer.compress()
    peer.rest()
    assert "INF Router connection closed: " in "\n".join(
        until(lambda: [line for line in peer.logged(server) if "closed" in line])
    )


def test_no_ping_before_the_compression_is_settled(launch: Launch, fake: Fake) -> None:
    server = launched(launch, ACCEPT, block="ping_interval: '0.2s'")
    peer = fake.greet(server)
    peer.send(fake.connect())
    # it is stale after 3 intervals, and has had no PING
    assert peer.rest() == [b"-ERR 'Stale Connection'\r\n"]
    assert PING not in peer.seen
    peer.wait_logged(server, "DBG Stale Client Connection - Closing")
    peer.wait_logged(server, "INF Router connection closed: Stale Connection", begins=True)
    late = fake.greet(server)
    late.send(fake.connect() + fake.info(compression=FAST))
    late.compress()
    late.take_info()
    assert late.until(PING)[-1] == PING


def test_the_one_that_dials_waits_for_the_peer_to_begin(
    launch: Launch, fake: Fake, listener: RouteListener
) -> None:
    # what comes with its INFO would be taken for plain text by nats-server
    server = launched(launch, FAST, listener, block="ping_interval: '0.1s', ping_max: 20")
    peer = fake.accept(listener)
    peer.send(fake.info(route_pool_size=POOL, compression=FAST))
    peer.answers_pings = False
    peer.opening = [peer.read_op()]
    assert parse_info(peer.opening[0])["compression"] == FAST
    server.wait_log(rf"{re.escape(peer.local)} - rid:\d+ - Router Ping Timer")
    peer.compress()
    peer.send(fake.info(route_pool_size=POOL, compression=FAST))
    assert peer.until(b"INFO ")


def test_compression_is_not_asked_for_an_info_of_another_server(server: Server, fake: Fake) -> None:
    peer = fake.dial_compressed(server, FAST)
    peer.send(fake.info(compression="x"))
    assert peer.fence() == []


def test_levels_by_round_trip_time(launch: Launch, fake: Fake) -> None:
    block = "{ mode: s2_auto, rtt_thresholds: [1h, 2h] }"
    server = launched(launch, block)
    peer = fake.dial_compressed(server, ACCEPT)
    assert (peer.info["compression"], shown(server, peer)) == (AUTO, "s2_uncompressed")
    assert peer.s2
    assert set(peer.s2.kinds) == {0xFF, 1}
    other = launched(launch, "{ mode: s2_auto, rtt_thresholds: [0s, 1h] }")
    assert shown(other, fake.dial_compressed(other, ACCEPT)) == FAST
    third = launched(launch, "{ mode: s2_auto, rtt_thresholds: [1ns, 2ns, 3ns] }")
    assert shown(third, fake.dial_compressed(third, ACCEPT)) == "s2_best"
