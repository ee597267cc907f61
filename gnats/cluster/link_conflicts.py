"""Connections to other servers that are closed because there is one too many: loops and duplicates.

LinkHealth has one of these. It is used in the loop's thread.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gnats.clock import monotonic
from gnats.go.text import quote

if TYPE_CHECKING:
    from gnats.log.logger import Logger

KEPT = 75.0
"""Seconds after which a conflict that has not come again is over: a server waits 30 s after a loop."""
MOST = 64
"""Conflicts that are kept; beyond them, the one that has not come for longest is forgotten."""


class Conflict(NamedTuple):
    """What is wrong, "loop" or "duplicate", and with which remote server in which account."""

    problem: str
    remote: str
    account: str


@dataclass(slots=True)
class Occurrences:
    """How often a conflict has come, when for the last time, and what it means."""

    times: int = 0
    last: float = 0.0
    reason: str = ""
    least: int = 1
    """Times after which it is an alert."""

    @property
    def is_alert(self) -> bool:
        return self.times >= self.least


class LinkConflicts:
    """The conflicts of the last KEPT seconds. `what` names links in the log."""

    def __init__(self, what: str, log: "Logger", time: Callable[[], float] = monotonic) -> None:
        self._what = what
        self._log = log
        self._time = time
        self._found: dict[Conflict, Occurrences] = {}

    def add(self, conflict: Conflict, reason: str, *, least: int = 1) -> None:
        """Note a connection that was closed; log the conflict when it has come `least` times."""
        self.expire()
        found = self._found.pop(conflict, None) or Occurrences()
        self._found[conflict] = found  # the last one is the newest
        found.times += 1
        found.last, found.reason, found.least = self._time(), reason, least
        if found.times == least:
            self._log.warn(f"{self._name(conflict)} was closed: {reason}")
        if len(self._found) > MOST:
            del self._found[next(iter(self._found))]

    def expire(self) -> None:
        """Forget conflicts that have not come again; log their end."""
        for conflict, found in list(self._found.items()):
            if self._time() - found.last < KEPT:
                return
            del self._found[conflict]
            if found.is_alert:
                self._log.notice(f"{self._name(conflict)} has had no {conflict.problem} for {KEPT:.0f} s")

    def alerts(self) -> dict[Conflict, Occurrences]:
        """Return the conflicts that operators should know of."""
        self.expire()
        return {conflict: found for conflict, found in self._found.items() if found.is_alert}

    def _name(self, conflict: Conflict) -> str:
        return f"{self._what} to {quote(conflict.remote)} for account {quote(conflict.account)}"
