"""gnats opens directories of nats-server, and nats-server opens them again after changes."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.natspy import joined
from support.servers import REFERENCE, Server
from support.written import ACCOUNT, KEY, STREAMS, Written

from gnats.store.store import FileStore, StoreFailure

pytestmark = pytest.mark.timeout(180)


def opened(home: Path, written: Written, stream: str, said: list[str], **more: Any) -> FileStore:
    encryption = {"cipher": written.cipher, "key": KEY.encode(), "account": ACCOUNT} if written.cipher else {}
    compression = "s2" if stream == "SQUEEZED" else "none"
    return FileStore(
        str(home),
        stream,
        block_size=32_000,
        max_bytes=125_000,
        compression=compression,
        warn=said.append,
        **encryption,
        **more,
    )


def messages(store: FileStore) -> dict[int, tuple[bytes, bytes, bytes]]:
    found = {}
    state = store.state()
    for seq in range(state.first_seq, state.last_seq + 1):
        try:
            found[seq] = store.get(seq)[2:]
        except StoreFailure:
            continue
    return found


@pytest.mark.parametrize("stream", list(STREAMS))
@pytest.mark.parametrize("index", ["kept", "lost"])
def test_a_directory_of_nats_server_is_opened(
    tmp_path: Path, written: Written, stream: str, index: str
) -> None:
    home = tmp_path / stream
    shutil.copytree(written.stream(stream), home)
    if index == "lost":
        (home / "msgs" / "index.db").unlink()
    said: list[str] = []
    store = opened(home, written, stream, said, allow_msg_ttl=stream == "PLAIN")
    try:
        assert said == []
        expected = written.messages[stream]
        assert messages(store) == expected
        state = store.state()
        assert (state.first_seq, state.last_seq, state.msgs) == (min(expected), 800, len(expected))
        missing = [seq for seq in range(state.first_seq, 801) if seq not in expected]
        assert [seq for first, last in store.deleted() for seq in range(first, last + 1)] == missing
        subjects: dict[bytes, list[int]] = {}
        for seq, message in expected.items():
            subjects.setdefault(message[0], []).append(seq)
        assert store.subjects_state() == {name: (len(s), s[0], s[-1]) for name, s in subjects.items()}
        # These messages have a TTL of their sequence in hours.
        gone = store.expire_msgs(store.get(expected_last(expected))[1] + 500 * 3600 * 10**9)
        due = [seq for seq in expected if stream == "PLAIN" and seq % 5 == 0 and seq <= 499]
        assert gone in (len(due), len(due) + 1)
    finally:
        store.close()


def expected_last(expected: dict[int, Any]) -> int:
    return max(expected)


async def served(server: Server, stream: str) -> tuple[dict[str, Any], dict[int, tuple[bytes, bytes, bytes]]]:
    """Return a stream's state and messages from a server."""
    async with joined(server.url) as client:

        async def api(subject: str, request: object) -> dict[str, Any]:
            message = await client.request(f"$JS.API.{subject}", json.dumps(request).encode(), timeout=30)
            return json.loads(message.data)  # type: ignore[no-any-return]

        state = (await api(f"STREAM.INFO.{stream}", {}))["state"]
        found = {}
        for seq in range(state["first_seq"], state["last_seq"] + 1):
            answer = await api(f"STREAM.MSG.GET.{stream}", {"seq": seq})
            if "message" in answer:
                message = answer["message"]
                found[seq] = (
                    message["subject"].encode(),
                    base64.b64decode(message.get("hdrs", "")),
                    base64.b64decode(message.get("data", "")),
                )
    return state, found


@pytest.mark.parametrize("index", ["kept", "lost"])
def test_nats_server_opens_what_was_changed(tmp_path: Path, written: Written, index: str) -> None:
    root = tmp_path / "root"
    shutil.copytree(written.root, root)
    expected, states = {}, {}
    for stream in STREAMS:
        home = root / "jetstream" / ACCOUNT / "streams" / stream
        said: list[str] = []
        store = opened(home, written, stream, said)
        for i in range(300):
            store.store_msg(
                b"%s.orders.%d.new" % (stream.encode(), i % 17),
                b"added %d " % i * (i % 9),
                b"NATS/1.0\r\nAdded: %d\r\n\r\n" % i if i % 4 == 0 else b"",
            )
        for seq in range(300, 1100, 3):
            store.remove_msg(seq, erase=seq % 5 == 0)
        store.purge_msgs(b"%s.orders.3.*" % stream.encode())
        store.compact_to(150)
        while store.maintain():
            pass
        expected[stream], states[stream] = messages(store), store.state()
        store.close()
        assert said == []
        if index == "lost":
            (home / "msgs" / "index.db").unlink()
    encryption = f'key: "{KEY}", cipher: {written.cipher}' if written.cipher else ""
    server = Server(REFERENCE, root, config=f'jetstream {{ store_dir: "{root}", {encryption} }}')
    try:
        for stream in STREAMS:
            state, found = asyncio.run(served(server, stream))
            assert found == expected[stream]
            ours = states[stream]
            assert (state["messages"], state["bytes"]) == (ours.msgs, ours.bytes)
            assert (state["first_seq"], state["last_seq"]) == (ours.first_seq, ours.last_seq)
            assert state.get("num_deleted", 0) == ours.num_deleted
            assert state["num_subjects"] == ours.num_subjects
    finally:
        server.stop()
