"""Streams that are recovered while clients publish."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.js import Peer

from gnats import Options, Server
from gnats.jetstream.control import recovery
from gnats.jetstream.control.streams import Stream
from gnats.options.values.jetstream import JetStreamOptions

pytestmark = pytest.mark.timeout(60)

STREAM = b'{"name": "S", "subjects": ["s"], "retention": "interest"}'
CONSUMER = b'{"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}}'


async def test_a_stream_stores_nothing_before_its_consumers_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a stream with interest retention acknowledges, and drops, messages that they want."""
    recover_consumers: Callable[..., None] = recovery._recover_consumers
    came: list[bytes] = []

    def publish_and_recover(stream: Stream, *args: Any) -> None:
        came.append(peer.request("s", b"x").header)  # a thread serves the connection
        recover_consumers(stream, *args)

    jetstream = JetStreamOptions(enabled=True, store_dir=str(tmp_path))
    async with Server(Options(host="127.0.0.1", port=-1, io_threads=2, jetstream=jetstream)) as server:
        assert server.jetstream is not None
        jsa = server.jetstream.accounts["$G"]
        peer = await asyncio.to_thread(Peer, ("127.0.0.1", server.port))
        with peer:
            for verb, body in (("STREAM.CREATE.S", STREAM), ("CONSUMER.DURABLE.CREATE.S.C", CONSUMER)):
                answer = await asyncio.to_thread(peer.request, f"$JS.API.{verb}", body)
                assert b"error" not in answer.payload, answer
            await jsa.close()
            monkeypatch.setattr(recovery, "_recover_consumers", publish_and_recover)
            await recovery.recover(jsa)
            assert [header[:12] for header in came] == [b"NATS/1.0 503"]
            peer.request("s", b"x")
            assert jsa.streams["S"].consumers["C"].numbers()["num_pending"] == 1
