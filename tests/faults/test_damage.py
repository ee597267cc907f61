"""Damaged files: the server starts, serves what is whole, reports what is lost, and deletes nothing.

Jepsen found these faults in clusters of nats-server 2.12.1 (jepsen.io/analyses/nats-2.12.1). Two concern a
single server: a flipped bit that loses more than the message it hits (issue 7549 of nats-server), and data
deleted because of unreadable metadata (7556). test_kill.py and the campaign cover streams that are gone after
kill -9 (6888).
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.caller import Caller
from support.faults import Home, create, info, stored
from support.servers import Kind

pytestmark = pytest.mark.timeout(120)

COUNT = 300
Damage = Callable[[Path], None]
Held = dict[str, dict[int, tuple[str, bytes]]]


_filled: dict[tuple[Kind, str], tuple[Path, Held]] = {}
"""The store and its messages that fill() made first, by kind and options. Later tests copy the store."""


def fill(home: Home) -> Held:
    """Make two streams, one with a consumer, and stop the server; return their messages."""
    key = home.kind, home.options
    if key in _filled:
        kept, held = _filled[key]
        shutil.copytree(kept, home.store)
    else:
        kept, held = home.path / "kept", _fill(home)
        shutil.copytree(home.store, kept)
        _filled[key] = kept, held
    return held


def _fill(home: Home) -> Held:
    noise = random.Random(5)
    with Caller(home.start()) as caller:
        found = {}
        for name in ("S", "OTHER"):
            create(caller, name, storage="file", allow_msg_ttl=True)
            for number in range(COUNT):
                caller.publish(f"{name}.{number % 5}", b"%d " % number + noise.randbytes(200))
            found[name] = stored(caller, name)
        config = {"durable_name": "D", "ack_policy": "explicit"}
        answer = caller.request("$JS.API.CONSUMER.CREATE.S.D", {"stream_name": "S", "config": config}).json
        assert "error" not in answer, answer
        caller.ask("$JS.API.CONSUMER.MSG.NEXT.S.D", b"5")
        for _ in range(5):
            caller.publish(caller.next().reply, b"+ACK")
        caller.fence()
    home.stop()
    assert all(len(messages) == COUNT for messages in found.values())
    return found


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def flip(at: float) -> Damage:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int((len(data) - 1) * at)] ^= 16
        path.write_bytes(data)

    return damage


def cut(keep: float) -> Damage:
    def damage(path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * keep)])

    return damage


def overwrite(path: Path) -> None:
    path.write_bytes(random.Random(6).randbytes(path.stat().st_size))


DAMAGE: dict[str, Damage] = {
    "a bit at the beginning": flip(0.01),
    "a bit in the middle": flip(0.5),
    "a bit at the end": flip(1),
    "cut in half": cut(0.5),
    "emptied": cut(0),
    "overwritten": overwrite,
    "gone": Path.unlink,
}


@pytest.mark.parametrize(
    "what", ["a bit at the beginning", "a bit in the middle", "a bit at the end", "cut in half"]
)
@pytest.mark.parametrize("index", [True, False], ids=["index", "no-index"])
def test_a_damaged_block_costs_what_was_hit(home: Home, what: str, index: bool) -> None:
    """With nats-server 2.12.1 a flipped bit loses every message stored behind it."""
    before = fill(home)
    [block] = home.blocks("S")
    DAMAGE[what](block)
    size = block.stat().st_size
    if not index:
        (home.stream("S") / "msgs" / "index.db").unlink()
    for start in range(2):
        server = home.start()
        with Caller(server) as caller:
            assert stored(caller, "OTHER") == before["OTHER"]
            found = stored(caller, "S")
            assert all(before["S"][seq] == each for seq, each in found.items())
            assert len(found) >= (COUNT // 2 - 1 if what == "cut in half" else COUNT - 1)
            state = info(caller, "S")["state"]
            assert state["messages"] == len(found)
            if len(found) < COUNT and start == 0:
                assert state["lost"]["bytes"] > 0
        home.stop()
        assert sum(path.stat().st_size for path in block.parent.glob("*.blk*")) >= size - 300
    with Caller(home.start()) as caller:
        assert caller.request("S.1", b"next").json["seq"] > max(found)
    home.stop()


@pytest.mark.parametrize("what", DAMAGE)
@pytest.mark.parametrize("file", ["msgs/index.db", "obs/D/o.dat", "obs/D/meta.inf", "obs/D/meta.sum"])
def test_damage_beside_the_messages_costs_none_of_them(home: Home, what: str, file: str) -> None:
    before = fill(home)
    path = home.stream("S") / file
    DAMAGE[what](path)
    with Caller(home.start()) as caller:
        assert stored(caller, "S") == before["S"]
        assert stored(caller, "OTHER") == before["OTHER"]
        assert caller.request("S.1", b"next").json["seq"] == COUNT + 1
    home.stop()
    with Caller(home.start()) as caller:
        assert len(stored(caller, "S")) == COUNT + 1
    home.stop()


@pytest.mark.parametrize("what", ["cut in half", "emptied", "gone"])
@pytest.mark.parametrize("file", ["meta.inf", "meta.sum"])
def test_a_consumer_whose_metadata_was_lost_can_be_made_again(home: Home, what: str, file: str) -> None:
    """Metadata may be lost when the machine goes down before it is on the disk."""
    fill(home)
    DAMAGE[what](home.stream("S") / "obs" / "D" / file)
    body = {"stream_name": "S", "config": {"durable_name": "D", "ack_policy": "explicit"}}
    with Caller(home.start()) as caller:
        assert caller.request("$JS.API.CONSUMER.INFO.S.D", b"").json["error"]["code"] == 404
        assert "error" not in caller.request("$JS.API.CONSUMER.DURABLE.CREATE.S.D", body).json
    home.stop()
    with Caller(home.start()) as caller:
        assert caller.request("$JS.API.CONSUMER.INFO.S.D", b"").json["name"] == "D"
    home.stop()


@pytest.mark.parametrize("what", DAMAGE)
@pytest.mark.parametrize("file", ["meta.inf", "meta.sum"])
def test_a_stream_whose_metadata_cannot_be_read_is_left_as_it_is(home: Home, what: str, file: str) -> None:
    """nats-server 2.12.1 deletes the messages of such a stream."""
    before = fill(home)
    path = home.stream("S") / file
    whole = path.read_bytes()
    DAMAGE[what](path)
    there = files(home.stream("S"))
    for _ in range(2):
        server = home.start()
        with Caller(server) as caller:
            assert caller.request("$JS.API.STREAM.NAMES").json["streams"] == ["OTHER"]
            assert stored(caller, "OTHER") == before["OTHER"]
        assert str(path.parent) in server.log
        home.stop()
        assert files(home.stream("S")) == there
    path.write_bytes(whole)
    with Caller(home.start()) as caller:
        assert stored(caller, "S") == before["S"]
        names = caller.request("$JS.API.CONSUMER.NAMES.S").json["consumers"]
        assert "D" in names
    home.stop()


def test_a_stream_that_is_made_again_over_unreadable_metadata_has_its_messages(home: Home) -> None:
    before = fill(home)
    flip(0.5)(home.stream("S") / "meta.inf")
    with Caller(home.start()) as caller:
        create(caller, "S", storage="file", allow_msg_ttl=True)
        assert stored(caller, "S") == before["S"]
    home.stop()
    with Caller(home.start()) as caller:
        assert stored(caller, "S") == before["S"]
    home.stop()


def test_a_consumer_that_is_made_over_leftovers_stays(home: Home) -> None:
    """Leftovers of an interrupted deletion are not a consumer, and do not stop one from being made."""
    before = fill(home)
    (home.stream("S") / "obs" / "D" / "meta.sum").unlink()
    (home.stream("S") / "obs" / ".GONE").mkdir()
    with Caller(home.start()) as caller:
        assert caller.request("$JS.API.CONSUMER.NAMES.S").json["consumers"] == []
        assert not (home.stream("S") / "obs" / ".GONE").exists()
        config = {"durable_name": "D", "ack_policy": "explicit"}
        answer = caller.request("$JS.API.CONSUMER.CREATE.S.D", {"stream_name": "S", "config": config}).json
        assert "error" not in answer, answer
        home.kill()
    with Caller(home.start()) as caller:
        assert caller.request("$JS.API.CONSUMER.NAMES.S").json["consumers"] == ["D"]
        assert stored(caller, "S") == before["S"]
    home.stop()


@pytest.mark.parametrize("filled", [False, True], ids=["empty", "filled"])
def test_a_key_that_never_reached_the_disk_costs_its_block_only(home: Home, filled: bool) -> None:
    home.options = "key: secret"
    with Caller(home.start()) as caller:
        create(caller, "S", storage="file", max_bytes=125_000)
        for number in range(60 if filled else 0):
            assert caller.request("S.1", b"%d " % number * 400).json["seq"] == number + 1
        whole = stored(caller, "S")
    home.stop()
    blocks = home.blocks("S")
    blocks[-1].with_suffix(".key").write_bytes(b"")
    with Caller(home.start()) as caller:
        found = stored(caller, "S")
        assert bool(found) == filled
        assert found == {seq: each for seq, each in whole.items() if seq <= max(found)}
        assert caller.request("S.1", b"next").json["seq"] > max(found, default=0)
    home.stop()
    assert len(list(blocks[-1].parent.glob("*.bad"))) == (2 if filled else 0)
