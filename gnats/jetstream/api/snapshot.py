"""Send backups of streams to clients, in chunks (STREAM.SNAPSHOT; stream_backup.go).

Each chunk but a short last one carries a reply subject and is acknowledged. The window limits the chunks that
wait for an acknowledgement.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gnats.clock import monotonic, sleep, time_ns, timeout
from gnats.go.json import Json, marshal
from gnats.go.text import duration, friendly_bytes
from gnats.jetstream.disk.backup import BackupError, BackupWriter
from gnats.jetstream.threads import in_thread
from gnats.store.format.codec import decode_consumer

if TYPE_CHECKING:
    from gnats.accounts.internal_client import Message
    from gnats.jetstream.api.request import Request
    from gnats.jetstream.control.consumers import Consumer
    from gnats.jetstream.control.streams import Stream

CHUNK_SIZE, LEAST_CHUNK, MOST_CHUNK = 128 * 1024, 1024, 1024 * 1024
WINDOW_SIZE, MOST_WINDOW = 8 * 1024 * 1024, 32 * 1024 * 1024
ACK_TIMEOUT = 5.0
INTEREST_WAIT = 2.0
"""Seconds to wait for a subscriber to the chunks' subject."""
_LOOK = 0.1
"""Seconds between two checks for a subscriber."""
_READ = 256 * 1024


class _Gone(Exception):
    """The client no longer receives the snapshot. `status` is for the header of the last message."""

    def __init__(self, text: str, status: str) -> None:
        super().__init__(text)
        self.status = status


class Snapshot:
    """One snapshot of a stream.

    `options` is the request: deliver_subject, no_consumers, chunk_size, window_size (bytes) and jsck. That
    only changes a log line, because every message is checked as it is read anyway.
    """

    def __init__(self, request: Request, stream: Stream, options: Json) -> None:
        self._js = request.js
        self._stream = stream
        self._jsa = stream.jsa
        self._client = request.client
        self._deliver: str = options["deliver_subject"]
        chunk = options.get("chunk_size", 0) or CHUNK_SIZE
        window = options.get("window_size", 0) or WINDOW_SIZE
        self._chunk = min(max(LEAST_CHUNK, chunk), MOST_CHUNK)
        window = max(min(max(LEAST_CHUNK, window), MOST_WINDOW), self._chunk)
        self._most = window // self._chunk
        self._slots = self._most
        self._acked = asyncio.Event()
        self._started = time_ns()
        self.state = stream.state()
        self._writer = BackupWriter(stream.store, last=self.state["last_seq"])
        consumers = [] if options.get("no_consumers") else list(stream.consumers.values())
        consumers = [each for each in consumers if not each.config.direct and not each.offline_reason]
        shown = {name: value for name, value in self.state.items() if name != "lost"}
        state = shown | {"consumer_count": len(consumers)}
        self._writer.add(b"state.json", marshal(state), self._started)
        for consumer in consumers:
            document = consumer_document(consumer, self.state["last_seq"])
            self._writer.add(b"consumers/" + consumer.name.encode(), marshal(document), self._started)
        check = "health check and " if options.get("jsck") else ""
        self._js.log.notice(f"Starting {check}snapshot for stream {self._where}")

    @property
    def _where(self) -> str:
        return f"'{self._jsa.name} > {self._stream.name}'"

    async def run(self) -> None:
        """Send the snapshot. The request must have been answered before."""
        log, advisories = self._js.log, self._js.advisories
        account, name = self._jsa.account, self._stream.name
        advisories.snapshot_create(account, name, self.state, self._client)
        error = ""
        try:
            async with self._js.snapshots:
                await self._send()
        except (_Gone, BackupError) as exc:
            error = str(exc)
        ended = time_ns()
        advisories.snapshot_complete(account, name, self._started, ended, self._client, error)
        took = duration(ended - self._started)
        if error:
            log.warn(f"Snapshot for stream {self._where} failed after {took}: {error}")
        else:
            size = friendly_bytes(self.state["bytes"])
            log.notice(f"Completed snapshot of {size} for stream {self._where} in {took}")

    async def _send(self) -> None:
        client = self._js.shared.clients.of(self._jsa.account)
        subject = self._deliver.encode()
        acks = f"$JS.SNAPSHOT.ACK.{self._stream.name}.{self._js.advisories.new_id()}"
        sid = client.subscribe(f"{acks}.>".encode(), self._on_ack)
        header = None
        index = 1
        try:
            await self._wait_for_interest()
            want = max(_READ // self._chunk, 1) * self._chunk
            while True:
                data = await in_thread(lambda: self._writer.read(want))
                for at in range(0, len(data), self._chunk):
                    piece = data[at : at + self._chunk]
                    await self._wait_for_slot()
                    if len(piece) < self._chunk:  # the last chunk is not acknowledged
                        client.publish(subject, piece)
                        continue
                    reply = f"{acks}.{len(piece)}.{index}".encode()
                    client.publish(subject, piece, reply=reply)
                    header = b"NATS/1.0 204\r\n\r\n"
                    index += 1
                if len(data) < want:
                    break
        except _Gone as exc:
            header = f"NATS/1.0 408 {exc.status}\r\n\r\n".encode()
            raise
        except BackupError as exc:
            header = f"NATS/1.0 500 {exc}\r\n\r\n".encode()
            raise
        except BaseException:
            header = b"NATS/1.0 500 Internal Error\r\n\r\n"
            raise
        finally:
            client.unsubscribe(sid)
            client.publish(subject, b"", header=header)

    def _on_ack(self, _: Message) -> None:
        self._slots = min(self._slots + 1, self._most)
        self._acked.set()

    @property
    def _has_interest(self) -> bool:
        return self._jsa.account.sublist.interested(self._deliver.encode())

    async def _wait_for_interest(self) -> None:
        """Wait up to INTEREST_WAIT seconds for a subscriber. Without one, the first chunk fails."""
        limit = monotonic() + INTEREST_WAIT
        while not self._has_interest and monotonic() < limit:  # new interest is not notified
            await sleep(_LOOK)

    async def _wait_for_slot(self) -> None:
        limit = monotonic() + ACK_TIMEOUT
        while True:
            if not self._has_interest:
                raise _Gone("no interest", "No Interest")
            if self._slots:
                self._slots -= 1
                return
            if monotonic() > limit:
                raise _Gone("no flow response", "No Flow Response")
            self._acked.clear()
            try:
                async with timeout(_LOOK):
                    await self._acked.wait()
            except TimeoutError:
                continue


def consumer_document(consumer: Consumer, last_seq: int) -> Json:
    """Describe a consumer for a backup that has the messages up to `last_seq`."""
    delivered, floor, pending, redelivered = decode_consumer(consumer.recorded())
    state: Json = {
        "delivered": {"consumer_seq": delivered[0], "stream_seq": min(delivered[1], last_seq)},
        "ack_floor": {"consumer_seq": floor[0], "stream_seq": min(floor[1], last_seq)},
    }
    entries = {
        str(seq): {"Sequence": dseq, "Timestamp": when} for seq, dseq, when in pending if seq <= last_seq
    }
    if entries:
        state["pending"] = entries
    counts = {str(seq): count for seq, count in redelivered if seq <= last_seq}
    if counts:
        state["redelivered"] = counts
    return {"config": consumer.config.json(), "state": state}
