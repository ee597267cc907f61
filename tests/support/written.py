"""Have nats-server fill a store directory, and keep what it stored."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from support.natspy import jetstream, joined
from support.servers import Server

ACCOUNT = "$G"
KEY = "a secret of the server"


@dataclass
class Written:
    """A store directory of nats-server, and the messages stored in it; `cipher` "" is no encryption."""

    root: Path
    cipher: str
    messages: dict[str, dict[int, tuple[bytes, bytes, bytes]]] = field(default_factory=dict)
    """By stream and sequence: (subject, header block, payload), without deleted messages."""
    deleted: dict[str, list[int]] = field(default_factory=dict)

    def stream(self, name: str) -> Path:
        return self.root / "jetstream" / ACCOUNT / "streams" / name

    def blocks(self, name: str) -> list[Path]:
        """The block files of a stream, in order."""
        return sorted((self.stream(name) / "msgs").glob("*.blk"), key=lambda path: int(path.stem))


STREAMS = {
    "PLAIN": {"allow_msg_ttl": True, "allow_msg_schedules": True, "max_bytes": 125_000},
    "SQUEEZED": {"compression": "s2", "max_bytes": 125_000},
}


def headers_of(seq: int) -> dict[str, str] | None:
    if seq % 5 == 0:
        return {"Nats-TTL": f"{seq}h", "Kind": "x" * (seq % 40)}
    return {"Kind": "plain"} if seq % 7 == 0 else None


async def fill(server: Server, written: Written) -> None:
    async with joined(server.url) as client:

        async def api(subject: str, request: object) -> dict[str, object]:
            message = await client.request(f"$JS.API.{subject}", json.dumps(request).encode(), timeout=30)
            answer = json.loads(message.data)
            assert "error" not in answer, answer
            return answer  # type: ignore[no-any-return]

        js = jetstream(client)
        for name, settings in STREAMS.items():
            await api(
                f"STREAM.CREATE.{name}",
                {"name": name, "subjects": [f"{name}.>"], "storage": "file", "retention": "limits"}
                | settings,
            )
            messages = written.messages[name] = {}
            for seq in range(1, 801):
                subject = f"{name}.orders.{seq % 13}.new"
                payload = (b"payload %d " % seq) * (seq % 8)
                headers = headers_of(seq) if name == "PLAIN" else None
                ack = await js.publish(subject, payload, headers=headers)
                assert ack.seq == seq
                text = "".join(f"{k}: {v}\r\n" for k, v in (headers or {}).items())
                messages[seq] = (
                    subject.encode(),
                    f"NATS/1.0\r\n{text}\r\n".encode() if text else b"",
                    payload,
                )
            written.deleted[name] = [*range(20, 40), 100, 102, 104, 333, 799]
            for seq in written.deleted[name]:
                await api(f"STREAM.MSG.DELETE.{name}", {"seq": seq, "no_erase": seq % 2 == 0})
                del messages[seq]
            for consumer in ("IDLE", "BUSY"):
                await api(
                    f"CONSUMER.CREATE.{name}.{consumer}",
                    {"stream_name": name, "config": {"durable_name": consumer, "ack_policy": "explicit"}},
                )
            pull = await js.pull_subscribe_bind("BUSY", name)
            fetched = await pull.fetch(20, timeout=30)
            for i, message in enumerate(fetched):
                if i < 3 or i % 4 == 0:
                    await message.ack_sync(timeout=30)
                elif i % 4 == 1:
                    await message.nak()
            await pull.fetch(3, timeout=30)
