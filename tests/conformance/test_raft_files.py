"""The files of Raft groups that a cluster of nats-servers has written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from support.caller import Caller
from support.clusters import Cluster
from support.launch import launcher, require
from support.monitor import monitor
from support.servers import REFERENCE, Server, until

from gnats.codec import s2
from gnats.jetstream.replica import streamops
from gnats.raft import messages
from gnats.store.store import FileStore

pytestmark = pytest.mark.timeout(120)

META = b"_meta_"
NORMAL, PEER_STATE = 0, 2
COMPRESSED = 14
"""The first byte of a stream's entry with a compressed message."""
LARGE = b"large" * 4000


def made(caller: Caller, api: str, config: dict[str, Any]) -> bool:
    return "error" not in caller.request(f"$JS.API.{api}", config).json


def is_healthy(server: Server) -> bool:
    """Return whether the server has what the groups have committed that it is in."""
    try:
        return bool(monitor(server, "/healthz")["status"] == "ok")
    except HTTPError:
        return False


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bytes, list[Path]]]:
    """The folders of each group, at the three members, which have ended."""
    require(REFERENCE)
    directory = tmp_path_factory.mktemp("raft")
    with launcher(REFERENCE, directory) as launch:
        cluster = Cluster(launch, [REFERENCE] * 3, config="jetstream { store_dir: js }")
        cluster.wait_mesh()
        for server in cluster.servers:
            until(lambda server=server: is_healthy(server))  # type: ignore[misc]
        with Caller(cluster[0]) as caller:
            config = {"name": "S", "subjects": ["s.>"], "num_replicas": 3, "allow_atomic": True}
            until(lambda: made(caller, "STREAM.CREATE.S", config))
            for number in range(20):
                until(lambda number=number: "seq" in caller.request(f"s.{number}", b"%d" % number).json)  # type: ignore[misc]
            assert caller.request("s.large", LARGE, header=b"NATS/1.0\r\nx: y\r\n\r\n").json["seq"] == 21
            batch = b"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: "
            caller.request("s.batch", b"first", header=batch + b"1\r\n\r\n")
            last = caller.request("s.batch", b"last", header=batch + b"2\r\nNats-Batch-Commit: 1\r\n\r\n")
            assert last.json["count"] == 2
        for server in cluster.servers:
            until(lambda server=server: is_healthy(server))  # type: ignore[misc]
        found: dict[bytes, list[Path]] = {}
        for server in cluster.servers:
            server.kill()  # one that stops makes snapshots, and empties its logs
            store = directory / f"store{server.port}"
            shutil.copytree(server.directory / "js" / "jetstream" / "$SYS" / "_js_", store)
            for folder in store.iterdir():
                found.setdefault(folder.name.encode(), []).append(folder)
        for server in cluster.servers:
            server.start_again()
    yield found


def entries(folder: Path) -> list[messages.AppendEntry]:
    """Return the append entries of a group's log, each of which is written again as it was."""
    store = FileStore(str(folder), folder.name)
    try:
        state = store.state()
        logged = [store.get(seq)[4] for seq in range(state.first_seq, state.last_seq + 1)]
    finally:
        store.close()
    found = [messages.read_append_entry(data) for data in logged]
    assert [messages.write_append_entry(*each) for each in found] == logged
    return found


def test_the_files(groups: dict[bytes, list[Path]]) -> None:
    assert META in groups
    (stream,) = (name for name in groups if name != META)
    assert stream.startswith(b"S-R3F-")
    for name in META, stream:
        assert len(groups[name]) == 3
        votes = set()
        for folder in groups[name]:
            size, peers, _ = messages.read_peer_state((folder / "peers.idx").read_bytes())
            assert 2 <= len(set(peers)) <= size <= 3
            term, vote = messages.read_term_vote((folder / "tav.idx").read_bytes())
            assert term > 0
            votes.add(vote)
            for snapshot in (folder / "snapshots").glob("snap.*[0-9]"):
                at, index, known, _ = messages.read_snapshot(snapshot.read_bytes(), name)
                assert snapshot.name == f"snap.{at}.{index}"
                assert 1 <= messages.read_peer_state(known)[0] <= 3  # perhaps of when not all were known
        assert votes - {b""} <= set(peers)


def test_the_logs(groups: dict[bytes, list[Path]]) -> None:
    """Each member's log has the same entries where it has any, one behind the other."""
    for folders in groups.values():
        by_index: dict[int, messages.AppendEntry] = {}
        for folder in folders:
            for found in entries(folder):
                leader, term, _, _, pindex, _, content = found
                assert content, "a heartbeat is not stored"
                known = by_index.setdefault(pindex + 1, found)
                assert (known[0], known[1], known[6]) == (leader, term, content)
        assert sorted(by_index) == list(range(min(by_index), max(by_index) + 1))


def test_what_a_stream_proposed(groups: dict[bytes, list[Path]]) -> None:
    (folders,) = (folders for name, folders in groups.items() if name != META)
    for folder in folders:
        proposed = [data for found in entries(folder) for kind, data in found[6] if kind == NORMAL]
        found = [streamops.read_stream_msg(data) for data in proposed]
        # One less than the sequence that a message gets.
        assert [each[4] for each in found] == list(range(len(found)))
        assert all(each[0].startswith(b"s.") for each in found)
        assert [bool(each[1]) for each in found] == [True] * 21 + [False, True]
        assert [each[3] for each in found[:20]] == [b"%d" % number for number in range(20)]
        large, first, last = found[20:]
        assert proposed[20][0] == COMPRESSED and len(proposed[20]) < 1000 and large[3] == LARGE
        assert large[2] == b"NATS/1.0\r\nx: y\r\n\r\n"
        assert [each[3] for each in (first, last)] == [b"first", b"last"]
        assert [each[7] for each in (first, last)] == [(b"b", 1, False), (b"b", 2, True)]
        for data, each in zip(proposed, found, strict=True):
            again = streamops.write_stream_msg(*each)
            assert again == data if data[0] != COMPRESSED else streamops.read_stream_msg(again) == each


def test_what_the_meta_group_knows(groups: dict[bytes, list[Path]]) -> None:
    """The assignment of the stream is in the snapshot or in the log of each member."""
    for folder in groups[META]:
        known = [data[1:] for found in entries(folder) for kind, data in found[6] if kind == NORMAL]
        assigned = [json.loads(data) for data in known if data[:1] == b"{"]
        for snapshot in (folder / "snapshots").glob("snap.*[0-9]"):
            if data := messages.read_snapshot(snapshot.read_bytes(), META)[3]:
                assigned += json.loads(s2.decode_block(data, 1 << 20))
        assert any(each["stream"]["name"] == "S" for each in assigned if "stream" in each)
