"""A server that starts again has what it had, also what its log does not know to be committed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.caller import Caller
from support.servers import selected, until

from .test_jetstream import Members, running

pytestmark = pytest.mark.timeout(180)

KIND = next(kind for kind in selected() if not kind.is_reference)
SIZE = 3
STORED = 5


def consume(members: Members, name: str, number: int) -> None:
    """Have a consumer of a stream deliver messages, and acknowledge them."""
    for _ in range(number):
        message = members.pull(members.cluster.running()[0], name, "C")
        assert members.answer(members.cluster.running()[0], message.reply, b"+ACK")


def floor(info: dict[str, Any]) -> tuple[str, int, int, int]:
    acknowledged = info["ack_floor"]
    return info["created"], acknowledged["consumer_seq"], acknowledged["stream_seq"], info["num_pending"]


def delete(meta: Path) -> None:
    shutil.rmtree(meta)


def damage(meta: Path) -> None:
    """Flip a bit of the record of the consumer: it and those behind it are lost."""
    block = next(meta.glob("msgs/*.blk"))
    data = bytearray(block.read_bytes())
    data[data.index(b'"durable_name"')] ^= 1
    block.write_bytes(data)


@pytest.mark.parametrize("harm", [delete, damage])
def test_a_server_without_its_meta_group_keeps_its_streams(
    harm: Callable[[Path], None], tmp_path: Path
) -> None:
    """What it finds on its disk is what is assigned last, not what was on the way."""
    with running(tmp_path, (KIND,) * SIZE) as members:
        name = members.stream()
        host = members.host(name)
        members.api(0, f"STREAM.DELETE.{name}")
        config = {"name": name, "subjects": [f"{name}.>"], "max_msgs": 1, "retention": "interest"}
        config["placement"] = {"tags": [f"n{host}"]}
        members.api(0, f"STREAM.CREATE.{name}", config)
        members.api(0, f"STREAM.UPDATE.{name}", config | {"max_msgs": -1})
        consumer = {"durable_name": "C", "ack_policy": "explicit"}
        members.api(0, f"CONSUMER.CREATE.{name}.C", {"stream_name": name, "config": consumer})
        members.reachable(f"{name}.x")
        consume(members, name, 1)
        paths = f"STREAM.INFO.{name}", f"CONSUMER.INFO.{name}.C"
        until(lambda: members.api(0, paths[1])["num_ack_pending"] == 0)
        before = [members.api(0, path) for path in paths]
        assert before[0]["state"]["messages"] == SIZE - 1
        members.cluster.stop(host, rested=False)
        harm(next((tmp_path / str(host)).glob("**/_meta_")))
        members.cluster.start_again(host)
        for path in paths:  # first, the others say that it is offline
            until(lambda path=path: "error" not in members.ask(0, f"$JS.API.{path}"), 20)  # type: ignore[misc]
        after = [members.api(0, path) for path in paths]
        assert after[0]["created"] == before[0]["created"]
        assert after[0]["state"]["messages"] == before[0]["state"]["messages"]
        assert floor(after[1]) == floor(before[1])


@pytest.mark.parametrize("retention", ["limits", "interest"])
def test_a_consumer_keeps_its_state(retention: str, tmp_path: Path) -> None:
    with running(tmp_path, (KIND,) * SIZE) as members:
        name = members.stream(retention=retention)
        config = {"durable_name": "C", "ack_policy": "explicit"}
        made = members.api(0, f"CONSUMER.CREATE.{name}.C", {"stream_name": name, "config": config})
        for _ in range(STORED):
            members.ask(0, f"{name}.x", b"")
        consume(members, name, 2)
        at = f"CONSUMER.INFO.{name}.C"
        until(lambda: members.api(0, at)["num_ack_pending"] == 0)
        before = members.api(0, at)
        host = members.host(name)
        members.cluster.stop(
            host, rested=False
        )  # else what was acknowledged a moment ago is not yet in its file
        members.cluster.start_again(host)
        after = members.api(host, at)
        assert floor(after) == floor(before)
        assert made["created"] == after["created"]


def test_a_stream_that_was_made_again_keeps_its_messages(tmp_path: Path) -> None:
    with running(tmp_path, (KIND,) * SIZE) as members:
        name = members.stream()
        for _ in range(20):
            leader = members.leader()
            with Caller(members.cluster[leader]) as caller:
                config = {"name": name, "subjects": [f"{name}.>"]}
                caller.ask(f"$JS.API.STREAM.DELETE.{name}")
                caller.ask(f"$JS.API.STREAM.CREATE.{name}", json.dumps(config).encode())
                answers = [caller.next().json for _ in range(2)]
            assert all("error" not in each for each in answers), answers
            host = members.host(name)
            stored = members.ask(host, f"{name}.x", b"")["seq"]
            before = members.api(host, f"STREAM.INFO.{name}")
            members.cluster.kill(host)
            members.cluster.start_again(host)
            after = members.api(host, f"STREAM.INFO.{name}")
            assert after["created"] == before["created"]
            assert after["state"]["last_seq"] == stored, members.cluster[host].log[-5000:]


def test_a_removed_stream_that_is_still_on_the_disk_goes(tmp_path: Path) -> None:
    """The server was killed before it had carried out the removal."""
    with running(tmp_path, (KIND,) * SIZE) as members:
        name = members.stream()
        host = members.host(name)
        directory = next((tmp_path / str(host)).glob(f"jetstream/$G/streams/{name}"))
        shutil.copytree(directory, tmp_path / "copy")
        members.api(host, f"STREAM.DELETE.{name}")
        until(lambda: not directory.exists())
        members.cluster.stop(host, rested=False)
        shutil.copytree(tmp_path / "copy", directory)
        members.cluster.start_again(host)
        until(lambda: not directory.exists())
