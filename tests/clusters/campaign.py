"""Campaigns: servers and the paths between them are harmed at random, and must be whole after each fault.

GNATS_CLUSTER_SECONDS is how long each topology suffers, GNATS_CLUSTER_SEED what is drawn from.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable, Sequence

from support.servers import TIMEOUT, Server

from .load import Group, Listener, LoadClient, Publisher
from .proxy import PASS, REFUSE, Proxy

SECONDS = os.environ.get("GNATS_CLUSTER_SECONDS")
SEED = int(os.environ.get("GNATS_CLUSTER_SEED", "1"))
QUIET = 60
"""Messages of each publisher after each fault, none of which may be lost."""
HARM = 2.0
"""Seconds that a fault lasts at most, but for connections that must go stale."""


def seconds(default: float) -> float:
    """Return how long a topology suffers."""
    return float(SECONDS or default)


class Campaign:
    """Clients at all servers publish and listen; a subclass says what harm there is, and what is whole."""

    def __init__(self, servers: Sequence[Server], seed: int) -> None:
        self.servers = servers
        self.rng = random.Random(seed)
        self.steps: list[str] = []
        self.last_seen: object = None
        self.group = Group()
        numbers = range(len(servers))
        self.publishers = [Publisher(servers[n], n) for n in numbers]
        self.listeners = [self.listener(n, random.Random(self.rng.random())) for n in numbers]

    def listener(self, number: int, rng: random.Random) -> Listener:
        return Listener(self.servers[number], number, rng, self.group)

    @property
    def clients(self) -> list[LoadClient]:
        return [*self.listeners, *self.publishers]

    async def run(self, lasts: float) -> None:
        """Harm and check for so many seconds. A failure says what led to it."""
        try:
            for client in self.clients:
                await client.connect()
            end = time.monotonic() + lasts
            await self.check()
            while time.monotonic() < end:
                await self.harm()
                await self.check()
        except BaseException as error:
            error.add_note(f"GNATS_CLUSTER_SEED={SEED}; faults: {self.steps}; seen: {self.last_seen}")
            raise
        finally:
            for client in self.clients:
                await client.disconnect()

    # -- harm ------------------------------------------------------------------------------------------------

    async def harm(self) -> None:
        """Do one fault, and end it."""
        raise NotImplementedError

    async def kill(self, number: int, lasts: float) -> None:
        self.steps.append(f"kill s{number} {lasts:.1f} s")
        self.servers[number].kill()
        await self.suffer(lasts)
        await self.start_again(number)

    async def stop(self, number: int, signum: signal.Signals) -> None:
        """Have a server end by itself, while its clients go on."""
        self.steps.append(f"{signum.name} s{number}")
        stopping = asyncio.create_task(asyncio.to_thread(self.servers[number].stop, signum, rested=False))
        while not stopping.done():
            await self.suffer(0.02)
        await stopping
        await self.start_again(number)

    async def start_again(self, number: int) -> None:
        await asyncio.to_thread(self.servers[number].start_again)
        for client in self.clients:
            if client.number == number:
                await client.connect()

    async def flap(self, proxy: Proxy, where: str) -> None:
        """Cut a path several times, so that connections are lost at any step of their beginning."""
        self.steps.append(f"flap {where}")
        for _ in range(self.rng.randint(2, 6)):
            proxy.set(REFUSE)
            await self.suffer(self.rng.uniform(0, 0.1))
            proxy.set(PASS)
            await self.suffer(self.rng.uniform(0, 0.6))

    async def spoil(self, proxy: Proxy, mode: str, where: str, lasts: float) -> None:
        self.steps.append(f"{mode} {where} {lasts:.1f} s")
        proxy.set(mode)
        await self.suffer(lasts)
        proxy.set(PASS)

    async def suffer(self, lasts: float) -> None:
        """Change interest for a while."""
        end = time.monotonic() + lasts
        while time.monotonic() < end:
            self.rng.choice(self.listeners).churn()
            await asyncio.sleep(0.01)

    # -- checks ----------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Wait until everything is whole and stays so: servers may still show a connection that has gone.

        What is published behind messages that have come through was sent after PINGs were answered.
        """
        while True:
            await self.until(self.whole)
            for _ in range(2):
                sent = [publisher.sent for publisher in self.publishers]
                await self.until(lambda sent=sent: self.heard(sent))  # type: ignore[misc]
            if await asyncio.to_thread(self.whole):
                return

    def whole(self) -> bool:
        """Whether all connections are there, and the interest of each server is known to the others."""
        raise NotImplementedError

    async def check(self) -> None:
        """Wait until everything is whole; then nothing may be lost for a while."""
        await self.settle()
        begun = [publisher.sent + 1 for publisher in self.publishers]
        await asyncio.gather(
            self.until(lambda: self.published([number + QUIET for number in begun])), *self.while_quiet()
        )
        ended = [publisher.sent for publisher in self.publishers]
        await self.until(lambda: self.heard(ended))
        for listener in self.listeners:
            for n, (first, last) in enumerate(zip(begun, ended, strict=True)):
                lost = listener.lost(n, first, last)
                assert not lost, f"listener {listener.number} has lost {lost} of publisher {n}"
        await self.until(lambda: not self.not_taken(begun, ended))

    def while_quiet(self) -> list[Awaitable[None]]:
        """Return what else must succeed while everything is whole."""
        return []

    def not_taken(self, begun: list[int], ended: list[int]) -> list[bytes]:
        """Return messages of those numbers, by publisher, that a queue group should have got and has not."""
        self.last_seen = missing = [
            payload
            for n, (first, last) in enumerate(zip(begun, ended, strict=True))
            for group in self.groups_of(n)
            for payload in group.missing(n, first, last)
        ]
        return missing

    def groups_of(self, number: int) -> list[Group]:
        """Return the queue groups that get the messages of a publisher, once each."""
        return [self.group]

    def published(self, numbers: list[int]) -> bool:
        """Whether each publisher has got so far."""
        return all(each.sent >= number for each, number in zip(self.publishers, numbers, strict=True))

    def heard(self, numbers: list[int]) -> bool:
        """Whether each listener has got as far with each publisher."""
        self.last_seen = numbers, [each.last for each in self.listeners]
        return all(
            each.last.get(n, 0) >= number for each in self.listeners for n, number in enumerate(numbers)
        )

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition. Raises TimeoutError, and Wrong when a listener has found so."""
        end = time.monotonic() + TIMEOUT
        while not (await asyncio.to_thread(condition)):
            for client in self.clients:
                client.check()
            if time.monotonic() > end:
                raise TimeoutError(f"{condition} does not come true")
            await asyncio.sleep(0.02)
