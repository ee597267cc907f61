"""Missing block files: the stream's state afterwards, as nats-server reports it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.caller import Caller
from support.launch import Launch
from support.servers import Server, until

pytestmark = pytest.mark.timeout(60)

COUNT = 60


def start(launch: Launch, directory: Path) -> tuple[Server, Path, dict[str, list[int]]]:
    """Fill a stream and stop the server; return it, the folder of blocks, and the sequences of each block."""
    server = launch(config=f"jetstream {{ store_dir: '{directory}' }}")
    stream = {"name": "S", "subjects": ["s.>"], "max_bytes": 120_000, "storage": "file"}
    with Caller(server) as caller:
        assert "error" not in caller.request("$JS.API.STREAM.CREATE.S", stream).json
        for number in range(COUNT):
            caller.request(f"s.{number % 3}", b"%d " % number * 400)
    server.stop()
    messages = directory / "jetstream" / "$G" / "streams" / "S" / "msgs"
    sequences = {}
    for path in messages.glob("*.blk"):
        data, at, found = path.read_bytes(), 0, []
        while at < len(data):
            found.append(int.from_bytes(data[at + 4 : at + 12], "little"))
            at += int.from_bytes(data[at : at + 4], "little") & 0x7FFFFFFF
        sequences[path.name] = found
    assert len(sequences) == 3
    return server, messages, sequences


def state(caller: Caller) -> dict[str, Any]:
    told = caller.request("$JS.API.STREAM.INFO.S", {"deleted_details": True}).json["state"]
    return {name: value for name, value in told.items() if not name.endswith("_ts")}


@pytest.mark.parametrize("block", ["1.blk", "2.blk"])
def test_a_block_that_is_gone_at_the_start(launch: Launch, tmp_path: Path, block: str) -> None:
    server, messages, sequences = start(launch, tmp_path / "js")
    size = (messages / block).stat().st_size
    (messages / block).unlink()
    server.start_again()
    lost = sequences[block]
    with Caller(server) as caller:
        told = state(caller)
        assert told["lost"] == {"msgs": lost, "bytes": size}
        assert told["messages"] == COUNT - len(lost)
        assert caller.request("$JS.API.STREAM.MSG.GET.S", {"seq": lost[0]}).json["error"]["code"] == 404
        assert caller.request("s.1", b"next").json["seq"] == COUNT + 1


@pytest.mark.parametrize("block", ["1.blk", "2.blk"])
def test_a_block_that_is_emptied_while_the_server_runs(launch: Launch, tmp_path: Path, block: str) -> None:
    server, messages, sequences = start(launch, tmp_path / "js")
    server.start_again()
    size = (messages / block).stat().st_size
    os.truncate(messages / block, 0)
    lost = sequences[block]
    with Caller(server) as caller:
        assert state(caller)["messages"] == COUNT
        for seq in lost:
            error = caller.request("$JS.API.STREAM.MSG.GET.S", {"seq": seq}).json["error"]
            assert (error["code"], error["err_code"]) == (404, 10037)
        told = until(lambda: "lost" in (now := state(caller)) and now)
        assert told["lost"] == {"msgs": lost, "bytes": size}
        assert told["messages"] == COUNT - len(lost)
        assert caller.request("s.1", b"next").json["seq"] == COUNT + 1
        if not server.kind.is_reference:
            server.wait_log(
                rf"'\$G > S': block {block[0]}: \d+ messages are lost to damage, sequences {lost[0]} "
            )
            server.wait_log(rf"block {block[0]}: .* to {lost[-1]}\n")
