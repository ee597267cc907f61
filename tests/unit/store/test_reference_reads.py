"""nats-server opens a directory whose files gnats's encoders have all rewritten."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.natspy import joined
from support.servers import REFERENCE, Server
from support.written import ACCOUNT, KEY, Written

from gnats.store.format.codec import decode_consumer, decode_index, encode_consumer, encode_index
from gnats.store.format.crypto import create_key, open_key, seal, unseal, xor_block
from gnats.store.format.highway import checksum
from gnats.store.format.packing import compress_block, decompress_block
from gnats.store.format.record import decode, encode
from gnats.store.index.wheel import HashWheel

pytestmark = pytest.mark.timeout(180)

LIMIT = 1 << 26


def reencoded(name: bytes, data: bytes) -> bytes:
    """Decode the records of a block and encode them again."""
    found = b""
    at = 0
    while at < len(data):
        kind, seq, ts, subject, hdr, msg, size = decode(name, data, at)
        if kind == "message":
            found += encode(name, seq, ts, subject, hdr, msg)
        else:
            found += data[at : at + size]
        at += size
    assert found == data
    return found


def rewrite_block(written: Written, stream: str, path: Path) -> None:
    data = path.read_bytes()
    index = path.stem
    if written.cipher:
        key, context = path.with_suffix(".key"), f"{ACCOUNT}{stream}:{index}".encode()
        file = key.read_bytes()
        seed = open_key(written.cipher, KEY.encode(), context, file)
        data = xor_block(written.cipher, seed, file, 0, data)
    packed = data.startswith(b"cmp")
    if packed:
        data = decompress_block(data, LIMIT)
    data = reencoded(f"{stream}-{index}".encode(), data)
    if packed:
        data = compress_block(data)
    if written.cipher:
        # A new key, made by gnats.
        file, seed = create_key(written.cipher, KEY.encode(), context)
        key.write_bytes(file)
        data = xor_block(written.cipher, seed, file, 0, data)
    path.write_bytes(data)


def rewrite_sealed(
    written: Written, path: Path, context: str, change: Callable[[bytes], bytes], name: bytes | None = None
) -> None:
    """Change a file's decrypted content; with `name`, a checksum with that name ends it."""
    data = path.read_bytes()
    if name is not None:
        data = data[:-8]
    if written.cipher:
        home = path.parent if (path.parent / "meta.key").exists() else path.parent.parent
        key = (home / "meta.key").read_bytes()
        seed = open_key(written.cipher, KEY.encode(), (ACCOUNT + context).encode(), key)
        data = seal(written.cipher, seed, change(unseal(written.cipher, seed, data)))
    else:
        data = change(data)
    path.write_bytes(data + (checksum(name, data) if name is not None else b""))


def rewrite_index(data: bytes, last_checksum: bytes) -> bytes:
    state, subjects, blocks, last = decode_index(data)
    assert last[1] == last_checksum
    return encode_index(state, subjects, blocks, last)


def rewrite_consumer(data: bytes) -> bytes:
    delivered, floor, pending, redelivered = decode_consumer(data)
    return encode_consumer(delivered, floor, pending, redelivered, 1_800_000_000 * 10**9)


def last_checksum(written: Written, stream: str) -> bytes:
    path = written.blocks(stream)[-1]
    data = path.read_bytes()
    if not written.cipher:
        return data[-8:]
    file = path.with_suffix(".key").read_bytes()
    seed = open_key(written.cipher, KEY.encode(), f"{ACCOUNT}{stream}:{path.stem}".encode(), file)
    return xor_block(written.cipher, seed, file, len(data) - 8, data[-8:])


def rewrite(written: Written, stream: str) -> None:
    """Decode and rewrite all files of a stream."""
    home = written.stream(stream)
    for path in written.blocks(stream):
        rewrite_block(written, stream, path)
    last = last_checksum(written, stream)
    rewrite_sealed(
        written, home / "msgs" / "index.db", stream, lambda data: rewrite_index(data, last), stream.encode()
    )
    rewrite_sealed(written, home / "obs" / "BUSY" / "o.dat", f"{stream}.BUSY", rewrite_consumer)
    wheel = HashWheel()
    path = home / "msgs" / "thw.db"
    if path.exists():
        path.write_bytes(wheel.encode(wheel.decode(path.read_bytes())))


async def stored(server: Server, stream: str, seqs: list[int]) -> dict[int, tuple[bytes, bytes, bytes]]:
    """Return a server's messages by sequence."""
    found = {}
    async with joined(server.url) as client:
        for seq in seqs:
            request = json.dumps({"seq": seq}).encode()
            answer = json.loads(
                (await client.request(f"$JS.API.STREAM.MSG.GET.{stream}", request, timeout=30)).data
            )
            if "message" in answer:
                message = answer["message"]
                parts = [base64.b64decode(message.get(part, "")) for part in ("hdrs", "data")]
                found[seq] = (message["subject"].encode(), parts[0], parts[1])
    return found


async def consumer(server: Server, stream: str) -> dict[str, object]:
    async with joined(server.url) as client:
        message = await client.request(f"$JS.API.CONSUMER.INFO.{stream}.BUSY", b"", timeout=30)
    answer = json.loads(message.data)
    return {key: answer[key] for key in ("delivered", "ack_floor", "num_ack_pending", "num_redelivered")}


def test_nats_server_reads_what_was_written_here(written: Written, tmp_path: Path) -> None:
    copies = [Written(tmp_path / name, written.cipher) for name in ("as_it_was", "rewritten")]
    for copy in copies:
        shutil.copytree(written.root / "jetstream", copy.root / "jetstream")
    for stream in written.messages:
        rewrite(copies[1], stream)
    encryption = f'key: "{KEY}", cipher: {written.cipher}' if written.cipher else ""
    consumers = []
    for copy in copies:
        config = f'jetstream {{ store_dir: "{copy.root}", {encryption} }}'
        server = Server(REFERENCE, copy.root, config=config)
        try:
            for stream, messages in written.messages.items():
                assert asyncio.run(stored(server, stream, list(range(1, 801)))) == messages
                consumers.append(asyncio.run(consumer(server, stream)))
            assert "[WRN] Filestore" not in server.log
            assert "corrupt" not in server.log.lower()
            assert "rebuild" not in server.log.lower()
        finally:
            server.stop()
    assert consumers[:2] == consumers[2:]
