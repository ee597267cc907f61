"""Files that cannot be opened, and blocks that are truncated while consumers read them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.caller import Caller
from support.faults import Home, create, info, stored

pytestmark = pytest.mark.timeout(60)

COUNT = 90
Message = tuple[str, bytes]
WITHOUT_POWERS = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
"""Runs a command as root without the right to ignore the modes of files."""


def fill(home: Home) -> dict[str, dict[int, Message]]:
    """Start a server and fill two streams with several small blocks; return their messages."""
    with Caller(home.start()) as caller:
        found = {}
        for name in ("S", "OTHER"):
            create(caller, name, storage="file", max_bytes=120_000, allow_direct=True)
            for number in range(COUNT):
                caller.publish(f"{name}.{number % 5}", b"%d " % number * 300)
            found[name] = stored(caller, name)
        body = {"stream_name": "S", "config": {"durable_name": "OLD", "ack_policy": "explicit"}}
        assert "error" not in caller.request("$JS.API.CONSUMER.CREATE.S.OLD", body).json
        assert len(home.blocks("S")) >= 3
    return found


def modest(home: Home) -> None:
    """Run servers without root's capabilities, so that file modes hold for them."""
    if os.geteuid() == 0:
        if not shutil.which(WITHOUT_POWERS[0]):
            pytest.skip("root may open everything, and setpriv(1) is not installed")
        home.wrapper = WITHOUT_POWERS


def readable(caller: Caller, messages: dict[int, Message]) -> set[int]:
    answers = {seq: caller.request("$JS.API.STREAM.MSG.GET.S", {"seq": seq}).json for seq in messages}
    return {seq for seq, answer in answers.items() if "error" not in answer}


PLACES: dict[str, Callable[[Home], Path]] = {
    "a block": lambda home: home.blocks("S")[1],
    "the last block": lambda home: home.blocks("S")[-1],
    "the blocks": lambda home: home.stream("S") / "msgs",
    "the stream": lambda home: home.stream("S"),
    "its description": lambda home: home.stream("S") / "meta.inf",
    "its consumers": lambda home: home.stream("S") / "obs",
}


@pytest.mark.parametrize("index", [True, False], ids=["index", "no-index"])
@pytest.mark.parametrize("place", PLACES)
def test_what_may_not_be_read_is_left_as_it_is(home: Home, place: str, index: bool) -> None:
    """The server starts and serves the rest; when it may read the place again, it serves everything."""
    before = fill(home)
    home.stop()
    modest(home)
    if not index:
        (home.stream("S") / "msgs" / "index.db").unlink()
    path = PLACES[place](home)
    mode = path.stat().st_mode
    path.chmod(0)
    for _ in range(2):
        server = home.start()
        with Caller(server) as caller:
            assert stored(caller, "OTHER") == before["OTHER"]
            if "error" in caller.request("$JS.API.STREAM.INFO.S").json:
                assert "ermission denied" in server.log
            else:  # with an index, the server reads a block only for a message in it
                assert place == "a block" and index
                assert 0 < len(readable(caller, before["S"])) < COUNT
        home.stop()
    path.chmod(mode)
    home.wrapper = ()
    with Caller(home.start()) as caller:
        assert stored(caller, "S") == before["S"]
        assert caller.request("$JS.API.CONSUMER.NAMES.S").json["consumers"] == ["OLD"]
        assert caller.request("S.1", b"next").json["seq"] == COUNT + 1
    home.stop()


def test_a_store_that_may_not_be_written(home: Home) -> None:
    """The server refuses new streams, and goes on; with permission again it makes them."""
    modest(home)
    before = fill(home)
    streams = home.stream("S").parent
    streams.chmod(0o500)
    server = home.server
    assert server
    with Caller(server) as caller:
        body = {"name": "NEW", "subjects": ["NEW.>"], "storage": "file"}
        assert "error" in caller.request("$JS.API.STREAM.CREATE.NEW", body).json
        assert caller.request("S.1", b"next").json["seq"] == COUNT + 1
        streams.chmod(0o700)
        create(caller, "NEW", storage="file")
        assert stored(caller, "OTHER") == before["OTHER"]
    home.stop()
    with Caller(home.start()) as caller:
        assert caller.request("$JS.API.STREAM.NAMES").json["streams"] == ["NEW", "OTHER", "S"]
        assert len(stored(caller, "S")) == COUNT + 1
    home.stop()


def pull(caller: Caller, consumer: str, most: int) -> dict[int, Message]:
    """Pull up to `most` messages that are there now; return (subject, payload) by sequence."""
    found: dict[int, Message] = {}
    body = json.dumps({"batch": most, "no_wait": True}).encode()
    inbox = caller.ask(f"$JS.API.CONSUMER.MSG.NEXT.S.{consumer}", body)
    while len(found) < most and (message := caller.next()).subject != inbox:
        found[int(message.reply.split(".")[5])] = message.subject, message.payload
    return found


@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "middle", "last"])
@pytest.mark.parametrize("cut", [0, 5000])
def test_a_block_that_is_cut_short_under_its_readers(home: Home, which: int, cut: int) -> None:
    """Consumers get every message that is left, and the stream's state lists the lost ones."""
    before = fill(home)
    server = home.server
    assert server
    with Caller(server) as caller:
        for name in ("D", "E"):
            body = {"stream_name": "S", "config": {"durable_name": name, "ack_policy": "explicit"}}
            assert "error" not in caller.request(f"$JS.API.CONSUMER.CREATE.S.{name}", body).json
        got = pull(caller, "D", 5)
        os.truncate(home.blocks("S")[which], cut)
        found = pull(caller, "E", 1000)
        assert all(before["S"][seq] == each for seq, each in found.items())
        assert COUNT // 3 < len(found) < COUNT
        got |= pull(caller, "D", 1000)
        assert got == {seq: each for seq, each in before["S"].items() if seq in found or seq <= 5}
        for name in ("D", "E"):
            told = caller.request(f"$JS.API.CONSUMER.INFO.S.{name}").json
            assert told["num_pending"] == 0
        state = info(caller, "S")["state"]
        assert state["messages"] == len(found)
        assert len(state["lost"]["msgs"]) == COUNT - len(found)
        assert stored(caller, "OTHER") == before["OTHER"]
        assert caller.request("S.1", b"next").json["seq"] == COUNT + 1
    server.wait_log(r"'\$G > S': block \d+: \d+ messages are lost to damage")
    home.stop()
    with Caller(home.start()) as caller:
        again = stored(caller, "S")
        assert again.pop(COUNT + 1) == ("S.1", b"next")
        assert again == found
    home.stop()
