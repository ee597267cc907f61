"""Order work that changes the same account or stream; let other work run side by side.

A hold asks for all its lanes at once and begins when it has them all. Lanes are given in the order in which
they were asked for. So a hold only waits for earlier holds, and two holds never wait for each other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

Key = tuple[str, ...]
Claim = tuple[Key, bool]
"""A lane, and whether the hold needs it exclusively."""


def account_claim(account: str, *, alone: bool = False) -> Claim:
    """Claim an account: all work in the account shares the lane; to remove the account, have it `alone`."""
    return (account,), alone


def streams_claim(account: str) -> Claim:
    """Claim the set of an account's streams and their reservations, exclusively."""
    return (account, "streams"), True


def stream_claim(account: str, stream: str, *, alone: bool = True) -> Claim:
    """Claim a stream and its consumers."""
    return (account, "stream", stream), alone


def creation_claims(account: str, stream: str) -> list[Claim]:
    """Return the claims for making, changing or deleting a stream."""
    return [account_claim(account), streams_claim(account), stream_claim(account, stream)]


class Hold:
    """A request for lanes. It has them all from the call of `begin` until Lanes.leave()."""

    __slots__ = ("begin", "gone", "held", "missing")

    def __init__(self, begin: Callable[[], None]) -> None:
        self.begin = begin
        self.held: list[Claim] = []
        self.missing = 0
        self.gone = False


def _begun_or_gone() -> None:
    """Replace `begin` of a hold that has been left."""


class _Lane:
    __slots__ = ("alone", "sharing", "waiting")

    def __init__(self) -> None:
        self.alone = False
        self.sharing = 0
        self.waiting: deque[tuple[Hold, bool]] = deque()

    def is_free_for(self, alone: bool) -> bool:
        return not self.alone and not (alone and self.sharing)

    def give(self, key: Key, hold: Hold, alone: bool) -> None:
        hold.held.append((key, alone))
        if alone:
            self.alone = True
        else:
            self.sharing += 1

    def take_back(self, alone: bool) -> None:
        if alone:
            self.alone = False
        else:
            self.sharing -= 1


class Lanes:
    """The lanes of a server. Used from the loop's thread only."""

    def __init__(self) -> None:
        self._lanes: dict[Key, _Lane] = {}

    def __len__(self) -> int:
        """Return the number of lanes in use."""
        return len(self._lanes)

    def enter(self, claims: Iterable[Claim], begin: Callable[[], None]) -> Hold:
        """Ask for lanes, each once; call `begin` when the hold has them all: at once if they are free."""
        hold = Hold(begin)
        for key, alone in claims:
            lane = self._lanes.get(key)
            if lane is None:
                lane = self._lanes[key] = _Lane()
            if not lane.waiting and lane.is_free_for(alone):
                lane.give(key, hold, alone)
            else:
                lane.waiting.append((hold, alone))
                hold.missing += 1
        if not hold.missing:
            begin()
        return hold

    def leave(self, hold: Hold) -> None:
        """Give back a hold's lanes. A hold that has not begun never begins. Idempotent."""
        hold.gone = True
        begun: list[Hold] = []
        for key, alone in hold.held:
            lane = self._lanes[key]
            lane.take_back(alone)
            self._advance(key, lane, begun)
        hold.held.clear()
        hold.begin = _begun_or_gone  # begin may refer to the hold: break the cycle
        for each in begun:
            each.begin()

    def _advance(self, key: Key, lane: _Lane, begun: list[Hold]) -> None:
        while lane.waiting:
            hold, alone = lane.waiting[0]
            if not hold.gone:
                if not lane.is_free_for(alone):
                    return
                lane.give(key, hold, alone)
                hold.missing -= 1
                if not hold.missing:
                    begun.append(hold)
            lane.waiting.popleft()
        if not lane.alone and not lane.sharing:
            del self._lanes[key]

    @asynccontextmanager
    async def hold(self, claims: Iterable[Claim]) -> AsyncIterator[None]:
        """Wait for lanes, and hold them during the `async with` block."""
        begun = asyncio.Event()
        hold = self.enter(claims, begun.set)
        try:
            await begun.wait()
            yield
        finally:
            self.leave(hold)
