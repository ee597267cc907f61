"""Whose turn it is: changes of one thing happen in the order they were asked for, all else side by side.

A turn asks for all its lanes at once and begins when it has them all. Since every turn asks for all of its
lanes at the same moment, none waits for one that came later, and no two wait for each other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

Key = tuple[str, ...]
Claim = tuple[Key, bool]
"""A lane, and whether it is to be had alone."""


def account_claim(account: str, *, alone: bool = False) -> Claim:
    """An account: everything that is done in it shares this, and what does away with it has it alone."""
    return (account,), alone


def streams_claim(account: str) -> Claim:
    """Which streams an account has, and what they may use."""
    return (account, "streams"), True


def stream_claim(account: str, stream: str, *, alone: bool = True) -> Claim:
    """A stream and its consumers."""
    return (account, "stream", stream), alone


def creation_claims(account: str, stream: str) -> list[Claim]:
    """What a stream that is made, changed or deleted needs."""
    return [account_claim(account), streams_claim(account), stream_claim(account, stream)]


class Turn:
    """What has asked for lanes. It has them from when `begin` is called until Lanes.leave()."""

    __slots__ = ("begin", "gone", "held", "missing")

    def __init__(self, begin: Callable[[], None]) -> None:
        self.begin = begin
        self.held: list[Claim] = []
        self.missing = 0
        self.gone = False


def _begun_or_gone() -> None:
    """A turn that has been left does not begin."""


class _Lane:
    __slots__ = ("alone", "sharing", "waiting")

    def __init__(self) -> None:
        self.alone = False
        self.sharing = 0
        self.waiting: deque[tuple[Turn, bool]] = deque()

    def is_free_for(self, alone: bool) -> bool:
        return not self.alone and not (alone and self.sharing)

    def give(self, key: Key, turn: Turn, alone: bool) -> None:
        turn.held.append((key, alone))
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
        """Lanes that somebody has, or waits for."""
        return len(self._lanes)

    def enter(self, claims: Iterable[Claim], begin: Callable[[], None]) -> Turn:
        """Ask for lanes, each once; `begin` is called when the turn has them: now, where they are free."""
        turn = Turn(begin)
        for key, alone in claims:
            lane = self._lanes.get(key)
            if lane is None:
                lane = self._lanes[key] = _Lane()
            if not lane.waiting and lane.is_free_for(alone):
                lane.give(key, turn, alone)
            else:
                lane.waiting.append((turn, alone))
                turn.missing += 1
        if not turn.missing:
            begin()
        return turn

    def leave(self, turn: Turn) -> None:
        """Give back what a turn has; if it has not begun it never does. Again it does nothing."""
        turn.gone = True
        begun: list[Turn] = []
        for key, alone in turn.held:
            lane = self._lanes[key]
            lane.take_back(alone)
            self._advance(key, lane, begun)
        turn.held.clear()
        turn.begin = _begun_or_gone  # which may lead back here: free both now, without a collection
        for each in begun:
            each.begin()

    def _advance(self, key: Key, lane: _Lane, begun: list[Turn]) -> None:
        while lane.waiting:
            turn, alone = lane.waiting[0]
            if not turn.gone:
                if not lane.is_free_for(alone):
                    return
                lane.give(key, turn, alone)
                turn.missing -= 1
                if not turn.missing:
                    begun.append(turn)
            lane.waiting.popleft()
        if not lane.alone and not lane.sharing:
            del self._lanes[key]

    @asynccontextmanager
    async def turn(self, claims: Iterable[Claim]) -> AsyncIterator[None]:
        """Wait for lanes, and have them."""
        begun = asyncio.Event()
        turn = self.enter(claims, begun.set)
        try:
            await begun.wait()
            yield
        finally:
            self.leave(turn)
