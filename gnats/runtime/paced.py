"""Many small calls, made over several rounds of the event loop; the loop does other work in between."""

import asyncio
import time
from collections.abc import Callable

from gnats.runtime.pollers import TURN
from gnats.runtime.rotation import Rotation


class PacedCall:
    """A call that waits; see Paced.call()."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    @property
    def waits(self) -> bool:
        """Whether the call is neither made nor cancelled."""
        return self._call is not None

    def cancel(self) -> None:
        """Do not make the call. Idempotent."""
        self._call = None

    def run(self) -> None:
        """Make the call unless it has been cancelled."""
        call, self._call = self._call, None
        if call:
            call()


class Paced:
    """Makes calls soon: for TURN seconds in each round of the loop. Groups take turns, one call each.

    The calls of one group are made in order. Used in the loop's thread.
    """

    def __init__(self) -> None:
        self._waiting = Rotation[PacedCall]()
        self._next_turn: asyncio.Handle | None = None

    def call(self, group: object, call: Callable[[], None]) -> PacedCall:
        """Make a call in a later round of the loop."""
        paced = PacedCall(call)
        self._waiting.add(paced, group)
        if self._next_turn is None:
            self._next_turn = asyncio.get_running_loop().call_soon(self._take_turn)
        return paced

    def _take_turn(self) -> None:
        self._next_turn = None
        until = time.monotonic() + TURN
        try:
            while call := self._waiting.next():
                call.run()
                if time.monotonic() >= until:
                    break
        finally:  # also when a call has raised
            if self._waiting and self._next_turn is None:
                self._next_turn = asyncio.get_running_loop().call_soon(self._take_turn)
