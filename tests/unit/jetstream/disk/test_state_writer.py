"""The states of consumers are written soon after they change, in spite of a shortage of memory."""

from __future__ import annotations

import asyncio

from gnats.jetstream.disk.state_writer import StateWriter


class Consumer:
    """Has one state to write, for which there is no memory at first."""

    is_running = True

    def __init__(self, shortages: int) -> None:
        self._shortages = shortages
        self.written = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def state(self) -> bytes | None:
        if self._shortages:
            self._shortages -= 1
            raise MemoryError
        return b"state"

    def write(self, state: bytes) -> None:
        assert state == b"state"
        self._loop.call_soon_threadsafe(self.written.set)


async def test_a_state_without_memory_is_written_later_and_others_at_once() -> None:
    writer = StateWriter()
    consumers = [Consumer(0), Consumer(2), Consumer(0), Consumer(1)]
    for consumer in consumers:
        writer.note(consumer)
    async with asyncio.timeout(20):
        for consumer in consumers:
            await consumer.written.wait()
    await writer.close()
